//! Advice for waits behind real-time tasks, to which weights and quotas do not apply.

use std::fs;

use crate::{
    bench::{assert_measured, json_lines, run},
    files::Dir,
    load::{Cgroup, Load},
};

/// Lets the real-time tasks of the cgroup run for `us` µs in each second. If the kernel limits real-time tasks per cgroup
/// (CONFIG_RT_GROUP_SCHED), the default is 0.
pub(crate) fn allow_realtime(cgroup: &Cgroup, us: u64) {
    let file = cgroup.path.join("cpu.rt_runtime_us");
    if file.exists() {
        fs::write(file, us.to_string()).expect("a runtime within that of the root cgroup");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: a real-time loop leaves 5 % of its CPU to others"]
    fn the_advice_about_real_time_tasks_does_not_change_a_weight() {
        let (victim, culprit) = (Cgroup::new("victim"), Cgroup::new("fifo"));
        // Give the victim a high weight, so that it waits only for the real-time task.
        victim.favour();
        allow_realtime(&culprit, 300_000);
        let _waits = Load::pinned_loop(1, Some(&victim));
        // Start only one real-time process. It leaves only 5 % of this CPU to other tasks, and thus to this test, which must end
        // the process.
        let fifo = ["-c", "1", "chrt", "-f", "1", "sh", "-c", "while :; do :; done"];
        let _runs = Load::start("taskset", &fifo, Some(&culprit));
        let dir = Dir::new("realtime");
        let file = dir.file("a.rec");
        let output = run(&["record", "-o", &file, "-d", "4", "-i", "1"]);
        assert_measured(&output);
        let intervals = json_lines(&run(&["report", "--json", &file]));
        let findings =
            intervals.iter().flat_map(|interval| interval["findings"].as_array().expect("findings"));
        let of_victim = |rule: &str| {
            let found = findings.clone().filter(|one| one["cgroup"] == *victim.name && one["rule"] == rule);
            found.map(|one| one["advice"].as_str().expect("an advice").to_owned()).collect::<Vec<_>>()
        };
        let advice = of_victim("noisy_neighbour");
        assert!(!advice.is_empty(), "{:#?}", findings.collect::<Vec<_>>());
        // Check the last advice, because cgscope examines a thread only after the thread was busy for one interval.
        let last = advice.last().expect("one");
        assert!(last.contains("SCHED_FIFO") && last.contains("do not apply"), "{advice:#?}");
    }
}
