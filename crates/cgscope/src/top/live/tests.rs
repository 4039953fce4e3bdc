//! Tests of the simulation thread, with generated samples and a screen without a terminal.

use cgscope_made_up::loads::{LOOP, samples};
use cgscope_view::{
    app::{About, App, View},
    keys::KeyPress,
    settings::Settings,
    snapshot,
    theme::Theme,
};

use super::*;

fn press(app: &mut App, key: &str) {
    app.on_key(key.parse::<KeyPress>().expect("a key").into());
}

/// Returns a screen with the interval between the first two samples. The What if view shows the first cgroup with a quota.
fn asking(samples: &[Sample]) -> App {
    let mut app = App::new(About::default(), Settings::default(), Theme::default(), Duration::from_secs(1));
    app.on_resize(120, 40);
    app.on_interval(Arc::new(Interval::between(&samples[0], &samples[1])));
    press(&mut app, "4");
    press(&mut app, "e");
    while app.view != View::WhatIf {
        press(&mut app, "down");
        press(&mut app, "e");
    }
    assert_eq!((app.view, app.notice.as_deref()), (View::WhatIf, None));
    app
}

fn add(enough: &mut Enough, samples: &[Sample]) {
    for pair in samples.windows(2) {
        enough.add(&pair[1], &Arc::new(Interval::between(&pair[0], &pair[1])), 118);
    }
}

#[tokio::test]
async fn an_answer_appears_on_the_screen() {
    let samples = samples(&LOOP);
    let (mut app, mut enough) = (asking(&samples), Enough::start().unwrap());
    enough.follow(&app);
    // The first sample starts a simulation. The next simulation follows the answer.
    add(&mut enough, &samples[..20]);
    let early = enough.answers.recv().await.unwrap();
    enough.show(early, &mut app);
    add(&mut enough, &samples[19..]);
    let answer = enough.answers.recv().await.unwrap();
    assert!(!answer.1.is_short, "{:?}", answer.1);
    enough.show(answer, &mut app);
    let screen = snapshot::plain(&snapshot::buffer(&app));
    assert!(
        screen.contains("What would have been enough for") && screen.contains("counted by the kernel"),
        "{screen}"
    );
    assert!(
        enough.due.is_some_and(|due| due > Instant::now() + Duration::from_secs(2)),
        "the next one is later"
    );
}

#[tokio::test]
async fn an_answer_to_an_earlier_question_is_dropped() {
    let samples = samples(&LOOP);
    let (mut app, mut enough) = (asking(&samples), Enough::start().unwrap());
    enough.follow(&app);
    add(&mut enough, &samples[..4]);
    press(&mut app, "esc");
    enough.follow(&app);
    assert!(enough.watch.is_none(), "what was collected is dropped");
    press(&mut app, "e");
    enough.follow(&app);
    let late = enough.answers.recv().await.unwrap();
    enough.show(late, &mut app);
    let screen = snapshot::plain(&snapshot::buffer(&app));
    assert!(screen.contains("collecting what it needs ..."), "{screen}");
}
