use cgscope_model::Sample;
use cgscope_record::{Damage, Ending, Gap, MAGIC, OLDEST_VERSION, ReadError, Reader, VERSION};
use proptest::prelude::*;

use crate::support::{file, lost_bytes, read, reader, samples};

#[test]
fn a_file_cut_anywhere_gives_every_whole_sample_before_the_cut() {
    let samples = samples(3);
    let (file, ends) = file(&samples);
    for cut in 0..=file.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        match read(&file[..cut]) {
            Err(ReadError::Empty) => assert_eq!(cut, 0),
            Err(error) => assert!(whole == 0 && matches!(error, ReadError::HeaderCut), "{cut}: {error}"),
            Ok((back, ending)) => {
                assert_eq!(back, samples[..(whole - 1).min(3)], "cut at {cut}");
                match cut - ends[whole - 1] {
                    0 if cut == file.len() => assert!(matches!(ending, Ending::Clean(_))),
                    0 => assert_eq!(ending, Ending::Killed),
                    rest => assert_eq!(ending, Ending::Torn { lost_bytes: rest as u64 }),
                }
            }
        }
    }
}

#[test]
fn a_changed_byte_is_always_detected() {
    let samples = samples(3);
    let (file, ends) = file(&samples);
    for at in 0..file.len() {
        for change in [1u8, 2, 0x10, 0x55, 0x80, 0xFF] {
            let mut damaged = file.clone();
            damaged[at] ^= change;
            let whole = ends.iter().filter(|end| **end <= at).count();
            match read(&damaged) {
                Err(error) => assert_eq!(whole, 0, "{at}: {error}"),
                Ok((back, ending)) => {
                    assert!(whole > 0, "byte {at} of the header changed unnoticed");
                    assert_eq!(back, samples[..whole - 1], "byte {at} ^ {change}");
                    let lost = (file.len() - ends[whole - 1]) as u64;
                    assert_eq!(lost_bytes(&ending), lost, "byte {at} ^ {change}: {ending}");
                    assert_eq!(ending.losses().nonzero().count(), 1);
                }
            }
        }
    }
}

#[test]
fn damage_without_a_later_key_frame_ends_the_reading_and_is_located() {
    let samples = samples(3);
    let (mut file, ends) = file(&samples);
    file[ends[2] - 1] ^= 1;
    let (back, ending) = read(&file).unwrap();
    assert_eq!(back, samples[..1]);
    let lost_bytes = (file.len() - ends[1]) as u64;
    assert_eq!(
        ending,
        Ending::Corrupt(Gap { at: ends[1] as u64, lost_bytes, damage: Damage::Checksum, samples: 2 })
    );
    assert_eq!(
        ending.to_string(),
        format!(
            "the recording is damaged at byte {} (a frame has a wrong checksum); the {lost_bytes} bytes from there to \
             the end are ignored",
            ends[1]
        )
    );
}

#[test]
fn data_after_the_end_is_reported() {
    let (mut file, ends) = file(&samples(1));
    file.extend(b"more");
    let (back, ending) = read(&file).unwrap();
    assert_eq!(back.len(), 1);
    let at = *ends.last().unwrap() as u64;
    assert_eq!(ending, Ending::Corrupt(Gap { at, lost_bytes: 4, damage: Damage::Misplaced, samples: 1 }));
}

#[test]
fn two_recordings_in_one_file_are_not_read_as_one() {
    let (first, ends) = file(&samples(2));
    let mut both = first[..ends[2]].to_vec();
    both.extend(&first[12..]);
    let (back, ending) = read(&both).unwrap();
    assert_eq!(back.len(), 2);
    assert!(matches!(ending, Ending::Corrupt(Gap { damage: Damage::Misplaced, .. })));
}

/// Returns a frame of `kind` with any payload and a correct checksum. Another program might write such a frame.
pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut checked = (payload.len() as u32).to_le_bytes().to_vec();
    checked.push(kind);
    checked.extend(payload);
    let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
    frame.extend(crc32fast::hash(&checked).to_le_bytes());
    frame.push(kind);
    frame.extend(payload);
    frame
}

fn with(frame: &[u8], samples: &[Sample]) -> Vec<u8> {
    let (mut file, ends) = file(samples);
    file.splice(ends[0]..ends[0], frame.iter().copied());
    file
}

#[test]
fn a_frame_of_an_unknown_kind_is_skipped_and_counted() {
    let samples = samples(2);
    let file = with(&frame(200, b"from a later version"), &samples);
    let mut reader = reader(&file).unwrap();
    let back: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(back, samples);
    assert_eq!(reader.skipped, 1);
    assert!(matches!(reader.ending, Some(Ending::Clean(_))));
}

fn first_payload(samples: &[Sample]) -> Vec<u8> {
    let (file, ends) = file(samples);
    file[ends[0] + 9..ends[1]].to_vec()
}

#[test]
fn a_sample_with_invalid_contents_is_rejected_although_its_checksum_is_right() {
    let whole = first_payload(&samples(1));
    let mut longer = whole.clone();
    longer.push(1);
    let mut shorter = whole.clone();
    shorter.pop();
    for payload in [&b""[..], &[0xFF; 40], &longer, &shorter] {
        let (_, ending) = read(&with(&frame(4, payload), &[])).unwrap();
        assert!(matches!(ending, Ending::Corrupt(Gap { damage: Damage::Payload, .. })), "{ending}");
    }
}

#[test]
fn a_delta_frame_without_the_sample_before_it_is_rejected() {
    let samples = samples(3);
    let (mut file, ends) = file(&samples);
    file.drain(ends[0]..ends[1]);
    let (back, ending) = read(&file).unwrap();
    assert!(back.is_empty());
    assert!(matches!(ending, Ending::Corrupt(Gap { damage: Damage::Payload, .. })), "{ending}");
}

#[test]
fn after_damage_reading_continues_at_the_next_key_frame() {
    // The recording has several key frames.
    let samples: Vec<Sample> = (0..700).map(|n| crate::support::sample(n % 50)).collect();
    let (whole, ends) = file(&samples);
    let mut reader = reader(&whole).unwrap();
    let index = reader.index().unwrap();
    assert_eq!(index.len(), samples.len());
    let mut damaged = whole.clone();
    damaged[ends[4] + 30] ^= 1;
    damaged.truncate(damaged.len() - 5);
    let mut reader = crate::support::reader(&damaged).unwrap();
    let back: Vec<Sample> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(back[..4], samples[..4]);
    assert!(back.len() > 500 && back[4..] == samples[samples.len() - (back.len() - 4)..], "{}", back.len());
    assert!(matches!(reader.ending, Some(Ending::Torn { .. })));
    let [gap] = &*reader.gaps else { panic!("{:?}", reader.gaps) };
    assert_eq!((gap.at, gap.damage), (ends[4] as u64, Damage::Checksum));
    let lost = (samples.len() - back.len()) as u64;
    assert_eq!(gap.samples, lost, "every one is known: the lengths of the frames are right");
    assert_eq!(
        reader.losses().nonzero().map(|(_, count)| count).sum::<u64>(),
        lost + 1,
        "and the end is torn"
    );
    assert!(gap.to_string().starts_with("the recording is damaged at byte "), "{gap}");
    assert_eq!(reader.index().unwrap().len() as u64, back.len() as u64 + lost - 1);
}

#[test]
fn after_damage_another_recording_is_not_read_as_the_rest() {
    let (first, ends) = file(&samples(3));
    let (second, _) = file(&samples(5));
    for cut in [ends[2] - 5, ends[1] - 5] {
        let mut both = first[..cut].to_vec();
        both.extend(&second);
        let (back, ending) = read(&both).unwrap();
        assert_eq!(back, samples(3)[..ends.iter().filter(|end| **end <= cut).count() - 1]);
        assert!(matches!(ending, Ending::Corrupt(_) | Ending::Torn { .. }), "{ending}");
    }
}

/// The search for the next key frame stops at a limit. Otherwise it would read the rest of the file again and again, which takes
/// minutes.
#[test]
fn a_fully_damaged_file_is_searched_only_a_few_times() {
    let (whole, ends) = file(&samples(1));
    let key = whole[ends[0]..ends[1]].to_vec();
    let mut file = whole[..ends[1]].to_vec();
    for _ in 0..300 {
        file.extend([9, 0, 0, 0, 1, 1, 1, 1, 4]);
        for _ in 0..63 {
            file.extend([0, 0, 3, 0, 1, 1, 1, 1, 4]);
            file.extend(b"\x8BcgsKEY\n");
        }
        file.extend(&key);
    }
    let begun = std::time::Instant::now();
    let (back, _) = read(&file).unwrap();
    assert!(!back.is_empty());
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn the_search_of_a_file_full_of_false_marks_ends() {
    let (mut file, ends) = file(&samples(1));
    file.truncate(ends[1]);
    file.extend(b"\x8BcgsKEY\n".repeat(100_000));
    let (back, ending) = read(&file).unwrap();
    assert_eq!(back.len(), 1);
    assert!(matches!(ending, Ending::Corrupt(_) | Ending::Torn { .. }), "{ending}");
}

#[test]
fn a_sample_that_breaks_the_rules_is_rejected_although_its_checksum_is_right() {
    // Simulate a writer that swapped the serials of two tasks, so that they are out of order.
    let payload = first_payload(&samples(1));
    let words = u32::from_le_bytes(payload[8 + 16..8 + 20].try_into().unwrap()) as usize;
    let packed = &payload[8 + 20..];
    let raw =
        if words == packed.len() { packed.to_vec() } else { zstd::bulk::decompress(packed, words).unwrap() };
    // These bytes are the mark of a column with changes, and the serials 7 and 9 as zigzag numbers.
    let at = raw.windows(3).position(|bytes| bytes == [1, 14, 18]).expect("the serials");
    let mut swapped = raw.clone();
    swapped[at + 1..at + 3].copy_from_slice(&[18, 14]);
    let mut payload = payload[..8 + 16].to_vec();
    payload.extend((swapped.len() as u32).to_le_bytes());
    payload.extend(swapped);
    let (back, ending) = read(&with(&frame(4, &payload), &[])).unwrap();
    assert!(back.is_empty());
    let Ending::Corrupt(Gap { damage, .. }) = ending else { panic!("{ending}") };
    assert_eq!(damage, Damage::Sample("its tasks are not in the order of their serials"));
}

/// Returns the payload of a key frame that has these texts and no rows.
fn with_texts(texts: &[&[u8]]) -> Vec<u8> {
    let number = |number: usize| {
        let (low, high) = ((number & 0x7F) as u8, (number >> 7) as u8);
        if high == 0 { vec![low] } else { vec![low | 0x80, high] }
    };
    let mut raw = number(texts.len());
    for text in texts {
        raw.extend(number(text.len()));
        raw.extend(*text);
    }
    raw.extend([0; 1_000]);
    let mut payload = first_payload(&samples(1))[..8 + 16].to_vec();
    payload.extend((raw.len() as u32).to_le_bytes());
    payload.extend(raw);
    payload
}

/// Readers refuse empty texts: each text takes memory, and a writer never writes an empty one.
#[test]
fn texts_that_no_writer_makes_are_refused() {
    let read_back = |texts: &[&[u8]]| read(&with(&frame(4, &with_texts(texts)), &[])).unwrap().1;
    assert!(matches!(read_back(&[b"a", b"b"]), Ending::Clean(_)), "the form is right");
    for texts in [&[&b""[..]][..], &[b"a", b""], &[&b""[..]; 1_000]] {
        let ending = read_back(texts);
        assert!(matches!(ending, Ending::Corrupt(Gap { damage: Damage::Payload, .. })), "{ending}");
    }
}

/// Many texts compress to a few bytes. Therefore a frame must have at least one byte for each text.
#[test]
fn a_small_frame_has_few_texts() {
    let mut raw = vec![0xD0, 0x0F];
    (0..2_000).for_each(|_| raw.extend([1, b'a']));
    raw.extend([0; 1_000]);
    let packed = zstd::bulk::compress(&raw, 3).unwrap();
    for filler in [0, 2_000] {
        let mut packed = packed.clone();
        // This zstd frame makes the payload longer, but the decoder skips it.
        packed.extend([0x50, 0x2A, 0x4D, 0x18]);
        packed.extend((filler as u32).to_le_bytes());
        packed.extend(vec![7; filler]);
        let mut payload = first_payload(&samples(1))[..8 + 16].to_vec();
        payload.extend((raw.len() as u32).to_le_bytes());
        payload.extend(&packed);
        let (_, ending) = read(&with(&frame(4, &payload), &[])).unwrap();
        assert_eq!(matches!(ending, Ending::Clean(_)), filler == 2_000, "{ending}");
    }
}

#[test]
fn paths_that_no_kernel_opens_are_refused() {
    let long = |bytes: usize| format!("/{}", "n".repeat(bytes - 1));
    let deep = |levels: usize| "/n".repeat(levels);
    for (path, is_right) in [
        (long(4_096), true),
        (deep(256), true),
        (long(4_097), false),
        (deep(257), false),
        (deep(20_000), false),
        (String::new(), false),
    ] {
        let one = Sample { cgroups: vec![(7, path.as_str().into())], ..Sample::default() };
        let (back, ending) = read(&file(&[one]).0).unwrap();
        assert_eq!(back.len(), usize::from(is_right), "{} bytes: {ending}", path.len());
        assert_eq!(
            matches!(ending, Ending::Corrupt(Gap { damage: Damage::Payload, .. })),
            !is_right,
            "{ending}"
        );
    }
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let said = |file: &[u8]| reader(file).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said(b"").starts_with("is empty: "));
    for foreign in [&b"#!/bin/sh\n"[..], b"x", b"PERFILE2 and more", &[0; 100]] {
        assert!(said(foreign).starts_with("is not a cgscope recording"));
    }
    assert!(said(&MAGIC).starts_with("ends within its header"));
}

#[test]
fn another_version_is_refused_and_names_the_cgscope_that_wrote_it() {
    let (mut file, _) = file(&samples(1));
    file[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let error = reader(&file).map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        error,
        "has format version 5, newer than the versions 3 to 4 that this cgscope reads: it was written by cgscope \
         0.1.0; read it with that version"
    );
    file[8..12].copy_from_slice(&(OLDEST_VERSION - 1).to_le_bytes());
    let error = reader(&file).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.starts_with("has format version 2, older than the versions 3 to 4 that this cgscope reads"),
        "{error}"
    );
    file[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    file.truncate(20);
    let error = reader(&file).map(|_| ()).unwrap_err().to_string();
    assert!(error.ends_with("read it with the newer cgscope that wrote it"), "{error}");
}

#[test]
fn an_error_names_the_missing_file() {
    let error = cgscope_record::open("/nonexistent/x.cgs").map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nonexistent/x.cgs could not be read: No such file or directory (os error 2)"
    );
}

/// A device that fails as soon as all its bytes have been read.
struct Failing<'a>(&'a [u8]);

impl std::io::Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.0.is_empty() { Err(std::io::Error::other("unplugged")) } else { self.0.read(buffer) }
    }
}

impl std::io::Seek for Failing<'_> {
    fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
        Err(std::io::Error::other("unplugged"))
    }
}

#[test]
fn an_error_of_the_device_ends_the_iteration_with_an_error() {
    let (file, ends) = file(&samples(3));
    let mut reader = Reader::new(Failing(&file[..ends[2] + 5])).unwrap();
    assert_eq!(reader.by_ref().take(2).filter(Result::is_ok).count(), 2);
    assert!(matches!(reader.next(), Some(Err(ReadError::Io(_)))));
    assert!(reader.next().is_none());
    assert_eq!(reader.ending.as_ref(), None);
}

proptest! {
    #[test]
    fn random_bytes_are_not_a_recording(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn random_bytes_after_a_complete_sample_do_not_change_the_sample(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
        let samples = samples(1);
        let (mut file, ends) = file(&samples);
        file.truncate(ends[1]);
        file.extend(&bytes);
        let (back, ending) = read(&file).unwrap();
        prop_assert_eq!(back, samples);
        prop_assert_eq!(lost_bytes(&ending), bytes.len() as u64);
    }

    #[test]
    fn random_payloads_with_a_right_checksum_are_safe(kind in 0..7u8, payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&with(&frame(kind, &payload), &samples(1))).unwrap();
    }
}
