//! Draws the pictures of the README and the docs: `cargo xtask pictures`. The pictures show screens of the recordings in
//! `tests/files`, and are written to `docs/pictures`. With `--check`, this program only reports whether the existing pictures are
//! up to date.
//!
//! `cargo run -p cgscope-view --example pictures -- FILE WIDTHxHEIGHT [KEYS] [colour]` prints a screen of a recording instead.
//! The screen is drawn after all intervals and KEYS. KEYS are named as in the settings file and separated by commas. FILE can be
//! `made-up:TASKS:CGROUPS`, a made-up host of that size.

use std::{
    collections::BTreeMap, error::Error, fs, path::Path, process::ExitCode, sync::Arc, time::Duration,
};

use cgscope_model::{Interval, Mode, Sample, findings::Host};
use cgscope_view::{
    app::{About, App},
    draw::svg::svg,
    keys::KeyPress,
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};
use ratatui::buffer::Buffer;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Name, recording, size, keys separated by commas, title.
type Picture = (&'static str, &'static str, (u16, u16), &'static str, &'static str);

const PICTURES: [Picture; 15] = [
    ("overview", "host/neighbour", (110, 32), "", "Overview: a service waits behind a backup"),
    ("histogram", "host/neighbour", (110, 28), "2", "Histogram of web.service"),
    ("heatmap", "host/neighbour", (110, 28), "3", "Heatmap of web.service"),
    ("cgroups", "host/threads", (110, 29), "4", "Cgroups: the quota of a container"),
    ("culprits", "host/neighbour", (110, 27), "5", "Culprits: who makes web.service wait"),
    ("numa", "nodes", (110, 32), "6", "NUMA: node 0 is full, node 1 idle"),
    ("states", "host/neighbour", (110, 26), "7", "States: what all threads do"),
    ("task", "host/neighbour", (110, 40), "enter,8", "Task: a process of web.service"),
    ("help", "host/neighbour", (110, 56), "?", "Help: the keys"),
    ("quota", "host/quota", (80, 24), "", "Overview: a shell loop in a cgroup with a quota"),
    ("threads", "host/threads", (80, 24), "", "Overview: 20 threads share the quota of one CPU"),
    ("pod", "host/pod", (110, 30), "", "Overview: a pod at its limit, and a pod beside it"),
    ("nodes", "nodes", (80, 24), "", "Overview: threads are bound to a full NUMA node"),
    ("coarse", "host/coarse", (80, 24), "", "Overview in the coarse mode"),
    ("no-colour", "host/threads", (80, 24), "", "Overview without colours"),
];

fn main() -> ExitCode {
    let (code, said) = match run() {
        Ok(said) => (ExitCode::SUCCESS, said),
        Err(why) => (ExitCode::FAILURE, why.to_string()),
    };
    eprintln!("pictures: {said}");
    code
}

fn run() -> Result<String, Box<dyn Error>> {
    let is_check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [check] if check == "--check" => true,
        [file, size, rest @ ..] => {
            look(file, size, rest)?;
            return Ok(format!("{file} at {size}"));
        }
        _ => return Err("unknown argument: use `--check`, or FILE WIDTHxHEIGHT [KEYS] [colour]".into()),
    };
    let folder = Path::new(ROOT).join("docs/pictures");
    fs::create_dir_all(&folder)?;
    let drawn = PICTURES.into_iter().map(drawn).collect::<Result<BTreeMap<_, _>, _>>()?;
    let mut others = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        if file.ends_with(".svg") && !drawn.contains_key(&file) {
            others.push(file);
        }
    }
    if !is_check {
        others.iter().try_for_each(|file| fs::remove_file(folder.join(file)))?;
        drawn.iter().try_for_each(|(file, picture)| fs::write(folder.join(file), picture))?;
        let count = drawn.len();
        return Ok(format!("drew {count} in docs/pictures; look at the changed ones (`git diff --stat`)"));
    }
    let is_other =
        |file: &str, picture: &str| fs::read_to_string(folder.join(file)).ok().as_deref() != Some(picture);
    others
        .extend(drawn.iter().filter(|(file, picture)| is_other(file, picture)).map(|(file, _)| file.clone()));
    if others.is_empty() {
        return Ok(format!("all {} in docs/pictures are up to date", drawn.len()));
    }
    Err(format!(
        "out of date in docs/pictures: {}. Run `cargo xtask pictures`, look at the pictures and commit them",
        others.join(", ")
    )
    .into())
}

/// Draws a picture. Returns its file name and content.
fn drawn((name, recording, size, keys, title): Picture) -> Result<(String, String), Box<dyn Error>> {
    let colours = if name == "no-colour" { Colours::None } else { Colours::Many };
    let recording = format!("{ROOT}/crates/view/tests/files/{recording}.rec");
    let buffer = screen(Recorded::read(recording.as_ref())?, size, keys, colours)?;
    Ok((format!("{name}.svg"), svg(&buffer, title)))
}

fn look(file: &str, size: &str, rest: &[String]) -> Result<(), Box<dyn Error>> {
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

/// The parts of a recording that a screen needs.
struct Recorded {
    hostname: String,
    kernel: String,
    interval_ns: u64,
    samples: Vec<Sample>,
}

impl Recorded {
    fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        let reader = cgscope_record::open(file)?;
        let header = reader.header().clone();
        let samples = reader.collect::<Result<_, _>>()?;
        let (hostname, kernel) = (header.hostname, header.kernel_release);
        Ok(Self { hostname, kernel, interval_ns: header.interval_ns, samples })
    }
}

/// Returns the screen after all intervals and these keys. Keys are separated by commas.
fn screen(
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
