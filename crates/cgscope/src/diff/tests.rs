//! Tests of the complete output, with generated recordings.

use std::{fs, path::Path, sync::Arc};

use cgscope_model::{ByCause, Cause, Hist, Sample, TaskReading, Totals};
use cgscope_record::{Cpu, FileWriter, Header, Reason};

use super::*;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// A simulated program. The figures apply to each second. `waits` counts waits behind another cgroup. Run time and wait length
/// vary by 5 %.
struct Does {
    cgroup: u64,
    comm: &'static str,
    ran_ms: u64,
    waits: u64,
    wait_ms: u64,
}

impl Does {
    fn reading(&self, serial: u64, second: u64) -> TaskReading {
        let mut totals = Totals::default();
        let mut hist = Hist::default();
        for at in 1..=second {
            // The percentage changes irregularly between 95 and 105 %.
            let percent = 95 + (at * 7 + serial * 3) % 11;
            let wait_ns = self.wait_ms * MS * percent / 100;
            totals.add(&Totals {
                waits: self.waits,
                wait_ns: self.waits * wait_ns,
                on_cpu_ns: self.ran_ms * MS * percent / 100,
                involuntary: self.waits,
                by_cause: ByCause::only(Cause::OtherCgroup, self.waits * wait_ns),
                ..Totals::default()
            });
            hist.add(&Hist::of_cause(Cause::OtherCgroup, std::iter::repeat_n(wait_ns, self.waits as usize)));
        }
        TaskReading {
            accounts: None,
            serial,
            tid: serial as u32,
            tgid: serial as u32,
            comm: self.comm.into(),
            start_ns: 5,
            moved_ns: None,
            before_move: None,
            cgroup_id: self.cgroup,
            cpu: 0,
            node: None,
            on_cpu: false,
            state: None,
            pending: None,
            placement: None,
            scheduling: None,
            max_ns: self.wait_ms * MS * 105 / 100,
            totals,
            hist: Arc::new(hist),
        }
    }
}

fn recording(path: &Path, does: &[Does]) -> Recording {
    let header = Header {
        hostname: "media-1".into(),
        kernel_release: "6.12.1".into(),
        architecture: "x86_64".into(),
        cpus: (0..2).map(|cpu| Cpu { cpu, node: None }).collect(),
        interval_ns: S,
        start_unix_ns: 1_700_000_000 * S,
        ..Header::default()
    };
    let mut writer = FileWriter::create(path, &header).expect("a file of ours");
    for second in 0..=30 {
        let tasks = does.iter().zip(1..).map(|(does, serial)| Arc::new(does.reading(serial, second)));
        let sample = Sample {
            unix_ns: (1_700_000_000 + second) * S,
            mono_ns: (10 + second) * S,
            tasks: tasks.collect(),
            cgroups: vec![(1, "/".into()), (2, "/media".into()), (3, "/backup".into())],
            ..Sample::default()
        };
        writer.sample(&sample).expect("a valid sample");
    }
    writer.end(1_700_000_030 * S, Reason::Finished).expect("a file of ours");
    let mut recording = Recording::open(path).expect("it was just written");
    recording.file = path.file_name().expect("a file name").to_string_lossy().into_owned();
    recording
}

/// Field case 5: a media server, recorded for 30 s before a fix and for 30 s after it.
#[test]
fn a_fix_is_shown_in_two_columns_with_the_change() {
    let dir = std::env::temp_dir().join(format!("cgscope-diff-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory of ours");
    let server = |ran_ms, waits, wait_ms| Does { cgroup: 2, comm: "mediaserver", ran_ms, waits, wait_ms };
    let backup = || Does { cgroup: 3, comm: "rsync", ran_ms: 300, waits: 20, wait_ms: 2 };
    let mut before = recording(&dir.join("before.rec"), &[server(822, 50, 3), backup()]);
    let mut after = recording(&dir.join("after.rec"), &[server(144, 40, 1), backup()]);
    let sides = [read(&mut before).expect("whole"), read(&mut after).expect("whole")];
    let _ = fs::remove_dir_all(&dir);
    let [first, second] = sides;
    let diff = compare(first, second);
    insta::assert_snapshot!(text([&before, &after], &diff));
}

fn change(before: f64, after: f64) -> Change {
    Change {
        subject: DiffSubject::All,
        figure: "wait",
        words: "waiting",
        unit: FigureUnit::WallShare,
        before: Some(before),
        after: Some(after),
        change: Some(after - before),
        relative: Some((after - before) / before),
        low: Some(-0.104),
        high: Some(-0.091),
        p: Some(0.0005),
        verdict: Verdict::MoreThanNoise,
        size: 0.0,
    }
}

#[test]
fn values_have_three_digits_and_their_unit() {
    let said =
        [(FigureUnit::WallShare, 0.4981), (FigureUnit::PerSecond, 1_234.5), (FigureUnit::Ns, 4_560_000.0)]
            .map(|(unit, number)| value(unit, Some(number)));
    assert_eq!(said, ["49.8%", "1234/s", "4.56ms"]);
    assert_eq!(value(FigureUnit::Ns, None), "-");
}

#[test]
fn a_change_is_relative_to_the_value_before() {
    let said = [(0.5, 0.4), (0.01, 0.5), (0.0, 0.5), (0.5, 0.0), (0.0, 0.0)];
    let said = said.map(|(before, after)| relative(&change(before, after)));
    assert_eq!(said, ["-20.0%", "x50", "new", "-100.0%", "-"]);
    assert_eq!(interval(&change(0.5, 0.4)), "-10.4 to -9.10 points");
    assert_eq!(verdict(&change(0.5, 0.4)), "more than noise (99.9%)");
}
