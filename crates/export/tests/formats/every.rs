//! Tests the properties that all formats have.

use std::io::ErrorKind;

use cgscope_export::{Error, Format};
use cgscope_model::Mode;
use clap::ValueEnum;

use crate::support::{Paper, export, intervals, try_export};

#[test]
fn a_full_disk_is_reported_wherever_the_file_ends() {
    let intervals = intervals(3, Mode::Bpf);
    for &format in Format::value_variants() {
        let whole = export(format, &intervals).len();
        for room in [0, 1, whole / 2, whole - 1] {
            match try_export(format, &intervals, &Paper::with_room(room)) {
                Err(Error::Io(error)) => assert_eq!(error.kind(), ErrorKind::StorageFull, "{format:?}"),
                other => panic!("{format:?} with room for {room} of {whole} bytes: {other:?}"),
            }
        }
        let enough = Paper::with_room(whole);
        assert!(try_export(format, &intervals, &enough).is_ok(), "{format:?}");
    }
}

#[test]
fn equal_intervals_give_equal_bytes() {
    for &format in Format::value_variants() {
        let export = || export(format, &intervals(3, Mode::Bpf));
        assert_eq!(export(), export(), "{format:?}");
    }
}

#[test]
fn a_file_without_intervals_can_be_read() {
    use crate::decode;
    assert!(decode::csv_rows(&export(Format::Csv, &[])).is_empty());
    assert!(decode::parquet_rows(export(Format::Parquet, &[])).is_empty());
    assert!(decode::hdr_log(&export(Format::Hdr, &[])).is_empty());
    assert!(decode::perfetto_trace(&export(Format::Perfetto, &[])).counters.is_empty());
    let profile = decode::pprof_profile(&export(Format::Pprof, &[]));
    assert!(profile.sample.is_empty() && profile.sample_type.len() == 3);
}

#[test]
fn losses_are_in_every_format_that_has_a_place_for_them() {
    use crate::decode;
    let intervals = intervals(3, Mode::Bpf);
    let losses = "culprit_forgotten 6";
    let log = String::from_utf8(export(Format::Hdr, &intervals)).expect("text");
    assert_eq!(log.lines().last(), Some(format!("#losses: {losses}").as_str()));
    let profile = decode::pprof_profile(&export(Format::Pprof, &intervals));
    assert!(
        profile.comment.iter().any(|at| profile.string_table[*at as usize] == format!("losses: {losses}"))
    );
    assert_eq!(decode::perfetto_trace(&export(Format::Perfetto, &intervals)).host("losses"), 6);
    let reported = decode::parquet_metadata(export(Format::Parquet, &intervals));
    assert_eq!(reported.get("losses").map(String::as_str), Some(losses));
    assert_eq!(reported.get("schema").map(String::as_str), Some(cgscope_export::table::SCHEMA));
}
