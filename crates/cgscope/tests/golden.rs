//! Checks that the outputs for recordings are the same, byte by byte. The snapshot contains the length and checksum of each
//! output. The outputs are in `target/golden`: compare them with the outputs of the previous commit. `INSTA_UPDATE=always`
//! accepts new lines.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use cgscope_made_up::{demand::Limited, host, with_accounts};
use cgscope_metrics::{Config, Format, Metrics};
use cgscope_model::{Interval, Sample, Skipped, doctor::parse_version, findings::Host, skipped::ended};
use cgscope_record::{FileWriter, Header, Reason};
use cgscope_view::{
    app::{About, list},
    batch,
    data::Data,
    stat,
    text::{self, Unit},
};
use flate2::Crc;

const FILES: [&str; 6] = ["coarse", "memory", "neighbour", "nodes", "quota", "threads"];
const FORMATS: [&str; 6] = ["hdr", "perfetto", "csv", "parquet", "pprof", "folded"];
/// Pairs to compare: two different recordings, a recording with itself, and an exact recording with a coarse one.
const PAIRS: [[&str; 2]; 3] = [["neighbour", "threads"], ["nodes", "nodes"], ["quota", "coarse"]];

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../view/tests/files/{file}.rec"))
}

/// Returns the standard output of a command, or standard error if the command fails and prints a message.
fn output(args: &[&str], files: &[&str]) -> Vec<u8> {
    output_in(path("").with_file_name("").as_ref(), args, files)
}

/// Returns the output of a command that reads a recording from a pipe.
fn output_of_pipe(path: &Path, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cgscope"));
    command.args(args).arg("/dev/stdin").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("cgscope is executed");
    let mut pipe = child.stdin.take().expect("it is piped");
    let file = fs::read(path).expect("a recording");
    let writer = std::thread::spawn(move || pipe.write_all(&file));
    let output = child.wait_with_output().expect("cgscope ends").stdout;
    let _ = writer.join();
    output
}

fn output_in(folder: &Path, args: &[&str], files: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cgscope"));
    // Some outputs contain file names, so these must be relative.
    command.current_dir(folder);
    let output = command.args(args).args(files.iter().map(|file| format!("{file}.rec"))).output();
    let output = output.expect("cgscope is executed");
    if output.status.success() || output.stderr.is_empty() { output.stdout } else { output.stderr }
}

/// Collects the lines of the snapshot, and writes the outputs to a directory.
struct Golden {
    dir: PathBuf,
    lines: String,
}

impl Golden {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("golden").join(name);
        fs::create_dir_all(&dir).expect("a directory below target");
        Self { dir, lines: String::new() }
    }

    fn add(&mut self, name: &str, output: impl AsRef<[u8]>) {
        let output = output.as_ref();
        let mut crc = Crc::new();
        crc.update(output);
        self.lines += &format!("{:08x} {:>8} {name}\n", crc.sum(), output.len());
        fs::write(self.dir.join(name.replace(' ', "_")), output).expect("a file below target");
    }
}

#[test]
fn command_outputs_of_recordings_have_not_changed() {
    let mut golden = Golden::new("commands");
    for file in FILES {
        golden.add(&format!("report {file}"), output(&["report"], &[file]));
        golden.add(&format!("report --json {file}"), output(&["report", "--json"], &[file]));
        let all = output(&["report", "--json", "--all"], &[file]);
        golden.add(&format!("report --json --all {file}"), all);
        golden.add(&format!("report --html {file}"), output(&["report", "--html", "-"], &[file]));
        for format in FORMATS {
            let exported = output(&["export", "--output", "-", "--format", format], &[file]);
            golden.add(&format!("export {format} {file}"), exported);
        }
    }
    for [before, after] in PAIRS {
        golden.add(&format!("diff {before} {after}"), output(&["diff"], &[before, after]));
        golden.add(&format!("diff --json {before} {after}"), output(&["diff", "--json"], &[before, after]));
    }
    insta::assert_snapshot!(golden.lines);
}

struct Recording {
    header: Header,
    samples: Vec<Sample>,
}

impl Recording {
    fn open(file: &str) -> Self {
        let reader = cgscope_record::open(path(file)).expect("a recording that is committed");
        let header = reader.header.clone();
        Self { header, samples: reader.collect::<Result<_, _>>().expect("a whole recording") }
    }

    fn intervals(&self) -> impl Iterator<Item = Interval> {
        self.samples.windows(2).map(|pair| Interval::between(&pair[0], &pair[1]))
    }

    fn data(&self) -> Vec<Data> {
        let cpus = self.samples.last().map(|sample| sample.cpus.len() as u32);
        let kernel = parse_version(&self.header.kernel_release);
        let host = Host { cpus, whole: self.header.selection.is_whole_host(), kernel };
        self.intervals().map(|interval| Data::new(Arc::new(interval), &host)).collect()
    }
}

#[test]
fn tables_of_recorded_intervals_have_not_changed() {
    let mut golden = Golden::new("tables");
    for file in FILES {
        let recording = Recording::open(file);
        let data = recording.data();
        for kind in list::ListKind::ALL.iter().copied() {
            let asked = batch::Asked {
                kind,
                sort: kind.sorted_by(),
                reversed: false,
                filter: String::new(),
                idle: false,
            };
            let mut text = batch::banner(&About::default(), &data[0]);
            text.extend(data.iter().map(|data| batch::interval(data, &asked)));
            golden.add(&format!("top -b {kind:?} {file}"), text);
        }
        use stat::Rows::{Cgroups, Processes, Threads, ThreadsOfProcesses};
        for rows in [Processes, Threads, ThreadsOfProcesses, Cgroups] {
            let asked = stat::Asked { rows, all: true, with_cgroup: rows == Threads, uid: &|_| Some(7) };
            let mut text = stat::banner(&About::default(), "", 0, data[0].interval.start_unix_ns);
            text.extend(data.iter().map(|data| stat::interval(data, &asked)));
            text += &stat::average(&data[0], &asked);
            golden.add(&format!("stat {rows:?} {file}"), text);
        }
        for unit in [Unit::Micro, Unit::Milli] {
            let text: String = data.iter().map(|data| text::histogram(&data.total.wait, unit)).collect();
            golden.add(&format!("hist {unit:?} {file}"), text);
        }
    }
    insta::assert_snapshot!(golden.lines);
}

#[test]
fn metric_pages_of_recordings_have_not_changed() {
    let mut golden = Golden::new("metrics");
    for file in FILES {
        let recording = Recording::open(file);
        let mut metrics = Metrics::new(Config::default());
        recording.intervals().for_each(|interval| metrics.add(&interval));
        for format in Format::ALL {
            golden.add(&format!("metrics {format:?} {file}"), metrics.page(format, &[]));
        }
    }
    insta::assert_snapshot!(golden.lines);
}

/// Returns samples of a host with many kinds of rows. Some tasks start and end, and a few cgroups are created and removed.
fn busy() -> Vec<Sample> {
    let of = |round: u64| host(280 + (round as u32 % 3) * 20, 30 + (round as u32 % 2) * 2, round);
    (0..9).map(|round| Sample { demand: Vec::new(), ..of(round) }).collect()
}

#[test]
fn generated_recordings_and_their_outputs_have_not_changed() {
    let mut golden = Golden::new("generated");
    let folder = golden.dir.clone();
    let limited: Vec<Sample> = Limited::new(12).take(40).collect();
    for (name, samples) in [("busy", &busy()), ("limited", &limited)] {
        let path = folder.join(format!("{name}.rec"));
        let mut writer = FileWriter::create(&path, &Header::default()).expect("a file below target");
        samples.iter().for_each(|sample| writer.sample(sample).expect("a valid sample"));
        writer.end(0, Reason::Finished).expect("a file below target");
        golden.add(&format!("record {name}"), fs::read(&path).expect("the file was written"));
        for args in
            [vec!["report"], vec!["report", "--json", "--all"], vec!["whatif"], vec!["whatif", "--json"]]
        {
            let output = output_in(&folder, &args, &[name]);
            let of_pipe = String::from_utf8_lossy(&output_of_pipe(&path, &args))
                .replace("/dev/stdin", &format!("{name}.rec"));
            // `output` contains the error message of a command that fails. `output_of_pipe` only returns standard output.
            assert!(
                of_pipe.as_bytes() == output || output.starts_with(b"cgscope: "),
                "{args:?} of a pipe:\n{of_pipe}"
            );
            golden.add(&format!("{} {name}", args.join(" ")), output);
        }
    }
    for args in [
        vec!["whatif", "--quota", "0.5..2", "--period", "50000"],
        vec!["whatif", "--threads", "2", "--target", "5"],
        vec!["whatif", "--burst", "20000", "--paths", "--json"],
    ] {
        golden.add(&args.join(" "), output_in(&folder, &args, &["limited"]));
    }
    golden.add("diff", output_in(&folder, &["diff"], &["busy", "limited"]));
    insta::assert_snapshot!(golden.lines);
}

/// Each interval covers two seconds, because its reader skips one sample. The ended rows of this sample are added to the
/// interval.
#[test]
fn metric_pages_of_a_reader_that_skips_samples_have_not_changed() {
    let mut golden = Golden::new("skipping");
    let samples: Vec<Sample> = busy().into_iter().map(with_accounts).collect();
    let mut metrics = Metrics::new(Config::default());
    let mut skipped = Skipped::default();
    for three in samples.windows(3).step_by(2) {
        let [first, between, last] = three else { unreachable!("windows of three") };
        for (before, now) in [(first, between), (between, last)] {
            let rows = ended(before, now);
            skipped.add(first, &rows);
        }
        let interval = Interval::over(first, last, &mut skipped);
        golden.add(&format!("interval {}", interval.start_unix_ns), format!("{:#?}", interval.by_cgroup()));
        metrics.add(&interval);
    }
    for format in Format::ALL {
        golden.add(&format!("metrics {format:?}"), metrics.page(format, &[]));
    }
    insta::assert_snapshot!(golden.lines);
}
