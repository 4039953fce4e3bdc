//! Viewers and a scraper with longer intervals than the sampling interval of the daemon. They skip samples, but must not lose the
//! figures of the tasks in these samples.

use std::{path::Path, thread, time::Duration};

use cgscope_metrics::Format;
use cgscope_model::{Interval, Totals};

use super::{Daemon, scale::Scrape};
use crate::{
    background::Background, bench::cgscope, cgroup_moves::Place, files::Dir, load::Load, recording::read,
};

/// Lifetimes of the tasks, s. A task lives for less than an interval of 2 s, but for several intervals of 100 ms.
const LIVES_S: [&str; 8] = ["0.3", "0.7", "1.3", "0.5", "1.1", "0.4", "0.9", "0.6"];
/// Time before and after the load. This time is longer than the longest interval, so that each viewer has a sample before and
/// after the load.
const AROUND: Duration = Duration::from_millis(2_500);

fn ran(file: &str, cgroup: &str) -> Totals {
    let (samples, _) = read(Path::new(file));
    let mut sum = Totals::default();
    for two in samples.windows(2) {
        let interval = Interval::between(&two[0], &two[1]);
        assert!(
            interval.losses.nonzero().all(|(loss, _)| !loss.name().starts_with("exited")),
            "{}",
            interval.losses
        );
        if let Some(group) = interval.by_cgroup().get(&Some(cgroup.into())) {
            assert_eq!(group.wait.hist.count(), group.wait.count);
            sum.add(&group.totals);
        }
    }
    sum
}

#[test]
fn viewers_of_any_interval_and_a_scraper_have_the_same_sums_as_the_kernel() {
    let (place, dir, daemon) = (Place::new("intervals"), Dir::new("intervals"), Daemon::exporting(""));
    let recordings = [("0.1", dir.file("short.rec")), ("2", dir.file("long.rec"))];
    let recorders: Vec<Background> = recordings
        .iter()
        .map(|(interval, file)| {
            let args = ["record", "-o", file, "-i", interval, "--connect", &daemon.socket()];
            Background::start(cgscope().args(args))
        })
        .collect();
    thread::sleep(AROUND);
    let files = place.files("cgroup.procs").join(" ");
    let lives = LIVES_S.join(" ");
    let script = format!(
        "for file in {files}; do echo $$ > $file; done; \
         for life in {lives}; do timeout $life sh -c 'while :; do :; done'; done; :"
    );
    Load::start("sh", &["-c", &script], None).wait();
    thread::sleep(AROUND);
    let address = daemon.metrics().trim_start_matches("http://").trim_end_matches("/metrics");
    let line = format!("cgscope_cgroup_cpu_usage_seconds_total{{cgroup=\"{}\"}}", place.cgroup.name);
    let scraped = Scrape::take(address, Format::for_accept(None), false).number(&line);
    recorders.iter().for_each(|recorder| recorder.signal(libc::SIGINT));
    for recorder in recorders {
        let (code, said) = recorder.wait();
        assert!(matches!(code, Some(0 | 130)), "{code:?}: {said}");
    }
    let kernel_ms = place.ran_ms();
    let [short, long] = recordings.map(|(_, file)| ran(&file, &place.cgroup.name));
    let ms = |totals: &Totals| totals.on_cpu_ns as f64 / 1e6;
    println!(
        "by the kernel {kernel_ms:.1} ms, at 0.1 s {:.1}, at 2 s {:.1}, scraped {:.1}",
        ms(&short),
        ms(&long),
        scraped * 1e3
    );
    for (of, ran_ms) in [("at 0.1 s", ms(&short)), ("at 2 s", ms(&long)), ("scraped", scraped * 1e3)] {
        assert!(
            (ran_ms - kernel_ms).abs() < kernel_ms * 0.01,
            "{of}: {ran_ms:.1} ms, by the kernel {kernel_ms:.1}"
        );
    }
    assert_eq!(long, short);
}
