//! Checks the pictures of the README and the docs. They show screens of the recordings in `tests/files`.
//! `UPDATE_DOCS=1 cargo test -p cgscope-view --test pictures` draws them again; `cargo xtask pictures` does the same.

mod svg;

use std::{collections::BTreeMap, env, fs, path::Path, sync::Arc, time::Duration};

use cgscope_model::{Interval, Mode, Sample, findings::Host};
use cgscope_view::{
    app::{About, App},
    keys::KeyPress,
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};
use ratatui::buffer::Buffer;

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

#[test]
fn the_pictures_match_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let drawn: BTreeMap<String, String> = PICTURES.into_iter().map(drawn).collect();
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "svg"));
    let before: BTreeMap<String, String> = files
        .map(|path| (path.file_stem().unwrap().display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect();
    let file = |name: &String| folder.join(format!("{name}.svg"));
    let wrong: Vec<&String> =
        before.keys().chain(drawn.keys()).filter(|name| before.get(*name) != drawn.get(*name)).collect();
    if env::var_os("UPDATE_DOCS").is_none() {
        assert!(
            wrong.is_empty(),
            "out of date: {wrong:?}. Run `cargo xtask pictures`, look at the pictures and commit them"
        );
    }
    for name in wrong {
        match drawn.get(name) {
            Some(picture) => fs::write(file(name), picture).unwrap(),
            None => fs::remove_file(file(name)).unwrap(),
        }
    }
}

/// Draws a picture. Returns its name and content.
fn drawn((name, recording, size, keys, title): Picture) -> (String, String) {
    let colours = if name == "no-colour" { Colours::None } else { Colours::Many };
    (name.to_owned(), svg::svg(&screen(recording, size, keys, colours), title))
}

/// Returns the screen of a recording after all intervals and these keys.
fn screen(recording: &str, (width, height): (u16, u16), keys: &str, colours: Colours) -> Buffer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/files/{recording}.rec"));
    let reader = cgscope_record::open(&path).unwrap();
    let header = reader.header.clone();
    let samples: Vec<Sample> = reader.collect::<Result<_, _>>().unwrap();
    let about = About {
        title: "whole host".into(),
        hostname: header.hostname,
        kernel: header.kernel_release,
        host: Host { cpus: samples.last().map(|sample| sample.cpus.len() as u32), whole: true, kernel: None },
        coarse: (samples[0].mode == Mode::Coarse).then(|| "as recorded".into()),
    };
    let interval = Duration::from_nanos(header.interval_ns);
    let mut app = App::new(about, Settings::default(), Theme::new(colours), interval);
    app.on_resize(width, height);
    for pair in samples.windows(2) {
        app.on_interval(Arc::new(Interval::between(&pair[0], &pair[1])));
    }
    for key in keys.split(',').filter(|key| !key.is_empty()) {
        app.on_key(key.parse::<KeyPress>().unwrap().into());
    }
    snapshot::buffer(&app)
}
