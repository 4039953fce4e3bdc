//! The pictures of the README and of docs: `cargo xtask pictures`. Draws the screens of the recordings in `tests/files` into
//! `docs/pictures`; with `--check` it only says whether those that are there are the same.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use cgscope_model::{Interval, Sample, findings::Host};
use cgscope_view::{
    app::{About, App},
    draw::{svg::svg, written},
    keys::Key,
    settings::Settings,
    theme::{Colours, Theme},
};

/// A screen, and how one comes to it.
struct Picture {
    name: &'static str,
    recording: &'static str,
    title: &'static str,
    size: (u16, u16),
    /// As settings name them.
    keys: &'static [&'static str],
    colours: Colours,
}

const fn many(
    name: &'static str,
    recording: &'static str,
    size: (u16, u16),
    keys: &'static [&'static str],
    title: &'static str,
) -> Picture {
    Picture { name, recording, title, size, keys, colours: Colours::Many }
}

const PICTURES: [Picture; 14] = [
    many(
        "overview",
        "neighbour",
        (110, 32),
        &["down", "down", "down"],
        "Overview: a service waits behind a backup",
    ),
    many("histogram", "neighbour", (110, 28), &["down", "down", "down", "2"], "Histogram of web.service"),
    many("heatmap", "neighbour", (110, 28), &["down", "down", "down", "3"], "Heatmap of web.service"),
    many("cgroups", "threads", (110, 29), &["4"], "Cgroups: the quota of a container"),
    many(
        "culprits",
        "neighbour",
        (110, 27),
        &["5", "down", "down"],
        "Culprits: who is in the way of web.service",
    ),
    many("numa", "nodes", (110, 32), &["6"], "NUMA: node 0 is full, node 1 idle"),
    many("states", "neighbour", (110, 26), &["7"], "States: what all threads do"),
    many(
        "task",
        "neighbour",
        (110, 40),
        &["down", "down", "down", "enter", "8"],
        "Task: a thread of web.service",
    ),
    many("help", "neighbour", (110, 56), &["?"], "Help: the keys"),
    many("quota", "quota", (80, 24), &[], "Overview: a shell loop in a cgroup with a quota"),
    many("threads", "threads", (80, 24), &[], "Overview: 20 threads share the quota of one CPU"),
    many("nodes", "nodes", (80, 24), &[], "Overview: threads are bound to a full NUMA node"),
    many("coarse", "coarse", (80, 24), &[], "Overview in the coarse mode"),
    Picture {
        name: "no-colour",
        recording: "threads",
        title: "Overview without colours",
        size: (80, 24),
        keys: &[],
        colours: Colours::None,
    },
];

fn main() -> ExitCode {
    let result = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => write(),
        [check] if check == "--check" => check_all(),
        _ => Err("nothing or `--check` is expected".into()),
    };
    match result {
        Ok(said) => {
            eprintln!("pictures: {said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("pictures: {why}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folder() -> PathBuf {
    root().join("docs/pictures")
}

fn write() -> Result<String, Box<dyn Error>> {
    fs::create_dir_all(folder())?;
    for left in left_over()? {
        fs::remove_file(folder().join(left))?;
    }
    for picture in &PICTURES {
        fs::write(folder().join(picture.file()), picture.drawn()?)?;
    }
    Ok(format!("{} drawn in docs/pictures; look at those that `git diff --stat` names", PICTURES.len()))
}

fn check_all() -> Result<String, Box<dyn Error>> {
    let mut others = left_over()?;
    for picture in &PICTURES {
        let drawn = picture.drawn()?;
        if fs::read_to_string(folder().join(picture.file())).is_ok_and(|there| there == drawn) {
            continue;
        }
        others.push(picture.file());
    }
    if others.is_empty() {
        return Ok(format!("{} in docs/pictures are what is drawn now", PICTURES.len()));
    }
    Err(format!(
        "the screen is drawn otherwise than {} in docs/pictures: run `cargo xtask pictures`, look at them and commit them",
        others.join(", ")
    )
    .into())
}

/// Pictures that are there and not drawn any more.
fn left_over() -> Result<Vec<String>, Box<dyn Error>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".svg") && PICTURES.iter().all(|picture| picture.file() != name) {
            left.push(name);
        }
    }
    left.sort();
    Ok(left)
}

impl Picture {
    fn file(&self) -> String {
        format!("{}.svg", self.name)
    }

    fn drawn(&self) -> Result<String, Box<dyn Error>> {
        let file = format!("crates/view/tests/files/{}.rec", self.recording);
        let reader = cgscope_record::open(root().join(file))?;
        let header = reader.header().clone();
        let samples = reader.collect::<Result<Vec<Sample>, _>>()?;
        let host = Host { cpus: samples.last().map(|sample| sample.cpus.len() as u32), whole: true };
        let coarse = (self.recording == "coarse").then(|| "so it was recorded".to_owned());
        let title = "whole host".to_owned();
        let about = About { title, hostname: header.hostname, kernel: header.kernel_release, host, coarse };
        let interval = Duration::from_nanos(header.interval_ns);
        let mut app = App::new(about, Settings::default(), Theme::new(self.colours), interval);
        app.on_resize(self.size.0, self.size.1);
        for pair in samples.windows(2) {
            app.on_interval(Arc::new(Interval::between(&pair[0], &pair[1])));
        }
        for key in self.keys {
            app.on_key(key.parse::<Key>()?.into());
        }
        Ok(svg(&written::buffer(&app), self.title))
    }
}
