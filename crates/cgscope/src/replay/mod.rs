//! `cgscope replay`: the screen of `top` over a recording.

mod pass;
mod playback;
mod reader;
mod source;

use std::time::{Duration, Instant};

use cgscope_model::units;
use cgscope_view::{
    app::{About, App},
    replay::{player::Player, state::Replay, time::Moment},
    settings::Settings,
};

use crate::{
    cli,
    exit::{Error, Exit, Result},
    recording::{Recording, subject},
    replay::{playback::Playback, source::Intervals},
    settings::Store,
    terminal::Screen,
    top::screen::{self, show},
};

pub async fn run(options: &cli::Replay) -> Result {
    let recording = Recording::open(&options.file)?;
    let instead = format!("cgscope report {}", recording.file);
    Screen::check(&instead)?;
    let intervals = Intervals::open(&options.file)?;
    let player = player(options, &recording, intervals.moments())?;
    let (remembered, settings) = Store::open();
    let mouse = settings.mouse;
    let mut app = app(&recording, player, settings);
    app.notice = remembered.notice();
    let mut playback = Playback::start(recording, intervals)?;
    let mut screen = Screen::take(&instead, mouse)?;
    let shown = show(&mut screen, &mut app, &mut playback).await;
    // Only lines that are printed after this stay visible.
    drop(screen);
    remembered.close(&app.settings);
    shown?;
    // Nothing is known to be missing if the pass was not over.
    Ok(playback.recording().map_or(Exit::Done, Recording::finish))
}

fn player(options: &cli::Replay, recording: &Recording, moments: Vec<Moment>) -> Result<Player> {
    if moments.len() < 2 {
        let count = units::count(moments.len() as u64, "Sample");
        return Err(Error::could_not_run(format!(
            "{} holds {count}, and an interval lies between two, so there is nothing to replay; if it is still being \
             recorded, wait for the next Sample",
            recording.file
        )));
    }
    let at = options.at.map_or(Ok(0), |when| when.find(&moments));
    let at = at.map_err(|why| Error::could_not_run(format!("--at: {}: {why}", recording.file)))?;
    let mut player = Player::new(moments, Instant::now());
    player.jump(at);
    player.set_speed(options.speed);
    if !options.paused && !player.is_at_end() {
        player.play();
    }
    Ok(player)
}

fn app(recording: &Recording, player: Player, settings: Settings) -> App {
    let header = recording.header();
    let about = About {
        title: format!("{}: {}", recording.file, subject(header)),
        hostname: header.hostname.clone(),
        kernel: header.kernel_release.clone(),
        host: recording.host,
        coarse: None,
    };
    let theme = screen::theme(&settings);
    let mut app = App::new(about, settings, theme, Duration::from_nanos(header.interval_ns));
    app.replay = Some(Replay::new(player, Instant::now()));
    app
}
