//! Checks that `docs/figures.md` has each rule with the thresholds of the program, and that the tests which it names exist.
//! `UPDATE_DOCS=1 cargo test -p cgscope-model documented` rewrites the table.

use std::{env, fs, path::PathBuf};

use super::super::{
    BUSY_THREAD_PERCENT, EXPLAINS_PERCENT, Rule, SPECIFIC_PERCENT,
    contention::{
        BURST_PERCENT, MOSTLY_PERCENT, NEIGHBOUR_NS, NEIGHBOUR_OF_INTERVAL_PERCENT, NEIGHBOUR_PERCENT,
        OWN_NS, OWN_PERCENT,
    },
    host::{
        CAUSE_NS, CAUSE_PERCENT, CPUS_BUSY_PERCENT, OVERSUBSCRIBED_PERCENT, WAKEUP_MEAN_NS, WAKEUP_PERCENT,
        WAKEUP_WAITS,
    },
    idle_cpus::{WAITED_OF_INTERVAL_PERCENT, WAITED_PERCENT},
    numa::{
        NODE_BUSY_PERCENT, NODE_IDLE_PERCENT, NODE_MOVES, NODE_MOVES_PER_SECOND, NODE_WAIT_NS,
        NODE_WAIT_PERCENT, REMOTE_ABOVE_EVEN_PERCENT, REMOTE_BYTES, REMOTE_PERCENT, REMOTE_RAN_PERCENT,
    },
    quota::{
        BELOW_LIMIT_PERCENT, IDLE_PERIODS, LEAST_PERIODS, PERIODS_PERCENT, THROTTLED_NS, THROTTLED_PERCENT,
    },
    starved::{STARVED_NS, STARVED_PERCENT},
    waits_for::{OF_INTERVAL_PERCENT, OF_SLEEP_PERCENT},
};
use crate::units::{bytes, duration};

const BEGIN: &str = "<!-- table: rules -->\n";
const END: &str = "<!-- end -->";

/// Returns when a rule reports, what it shows and advises, and the test that does what it advises.
fn row(rule: Rule) -> (String, &'static str, &'static str, &'static str) {
    let much = |percent: u64, ns: u64, of: &str| format!("{percent} % of {of}, and {}", duration(ns));
    let active = "the run and wait time";
    match rule {
        Rule::ThreadsOverQuota => (
            "a quota ran out, and there are more busy threads than CPUs of the quota, rounded up".into(),
            "threads, processes, quota, waits for the quota and for each other",
            "as many threads as CPUs; or a higher limit, unless the threads then wait for each other",
            "threads_that_spin_for_each_other",
        ),
        Rule::ThrottledBelowLimit => (
            format!(
                "a quota ran out in {PERIODS_PERCENT} % of at least {} periods, but less than {BELOW_LIMIT_PERCENT} % of it was used",
                LEAST_PERIODS + IDLE_PERIODS
            ),
            "use, limit, periods, length of a run",
            "a burst; a higher limit or a longer period where a run takes more than two quotas",
            "bursts_that_no_burst_allowance_covers",
        ),
        Rule::Throttled => (
            format!(
                "a quota ran out in {PERIODS_PERCENT} % of the periods, or throttled for {}; not with `throttled_below_limit`",
                much(THROTTLED_PERCENT, THROTTLED_NS, active)
            ),
            "periods, throttled time, run time, `cpu.stat`",
            "a higher limit",
            "a_limit_of_the_slice_above",
        ),
        Rule::NoisyNeighbour => (
            format!(
                "behind other cgroups for {}, and {NEIGHBOUR_OF_INTERVAL_PERCENT} % of the interval",
                much(NEIGHBOUR_PERCENT, NEIGHBOUR_NS, active)
            ),
            "culprits, their shares, weights of both",
            "a quota or a lower weight for the culprit, a higher weight, an ordinary policy, other CPUs",
            "a_pod_without_a_cpu_request",
        ),
        Rule::Sessions => (
            format!(
                "in `/` with autogroups: behind the own cgroup for {}; another session ran for {MOSTLY_PERCENT} % of it",
                much(OWN_PERCENT, OWN_NS, active)
            ),
            "processes and nice values of both",
            "a cgroup with a low weight, or `/proc/PID/autogroup`",
            "nice_between_sessions",
        ),
        Rule::CpuOversubscription => (
            format!(
                "tasks wanted {OVERSUBSCRIBED_PERCENT} % of the host's CPUs, which were busy for {CPUS_BUSY_PERCENT} % of the time"
            ),
            "tasks that wanted to run, CPUs",
            "fewer tasks, more CPUs",
            "more_tasks_than_the_host_has_cpus",
        ),
        Rule::OwnContention => (
            format!(
                "no quota ran out; for each other for {}; more busy threads than CPUs, or all on some of the CPUs",
                much(OWN_PERCENT, OWN_NS, active)
            ),
            "busy threads, CPUs",
            "fewer threads, or more CPUs",
            "a_library_that_starts_too_many_threads",
        ),
        Rule::JobBursts => (
            format!(
                "as `own_contention`, but {MOSTLY_PERCENT} % of the waiting is that of tasks that started or ended, and less than \
                 {BURST_PERCENT} % of the CPUs was used"
            ),
            "these tasks, use",
            "start them at different times",
            "jobs_that_start_at_once",
        ),
        Rule::Starved => (
            format!(
                "a task has waited for {} and {STARVED_PERCENT} % of the interval, and still waits",
                duration(STARVED_NS)
            ),
            "task, CPU, cause, who ran there",
            "other CPUs, a higher priority, an ordinary policy; a newer kernel after Linux 6.13 to 6.18.44",
            "a_thread_of_low_priority_that_gets_no_cpu_time",
        ),
        Rule::IdleCpus => (
            format!(
                "on CPUs that were busy for {NODE_BUSY_PERCENT} % of the time, beside CPUs busy for {NODE_IDLE_PERCENT} %: waiting \
                 for {WAITED_PERCENT} % of {active} and {WAITED_OF_INTERVAL_PERCENT} % of the interval"
            ),
            "threads, mask or cpuset, CPUs",
            "more CPUs for all processes with the mask and their parent, a cpuset, both limits, a place for an io_uring poller",
            "a_mask_that_processes_inherited",
        ),
        Rule::WakeupLatency => (
            format!(
                "{WAKEUP_PERCENT} % of all waiting, {WAKEUP_WAITS} waits of {} on average",
                duration(WAKEUP_MEAN_NS)
            ),
            "waits, mean, p99",
            "idle states, the host of the virtual machine",
            "",
        ),
        Rule::RealTimeLimit => (
            much(CAUSE_PERCENT, CAUSE_NS, active),
            "waiting",
            "a higher runtime, or more sleep",
            "a_real_time_thread_out_of_runtime",
        ),
        Rule::Interrupts => {
            (much(CAUSE_PERCENT, CAUSE_NS, "all waiting"), "waiting", "interrupts on more CPUs", "")
        }
        Rule::StolenTime => (much(CAUSE_PERCENT, CAUSE_NS, "all waiting"), "waiting", "another host", ""),
        Rule::NodeSkew => (
            format!(
                "a node was busy for {NODE_BUSY_PERCENT} % of the time, and tasks waited there for {NODE_WAIT_PERCENT} % of it and \
                 {}; another was busy for {NODE_IDLE_PERCENT} %",
                duration(NODE_WAIT_NS)
            ),
            "nodes, threads, what holds them there",
            "the mask, the cpuset, the memory policy",
            "",
        ),
        Rule::RemoteMemory => (
            format!(
                "{REMOTE_PERCENT} % of {} or more on other nodes, {REMOTE_ABOVE_EVEN_PERCENT} points above an even spread; the \
                 threads ran for {REMOTE_RAN_PERCENT} % of a CPU",
                bytes(REMOTE_BYTES)
            ),
            "share, nodes of memory and threads",
            "`migratepages`, or a policy",
            "",
        ),
        Rule::NodeBouncing => (
            format!(
                "{NODE_MOVES_PER_SECOND} moves a second between nodes by each busy thread, {NODE_MOVES} in all"
            ),
            "moves",
            "threads bound to a node",
            "",
        ),
        Rule::WaitsFor => (
            format!(
                "with `--chains`: a waker waited for {OF_INTERVAL_PERCENT} % of the interval and {OF_SLEEP_PERCENT} % of the sleep \
                 for other tasks"
            ),
            "sleep, waker, cause, limit or neighbour",
            "that of the waker",
            "a_service_that_sleeps_for_a_throttled_sidecar",
        ),
        Rule::Unattributed => {
            (much(CAUSE_PERCENT, CAUSE_NS, "all waiting"), "losses", "other causes are lower bounds", "")
        }
    }
}

#[test]
fn each_rule_is_documented_with_its_thresholds_and_the_test_of_its_cure() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tests = ["cures.rs", "cures/long.rs"].map(|file| {
        fs::read_to_string(root.join("crates/lab/tests/root").join(file)).expect("tests of cures")
    });
    let rows = Rule::ALL.iter().map(|rule| {
        let (when, figures, advice, test) = row(*rule);
        let is_test = |text: &String| text.contains(&format!("fn {test}()"));
        assert!(test.is_empty() || tests.iter().any(is_test), "no test {test}");
        let test = if test.is_empty() { "-".to_owned() } else { format!("`{test}`") };
        format!("| `{}` | {when} | {figures} | {advice} | {test} |\n", rule.name())
    });
    let table = format!(
        "| rule | reported if | figures | advice | test |\n|---|---|---|---|---|\n{}",
        rows.collect::<String>()
    );
    let path = root.join("docs/figures.md");
    let text = fs::read_to_string(&path).expect("the page");
    let (before, rest) = text.split_once(BEGIN).expect("the page has the table");
    let (is, after) = rest.split_once(END).expect("the table has an end");
    if env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).expect("the page");
    }
    assert_eq!(is, table, "run this test with UPDATE_DOCS=1 to rewrite the table");
    assert_eq!(
        (SPECIFIC_PERCENT, EXPLAINS_PERCENT, BUSY_THREAD_PERCENT),
        (50, 10, 1),
        "the text around the table"
    );
}
