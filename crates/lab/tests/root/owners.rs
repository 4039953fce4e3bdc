//! Owners and permissions of files that root writes. A user with write access to the directory must not gain anything.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
};

use crate::{
    bench::{assert_measured, cgscope, run, stderr},
    files::Dir,
    pty::Pty,
};

const NOBODY: u32 = 65_534;

fn words<'w>(words: &[&'w str], file: &'w str) -> Vec<&'w str> {
    words.iter().map(|word| if *word == "FILE" { file } else { word }).collect()
}

fn owner_and_mode(file: &str) -> (u32, u32) {
    let metadata = fs::metadata(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    (metadata.uid(), metadata.mode() & 0o7777)
}

/// Returns the arguments of each command that writes a file. `seen` is an existing recording.
fn ways(seen: &str) -> [Vec<&str>; 6] {
    [
        vec!["record", "-q", "-o", "FILE", "--", "true"],
        vec!["export", seen, "--format", "csv", "-o", "FILE"],
        vec!["report", seen, "--html", "FILE"],
        vec!["stat", "-o", "FILE", "--", "true"],
        vec!["stat", "0.2", "1", "--offcpu=FILE"],
        vec!["top", "-b", "-d", "0.2", "-n", "1", "--record", "FILE"],
    ]
}

fn write(way: &[&str], file: &str, sudo: bool) {
    let option = format!("--offcpu={file}");
    let mut command = cgscope();
    let args = words(way, file).into_iter();
    command.args(args.map(|word| if word == "--offcpu=FILE" { &option } else { word }));
    if sudo {
        command.env("SUDO_UID", NOBODY.to_string()).env("SUDO_GID", NOBODY.to_string());
    }
    let output = command.output().expect("cgscope starts");
    assert_measured(&output);
}

#[test]
fn an_empty_setuid_file_of_another_user_is_not_filled_with_output_of_root() {
    let dir = Dir::new("planted");
    let seen = dir.file("seen.rec");
    write(&["record", "-q", "-o", "FILE", "--", "true"], &seen, false);
    for (n, way) in ways(&seen).iter().enumerate() {
        let (file, link) = (dir.file(&format!("{n}")), dir.file(&format!("link-{n}")));
        fs::write(&file, "").expect("a file");
        chown(&file, Some(NOBODY), Some(NOBODY)).expect("root");
        fs::set_permissions(&file, Permissions::from_mode(0o4777)).expect("root");
        symlink(&file, &link).expect("a link");
        write(way, &link, false);
        assert_eq!(owner_and_mode(&file), (0, 0o600), "{way:?}");
        assert!(fs::metadata(&file).expect("a file").len() > 0, "{way:?}");
    }
}

#[test]
fn files_belong_to_the_user_of_sudo_where_that_user_could_have_created_them() {
    let (own, roots) = (Dir::new("own"), Dir::new("roots"));
    chown(own.path(), Some(NOBODY), Some(NOBODY)).expect("root");
    let seen = own.file("seen.rec");
    write(&["record", "-q", "-o", "FILE", "--", "true"], &seen, true);
    assert_eq!(owner_and_mode(&seen), (NOBODY, 0o600));
    for (n, way) in ways(&seen).iter().enumerate() {
        for (dir, owner) in [(&own, NOBODY), (&roots, 0)] {
            let file = dir.file(&format!("{n}"));
            write(way, &file, true);
            assert_eq!(owner_and_mode(&file), (owner, 0o600), "{way:?} in {file}");
        }
    }
}

#[test]
fn only_root_can_read_files_of_the_flight_recorder_and_screen_dumps() {
    let dir = Dir::new("for-root");
    let file = dir.file("a.rec");
    let output = run(&[
        "record",
        "-o",
        &file,
        "--interval",
        "0.1",
        "--keep",
        "1s",
        "--trigger",
        "max>1us",
        "--duration",
        "2",
    ]);
    assert_measured(&output);
    let incidents = files(dir.path());
    assert!(!incidents.is_empty(), "{}", stderr(&output));

    let mut screen = Pty::start_beside(&["top", "-d", "0.2"], dir.path());
    screen.wait_for("average");
    screen.press("w");
    screen.wait_for("written");
    screen.press("q");
    let all = files(dir.path());
    assert_eq!(all.len(), incidents.len() + 1, "{all:?}");
    for file in &all {
        assert_eq!(owner_and_mode(file), (0, 0o600), "{file}");
    }
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(|entry| entry.path().display().to_string()).collect()
}

#[test]
fn names_of_files_neither_control_the_terminal_nor_reverse_its_text() {
    let dir = Dir::new("names");
    let (target, link) = (dir.file("a\u{1b}[2J\u{202e}cer.b\u{2028}\u{9b}c"), dir.file("link"));
    fs::write(&target, "something").expect("a file");
    symlink(&target, &link).expect("a link");
    let seen = dir.file("seen.rec");
    write(&["record", "-q", "-o", "FILE", "--", "true"], &seen, false);
    let runs: [&[&str]; 4] = [
        &["report", &target],
        &["export", &seen, "--format", "csv", "-o", &link],
        &["report", &seen, "--html", &link],
        &["record", "-o", &link, "--", "true"],
    ];
    for args in runs {
        let said = stderr(&run(args));
        assert!(said.contains("cer.b"), "{args:?}: {said:?}");
        assert!(!said.contains(['\u{1b}', '\u{202e}', '\u{2028}', '\u{9b}']), "{args:?}: {said:?}");
    }
}
