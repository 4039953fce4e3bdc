//! What stands before and after the Samples.

use std::fmt;

use cgscope_model::{Losses, Selection, doctor::CgroupLayout, printable};
use serde::{Deserialize, Deserializer, Serialize};

use crate::table::Table;

/// The first frame: what was asked for, and where. What a file of another version has not got is as in an empty one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The cgscope that wrote it. Stays in every version of the format, so that an older cgscope can name the newer one that
    /// it cannot read.
    pub cgscope_version: String,
    /// Name of the host.
    pub hostname: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -m`, in the words of Rust: `x86_64`, `aarch64`.
    pub architecture: String,
    /// CPUs that were online at the start, ascending.
    pub cpus: Vec<Cpu>,
    /// Which hierarchies of cgroups the host has: paths are those of the one with the cpu controller.
    pub cgroups: CgroupLayout,
    /// What was asked for.
    pub selection: Selection,
    /// The command that was started and followed, with its arguments.
    pub command: Option<Vec<String>>,
    /// From one Sample to the next, ns.
    pub interval_ns: u64,
    /// Wall clock at the start, ns since 1970.
    pub start_unix_ns: u64,
}

impl Header {
    /// Without what would steer a terminal: it may come from anybody.
    pub(crate) fn printable(mut self) -> Self {
        self.selection = self.selection.printable();
        let Self { cgscope_version, hostname, kernel_release, architecture, command, .. } = &mut self;
        let texts = [cgscope_version, hostname, kernel_release, architecture];
        for text in texts.into_iter().chain(command.iter_mut().flatten()) {
            *text = printable(text).to_string();
        }
        self
    }
}

/// The header's frame: the header, and what the frames after it are made of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct First<H> {
    #[serde(flatten)]
    pub(crate) header: H,
    pub(crate) tables: Vec<Table>,
}

/// A CPU that was online at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Its NUMA node, where the host tells.
    pub node: Option<u32>,
}

/// The last frame. Without it the writer was killed, or still writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Wall clock, ns since 1970.
    pub unix_ns: u64,
    /// Why it ended.
    #[serde(deserialize_with = "reason_or_other")]
    pub reason: Reason,
    /// Samples that were taken and could not be written.
    pub unwritten: u64,
}

fn reason_or_other<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
    let written = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(written).unwrap_or(Reason::Other))
}

/// Why a recording ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The time asked for was over.
    Finished,
    /// Ctrl-C or a signal.
    Interrupted,
    /// The command ended with this exit status.
    CommandExited(i32),
    /// The command was ended by this signal.
    CommandKilled(i32),
    /// No selected task was left.
    TargetGone,
    /// It goes on in another file, which begins with the last Sample of this one.
    Continued,
    /// A part of a longer recording that a trigger froze: which one and with which figures, in words.
    Triggered(String),
    /// Measuring failed, or the command could not be executed.
    Failed,
    /// The disk was full.
    DiskFull,
    /// The file could not be written any more, for another reason.
    WriteFailed,
    /// A later version of cgscope knows.
    Other,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => write!(f, "the time asked for was over"),
            Self::Interrupted => write!(f, "it was interrupted"),
            Self::CommandExited(status) => write!(f, "the command ended with exit status {status}"),
            Self::Other => write!(f, "of something that only a later cgscope can tell"),
            Self::TargetGone => write!(f, "no selected task was left"),
            Self::CommandKilled(signal) => write!(f, "the command was ended by signal {signal}"),
            Self::Continued => write!(f, "it goes on in the next file"),
            Self::Triggered(words) => write!(f, "a trigger froze this part ({})", printable(words)),
            Self::Failed => write!(f, "measuring could not go on"),
            Self::DiskFull => write!(f, "the disk was full"),
            Self::WriteFailed => write!(f, "its file could not be written any more"),
        }
    }
}

impl End {
    /// What was lost before the file was written.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        losses.add(cgscope_layout::Loss::SamplesUnreadable, self.unwritten);
        losses
    }
}
