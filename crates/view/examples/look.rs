//! A screen of a recording, without a terminal: `cargo run -p cgscope-view --example look -- FILE WIDTHxHEIGHT [KEYS] [colour]`,
//! after all its intervals and these keys (as settings name them, with commas between). FILE may be `made-up:TASKS:CGROUPS`: a host
//! that does not exist, of that size.

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use cgscope_model::{Interval, Sample, findings::Host};
use cgscope_view::{
    app::{About, App},
    draw::written,
    keys::Key,
    settings::Settings,
    theme::{Colours, Theme},
};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, size, rest @ ..] = args.as_slice() else {
        return Err("FILE WIDTHxHEIGHT [KEYS] [colour]".into());
    };
    let (width, height) = size.split_once('x').ok_or("WIDTHxHEIGHT")?;
    let colour = rest.get(1).is_some_and(|word| word == "colour");
    let (hostname, kernel, interval_ns, samples) = samples(file)?;
    let host = Host { cpus: samples.last().map(|sample| sample.cpus.len() as u32), whole: true };
    let about = About { title: "whole host".into(), hostname, kernel, host, coarse: None };
    let theme = Theme::new(if colour { Colours::Many } else { Colours::None });
    let mut app = App::new(about, Settings::default(), theme, Duration::from_nanos(interval_ns));
    app.on_resize(width.parse()?, height.parse()?);
    for pair in samples.windows(2) {
        app.on_interval(Arc::new(Interval::between(&pair[0], &pair[1])));
    }
    for key in rest.first().into_iter().flat_map(|keys| keys.split(',')).filter(|key| !key.is_empty()) {
        app.on_key(key.parse::<Key>()?.into());
    }
    let buffer = written::buffer(&app);
    print!("{}", if colour { written::ansi(&buffer) } else { written::plain(&buffer) });
    Ok(())
}

/// The name of the host, its kernel, the interval in ns, and the Samples.
type Measured = (String, String, u64, Vec<Sample>);

fn samples(file: &str) -> Result<Measured, Box<dyn Error>> {
    if let Some(size) = file.strip_prefix("made-up:") {
        let (tasks, cgroups) = size.split_once(':').ok_or("made-up:TASKS:CGROUPS")?;
        let (tasks, cgroups) = (tasks.parse()?, cgroups.parse()?);
        let samples = (0..3).map(|round| cgscope_made_up::host(tasks, cgroups, round)).collect();
        return Ok(("made-up".into(), "6.12".into(), cgscope_made_up::ROUND_NS, samples));
    }
    let reader = cgscope_record::open(Path::new(file))?;
    let header = reader.header().clone();
    let samples = reader.collect::<Result<Vec<_>, _>>()?;
    Ok((header.hostname.clone(), header.kernel_release.clone(), header.interval_ns, samples))
}
