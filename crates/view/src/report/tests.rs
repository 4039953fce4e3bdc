use cgscope_model::{ByCause, CgroupReading, ChainReading, TaskReading};

use super::*;
use cgscope_made_up::small::{interval, task, waiting};

const SECOND: u64 = 1_000_000_000;

fn below_title(whole: &Whole, about: &About) -> String {
    let mut out = String::new();
    body(&mut out, whole, about).unwrap();
    out
}

/// Returns the interval of second `n`. A task of a pod is throttled, for the longest time in second 5. Other tasks do the same
/// every second.
fn second(n: u64) -> Interval {
    let long = 40_000_000 * (6u64.saturating_sub(n.abs_diff(5)).max(1));
    let mut throttled = task(5, &[long, long / 2]);
    throttled.totals.by_cause = ByCause::only(cgscope_model::Cause::Throttled, throttled.totals.wait_ns);
    let mut tasks: Vec<TaskReading> = vec![throttled, task(10, &[70_000; 12]), task(11, &[9_000_000; 3])];
    if n == 7 {
        tasks.push(waiting(task(12, &[]), 31_000_000));
    }
    let mut interval = (*interval(tasks)).clone();
    interval.start_unix_ns += n * SECOND;
    interval.limits = vec![CgroupReading {
        id: 2,
        quota_us: Some(50_000),
        period_us: Some(100_000),
        usage_ns: Some(480_000_000 + n * 1_000_000),
        nr_periods: Some(10),
        nr_throttled: Some(n),
        throttled_ns: Some(n * 50_000_000),
        ..CgroupReading::default()
    }];
    interval
}

pub(super) fn whole() -> Whole {
    of((0..8).map(second))
}

pub(super) fn of(intervals: impl Iterator<Item = Interval>) -> Whole {
    let (mut whole, mut timeline) = (Interval::default(), Timeline::new(300));
    for interval in intervals {
        timeline.add(&interval);
        whole.append(interval);
    }
    Whole::new(whole, timeline, &Losses::default(), &HOST)
}

pub(super) const HOST: Host = Host { cpus: Some(4), whole: true, kernel: None };

/// Describes a recording with hostile names.
pub(super) fn about() -> About {
    About {
        file: "/tmp/<b>.rec".into(),
        what: "the cgroup /<i> on host".into(),
        host_words: "Linux 6.12 x86_64, 4 CPUs".into(),
        extent: "9 samples".into(),
        ending: "the command ended with exit status 7".into(),
        host: HOST,
    }
}

#[test]
fn the_report_goes_from_what_is_wrong_to_who_and_when() {
    insta::assert_snapshot!(below_title(&whole(), &about()));
}

#[test]
fn a_report_says_what_rows_of_moved_tasks_lack_in_an_older_recording() {
    let with = |before_move| {
        let mut whole = whole();
        whole.interval.tasks[0].reading.moved_ns = Some(5);
        whole.interval.tasks[0].reading.before_move = before_move;
        report(&about(), &whole)
    };
    let sentence = "The rows of 1 task that moved to another cgroup have only what followed";
    let is_said = |text: String| text.replace('\n', " ").contains(sentence);
    assert!(is_said(with(None)) && !is_said(with(Some(Default::default()))));
}

#[test]
fn quotas_that_would_have_been_enough_are_below_those_in_force() {
    let section = "\nWhat would have been enough (at most 1% of the periods are throttled; `cgscope whatif /tmp/<b>.rec` shows other \
                   quotas):\n  web has 0.5 CPUs; 1 CPU would have been enough: ...\n";
    assert!(!below_title(&whole(), &about()).contains("What would have been enough"));
    let line = "web has 0.5 CPUs; 1 CPU would have been enough: ...".to_owned();
    let text = below_title(&Whole { enough: vec![line], ..whole() }, &about());
    let (before, after) = text.split_once(section).expect("the section");
    assert!(before.contains("\nQuota of ") && after.contains("\nCgroups, each"), "{text}");
}

#[test]
fn sparklines_of_any_recording_fit_eighty_columns() {
    for seconds in [2, 39, 40, 41, 599, 1_300] {
        let whole = of((0..seconds).map(second));
        let mut text = String::new();
        sparklines(&mut text, &whole.timeline, &whole.interval, HOST.cpus).unwrap();
        assert!(text.lines().count() > 4, "{text}");
        for line in text.lines().filter(|line| !line.starts_with("Over time")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn a_single_interval_has_no_timeline() {
    let whole = of([second(3)].into_iter());
    let mut text = String::new();
    sparklines(&mut text, &whole.timeline, &whole.interval, HOST.cpus).unwrap();
    assert_eq!((text.as_str(), worst(&whole.timeline, &whole.interval)), ("", None));
}

#[test]
fn the_worst_moment_is_reported_with_its_cgroup_and_cause() {
    let whole = whole();
    let said = worst(&whole.timeline, &whole.interval);
    assert_eq!(
        said.as_deref(),
        Some(
            "The worst moment was at 22:13:25 UTC, 5.00s after the start. For 1.00s, 0.39 tasks waited on average. \
             100% of this waiting was in /kubepods/burstable/pod7f/main; 98% of the waiting there was throttled."
        )
    );
}

#[test]
fn rows_of_threads_add_up_to_those_of_processes() {
    let whole = whole();
    let sum = |rows: &[Row]| rows.iter().map(|row| row.wait.total_ns).sum::<u64>();
    assert_eq!(sum(&whole.threads), sum(&whole.processes));
    assert_eq!(sum(&whole.threads), whole.interval.total().wait.total_ns);
}

#[test]
fn sleepers_have_their_wakers_if_chains_were_counted() {
    let sleeps = |chains| {
        let whole = Interval { chains, ..cgscope_made_up::small::shop() };
        let mut out = String::new();
        sleep_lines(&mut out, &sleeps(&whole)).unwrap();
        out
    };
    let chains = cgscope_made_up::small::shop().chains.unwrap();
    insta::assert_snapshot!(sleeps(Some(chains.clone())));
    let many = (0..12).map(|tid| ChainReading { waker_tid: tid, ..chains[0].clone() });
    assert!(sleeps(Some(many.collect())).ends_with("\n         2 more with less sleep\n"));
    assert_eq!(sleeps(None), "");
}
