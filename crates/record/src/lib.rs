//! The file of Samples: framed, versioned, checksummed. The layout is in `docs/recording-format.md`.
//!
//! A recording is worth most after something went wrong, so it is read up to the last whole frame whatever happened
//! to the writer (killed, disk full) or to the file (cut, damaged), and every reader is told how it ended.

mod cells;
mod codec;
mod connection;
mod ending;
mod error;
mod frame;
mod header;
mod index;
mod new_file;
mod opening;
mod place;
mod read;
mod rows;
mod rules;
mod search;
mod table;
mod write;

pub use cells::{Column, Kind};
pub use connection::{Incoming, Message, Outgoing};
pub use ending::{Damage, Ending, Gap};
pub use error::{FileError, ReadError, WriteError};
pub use frame::{MAGIC, MAX_PAYLOAD, VERSION};
pub use header::{Cpu, End, Header, Reason};
pub use index::{Entry, Index};
pub use new_file::create_here;
pub use place::{Beside, Place};
pub use read::{FileReader, Reader, open};
pub use table::Table;
pub use write::{FileWriter, Writer};
