//! `cgscope replay`: the screen of `top` over a recording.

pub mod draw;
mod pass;
mod playback;
pub mod player;
mod source;
pub mod state;
#[cfg(test)]
mod tests;
mod time;

use std::time::{Duration, Instant};

use cgscope_model::units;

pub use time::{When, speed};

use crate::{
    cli,
    exit::{Error, Exit, Result},
    recording::{Recording, subject},
    replay::{
        playback::Playback,
        player::Player,
        source::{Indexed, Source},
        state::Replay,
    },
    terminal::Screen,
    top::{screen::show, state::App},
};

/// Runs the command.
pub async fn run(options: &cli::Replay) -> Result {
    let recording = Recording::open(&options.file)?;
    let instead = format!("cgscope report {}", recording.file);
    Screen::check(&instead)?;
    let source = Indexed::open(&options.file)?;
    let player = player(options, &recording, &source)?;
    let mut app = app(&recording, player);
    let mut playback = Playback::start(recording, source)?;
    let mut screen = Screen::take(&instead)?;
    let shown = show(&mut screen, &mut app, &mut playback).await;
    // Only what is printed after this is seen.
    drop(screen);
    shown?;
    // Where nobody waited for the pass over the file, nothing is known to be missing.
    Ok(playback.recording().map_or(Exit::Done, Recording::finish))
}

fn player(options: &cli::Replay, recording: &Recording, source: &impl Source) -> Result<Player> {
    let moments = source.moments();
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

fn app(recording: &Recording, player: Player) -> App {
    let header = recording.header();
    let title = format!("{}: {} on {}", recording.file, subject(header), header.hostname);
    let mut app = App::new(title, Duration::from_nanos(header.interval_ns));
    app.host = recording.host;
    app.replay = Some(Replay::new(player, Instant::now()));
    app
}
