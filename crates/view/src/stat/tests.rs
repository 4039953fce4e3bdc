use std::sync::Arc;

use cgscope_made_up::{host, with_accounts};
use cgscope_model::{
    Accounts, BlockedOn, ByCause, CgroupReading, ExitedThreads, Interval, Mode, Sample, Totals,
    class::Classes, findings::Host, table::interval::Appended,
};
use proptest::prelude::*;

use super::*;

/// Returns what the user asked for: rows of this kind, only active ones.
fn asked(rows: Rows) -> Asked<'static> {
    Asked { rows, all: false, with_cgroup: false, uid: &|task| Some(task.tgid % 3 * 1_000) }
}

fn data_of(a: &Sample, b: &Sample) -> Data {
    Data::new(Arc::new(Interval::between(a, b)), &Host { cpus: Some(64), whole: true, kernel: None })
}

fn data(round: u64) -> Data {
    let sample = |round| with_accounts(host(40, 8, round));
    data_of(&sample(round), &sample(round + 1))
}

/// Returns the words of each line of a table, the heading first.
fn words(table: &str) -> Vec<Vec<&str>> {
    table.lines().filter(|line| !line.is_empty()).map(|line| line.split_whitespace().collect()).collect()
}

fn at(heading: &[&str], title: &str) -> usize {
    heading.iter().position(|word| *word == title).unwrap_or_else(|| panic!("{title} in {heading:?}"))
}

fn printed(cell: &str) -> u64 {
    cell.replace('.', "").parse().unwrap()
}

#[test]
fn processes_are_printed_as_in_pidstat() {
    insta::assert_snapshot!(interval(&data(3), &asked(Rows::Processes)));
}

#[test]
fn each_process_is_followed_by_its_threads_with_their_cgroup() {
    let asked = Asked { with_cgroup: true, ..asked(Rows::ThreadsOfProcesses) };
    insta::assert_snapshot!(interval(&data(3), &asked));
}

#[test]
fn cgroups_are_printed_with_their_quotas() {
    insta::assert_snapshot!(interval(&data(3), &asked(Rows::Cgroups)));
}

#[test]
fn every_line_has_a_word_for_each_heading_and_its_parts_sum() {
    for rows in [Rows::Processes, Rows::Threads, Rows::ThreadsOfProcesses, Rows::Cgroups] {
        for with_cgroup in [false, true] {
            let asked = Asked { with_cgroup, ..asked(rows) };
            let text = interval(&data(3), &asked);
            let words = words(&text);
            let (heading, lines) = words.split_first().unwrap();
            assert!(lines.len() >= 8, "{text}");
            for line in lines {
                assert!(line.len() >= heading.len(), "{line:?}");
                let cell = |title| printed(line[at(heading, title)]);
                assert_eq!(cell("%throt") + cell("%queue") + cell("%wake"), cell("%wait"), "{line:?}");
                let together = cell("%usr") + cell("%system") + cell("%guest");
                assert!(together.abs_diff(cell("%CPU")) <= 1, "{line:?}");
            }
        }
    }
}

#[test]
fn the_average_is_over_all_intervals() {
    let mut whole = Appended::default();
    for round in 3..5 {
        whole.push(Arc::unwrap_or_clone(data(round).interval));
    }
    let whole = Data::new(Arc::new(whole.into_interval()), &Host::default());
    let (one, both) = (interval(&data(3), &asked(Rows::Processes)), average(&whole, &asked(Rows::Processes)));
    let (one, both) = (words(&one), words(&both));
    assert_eq!(one.len(), both.len());
    let (cpu, node) = (at(&one[0], "CPU"), at(&one[0], "node"));
    for (one, both) in one.iter().zip(&both) {
        assert_eq!(both[0], "Average:");
        if one[cpu] != "CPU" {
            // An average has no last CPU and no node.
            assert_eq!((both[cpu], both[node]), ("-", "-"));
        }
        // All rounds of this generated host are the same.
        assert_eq!(one[1..cpu], both[1..cpu]);
    }
}

#[test]
fn unread_figures_are_a_dash_and_never_0() {
    let coarse = |round| Sample { mode: Mode::Coarse, ..host(40, 8, round) };
    let text =
        interval(&data_of(&coarse(3), &coarse(4)), &Asked { uid: &|_| None, ..asked(Rows::Processes) });
    let words = words(&text);
    for line in &words[1..] {
        for title in ["UID", "%usr", "%system", "%guest", "%wake"] {
            assert_eq!(line[at(&words[0], title)], "-", "{title}: {line:?}");
        }
        let cell = |title| printed(line[at(&words[0], title)]);
        assert_eq!(cell("%throt") + cell("%queue"), cell("%wait"));
    }
}

#[test]
fn exited_threads_count_once_with_their_process() {
    let (before, mut after) = (with_accounts(host(40, 8, 3)), with_accounts(host(40, 8, 4)));
    let exited =
        ExitedThreads { user_ns: 300_000, on_cpu_ns: 300_000, voluntary: 7, ..ExitedThreads::default() };
    let main = after.tasks.iter_mut().rfind(|task| task.tid == task.tgid).map(Arc::make_mut).unwrap();
    main.accounts =
        main.accounts.as_deref().map(|accounts| Arc::new(Accounts { exited_threads: exited, ..*accounts }));
    let pid = main.tid;
    let (without, with) = (data(3), data_of(&before, &after));
    let figures = |data: &Data, rows: Rows, of: &dyn Fn(&Row<'_>) -> bool| {
        let row = all(data, &asked(rows)).into_iter().find(|row| of(row)).unwrap();
        (row.figures.on_cpu_ns(), row.figures.counter(cgscope_model::Counter::Voluntary).unwrap())
    };
    let process = |row: &Row<'_>| row.task().is_some_and(|task| task.tgid == pid);
    let ended = |row: &Row<'_>| row.subject.is_none();
    let (ran, switches) = figures(&without, Rows::Processes, &process);
    assert_eq!(figures(&with, Rows::Processes, &process), (ran + 300_000, switches + 7));
    let (ran, _) = figures(&without, Rows::Processes, &ended);
    assert_eq!(figures(&with, Rows::Processes, &ended).0, ran - 300_000);
    assert_eq!(figures(&with, Rows::Threads, &ended).0, ran, "no line includes the exited threads");
}

#[test]
fn idle_rows_are_left_out_unless_requested() {
    let sample = with_accounts(host(40, 8, 3));
    let later = Sample { mono_ns: sample.mono_ns + 1_000_000_000, ..sample.clone() };
    let data = data_of(&sample, &later);
    let count = |all| interval(&data, &Asked { all, ..asked(Rows::Threads) }).lines().count();
    // The output also has a blank line and the heading. A task that is waiting counts as active.
    let waiting = sample.tasks.iter().filter(|task| task.pending.is_some()).count();
    assert_eq!((count(false), count(true)), (2 + waiting, 2 + 40));
    let cgroups = |all| interval(&data, &Asked { all, ..asked(Rows::Cgroups) }).lines().count();
    assert!(cgroups(true) > 10 && cgroups(false) <= 10, "{} {}", cgroups(true), cgroups(false));
}

#[test]
fn a_blank_in_a_path_does_not_add_a_word() {
    let rename = |mut sample: Sample| {
        for (_, path) in &mut sample.cgroups {
            *path = path.replace(".service", " x.service").into();
        }
        sample
    };
    let sample = |round| rename(with_accounts(host(40, 20, round)));
    let asked = Asked { with_cgroup: true, ..asked(Rows::Processes) };
    let text = interval(&data_of(&sample(3), &sample(4)), &asked);
    assert!(text.contains("\\x20x.service/main  "), "{text}");
    let words = words(&text);
    assert_eq!(words[0][words[0].len() - 2..], ["cgroup", "Command"]);
}

#[test]
fn two_processes_with_one_id_have_separate_lines_and_sentences() {
    let sample = |on_cpu_ns: [u64; 2]| {
        let mut sample = with_accounts(host(2, 1, 3));
        let tasks = sample.tasks.iter_mut().map(Arc::make_mut);
        for (start_ns, (task, on_cpu_ns)) in (1..).zip(tasks.zip(on_cpu_ns)) {
            (task.tgid, task.tid, task.start_ns) = (4_711, 4_711, start_ns);
            task.pending = None;
            task.totals = Totals { on_cpu_ns, ..Totals::default() };
            task.accounts = None;
        }
        sample
    };
    let before = sample([0, 0]);
    let after = Sample { mono_ns: before.mono_ns + 1_000_000_000, ..sample([900_000_000, 300_000_000]) };
    let data = data_of(&before, &after);
    let blocked = BlockedOn::new(&data.interval, |_| None);
    let classes = Classes::new(&data.interval, &data.tree, &blocked);
    let of = |at: usize| classes.threads(&[&data.interval.tasks[at]]).says;
    assert_ne!(of(0), of(1));
    for rows in [Rows::Threads, Rows::Processes, Rows::ThreadsOfProcesses] {
        let lines = super::lines(&data, &asked(rows), &classes);
        assert!(lines.first().unwrap().ends_with(&of(0)), "{lines:?}");
        assert!(lines.last().unwrap().ends_with(&of(1)), "{lines:?}");
        let table = interval(&data, &asked(rows));
        let table = words(&table);
        let busy = at(&table[0], "%CPU");
        let each = if rows == Rows::ThreadsOfProcesses { 2 } else { 1 };
        let printed: Vec<&str> = table[1..=2 * each].iter().map(|line| line[busy]).collect();
        assert_eq!((printed[0], printed[each]), ("90.00", "30.00"), "{table:?}");
    }
}

#[test]
fn a_quota_is_printed_with_its_cgroup() {
    let paths = [(1, "/"), (2, "/a"), (3, "/a/b")];
    let cgroups = || paths.iter().map(|(id, path)| (*id, Arc::from(*path))).collect();
    let sample = |round: u64| {
        let quota = CgroupReading {
            id: 2,
            quota_us: Some(50_000),
            period_us: Some(100_000),
            nr_periods: Some(10 * round),
            nr_throttled: Some(3 * round),
            throttled_ns: Some(250_000_000 * round),
            ..CgroupReading::default()
        };
        let mut sample = with_accounts(host(8, 1, round));
        sample.tasks.iter_mut().for_each(|task| Arc::make_mut(task).cgroup_id = 3);
        Sample { cgroups: cgroups(), limits: vec![quota], pairs: Vec::new(), exited: Vec::new(), ..sample }
    };
    let text = interval(&data_of(&sample(3), &sample(4)), &asked(Rows::Cgroups));
    let words = words(&text);
    let last = |line: &[&str]| line[line.len() - 6..].join(" ");
    assert_eq!(last(&words[0]), "quota %THROT throttled thr limited-by cgroup");
    assert_eq!(last(&words[2]), "0.5 30.00 250ms 8 itself /a");
    assert_eq!(last(&words[3]), "(0.5) - - 8 /a /a/b");
}

#[test]
fn the_first_line_is_that_of_pidstat_and_the_last_lines_have_the_cost() {
    let about = About { kernel: "6.18".into(), hostname: "web1".into(), ..About::default() };
    let banner = banner(&about, "x86_64", 2, 1_700_000_000_000_000_000);
    assert_eq!(banner, "Linux 6.18 (web1)  2023-11-14  _x86_64_  (2 CPU)\n");
    let end = end(&data(3), vec!["process 7 a: idle".into()]);
    assert!(end.lines().skip(1).all(|line| line.starts_with("# ")), "{end}");
    assert!(end.contains("# own cost: ") && end.ends_with("# losses: none\n"), "{end}");
    assert_eq!(losses(&data(3)), None);
}

#[test]
fn the_remainder_goes_to_the_part_that_rounding_reduced_most() {
    let split = Split { total_ns: 200, throttled_ns: 66, queue_ns: 67, wake_ns: Some(67) };
    // 0.66, 0.67 and 0.67 hundredths of a percent. Together they are two hundredths.
    assert_eq!(split.percent(1_000_000), Some([2, 0, 1, 1]));
    assert_eq!(split.percent(0), None);
    let none = Split { wake_ns: None, total_ns: 500, queue_ns: 500, throttled_ns: 0 };
    assert_eq!(none.percent(1_000), Some([5_000, 0, 5_000, 0]));
}

#[test]
fn the_coarse_mode_counts_wakeups_in_the_queue() {
    let mut by_cause = ByCause::only(Cause::Throttled, 30);
    by_cause.add(&ByCause::only(Cause::Unattributed, 70));
    let wait = Wait { total_ns: 100, by_cause, ..Wait::default() };
    let split = Split::new(&wait, Mode::Coarse);
    assert_eq!((split.throttled_ns, split.queue_ns, split.wake_ns), (30, 70, None));
    assert_eq!(Split::new(&wait, Mode::Bpf).wake_ns, Some(0));
}

proptest! {
    #[test]
    fn printed_parts_sum_to_the_printed_whole(
        parts in [0u64..1 << 44, 0u64..1 << 44, 0u64..1 << 44], duration_ns in 1u64..1 << 44
    ) {
        let [throttled_ns, queue_ns, wake] = parts;
        let total_ns = throttled_ns + queue_ns + wake;
        let split = Split { total_ns, throttled_ns, queue_ns, wake_ns: Some(wake) };
        let [whole, printed @ ..] = split.percent(duration_ns).unwrap();
        prop_assert_eq!(whole, percent(total_ns, duration_ns).unwrap());
        prop_assert_eq!(printed.iter().sum::<u64>(), whole);
        for (printed, ns) in printed.into_iter().zip(parts) {
            let exact = ns as f64 * 1e4 / duration_ns as f64;
            prop_assert!((printed as f64 - exact).abs() <= 1.0, "{} for {}", printed, exact);
            prop_assert!(ns != 0 || printed == 0, "nothing is not rounded up");
        }
    }
}
