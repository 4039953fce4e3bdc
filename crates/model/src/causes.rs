//! Causes of waits, and the table of causes that every output follows. A new cause needs a variant of [`Cause`], a row of
//! [`TABLE`] and arithmetic in the hook.

use cgscope_ledger::{CAUSES, Cause};

use crate::Mode;
use crate::sum::{self, by};

/// How a cause is shown. [`Cause::name`] is its name in machine-readable output.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    pub cause: Cause,
    /// Letter of the cause in a bar without colours.
    pub letter: char,
    /// Name in sentences and legends.
    pub words: &'static str,
    /// Short name, for narrow places.
    pub word: &'static str,
    /// Name as a thread state.
    pub state: &'static str,
    /// True if the coarse mode cannot see this cause.
    pub exact_only: bool,
    /// True if a limit kept the task off every CPU: a quota, or the runtime of real-time tasks.
    pub is_limit: bool,
    /// Who had the CPU; `None`: nobody, or unknown.
    pub behind: Option<Behind>,
    /// Phrase for a task that has been waiting very long, such as "for an unknown cause".
    pub starved: &'static str,
    pub blames: Blames,
    /// True if reports show this cause over time.
    pub over_time: bool,
    /// Terminal colour: one of the 16 basic ones and one of xterm's 256. `None`: the colour of explanations.
    pub terminal: Option<(u8, u8)>,
    /// Colours in an HTML page, on light and on dark background.
    pub page: (&'static str, &'static str),
}

/// Who had the CPU that a task waited for.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    /// The phrase that outputs put after the word "behind".
    pub who: &'static str,
    pub helps: &'static str,
    /// True for tasks; false for interrupts and the hypervisor.
    pub is_task: bool,
}

/// Who can be blamed for the waits of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blames {
    /// The cgroups whose quota ran out.
    Quotas,
    OwnCgroup,
    OtherCgroups,
    Kernel,
    Nobody,
}

/// All causes in the order of bars and legends: the easiest cause to fix first, the unknown cause last. The colours are those of
/// Okabe and Ito. Colour-blind readers can distinguish them on light and on dark backgrounds.
#[rustfmt::skip]
pub const TABLE: [Shown; CAUSES] = [
    Shown {
        cause: Cause::Throttled, letter: 'T', words: "throttled", word: "throttled", state: "throttled",
        is_limit: true, starved: "while it was out of quota", behind: None,
        exact_only: false, blames: Blames::Quotas, over_time: true, terminal: Some((9, 166)), page: ("#d55e00", "#f57b2b"),
    },
    Shown {
        cause: Cause::RtThrottled, letter: 'R', words: "out of real-time runtime", word: "runtime", state: "out of real-time runtime",
        is_limit: true, starved: "because its real-time or deadline runtime is used up", behind: None,
        exact_only: true, blames: Blames::Nobody, over_time: false, terminal: Some((1, 124)), page: ("#9c2a00", "#c9480f"),
    },
    Shown {
        cause: Cause::OwnCgroup, letter: 'o', words: "behind own cgroup", word: "own", state: "queued behind own cgroup",
        is_limit: false, starved: "behind its own cgroup",
        behind: Some(Behind { who: "its own cgroup", helps: MORE_CPUS, is_task: true }),
        exact_only: true, blames: Blames::OwnCgroup, over_time: false, terminal: Some((12, 74)), page: ("#2b7bba", "#56b4e9"),
    },
    Shown {
        cause: Cause::OtherCgroup, letter: '#', words: "behind other cgroups", word: "others", state: "queued behind other cgroups",
        is_limit: false, starved: "behind other cgroups",
        behind: Some(Behind {
            who: "other cgroups", is_task: true,
            helps: "raise its cpu.weight (in v1 cpu.shares), add CPUs, pin it to other CPUs, or move the neighbours away",
        }),
        exact_only: true, blames: Blames::OtherCgroups, over_time: true, terminal: Some((3, 178)), page: ("#dfa400", "#f0d442"),
    },
    Shown {
        cause: Cause::Kernel, letter: 'k', words: "behind the kernel", word: "kernel", state: "queued behind the kernel",
        is_limit: false, starved: "behind kernel threads",
        behind: Some(Behind {
            who: "the kernel", is_task: true,
            helps: "add CPUs, pin it to other CPUs, or move the neighbours whose work keeps the kernel busy",
        }),
        exact_only: true, blames: Blames::Kernel, over_time: false, terminal: Some((5, 175)), page: ("#b25597", "#d48bb8"),
    },
    Shown {
        cause: Cause::Irq, letter: 'i', words: "behind interrupts", word: "irq", state: "queued behind interrupts",
        is_limit: false, starved: "behind interrupts",
        behind: Some(Behind { who: "interrupts", is_task: false, helps: "add CPUs, or move the interrupts to other CPUs" }),
        exact_only: true, blames: Blames::Nobody, over_time: false, terminal: Some((13, 133)), page: ("#7b4a9e", "#b18bd6"),
    },
    Shown {
        cause: Cause::Stolen, letter: 's', words: "behind the hypervisor", word: "stolen", state: "queued behind the hypervisor",
        is_limit: false, starved: "for the hypervisor",
        behind: Some(Behind { who: "the hypervisor", is_task: false, helps: "move the virtual machine to a less busy host" }),
        exact_only: true, blames: Blames::Nobody, over_time: false, terminal: Some((2, 106)), page: ("#6b7a1e", "#a9b84a"),
    },
    Shown {
        cause: Cause::Wakeup, letter: '.', words: "wakeup", word: "wakeup", state: "wakeup",
        is_limit: false, starved: "while its CPU ran nothing", behind: None,
        exact_only: true, blames: Blames::Nobody, over_time: false, terminal: Some((6, 36)), page: ("#00906a", "#2bc49b"),
    },
    Shown {
        cause: Cause::Unattributed, letter: '?', words: "unattributed", word: "unknown", state: "queued, cause not known",
        is_limit: false, starved: "for an unknown cause", behind: None,
        exact_only: false, blames: Blames::Nobody, over_time: false, terminal: None, page: ("#8b939c", "#79828d"),
    },
];

/// Advice for a target that only lacks CPUs.
pub(crate) const MORE_CPUS: &str = "more CPUs help";

/// The causes in the order of [`TABLE`].
pub const ORDER: [Cause; CAUSES] = {
    let mut order = Cause::ALL;
    let mut place = 0;
    while place < CAUSES {
        order[place] = TABLE[place].cause;
        place += 1;
    }
    order
};

pub fn shown(cause: Cause) -> &'static Shown {
    const ROWS: &[Shown; CAUSES] = &TABLE;
    ROWS.iter().find(|row| row.cause == cause).expect("each cause has a row")
}

by! {
    /// Nanoseconds by cause. The parts of a wait sum to the wait.
    ByCause: Cause, CAUSES
}

impl ByCause {
    pub fn only(cause: Cause, ns: u64) -> Self {
        let mut parts = Self::default();
        parts.0[cause as usize] = ns;
        parts
    }

    pub fn blaming(&self, blames: Blames) -> u64 {
        sum::total(TABLE.iter().filter(|row| row.blames == blames).map(|row| self.get(row.cause)))
    }

    /// Returns the time in which a limit kept the tasks off every CPU ([`Shown::is_limit`]), ns.
    pub fn limited_ns(&self) -> u64 {
        sum::total(TABLE.iter().filter(|row| row.is_limit).map(|row| self.get(row.cause)))
    }

    /// Returns the nanoseconds of one cause; `None` if `mode` cannot see the cause. The coarse mode does not see which task ran.
    pub fn known(&self, cause: Cause, mode: Mode) -> Option<u64> {
        if shown(cause).exact_only { mode.exact(|| self.get(cause)) } else { Some(self.get(cause)) }
    }

    /// Returns the increase since `before`; `None` if a part decreased.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut out = *self;
        for (now, before) in out.0.iter_mut().zip(before.0) {
            *now = now.checked_sub(before)?;
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_row_letter_and_names() {
        for cause in Cause::ALL {
            assert_eq!(shown(cause).cause, cause);
        }
        for (at, one) in TABLE.iter().enumerate() {
            let others = TABLE[at + 1..].iter();
            assert!(others.clone().all(|other| other.letter != one.letter && other.words != one.words));
            assert!(others.clone().all(|other| other.word != one.word && other.state != one.state));
        }
    }

    #[test]
    fn the_documents_name_every_cause_and_its_letter() {
        let figures = include_str!("../../../docs/figures.md");
        for Shown { cause, letter, .. } in TABLE {
            assert!(figures.contains(&format!("`{}`", cause.name())), "{}", cause.name());
            assert!(figures.contains(&format!("`{letter}` ")), "{letter}");
        }
    }

    #[test]
    fn the_dashboards_colour_every_cause() {
        let dashboard = include_str!("../../../deploy/grafana/cgscope.json");
        for cause in Cause::ALL {
            let named = format!("\"options\": \"{}\"", cause.name());
            assert_eq!(dashboard.matches(&named).count(), 2, "panels that colour {}", cause.name());
        }
    }
}
