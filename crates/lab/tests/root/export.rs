//! Exports of recordings. Other programs can read each export. The sums of an export equal the sums of `report --json` to the
//! nanosecond.

#[path = "../../../export/tests/formats/decode.rs"]
mod decode;
pub(crate) mod readers;

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    process::{Output, Stdio},
    thread,
    time::Duration,
};

use cgscope_model::Cause;
use serde_json::Value;

use crate::{
    bench::{assert_measured, cgscope, json_lines, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
};
use readers::Readers;

/// A recording of three seconds with a quota that runs out, a neighbour, and short-lived tasks.
struct Recorded {
    dir: Dir,
    file: String,
    intervals: Vec<Value>,
    limited: String,
    /// Exit status of `report`. On a busy host, the recording can have losses, and then every command has this exit status.
    exit: Option<i32>,
}

impl Recorded {
    fn new(name: &str, mode: &str) -> Self {
        let dir = Dir::new(name);
        let file = dir.file("a.rec");
        let (limited, neighbour) = (Cgroup::new("export limited"), Cgroup::new("export"));
        limited.limit(30_000, 100_000);
        // Give this cgroup a high weight. Otherwise other programs can keep it below its quota.
        limited.favour();
        let _loads = [
            Load::busy_loop(Some(&limited)),
            Load::busy_loop(Some(&limited)),
            Load::busy_loop(Some(&neighbour)),
            Load::busy_loop(Some(&neighbour)),
            Load::start("sh", &["-c", "while :; do /bin/true; sleep 0.02; done"], Some(&neighbour)),
        ];
        thread::sleep(Duration::from_millis(300));
        record(&["-o", &file, "-d", "3", "--mode", mode]);
        let report = run(&["report", "--json", &file]);
        let intervals = json_lines(&report);
        assert_eq!(intervals.len(), 3);
        Self { dir, file, intervals, limited: limited.name.clone(), exit: report.status.code() }
    }

    fn export(&self, format: &str, name: &str) -> String {
        let out = self.dir.file(name);
        let output = export(&self.file, format, &out);
        assert_eq!(output.status.code(), self.exit, "{format}: {}", stderr(&output));
        assert_eq!(stdout(&output), "");
        out
    }

    fn sum(&self, of: impl Fn(&Value) -> u64) -> u64 {
        self.intervals.iter().map(of).sum()
    }

    fn wait_ns(&self) -> u64 {
        self.sum(|interval| number(&interval["total"]["total_ns"]))
    }

    fn waits(&self) -> u64 {
        self.sum(|interval| number(&interval["total"]["count"]))
    }

    fn in_histogram(&self, cgroup: Option<&str>) -> u64 {
        self.sum(|interval| {
            let wait = cgroup.map_or(Some(&interval["total"]), |path| {
                let groups = interval["cgroups"].as_array().expect("cgroups");
                groups.iter().find(|group| group["path"] == path).map(|group| &group["wait"])
            });
            let rows = wait.map_or([].as_slice(), |wait| wait["hist"].as_array().expect("a histogram"));
            rows.iter().map(|row| number(&row[2])).sum()
        })
    }

    /// Returns the waiting time by cause, ns. A cause that is null counts as 0.
    fn by_cause(&self) -> BTreeMap<&'static str, u64> {
        let sum = |cause: Cause| {
            let key = format!("{}_ns", cause.name());
            self.sum(|interval| interval["total"]["by_cause"][&key].as_u64().unwrap_or(0))
        };
        Cause::ALL.iter().map(|cause| (cause.name(), sum(*cause))).collect()
    }

    /// Returns the expected sum of each column. All table formats have the same columns.
    fn columns(&self) -> BTreeMap<String, u64> {
        let causes = self.by_cause().into_iter().map(|(cause, ns)| (format!("wait_{cause}_ns"), ns));
        let others = [("wait_ns".to_owned(), self.wait_ns()), ("waits".to_owned(), self.waits())];
        causes.chain(others).collect()
    }
}

fn record(words: &[&str]) {
    let output = run(&[&["record"], words].concat());
    assert_measured(&output);
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn export(file: &str, format: &str, out: &str) -> Output {
    run(&["export", file, "--format", format, "-o", out])
}

#[test]
fn the_load_shows_every_kind_of_figure() {
    let recorded = Recorded::new("kinds", "bpf");
    let by_cause = recorded.by_cause();
    assert!(by_cause["throttled"] > 500_000_000, "{by_cause:?}");
    assert!(by_cause["own_cgroup"] + by_cause["other_cgroup"] > 500_000_000, "{by_cause:?}");
    assert_eq!(by_cause.values().sum::<u64>(), recorded.wait_ns());
    let rows = decode::csv_rows(&fs::read(recorded.export("csv", "a.csv")).expect("an export"));
    assert!(decode::sum(&rows, "exited_tasks") > 20, "tasks that ended have rows");
}

#[test]
fn tables_sum_to_the_report_in_duckdb() {
    let recorded = Recorded::new("tables", "bpf");
    let (csv, parquet) = (recorded.export("csv", "a.csv"), recorded.export("parquet", "a.parquet"));
    let expected = recorded.columns();
    let decoded = [
        decode::csv_rows(&fs::read(&csv).expect("an export")),
        decode::parquet_rows(fs::read(&parquet).expect("an export")),
    ];
    for rows in &decoded {
        for (column, sum) in &expected {
            assert_eq!(decode::sum(rows, column), *sum, "{column}");
        }
    }
    let reported = decode::parquet_metadata(fs::read(&parquet).expect("an export"));
    assert!(
        reported["measured_by"].starts_with("cgscope ") && reported.contains_key("losses"),
        "{reported:?}"
    );
    let Some(python) = Readers::find().python("DuckDB") else { return };
    let columns: Vec<&str> = expected.keys().map(String::as_str).collect();
    let sums = |table: &str| python.duckdb_sums(table, &columns);
    assert_eq!(sums(&format!("read_csv('{csv}')")), expected);
    assert_eq!(sums(&format!("read_parquet('{parquet}')")), expected);
    // DuckDB reads the files of two hosts as one table.
    recorded.export("parquet", "b.parquet");
    let both = sums(&format!("read_parquet('{}')", recorded.dir.file("*.parquet")));
    assert_eq!(both, expected.into_iter().map(|(column, sum)| (column, 2 * sum)).collect());
}

#[test]
fn hdrhistograms_own_tool_finds_every_wait_in_the_interval_log() {
    let recorded = Recorded::new("hdr", "bpf");
    let out = recorded.export("hdr", "a.hdr");
    let tag = recorded.limited.replace(' ', "%20");
    let log = decode::hdr_log(&fs::read(&out).expect("an export"));
    for (tag, expected) in
        [(None, recorded.in_histogram(None)), (Some(&*tag), recorded.in_histogram(Some(&recorded.limited)))]
    {
        let of_tag = || log.iter().filter(|logged| logged.tag.as_deref() == tag);
        assert_eq!(of_tag().map(|logged| logged.histogram.len()).sum::<u64>(), expected, "{tag:?}");
        assert_eq!(of_tag().count(), 3, "one per interval");
        for (logged, interval) in of_tag().zip(&recorded.intervals) {
            let length = Duration::from_nanos(number(&interval["duration_ns"]));
            assert!(logged.length.abs_diff(length) < Duration::from_millis(1), "{:?}", logged.length);
        }
        assert!(of_tag().is_sorted_by_key(|logged| logged.start));
        assert!(expected > 0);
        let Some(processor) = Readers::find().hdr_histogram() else { continue };
        let reported = processor.process(&out, tag);
        assert_eq!(reported.count, expected, "{tag:?}");
        let longest = of_tag().map(|logged| logged.histogram.max()).max().expect("three histograms");
        assert_eq!(reported.max_ns, longest, "{tag:?}");
    }
}

#[test]
fn sums_by_cause_are_the_same_in_pprof() {
    let recorded = Recorded::new("pprof", "bpf");
    let out = recorded.export("pprof", "a.pprof");
    let expected: BTreeMap<String, u64> = recorded
        .by_cause()
        .into_iter()
        .filter(|(_, ns)| *ns != 0)
        .map(|(cause, ns)| (cause.to_owned(), ns))
        .collect();
    let stacks = decode::pprof_stacks(&decode::pprof_profile(&fs::read(&out).expect("an export")));
    let mut leaves: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.values["wait"] != 0) {
        *leaves.entry(stack.frames.last().expect("a leaf").clone()).or_default() += stack.values["wait"];
    }
    assert_eq!(leaves, expected);
    assert_eq!(stacks.iter().map(|stack| stack.values["waits"]).sum::<u64>(), recorded.waits());
    let quota = format!("quota of {}", recorded.limited);
    let behind = |name: &str| stacks.iter().any(|stack| stack.frames.last().is_some_and(|leaf| leaf == name));
    assert!(behind(&quota), "the profile names the quota");
    let Some(go) = Readers::find().go() else { return };
    let flat: BTreeMap<String, u64> = go
        .top(&out, "wait")
        .into_iter()
        .filter(|line| line.flat != 0)
        .map(|line| (line.name, line.flat))
        .collect();
    assert_eq!(flat, expected);
    let of_root = go.top(&out, "wait").into_iter().find(|line| line.name == "/").expect("the root cgroup");
    assert_eq!(of_root.cumulative, recorded.wait_ns(), "the root includes all cgroups below it");
    assert_eq!(go.top(&out, "waits").iter().map(|line| line.flat).sum::<u64>(), recorded.waits());
    // Other tests run at the same time, so it is unknown how much of the quota the load used.
    let of_quota = stacks.iter().filter(|stack| stack.frames.last().is_some_and(|leaf| *leaf == quota));
    let behind_ns: u64 = of_quota.map(|stack| stack.values["behind"]).sum();
    let line = go.top(&out, "behind").into_iter().find(|line| line.name == quota).expect("the quota");
    assert!(behind_ns != 0 && line.flat == behind_ns, "{behind_ns} {}", line.flat);
}

#[test]
fn sums_by_cause_are_the_same_in_perfettos_messages() {
    let recorded = Recorded::new("perfetto", "bpf");
    let out = recorded.export("perfetto", "a.perfetto");
    let traced = decode::perfetto_trace(&fs::read(&out).expect("an export"));
    let by_cause = recorded.by_cause().into_iter();
    let expected: BTreeMap<String, u64> = by_cause
        .map(|(cause, ns)| (format!("waited: {cause}"), ns))
        .chain([("waited".to_owned(), recorded.wait_ns())])
        .chain([("waits".to_owned(), recorded.waits())])
        .filter(|(_, sum)| *sum != 0)
        .collect();
    for (name, sum) in &expected {
        assert_eq!(traced.host(name), *sum, "{name}");
    }
    assert!(
        traced.instants.iter().any(|(_, says)| says.contains(&recorded.limited)),
        "{:?}",
        traced.instants
    );
    let Some(python) = Readers::find().python("Perfetto's messages") else { return };
    let reported = python.perfetto(&out);
    assert_eq!(reported["unknown_fields"], 0, "every field is in the published messages");
    assert_eq!(reported["first_ns"], recorded.intervals[0]["start_unix_ns"]);
    for (name, sum) in &expected {
        assert_eq!(number(&reported["host"][name]), *sum, "{name}");
    }
    let findings = reported["instants"].as_array().expect("findings");
    assert!(findings.iter().any(|says| says.as_str().is_some_and(|says| says.contains(&recorded.limited))));
    let processes = reported["processes"].as_array().expect("processes");
    assert!(processes.iter().any(|name| name == "sh"), "{processes:?}");
}

#[test]
fn the_export_of_a_coarse_recording_has_sums_and_no_histogram() {
    let recorded = Recorded::new("coarse", "coarse");
    let expected = recorded.columns();
    let rows = decode::parquet_rows(fs::read(recorded.export("parquet", "a.parquet")).expect("an export"));
    for (column, sum) in &expected {
        assert_eq!(decode::sum(&rows, column), *sum, "{column}");
    }
    assert!(rows.iter().all(|row| row["wait_p99_ns"].is_none() && row["wait_kernel_ns"].is_none()));
    recorded.export("pprof", "a.pprof");
    recorded.export("perfetto", "a.perfetto");
    let out = recorded.dir.file("a.hdr");
    let refused = export(&recorded.file, "hdr", &out);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("no histogram"), "{}", stderr(&refused));
    assert_nothing_beside(&recorded.dir, "a.hdr");
}

fn assert_nothing_beside(dir: &Dir, name: &str) {
    let names = fs::read_dir(dir.path())
        .expect("a directory of ours")
        .map(|entry| entry.expect("a file").file_name());
    let left: Vec<_> = names.filter(|left| left.to_string_lossy().starts_with(name)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Makes a short recording of one process that is active in every interval. The recording has no losses.
fn short(dir: &Dir) -> String {
    let file = dir.file("a.rec");
    let load = [env!("CARGO_BIN_EXE_workload"), "blink", "1", "1"];
    let output = run(&[&["record", "-o", &file, "-i", "0.1", "--"][..], &load].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    file
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let dir = Dir::new("there");
    let file = short(&dir);
    let out = dir.file("a.csv");
    fs::write(&out, "yesterday").expect("a file of ours");
    let output = export(&file, "csv", &out);
    assert_eq!(output.status.code(), Some(2));
    let words = stderr(&output);
    assert!(words.contains("is not empty") && words.contains("name another"), "{words}");
    assert_eq!(fs::read_to_string(&out).expect("the file still exists"), "yesterday");
    fs::write(&out, "").expect("a file of ours");
    assert_eq!(export(&file, "csv", &out).status.code(), Some(0), "an empty file may be written");
    let itself = export(&file, "csv", &file);
    assert_eq!(itself.status.code(), Some(2), "the recording itself is not overwritten");
}

#[test]
fn a_full_disk_leaves_no_incomplete_file() {
    let dir = Dir::new("full");
    let file = short(&dir);
    for format in ["hdr", "perfetto", "csv", "parquet", "pprof"] {
        let small = Dir::small("small", 4);
        let _filler = fs::write(small.file("filler"), vec![1; 4096]);
        let output = export(&file, format, &small.file("out"));
        assert_eq!(output.status.code(), Some(2), "{format}: {}", stderr(&output));
        let words = stderr(&output);
        assert!(
            words.contains("No space left") && words.contains("nothing is exported"),
            "{format}: {words}"
        );
        assert_nothing_beside(&small, "out");
    }
    let nowhere = export(&file, "csv", &dir.file("no/such/out"));
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("No such file"), "{}", stderr(&nowhere));
}

#[test]
fn an_export_to_standard_output_has_the_same_bytes_and_may_be_closed() {
    let dir = Dir::new("stdout");
    let file = short(&dir);
    for format in ["hdr", "perfetto", "csv", "parquet", "pprof"] {
        let out = dir.file(&format!("a.{format}"));
        assert_eq!(export(&file, format, &out).status.code(), Some(0));
        let piped = export(&file, format, "-");
        assert_eq!(piped.status.code(), Some(0), "{format}: {}", stderr(&piped));
        assert!(piped.stdout == fs::read(&out).expect("an export"), "{format}");
        let mut closed = cgscope()
            .args(["export", &file, "--format", format, "-o", "-"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cgscope starts");
        drop(closed.stdout.take());
        let mut words = String::new();
        let said = closed.stderr.take().expect("its standard error").read_to_string(&mut words);
        assert!(said.is_ok() && closed.wait().expect("a child of ours").success(), "{format}: {words}");
        assert!(!words.contains("could not"), "{format}: {words}");
    }
}

#[test]
fn complete_samples_of_a_truncated_recording_are_exported() {
    let dir = Dir::new("cut");
    let file = short(&dir);
    let bytes = fs::read(&file).expect("a recording");
    // Cut off the end marker and a part of the last sample.
    fs::write(&file, &bytes[..bytes.len() - 200]).expect("a file of ours");
    let intervals = json_lines(&run(&["report", "--json", &file]));
    let out = dir.file("a.csv");
    let output = export(&file, "csv", &out);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let rows = decode::csv_rows(&fs::read(&out).expect("the rows of the complete samples"));
    let waited = intervals.iter().map(|interval| number(&interval["total"]["total_ns"])).sum::<u64>();
    assert!(!rows.is_empty());
    assert_eq!(decode::sum(&rows, "wait_ns"), waited);
}
