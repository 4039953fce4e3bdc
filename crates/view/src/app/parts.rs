//! What the state of the screen consists of.

use std::cell::OnceCell;

use cgscope_model::{Wait, findings::Host};

use super::view::View;
use crate::{history::Past, settings::Span, subject::Key};

/// How the recording of what is shown does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// So many bytes are written.
    Recording(u64),
    /// It has ended before the screen: why.
    Broken(String),
}

/// What is measured, and how: it does not change with intervals.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// What is selected, in words.
    pub title: String,
    /// Name of the host; empty: not known.
    pub hostname: String,
    /// Release of its kernel; empty: not known.
    pub kernel: String,
    /// What findings are judged by.
    pub host: Host,
    /// Why it is measured coarsely, if it is.
    pub coarse: Option<String>,
}

/// The waits of what is selected, looked up when they are asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Focus {
    /// Whose waits they are; `None`: nobody's.
    pub(super) key: Option<Key>,
    /// The waits in each interval that is remembered, the latest last.
    pub(super) past: Vec<Past>,
    /// The waits of each [`Span`], and how long that is, ns.
    pub(super) spans: [OnceCell<(Wait, u64)>; Span::ALL.len()],
}

/// What the screen begins with, this time only.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// With this view.
    pub view: Option<View>,
    /// Sorted by the column of this heading.
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
