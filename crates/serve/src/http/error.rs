//! Why pages cannot be served: what is wrong, what that prevents, what to do.

use std::{borrow::Cow, fmt, fs, path::Path};

/// What is wrong, in a sentence with its consequence and its remedy.
#[derive(Debug)]
pub struct Error {
    what: String,
    remedy: Cow<'static, str>,
    /// What was read before stays in use. If not, nothing is served by HTTP.
    pub is_kept: bool,
}

impl Error {
    pub(super) fn new(what: String, remedy: impl Into<Cow<'static, str>>) -> Self {
        Self { what, remedy: remedy.into(), is_kept: false }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.is_kept {
            true => "so what was read before stays in use",
            false => "so nothing is served by HTTP",
        };
        write!(f, "{}, {effect}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for Error {}

/// The content of a file that the configuration names under this key.
pub(super) fn read_file(key: &str, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| {
        let what = format!("{} could not be read ({error})", path.display());
        Error::new(what, format!("name as `{key}` in [http] a file that the daemon's user may read"))
    })
}
