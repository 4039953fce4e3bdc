//! Waits split by cause, and the table of the causes, which every output follows. A new cause is a variant of [`Cause`], a row of
//! [`TABLE`] and the arithmetic of the hook.

use cgscope_layout::{CAUSES, Cause};

use crate::{Mode, sum::by};

/// How a cause is shown. Its name in outputs is [`Cause::name`].
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The cause.
    pub cause: Cause,
    /// What stands for it in a bar without colours.
    pub letter: char,
    /// Its name in sentences and legends.
    pub words: &'static str,
    /// Its name where there is little space.
    pub word: &'static str,
    /// Its name as a state of threads.
    pub state: &'static str,
    /// True if the coarse mode does not know it.
    pub exact_only: bool,
    /// The colour among the terminal's 16, and among the 256 of xterm. `None`: the colour of explanations.
    pub terminal: Option<(u8, u8)>,
    /// The colour in a page, on light and on dark paper.
    pub page: (&'static str, &'static str),
}

/// All causes in the order of bars and legends: first the one that is mended most easily, last the one that is not known.
/// The colours are those of Okabe and Ito: the colour-blind can tell them apart, on light and on dark grounds.
#[rustfmt::skip]
pub const TABLE: [Shown; CAUSES] = [
    Shown {
        cause: Cause::Throttled, letter: 'T', words: "throttled", word: "throttled", state: "throttled",
        exact_only: false, terminal: Some((9, 166)), page: ("#d55e00", "#f57b2b"),
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

/// Its row of [`TABLE`].
pub const fn shown(cause: Cause) -> &'static Shown {
    const ROWS: &[Shown; CAUSES] = &TABLE;
    let mut place = 0;
    while ROWS[place].cause as u32 != cause as u32 {
        place += 1;
    }
    &ROWS[place]
}

by! {
    /// ns by cause. The parts of a wait sum to the wait.
    ByCause: Cause, CAUSES
}

impl ByCause {
    /// All of it for one cause.
    pub fn only(cause: Cause, ns: u64) -> Self {
        let mut parts = Self::default();
        parts.0[cause as usize] = ns;
        parts
    }

    /// ns of one cause as a reading of this mode knows it: the coarse mode does not see who ran.
    pub fn known(&self, cause: Cause, mode: Mode) -> Option<u64> {
        if shown(cause).exact_only { mode.exact(|| self.get(cause)) } else { Some(self.get(cause)) }
    }

    /// What came since `before`; `None` if a part went backwards.
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
    fn the_readme_names_every_cause_and_its_letter() {
        let readme = include_str!("../../../README.md");
        for Shown { cause, letter, .. } in TABLE {
            assert!(readme.contains(&format!("`{}`", cause.name())), "{}", cause.name());
            assert!(readme.contains(&format!("`{letter}` ")), "{letter}");
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
