//! The first screen in the field cases. Within ten seconds, `top` shows the problem, the affected cgroup, and the advice.

use std::time::Instant;

use crate::{
    bench::patience,
    load::{Cgroup, Load},
    numa::nodes,
    terminal::Terminal,
};

/// Screen sizes (columns and rows): a common small size, and a larger one.
pub(crate) const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

/// A recording from a host with two nodes, on which an affinity mask kept the threads on node 0. Tests on hosts with one node
/// replay this recording.
const NODES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../view/tests/files/nodes.rec");

/// Joins the lines of a screen, because a line break can be anywhere in a sentence.
fn words(screen: &str) -> String {
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Starts cgscope on a terminal without colours. Waits for at most ten seconds until the screen shows all texts in `said`.
pub(crate) fn read(size: (u16, u16), args: &str, said: &[&str]) -> (Terminal, String) {
    let terminal = Terminal::new(size.0, size.1);
    terminal.line("export NO_COLOR=1");
    let begun = Instant::now();
    terminal.cgscope(args);
    let has_all = |screen: &str| {
        let words = words(screen);
        said.iter().all(|part| words.contains(part))
    };
    let screen = terminal.wait_until(has_all, &format!("{said:?}"));
    let took = begun.elapsed();
    println!("{}x{}: {said:?} after {took:.1?}", size.0, size.1);
    assert!(took < patience(10_000), "{took:?}");
    (terminal, screen)
}

fn selected(terminal: &Terminal) -> String {
    let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
    // Take the last line in reverse video, because the name of the view, above the list, is also in reverse video.
    let line = screen.lines().rfind(|line| line.contains("\x1b[7m")).unwrap_or_else(|| panic!("{screen}"));
    line.to_owned()
}

fn row<'a>(screen: &'a str, name: &str) -> &'a str {
    let below = screen.lines().skip_while(|line| !line.contains("wait/s")).skip(1);
    let name = name.trim_start_matches('/');
    // The narrow list truncates long names.
    let begins = &name[..name.len().min(15)];
    let mut rows = below.filter(|line| line.trim_start().starts_with(begins));
    rows.next().unwrap_or_else(|| panic!("no row for {name}:\n{screen}"))
}

#[test]
#[ignore = "all CPUs: asserts what the first screen says first, and how soon"]
fn a_busy_loop_under_half_a_cpu_is_reported_as_out_of_quota() {
    let cgroup = Cgroup::new("half");
    cgroup.limit(50_000, 100_000);
    // Give the cgroup a high weight, so that only the quota limits the CPU time of the load.
    cgroup.favour();
    let _load = Load::busy_loop(Some(&cgroup));
    let sentence = format!("{} is at its CPU limit of 0.5 CPUs", &cgroup.name[1..]);
    for size in SIZES {
        let pane = format!("{} ", cgroup.name);
        let said = [&sentence, ": throttled ", &pane, "50.0ms of every 100ms, ran out in "];
        let (terminal, screen) = read(size, "top", &said);
        let row = row(&screen, &cgroup.name);
        assert!(row.contains("TTTTTT"), "its bar shows throttled waits:\n{screen}");
        assert!(row.contains(" 0.5 ") || row.trim_end().ends_with(" 0.5"), "its quota:\n{screen}");
        assert!(selected(&terminal).contains("TTTTTT"), "{}", selected(&terminal));
        assert!(words(&screen).contains("→ "), "the advice:\n{screen}");
    }
}

#[test]
#[ignore = "all CPUs: the threads must have more CPUs than their quota"]
fn threads_that_share_a_quota_of_one_cpu_are_reported_as_too_many() {
    let cgroup = Cgroup::new("enc");
    cgroup.limit(100_000, 100_000);
    cgroup.favour();
    let (_load, _out) = Load::workload(&["burn", "20", "60"], Some(&cgroup));
    let sentence = format!("{} is at its CPU limit of 1 CPU", &cgroup.name[1..]);
    let (_terminal, screen) = read(SIZES[0], "top", &[&sentence, ": throttled "]);
    assert!(row(&screen, &cgroup.name).contains('T'), "{screen}");
    let more = [" has too many threads", "20 busy threads on 1 CPU", "start at most 1 thread"];
    read(SIZES[1], "top", &[&sentence[..]].into_iter().chain(more).collect::<Vec<_>>());
}

#[test]
#[ignore = "all CPUs: asserts what the first screen says first, and how soon"]
fn a_neighbour_that_takes_the_cpu_is_named() {
    let both = Cgroup::new("both");
    let (victim, culprit) = (both.child("victim"), both.child("culprit"));
    // With this weight, a wait lasts for some ten milliseconds. The CPU's history of time slices might not cover longer waits.
    culprit.weigh(10);
    let _waits = Load::loop_on_a_cpu(Some(&victim));
    let _runs = Load::loop_on_a_cpu(Some(&culprit));
    // Select these two cgroups, because otherwise the first finding could be about other load on the host.
    let args = format!("top --cgroup {}", both.name);
    for size in SIZES {
        let behind = format!(": {} ", culprit.name);
        let (terminal, screen) = read(size, &args, &["victim waits behind culprit", "behind in ", &behind]);
        assert!(row(&screen, "victim").contains("###"), "{screen}");
        assert!(selected(&terminal).contains("###"), "{}", selected(&terminal));
    }
}

#[test]
#[ignore = "all CPUs: where there are two nodes, one must be idle"]
fn threads_on_one_node_of_two_are_reported() {
    let nodes = nodes();
    let is_here = nodes.len() > 1;
    let cpus = cgscope_model::placement::cpu_list(&nodes[0].1);
    let load = is_here.then(|| Load::workload(&["bound", &cpus, "8", "60"], None));
    let args = if is_here { "top".into() } else { format!("replay {NODES} --paused --at 5s") };
    for size in SIZES {
        let said = ["fills node 0 while node 1 has idle CPUs", "let its threads use node 1, too"];
        read(size, &args, &said);
    }
    drop(load);
}
