//! Runs the commands of the section "Try it on a systemd host" in `docs/how-to/install.md` exactly as written. The first command
//! installs the package that `cargo xtask dist` has built.

use std::process::Command;

use super::{done, finding};
use crate::{
    runtimes::{COMMANDS, measure},
    terminal::Terminal,
};

const DOCUMENT: &str = include_str!("../../../../../docs/how-to/install.md");
const HEADING: &str = "## Try it on a systemd host\n";
const PLACE: &str = "/lab";

/// Stops all units that the commands have started. Does not remove the package, because it contains the command under test.
struct Started;

impl Drop for Started {
    fn drop(&mut self) {
        let units = ["web.service", "cgscope.service", "cgscope.socket"];
        let _ = Command::new("systemctl").args(["disable", "--now"]).args(units).output();
    }
}

fn commands() -> Vec<&'static str> {
    let (_, section) = DOCUMENT.split_once(HEADING).expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(|line| line.split("  #").next().unwrap_or_default().trim()).collect()
}

/// Runs a command that shows a screen, and waits until all these words are on the screen.
fn run_screen(command: &str, words: &str) {
    let terminal = Terminal::new(120, 40);
    terminal.line(&format!("{command}; echo left with $?"));
    terminal.wait_for(words);
    terminal.press("q");
    terminal.wait_for("\nleft with 0");
}

#[test]
fn the_commands_of_the_guide_succeed_one_after_the_other() {
    let _started = Started;
    let commands = commands();
    assert!(commands.len() > 7, "{commands:?}");
    for command in commands {
        if command.starts_with("sudo cgscope top") {
            run_screen(command, "web.service is at its CPU limit of 0.2 CPUs");
            continue;
        }
        if command.contains("set-property") {
            let interval = measure(COMMANDS[0]);
            let advice = &finding(&interval, "/system.slice/web.service")["advice"];
            let advised = command.trim_start_matches("sudo ");
            assert!(advice.as_str().is_some_and(|advice| advice.contains(advised)), "{advised}: {advice}");
        }
        let said = done(&["sh", "-c", &format!("cd {PLACE} && {command}")]);
        match command.split_whitespace().nth(1) {
            Some("report") => assert!(said.contains("web.service is at its CPU limit of 0.4 CPUs"), "{said}"),
            Some("systemctl") if command.contains("enable") => {
                done(&["systemctl", "is-active", "cgscope.service"]);
            }
            _ => {}
        }
    }
}
