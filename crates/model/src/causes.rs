//! Causes of waits, and the table of causes that every output follows. A new cause needs a variant of [`Cause`], a row of
//! [`TABLE`] and arithmetic in the hook.

use cgscope_ledger::{CAUSES, Cause};

use crate::{Mode, sum::by};

/// How a cause is shown. Its name in machine-readable output is [`Cause::name`].
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The cause that this row describes.
    pub cause: Cause,
    /// The letter for the cause in a bar without colours.
    pub letter: char,
    /// Name in sentences and legends.
    pub words: &'static str,
    /// Short name, for places with little space.
    pub word: &'static str,
    /// Name as a state of threads.
    pub state: &'static str,
    /// True if the coarse mode cannot see this cause.
    pub exact_only: bool,
    /// The colour: one of the terminal's 16, and one of xterm's 256. `None`: the colour of explanations.
    pub terminal: Option<(u8, u8)>,
    /// The colour in an HTML page, on light and on dark background.
    pub page: (&'static str, &'static str),
}

/// All causes in the order of bars and legends: the cause that is easiest to fix first, the unknown cause last. The colours are
/// those of Okabe and Ito: colour-blind readers can distinguish them, on light and on dark backgrounds.
#[rustfmt::skip]
pub const TABLE: [Shown; CAUSES] = [
    Shown {
        cause: Cause::Throttled, letter: 'T', words: "throttled", word: "throttled", state: "throttled",
        exact_only: false, terminal: Some((9, 166)), page: ("#d55e00", "#f57b2b"),
    },
    Shown {
        cause: Cause::RtThrottled, letter: 'R', words: "out of real-time runtime", word: "runtime", state: "out of real-time runtime",
        exact_only: true, terminal: Some((1, 124)), page: ("#9c2a00", "#c9480f"),
    },
    Shown {
        cause: Cause::OwnCgroup, letter: 'o', words: "behind own cgroup", word: "own", state: "queued behind own cgroup",
        exact_only: true, terminal: Some((12, 74)), page: ("#2b7bba", "#56b4e9"),
    },
    Shown {
        cause: Cause::OtherCgroup, letter: '#', words: "behind other cgroups", word: "others", state: "queued behind other cgroups",
        exact_only: true, terminal: Some((3, 178)), page: ("#dfa400", "#f0d442"),
    },
    Shown {
        cause: Cause::Kernel, letter: 'k', words: "behind the kernel", word: "kernel", state: "queued behind the kernel",
        exact_only: true, terminal: Some((5, 175)), page: ("#b25597", "#d48bb8"),
    },
    Shown {
        cause: Cause::Irq, letter: 'i', words: "behind interrupts", word: "irq", state: "queued behind interrupts",
        exact_only: true, terminal: Some((13, 133)), page: ("#7b4a9e", "#b18bd6"),
    },
    Shown {
        cause: Cause::Stolen, letter: 's', words: "behind the hypervisor", word: "stolen", state: "queued behind the hypervisor",
        exact_only: true, terminal: Some((2, 106)), page: ("#6b7a1e", "#a9b84a"),
    },
    Shown {
        cause: Cause::Wakeup, letter: '.', words: "wakeup", word: "wakeup", state: "wakeup",
        exact_only: true, terminal: Some((6, 36)), page: ("#00906a", "#2bc49b"),
    },
    Shown {
        cause: Cause::Unattributed, letter: '?', words: "unattributed", word: "unknown", state: "queued, cause not known",
        exact_only: false, terminal: None, page: ("#8b939c", "#79828d"),
    },
];

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

/// The row of [`TABLE`] for this cause.
pub const fn shown(cause: Cause) -> &'static Shown {
    const ROWS: &[Shown; CAUSES] = &TABLE;
    let mut place = 0;
    while ROWS[place].cause as u32 != cause as u32 {
        place += 1;
    }
    &ROWS[place]
}

by! {
    /// Nanoseconds by cause. The parts of a wait sum to the wait.
    ByCause: Cause, CAUSES
}

impl ByCause {
    /// Assigns all of `ns` to one cause.
    pub fn only(cause: Cause, ns: u64) -> Self {
        let mut parts = Self::default();
        parts.0[cause as usize] = ns;
        parts
    }

    /// Time in which a limit kept the tasks off every CPU: a quota, or the runtime of real-time tasks.
    pub fn limited_ns(&self) -> u64 {
        self.get(Cause::Throttled).saturating_add(self.get(Cause::RtThrottled))
    }

    /// Nanoseconds of one cause; `None` if `mode` cannot see the cause. The coarse mode does not see which task ran.
    pub fn known(&self, cause: Cause, mode: Mode) -> Option<u64> {
        if shown(cause).exact_only { mode.exact(|| self.get(cause)) } else { Some(self.get(cause)) }
    }

    /// The increase since `before`; `None` if a part decreased.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut out = Self::default();
        for (out, (now, before)) in out.0.iter_mut().zip(self.0.iter().zip(before.0)) {
            *out = now.checked_sub(before)?;
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
