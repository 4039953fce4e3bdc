//! Encodes and decodes samples as payloads. A key frame contains a whole sample, and a delta frame contains only changes.

use std::{any::Any, collections::BTreeSet, io, sync::Arc};

use cgscope_model::{Sample, printable, table as model};

use crate::{
    WriteError,
    cells::Texts,
    frame::{self, MAX_PAYLOAD, kind},
    rows::{Skipped, TaskRow, Whole},
    table::{Bytes, Decoder, Encoder, Table, TableDecoder, TableEncoder, put},
};

/// The first bytes of a key frame's payload. Readers search for these bytes after damage.
pub(crate) const SYNC: [u8; 8] = *b"\x8BcgsKEY\n";

/// Size of the two times (wall clock and CLOCK_MONOTONIC, each a u64) at the start of a payload. The uncompressed size (a u32)
/// and the compressed bytes follow.
pub(crate) const CLOCKS: usize = 16;
const HEAD: usize = CLOCKS + 4;

/// zstd's default level. A higher level would cost the recorder more CPU time than the saved disk space is worth.
const LEVEL: i32 = 3;

/// Maximum compression ratio. Without this maximum, a small file could make a reader allocate much memory.
const MOST_TIMES: usize = 16;
/// Minimum compressed size of a frame for each new row, bytes, so that a small file cannot make a reader allocate much memory.
const BYTES_A_ROW: usize = 8;
/// Maximum length of a text, bytes. The longest texts are lists of CPUs, of at most 32 KiB; paths have a separate limit. A frame
/// must also have at least one compressed byte for each new text.
const LONGEST_TEXT: usize = 64 << 10;

/// The next frame is a key frame if the frames since the last key frame have at least this many times the size of that key frame.
const KEY_AFTER_TIMES: usize = 8;
/// The next frame is also a key frame after this many delta frames. This limits the number of frames that a seek must read, and
/// the number of frames that become unusable after damage. Readers refuse longer sequences: each row costs work in each frame, so
/// a small file could keep a reader busy for a long time.
const KEY_AFTER_FRAMES: usize = 512;
/// The next frame is also a key frame if this time has passed since the last key frame, and at least `KEY_AFTER_NS_AND_FRAMES`
/// delta frames were written. Key frames limit damage: one wrong bit makes all samples up to the next key frame unreadable.
const KEY_AFTER_NS: u64 = 30_000_000_000;
const KEY_AFTER_NS_AND_FRAMES: usize = 8;

macro_rules! tables_of_a_sample {
    (recorded { $($name:ident: $table:ident,)* } live { $($live:tt)* }) => {
        pub(crate) fn tables() -> Vec<Table> {
            vec![Table::of::<Whole>(WHOLE), $(Table::of::<Row<model::$table>>(stringify!($name)),)*]
        }

        fn table_encoders() -> Vec<Box<dyn TableEncoder>> {
            vec![Box::<Encoder<Whole>>::default(), $(Box::<Encoder<Row<model::$table>>>::default(),)*]
        }

        fn table_decoder(table: &Table) -> Box<dyn TableDecoder> {
            match table.name.as_str() {
                WHOLE => Box::new(Decoder::<Whole>::new(table)),
                $(stringify!($name) => Box::new(Decoder::<Row<model::$table>>::new(table)),)*
                _ => Box::new(Decoder::<Skipped>::new(table)),
            }
        }
    };
}

cgscope_model::tables!(tables_of_a_sample);

type Row<T> = <T as model::Table>::Row;

/// Name of the table with the members that a sample has only once.
const WHOLE: &str = "whole";

/// Encodes samples as frames. A viewer can start reading at any key frame.
pub struct SampleEncoder {
    tables: Vec<Box<dyn TableEncoder>>,
    texts: Texts,
    compressor: zstd::bulk::Compressor<'static>,
    /// The tables before and after compression. Both buffers are reused, which saves allocations.
    raw: Vec<u8>,
    encoded: Vec<u8>,
    /// Size of the last key frame, bytes. `None` makes the next frame a key frame.
    key_bytes: Option<usize>,
    bytes_since: usize,
    frames_since: usize,
    /// [`Sample::mono_ns`] of the last key frame.
    key_ns: u64,
}

impl SampleEncoder {
    /// Creates an encoder. Its first frame is a key frame.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            tables: table_encoders(),
            texts: Texts::default(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            raw: Vec::new(),
            encoded: Vec::new(),
            key_bytes: None,
            bytes_since: 0,
            frames_since: 0,
            key_ns: 0,
        })
    }

    /// Makes the next frame a key frame.
    pub fn start_anew(&mut self) {
        self.key_bytes = None;
    }

    /// Appends the frame of a sample, and returns the kind of the frame. If the frame does not get into the file, call
    /// [`Self::start_anew`].
    pub(crate) fn append_frame(&mut self, sample: &Sample, out: &mut Vec<u8>) -> Result<u8, WriteError> {
        frame::append(out, |out| self.encode(sample, out)).inspect_err(|_| self.start_anew())
    }

    fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>) -> Result<u8, WriteError> {
        let is_old = sample.mono_ns.saturating_sub(self.key_ns) >= KEY_AFTER_NS
            && self.frames_since >= KEY_AFTER_NS_AND_FRAMES;
        let is_due = |key| {
            is_old || self.bytes_since >= KEY_AFTER_TIMES * key || self.frames_since >= KEY_AFTER_FRAMES
        };
        let is_key = self.key_bytes.is_none_or(is_due);
        let start = out.len();
        if is_key {
            self.tables.iter_mut().for_each(|table| table.clear());
            self.texts.clear();
            out.extend(SYNC);
        }
        out.extend(sample.unix_ns.to_le_bytes());
        out.extend(sample.mono_ns.to_le_bytes());
        self.encoded.clear();
        let mut new_rows = 0;
        for table in &mut self.tables {
            let new = table.encode(sample, &mut self.texts, &mut self.encoded);
            new_rows += new.map_err(WriteError::Invalid)?;
        }
        self.raw.clear();
        let new_texts = self.texts.new.len();
        put(new_texts, &mut self.raw);
        for text in self.texts.new.drain(..) {
            put(text.len(), &mut self.raw);
            self.raw.extend(text.as_bytes());
        }
        self.raw.append(&mut self.encoded);
        if self.raw.len() > MAX_PAYLOAD {
            return Err(WriteError::TooLarge(self.raw.len()));
        }
        let least = (new_rows * BYTES_A_ROW).max(new_texts).max(self.raw.len().div_ceil(MOST_TIMES));
        self.pack(least, out)?;
        let bytes = out.len() - start;
        if is_key {
            (self.key_bytes, self.bytes_since, self.frames_since) = (Some(bytes), 0, 0);
            self.key_ns = sample.mono_ns;
        } else {
            self.bytes_since += bytes;
            self.frames_since += 1;
        }
        Ok(if is_key { kind::KEY } else { kind::DELTA })
    }

    /// Frees the memory that is needed only during encoding. This saves memory if there are many encoders.
    pub(crate) fn release(&mut self) {
        self.tables.iter_mut().for_each(|table| table.release());
        (self.raw, self.encoded) = (Vec::new(), Vec::new());
    }

    /// Returns the memory that the encoder holds between samples, bytes. This is a copy of all rows, even of shared tasks. The
    /// compressor, which takes another 1 MB, is not included.
    pub fn memory_bytes(&self) -> usize {
        self.tables.iter().map(|table| table.memory_bytes()).sum::<usize>()
            + self.raw.capacity()
            + self.encoded.capacity()
    }

    fn pack(&mut self, least: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.encoded.clear();
        self.encoded.reserve(zstd::zstd_safe::compress_bound(self.raw.len()));
        self.compressor.compress_to_buffer(&self.raw, &mut self.encoded)?;
        fill(&mut self.encoded, least);
        let is_packed = self.encoded.len() < self.raw.len();
        if !is_packed && self.raw.len() < least {
            self.raw.resize(least, 0);
        }
        out.extend((self.raw.len() as u32).to_le_bytes());
        out.extend(if is_packed { &self.encoded } else { &self.raw });
        Ok(())
    }
}

/// Pads to at least `least` bytes with a frame that zstd skips (RFC 8878, 3.1.2): a magic number, a length, and zeros.
fn fill(packed: &mut Vec<u8>, least: usize) {
    const SKIPPED: u32 = 0x184D_2A50;
    const HEAD: usize = 8;
    if packed.len() < least {
        let length = least.saturating_sub(packed.len() + HEAD);
        packed.extend(SKIPPED.to_le_bytes());
        packed.extend((length as u32).to_le_bytes());
        packed.resize(packed.len() + length, 0);
    }
}

impl std::fmt::Debug for SampleEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampleEncoder").finish_non_exhaustive()
    }
}

pub(crate) struct SampleDecoder {
    /// The tables that the file's header describes.
    file: Vec<Table>,
    tables: Vec<Box<dyn TableDecoder>>,
    texts: Vec<Arc<str>>,
    decompressor: zstd::bulk::Decompressor<'static>,
    raw: Vec<u8>,
    /// Whether the last tables of a payload are unwanted, so that decoding stops before them.
    is_cut: bool,
    /// Whether we have read a key frame, and no frame is missing or damaged since then. Otherwise only a key frame can be decoded.
    pub(crate) has_base: bool,
    /// Number of delta frames since the last key frame.
    deltas: usize,
}

impl SampleDecoder {
    pub(crate) fn new(tables: &[Table]) -> io::Result<Self> {
        Ok(Self {
            file: tables.to_vec(),
            tables: tables.iter().map(table_decoder).collect(),
            texts: Vec::new(),
            decompressor: zstd::bulk::Decompressor::new()?,
            raw: Vec::new(),
            is_cut: false,
            has_base: false,
            deltas: 0,
        })
    }

    /// Decodes only these tables, from the next key frame on. For the tables in `rows`, decodes only the rows whose first number
    /// is in the set.
    pub(crate) fn only(&mut self, wanted: &[&str], rows: &[(&str, BTreeSet<u64>)]) {
        self.clear();
        let is_wanted = |table: &Table| wanted.contains(&table.name.as_str());
        let end = self.file.iter().rposition(is_wanted).map_or(0, |last| last + 1);
        self.is_cut = end != self.file.len();
        let decoder = |table: &Table| -> Box<dyn TableDecoder> {
            if !is_wanted(table) {
                return Box::new(Decoder::<Skipped>::new(table));
            }
            let mut decoder = table_decoder(table);
            decoder.only(rows.iter().find(|(name, _)| *name == table.name).map(|(_, rows)| rows.clone()));
            decoder
        };
        self.tables = self.file[..end].iter().map(decoder).collect();
    }

    pub(crate) fn clear(&mut self) {
        self.has_base = false;
        self.tables.iter_mut().for_each(|table| table.clear());
    }

    /// Decodes a frame and returns its times. Afterwards [`Self::sample`] returns the sample. `None` if the frame is one that no
    /// writer writes.
    pub(crate) fn apply(&mut self, is_key: bool, payload: &[u8]) -> Option<Clocks> {
        let taken = self.take(is_key, payload);
        if taken.is_none() {
            // Drop the rows, because parts of the frame may already have been applied to them.
            self.clear();
        }
        taken
    }

    fn take(&mut self, is_key: bool, payload: &[u8]) -> Option<Clocks> {
        let payload = if is_key { payload.strip_prefix(&SYNC)? } else { payload };
        let mut before = None;
        if is_key {
            before = Some(self.begin()?);
            self.deltas = 0;
        } else if !self.has_base || self.deltas == KEY_AFTER_FRAMES {
            return None;
        } else {
            self.deltas += 1;
        }
        let clocks = Clocks::of(payload)?;
        let (head, packed) = payload.split_at_checked(HEAD)?;
        let length = u32::from_le_bytes(head[CLOCKS..].try_into().ok()?) as usize;
        let mut raw = std::mem::take(&mut self.raw);
        let taken =
            self.unpack(length, packed, &mut raw).and_then(|()| self.tables(&mut Bytes(&raw), packed.len()));
        self.raw = raw;
        taken?;
        self.tasks_table().map_or(Some(()), |(tasks, texts)| tasks.end(before, texts))?;
        self.has_base = true;
        Some(clocks)
    }

    /// Starts a key frame. Returns the tasks before this frame if the decoder keeps changes.
    fn begin(&mut self) -> Option<Vec<TaskRow>> {
        let before = self.tasks_table().map_or(Some(Vec::new()), |(tasks, texts)| tasks.begin(texts));
        self.other_tables().for_each(|table| table.clear());
        self.texts = vec!["".into()];
        before
    }

    pub(crate) fn tasks_table(&mut self) -> Option<(&mut Decoder<TaskRow>, &[Arc<str>])> {
        let tasks = self.tables.iter_mut().find_map(|table| (&mut **table as &mut dyn Any).downcast_mut());
        Some((tasks?, &self.texts))
    }

    fn other_tables(&mut self) -> impl Iterator<Item = &mut Box<dyn TableDecoder>> {
        self.tables.iter_mut().filter(|table| !(&***table as &dyn Any).is::<Decoder<TaskRow>>())
    }

    /// Returns the sample of the last frame; `None` if it is one that no writer writes. Decoding the tasks is most of the work.
    pub(crate) fn sample(&mut self, clocks: Clocks, with_tasks: bool) -> Option<Sample> {
        let mut sample = Sample { unix_ns: clocks.unix_ns, mono_ns: clocks.mono_ns, ..Sample::default() };
        let texts = std::mem::take(&mut self.texts);
        let given = self.other_tables().try_for_each(|table| table.give(&texts, &mut sample));
        self.texts = texts;
        given?;
        if with_tasks {
            sample.tasks = self.tasks()?;
        }
        Some(sample)
    }

    pub(crate) fn tasks(&mut self) -> Option<Vec<TaskRow>> {
        let Some((tasks, texts)) = self.tasks_table() else { return Some(Vec::new()) };
        Some(tasks.rows(texts)?.cloned().collect())
    }

    fn unpack(&mut self, length: usize, packed: &[u8], raw: &mut Vec<u8>) -> Option<()> {
        raw.clear();
        if length == packed.len() {
            raw.extend(packed);
            return Some(());
        }
        if length > MAX_PAYLOAD || length > packed.len() * MOST_TIMES {
            return None;
        }
        raw.reserve(length);
        let got = self.decompressor.decompress_to_buffer(packed, raw).ok()?;
        (got == length).then_some(())
    }

    fn tables(&mut self, bytes: &mut Bytes<'_>, length: usize) -> Option<()> {
        // A text takes at least two bytes: its length, which is never 0, and one byte.
        let new_texts = bytes.count(2).filter(|count| *count <= length)?;
        for _ in 0..new_texts {
            let text = bytes.number().and_then(|length| bytes.take(length))?;
            if text.is_empty() || text.len() > LONGEST_TEXT {
                return None;
            }
            self.texts.push(printable(std::str::from_utf8(text).ok()?));
        }
        let mut new_left = length / BYTES_A_ROW;
        self.tables.iter_mut().try_for_each(|table| table.decode(bytes, &self.texts, &mut new_left))?;
        (self.is_cut || bytes.0.iter().all(|byte| *byte == 0)).then_some(())
    }
}

impl std::fmt::Debug for SampleDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampleDecoder").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clocks {
    pub(crate) unix_ns: u64,
    pub(crate) mono_ns: u64,
}

impl Clocks {
    /// Reads the times at the start of a payload. `payload` must not include [`SYNC`].
    pub(crate) fn of(payload: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
        Some(Self { unix_ns: word(0)?, mono_ns: word(8)? })
    }
}
