//! The tables of a profile: strings, functions and locations, each entry once.

use std::collections::HashMap;

use super::proto::{Function, Label, Line, Location, Profile, Sample, ValueType};

/// What samples refer to.
pub(super) struct Tables {
    strings: Vec<String>,
    index: HashMap<String, i64>,
    functions: HashMap<i64, u64>,
}

impl Default for Tables {
    fn default() -> Self {
        let mut tables = Self { strings: Vec::new(), index: HashMap::new(), functions: HashMap::new() };
        // The format wants the empty string at 0.
        tables.string("");
        tables
    }
}

impl Tables {
    pub(super) fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.index.get(text) {
            return *index;
        }
        let index = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.index.insert(text.to_owned(), index);
        index
    }

    pub(super) fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.string(name), unit: self.string(unit) }
    }

    pub(super) fn text_label(&mut self, key: &str, text: &str) -> Label {
        Label { key: self.string(key), str: self.string(text), num: 0 }
    }

    pub(super) fn number_label(&mut self, key: &str, number: u32) -> Label {
        Label { key: self.string(key), str: 0, num: number.into() }
    }

    /// A sample of a stack, root first; pprof has the leaf first.
    pub(super) fn sample<'a>(
        &mut self,
        frames: impl DoubleEndedIterator<Item = &'a str>,
        leaf: &str,
        values: [u64; 3],
    ) -> Sample {
        let mut location_id = vec![self.location(leaf)];
        location_id.extend(frames.rev().map(|frame| self.location(frame)));
        Sample { location_id, value: values.map(u64::cast_signed).into(), label: Vec::new() }
    }

    /// A location to each function, of the same id.
    fn location(&mut self, frame: &str) -> u64 {
        let name = self.string(frame);
        let next = self.functions.len() as u64 + 1;
        *self.functions.entry(name).or_insert(next)
    }

    pub(super) fn give_to(self, profile: &mut Profile) {
        let mut functions: Vec<(i64, u64)> = self.functions.into_iter().collect();
        functions.sort_by_key(|(_, id)| *id);
        for (name, id) in functions {
            profile.function.push(Function { id, name, system_name: name });
            profile.location.push(Location { id, line: vec![Line { function_id: id }] });
        }
        profile.string_table = self.strings;
    }
}
