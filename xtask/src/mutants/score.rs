//! The score of a file or part: how many mutants its tests kill.
use std::collections::BTreeMap;
use std::fmt;

use super::explained::Kind;
use super::{Name, Outcome};

#[derive(Debug, Default)]
pub(super) struct Score {
    killed: usize,
    /// Survivors without an explanation.
    pub(super) survivors: Vec<Name>,
    accepted: usize,
    equivalent: usize,
    undecided: usize,
}

impl Score {
    pub(super) fn of(
        mutants: &[Name],
        outcomes: &BTreeMap<Name, Outcome>,
        explained: impl Fn(&str) -> Option<Kind>,
    ) -> Self {
        let mut score = Self::default();
        for name in mutants {
            match (explained(name), outcomes.get(name)) {
                (Some(Kind::Equivalent), _) => score.equivalent += 1,
                (Some(Kind::Accepted), _) => score.accepted += 1,
                (None, Some(Outcome::Killed)) => score.killed += 1,
                (None, Some(Outcome::Survived)) => score.survivors.push(name.clone()),
                (None, Some(Outcome::Unviable)) => {}
                (None, None) => score.undecided += 1,
            }
        }
        score
    }

    pub(super) fn add(&mut self, other: Self) {
        self.killed += other.killed;
        self.survivors.extend(other.survivors);
        self.accepted += other.accepted;
        self.equivalent += other.equivalent;
        self.undecided += other.undecided;
    }

    fn decided(&self) -> usize {
        self.killed + self.survivors.len() + self.accepted
    }

    /// What is wrong with a score; `None`: nothing. What is not decided yet is no fault.
    pub(super) fn fault(&self, part: &str, least_percent: usize) -> Option<String> {
        if !self.survivors.is_empty() {
            return Some(format!(
                "{part}: {} survivors have no explanation; add a test that kills each, or explain it in \
                 xtask/src/mutants/explained.txt",
                self.survivors.len()
            ));
        }
        (self.killed * 100 < self.decided() * least_percent)
            .then(|| format!("{part}: {self}, but at least {least_percent} % must be killed; add tests"))
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.killed as f64 / self.decided().max(1) as f64;
        write!(f, "killed {} of {} ({percent:.1} %)", self.killed, self.decided())?;
        for (number, what) in [(self.equivalent, "equivalent"), (self.undecided, "not decided yet")] {
            if number != 0 {
                write!(f, ", {what}: {number}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The score of mutants `0`, `1` and so on. `e` and `a`: equivalent and accepted; `k`, `s`, `u`: its outcome; `-`: not decided.
    fn score(mutants: &str) -> Score {
        let names: Vec<Name> = (0..mutants.len()).map(|at| at.to_string()).collect();
        let letters = names.iter().zip(mutants.chars());
        let outcome = |letter| match letter {
            'k' => Some(Outcome::Killed),
            's' => Some(Outcome::Survived),
            'u' => Some(Outcome::Unviable),
            _ => None,
        };
        let outcomes = letters.clone().filter_map(|(name, letter)| Some((name.clone(), outcome(letter)?)));
        Score::of(&names, &outcomes.collect(), |name| {
            match mutants.as_bytes()[name.parse::<usize>().ok()?] {
                b'e' => Some(Kind::Equivalent),
                b'a' => Some(Kind::Accepted),
                _ => None,
            }
        })
    }

    #[test]
    fn a_score_counts_what_the_compiler_accepts_and_is_not_equivalent() {
        assert_eq!(score("kkku").to_string(), "killed 3 of 3 (100.0 %)");
        assert_eq!(score("kksae-").to_string(), "killed 2 of 4 (50.0 %), equivalent: 1, not decided yet: 1");
        assert_eq!(score("").to_string(), "killed 0 of 0 (0.0 %)");
    }

    #[test]
    fn a_low_score_and_a_survivor_without_explanation_are_faults() {
        assert_eq!(score("kkkkkkkkka").fault("layout", 90), None);
        assert!(score("kkkkkkkkaa").fault("layout", 90).is_some_and(|fault| fault.contains("at least 90 %")));
        let fault = score("kkkkkkkkkkkkkkkkkkkkks").fault("layout", 90).unwrap_or_default();
        assert!(fault.starts_with("layout: 1 survivors have no explanation"), "{fault}");
        assert_eq!(score("---").fault("layout", 95), None, "nothing is decided");
    }

    #[test]
    fn a_part_has_the_sums_of_its_files() {
        let mut sum = score("ks-");
        sum.add(score("kae"));
        assert_eq!(sum.to_string(), "killed 2 of 4 (50.0 %), equivalent: 1, not decided yet: 1");
        assert_eq!(sum.survivors, ["1"]);
    }
}
