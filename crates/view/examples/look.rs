//! Prints a screen of a recording, without a terminal:
//! `cargo run -p cgscope-view --example look -- FILE WIDTHxHEIGHT [KEYS] [colour]`
//!
//! The screen is drawn after all intervals and the keys. KEYS are named as in the settings file and separated by commas. FILE may
//! be `made-up:TASKS:CGROUPS`, a made-up host of that size.

mod screen;

use std::error::Error;

use cgscope_view::{snapshot, theme::Colours};
use screen::{Recorded, screen};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, size, rest @ ..] = args.as_slice() else {
        return Err("FILE WIDTHxHEIGHT [KEYS] [colour]".into());
    };
    let (width, height) = size.split_once('x').ok_or("WIDTHxHEIGHT")?;
    let recorded = match file.strip_prefix("made-up:") {
        Some(size) => made_up(size)?,
        None => Recorded::read(file.as_ref())?,
    };
    let keys = rest.first().map_or("", String::as_str);
    let is_colour = rest.get(1).is_some_and(|word| word == "colour");
    let colours = if is_colour { Colours::Many } else { Colours::None };
    let buffer = screen(recorded, (width.parse()?, height.parse()?), keys, colours)?;
    print!("{}", if is_colour { snapshot::ansi(&buffer) } else { snapshot::plain(&buffer) });
    Ok(())
}

fn made_up(size: &str) -> Result<Recorded, Box<dyn Error>> {
    let (tasks, cgroups) = size.split_once(':').ok_or("made-up:TASKS:CGROUPS")?;
    let (tasks, cgroups) = (tasks.parse()?, cgroups.parse()?);
    let samples = (0..3).map(|round| cgscope_made_up::host(tasks, cgroups, round)).collect();
    let (hostname, kernel) = ("made-up".into(), "6.12".into());
    Ok(Recorded { hostname, kernel, interval_ns: cgscope_made_up::ROUND_NS, samples })
}
