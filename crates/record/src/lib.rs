//! Recordings: files of samples that are framed, versioned and checksummed. `docs/record.md` describes the layout.
//!
//! A recording is most useful after a failure. Therefore it can be read up to the last complete frame, even if the writer was
//! killed, the disk was full, or the file was cut or damaged. Every reader reports how the recording ended.

#![allow(missing_docs, reason = "comments say only what names and types do not say")]

mod cells;
mod codec;
mod connection;
mod error;
mod frame;
mod place;
mod read;
mod rows;
mod table;
mod write;

pub use codec::SampleEncoder as Outgoing;
pub use connection::{Incoming, Message};
pub use error::{Damage, Ending, FileError, Gap, ReadError, WriteError};
pub use frame::{Cpu, End, Header, MAGIC, OLDEST_VERSION, Reason, VERSION};
pub use place::{Beside, Place, create_here};
pub use read::{FileReader, Index, IndexEntry, Reader, open};
pub use write::{FileWriter, Writer};
