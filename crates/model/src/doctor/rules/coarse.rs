//! Which mode measures here, judged last: from the facts and from all other verdicts.

use super::{note, off, ok, unknown};
use crate::{
    Mode,
    doctor::{Facts, Level, Verdict},
};

/// The mode that is used where none is asked for by name; `None`: neither works.
pub(in crate::doctor) fn mode(facts: &Facts, verdicts: &[Verdict]) -> Option<Mode> {
    match verdicts.iter().any(|verdict| verdict.level == Level::Missing) {
        false => Some(Mode::Bpf),
        // Without the kernel's own sums there is nothing to read.
        true => (facts.sched_info == Some(true)).then_some(Mode::Coarse),
    }
}

pub(in crate::doctor) fn judge(facts: &Facts, verdicts: &[Verdict]) -> Vec<Verdict> {
    let missing = verdicts.iter().find(|verdict| verdict.level == Level::Missing);
    let missing = missing.map_or("", |verdict| &verdict.finding);
    let mut out = match mode(facts, verdicts) {
        Some(Mode::Bpf) if facts.trial.is_some() => ok(MODE, "measuring is exact (--mode bpf)"),
        Some(Mode::Bpf) => note(MODE, "nothing is known to prevent exact measuring (--mode bpf)"),
        Some(Mode::Coarse) => off(
            Level::Degraded,
            MODE,
            format!("measuring is coarse (--mode coarse), because {missing}"),
            "sums of waits come from /proc: there is no histogram, no longest wait and no wait under way, and of the causes \
             only what quotas took",
            "what is missing above brings the exact mode back",
        ),
        None => off(
            Level::Missing,
            MODE,
            "measuring is not possible, neither exact nor coarse: it is not known that the kernel keeps sums of waits",
            "top, hist and record do not run",
            "see sched_info above",
        ),
    };
    out.extend(hidden_processes(facts));
    out
}

const MODE: &str = "mode";

fn hidden_processes(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "processes";
    match (facts.hides_processes, facts.holds("CAP_SYS_PTRACE")) {
        (Some(true), Some(false)) => note(
            TOPIC,
            "/proc is mounted with hidepid, and CAP_SYS_PTRACE is not held: the coarse mode sees this user's processes alone",
        ),
        (Some(true), _) => ok(TOPIC, "/proc is mounted with hidepid, which CAP_SYS_PTRACE sees through"),
        (None, _) => unknown(TOPIC, "whether /proc hides processes"),
        (Some(false), _) => ok(TOPIC, "/proc shows every process"),
    }
}
