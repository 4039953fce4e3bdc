//! Reads BTF, the kernel's description of its own types: only the parts that offsets and features need.
//!
//! The reader checks every number, because the file may be damaged. A missing part is `None`.

use std::{collections::HashMap, fs, io, path::Path};

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// Length of the header of a file, bytes.
const LENGTH_OF_HEADER: u32 = 24;
/// Shift, in bits, that moves the kind to the low bits of a type's second word.
const KIND_SHIFT: u32 = 24;
/// Length of the head that every type has, bytes.
const HEAD: usize = 12;

/// Kinds of types (`BTF_KIND_...` in `linux/btf.h`).
pub(crate) mod kind {
    pub(crate) const INT: u32 = 1;
    pub(crate) const PTR: u32 = 2;
    pub(crate) const ARRAY: u32 = 3;
    pub(crate) const STRUCT: u32 = 4;
    pub(crate) const UNION: u32 = 5;
    pub(crate) const ENUM: u32 = 6;
    pub(crate) const FWD: u32 = 7;
    pub(crate) const TYPEDEF: u32 = 8;
    pub(crate) const VOLATILE: u32 = 9;
    pub(crate) const CONST: u32 = 10;
    pub(crate) const RESTRICT: u32 = 11;
    pub(crate) const FUNC: u32 = 12;
    pub(crate) const FUNC_PROTO: u32 = 13;
    pub(crate) const VAR: u32 = 14;
    pub(crate) const DATASEC: u32 = 15;
    pub(crate) const DECL_TAG: u32 = 17;
    pub(crate) const ENUM64: u32 = 19;
    /// The highest known kind. We cannot parse higher kinds, because we do not know their length.
    pub(crate) const LAST: u32 = ENUM64;
}

pub(crate) struct Btf {
    bytes: Vec<u8>,
    /// Offset of each type in the file, bytes. Type ids count from 1.
    types: Vec<u32>,
    strings: (usize, usize),
}

#[derive(Clone, Copy)]
pub(crate) struct Type<'b> {
    btf: &'b Btf,
    at: usize,
    info: u32,
}

pub(crate) struct Member<'b> {
    /// Empty for an anonymous structure or union.
    pub(crate) name: &'b [u8],
    /// Offset within the structure, bits.
    pub(crate) bits: u32,
    btf: &'b Btf,
    of: u32,
}

impl Btf {
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        let (types, strings) = parse(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not the BTF of this machine"))?;
        Ok(Self { bytes, types, strings })
    }

    /// Finds all types that have one of these names. `names` must be sorted. One search takes a few milliseconds.
    pub(crate) fn find(&self, names: &[String]) -> HashMap<String, Vec<Type<'_>>> {
        let mut found: HashMap<String, Vec<Type<'_>>> = HashMap::new();
        // Few types have a name that begins like one of `names`.
        let begin = |name: &[u8]| Some(usize::from(u16::from_ne_bytes(name.first_chunk().copied()?)));
        let mut begins = vec![false; 1 << u16::BITS];
        let terminated = names.iter().map(|name| [name.as_bytes(), &[0]].concat());
        terminated.filter_map(|name| begin(&name)).for_each(|two| begins[two] = true);
        for ty in self.types.iter().filter_map(|at| self.at(*at)) {
            let strings = word(&self.bytes, ty.at).and_then(|at| self.strings_from(at));
            let may_be = strings.and_then(begin).is_some_and(|two| begins[two]);
            let Some(name) = ty.name().filter(|_| may_be) else { continue };
            if let Ok(i) = names.binary_search_by(|wanted| wanted.as_bytes().cmp(name)) {
                found.entry(names[i].clone()).or_default().push(ty);
            }
        }
        found
    }

    fn ty(&self, id: u32) -> Option<Type<'_>> {
        self.at(*self.types.get(id.checked_sub(1)? as usize)?)
    }

    fn at(&self, at: u32) -> Option<Type<'_>> {
        let at = at as usize;
        Some(Type { btf: self, at, info: word(&self.bytes, at + 4)? })
    }

    fn string(&self, offset: u32) -> Option<&[u8]> {
        self.strings_from(offset)?.split(|byte| *byte == 0).next()
    }

    /// Returns the string at `offset`, and all after it.
    fn strings_from(&self, offset: u32) -> Option<&[u8]> {
        let (start, end) = self.strings;
        self.bytes.get(start.checked_add(offset as usize)?..end)
    }
}

impl<'b> Type<'b> {
    /// Returns the id of the type; the first type has 1.
    pub(crate) fn id(self) -> u32 {
        self.btf.types.partition_point(|at| *at as usize <= self.at) as u32
    }

    pub(crate) fn kind(self) -> u32 {
        kind_of(self.info)
    }

    /// Returns the number of members or parameters.
    pub(crate) fn len(self) -> usize {
        length(self.info)
    }

    /// Returns the type that a typedef, pointer or qualifier refers to.
    pub(crate) fn inner(self) -> Option<Self> {
        self.btf.ty(word(&self.btf.bytes, self.at + 8)?)
    }

    pub(crate) fn members(self) -> impl Iterator<Item = Member<'b>> {
        let btf = self.btf;
        let count = if [kind::STRUCT, kind::UNION].contains(&self.kind()) { self.len() } else { 0 };
        let has_bit_sizes = self.info >> 31 != 0;
        (0..count).map_while(move |i| {
            let at = self.at + HEAD + 12 * i;
            let [name, of, offset] = [0, 4, 8].map(|more| word(&btf.bytes, at + more));
            let bits = if has_bit_sizes { offset? & 0xff_ffff } else { offset? };
            Some(Member { name: btf.string(name?)?, bits, btf, of: of? })
        })
    }

    /// Returns the variables of a section: the id of each, and its offset, bytes.
    pub(crate) fn variables(self) -> impl Iterator<Item = (u32, u32)> {
        let count = if self.kind() == kind::DATASEC { self.len() } else { 0 };
        (0..count).map_while(move |i| {
            let [id, offset] = [0, 4].map(|more| word(&self.btf.bytes, self.at + HEAD + 12 * i + more));
            Some((id?, offset?))
        })
    }

    pub(crate) fn has_enumerator(self, name: &str) -> bool {
        let size = match self.kind() {
            kind::ENUM => 8,
            kind::ENUM64 => 12,
            _ => return false,
        };
        let name_of = |i| self.btf.string(word(&self.btf.bytes, self.at + HEAD + size * i)?);
        (0..self.len()).any(|i| name_of(i) == Some(name.as_bytes()))
    }

    fn name(self) -> Option<&'b [u8]> {
        self.btf.string(word(&self.btf.bytes, self.at)?)
    }
}

impl<'b> Member<'b> {
    pub(crate) fn ty(&self) -> Option<Type<'b>> {
        self.btf.ty(self.of)
    }
}

/// A function or typedef that BPF programs are attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachPoint {
    pub(crate) id: u32,
    pub(crate) kind: u32,
    pub(crate) name: String,
}

/// Builds a BTF file for aya. Only the types in `points` (ascending by id) have a name and keep their ids. aya allocates memory
/// for everything that it parses, and compares all names for each program that it loads. With this small file, aya has little to
/// parse and to compare.
pub(crate) fn file_of(points: &[AttachPoint]) -> Vec<u8> {
    let (mut types, mut strings) = (Vec::new(), vec![0]);
    let mut points = points.iter().peekable();
    for id in 1.. {
        let Some(next) = points.peek() else { break };
        let (name, kind) = if next.id == id { (strings.len() as u32, next.kind) } else { (0, kind::FWD) };
        for word in [name, kind << KIND_SHIFT, 0] {
            types.extend_from_slice(&u32::to_ne_bytes(word));
        }
        if let Some(point) = points.next_if(|point| point.id <= id) {
            strings.extend(point.name.bytes().chain([0]));
        }
    }
    let (types_length, strings_length) = (types.len() as u32, strings.len() as u32);
    let lengths = [LENGTH_OF_HEADER, 0, types_length, types_length, strings_length].map(u32::to_ne_bytes);
    let magic = MAGIC.to_ne_bytes();
    [&magic[..], &[VERSION, 0], &lengths.concat(), &types, &strings].concat()
}

fn parse(bytes: &[u8]) -> Option<(Vec<u32>, (usize, usize))> {
    if bytes.get(..2)? != MAGIC.to_ne_bytes() {
        return None;
    }
    let [head, type_start, type_length, string_start, string_length] =
        [4, 8, 12, 16, 20].map(|at| word(bytes, at).map(|word| word as usize));
    let part = |start: Option<usize>, length: Option<usize>| {
        let start = head?.checked_add(start?)?;
        let end = start.checked_add(length?)?;
        (end <= bytes.len()).then_some((start, end))
    };
    let (mut at, end) = part(type_start, type_length)?;
    let mut types = Vec::with_capacity((end - at) / 20);
    while at < end {
        let info = word(bytes, at + 4)?;
        types.push(u32::try_from(at).ok()?);
        at += HEAD + tail(info)?;
    }
    Some((types, part(string_start, string_length)?))
}

/// Returns the length of the data after the head of a type, bytes.
fn tail(info: u32) -> Option<usize> {
    let each = match kind_of(info) {
        kind::INT | kind::VAR | kind::DECL_TAG => return Some(4),
        kind::ARRAY => return Some(12),
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12,
        kind::ENUM | kind::FUNC_PROTO => 8,
        1..=kind::LAST => 0,
        _ => return None,
    };
    Some(each * length(info))
}

fn kind_of(info: u32) -> u32 {
    info >> KIND_SHIFT & 0x1f
}

fn length(info: u32) -> usize {
    (info & 0xffff) as usize
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests;
