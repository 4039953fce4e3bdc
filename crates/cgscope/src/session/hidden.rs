//! Detects targets that exist but that the kernel hides from us.

use std::fs;

use cgscope_collect::shared_parts::text;
use cgscope_model::Selection;

/// A sentence if a chosen process or thread still exists. Call it when the readings show nothing of the targets.
pub fn hidden(selection: &Selection) -> Option<String> {
    let process = selection.pids.iter().map(|pid| ("process", pid));
    let mut chosen = process.chain(selection.tids.iter().map(|tid| ("thread", tid)));
    let (what, id) =
        chosen.find(|(_, id)| fs::read(format!("/proc/{id}/stat")).is_ok_and(|stat| lives(&stat)))?;
    Some(format!(
        "{what} {id} exists but is not visible to BPF: this kernel hides it; to read it from /proc, use --mode coarse"
    ))
}

/// Whether the task of this `/proc/PID/stat` has not begun to exit.
fn lives(stat: &[u8]) -> bool {
    const PF_EXITING: u64 = 0x4;
    text::stat(stat).is_some_and(|stat| !stat.is_dead() && stat.flags & PF_EXITING == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exiting_task_does_not_count_as_existing() {
        let stat = |state: &str, flags: u64| {
            format!("7 (a) b) {state} 1 7 7 0 -1 {flags}{}", " 0".repeat(43)).into_bytes()
        };
        assert!(lives(&stat("S", 4_194_560)) && lives(&stat("R", 0x40)));
        assert!(!lives(&stat("Z", 0)) && !lives(&stat("X", 0)) && !lives(&stat("R", 0x44)));
        assert!(!lives(b"") && !lives(b"7 (a) S"));
    }

    #[test]
    fn an_existing_target_that_was_not_seen_is_hidden_and_has_not_exited() {
        let of = |pids: Vec<u32>, tids: Vec<u32>| hidden(&Selection { pids, tids, ..Selection::default() });
        let (own, no_one) = (std::process::id(), u32::MAX);
        let said = of(vec![no_one, own], Vec::new()).unwrap();
        assert!(
            said.starts_with(&format!(
                "process {own} exists but is not visible to BPF: this kernel hides it"
            )),
            "{said}"
        );
        assert!(of(Vec::new(), vec![own]).unwrap().starts_with(&format!("thread {own} exists but is not")));
        assert_eq!(of(vec![no_one], vec![no_one]), None);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while of(vec![pid], Vec::new()).is_some() {
            std::thread::yield_now();
        }
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "a zombie has exited");
        child.wait().unwrap();
    }
}
