//! Tests whole screens drawn from recordings: each view at three sizes, with colours and without.

use std::{fmt::Write, path::Path, sync::Arc, time::Duration};

use cgscope_model::{Interval, SchedExt, doctor::parse_version, findings::Host};
use cgscope_view::{
    app::{About, App, View},
    keys::KeyPress,
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};
use ratatui::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// Returns the state of the screen after all intervals of a recording.
fn app(file: &str, colours: Colours) -> App {
    app_under(None, file, colours)
}

/// Like [`app`], but the host has this BPF scheduler.
fn app_under(scheduler: Option<&SchedExt>, file: &str, colours: Colours) -> App {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(file);
    let reader = cgscope_record::open(&path).expect("a recording that is committed");
    let header = reader.header.clone();
    let samples: Vec<_> = reader.collect::<Result<_, _>>().expect("a whole recording");
    let cpus = samples.last().map(|sample| sample.cpus.len() as u32);
    let about = About {
        title: "whole host".into(),
        hostname: header.hostname.clone(),
        kernel: header.kernel_release.clone(),
        host: Host {
            cpus,
            whole: header.selection.is_whole_host(),
            kernel: parse_version(&header.kernel_release),
        },
        coarse: (samples[0].mode == cgscope_model::Mode::Coarse).then(|| "BPF is off".into()),
    };
    let delay = Duration::from_nanos(header.interval_ns);
    let mut app = App::new(about, Settings::default(), Theme::new(colours), delay);
    app.on_resize(80, 24);
    for pair in samples.windows(2) {
        let interval = Interval::between(&pair[0], &pair[1]);
        app.on_interval(Arc::new(Interval { sched_ext: scheduler.cloned(), ..interval }));
    }
    app
}

fn press(app: &mut App, key: &str) {
    app.on_key(key.parse::<KeyPress>().expect("a key").into());
}

/// Returns the text, and below it the styles of each line: `line: from-to style`.
fn written(buffer: &Buffer) -> String {
    let mut out = snapshot::plain(buffer);
    out.push('\n');
    let width = usize::from(buffer.area.width);
    for (y, row) in buffer.content.chunks(width).enumerate() {
        let mut said = String::new();
        let mut from = 0;
        for run in row.chunk_by(|a, b| a.style() == b.style()) {
            let to = from + run.len() - 1;
            let style = style(run[0].style());
            if !style.is_empty() {
                let _ = write!(said, "  {from}-{to} {style}");
            }
            from = to + 1;
        }
        if !said.is_empty() {
            let _ = writeln!(out, "{y}:{said}");
        }
    }
    out
}

fn style(style: Style) -> String {
    let mut words = Vec::new();
    match style.fg {
        Some(Color::Indexed(n)) => words.push(n.to_string()),
        Some(Color::Reset) | None => {}
        Some(colour) => words.push(colour.to_string()),
    }
    for (modifier, word) in
        [(Modifier::BOLD, "bold"), (Modifier::REVERSED, "reversed"), (Modifier::UNDERLINED, "underlined")]
    {
        if style.add_modifier.contains(modifier) {
            words.push(word.into());
        }
    }
    words.join("+")
}

/// A text of the What if view. The screen wraps one of its lines.
const ENOUGH: &str = "\
from the last 12.0s, renewed every few seconds
/render: 0.5 CPUs (50.0ms of every 100ms), used 0.5 on average over 12.0s
  counted by the kernel: 120 of 120 periods throttled (100%), for 6.00s summed over CPUs
     CPUs  periods throttled
  now 0.5        98.3%..100%
        1                 0%
  At most 1% of the periods are throttled from 1 CPU on.
  Nearly every period was throttled, so the cgroup may need more. Set this quota, then measure again.
  -> write \"100000 100000\" to cpu.max of /render (v1: cpu.cfs_quota_us)";

fn snapshots(file: &str, view: View, keys: &[&str]) {
    for (colours, mode) in [(Colours::None, "plain"), (Colours::Many, "colour")] {
        let mut app = app(&format!("{file}.rec"), colours);
        press(&mut app, view.command().default_keys()[0]);
        keys.iter().for_each(|key| press(&mut app, key));
        if let Some(path) = app.wanted_enough().cloned() {
            app.on_enough(&path, ENOUGH.lines().map(str::to_owned).collect());
        }
        for (width, height) in SIZES {
            app.on_resize(width, height);
            let buffer = snapshot::buffer(&app);
            let text = if colours == Colours::None { snapshot::plain(&buffer) } else { written(&buffer) };
            insta::assert_snapshot!(format!("{file}_{}_{width}x{height}_{mode}", view.name()), text);
        }
    }
}

/// Defines a test for each view. The recording has something to show in the view, and the keys are pressed first.
macro_rules! views {
    ($($name:ident: $file:literal, $view:ident, [$($key:literal),*];)*) => {
        $(#[test] fn $name() { snapshots($file, View::$view, &[$($key),*]); })*

        #[test]
        fn no_view_is_left_out() {
            for view in View::ALL {
                assert!([$(View::$view),*].contains(&view), "{}", view.name());
            }
        }
    };
}

views! {
    the_overview_says_what_is_wrong: "neighbour", Overview, [];
    the_histogram_is_that_of_the_selected_row: "threads", Histogram, [];
    the_heatmap_has_a_column_for_each_interval: "threads", Heatmap, [];
    the_cgroups_have_their_limits: "threads", Cgroups, [];
    the_culprits_are_beside_their_victims: "neighbour", Culprits, [];
    the_nodes_are_side_by_side: "nodes", Numa, [];
    the_states_are_measured: "neighbour", States, [];
    a_task_is_shown_with_all_known_figures: "neighbour", Task, ["1", "t", "p", "home", "8"];
    the_chains_say_how_they_are_counted: "neighbour", Chains, [];
    a_question_about_a_quota_is_answered_in_text: "quota", WhatIf, [];
    all_findings_are_shown_with_advice: "neighbour", Findings, [];
    the_help_has_keys_and_columns: "neighbour", Help, [];
    a_quota_is_visible_on_the_overview: "quota", Overview, [];
    threads_over_their_quota_are_visible_on_the_overview: "threads", Overview, [];
    a_full_node_beside_an_idle_node_is_visible_on_the_overview: "nodes", Overview, [];
    a_screen_in_coarse_mode_shows_the_mode: "coarse", Overview, [];
}

/// Checks that an 80x24 screen shows what an on-call engineer looks for: the finding, the bar and the culprit.
#[test]
fn the_overview_shows_the_cause_of_each_field_case() {
    let screen = |file| snapshot::plain(&snapshot::buffer(&app(file, Colours::None)));
    let has = |screen: &str, words: &[&str]| {
        for word in words {
            assert!(screen.contains(word), "{word:?} is not on\n{screen}");
        }
    };
    has(
        &screen("quota.rec"),
        &[
            "! render is at its CPU limit of 0.5 CPUs: throttled 526ms/s, for 10s now",
            "→ raise its limit (cpu.max",
            "TTTTTTTTTT",
            "99% 0.5",
            "/render  128 waits",
        ],
    );
    has(
        &screen("threads.rec"),
        &["is at its CPU limit of 1 CPU", "fewer threads", "busy threads on 1 CPU", "TTTTTooooo", "% 1 "],
    );
    has(
        &screen("nodes.rec"),
        &[
            "fills node 0 while node 1 has idle CPUs",
            "→ let its threads use node 1, too",
            "gameserver.service",
        ],
    );
    let mut neighbour = app("neighbour.rec", Colours::None);
    neighbour.on_resize(120, 40);
    has(
        &snapshot::plain(&snapshot::buffer(&neighbour)),
        &["web.service waits behind backup.service", "########"],
    );
}

#[test]
fn three_findings_and_six_rows_fit_the_smallest_usual_screen() {
    let screen = snapshot::plain(&snapshot::buffer(&app("neighbour.rec", Colours::None)));
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines.len() <= 24, "{screen}");
    for mark in ["! ", "  → "] {
        assert_eq!(lines.iter().filter(|line| line.starts_with(mark)).count(), 3, "{screen}");
    }
    let rows = lines.iter().skip_while(|line| !line.starts_with("cgroup ")).skip(1);
    assert_eq!(rows.take_while(|line| !line.contains(" waits, the last ")).count(), 6, "{screen}");
}

#[test]
fn no_escape_sequence_of_a_name_reaches_the_terminal() {
    for view in View::ALL {
        let mut app = app("neighbour.rec", Colours::None);
        press(&mut app, view.command().default_keys()[0]);
        app.on_resize(200, 60);
        let buffer = snapshot::buffer(&app);
        assert!(
            buffer.content.iter().all(|cell| !cell.symbol().contains(char::is_control)),
            "{}",
            view.name()
        );
    }
}

#[test]
fn the_first_line_names_the_bpf_scheduler_and_no_quota_is_blamed() {
    let screen = |scheduler: Option<&str>| {
        let reading = SchedExt { scheduler: scheduler.map(Into::into), takes_all: scheduler.is_some() };
        snapshot::plain(&snapshot::buffer(&app_under(Some(&reading), "quota.rec", Colours::None)))
    };
    let (with, without) = (screen(Some("simple")), screen(None));
    let first = with.lines().next().expect("a line");
    assert!(first.contains("SCHED_EXT simple"), "{first}");
    assert!(!with.contains("CPU limit"), "{with}");
    assert!(!without.contains("SCHED_EXT") && without.contains("CPU limit"), "{without}");
}
