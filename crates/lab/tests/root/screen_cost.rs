//! The cost of the screen: drawing a frame, deriving an interval, and `top` as a whole.

use std::{
    fs,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_made_up::host;
use cgscope_model::Interval;
use cgscope_view::{
    app::{About, App, View},
    keys::KeyPress,
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};

use crate::{
    bench::{median, rss_bytes, slowness},
    hour::cpu_time_of,
    load::Load,
    pty::Pty,
};

/// Number of tasks and number of cgroups on the largest host for which the screen is designed.
const TASKS: u32 = 10_000;
const CGROUPS: u32 = 2_000;
/// Maximum CPU time for drawing a frame, and maximum CPU time for computing an interval with all derived figures.
const FRAME: Duration = Duration::from_millis(8);
const INTERVAL: Duration = Duration::from_millis(20);
/// CPU time of `Interval::between` on a machine that just meets the limit [`INTERVAL`]: about a quarter of this limit.
const DIFFERENCE: Duration = Duration::from_micros(4_800);
/// Maximum CPU use of `top`, percent of a core, and maximum resident memory of `top`, bytes.
const CPU_PERCENT: f64 = 3.0;
const RSS_BYTES: u64 = 50 << 20;

fn app(width: u16, height: u16) -> App {
    let theme = Theme::new(Colours::Many);
    let mut app = App::new(About::default(), Settings::default(), theme, Duration::from_secs(1));
    app.on_resize(width, height);
    app
}

fn press(app: &mut App, key: &str) {
    let key: KeyPress = key.parse().expect("a key");
    app.on_key(key.into());
}

fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a live process");
    let after_name = stat.rsplit_once(") ").expect("its name").1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    // Add fields 14 (`utime`) and 15 (`stime`) of proc_pid_stat(5). The first element of `fields` is field 3.
    [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("a number")).sum()
}

/// Returns the CPU use of `top` during `time`, percent of a core. Reads the output of `top` during this time, as a terminal does.
fn cpu_percent(pty: &mut Pty, time: Duration) -> f64 {
    let (begun, before) = (Instant::now(), ticks(pty.pid()));
    while begun.elapsed() < time {
        pty.take(Duration::from_millis(100));
    }
    let used = ticks(pty.pid()) - before;
    // SAFETY: the call takes no pointers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    100.0 * used as f64 / per_second / begun.elapsed().as_secs_f64()
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: asserts CPU time for each task of the host"]
    fn top_over_five_thousand_threads_costs_at_most_3_percent_of_a_core_and_50_mib() {
        let (_load, _out) = Load::workload(&["sleep", "5000", "120"], None);
        let mut pty = Pty::start_in(&["top", "-d", "1"], [120, 40], true, &[]);
        pty.wait_for("average");
        // Wait until `top` has done the work that it does only once.
        cpu_percent(&mut pty, Duration::from_secs(3));
        let percent = cpu_percent(&mut pty, Duration::from_secs(10));
        println!("{percent:.2} % of a core, {:.1} MiB", rss_bytes(pty.pid()) as f64 / f64::from(1 << 20));
        assert!(percent <= CPU_PERCENT, "{percent:.2} % of a core");
        assert!(rss_bytes(pty.pid()) <= RSS_BYTES, "{} bytes", rss_bytes(pty.pid()));
        pty.press("q");
        pty.assert_ends();
    }

    #[test]
    #[ignore = "one CPU: asserts CPU time of tests that are optimised like the binary"]
    fn a_frame_of_ten_thousand_tasks_takes_less_than_8_ms_in_every_view() {
        let (earlier, later) = (host(TASKS, CGROUPS, 20), host(TASKS, CGROUPS, 21));
        let interval = Arc::new(Interval::between(&earlier, &later));
        let (mut slow, most) = (Vec::new(), FRAME.mul_f64(slowness()));
        for (width, height) in [(80, 24), (200, 60)] {
            let mut app = app(width, height);
            // Add a minute of history, so that the frames show history.
            (0..60).for_each(|_| app.on_interval(interval.clone()));
            for list in ["tree", "threads"] {
                if list == "threads" {
                    press(&mut app, "1");
                    press(&mut app, "t");
                    press(&mut app, "p");
                }
                for view in View::ALL {
                    let key = app.settings.keymap.first(view.command()).expect("each view has a key");
                    press(&mut app, &key);
                    let frame =
                        median((0..21).map(|_| cpu_time_of(|| drop(black_box(snapshot::buffer(&app))))));
                    println!("{width}x{height} {list:7} {:10} {frame:.2?}", view.name());
                    if frame >= most {
                        slow.push(format!("{width}x{height} {list} {}: {frame:.2?}", view.name()));
                    }
                    if view == View::Help {
                        press(&mut app, &key);
                    }
                }
            }
        }
        assert!(slow.is_empty(), "{slow:#?}");
    }

    #[test]
    #[ignore = "one CPU: asserts CPU time of tests that are optimised like the binary"]
    fn an_interval_of_ten_thousand_tasks_takes_less_than_20_ms() {
        let (earlier, later) = (host(TASKS, CGROUPS, 20), host(TASKS, CGROUPS, 21));
        let mut slow = Vec::new();
        for list in ["tree", "threads"] {
            let mut app = app(200, 60);
            app.on_interval(Arc::new(Interval::between(&earlier, &later)));
            if list == "threads" {
                press(&mut app, "t");
                press(&mut app, "p");
            }
            // Scale the limit with the time of `Interval::between`, because both times are longer on a slow machine.
            let (between, whole): (Vec<_>, Vec<_>) = (0..41)
                .map(|_| {
                    let between = cpu_time_of(|| drop(black_box(Interval::between(&earlier, &later))));
                    let interval = || app.on_interval(Arc::new(Interval::between(&earlier, &later)));
                    (between, cpu_time_of(interval))
                })
                .unzip();
            let (between, whole) = (median(between), median(whole));
            let most = INTERVAL.max(INTERVAL.mul_f64(between.as_secs_f64() / DIFFERENCE.as_secs_f64()));
            println!(
                "{list}: {whole:.2?} for an interval (at most {most:.2?}), {between:.2?} of it for the difference"
            );
            if whole >= most {
                slow.push(format!("{list}: {whole:.2?}"));
            }
        }
        assert!(slow.is_empty(), "{slow:#?}");
    }
}
