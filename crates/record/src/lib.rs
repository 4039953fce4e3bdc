//! Recordings: files of samples, framed, versioned and checksummed. The layout is in `docs/record.md`.
//!
//! A recording is worth most after something went wrong. So a recording can be read up to the last complete frame, even if the
//! writer was killed, the disk was full, or the file was cut or damaged. Every reader reports how the recording ended.

mod cells;
mod codec;
mod connection;
mod error;
mod frame;
mod header;
mod place;
mod read;
mod rows;
mod table;
mod write;

pub use connection::{Incoming, Message, Outgoing};
pub use error::{Damage, Ending, FileError, Gap, ReadError, WriteError};
pub use frame::{MAGIC, OLDEST_VERSION, VERSION};
pub use header::{Cpu, End, Header, Reason};
pub use place::{Beside, Place, create_here};
pub use read::{FileReader, Index, IndexEntry, Reader, open};
pub use write::{FileWriter, Writer};
