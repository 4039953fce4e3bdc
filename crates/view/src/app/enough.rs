//! The question which quota would have been enough for a cgroup. The main loop asks what is wanted, and provides the answer.

use std::sync::Arc;

use cgscope_model::selection::path_and_ancestors;

use super::{App, Effect, view::View};

/// The cgroup in question, and the answer so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Enough {
    path: Arc<str>,
    pub(crate) title: String,
    /// Lines of text; empty before the first answer.
    pub(crate) lines: Vec<String>,
}

impl App {
    /// Opens the view for the selected cgroup, or the cgroup of the selected task. If that has no quota, for the nearest one above it
    /// that has one.
    pub(super) fn ask_enough(&mut self) -> Effect {
        let Err(why) = self.question().map(|enough| self.enough = Some(enough)) else {
            return self.go(View::WhatIf);
        };
        self.notice = Some(why);
        Effect::Draw
    }

    /// The question about the selection, or a sentence that says why there is none.
    fn question(&self) -> Result<Enough, String> {
        if self.replay.is_some() {
            return Err("a replay does not answer this: use `cgscope whatif FILE`".into());
        }
        if self.about.coarse.is_some() {
            return Err(
                "the coarse mode does not answer this: make an exact recording for `cgscope whatif FILE`"
                    .into(),
            );
        }
        let data = self.data.as_ref().ok_or("nothing has been measured yet")?;
        let interval = &data.interval;
        let cgroup = self.subject().and_then(|subject| subject.cgroup(interval).cloned());
        let own = cgroup.ok_or("select a cgroup with a quota, or a task in one")?;
        let has_quota = |path: &str| interval.limits_at(path).is_some_and(|limits| limits.quota_us.is_some());
        let limited = path_and_ancestors(&own).find(|path| has_quota(path));
        let name = |path: &str| interval.names.of(path).to_string();
        let path =
            limited.ok_or_else(|| format!("{} has no quota, and no cgroup above it has one", name(&own)))?;
        Ok(Enough { path: path.into(), title: name(path), lines: Vec::new() })
    }

    /// The path of the cgroup whose demand the screen wants collected; `None` if no answer is on the screen.
    pub fn wanted_enough(&self) -> Option<&Arc<str>> {
        let enough = self.enough.as_ref().filter(|_| self.view == View::WhatIf)?;
        Some(&enough.path)
    }

    /// Shows the answer for a cgroup, unless the screen is paused or no longer wants it.
    pub fn on_enough(&mut self, path: &str, lines: Vec<String>) {
        if let Some(enough) = self.enough.as_mut().filter(|enough| !self.paused && &*enough.path == path) {
            enough.lines = lines;
        }
    }
}

#[cfg(test)]
mod tests;
