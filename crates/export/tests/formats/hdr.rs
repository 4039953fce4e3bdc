use std::time::Duration;

use cgscope_export::{Error, Format};
use cgscope_model::Mode;

use crate::{
    decode::hdr_log,
    support::{Paper, export, intervals, try_export, whole},
};

#[test]
fn an_interval_has_a_histogram_of_all_and_one_of_each_cgroup_that_waited() {
    let intervals = intervals(2, Mode::Bpf);
    let log = hdr_log(&export(Format::Hdr, &intervals));
    let tags: Vec<Option<&str>> = log.iter().map(|logged| logged.tag.as_deref()).collect();
    let one = [None, Some("/"), Some("/system.slice"), Some("/system.slice/web%20app.service")];
    assert_eq!(tags, [one, one].concat());
    let starts: Vec<Duration> = log.iter().step_by(4).map(|logged| logged.start).collect();
    assert_eq!(starts, [Duration::ZERO, Duration::from_secs(1)], "since the time of its head");
    assert!(log.iter().all(|logged| logged.length == Duration::from_secs(1)));
}

#[test]
fn the_histograms_contain_every_wait_with_its_length() {
    let intervals = intervals(3, Mode::Bpf);
    let log = hdr_log(&export(Format::Hdr, &intervals));
    let all = log.iter().filter(|logged| logged.tag.is_none());
    let total = whole(&intervals).total();
    let mut sum = hdrhistogram::Histogram::<u64>::new(3).expect("three digits");
    all.for_each(|logged| sum.add(&logged.histogram).expect("it grows"));
    assert_eq!(sum.len(), total.wait.count);
    let within = |ns: u64, of: u64| ns.abs_diff(of) * 16 <= of;
    assert!(within(sum.value_at_quantile(0.4), 2_000), "{}", sum.value_at_quantile(0.4));
    assert!(within(sum.value_at_quantile(0.99), 3_000_000), "{}", sum.value_at_quantile(0.99));
}

#[test]
fn intervals_of_the_coarse_mode_have_no_histogram_to_write() {
    let coarse = intervals(1, Mode::Coarse);
    let refused = try_export(Format::Hdr, &coarse, &Paper::default());
    assert!(matches!(refused, Err(Error::NoHistogram)), "{refused:?}");
}
