//! The exact bytes that a terminal receives. These bytes set only colours of the terminal, and contain no control sequences from
//! names.

use std::{fs, os::unix::fs::symlink, path::Path};

use crate::{
    bench::patience,
    files::Dir,
    load::{Cgroup, Load},
    pty::{Pty, contains},
};

/// Returns the palette numbers of all colours that escape sequences set. Such a sequence is `CSI ... m` with 30 to 37, 90 to 97
/// or 38;5;n for text, and with 40 to 47, 100 to 107 or 48;5;n for backgrounds.
fn colours(bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(bytes);
    let sequences = text.split("\x1b[").skip(1).filter_map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
        rest[end..].starts_with('m').then(|| &rest[..end])
    });
    let mut colours = Vec::new();
    for sequence in sequences {
        let codes: Vec<u16> = sequence.split(';').filter_map(|code| code.parse().ok()).collect();
        let mut at = 0;
        while let Some(code) = codes.get(at) {
            at += 1;
            match code {
                30..=37 | 40..=47 => colours.push(code % 10),
                90..=97 | 100..=107 => colours.push(8 + code % 10),
                38 | 48 if codes.get(at) == Some(&5) => {
                    colours.extend(codes.get(at + 1));
                    at += 2;
                }
                // cgscope must not set 24-bit colours. Return a number outside of all palettes, so that the test fails.
                38 | 48 => colours.push(u16::MAX),
                _ => {}
            }
        }
    }
    colours
}

/// Runs `top` through some views. Returns the bytes that `top` writes.
fn written(variables: &[(&str, &str)]) -> Vec<u8> {
    let mut pty = Pty::start_in(&["top", "-d", "0.2"], [120, 40], true, variables);
    pty.wait_for("average");
    // Do not wait for a word of the new view. If the word is already on the screen, `top` does not write it again.
    for key in ["2", "3", "4", "1"] {
        pty.answer(key);
    }
    pty.press("q");
    pty.assert_ends();
    std::mem::take(&mut pty.seen)
}

#[test]
fn top_uses_only_colours_of_the_terminal() {
    let cgroup = Cgroup::new("colours");
    cgroup.limit(50_000, 100_000);
    let _load = Load::busy_loop(Some(&cgroup));
    let none = colours(&written(&[("NO_COLOR", "1")]));
    assert_eq!(none, [0; 0], "NO_COLOR");
    let sixteen = colours(&written(&[("TERM", "linux")]));
    assert!(sixteen.len() > 20 && sixteen.iter().all(|colour| *colour < 16), "{sixteen:?}");
    let many = colours(&written(&[("TERM", "xterm-256color")]));
    assert!(many.len() > 20 && many.iter().all(|colour| (16..256).contains(colour)), "{many:?}");
}

/// Starts threads named `comm` in `cgroup`. The kernel takes the name from the executed file.
fn named(comm: &str, dir: &Dir, cgroup: &Cgroup) -> Load {
    let path = dir.path().join(comm);
    symlink(env!("CARGO_BIN_EXE_workload"), &path).expect("a link of ours");
    let load = Load::start(path.to_str().expect("UTF-8"), &["burn", "2", "60"], Some(cgroup));
    let end = std::time::Instant::now() + patience(5_000);
    let is_named =
        || fs::read(format!("/proc/{}/comm", load.pid())).is_ok_and(|name| contains(&name, b"red"));
    while !is_named() {
        assert!(std::time::Instant::now() < end, "the process has another name");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    load
}

#[test]
fn control_sequences_in_names_do_not_reach_the_terminal() {
    let dir = Dir::new("names");
    let cgroup = Cgroup::new("\x1b[41mblue\x07\u{9b}5m");
    assert!(Path::new(&cgroup.path).exists());
    let load = named("\x1b[31mred\x1b]0;t\x07", &dir, &cgroup);
    // Turn off the colours of cgscope, because the test cannot distinguish them from colours in the name.
    let variables = [("NO_COLOR", "1")];
    let mut pty = Pty::start_in(&["top", "-d", "0.2"], [160, 50], true, &variables);
    pty.wait_for("blue");
    for key in ["4", "5", "1", "8", "1", "t"] {
        pty.press(key);
        pty.take(patience(400));
    }
    pty.press("/");
    pty.press(&load.pid().to_string());
    pty.press("\r");
    pty.wait_for("red");
    for key in ["c", "p", "7", "8"] {
        pty.press(key);
        pty.take(patience(400));
    }
    pty.press("q");
    pty.assert_ends();
    for sequence in ["\x1b[31m", "\x1b[41m", "\x1b]0;", "\x07", "\u{9b}"] {
        assert!(
            !contains(&pty.seen, sequence.as_bytes()),
            "the terminal received {sequence:?}: {}",
            pty.text()
        );
    }
    assert!(
        contains(&pty.seen, b"blue") && contains(&pty.seen, b"red"),
        "the other characters of the names are shown"
    );
}
