//! Answers of `cgscope whatif` for a load that is running, and the same answers on the screen.

use std::{
    process::{Output, Stdio},
    thread,
};

use super::{LOOP, Limit, limited};
use crate::{
    bad_input::assert_one_sentence,
    bench::{cgscope, json_lines, patience, run, stderr},
    load::Cgroup,
    terminal::Terminal,
};

fn least(output: &Output, cgroup: &Cgroup) -> f64 {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let answer = json_lines(output).remove(0);
    assert_eq!(answer["path"], cgroup.name.as_str());
    answer["least"]["cores"].as_f64().unwrap_or_else(|| panic!("no quota in {answer}"))
}

#[test]
#[ignore = "one CPU: the loop waits for nothing but its quota"]
fn a_busy_loop_on_the_running_host_would_use_a_cpu() {
    let cgroup = limited(Limit::of(500));
    let _load = LOOP.start(&cgroup);
    let output = run(&["whatif", "-d", "4", "--cgroup", &cgroup.name, "--json"]);
    assert!(stderr(&output).contains("measuring for 4.00s; Ctrl-C ends early"), "{}", stderr(&output));
    assert!((0.9..=1.1).contains(&least(&output, &cgroup)));
}

#[test]
#[ignore = "one CPU: the loop waits for nothing but its quota"]
fn ctrl_c_ends_a_measurement_early_and_answers() {
    let cgroup = limited(Limit::of(500));
    let _load = LOOP.start(&cgroup);
    let mut command = cgscope();
    command.args(["whatif", "-d", "5m", "--cgroup", &cgroup.name, "--json"]);
    let whatif = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cgscope is executed");
    thread::sleep(patience(7_000));
    // SAFETY: the child has not been reaped.
    assert_eq!(unsafe { libc::kill(whatif.id() as i32, libc::SIGINT) }, 0);
    let output = whatif.wait_with_output().expect("a child of ours");
    assert!((0.9..=1.1).contains(&least(&output, &cgroup)));
}

#[test]
fn a_measurement_without_an_answer_is_refused() {
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/../record/tests/files/version-4.rec");
    let both = run(&["whatif", old, "-d", "5"]);
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
    assert!(stderr(&both).contains("cannot be used with"), "{}", stderr(&both));
    assert_one_sentence(
        &run(&["whatif", "--mode", "coarse", "-d", "1"]),
        &["whatif needs the exact mode", "as requested"],
    );
    let cgroup = limited(Limit::of(500));
    let _load = LOOP.start(&cgroup);
    let short = run(&["whatif", "-d", "1", "--cgroup", &cgroup.name, "--json"]);
    assert_eq!(short.status.code(), Some(1), "{}", stderr(&short));
    assert_eq!(json_lines(&short)[0]["refused"], "short");
    let none = run(&["whatif", "--cgroup", "/no/such"]);
    assert_eq!(none.status.code(), Some(2), "{}", stderr(&none));
    assert!(
        stderr(&none).contains("had no quota of their own when the measurement began"),
        "{}",
        stderr(&none)
    );
}

#[test]
#[ignore = "one CPU: the loop waits for nothing but its quota"]
fn the_screen_answers_for_the_selected_cgroup() {
    let cgroup = limited(Limit::of(500));
    let _load = LOOP.start(&cgroup);
    let terminal = Terminal::new(160, 40);
    let name = cgroup.name.trim_start_matches('/');
    terminal.cgscope(&format!("top -d 0.5 --view cgroups --filter {name}"));
    terminal.wait_for("tasks on average");
    terminal.wait_for(name);
    terminal.press("e");
    let screen = terminal.wait_for("What would have been enough for");
    assert!(screen.contains(name), "{screen}");
    let screen = terminal.wait_for("of the periods are throttled from");
    assert!(screen.contains("from the last "), "{screen}");
    terminal.press("Escape");
    terminal.wait_until(|screen| !screen.contains("What would have been enough"), "the list");
    terminal.press("q");
    terminal.wait_for("left with 0");
    terminal.assert_given_back();
}
