//! Tests what the views of limits, culprits, nodes and states show on a screen of the most common size, 80x24.

use std::{sync::Arc, time::Duration};

use cgscope_ledger::{chains::Waker, history::KERNEL};
use cgscope_model::{
    Blame, CgroupReading, CpuInterval, Interval, Mode, NodeReading, PairReading, TaskState, findings::Host,
};
use cgscope_view::{
    app::{About, App},
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};

const SIZES: [(u16, u16); 6] = [(60, 12), (80, 24), (120, 40), (139, 20), (200, 60), (300, 100)];

fn app((width, height): (u16, u16), interval: Arc<Interval>, view: char) -> App {
    let about = About { host: Host { cpus: Some(64), whole: true, kernel: None }, ..About::default() };
    let theme = Theme::new(Colours::None);
    let mut app = App::new(about, Settings::default(), theme, Duration::from_secs(1));
    app.on_resize(width, height);
    app.on_interval(interval);
    press(&mut app, view);
    app
}

fn press(app: &mut App, key: char) {
    app.on_key(crossterm::event::KeyCode::Char(key).into());
}

fn screen(app: &App) -> String {
    snapshot::plain(&snapshot::buffer(app))
}

/// Returns an interval with a cgroup that is throttled by its parent's quota, and waits for a neighbour and for the kernel.
fn held_back() -> Arc<Interval> {
    let limits = |id, quota_us| CgroupReading {
        id,
        quota_us,
        period_us: Some(100_000),
        burst_us: Some(20_000),
        usage_ns: Some(1_900_000_000),
        nr_periods: Some(70),
        nr_throttled: Some(60),
        throttled_ns: Some(3_000_000_000),
        contention_ns: Some(300_000_000),
        throttled_pressure_ns: Some(150_000_000),
        pressure_some_ns: Some(450_000_000),
        pressure_full_ns: Some(30_000_000),
        weight: Some(100),
        ..CgroupReading::default()
    };
    let pair = |culprit, blame, ns| PairReading { victim: 3, culprit, blame, tid: 0, comm: "".into(), ns };
    Arc::new(Interval {
        duration_ns: 1_000_000_000,
        mode: Mode::Bpf,
        cgroups: vec![(1, "/".into()), (2, "/pods".into()), (3, "/pods/web".into()), (4, "/build".into())],
        limits: vec![limits(2, Some(200_000)), limits(3, None), limits(4, None)],
        pairs: vec![
            pair(2, Blame::Limited, 2_500_000_000),
            pair(4, Blame::Ran, 750_000_000),
            pair(KERNEL, Blame::Ran, 250_000_000),
        ],
        ..Interval::default()
    })
}

#[test]
fn the_limiting_cgroup_is_named_with_its_quota_and_its_effect() {
    let mut app = app((80, 24), held_back(), '4');
    let pod = app.rows.iter().position(|row| row.depth == 2).unwrap();
    for _ in 0..pod {
        press(&mut app, 'j');
    }
    let shown = screen(&app);
    for words in [
        "held back: the quota of /pods (2 CPUs) ran out in 85.7% of 70 periods",
        "> /pods",
        "60 of 70, 85.7%",
        "20.0ms",
        "tasks 2.50s by the quota of /pods",
        "some task waited for a CPU 30.0% of the time, only at a limit 15.0%",
        "%cont",
        "%limit",
        "limited by",
    ] {
        assert!(shown.contains(words), "{words:?} is missing:\n{shown}");
    }
}

#[test]
fn the_culprits_of_a_victim_are_named_with_their_times() {
    let shown = screen(&app((80, 24), held_back(), '5'));
    for words in [
        "/pods/web",
        "A build",
        "B kernel",
        "750ms",
        "250ms",
        "waits behind others for 1.00s a second",
        "75% ",
        "kernel threads",
        "quotas also held it back, per second: /pods 2.50s",
    ] {
        assert!(shown.contains(words), "{words:?} is missing:\n{shown}");
    }
    assert!(!shown.contains("  /pods "), "an ancestor of the victim is listed:\n{shown}");
    let coarse = Interval { mode: Mode::Coarse, pairs: Vec::new(), ..(*held_back()).clone() };
    assert!(screen(&app((80, 24), Arc::new(coarse), '5')).contains("coarse: "));
}

/// Returns NUMA nodes with two CPUs each. Each node is busier than the node before.
fn nodes(count: u32) -> Arc<Interval> {
    let cpu = |cpu: u32| {
        let busy_ns = u64::from(100 / count * (1 + cpu / 2)) * 10_000_000;
        CpuInterval {
            cpu,
            node: Some(cpu / 2),
            busy_ns: Some(busy_ns),
            idle_ns: Some(1_000_000_000 - busy_ns),
            ..CpuInterval::default()
        }
    };
    let node = |node| NodeReading { node, memory_bytes: Some(64 << 30), free_bytes: Some(16 << 30) };
    Arc::new(Interval {
        duration_ns: 1_000_000_000,
        cpus: (0..2 * count).map(cpu).collect(),
        nodes: (0..count).map(node).collect(),
        ..Interval::default()
    })
}

#[test]
fn nodes_are_side_by_side_and_hidden_nodes_are_counted() {
    let two = screen(&app((80, 24), nodes(2), '6'));
    let heading = two.lines().find(|line| line.contains("node 0")).unwrap();
    assert!(heading.contains("node 1") && heading.contains("CPU 2-3"), "{two}");
    assert!(two.contains("50%") && two.contains("100%") && two.contains("75%"), "busy and memory:\n{two}");
    let eight = screen(&app((80, 24), nodes(8), '6'));
    for node in 0..8 {
        assert!(eight.lines().any(|line| line.starts_with(&format!("   {node} █"))), "node {node}:\n{eight}");
    }
    let many = screen(&app((80, 24), nodes(40), '6'));
    assert!(many.contains("more nodes: "), "{many}");
    let one = screen(&app((80, 24), nodes(1), '6'));
    assert!(one.contains("one NUMA node") && one.contains("100%"), "{one}");
    let selected = Interval { is_selection: true, ..(*nodes(2)).clone() };
    assert!(screen(&app((80, 24), Arc::new(selected), '6')).contains("busy covers the host"));
}

/// Returns a generated host with 512 CPUs on 8 nodes. The CPUs are numbered as on a machine with two threads for each core.
fn large_host() -> Arc<Interval> {
    let samples = [20, 21].map(|round| cgscope_made_up::host(4_000, 500, round));
    let cpu = |cpu: u32| {
        let busy_ns = u64::from(10 + cpu / 32 % 8 * 10) * 10_000_000;
        CpuInterval {
            cpu,
            node: Some(cpu % 256 / 32),
            busy_ns: Some(busy_ns),
            idle_ns: Some(1_000_000_000 - busy_ns),
            ..CpuInterval::default()
        }
    };
    let node = |node| NodeReading { node, memory_bytes: Some(256 << 30), free_bytes: Some(16 << 30) };
    Arc::new(Interval {
        cpus: (0..512).map(cpu).collect(),
        nodes: (0..8).map(node).collect(),
        ..Interval::between(&samples[0], &samples[1])
    })
}

#[test]
fn a_host_of_512_cpus_fits_every_view() {
    let interval = large_host();
    let mut at_80 = String::new();
    for size in SIZES {
        for view in '1'..='9' {
            let shown = screen(&app(size, interval.clone(), view));
            assert!(
                shown.lines().all(|line| line.chars().count() <= size.0.into()),
                "{size:?} {view}:\n{shown}"
            );
            if size == (80, 24) {
                at_80 += &shown;
            }
        }
    }
    assert!(at_80.contains("45% of 512 CPUs"), "{at_80}");
    for node in 0..8 {
        let busy = format!(" {}%", 10 + 10 * node);
        let is_row = |line: &str| line.starts_with(&format!("   {node} ")) && line.contains(&busy);
        assert!(at_80.lines().any(is_row), "node {node}, {busy} busy:\n{at_80}");
    }
}

#[test]
fn blocked_threads_are_grouped_by_state() {
    let states = [Some(TaskState::DiskSleep), Some(TaskState::Sleeping), None];
    let tasks = states.iter().enumerate().map(|(at, state)| {
        let mut task = cgscope_made_up::small::task(10 * (1 + at as u32), &[]);
        task.totals.on_cpu_ns = 400_000_000;
        task.state = *state;
        task
    });
    let shown = screen(&app((80, 24), cgscope_made_up::small::interval(tasks.collect()), '7'));
    assert!(shown.contains("on CPU 1.20  runnable 0.00  disk sleep 0.60  blocked 1.20"), "{shown}");
    let disk = shown.find("blocked: disk sleep (D)").unwrap();
    let sleeping = shown.find("blocked: sleeping (S)").unwrap();
    assert!(disk < sleeping, "states that count as load come first:\n{shown}");
}

/// Returns the screen of the shop in the Chains view.
fn chains(size: (u16, u16), change: impl FnOnce(&mut Interval)) -> String {
    let mut shop = cgscope_made_up::small::shop();
    change(&mut shop);
    screen(&app(size, Arc::new(shop), '9'))
}

#[test]
fn a_sleeper_has_its_wakers_and_what_they_did() {
    insta::assert_snapshot!("chains_80x24", chains((80, 24), |_| ()));
    insta::assert_snapshot!("chains_160x50", chains((160, 50), |_| ()));
}

#[test]
fn tasks_are_listed_if_the_target_is_a_process() {
    let shown = chains((80, 24), |shop| {
        let task = cgscope_made_up::small::task(20, &[]);
        shop.tasks = cgscope_made_up::small::interval(vec![task]).tasks.clone();
        for row in shop.chains.iter_mut().flatten().filter(|row| row.sleeper == 2) {
            row.sleeper_tid = 20;
            if row.waker == Waker::Task {
                (row.waker_tid, row.comm) = (30, "worker".into());
            }
        }
    });
    for words in ["task-20 [thread 20]", "worker [30] of api", "~  400ms"] {
        assert!(shown.contains(words), "{words:?} is missing:\n{shown}");
    }
    assert!(!shown.lines().any(|line| line.starts_with("/shop.slice/api")), "{shown}");
}

#[test]
fn the_view_of_chains_says_why_it_is_empty() {
    let says = |chains: Option<Vec<_>>, words: &str| {
        let shown = self::chains((80, 24), |shop| shop.chains = chains);
        assert!(shown.contains(words), "{words:?} is missing:\n{shown}");
    };
    says(None, "start with --chains to see for whom tasks sleep");
    says(Some(Vec::new()), "no task slept for another one");
    let coarse = chains((80, 24), |shop| (shop.mode, shop.chains) = (Mode::Coarse, None));
    assert!(coarse.contains("coarse: /proc does not report who woke a task"), "{coarse}");
}

#[test]
fn every_view_fits_every_size_for_a_large_and_an_empty_host() {
    let host = |round| cgscope_made_up::host(400, 80, round);
    let large = Arc::new(Interval::between(&host(0), &host(1)));
    let coarse = Arc::new(Interval { mode: Mode::Coarse, pairs: Vec::new(), ..(*large).clone() });
    let empty = Arc::new(Interval::default());
    let shop = Arc::new(cgscope_made_up::small::shop());
    for size in SIZES {
        for view in ['4', '5', '6', '7', '9'] {
            for interval in [&large, &coarse, &empty, &held_back(), &nodes(9), &shop] {
                let mut app = app(size, interval.clone(), view);
                let first = screen(&app);
                // The user must be able to reach and see the last row, even if lines are above the list or columns next to it.
                app.on_key(crossterm::event::KeyCode::End.into());
                let last = screen(&app);
                let rows = app.rows.len();
                assert!(rows < 2 || app.selected == rows - 1);
                assert!(
                    rows <= usize::from(size.1) || first != last,
                    "view {view} at {size:?} does not scroll:\n{last}"
                );
            }
        }
    }
}
