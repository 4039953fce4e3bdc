//! `cgscope stat` connected to the daemon. It receives some figures from the daemon, and reads the others from `/proc`.

use super::{ALICE, Daemon, VIEWERS};
use crate::{
    bench::{json_lines, stderr},
    load::Load,
};

#[test]
fn time_on_a_cpu_is_split_into_user_and_system_time() {
    let daemon = Daemon::start();
    let start = |script: &str| {
        let ids = format!("--reuid={ALICE}");
        Load::start("setpriv", &[&ids, "--clear-groups", "sh", "-c", script], None)
    };
    let computes = start("while :; do :; done");
    let copies = start("exec dd if=/dev/zero of=/dev/null bs=1M 2>/dev/null");
    let output = daemon.as_user(ALICE, &[VIEWERS], &["stat", "--json", "1", "3"]);
    let intervals = json_lines(&output);
    assert_eq!(intervals.len(), 3, "{}", stderr(&output));
    for interval in &intervals {
        let share = |load: &Load, of: &str| {
            let tasks = interval["tasks"].as_array().expect("tasks");
            let task = tasks.iter().find(|task| task["tgid"] == load.pid()).expect("the task of the load");
            let [user, system, ran] =
                ["user_ns", "system_ns", "on_cpu_ns"].map(|name| task[name].as_u64().expect("a time"));
            assert!((user + system).abs_diff(ran) <= 1, "{task}");
            task[of].as_u64().expect("a time") as f64 / ran as f64
        };
        assert!(share(&computes, "user_ns") > 0.8, "{}", share(&computes, "user_ns"));
        assert!(share(&copies, "system_ns") > 0.8, "{}", share(&copies, "system_ns"));
    }
}
