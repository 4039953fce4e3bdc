//! Where readings come from.

use serde::Serialize;

/// Where readings come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// From the hook in the kernel's scheduler: every single wait, with its cause.
    #[default]
    Bpf,
    /// From `/proc` and the files of cgroups: sums of waits, no lengths, and only the causes that `cpu.stat` reports.
    Coarse,
}

impl Mode {
    /// A value that only the hook can measure: `None` in the coarse mode.
    pub fn exact<T>(self, value: impl FnOnce() -> T) -> Option<T> {
        (self == Self::Bpf).then(value)
    }
}
