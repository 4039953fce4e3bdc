//! Replays of recordings that the tests make, in a tmux terminal.

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use cgscope_model::{Sample, units::duration};
use cgscope_record::{FileWriter, Header};
use serde_json::Value;

use crate::{
    background::Background,
    bench::{OF_THE_HOST, assert_ended, assert_measured, cgscope, json_lines, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
    terminal::Terminal,
};

fn record(file: &str, interval: &str, seconds: &str) {
    let output = run(&["record", "-o", file, "-i", interval, "-d", seconds]);
    assert_measured(&output);
}

/// Returns the line that the terminal shows after a replay that has read the whole file.
fn left_with(file: &str) -> String {
    format!("left with {}", run(&["report", file]).status.code().expect("an exit status"))
}

/// Records for `seconds`, with intervals of 200 ms. In the middle third of the time, a loop uses up the quota of `cgroup`.
fn record_throttled(file: &str, seconds: u64, cgroup: &Cgroup) {
    let args = ["record", "-o", file, "-i", "0.2", "-d", &seconds.to_string()];
    let recorder = Background::start(cgscope().args(args));
    thread::sleep(Duration::from_millis(seconds * 333));
    let load = Load::busy_loop(Some(cgroup));
    thread::sleep(Duration::from_millis(seconds * 333));
    drop(load);
    let (code, said) = recorder.wait();
    assert_ended(code, &said, OF_THE_HOST);
}

/// Returns the position line: `REPLAY PAUSED  1x  14:03:20 UTC  +200ms of 6.00s   1/30  ...`.
fn position(screen: &str) -> &str {
    screen.lines().find(|line| line.starts_with("REPLAY ")).unwrap_or_else(|| panic!("no replay:\n{screen}"))
}

fn waiting(interval: &Value) -> String {
    let total = &interval["total"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number: {value}"));
    let length = number(&interval["duration_ns"]) as f64;
    let time = |name: &str| total[name].as_u64().map_or("-".into(), duration);
    format!(
        " {:.2} tasks  p50 {}  p99 {}  max {}",
        number(&total["total_ns"]) as f64 / length,
        time("p50_ns"),
        time("p99_ns"),
        time("max_ns"),
    )
}

/// Waits until a replay ends before it has read the whole file. Accepts exit status 0 and 1, because cgscope might not have read
/// the losses yet.
fn wait_for_end(terminal: &Terminal) {
    terminal.wait_until(
        |screen| ["0", "1"].iter().any(|exit| screen.contains(&format!("left with {exit}\n"))),
        "its end",
    );
}

#[test]
fn a_replayed_interval_has_the_figures_of_the_report() {
    let dir = Dir::new("replay-figures");
    let file = dir.file("a.rec");
    let (_load, _out) = Load::workload(&["burn", "4", "30", "pin"], None);
    record(&file, "0.3", "3");
    let intervals = json_lines(&run(&["report", "--json", &file]));
    let terminal = Terminal::new(200, 40);
    terminal.set("tree = false\nprocesses = false\nspan = \"interval\"");
    terminal.cgscope(&format!("replay {file} --paused"));
    let mut seen = 0;
    // Step forward and then backward. The screen must show each interval in the same way in both directions.
    let there = (0..intervals.len()).map(|n| (n, "Right"));
    for (n, key) in there.clone().chain(there.rev().map(|(n, _)| (n, "Left"))) {
        // The header text of several intervals can be the same, so also wait for the number of the interval.
        let (said, number) = (waiting(&intervals[n]), format!(" {}/{} ", n + 1, intervals.len()));
        let screen =
            terminal.wait_until(|screen| screen.contains(&said) && position(screen).contains(&number), &said);
        let selected =
            screen.lines().find_map(|line| line.split_once(", this interval").map(|(left, _)| left));
        let words: Vec<&str> = selected.expect("a selected task").split_whitespace().collect();
        // The line: `workload [thread 1234]  56 waits`
        let [.., tid, count, _waits] = words[..] else { panic!("{words:?}") };
        let tid: u64 = tid.trim_end_matches(']').parse().expect("an id");
        let tasks = intervals[n]["tasks"].as_array().expect("tasks");
        let task = tasks.iter().find(|task| task["tid"] == tid).expect("the selected task");
        assert_eq!(task["wait"]["count"].to_string(), count, "{n}:\n{screen}");
        seen += count.parse::<u64>().expect("a number");
        terminal.press(key);
    }
    assert!(seen > 100, "{seen} waits: the load hardly waited");
}

#[test]
fn truncated_and_unfinished_recordings_are_replayed_and_reported_as_such() {
    let dir = Dir::new("replay-torn");
    let file = dir.file("a.rec");
    record(&file, "0.1", "1");
    let bytes = fs::read(&file).expect("a recording");
    // Cut off the end marker and a part of the last sample.
    fs::write(&file, &bytes[..bytes.len() - 200]).expect("a file of ours");
    let terminal = Terminal::new(160, 30);
    terminal.cgscope(&format!("replay {file} --paused"));
    terminal.wait_for("INCOMPLETE");
    terminal.press("End");
    terminal.wait_for("the end: the recording breaks off");
    terminal.press("q");
    terminal.wait_for("left with 1");
    terminal.assert_given_back();

    let growing = dir.file("b.rec");
    let mut recorder = Recorder::start(&growing);
    terminal.cgscope(&format!("replay {growing} --paused"));
    terminal.wait_for("INCOMPLETE");
    terminal.press("End");
    terminal.wait_for("the end: the recording has no end: cgscope was killed, or is still recording");
    terminal.press("q");
    terminal.wait_for("left with 1");
    recorder.end();
}

struct Recorder(Child);

impl Recorder {
    /// Starts a recorder, and returns when its file has three intervals.
    fn start(file: &str) -> Self {
        let mut command = cgscope();
        let command = command.args(["record", "-o", file, "-i", "0.2"]).stderr(Stdio::null());
        let recorder = Self(command.spawn().expect("cgscope starts"));
        let end = Instant::now() + Duration::from_secs(15);
        while stdout(&run(&["report", "--json", file])).lines().count() < 3 {
            assert!(Instant::now() < end, "the file has no intervals");
            thread::sleep(Duration::from_millis(100));
        }
        recorder
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn files_that_cannot_be_replayed_are_refused_in_one_sentence() {
    let dir = Dir::new("replay-refused");
    let good = dir.file("good.rec");
    record(&good, "0.1", "0.4");
    let without_terminal = run(&["replay", &good]);
    assert_eq!(without_terminal.status.code(), Some(2));
    let words = stderr(&without_terminal);
    assert!(words.contains(&format!("use `cgscope report {good}`")) && words.lines().count() == 1, "{words}");

    let bytes = fs::read(&good).expect("a recording");
    fs::write(dir.file("empty"), []).expect("a file of ours");
    fs::write(dir.file("foreign"), "#!/bin/sh\necho no recording at all\n").expect("a file of ours");
    fs::write(dir.file("head"), &bytes[..20]).expect("a file of ours");
    let mut single = FileWriter::create(dir.file("single"), &Header::default()).expect("a file of ours");
    single.sample(&Sample { mono_ns: 1, ..Sample::default() }).expect("a Sample");
    drop(single);
    let terminal = Terminal::new(160, 30);
    for (args, said) in [
        (dir.file("missing"), "No such file"),
        (dir.file("empty"), "is empty"),
        (dir.file("foreign"), "is not a cgscope recording"),
        (dir.file("head"), "ends within its header"),
        (dir.file("single"), "holds 1 sample, but an interval needs two"),
        (format!("{good} --at 5m"), "this time is not in the recording"),
        (format!("{good} --at soon"), "a time must be a time of day in UTC"),
        (format!("{good} --speed 100"), "a speed must be a number from 0.25 to 64"),
    ] {
        terminal.cgscope(&format!("replay {args}"));
        let screen = terminal.wait_for("left with 2");
        assert!(screen.replace('\n', "").contains(said), "{args}: {said:?} is not on\n{screen}");
    }
    terminal.assert_given_back();
}

#[test]
fn signals_and_resizes_leave_the_terminal_usable() {
    let dir = Dir::new("replay-signals");
    let file = dir.file("a.rec");
    record(&file, "0.1", "1");
    for way in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let terminal = Terminal::new(100, 30);
        terminal.cgscope(&format!("replay {file}"));
        terminal.wait_for("REPLAY ");
        // SAFETY: the process is a running child of our shell.
        assert_eq!(unsafe { libc::kill(terminal.cgscope_pid(), way) }, 0);
        wait_for_end(&terminal);
        terminal.assert_given_back();
    }
    let terminal = Terminal::new(40, 8);
    terminal.cgscope(&format!("replay {file} --paused"));
    terminal.wait_for("enlarge");
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.wait_for("REPLAY PAUSED");
    terminal.press("C-c");
    wait_for_end(&terminal);
    terminal.assert_given_back();
}

#[test]
fn no_color_turns_off_all_colours() {
    let dir = Dir::new("replay-colour");
    let file = dir.file("a.rec");
    record(&file, "0.1", "1");
    let terminal = Terminal::new(100, 30);
    let colours = || {
        terminal.cgscope(&format!("replay {file} --paused"));
        terminal.wait_for("REPLAY PAUSED");
        let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
        terminal.press("q");
        wait_for_end(&terminal);
        // Foreground colours are 30 to 37, and bright foreground colours are 90 to 97. 39 resets the colour.
        let is_colour = |code: &&str| code.starts_with(['3', '9']) && !code.starts_with("39m");
        screen.split("\x1b[").skip(1).filter(is_colour).count()
    };
    assert!(colours() > 3);
    terminal.line("export NO_COLOR=1");
    assert_eq!(colours(), 0);
}

mod long {
    use super::*;

    #[test]
    fn a_replay_takes_as_long_as_the_recording_and_pauses() {
        let dir = Dir::new("replay-plays");
        let file = dir.file("a.rec");
        record(&file, "0.2", "12");
        let terminal = Terminal::new(100, 30);
        terminal.cgscope(&format!("replay {file} --at 2s"));
        // Returns the position in seconds. In this test, a position is between 2 and 12 s and has two or three digits.
        let played = |screen: &str| -> f64 {
            let word = position(screen).split_whitespace().find_map(|word| word.strip_prefix('+'));
            let seconds = word.and_then(|word| word.strip_suffix('s')?.parse().ok());
            seconds.unwrap_or_else(|| panic!("no seconds: {}", position(screen)))
        };
        let from = played(&terminal.wait_for("REPLAY PLAYING 1x"));
        let start = Instant::now();
        thread::sleep(Duration::from_secs(3));
        let to = played(&terminal.screen());
        let passed = start.elapsed().as_secs_f64();
        assert!((to - from - passed).abs() < 1.0, "from {from} s to {to} s in {passed} s");
        terminal.press("Space");
        let paused = played(&terminal.wait_for("REPLAY PAUSED"));
        thread::sleep(Duration::from_millis(700));
        assert_eq!(played(&terminal.screen()), paused);
        (0..6).for_each(|_| terminal.press("]"));
        terminal.press("Space");
        terminal.wait_for("REPLAY END     64x");
        terminal.wait_for("the end: the recording ended because");
        terminal.press("q");
        terminal.wait_for(&left_with(&file));
    }

    #[test]
    fn keys_step_through_a_recording_and_its_findings() {
        let dir = Dir::new("replay");
        let file = dir.file("a.rec");
        let cgroup = Cgroup::new("replay");
        // The quota is small enough to run out even if other load leaves only a small share of a CPU to the cgroup.
        cgroup.limit(10_000, 100_000);
        record_throttled(&file, 6, &cgroup);
        let intervals = json_lines(&run(&["report", "--json", &file]));
        let count = intervals.len();
        let is_throttled = |interval: &Value| {
            let findings = interval["findings"].as_array().expect("findings");
            findings
                .iter()
                .any(|finding| finding["rule"] == "throttled" && finding["cgroup"] == cgroup.name.as_str())
        };
        let throttled = intervals.iter().position(is_throttled).expect("its quota ran out");

        let terminal = Terminal::new(160, 40);
        terminal.set("span = \"interval\"");
        terminal.cgscope(&format!("replay {file} --paused"));
        let at = |n: usize| terminal.wait_for(&format!(" {n}/{count}  "));
        assert!(position(&at(1)).starts_with("REPLAY PAUSED"));
        // Wait until the timeline is complete. To fill the timeline, cgscope reads the whole file once.
        terminal.wait_until(|screen| !position(screen).contains('·'), "the end of the pass");
        terminal.press("Right");
        at(2);
        terminal.press("S-Right");
        at(12);
        terminal.press("Left");
        assert!(at(11).contains(", this interval, "), "{}", terminal.screen());
        terminal.press("Home");
        at(1);
        while !terminal.screen().contains(&format!(" {}/{count}  ", throttled + 1)) {
            let before = position(&terminal.screen()).to_owned();
            terminal.press("n");
            terminal.wait_until(|screen| position(screen) != before, "the next finding");
        }
        let screen = at(throttled + 1);
        assert!(screen.contains("begins here: "), "{screen}");
        terminal.press("End");
        at(count);
        terminal.wait_for("the end: the recording ended because the time asked for was over");
        terminal.line(":1s");
        let ends = intervals.iter().scan(0, |end, interval| {
            *end += interval["duration_ns"].as_u64().expect("a length");
            Some(*end)
        });
        let of_first_second = ends.take_while(|end| *end <= 1_000_000_000).count();
        assert!(position(&at(of_first_second + 1)).starts_with("REPLAY PAUSED"));
        terminal.press("q");
        terminal.wait_for(&left_with(&file));
        terminal.assert_given_back();
    }
}
