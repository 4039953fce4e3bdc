//! Tests with half an hour of churn, and tests with failing system calls. Run them with `cargo xtask test --long soak`.

mod failing;

use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use cgscope_serve::protocol::Request;

use crate::{
    background::Background,
    bench::{cgscope, rss_bytes},
    files::Dir,
    load::{Cgroup, Load},
    serve::{ALICE, Daemon, VIEWERS, as_user},
};

const MINUTES: u64 = 30;
/// Warm-up time, after which caches and allocated memory must no longer grow, minutes.
const WARM_MINUTES: u64 = 10;
const EVERY: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
struct Held {
    minute: f64,
    rss_kib: f64,
    descriptors: f64,
    threads: f64,
    bpf_kib: f64,
    page_kib: f64,
}

impl Held {
    fn of(daemon: &mut Daemon, begun: Instant) -> Self {
        let pid = daemon.pid();
        let of_process =
            |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count) as f64;
        let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the daemon runs").flatten();
        let locked = infos.filter_map(|info| {
            let text = fs::read_to_string(info.path()).ok()?;
            text.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse::<u64>().ok())
        });
        let bpf_kib = locked.sum::<u64>() as f64 / 1024.0;
        let page = Command::new("curl").args(["--silent", "--max-time", "10", daemon.metrics()]).output();
        Self {
            minute: begun.elapsed().as_secs_f64() / 60.0,
            rss_kib: rss_bytes(pid) as f64 / 1024.0,
            descriptors: of_process("fd"),
            threads: of_process("task"),
            bpf_kib,
            page_kib: page.expect("curl starts").stdout.len() as f64 / 1024.0,
        }
    }
}

type Figure = fn(&Held) -> f64;

/// Returns how much a figure grows in ten minutes, according to a least-squares line.
fn growth(held: &[Held], figure: Figure) -> f64 {
    let count = held.len() as f64;
    let mean = |of: &dyn Fn(&Held) -> f64| held.iter().map(of).sum::<f64>() / count;
    let (minute, middle) = (mean(&|one| one.minute), mean(&figure));
    let both = mean(&|one| (one.minute - minute) * (figure(one) - middle));
    both / mean(&|one| (one.minute - minute).powi(2)) * 10.0
}

/// Renames a cgroup all the time. Only cgroups of v1 can be renamed.
fn rename(cgroup: &Cgroup, until: Instant) {
    let mut path = cgroup.path.join("renamed");
    fs::create_dir(&path).expect("a cgroup of ours");
    let mut name = 0_u64;
    while Instant::now() < until {
        let next = cgroup.path.join(format!("renamed-{name}-{}", "n".repeat((name % 200) as usize)));
        if fs::rename(&path, &next).is_ok() {
            path = next;
        }
        name += 1;
        thread::sleep(Duration::from_millis(50));
    }
    let _ = fs::remove_dir(path);
}

const NEW_NAMES: &str = "i=0; while :; do i=$((i+1)); echo name-$i > /proc/$$/comm; sleep 0.05; done";

/// Starts a viewer that sends a request but reads no data. The daemon disconnects such a viewer.
fn takes_nothing(daemon: &Daemon) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.socket()).expect("the daemon's socket");
    stream.write_all(&Request::every(100_000_000).line()).expect("a request");
    stream
}

/// Starts one viewer of each kind that reads its data.
fn viewers(daemon: &Daemon, dir: &Dir) -> Vec<Background> {
    let socket = daemon.socket();
    // Run the viewers as a user, because the daemon sets no limits for root.
    let viewer = |args: &[&str]| {
        let mut command = cgscope();
        command.args(args).args(["--connect", &socket]);
        Background::start(as_user(&mut command, ALICE, &[VIEWERS]))
    };
    let minutes = format!("{}m", MINUTES + 1);
    let [rotated, ring, day] = ["rotated.rec", "ring.rec", "day.rec"].map(|name| dir.file(name));
    let keep = [
        &["record", "-o", &rotated, "--rotate-age", "20s", "--keep-files", "3", "-d", &minutes][..],
        &["record", "-o", &ring, "--keep", "1m", "-d", &minutes],
        &["hist", "--json", "1"],
        &["stat", "1"],
        &["top", "-b", "-d", "1"],
        // This viewer has an interval of one day. For this viewer, the daemon must keep the figures of exited tasks and removed
        // cgroups until the interval ends.
        &["record", "-o", &day, "-i", "24h"],
    ];
    keep.into_iter().map(viewer).collect()
}

#[test]
#[ignore = "all CPUs: what the daemon holds under churn"]
fn half_an_hour_of_churn_leaves_no_trace_in_the_daemon() {
    let dir = Dir::new("soak");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("a directory of ours");
    let mut daemon = Daemon::exporting("");
    let cgroup = Cgroup::new("soak");
    let seconds = (MINUTES + 2) * 60;
    let stormed = cgroup.path.join("storm");
    fs::create_dir(&stormed).expect("a cgroup of ours");
    let storm = Load::workload(&["storm", &stormed.display().to_string(), "200", &seconds.to_string()], None);
    let churn = Load::workload(&["churn", &seconds.to_string()], Some(&cgroup));
    let names = Load::start("sh", &["-c", NEW_NAMES], Some(&cgroup));
    let viewers = viewers(&daemon, &dir);
    let begun = Instant::now();
    let end = begun + Duration::from_secs(MINUTES * 60);
    let mut held = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| rename(&cgroup, end));
        let socket = daemon.socket();
        scope.spawn(move || {
            while Instant::now() < end {
                let short = cgscope().args(["hist", "1", "1", "--connect", &socket]).output();
                drop(short.expect("cgscope starts"));
            }
        });
        while Instant::now() < end {
            let silent = takes_nothing(&daemon);
            thread::sleep(EVERY);
            drop(silent);
            held.push(Held::of(&mut daemon, begun));
        }
    });
    drop(viewers);
    drop((storm, churn, names));
    // The storm was killed between making and removing cgroups.
    for left in fs::read_dir(&stormed).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(left.path());
    }
    let _ = fs::remove_dir(&stormed);
    held.iter().step_by(8).for_each(|one| println!("{one:?}"));
    let warm: Vec<Held> = held.into_iter().filter(|one| one.minute >= WARM_MINUTES as f64).collect();
    let figures: [(&str, Figure, f64); 5] = [
        ("RSS, KiB", |one| one.rss_kib, 1_024.0),
        ("descriptors", |one| one.descriptors, 1.0),
        ("threads", |one| one.threads, 1.0),
        ("BPF memory, KiB", |one| one.bpf_kib, 1_024.0),
        ("page, KiB", |one| one.page_kib, 1_024.0),
    ];
    let grown = figures.map(|(what, figure, most)| (what, growth(&warm, figure), most));
    for (what, slope, most) in grown {
        println!("{what}: {slope:+.1} in ten minutes, at most {most}");
    }
    assert!(grown.iter().all(|(_, slope, most)| slope <= most), "{grown:?}");
    let (code, said) = daemon.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
