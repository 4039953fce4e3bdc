use serde::Serialize;

/// The source of readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The hook in the kernel's scheduler: every single wait, with its cause.
    #[default]
    Bpf,
    /// `/proc` and the files of cgroups: sums of waits without single lengths, and only the causes that `cpu.stat` reports.
    Coarse,
}

impl Mode {
    /// Returns a value that only the hook can measure: `None` in the coarse mode.
    pub fn exact<T>(self, value: impl FnOnce() -> T) -> Option<T> {
        (self == Self::Bpf).then(value)
    }
}
