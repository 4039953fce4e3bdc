//! The views of the screen.

use crate::{app::list::Kind, keys::Command, subject::Key};

macro_rules! views {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $title:literal, $command:ident;)*) => {
        /// A view.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum View { #[default] $($(#[$doc])* $variant,)* }

        impl View {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name for `--view` and in settings.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its heading.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// What shows it.
            pub const fn command(self) -> Command {
                match self { $(Self::$variant => Command::$command,)* }
            }
        }
    };
}

views! {
    /// What is wrong, who waits, and why.
    Overview = "overview", "Overview", Overview;
    /// How long waits are.
    Histogram = "histogram", "Histogram", Histogram;
    /// How long they are over time.
    Heatmap = "heatmap", "Heatmap", Heatmap;
    /// Quotas and pressure.
    Cgroups = "cgroups", "Cgroups", Cgroups;
    /// Who made whom wait.
    Culprits = "culprits", "Culprits", Culprits;
    /// Nodes side by side.
    Numa = "numa", "NUMA", Numa;
    /// Threads by state.
    States = "states", "States", States;
    /// Everything about one.
    Task = "task", "Task", Task;
    /// All that is wrong, and what to do.
    Findings = "findings", "Findings", Findings;
    /// Keys and columns.
    Help = "help", "Help", Help;
}

impl View {
    /// The view that a command shows.
    pub fn of(command: Command) -> Option<Self> {
        Self::ALL.iter().copied().find(|view| view.command() == command)
    }

    /// The view of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|view| view.name() == name)
    }

    /// The one so many places on; findings and help are not among them.
    pub fn step(self, places: isize) -> Self {
        let views = &Self::ALL[..Self::ALL.len() - 2];
        let at = views.iter().position(|view| *view == self).unwrap_or(0);
        views[(at as isize + places).rem_euclid(views.len() as isize) as usize]
    }

    /// What its rows are, within a scope, with a tree of cgroups or without, of processes or threads. Views that have no list of their own go on with that of the Overview.
    pub fn kind(self, scope: &Key, tree: bool, processes: bool) -> Kind {
        match self {
            Self::Cgroups => Kind::Limits,
            Self::Culprits => Kind::Victims,
            Self::Numa => Kind::Placed,
            Self::States => Kind::States,
            _ => match scope {
                Key::All if tree => Kind::Cgroups,
                Key::Process(_) => Kind::Threads,
                _ if processes => Kind::Processes,
                _ => Kind::Threads,
            },
        }
    }

    /// It has no list, and is of one subject.
    pub const fn is_of_one(self) -> bool {
        matches!(self, Self::Histogram | Self::Heatmap | Self::Task)
    }

    /// It shows lines that scroll. It is what somebody looked at, not how: the next time begins with another.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Task | Self::Findings | Self::Help)
    }

    /// It lies over another one, which comes back after it.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Findings | Self::Help)
    }

    /// It shows the list of the Overview, or what is selected there.
    pub const fn is_of_overview(self) -> bool {
        matches!(
            self,
            Self::Overview | Self::Histogram | Self::Heatmap | Self::Task | Self::Findings | Self::Help
        )
    }
}
