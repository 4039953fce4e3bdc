//! Parts of the state of the screen.

use std::cell::OnceCell;

use cgscope_model::{Wait, findings::Host};

use super::{App, view::View};
use crate::{
    history::{self, Past},
    settings::Span,
    subject::Key,
};

/// The state of the recording of what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Bytes that are written.
    Recording(u64),
    /// Why it ended before the screen.
    Broken(String),
}

/// What is measured, and how: the same for all intervals.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The selection, in words.
    pub title: String,
    /// Name of the host; empty: unknown.
    pub hostname: String,
    /// Release of its kernel; empty: unknown.
    pub kernel: String,
    /// The facts that findings depend on.
    pub host: Host,
    /// Why the mode is coarse, if it is.
    pub coarse: Option<String>,
}

/// The waits of what is selected, looked up when they are needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Focus {
    pub(super) key: Option<Key>,
    /// The waits in each interval of the history, the latest last.
    pub(super) past: Vec<Past>,
    /// The waits of each [`Span`], and its length, ns.
    pub(super) spans: [OnceCell<(Wait, u64)>; Span::ALL.len()],
}

/// What the screen begins with, this time only.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// The view.
    pub view: Option<View>,
    /// The heading of the sort column.
    pub sort: Option<String>,
    /// Only rows with these letters.
    pub filter: Option<String>,
}

/// A place to come back to.
#[derive(Clone, Debug)]
pub(super) struct Visited {
    pub(super) view: View,
    pub(super) scope: Key,
    pub(super) selected: Option<Key>,
    pub(super) tree: bool,
    pub(super) filter: String,
}

impl App {
    /// Looks up the waits of what is selected.
    pub(super) fn look(&mut self) {
        let known = std::mem::take(&mut self.focus);
        let Some(key) = self.focus_key() else { return };
        let known = if known.key.as_ref() == Some(&key) { known.past } else { Vec::new() };
        let past = self.history().past(&key, known);
        self.focus = Focus { key: Some(key), past, ..Focus::default() };
    }

    fn focus_key(&self) -> Option<Key> {
        let data = self.data.as_ref()?;
        let key = match &self.pinned {
            Some((key, _)) => key.clone(),
            None => self.subject()?.key(),
        };
        Some(match key {
            // The history knows more of all tasks together than of single ones.
            Key::Cgroup(path) if &*path == "/" && data.tree.unknown.is_none() => Key::All,
            key => key,
        })
    }

    /// The waits of what is selected over a span, and its length, ns.
    pub(crate) fn span(&self, span: Span) -> (&Wait, u64) {
        let (wait, length_ns) =
            self.focus.spans[span as usize].get_or_init(|| self.sum(span).unwrap_or_default());
        (wait, *length_ns)
    }

    fn sum(&self, span: Span) -> Option<(Wait, u64)> {
        let data = self.data.as_ref()?;
        Some(match span {
            Span::Interval => (self.subject()?.wait().clone(), data.interval.duration_ns),
            Span::Minute => history::last_minute(&self.focus.past),
            Span::Start => {
                // Totals since the start exist live in the BPF mode, and not for cgroups without a name.
                let has_totals = self.replay.is_none() && self.is_exact();
                match self.focus.key.as_ref()? {
                    key if has_totals && *key != Key::Unknown => self.history().since_start(key, data),
                    _ => history::all(&self.focus.past),
                }
            }
        })
    }

    /// The waits of what is selected in each interval of the history, the latest last.
    pub(crate) fn past(&self) -> &[Past] {
        &self.focus.past
    }

    /// The waits of the chosen span, and its length, ns.
    pub(crate) fn focused(&self) -> (&Wait, u64) {
        self.span(self.settings.span)
    }
}
