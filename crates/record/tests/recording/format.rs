use std::{path::Path, sync::Arc};

use cgscope_model::{Sample, TaskState};
use cgscope_record::{Header, OLDEST_VERSION, ReadError, VERSION, open};

use crate::support::{file, header, read, reader, sample, samples};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_file_starts_with_magic_and_version() {
    assert_eq!(hex(&file(&[]).0[..12]), "8b6367730d0a1a0a04000000");
    assert_eq!(VERSION, 4);
}

/// Returns the samples that the test files of all versions contain. Never change these samples as long as such files exist.
fn of_every_version() -> (Header, Vec<Sample>) {
    (header(), samples(40))
}

/// Tests that files of every released version can be opened. Each file was written once, and must never be written again. This
/// command writes the file of a new version: `CGSCOPE_WRITE_FORMAT=1 cargo test -p cgscope-record`.
#[test]
fn files_of_every_released_version_open() {
    let path =
        |version| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/files/version-{version}.rec"));
    let (header, samples) = of_every_version();
    if std::env::var_os("CGSCOPE_WRITE_FORMAT").is_some() {
        std::fs::write(path(VERSION), file(&samples).0).unwrap();
    }
    for version in OLDEST_VERSION..=VERSION {
        let mut reader = open(path(version)).unwrap();
        assert_eq!(reader.header, header);
        let back: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(back, samples);
    }
}

#[test]
fn the_header_can_be_read_without_cgscope() {
    let (file, ends) = file(&[]);
    let first: serde_json::Value = serde_json::from_slice(&file[12 + 9..ends[0]]).unwrap();
    assert_eq!(first["hostname"], "host");
    let tables = first["tables"].as_array().unwrap();
    let columns = |name: &str| {
        let table = tables.iter().find(|table| table["name"] == name).unwrap();
        table["columns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert!(columns("tasks").contains(&"totals.by_cause.throttled"));
    assert_eq!(columns("cgroups"), ["id", "path"]);
}

/// Returns the same recording with a header that `change` has modified. Another version of cgscope might write such a header.
fn with_header(file: &[u8], header_end: usize, change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut first: serde_json::Value = serde_json::from_slice(&file[12 + 9..header_end]).unwrap();
    change(&mut first);
    let mut out = file[..12].to_vec();
    out.extend(crate::damage::frame(1, &serde_json::to_vec(&first).unwrap()));
    out.extend(&file[header_end..]);
    out
}

#[test]
fn unknown_columns_and_tables_are_skipped() {
    let mut samples = samples(5);
    samples
        .iter_mut()
        .for_each(|sample| Arc::make_mut(&mut sample.tasks[0]).state = Some(TaskState::DiskSleep));
    let (file, ends) = file(&samples);
    let later = with_header(&file, ends[0], |first| {
        let tasks = first["tables"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .find(|table| table["name"] == "tasks")
            .unwrap();
        for column in tasks["columns"].as_array_mut().unwrap() {
            let name = column["name"].as_str().unwrap();
            if ["start_ns", "node", "comm", "state", "placement.ran_ns", "pending.known"].contains(&name) {
                column["name"] = format!("later.{name}").into();
            }
        }
        let nodes = first["tables"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .find(|table| table["name"] == "nodes")
            .unwrap();
        nodes["name"] = "later".into();
        first["later"] = 5.into();
        first.as_object_mut().unwrap().remove("kernel_release");
    });
    let (back, ending) = read(&later).unwrap();
    assert!(matches!(ending, cgscope_record::Ending::Clean(_)), "{ending}");
    let expected = samples.into_iter().map(|mut sample| {
        sample.nodes.clear();
        for task in sample.tasks.iter_mut().map(Arc::make_mut) {
            (task.start_ns, task.node, task.pending, task.state) = (0, None, None, None);
            task.comm = "".into();
            if let Some(placement) = &mut task.placement {
                std::sync::Arc::make_mut(placement).ran_ns = Some(Vec::new());
            }
        }
        sample
    });
    assert_eq!(back, expected.collect::<Vec<_>>());
}

#[test]
fn two_tables_of_one_name_are_refused() {
    let (file, ends) = file(&samples(1));
    let twice = with_header(&file, ends[0], |header| {
        let tables = header["tables"].as_array_mut().unwrap();
        tables.push(tables[0].clone());
    });
    assert!(matches!(reader(&twice), Err(ReadError::HeaderDamaged)));
}

/// A damaged bit makes everything up to the next key frame unreadable.
#[test]
fn a_damaged_bit_costs_at_most_half_a_minute() {
    let at = |second: u64| Sample { mono_ns: second * 1_000_000_000, ..sample(second) };
    let all: Vec<Sample> = (1..=300).map(at).collect();
    let (mut file, ends) = file(&all);
    file[ends[100] + 12] ^= 4;
    let (back, _) = read(&file).unwrap();
    assert!((269..300).contains(&back.len()), "{} of 300", back.len());
    // Even if samples are minutes apart, most frames must be delta frames.
    let rare: Vec<Sample> = (1..=300).map(|n| Sample { mono_ns: n * 60_000_000_000, ..sample(n) }).collect();
    let (rare, _) = crate::support::file(&rare);
    assert!(rare.len() < file.len() * 3 / 2, "{} and {}", rare.len(), file.len());
}

#[test]
fn every_state_of_a_task_is_read_as_it_was_written() {
    let states = || TaskState::ALL.iter().copied().map(Some).chain([None]);
    let written: Vec<Sample> = states()
        .map(|state| {
            let mut sample = crate::support::sample(3);
            Arc::make_mut(&mut sample.tasks[0]).state = state;
            sample
        })
        .collect();
    let (back, _) = read(&file(&written).0).unwrap();
    assert!(back.iter().map(|sample| sample.tasks[0].state).eq(states()));
    assert_eq!(back, written);
}

#[test]
fn only_what_changed_is_written() {
    let (_, ends) = file(&vec![crate::support::sample(3); 3]);
    let first = ends[1] - ends[0];
    let same = ends[3] - ends[2];
    assert!(same < 60 && first > 5 * same, "{first} bytes, then {same}");
}

#[test]
fn terminal_control_characters_are_replaced() {
    let mut sample = crate::support::sample(1);
    Arc::make_mut(&mut sample.tasks[0]).comm = "\x1b[2J".into();
    let header = Header { hostname: "\x1b]0;you\x07".into(), ..header() };
    let mut writer = cgscope_record::Writer::create(Vec::new(), &header).unwrap();
    writer.sample(&sample).unwrap();
    let file = writer.end(1, cgscope_record::Reason::Triggered("p99\r\n".into())).unwrap();
    let mut reader = crate::support::reader(&file).unwrap();
    assert_eq!(reader.header.hostname, "\u{fffd}]0;you\u{fffd}");
    assert_eq!(&*reader.next().unwrap().unwrap().tasks[0].comm, "\u{fffd}[2J");
    assert!(reader.next().is_none());
    assert!(!reader.ending.as_ref().unwrap().to_string().contains(char::is_control));
}

fn tasks(number: u64) -> Sample {
    let tasks = (1..number).map(|serial| Arc::new(crate::support::task(serial, &[1_000]))).collect();
    Sample { tasks, ..Sample::default() }
}

/// Identical tasks compress so well that readers would refuse the frame. Therefore the writer pads the frame.
#[test]
fn well_compressed_frames_can_be_read_and_stay_small() {
    let samples = vec![tasks(20_000); 2];
    let (file, ends) = file(&samples);
    assert_eq!(read(&file).unwrap().0, samples);
    let [key, delta] = [ends[1] - ends[0], ends[2] - ends[1]];
    assert!(key < 20_000 * 12 && delta < 100, "{key} and {delta} bytes");
}

/// If readers accepted them, a file of a few MB with a million such frames could keep a reader busy for hours.
#[test]
fn more_delta_frames_than_a_writer_writes_after_a_key_frame_are_refused() {
    let (file, ends) = file(&vec![tasks(1_000); 514]);
    let delta = ends[512]..ends[513];
    assert_eq!(file[delta.start + 8], 5, "not a delta frame");
    let with_deltas = |more| [&file[..ends[513]], &file[delta.clone()].repeat(more)].concat();
    let (samples, ending) = read(&with_deltas(0)).unwrap();
    assert_eq!((samples.len(), ending), (513, cgscope_record::Ending::Killed));
    let (samples, ending) = read(&with_deltas(1)).unwrap();
    assert!(matches!(ending, cgscope_record::Ending::Corrupt(_)), "{ending}");
    assert_eq!(samples.len(), 513);
}
