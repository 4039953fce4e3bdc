use clap::{CommandFactory, Parser};

use super::*;

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

#[test]
fn the_definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_help_of_every_command() {
    let mut all = Cli::command().term_width(100);
    all.build();
    let shown = |command: &&mut clap::Command| command.get_name() != "help" && !command.is_hide_set();
    let commands = all.get_subcommands_mut().filter(shown);
    let helps = commands.map(|command| {
        let name = command.get_name().to_owned();
        format!("# {name}\n\n{}", command.render_long_help())
    });
    insta::assert_snapshot!(helps.collect::<Vec<_>>().join("\n\n"));
}

#[test]
fn short_help_fits_a_terminal_of_80_by_24() {
    let mut all = Cli::command().term_width(80);
    all.build();
    for command in all.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        let help = command.render_help().to_string();
        let lines: Vec<&str> = help.trim_end().lines().collect();
        assert!(lines.len() <= 24, "{} has {} lines:\n{help}", command.get_name(), lines.len());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{help}");
    }
}

#[test]
fn the_commands_in_the_documents_are_valid() {
    let text = include_str!("../../../../docs/commands.md");
    let section = text.split("## Use\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let code = section.lines().filter_map(|line| line.strip_prefix("    "));
    let mut seen = 0;
    for line in code {
        let line = line.trim_start_matches("sudo ");
        let words = line.split('#').next().unwrap_or_default().split_whitespace();
        let words = words.map(|word| word.trim_matches('\''));
        let parsed = Cli::try_parse_from(words);
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        seen += 1;
    }
    assert!(seen >= 9, "{seen} commands");
}

#[test]
fn an_unknown_column_is_refused_with_a_list_of_the_columns() {
    let top = Cli::try_parse_from(["cgscope", "top", "--sort", "nonsense"]).expect("valid arguments");
    let Command::Top(top) = top.command else { panic!("another command") };
    for kind in ListKind::ALL.iter().copied() {
        let said = top.sort_of(kind).expect_err("there is no such column").sentence;
        let (_, columns) = said.split_once("its columns are ").unwrap_or_default();
        assert_eq!(columns.is_empty(), kind.columns().is_empty(), "{said}");
        assert!(!columns.is_empty() || said.contains("states has no columns"), "{said}");
    }
}

#[test]
fn durations_take_units_and_plain_seconds() {
    for (text, ms) in
        [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("1", 1_000), ("0.5", 500), ("1h", 3_600_000)]
    {
        assert_eq!(interval(text), Ok(Duration::from_millis(ms)), "{text}");
    }
}

#[test]
fn nonsense_durations_are_refused() {
    for text in ["", "s", "abc", "-1", "0", "1e99", "nan", "inf", "5 s", "5x", "1ms", "25h", "5sm"] {
        assert!(interval(text).is_err(), "{text}");
    }
}

#[test]
fn long_times_can_be_given_in_days() {
    assert_eq!(long_time("2d"), Ok(Duration::from_secs(2 * 86_400)));
    assert_eq!(long_time("90"), Ok(Duration::from_secs(90)));
    for text in ["", "0", "366d", "7w", "1dd", "-1d"] {
        assert!(long_time(text).is_err(), "{text}");
    }
}

fn sample(words: &[&str]) -> Sample {
    let all = ["cgscope", "sample"].iter().chain(words);
    let Command::Sample(sample) = Cli::parse_from(all).command else { panic!() };
    sample
}

#[test]
fn columns_of_samples_are_added_or_replaced() {
    assert_eq!(sample(&[]).columns(), GroupBy::DEFAULT);
    assert_eq!(
        sample(&["-G", "syscall,wchan"]).columns(),
        [GroupBy::Comm, GroupBy::State, GroupBy::Syscall, GroupBy::Wchan]
    );
    assert_eq!(sample(&["-g", "pid", "-G", "state"]).columns(), [GroupBy::Tgid, GroupBy::State]);
}

#[test]
fn nonsense_for_samples_is_refused() {
    for words in [["--hz", "0"], ["--hz", "nan"], ["--hz", "2000"], ["-G", "colour"], ["-d", "0"]] {
        assert!(Cli::try_parse_from(["cgscope", "sample"].iter().chain(&words)).is_err(), "{words:?}");
    }
}

fn parsed(words: &[&str]) -> Result<Target, Error> {
    let command = Select::augment_args(clap::Command::new("cgscope").no_binary_name(true));
    Target::new(&Select::from_arg_matches(&command.get_matches_from(words)).unwrap())
}

#[test]
fn a_bad_regular_expression_is_one_sentence() {
    let error = parsed(&["--comm", "a("]).unwrap_err();
    assert_eq!(error.to_string(), "--comm \"a(\" is not a regular expression: unclosed group");
}

#[test]
fn memory_is_read_only_of_chosen_processes() {
    let refused = parsed(&["--memory"]).unwrap_err().to_string();
    assert!(refused.starts_with("--memory reads only chosen processes"), "{refused}");
    assert!(parsed(&["--memory", "-p", "1"]).unwrap().options.memory);
}
