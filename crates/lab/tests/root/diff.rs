//! `cgscope diff` finds no significant difference between two recordings of the same load. If a quota was raised between the
//! recordings, `diff` finds the change and its size.

use std::{fs, process::Output, thread};

use cgscope_model::Sample;
use cgscope_record::{FileWriter, Reason, Writer, open};
use serde_json::Value;

use crate::{
    bench::{json_lines, patience, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Cpu, Load},
};

/// Planned number of intervals of 100 ms in a piece of a recording. A piece has fewer intervals if other programs delay the
/// recorder, because then intervals are longer.
const PIECE: usize = 17;
const FEWEST: usize = 10;
const PIECES: usize = 40;

/// A loop under a quota of half a CPU on one CPU, and loops without a quota on another CPU. All loops have priority over other
/// programs. The first loop leaves half of its CPU to cgscope.
struct Loops {
    _loads: Vec<Load>,
    limited: Cgroup,
    _free: Cgroup,
    all: Cgroup,
}

impl Loops {
    fn start(name: &str, free: usize) -> Self {
        let all = Cgroup::new(name);
        all.favour();
        let (limited, beside) = (all.child("limited"), all.child("free"));
        limited.limit(50_000, 100_000);
        let cpu = if free == 0 { Cpu::one() } else { 1 };
        let mut loads = vec![Load::pinned_loop(cpu, Some(&limited))];
        loads.extend((0..free).map(|_| Load::pinned_loop(0, Some(&beside))));
        thread::sleep(patience(500));
        Self { _loads: loads, limited, _free: beside, all }
    }

    fn record(&self, file: &str, seconds: &str, interval: &str) {
        let output = run(&["record", "-o", file, "-d", seconds, "-i", interval, "--cgroup", &self.all.name]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

fn diff(before: &str, after: &str) -> Vec<Value> {
    let output = run(&["diff", "--json", before, after]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    json_lines(&output)
}

fn called(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["verdict"] == "more_than_noise").collect()
}

fn cut(dir: &Dir, file: &str) -> Vec<String> {
    let mut reader = open(file).expect("a recording");
    let header = reader.header.clone();
    let samples: Vec<Sample> = reader.by_ref().map(|sample| sample.expect("a sample")).collect();
    let length = PIECE.min((samples.len() - 1) / PIECES);
    assert!(length >= FEWEST, "{} samples", samples.len());
    let piece = |i: usize| {
        let path = dir.file(&format!("{i}.rec"));
        let mut writer = FileWriter::create(&path, &header).expect("a file of ours");
        // The last sample of a piece is also the first sample of the next piece.
        for sample in &samples[i * length..=(i + 1) * length] {
            writer.sample(sample).expect("a sample is written");
        }
        writer.end(samples[(i + 1) * length].unix_ns, Reason::Finished).expect("a sample is written");
        path
    };
    (0..PIECES).map(piece).collect()
}

fn words(line: &Value) -> String {
    let names = ["figure", "about", "path", "comm", "before", "after", "low", "high", "p"];
    names.map(|name| line[name].to_string()).join(" ")
}

fn the_same_file_twice(file: &str) {
    let lines = diff(file, file);
    assert!(called(&lines).is_empty());
    let changes = lines.iter().filter(|line| line["kind"] == "figure");
    assert!(changes.clone().count() > 5 && changes.clone().all(|line| line["change"] == 0.0));
    assert!(stdout(&run(&["diff", file, file])).contains("Nothing changed by more than noise"));
}

fn torn_and_empty(dir: &Dir, good: &str) {
    let bytes = fs::read(good).expect("a recording");
    let mut reader = open(good).expect("a recording");
    let mut short = Writer::create(Vec::new(), &reader.header).expect("writing to memory succeeds");
    for sample in reader.by_ref().take(4) {
        short.sample(&sample.expect("a sample")).expect("writing to memory succeeds");
    }
    let short = short.end(0, Reason::Finished).expect("writing to memory succeeds");
    let files = [("torn", &bytes[..bytes.len() - 200]), ("short", &short), ("empty", &[][..])];
    let diff = |name: &str, content: &[u8]| -> Output {
        let file = dir.file(name);
        fs::write(&file, content).expect("a file of ours");
        run(&["diff", good, &file])
    };
    let [torn, short, empty] = files.map(|(name, content)| diff(name, content));
    assert_eq!(torn.status.code(), Some(1));
    assert!(
        stderr(&torn).contains("breaks off") && stdout(&torn).contains("Nothing changed"),
        "{}",
        stdout(&torn)
    );
    assert_eq!(short.status.code(), Some(1));
    assert!(
        stderr(&short).contains("too few intervals to distinguish changes from noise"),
        "{}",
        stderr(&short)
    );
    assert_eq!(empty.status.code(), Some(2));
    assert!(stderr(&empty).contains("empty") && stdout(&empty).is_empty(), "{}", stderr(&empty));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "one CPU: asserts the share of throttled time"]
    fn an_increase_of_a_quota_from_50_to_60_percent_is_reported_with_its_size() {
        let dir = Dir::new("diff-quota");
        let loops = Loops::start("diff-quota", 0);
        let (before, after) = (dir.file("before.rec"), dir.file("after.rec"));
        loops.record(&before, "6", "200ms");
        loops.limited.limit(60_000, 100_000);
        thread::sleep(patience(300));
        loops.record(&after, "6", "200ms");

        let lines = diff(&before, &after);
        let path = loops.limited.name.as_str();
        let throttled = lines
            .iter()
            .find(|line| line["figure"] == "throttled" && line["path"] == path)
            .unwrap_or_else(|| panic!("{path} is not in {lines:#?}"));
        let number = |name: &str| throttled[name].as_f64().unwrap_or_else(|| panic!("{name} in {throttled}"));
        assert_eq!(throttled["verdict"], "more_than_noise", "{throttled}");
        assert!((0.45..0.55).contains(&number("before")), "{throttled}");
        assert!((0.35..0.45).contains(&number("after")), "{throttled}");
        assert!(number("low") < -0.08 && number("high") > -0.12 && number("high") < 0.0, "{throttled}");
        let limits =
            lines.iter().find(|line| line["kind"] == "limits" && line["path"] == path).expect("the quota");
        assert_eq!(
            (&limits["before"]["quota_us"], &limits["after"]["quota_us"]),
            (&50_000.into(), &60_000.into())
        );

        let words = stdout(&run(&["diff", &before, &after]));
        for said in ["Largest change: ", "A limit changed: quota of", "more than noise", "throttled", path] {
            assert!(words.contains(said), "{said:?} is not in:\n{words}");
        }

        // If the files are swapped, each change has the opposite sign.
        let back = diff(&after, &before);
        assert_eq!(called(&back).len(), called(&lines).len());
        let mirrored = back
            .iter()
            .find(|line| line["figure"] == "throttled" && line["path"] == path)
            .expect("the mirrored change");
        assert_eq!((&mirrored["before"], &mirrored["p"]), (&throttled["after"], &throttled["p"]));

        the_same_file_twice(&before);
        torn_and_empty(&dir, &before);
    }

    #[test]
    #[ignore = "all CPUs: other load would be a difference"]
    fn of_twenty_pairs_of_the_same_load_at_least_nineteen_have_no_change() {
        let dir = Dir::new("diff-same");
        let loops = Loops::start("diff-same", 2);
        let file = dir.file("all.rec");
        loops.record(&file, "70", "100ms");
        let pieces = cut(&dir, &file);
        let mut alarms = Vec::new();
        for pair in pieces.chunks_exact(2) {
            let lines = diff(&pair[0], &pair[1]);
            let summary = lines.iter().find(|line| line["kind"] == "summary").expect("a summary");
            assert!(summary["enough"] == true && summary["tested"].as_u64() > Some(10), "{summary}");
            let called: Vec<String> = called(&lines).into_iter().map(words).collect();
            if !called.is_empty() {
                alarms.push(called);
            }
        }
        assert!(alarms.len() <= 1, "{alarms:#?}");
    }

    /// Two runs of a load can differ by more than the noise within one recording, so `diff` can report differences. Other
    /// programs cause most of these differences. Figures that depend only on the load hardly change.
    #[test]
    #[ignore = "all CPUs: other load would be a difference"]
    fn two_starts_of_the_same_load_have_no_large_change() {
        const PAIRS: usize = 3;
        let dir = Dir::new("diff-anew");
        let record = |i: usize| {
            let file = dir.file(&format!("{i}.rec"));
            Loops::start("diff-anew", 2).record(&file, "4", "100ms");
            file
        };
        let files: Vec<String> = (0..2 * PAIRS).map(record).collect();
        for pair in files.chunks_exact(2) {
            let lines = diff(&pair[0], &pair[1]);
            let summary = lines.iter().find(|line| line["kind"] == "summary").expect("a summary");
            assert!(summary["enough"] == true && summary["tested"].as_u64() > Some(10), "{summary}");
            // These figures depend only on the quota and the CPU, not on other programs. The limit is 5 percentage points, ten
            // times the smallest change that `diff` reports.
            let own = ["on_cpu", "throttled", "own_cgroup"];
            let of_the_load = |line: &&&Value| {
                line["about"] == "cgroup" && own.contains(&line["figure"].as_str().unwrap_or_default())
            };
            for line in called(&lines).iter().filter(of_the_load) {
                let change = line["change"].as_f64().expect("a change");
                assert!(change.abs() < 0.05, "{}", words(line));
            }
        }
    }
}
