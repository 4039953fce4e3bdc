//! Long recordings: rotation, full disks, signals, progress messages.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use cgscope_model::{Interval, Sample};
use cgscope_record::{Ending, Reason, open};

use crate::{
    background::Background,
    bad_input::signal_at_once,
    bench::{OF_THE_HOST, assert_ended, cgscope, patience, run, stderr, stdout},
    files::Dir,
    load::Load,
    terminal::Terminal,
};

pub(crate) struct Recording;

impl Recording {
    pub(crate) fn start(args: &[&str]) -> Background {
        Background::start(cgscope().arg("record").args(args))
    }
}

pub(crate) fn recordings(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory of ours");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rec"));
    files.sort();
    files
}

pub(crate) fn read(file: &Path) -> (Vec<Sample>, Ending) {
    let mut reader = open(file).unwrap_or_else(|error| panic!("{error}"));
    let samples = reader.by_ref().map(|sample| sample.expect("a Sample")).collect();
    (samples, reader.ending.as_ref().expect("the recording was read to its end").clone())
}

pub(crate) fn reason(ending: &Ending) -> Option<&Reason> {
    match ending {
        Ending::Clean(end) => Some(&end.reason),
        _ => None,
    }
}

/// Returns three sums over the intervals of all files, ns: the waiting time by cgscope, the `run_delay` of the kernel, and the
/// lengths of the intervals.
fn sums(files: &[Vec<Sample>]) -> (u64, u64, u64) {
    let intervals = files.iter().flat_map(|samples| samples.windows(2));
    intervals.fold((0, 0, 0), |(waited, kernel, length), two| {
        let interval = Interval::between(&two[0], &two[1]);
        let total = interval.total();
        (waited + total.wait.total_ns, kernel + total.totals.run_delay_ns, length + interval.duration_ns)
    })
}

/// Records a load with these rotation limits. Asserts that the resulting files together have the same figures as a single file.
fn assert_rotation_loses_nothing(dir: &Dir, limits: &[&str], fewest: usize) {
    let (load, _out) = Load::workload(&["burn", "4", "60", "pin"], None);
    let (file, pid) = (dir.file("a.rec"), load.pid().to_string());
    let args = [&["record", "-o", &file, "-i", "0.1", "-d", "4", "-p", &pid], limits].concat();
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let files = recordings(dir.path());
    assert!(files.len() >= fewest, "{files:?}\n{}", stderr(&output));
    let (samples, endings): (Vec<_>, Vec<_>) = files.iter().map(|file| read(file)).unzip();
    for (ending, at) in endings.iter().zip(1..) {
        let expected = if at < files.len() { Reason::Continued } else { Reason::Finished };
        assert_eq!(reason(ending), Some(&expected), "file {at} of {}", files.len());
    }
    for two in samples.windows(2) {
        assert_eq!(two[0].last(), two[1].first(), "a file begins with the last Sample of the previous file");
    }
    let first = &samples[0][0];
    let last = samples.last().and_then(|samples| samples.last()).expect("a Sample");
    let (waited, kernel, length) = sums(&samples);
    let whole = Interval::between(first, last);
    assert_eq!(length, whole.duration_ns);
    assert_eq!(waited, whole.total().wait.total_ns, "the sum in a single file");
    assert_eq!(kernel, whole.total().totals.run_delay_ns);
    assert!(waited > 3_000_000_000, "two of four loops always wait: {waited}");
    for file in &files {
        let report = run(&["report", &file.display().to_string()]);
        assert_eq!(report.status.code(), Some(0), "{}: {}", file.display(), stderr(&report));
    }
}

#[test]
fn rotation_by_age_loses_no_interval() {
    let dir = Dir::new("by-age");
    assert_rotation_loses_nothing(&dir, &["--rotate-age", "1s"], 4);
    for file in recordings(dir.path()) {
        let (samples, _) = read(&file);
        let length = samples[samples.len() - 1].mono_ns - samples[0].mono_ns;
        assert!(length < 1_300_000_000, "{} is {length} ns long", file.display());
    }
}

#[test]
fn rotation_by_size_loses_no_interval() {
    let dir = Dir::new("by-size");
    assert_rotation_loses_nothing(&dir, &["--rotate-size", "4K"], 2);
}

#[test]
fn old_files_above_the_limit_are_removed_and_foreign_files_stay() {
    let dir = Dir::new("kept");
    let foreign = ["a-19990101T000000.000Z.rec", "a.rec", "notes.rec"].map(|name| dir.file(name));
    for file in &foreign {
        fs::write(file, "yesterday").expect("a file of ours");
    }
    let mut recording =
        Recording::start(&["-o", &foreign[1], "-i", "50ms", "--rotate-size", "4K", "--keep-files", "3"]);
    recording.wait_for("1 file of earlier runs");
    let end = Instant::now() + patience(4_000);
    let (mut most, mut seen) = (0, std::collections::BTreeSet::new());
    while Instant::now() < end {
        let ours: Vec<_> = recordings(dir.path())
            .into_iter()
            .filter(|file| !foreign.iter().any(|name| file == Path::new(name)))
            .collect();
        most = most.max(ours.len());
        seen.extend(ours);
        thread::sleep(Duration::from_millis(5));
    }
    recording.signal(libc::SIGTERM);
    let (code, said) = recording.wait();
    assert_ended(code, &said, OF_THE_HOST);
    assert_eq!(most, 3, "{said}");
    assert!(seen.len() > 6, "{} files were seen: {said}", seen.len());
    let left = recordings(dir.path());
    assert_eq!(left.len(), 3 + foreign.len(), "{left:?}");
    for file in &foreign {
        assert_eq!(fs::read_to_string(file).expect("the foreign file"), "yesterday");
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_the_file_says_so() {
    // Try several disk sizes, so that the last sample ends at different offsets in a disk page. The recordings run in parallel,
    // because each recording runs until its disk is full.
    thread::scope(|scope| {
        for kib in [64, 72, 100, 128] {
            scope.spawn(move || assert_a_full_disk_ends_the_recording(kib));
        }
    });
}

fn assert_a_full_disk_ends_the_recording(kib: u32) {
    let dir = Dir::small("full", kib);
    let file = dir.file("a.rec");
    let output = run(&["record", "-o", &file, "-i", "10ms", "-d", "60s"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the disk is full"), "{said}");
    let (samples, ending) = read(Path::new(&file));
    assert!(
        said.contains(&format!("the {} samples before the failure are in {file}", samples.len())),
        "{said}"
    );
    assert_eq!(reason(&ending), Some(&Reason::DiskFull), "{kib} KiB: {ending}");
    let report = run(&["report", &file]);
    assert_eq!(report.status.code(), Some(1), "a Sample is missing: {}", stderr(&report));
    assert!(stdout(&report).contains("ended because the disk was full"), "{}", stdout(&report));
}

#[test]
fn rotation_on_a_full_disk_leaves_every_file_complete() {
    let dir = Dir::small("full-rotated", 84);
    let output =
        run(&["record", "-o", &dir.file("a.rec"), "-i", "10ms", "-d", "60s", "--rotate-size", "16K"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the disk is full"), "{said}");
    let files = recordings(dir.path());
    assert!(files.len() >= 2, "{files:?}");
    let (samples, endings): (Vec<_>, Vec<_>) = files.iter().map(|file| read(file)).unzip();
    for two in samples.windows(2) {
        assert_eq!(two[0].last(), two[1].first());
    }
    let (last, before) = endings.split_last().expect("files");
    assert_eq!(reason(last), Some(&Reason::DiskFull));
    assert!(before.iter().all(|ending| reason(ending) == Some(&Reason::Continued)), "{before:?}");
}

#[test]
fn a_command_does_not_run_if_its_recording_cannot_be_created() {
    // On this disk, a file can be created, but not written to.
    let full = Dir::small("no-room", 16);
    let fill = fs::write(full.path().join("fill"), [0; 1 << 20]);
    assert!(fill.is_err(), "the disk is full");
    let dir = Dir::new("never");
    let started = dir.file("started");
    for limits in [&[][..], &["--rotate-size", "1M"], &["--keep", "1m"]] {
        let file = full.file("a.rec");
        let args = [&["record", "-o", &file], limits, &["--", "touch", &started]].concat();
        let output = run(&args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("the disk is full"), "{said}");
        assert!(!Path::new(&started).exists(), "{limits:?}: the command ran");
    }
    let left: Vec<_> = recordings(full.path());
    assert!(!full.path().join("a.rec.ring").exists(), "{left:?}");
}

#[test]
fn signals_end_a_recording_cleanly() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let dir = Dir::new("signal");
        let (load, _out) = Load::workload(&["sleep", "2", "60"], None);
        let (file, pid) = (dir.file("a.rec"), load.pid().to_string());
        let mut recording = Recording::start(&["-o", &file, "-i", "0.2", "-p", &pid]);
        recording.wait_for("Ctrl-C ends");
        thread::sleep(patience(700));
        recording.signal(signal);
        let (code, said) = recording.wait();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("own cost: "), "{said}");
        let (samples, ending) = read(Path::new(&file));
        assert_eq!(reason(&ending), Some(&Reason::Interrupted));
        assert!(samples.len() >= 3, "{} Samples", samples.len());
    }
}

#[test]
fn a_recording_that_cannot_continue_gives_the_reason_at_its_end() {
    let dir = Dir::new("failed");
    let file = dir.file("a.rec");
    let output = run(&["record", "-o", &file, "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("could not be run"), "{}", stderr(&output));
    assert_eq!(reason(&read(Path::new(&file)).1), Some(&Reason::Failed));

    let file = dir.file("b.rec");
    let (load, _out) = Load::workload(&["sleep", "2", "60"], None);
    let mut recording = Recording::start(&["-o", &file, "-p", &load.pid().to_string()]);
    recording.wait_for("Ctrl-C ends");
    thread::sleep(patience(500));
    signal_at_once(recording.pid(), &[libc::SIGINT, libc::SIGTERM]);
    let (code, said) = recording.wait();
    assert!(code == Some(1) && said.contains("interrupted twice"), "{code:?}: {said}");
    assert_eq!(reason(&read(Path::new(&file)).1), Some(&Reason::Interrupted));
}

#[test]
fn a_log_has_no_progress_and_no_control_codes_and_a_quiet_run_prints_nothing() {
    let dir = Dir::new("log");
    let (load, _out) = Load::workload(&["sleep", "2", "60"], None);
    let (file, pid) = (dir.file("a.rec"), load.pid().to_string());
    let args = ["record", "-o", &file, "-i", "0.2", "-d", "2.5", "-p", &pid];
    let output = run(&args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains(['\r', '\x1b']), "{said:?}");
    assert_eq!(said.lines().count(), 3, "start, end and own cost: {said}");
    let quiet = run(&[&args[..], &["--quiet"]].concat());
    assert_eq!(stderr(&quiet).lines().count(), 1, "{}", stderr(&quiet));
    assert!(stderr(&quiet).contains("it is kept as"), "{}", stderr(&quiet));
}

#[test]
fn on_a_terminal_one_line_shows_the_progress_and_ctrl_c_ends() {
    let dir = Dir::new("terminal");
    let terminal = Terminal::new(120, 30);
    let (program, file) = (cgscope().get_program().display().to_string(), dir.file("a.rec"));
    terminal.line(&format!("clear; {program} record -o {file} -i 0.5; echo le''ft with $?"));
    let shows = |screen: &str| screen.lines().filter(|line| line.contains("/s)  losses")).count();
    terminal.wait_for("/s)  losses");
    let mut texts = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let screen = terminal.screen();
        assert!(shows(&screen) <= 1, "the progress takes one line:\n{screen}");
        texts.extend(screen.lines().filter(|line| line.contains("/s)  losses")).map(str::to_owned));
        thread::sleep(Duration::from_millis(150));
    }
    assert!(texts.len() >= 2 && texts.len() <= 5, "once a second: {texts:?}");
    terminal.press("C-c");
    let screen = terminal.wait_for("left with ");
    assert!(screen.contains("own cost: ") && shows(&screen) == 0, "the progress line is erased:\n{screen}");
    assert!(screen.contains("left with 0"), "{screen}");
}

#[test]
fn a_command_has_the_terminal_for_itself() {
    let dir = Dir::new("shared");
    let terminal = Terminal::new(120, 30);
    let (program, file) = (cgscope().get_program().display().to_string(), dir.file("a.rec"));
    terminal.line(&format!("clear; {program} record -o {file} -i 0.2 -- sleep 2; echo le''ft with $?"));
    let screen = terminal.wait_for("left with ");
    assert!(screen.contains("own cost: "), "{screen}");
    assert!(!screen.contains("/s)  losses"), "{screen}");
}

#[test]
fn invalid_arguments_are_refused_before_the_measurement_starts() {
    let dir = Dir::new("nonsense");
    let (file, started) = (dir.file("a.rec"), dir.file("started"));
    for (args, said) in [
        (&["--rotate-size", "10MB"][..], "a size looks like"),
        (&["--rotate-age", "soon"], "a duration looks like"),
        (&["--keep-files", "3"], "--rotate"),
        (&["--keep", "1m", "--rotate-age", "1h"], "cannot be used with"),
        (&["--trigger", "p99>10ms"], "--keep"),
        (&["--keep", "1m", "--trigger", "p99>10"], "'p99>10ms'"),
        (&["--keep", "1m", "--trigger", "latency>10ms"], "'throttled>20%'"),
        (&["--keep", "1m", "--mode", "coarse", "--trigger", "p99>10ms"], "the coarse mode does not measure"),
    ] {
        let output = run(&[&["record", "-o", &file], args, &["--", "touch", &started]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(fs::read_dir(dir.path()).expect("a directory of ours").count(), 0);
}
