//! Tests of the commands that README and docs show.

use clap::Parser;

use super::Cli;

#[path = "../../tests/documented/commands.rs"]
mod commands;

#[test]
fn every_command_in_readme_and_docs_is_valid() {
    let commands = commands::all();
    assert!(commands.len() > 80, "{} commands", commands.len());
    for commands::Documented { place, words } in commands {
        let parsed = Cli::try_parse_from([&["cgscope".to_owned()], words.as_slice()].concat());
        if let Err(error) = parsed {
            panic!("{place}: cgscope {}: {error}", words.join(" "));
        }
    }
}

#[test]
fn a_command_ends_before_its_comment_and_the_next_command() {
    let words = |line| commands::words_of(line).unwrap_or_default().join("|");
    assert_eq!(words("sudo cgscope stat -p PID 1     # one"), "stat|-p|1|1");
    assert_eq!(
        words("cgscope record --trigger 'p99>10ms' -o a.rec; ls"),
        "record|--trigger|p99>10ms|-o|a.rec"
    );
    assert_eq!(words("kubectl -n cgscope exec ds/cgscope -- cgscope top"), "top");
    assert_eq!(words("apt install cgscope"), "");
}
