//! Benchmarks the screen of a large host: `cargo bench -p cgscope-benches --bench screen`.

use std::{hint::black_box, sync::Arc, time::Duration};

use cgscope_made_up::host;
use cgscope_model::Interval;
use cgscope_view::{
    app::{About, App, View},
    draw::draw,
    keys::{Command, KeyPress},
    settings::Settings,
    theme::{Colours, Theme},
};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use ratatui::{Terminal, backend::TestBackend};

const TASKS: u32 = 10_000;
const CGROUPS: u32 = 2_000;

/// Returns the state of the screen after this number of intervals.
fn app(intervals: u64, size: (u16, u16)) -> App {
    let mut app =
        App::new(About::default(), Settings::default(), Theme::new(Colours::Many), Duration::from_secs(1));
    app.on_resize(size.0, size.1);
    for round in 0..intervals {
        app.on_interval(Arc::new(Interval::between(
            &host(TASKS, CGROUPS, round),
            &host(TASKS, CGROUPS, round + 1),
        )));
    }
    app
}

fn press(app: &mut App, command: Command) {
    let key: KeyPress = command.default_keys()[0].parse().expect("a default key");
    app.on_key(key.into());
}

fn frames(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame of 10,000 tasks in 2,000 cgroups");
    for size in [(80, 24), (200, 60)] {
        let mut app = app(20, size);
        for view in View::ALL {
            press(&mut app, view.command());
            let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a terminal in memory");
            group.bench_function(format!("{} {}x{}", view.name(), size.0, size.1), |b| {
                b.iter(|| {
                    // Redraw every cell, as if the whole screen had changed.
                    terminal.clear().expect("cannot fail");
                    terminal.draw(|frame| draw(frame, black_box(&app))).expect("cannot fail").count
                });
            });
        }
    }
}

fn state(c: &mut Criterion) {
    let mut group = c.benchmark_group("state of 10,000 tasks in 2,000 cgroups");
    let (before, after) = (host(TASKS, CGROUPS, 20), host(TASKS, CGROUPS, 21));
    for (name, keys) in [("tree", &[][..]), ("threads", &[Command::Tree, Command::Processes][..])] {
        let mut app = app(20, (200, 60));
        keys.iter().for_each(|command| press(&mut app, *command));
        group.bench_function(format!("an Interval from two Samples to the {name}"), |b| {
            b.iter(|| app.on_interval(Arc::new(Interval::between(black_box(&before), black_box(&after)))));
        });
        for command in [Command::Down, Command::Reverse, Command::Last] {
            group.bench_function(format!("key: {} in the {name}", command.name()), |b| {
                b.iter_batched(|| (), |()| press(&mut app, command), BatchSize::SmallInput);
            });
        }
    }
}

criterion_group!(benches, frames, state);
criterion_main!(benches);
