//! Draws the screen of a recording, for the examples.

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use cgscope_model::{Interval, Mode, Sample, findings::Host};
use cgscope_view::{
    app::{About, App},
    keys::KeyPress,
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};
use ratatui::buffer::Buffer;

/// The parts of a recording that a screen needs.
pub struct Recorded {
    pub hostname: String,
    pub kernel: String,
    pub interval_ns: u64,
    pub samples: Vec<Sample>,
}

impl Recorded {
    pub fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        let reader = cgscope_record::open(file)?;
        let header = reader.header().clone();
        let samples = reader.collect::<Result<_, _>>()?;
        let (hostname, kernel) = (header.hostname, header.kernel_release);
        Ok(Self { hostname, kernel, interval_ns: header.interval_ns, samples })
    }
}

/// The screen after all intervals and these keys, which are separated by commas.
pub fn screen(
    recorded: Recorded,
    (width, height): (u16, u16),
    keys: &str,
    colours: Colours,
) -> Result<Buffer, Box<dyn Error>> {
    let Recorded { hostname, kernel, interval_ns, samples } = recorded;
    let host = Host { cpus: samples.last().map(|sample| sample.cpus.len() as u32), whole: true };
    let is_coarse = samples.last().is_some_and(|sample| sample.mode == Mode::Coarse);
    let coarse = is_coarse.then(|| "as recorded".into());
    let about = About { title: "whole host".into(), hostname, kernel, host, coarse };
    let interval = Duration::from_nanos(interval_ns);
    let mut app = App::new(about, Settings::default(), Theme::new(colours), interval);
    app.on_resize(width, height);
    for pair in samples.windows(2) {
        app.on_interval(Arc::new(Interval::between(&pair[0], &pair[1])));
    }
    for key in keys.split(',').filter(|key| !key.is_empty()) {
        app.on_key(key.parse::<KeyPress>()?.into());
    }
    Ok(snapshot::buffer(&app))
}
