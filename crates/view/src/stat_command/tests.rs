use std::sync::Arc;

use cgscope_model::{
    Accounts, Blame, ByCause, ByState, Cause, CgroupReading, ExitedInterval, Interval, PairReading, QuotaUse,
    Totals, Wait,
    command_run::{CpuUse, HeldBy, Usage},
    findings::Host,
};

use super::*;

const S: u64 = 1_000_000_000;
const US: u64 = 1_000;

fn reading(us: [u64; 3], periods: [u64; 2], throttled_us: u64) -> CgroupReading {
    let [usage_ns, user_ns, system_ns] = us.map(|us| Some(us * US));
    CgroupReading {
        id: 7,
        quota_us: Some(100_000),
        period_us: Some(100_000),
        usage_ns,
        user_ns,
        system_ns,
        nr_periods: Some(periods[0]),
        nr_throttled: Some(periods[1]),
        throttled_ns: Some(throttled_us * US),
        ..CgroupReading::default()
    }
}

fn quota() -> QuotaUse {
    let before = reading([4_363_848, 2_201_217, 2_162_630], [3_106, 0], 0);
    let after = reading([124_702_078, 117_993_908, 6_708_170], [4_499, 1_194], 263_624_194);
    QuotaUse::new("/pod".into(), Some(&before), after)
}

fn by_cause(parts: &[(Cause, u64)]) -> ByCause {
    let mut sum = ByCause::default();
    parts.iter().for_each(|(cause, ns)| sum.add(&ByCause::only(*cause, *ns)));
    sum
}

fn pair(culprit: u64, blame: Blame, tid: u32, ns: u64) -> PairReading {
    PairReading { victim: 7, culprit, blame, tid, comm: "hog".into(), ns }
}

fn interval() -> Interval {
    let waited = by_cause(&[
        (Cause::Throttled, 1_900 * S),
        (Cause::OwnCgroup, 60 * S),
        (Cause::OtherCgroup, 3 * S),
        (Cause::Wakeup, S),
    ]);
    let totals =
        Totals { on_cpu_ns: 120 * S, wait_ns: waited.total(), by_cause: waited, ..Totals::default() };
    let wait = Wait { count: 9, total_ns: waited.total(), by_cause: waited, ..Wait::default() };
    let blocked = ByState([800 * S, 2 * S, 0, 0, 0]);
    let accounts = Some(Accounts { blocked: Some(blocked), ..Accounts::default() });
    Interval {
        duration_ns: 148 * S,
        exited: vec![ExitedInterval { cgroup_id: 7, tasks: 21, totals, accounts, wait }],
        pairs: vec![pair(7, Blame::Limited, 0, 1_900 * S), pair(8, Blame::Ran, 12, 3 * S)],
        limits: vec![quota().delta],
        cgroups: vec![(1, "/".into()), (7, Arc::from("/pod")), (8, Arc::from("/noisy"))],
        ..Interval::default()
    }
}

fn encoder() -> CommandRun {
    CommandRun {
        blocked_on: None,
        class: None,
        command: ["ffmpeg", "-i", "in put.mkv", "out.mp4"].map(Into::into).into(),
        ending: Ending::Exited(0),
        wall_ns: 148_200_000_000,
        usage: Usage {
            user_ns: 115_792_691_000,
            system_ns: 4_545_540_000,
            max_rss_bytes: 214_748_364,
            minor_faults: 51_234,
            major_faults: 2,
            voluntary: 3_333,
            involuntary: 44_444,
            blocks_in: 0,
            blocks_out: 8_192,
        },
        cpu: Some(CpuUse { usage_ns: 120_338_231_000, user_ns: 115_792_691_000, system_ns: 4_545_540_000 }),
        own_cgroup: Some("/cgscope-stat-1-0".into()),
        own_is_distinct: true,
        quotas: vec![HeldBy { quota: quota(), others: Vec::new() }],
        peak_threads: 21,
        peak_processes: 1,
        every_ns: 100_000_000,
        outlived: Vec::new(),
        interval: interval(),
        host: Host { cpus: Some(20), whole: false, kernel: None },
        remarks: Vec::new(),
    }
}

#[test]
fn field_case_2_has_the_figures_of_its_table() {
    let text = summary(&encoder());
    insta::assert_snapshot!(text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "120,338,230",
        "115,792,691",
        "4,545,540",
        "1,393",
        "1,194",
        "263,624,194",
        "85.7% of 1393 periods",
        "2.2 times its run time",
        "1393 x 100ms = 2m19s",
        "CPU-bound, not I/O",
        "At least 21 threads existed at the same time, with a quota of 1 CPU",
        "21 or more threads at one time",
    ] {
        assert!(words.contains(said), "{said:?} is not in:\n{text}");
    }
}

#[test]
fn unknown_figures_and_other_processes_in_the_cgroup_are_reported() {
    let outlived = |pid, comm: &str| NamedProcess { pid, comm: comm.into() };
    let mut run = CommandRun {
        command: vec!["make".into(), "it's".into()],
        ending: Ending::Killed { signal: 15, dumped: false },
        cpu: None,
        own_cgroup: None,
        own_is_distinct: false,
        outlived: vec![outlived(9, "daemon"), outlived(10, "other")],
        remarks: vec!["no cgroup v2 hierarchy is mounted, so the command has no cgroup of its own".into()],
        ..encoder()
    };
    run.interval.mode = Mode::Coarse;
    run.interval.exited[0].accounts = None;
    run.usage.user_ns = 1_000 * US;
    run.quotas[0].others = vec![outlived(1, "init")];
    run.quotas.push(HeldBy {
        quota: QuotaUse::new("/idle".into(), None, reading([0; 3], [0, 0], 0)),
        others: Vec::new(),
    });
    insta::assert_snapshot!(summary(&run));
}

#[test]
fn without_cpu_time_of_the_cgroup_the_commands_own_is_shown() {
    let mut run = encoder();
    let unknown =
        |reading: CgroupReading| CgroupReading { usage_ns: None, user_ns: None, system_ns: None, ..reading };
    let QuotaUse { path, before, after, .. } = quota();
    run.quotas[0].quota = QuotaUse::new(path, Some(&unknown(before)), unknown(after));
    let words = summary(&run).split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "usage_usec * - - 120,338,231",
        "user_usec * - - 115,792,691",
        "2.2 times its run time",
        "CPU-bound, not I/O",
        "lines with * are the command's own",
    ] {
        assert!(words.contains(said), "{said:?} is not in:\n{words}");
    }
}

#[test]
fn digits_are_grouped_and_words_quoted_if_necessary() {
    assert_eq!(
        [number(0), number(999), number(1_000), number(12_345_678)],
        ["0", "999", "1,000", "12,345,678"]
    );
    assert_eq!(seconds(1_234_567_000_000), "1,234.567");
    let words = ["sh", "-c", "a b", "it's", ""].map(String::from);
    assert_eq!(command_line(&words), r"sh -c 'a b' 'it'\''s' ''");
    let words =
        ["sh", "-c", "echo it's\n\tdone\\\r", "a\u{1b}[2J", "\u{9b}2J", "\u{7f}\u{202e}"].map(String::from);
    assert_eq!(
        command_line(&words),
        r"sh -c $'echo it\'s\n\tdone\\\r' $'a\x1b[2J' $'\u009b2J' $'\x7f\u202e'"
    );
}

#[test]
fn cpu_time_of_processes_without_a_waiting_parent_is_separate() {
    let mut run = encoder();
    run.usage.user_ns = S;
    let said = summary(&run);
    assert!(said.contains("1.000 s   user, and 4.545 s system, of processes that it waited for"), "{said}");
    assert!(differs(2 * S, S) && !differs(S, S + 9_000_000) && !differs(100 * S, 101 * S));
}
