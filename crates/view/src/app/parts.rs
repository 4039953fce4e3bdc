//! Parts of the state of the screen.

use std::cell::OnceCell;

use cgscope_model::{Wait, findings::Host};

use super::{App, view::View};
use crate::{
    history::{self, Past},
    settings::Span,
    subject::Key,
};

/// The state of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The recording continues; bytes written so far.
    Recording(u64),
    /// The recording ended early; the reason.
    Broken(String),
}

/// What is measured and how. It is the same for all intervals.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Describes the selected targets.
    pub title: String,
    /// Host name; empty if unknown.
    pub hostname: String,
    /// Kernel release of the host; empty if unknown.
    pub kernel: String,
    /// Facts about the host that findings depend on.
    pub host: Host,
    /// Why the mode is coarse; `None` in BPF mode.
    pub coarse: Option<String>,
}

/// The waits of the selected subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Focus {
    pub(super) key: Option<Key>,
    /// The waits in each interval of the history, oldest first.
    pub(super) past: Vec<Past>,
    /// The waits of each [`Span`] and its length, ns; computed on first use.
    pub(super) spans: [OnceCell<(Wait, u64)>; Span::ALL.len()],
}

/// Choices from the command line. They override the settings and are not saved.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// The first view.
    pub view: Option<View>,
    /// Heading of the sort column.
    pub sort: Option<String>,
    /// Only rows that contain this text.
    pub filter: Option<String>,
}

/// A place that the Back command returns to.
#[derive(Clone, Debug)]
pub(super) struct Visited {
    pub(super) view: View,
    pub(super) scope: Key,
    pub(super) selected: Option<Key>,
    pub(super) tree: bool,
    pub(super) filter: String,
}

impl App {
    /// Updates the waits of the selected subject from the history.
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
            // The history keeps more data for all tasks than for single subjects.
            Key::Cgroup(path) if &*path == "/" && data.tree.unknown.is_none() => Key::All,
            key => key,
        })
    }

    /// The waits of the selected subject over a span, and the length of the span, ns.
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
                // Totals since the start exist only live in BPF mode, and not for cgroups without a known path.
                let has_totals = self.replay.is_none() && self.is_exact();
                match self.focus.key.as_ref()? {
                    key if has_totals && *key != Key::Unknown => self.history().since_start(key, data),
                    _ => history::all(&self.focus.past),
                }
            }
        })
    }

    /// The waits of the selected subject in each interval of the history, oldest first.
    pub(crate) fn past(&self) -> &[Past] {
        &self.focus.past
    }

    /// The waits over the chosen span, and its length, ns.
    pub(crate) fn focused(&self) -> (&Wait, u64) {
        self.span(self.settings.span)
    }
}
