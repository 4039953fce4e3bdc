//! Tests of `top --record`: cgscope also records everything on the screen, and the screen shows as much as without a recording.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use cgscope_record::Reason;

use crate::{
    bench::{OF_THE_HOST, assert_ended, cgscope, json_lines, patience, run, stderr, stdout},
    files::Dir,
    load::Load,
    recording::{read, reason},
    terminal::Terminal,
};

#[test]
fn a_file_that_cannot_be_written_is_refused_before_a_command_runs() {
    let full = Dir::small("top-no-room", 16);
    assert!(fs::write(full.path().join("fill"), [0; 1 << 20]).is_err(), "the disk is full");
    let dir = Dir::new("top-never");
    let started = dir.file("started");
    for (file, said) in [
        (full.file("a.rec"), "the disk is full"),
        (dir.file("no/a.rec"), "cannot be written"),
        (dir.path().display().to_string(), "cannot be written"),
    ] {
        let output = run(&["top", "-b", "-n", "1", "--record", &file, "--", "touch", &started]);
        assert_eq!(output.status.code(), Some(2), "{file}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{file}: {}", stderr(&output));
        assert_eq!(stdout(&output), "");
        assert!(!Path::new(&started).exists(), "{file}: the command ran");
    }
    assert!(!full.path().join("a.rec").exists(), "no file remains");
}

#[test]
fn an_existing_file_is_kept_and_the_end_of_the_command_ends_the_recording() {
    let dir = Dir::new("top-old");
    let file = dir.file("a.rec");
    fs::write(&file, "yesterday").expect("a file of ours");
    let output = run(&["top", "-b", "-d", "0.2", "--record", &file, "--", "sh", "-c", "sleep 1; exit 3"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("it is kept as") && said.contains(&format!("`cgscope replay {file}`")), "{said}");
    assert_eq!(fs::read_to_string(dir.file("a.rec.old")).expect("the older file"), "yesterday");
    assert_eq!(reason(&read(Path::new(&file)).1), Some(&Reason::CommandExited(3)));
}

#[test]
fn a_full_disk_ends_the_recording_but_not_the_output() {
    let dir = Dir::small("top-full", 16);
    let file = dir.file("a.rec");
    let load = Load::busy_loop(None);
    // Record only one task, of which about 80 samples fit on this disk, whatever other load the host has.
    let pid = load.pid().to_string();
    let output = run(&["top", "-b", "--json", "-d", "20ms", "-n", "300", "-p", &pid, "--record", &file]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("the disk is full").count(), 1, "one message about the full disk: {said}");
    assert!(said.contains("from now on nothing is recorded"), "{said}");
    let shown = json_lines(&output);
    assert_eq!(shown.len(), 300, "{said}");
    let (samples, ending) = read(Path::new(&file));
    assert_eq!(reason(&ending), Some(&Reason::DiskFull), "{ending}");
    assert!((2..300).contains(&samples.len()), "{} Samples", samples.len());
    let kept = json_lines(&run(&["report", "--json", &file]));
    assert_eq!(kept.len(), samples.len() - 1);
    assert!(kept == shown[..kept.len()], "the intervals that were shown before the disk was full");
}

#[test]
fn an_interrupted_interval_is_neither_printed_nor_recorded() {
    let dir = Dir::new("top-int");
    let file = dir.file("a.rec");
    let mut child = cgscope()
        .args(["top", "-b", "--json", "-d", "2", "--record", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("cgscope starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is ours")).lines();
    let first = lines.next().expect("an interval").expect("text");
    // Send the signal in the first tenth of the next interval. SAFETY: the child is ours and has not been reaped.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let shown: Vec<String> = std::iter::once(first).chain(lines.map_while(Result::ok)).collect();
    assert_ended(child.wait().expect("a child of ours").code(), &shown.join("\n"), OF_THE_HOST);
    let report = run(&["report", "--json", &file]);
    assert_eq!(stdout(&report).lines().collect::<Vec<_>>(), shown);
    assert_eq!(reason(&read(Path::new(&file)).1), Some(&Reason::Interrupted));
}

#[test]
fn the_recording_is_closed_when_the_output_pipe_closes() {
    let dir = Dir::new("top-pipe");
    let file = dir.file("a.rec");
    let top = cgscope().get_program().display().to_string();
    let line = format!("{top} top -b --json -d 0.2 --record {file} | head -n 2");
    let output = std::process::Command::new("sh").args(["-c", &line]).output().expect("sh runs");
    assert_eq!(json_lines(&output).len(), 2);
    let (samples, ending) = read(Path::new(&file));
    assert_eq!(reason(&ending), Some(&Reason::Interrupted), "{ending}");
    assert!(samples.len() >= 3, "{} Samples", samples.len());
}

#[test]
fn the_screen_shows_that_it_records_and_prints_the_file_name_at_exit() {
    let dir = Dir::new("top-screen");
    let file = dir.file("a.rec");
    fs::write(&file, "yesterday").expect("a file of ours");
    let terminal = Terminal::new(160, 40);
    terminal.cgscope(&format!("top -d 0.3 --record {file}"));
    let screen = terminal.wait_for("tasks on average");
    assert!(screen.lines().next().is_some_and(|line| line.contains("cgscope top  recording ")), "{screen}");
    std::thread::sleep(patience(1_000));
    terminal.press("q");
    let screen = terminal.wait_for("left with 0");
    // After cgscope has ended, the messages from before the first frame are visible again.
    for said in ["it is kept as", "samples, ", "`cgscope replay "] {
        assert!(screen.contains(said), "{said:?}: {screen}");
    }
    terminal.assert_given_back();
    let (samples, ending) = read(Path::new(&file));
    assert_eq!(reason(&ending), Some(&Reason::Interrupted));
    assert!(samples.len() >= 4, "{} Samples", samples.len());
}

#[test]
fn the_screen_closes_the_recording_of_a_target_that_has_exited() {
    let dir = Dir::new("top-gone");
    let file = dir.file("a.rec");
    let (mut load, _out) = Load::workload(&["burn", "2", "60"], None);
    let terminal = Terminal::new(120, 30);
    terminal.cgscope(&format!("top -d 0.3 --record {file} --pid {}", load.pid()));
    terminal.wait_for("tasks on average");
    load.kill();
    terminal.wait_for("the target has exited");
    // The recording must be complete even while the screen still shows the last figures.
    assert_eq!(reason(&read(Path::new(&file)).1), Some(&Reason::TargetExited));
    terminal.press("q");
    terminal.wait_for("left with 1");
}

#[test]
fn the_screen_continues_on_a_full_disk_and_says_so() {
    let dir = Dir::small("top-screen-full", 48);
    let file = dir.file("a.rec");
    let terminal = Terminal::new(160, 40);
    terminal.cgscope(&format!("top -d 20ms --record {file}"));
    terminal.wait_for("NO LONGER RECORDED: the disk was full");
    let busy = |screen: &str| screen.lines().find(|line| line.starts_with("wait ")).map(str::to_owned);
    let before = busy(&terminal.screen());
    terminal.wait_until(|screen| busy(screen).is_some_and(|now| Some(now) != before), "another interval");
    terminal.press("q");
    let screen = terminal.wait_for("left with 1");
    assert!(screen.contains("the disk is full"), "{screen}");
    assert_eq!(reason(&read(Path::new(&file)).1), Some(&Reason::DiskFull));
}
