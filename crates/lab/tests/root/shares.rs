//! Fair shares, starved tasks and idle CPUs.

use serde_json::Value;

use crate::{
    bench::{assert_measured, follow, is_emulated, json_lines, measure, run},
    load::{Cgroup, Load},
};

#[test]
#[ignore = "one CPU: asserts shares of a CPU"]
fn neighbours_with_weights_of_100_and_300_are_within_them() {
    let mut host = follow(&[]);
    let (light, heavy) = (Cgroup::new("light"), Cgroup::new("heavy"));
    light.weigh(1);
    heavy.weigh(3);
    let _loads = [Load::loop_on_a_cpu(Some(&light)), Load::loop_on_a_cpu(Some(&heavy))];
    std::thread::sleep(std::time::Duration::from_millis(500));
    let interval = measure(&mut host, &[], if is_emulated() { 3 } else { 5 }).whole;
    for (victim, culprit, share) in [(&light, &heavy, 0.75), (&heavy, &light, 0.25)] {
        let culprits = interval.culprits_of(&victim.name);
        let found = culprits.iter().find(|found| found.path.as_deref() == Some(culprit.name.as_str()));
        let found = found.unwrap_or_else(|| panic!("{} is not among {culprits:?}", culprit.name));
        let of_victim = &interval.by_cgroup()[&Some(victim.name.as_str().into())];
        let both_ns = (of_victim.totals.on_cpu_ns + found.ns) as f64;
        let beyond = found.beyond_ns.expect("weights are known") as f64 / found.ns as f64;
        println!("{}: waited {:.3}, beyond {beyond:.4}", victim.name, found.ns as f64 / both_ns);
        assert!((found.ns as f64 / both_ns - share).abs() < 0.05, "{found:?} {:?}", of_victim.totals);
        assert!(beyond < 0.02, "{found:?}");
    }
}

fn said<'a>(interval: &'a Value, rule: &str) -> Vec<&'a str> {
    let findings = interval["findings"].as_array().expect("findings").iter();
    findings
        .filter(|finding| finding["rule"] == rule)
        .map(|finding| finding["says"].as_str().expect("a text"))
        .collect()
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: one CPU must be idle"]
    fn waits_for_a_cpu_beside_an_idle_one_name_the_mask_and_the_cpuset() {
        const INTERVALS: &str = "7";
        let (pinned, limited) = (Cgroup::new("pinned"), Cgroup::of_cpus("kept", "0"));
        let _loads = [
            Load::pinned_loop(0, Some(&pinned)),
            Load::pinned_loop(0, Some(&pinned)),
            Load::busy_loop(Some(&limited)),
        ];
        let output = run(&["hist", "--json", "1", INTERVALS]);
        assert_measured(&output);
        let intervals = json_lines(&output);
        // Check only intervals in which another CPU is idle, because a program outside of the test can use that CPU. Skip the
        // first two intervals, because cgscope does not know affinity masks before the second interval.
        let is_idle = |cpu: &Value| {
            let time = |name: &str| cpu[name].as_f64().expect("the use of the CPU");
            time("idle_ns") >= 0.75 * (time("busy_ns") + time("idle_ns"))
        };
        let judged = intervals.iter().skip(2).filter(|interval| {
            interval["cpus"].as_array().expect("CPUs").iter().any(|cpu| cpu["cpu"] != 0 && is_idle(cpu))
        });
        let judged: Vec<_> = judged.map(|interval| said(interval, "idle_cpus")).collect();
        assert!(!judged.is_empty(), "no other CPU was idle");
        println!("{:#?}", judged[0]);
        let has = |words: &[&str]| {
            judged.iter().all(|says| says.iter().any(|says| words.iter().all(|word| says.contains(word))))
        };
        assert!(
            has(&[&format!("{}: its 2 busy threads may only run on CPU 0 (affinity mask)", pinned.name)]),
            "{judged:#?}"
        );
        assert!(has(&[&format!("may only run on CPU 0 (cpuset.cpus 0 of {})", limited.name)]), "{judged:#?}");
    }

    #[test]
    #[ignore = "all CPUs: a task must starve, and cgscope must not"]
    fn a_task_is_reported_while_it_waits_for_seconds() {
        let (victim, neighbour) = (Cgroup::new("starved"), Cgroup::new("feast"));
        victim.slight();
        neighbour.favour();
        let _loads = [Load::loop_on_a_cpu(Some(&neighbour)), Load::loop_on_a_cpu(Some(&victim))];
        let output = run(&["hist", "--json", "1", "5"]);
        assert_measured(&output);
        let intervals = json_lines(&output);
        let last = said(intervals.last().expect("an interval"), "starved");
        let expected = format!("{}: its thread", victim.name);
        assert!(
            last.iter().any(|says| says.starts_with(&expected)
                && says.contains("behind other cgroups")
                && says.contains(&neighbour.name)),
            "{last:#?}"
        );
    }
}
