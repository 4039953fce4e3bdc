//! Runs the commands in README and docs that measure, replay or serve. `crates/cgscope/tests/documented.rs` runs all other
//! commands.

#[allow(dead_code, reason = "the parser's test names the document")]
#[path = "../../../cgscope/tests/documented/commands.rs"]
mod commands;

use std::{
    collections::BTreeSet,
    fs,
    io::BufReader,
    path::Path,
    process::{ChildStdout, Stdio},
    sync::Mutex,
    thread,
};

use self::commands::Documented;
use crate::{
    background::Background,
    bench::{cgscope, patience},
    files::Dir,
    load::{Cgroup, Load},
    serve::Daemon,
    terminal::Terminal,
};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../view/tests/files/threads.rec");
/// Time after which the test interrupts a command that does not end by itself.
const MEASURES_MS: u64 = 2_000;

/// A service with a process, a directory, and a daemon. Their names replace the example names in the documents.
struct Place {
    // `load` is declared before its cgroup, because fields are dropped in the order of their declaration.
    load: (Load, BufReader<ChildStdout>),
    service: Cgroup,
    dir: Dir,
    daemon: Daemon,
}

impl Place {
    fn new() -> Self {
        let service = Cgroup::new("web.service");
        let load = Load::workload(&["blink", "1", "300"], Some(&service));
        Self { load, service, dir: Dir::new("documented"), daemon: Daemon::exporting("") }
    }

    /// Returns the words of a documented command, changed so that the command works on this host. Replaces a `CMD` after `--` by
    /// a short command.
    fn adapt(&self, words: &[String]) -> Vec<String> {
        let unit = self.service.name[1..].trim_end_matches(".service");
        let pid = self.load.0.pid().to_string();
        let mut adapted: Vec<String> = Vec::new();
        for word in words {
            let after = adapted.last().map(String::as_str).unwrap_or_default();
            adapted.push(match (after, word.as_str()) {
                ("--pid" | "-p", _) => pid.clone(),
                // There is no pod here. Its name is replaced like the name of a unit.
                (_, "--pod") => "--unit".to_owned(),
                ("--unit", _) => unit.to_owned(),
                ("--connect", _) => self.daemon.socket(),
                // The short recording of this test does not contain the times that the documents use.
                ("--at", _) => "2s".to_owned(),
                ("--", _) => {
                    adapted.extend(["sleep", "0.3"].map(str::to_owned));
                    break;
                }
                (_, path) if path.starts_with("/var/lib/") => {
                    path.rsplit('/').next().unwrap_or_default().to_owned()
                }
                (_, word) => ["/system.slice/db.service", "/system.slice", "/kubepods.slice"]
                    .iter()
                    .fold(word.to_owned(), |word, path| word.replace(path, &self.service.name)),
            });
        }
        if adapted[0] == "serve" {
            adapted.extend(["--config".to_owned(), self.dir.file("serve.toml")]);
        }
        adapted
    }
}

/// Runs a command, and interrupts it if it does not end by itself. Returns a description of the failure; empty if there is none.
fn run(words: &[String], dir: &Path) -> String {
    let mut command = cgscope();
    command.args(words).current_dir(dir).stdout(Stdio::null());
    let process = Background::start(&mut command);
    // If the words contain a `CMD`, the measurement ends with the `CMD`.
    if !words.contains(&"--".to_owned()) {
        thread::sleep(patience(MEASURES_MS));
        process.signal(libc::SIGINT);
    }
    match process.wait() {
        (Some(0), _) => String::new(),
        (code, said) => format!("{code:?}: {said}"),
    }
}

fn run_screen(words: &[String], recording: Option<&str>) {
    let terminal = Terminal::new(100, 30);
    if let Some(name) = recording {
        fs::copy(RECORDING, terminal.home().join(name)).expect("a recording that is committed");
    }
    terminal.cgscope(&words.join(" "));
    terminal.wait_for("q quit");
    terminal.press("q");
    let screen = terminal.wait_for("\nleft with ");
    assert!(screen.contains("left with 0"), "cgscope {}:\n{screen}", words.join(" "));
}

fn documented(begins: &[&str], place: &Place) -> Vec<Vec<String>> {
    let chosen = |Documented { words, .. }: &Documented| {
        words.first().is_some_and(|command| begins.contains(&command.as_str()))
    };
    let all = commands::all().into_iter().filter(chosen).map(|documented| place.adapt(&documented.words));
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

fn is_screen(words: &[String]) -> bool {
    words[0] == "replay" || words[0] == "top" && !words.contains(&"-b".to_owned())
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: starts four cgscope at a time"]
    fn commands_in_readme_and_docs_that_measure_succeed() {
        let place = Place::new();
        let socket = place.dir.file("served.sock");
        let config = format!("[socket]\npath = \"{socket}\"\ngroup = 0\n[http]\nlisten = \"\"\n");
        fs::write(place.dir.file("serve.toml"), config).expect("a file of ours");
        let mut all = documented(&["top", "hist", "stat", "sample", "record", "serve", "doctor"], &place);
        all.retain(|words| !is_screen(words));
        assert!(all.len() > 35, "{} commands", all.len());
        let (left, wrong) = (Mutex::new(all), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // Each command has its own directory, because several commands write a file with the same name.
                    while let Some(words) = { left.lock().unwrap().pop() } {
                        let dir = Dir::new("command");
                        let failure = run(&words, dir.path());
                        if !failure.is_empty() {
                            wrong.lock().unwrap().push(format!("cgscope {}: {failure}", words.join(" ")));
                        }
                    }
                });
            }
        });
        let wrong = wrong.into_inner().unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn screens_in_readme_and_docs_open_and_close() {
        let place = Place::new();
        let all = documented(&["top", "replay"], &place);
        let screens: Vec<_> = all.iter().filter(|words| is_screen(words)).collect();
        assert!(screens.len() > 8, "{} screens", screens.len());
        for words in screens {
            let recording = words.iter().find(|word| word.ends_with(".rec") && words[0] == "replay");
            run_screen(words, recording.map(String::as_str));
        }
    }
}
