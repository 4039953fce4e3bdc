//! The views of the screen.

use cgscope_ledger::named;
use serde::{Deserialize, Serialize};

use crate::{app::list::ListKind, data::Key, keys::Command};

named! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum View (name, title, command) {
        /// The name for `--view` and in the settings file.
        name: &'static str,
        title: &'static str,
        command: Command,
    }

    #[default]
    Overview = "overview", "Overview", Command::Overview;
    Histogram = "histogram", "Histogram", Command::Histogram;
    Heatmap = "heatmap", "Heatmap", Command::Heatmap;
    Cgroups = "cgroups", "Cgroups", Command::Cgroups;
    Culprits = "culprits", "Culprits", Command::Culprits;
    Numa = "numa", "NUMA", Command::Numa;
    States = "states", "States", Command::States;
    Task = "task", "Task", Command::Task;
    Chains = "chains", "Chains", Command::Chains;
    WhatIf = "whatif", "What if", Command::WhatIf;
    Findings = "findings", "Findings", Command::Findings;
    Help = "help", "Help", Command::Help;
}

impl View {
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|view| view.name() == name)
    }

    /// Returns the view that is `places` further, without the views that cover others.
    pub(crate) fn step(self, places: isize) -> Self {
        let views: Vec<Self> = Self::ALL.iter().copied().filter(|view| !view.is_over()).collect();
        let at = views.iter().position(|view| *view == self).unwrap_or(0);
        views[(at as isize + places).rem_euclid(views.len() as isize) as usize]
    }

    /// Returns the kind of list that the view shows. Views without their own list use the list of the Overview.
    pub fn kind(self, scope: &Key, tree: bool, processes: bool) -> ListKind {
        match self {
            Self::Cgroups => ListKind::Limits,
            Self::Culprits => ListKind::Victims,
            Self::Numa => ListKind::Placed,
            Self::States => ListKind::States,
            Self::Chains => ListKind::Sleepers,
            _ => match scope {
                Key::All if tree => ListKind::Cgroups,
                Key::Process(_) => ListKind::Threads,
                _ if processes => ListKind::Processes,
                _ => ListKind::Threads,
            },
        }
    }

    /// Whether the view has no list and shows one subject.
    pub(crate) const fn is_of_one(self) -> bool {
        matches!(self, Self::Histogram | Self::Heatmap | Self::Task)
    }

    /// Whether the view shows lines that scroll. Such a view does not become the first view of the next run.
    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Self::Task | Self::WhatIf | Self::Findings | Self::Help)
    }

    /// Whether the view covers another view, which is shown again when this view closes.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::WhatIf | Self::Findings | Self::Help)
    }

    /// Whether the view shows the list of the Overview, or the subject selected there.
    pub(crate) const fn is_of_overview(self) -> bool {
        !matches!(self, Self::Cgroups | Self::Culprits | Self::Numa | Self::States | Self::Chains)
    }
}
