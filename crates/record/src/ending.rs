//! How a recording ended, and what is missing of it.

use std::fmt;

use cgscope_layout::Loss;
use cgscope_model::{Losses, units::count};

use crate::End;

/// How a recording ended: known once the iteration is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The writer closed it.
    Clean(End),
    /// No end frame, but the last frame is whole: the writer was killed between two Samples, or still writes.
    Killed,
    /// The file ends within a frame: the writer was killed as it wrote, or the file was cut.
    Torn {
        /// Bytes of the incomplete frame.
        lost_bytes: u64,
    },
    /// Damage, and no Sample after it that stands for itself.
    Corrupt {
        /// Where the damaged frame begins.
        at: u64,
        /// Bytes from there to the end of the file.
        lost_bytes: u64,
        /// What is wrong there.
        damage: Damage,
        /// Samples that are sure to be lost.
        samples: u64,
    },
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its length is one that no writer writes.
    Length,
    /// Its checksum does not fit.
    Checksum,
    /// Its payload is not what its kind says.
    Payload,
    /// It holds a Sample that breaks this rule.
    Sample(&'static str),
    /// It does not belong there: a second header, or something after the end.
    Misplaced,
}

/// Damage in the middle: the reading goes on with the next Sample that stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where the damaged frame begins.
    pub at: u64,
    /// Bytes from there to where it goes on.
    pub lost_bytes: u64,
    /// What is wrong there.
    pub damage: Damage,
    /// Samples that are sure to be lost: the damaged one, and those that build on it.
    pub samples: u64,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, lost_bytes, damage, samples } = self;
        write!(
            f,
            "the recording is damaged at byte {at} ({damage}); it goes on {lost_bytes} bytes later, without {} at least",
            count(*samples, "Sample")
        )
    }
}

impl Ending {
    /// Bytes at the end of the file that could not be used.
    pub fn lost_bytes(&self) -> u64 {
        match self {
            Self::Clean(_) | Self::Killed => 0,
            Self::Torn { lost_bytes } | Self::Corrupt { lost_bytes, .. } => *lost_bytes,
        }
    }

    /// What is missing, as outputs show it. Of a damaged rest only one Sample is sure to have been there.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        match self {
            Self::Clean(end) => losses = end.losses(),
            Self::Killed => {}
            Self::Torn { .. } => losses.add(Loss::SamplesUnreadable, 1),
            Self::Corrupt { samples, .. } => losses.add(Loss::SamplesUnreadable, *samples),
        }
        losses
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean(End { reason, unwritten: 0, .. }) => {
                write!(f, "the recording ended because {reason}")
            }
            Self::Clean(End { reason, unwritten, .. }) => {
                write!(
                    f,
                    "the recording ended because {reason}; samples that could not be written to it: {unwritten}"
                )
            }
            Self::Killed => write!(f, "the recording has no end: cgscope was killed, or still records"),
            Self::Torn { lost_bytes } => write!(
                f,
                "the recording breaks off in its last frame, of which {lost_bytes} bytes are left out: cgscope was \
                 killed as it wrote, or the file was cut"
            ),
            Self::Corrupt { at, lost_bytes, damage, .. } => write!(
                f,
                "the recording is damaged at byte {at} ({damage}); the {lost_bytes} bytes from there on are left out"
            ),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "a length that cannot be"),
            Self::Checksum => write!(f, "a checksum does not fit"),
            Self::Payload => write!(f, "a frame does not hold what it should"),
            Self::Sample(rule) => write!(f, "a sample was not believed, because {rule}"),
            Self::Misplaced => write!(f, "a frame where none belongs"),
        }
    }
}
