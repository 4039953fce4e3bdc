//! How a recording ended, and what it lacks.

use std::fmt;

use cgscope_layout::Loss;
use cgscope_model::{Losses, units::count};

use crate::End;

/// How a recording ended: known once the iteration is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The writer closed it.
    Clean(End),
    /// The last frame is whole, but no end frame: the writer was killed between two Samples, or still writes.
    Killed,
    /// The file ends within a frame: the writer was killed as it wrote, or the file was cut.
    Torn {
        /// Bytes of the incomplete frame.
        lost_bytes: u64,
    },
    /// Damage without a key frame after it: the gap reaches to the end of the file.
    Corrupt(Gap),
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A length that no writer writes.
    Length,
    /// The checksum does not fit.
    Checksum,
    /// The payload does not fit the kind of the frame.
    Payload,
    /// The Sample in it breaks this rule.
    Sample(&'static str),
    /// A second header, or something after the end.
    Misplaced,
}

/// Damage up to the next key frame, from which on the file is read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Offset of the damaged frame.
    pub at: u64,
    /// Bytes up to the end of the gap.
    pub lost_bytes: u64,
    /// What is wrong with the frame.
    pub damage: Damage,
    /// Samples that are lost for certain: the damaged one, and those that build on it.
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
    /// Samples that are lost for certain.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        match self {
            Self::Clean(end) => losses = end.losses(),
            Self::Killed => {}
            Self::Torn { .. } => losses.add(Loss::SamplesUnreadable, 1),
            Self::Corrupt(gap) => losses.add(Loss::SamplesUnreadable, gap.samples),
        }
        losses
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean(End { reason, unwritten, .. }) => {
                write!(f, "the recording ended because {reason}")?;
                match unwritten {
                    0 => Ok(()),
                    _ => write!(f, "; samples that could not be written to it: {unwritten}"),
                }
            }
            Self::Killed => write!(f, "the recording has no end: cgscope was killed, or still records"),
            Self::Torn { lost_bytes } => write!(
                f,
                "the recording breaks off in its last frame, of which {lost_bytes} bytes are left out: cgscope was \
                 killed as it wrote, or the file was cut"
            ),
            Self::Corrupt(Gap { at, lost_bytes, damage, .. }) => write!(
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
