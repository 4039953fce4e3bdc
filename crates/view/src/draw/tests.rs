//! Tests views without a list on screens of all sizes.

use std::{sync::Arc, time::Duration};

use cgscope_made_up::small;
use cgscope_model::{Interval, Mode, Sample};
use ratatui::layout::Rect;

use super::{Pane, heatmap, histogram, task};
use crate::{
    app::{About, App},
    keys::KeyPress,
    settings::Settings,
    theme::{Colours, Theme},
};

const SIZES: [(u16, u16); 7] = [(60, 12), (80, 24), (100, 30), (120, 40), (150, 20), (200, 60), (300, 100)];

fn app(colours: Colours, intervals: &[Arc<Interval>]) -> App {
    let theme = Theme::new(colours);
    let mut app = App::new(About::default(), Settings::default(), theme, Duration::from_secs(1));
    app.on_resize(80, 24);
    intervals.iter().for_each(|interval| app.on_interval(interval.clone()));
    app
}

/// Returns four states: a host with nodes, quotas and long names; no activity; wide characters and long waits; waits without
/// causes.
fn states() -> Vec<Vec<Arc<Interval>>> {
    let host = |round| cgscope_made_up::host(300, 30, round);
    let hosts = (0..3).map(|round| Arc::new(Interval::between(&host(round), &host(round + 1)))).collect();
    let named = |name: &str, waits: &[u64]| {
        let mut reading = small::waiting(small::task(11, waits), u64::MAX / 2);
        reading.comm = name.into();
        small::interval(vec![reading, small::task(12, &[3])])
    };
    let mut coarse = small::after(vec![small::task(4, &[5_000_000]), small::task(5, &[])]);
    coarse.mode = Mode::Coarse;
    coarse.tasks.iter_mut().for_each(|task| Arc::make_mut(task).hist = Arc::default());
    let coarse = Arc::new(Interval::between(&small::before(), &coarse));
    let nothing = Arc::new(Interval::between(&Sample::default(), &Sample::default()));
    vec![
        hosts,
        vec![small::interval(Vec::new()), nothing],
        vec![named("日本語の名前を持つもの", &[1, 70_000, 600_000_000_000])],
        vec![coarse],
    ]
}

#[test]
fn no_line_is_wider_than_the_screen_and_nothing_panics() {
    for state in states() {
        for colours in [Colours::None, Colours::Many] {
            let mut app = app(colours, &state);
            // The keys select a cgroup, its child, a process and a thread, and change the unit between us and ms.
            for key in ["1", "down", "down", "down", "t", "p", "down", "u", "h", "h"] {
                app.on_key(key.parse::<KeyPress>().unwrap().into());
                for (width, height) in SIZES {
                    let area = Rect::new(0, 0, width, height - 6);
                    let all = [histogram::lines, heatmap::lines, task::lines]
                        .map(|view| Pane::draw(&app, area, view));
                    assert!(all[..2].iter().all(|lines| lines.len() <= area.height.into()), "{key} {area}");
                    for line in all.iter().flatten() {
                        assert!(line.width() <= width.into(), "{key} {area}: {} {line}", line.width());
                    }
                }
            }
        }
    }
}
