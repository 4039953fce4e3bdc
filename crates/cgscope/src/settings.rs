//! The settings file: read when a screen starts, and written when the screen ends if a key changed a setting.

#[cfg(test)]
mod tests;

use std::{
    env,
    ffi::OsString,
    fs::{self, DirBuilder, File, Metadata, Permissions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use cgscope_view::settings::Settings;

const NAME: &str = "settings.toml";
/// Maximum size of a settings file, bytes. A longer file has other content.
const LONGEST_BYTES: u64 = 1024 * 1024;

/// The settings file, and its settings when the screen started.
#[derive(Debug)]
pub struct Store {
    place: Option<Place>,
    user: u32,
    begun: Settings,
    /// The errors in the file, one sentence each.
    warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The home directory, or `XDG_CONFIG_HOME`. The owner of this directory should own the settings.
    base: PathBuf,
    /// Whether the base directory may be created if it does not exist.
    is_made: bool,
    file: PathBuf,
}

impl Store {
    /// Reads the settings. Returns the defaults if the file or the home directory does not exist.
    pub fn open() -> (Self, Settings) {
        Self::at(Place::of_environment(|name| env::var_os(name)), rustix::process::geteuid().as_raw())
    }

    fn at(place: Option<Place>, user: u32) -> (Self, Settings) {
        let (settings, warnings) = place.as_ref().map_or_else(Default::default, Place::read);
        (Self { place, user, begun: settings.clone(), warnings }, settings)
    }

    /// Returns the errors in the file, as a short notice for the screen.
    pub fn notice(&self) -> Option<String> {
        let first = self.warnings.first()?;
        let more = self.warnings.len() - 1;
        Some(if more == 0 { first.clone() } else { format!("{first} (and {more} more, printed at the end)") })
    }

    /// Saves changed settings after the screen is closed, and prints the errors in the file.
    pub fn close(self, now: &Settings) {
        let failed = self.save(now).err();
        self.warnings.iter().chain(&failed).for_each(|sentence| say!("cgscope: {sentence}"));
    }

    /// Saves the settings that keys have changed since the file was read. `now` must not contain values from the command line. If
    /// nothing has changed, writes nothing. Also writes nothing if another user owns the home directory (as under sudo) and it
    /// has no settings file. A new file would be ours, in a directory from which the home's owner could not remove it.
    ///
    /// # Errors
    /// Fails, with a sentence that says why, if the file cannot be written. The file is then unchanged.
    fn save(&self, now: &Settings) -> Result<(), String> {
        let Some(place) = &self.place else { return Ok(()) };
        if self.begun.remembers_the_same(now) {
            return Ok(());
        }
        let saved = self.replace(place, now);
        saved.map_err(|why| format!("the settings are not saved: {}: {why}", place.file.display()))
    }

    fn replace(&self, place: &Place, now: &Settings) -> Result<(), String> {
        let target = Target::open(place, self.user).map_err(|error| error.to_string())?;
        let Some(target) = target else { return Ok(()) };
        // Reads the file again, because another cgscope or an editor may have changed it since the start.
        let before = target.before.as_ref().map_or("", |(text, _)| text);
        let text = Settings::save_into(before, &self.begun, now)
            .map_err(|why| format!("{why}; correct the file, or remove it"))?;
        if text == before {
            return Ok(());
        }
        target.replace(&text).map_err(|error| format!("it cannot be written ({error})"))
    }
}

impl Place {
    /// Returns the path by the XDG Base Directory Specification, which ignores relative paths.
    fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let (base, is_made, folder) = match path("XDG_CONFIG_HOME") {
            Some(base) => (base, true, "cgscope"),
            None => (path("HOME")?, false, ".config/cgscope"),
        };
        let file = base.join(folder).join(NAME);
        Some(Self { base, is_made, file })
    }

    fn read(&self) -> (Settings, Vec<String>) {
        // Opening a FIFO must not block.
        let opened =
            File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(&self.file);
        let parsed = match opened.and_then(read) {
            Ok((text, _)) => Settings::parse(&text),
            Err(error) if is_absent(&error) => Ok(Default::default()),
            Err(error) => Err(format!("it cannot be read ({error})")),
        };
        let (settings, warnings) = parsed.unwrap_or_else(|why| {
            // Starts with the reason, so that a narrow screen shows it.
            let file = self.file.display();
            let says =
                format!("{why}; the defaults are used, and nothing is saved until {file} is corrected");
            (Settings::default(), vec![says])
        });
        (settings, warnings.iter().map(|warning| format!("{NAME}, {warning}")).collect())
    }

    /// Returns the owner of the base directory, or `None` if it does not exist.
    fn owner(&self) -> Option<u32> {
        let folder = |path: &Path| fs::metadata(path).ok().filter(Metadata::is_dir);
        let found = if self.is_made { self.base.ancestors().find_map(folder) } else { folder(&self.base) };
        found.map(|found| found.uid())
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The file to replace. All steps use the directory that was opened with the place. Otherwise a user who can write to the home
/// directory could trick root with a symbolic link.
struct Target {
    place: cgscope_record::Place,
    /// The text and metadata of the file; `None` if it does not exist yet.
    before: Option<(String, Metadata)>,
}

/// Returns whether `user` must not write the file: another user owns the home directory, and not its owner but a third user owns
/// the file.
fn is_foreign(user: u32, home: Option<u32>, file: u32) -> bool {
    home.is_some_and(|home| home != user && home != file)
}

impl Target {
    /// Opens the file after following all links. Returns `None` if it does not exist and we must not create it.
    fn open(place: &Place, user: u32) -> io::Result<Option<Self>> {
        let (path, owner) = (&place.file, place.owner());
        match cgscope_record::Place::of(path).and_then(|place| Ok((read(place.open()?)?, place))) {
            Ok(((_, metadata), _)) if is_foreign(user, owner, metadata.uid()) => Err(io::Error::other(
                "it is another user's file in another user's home: run `cgscope` with a HOME of your own",
            )),
            Ok((before, place)) => Ok(Some(Self { place, before: Some(before) })),
            Err(error) if !is_absent(&error) => Err(error),
            Err(_) if fs::symlink_metadata(path).is_ok() => Err(io::Error::other(
                "it is a link to a file that does not exist: create that file, or remove the link",
            )),
            // Creates no file in another user's home.
            Err(_) if owner != Some(user) => Ok(None),
            Err(_) => {
                let folder = path.parent().ok_or(ErrorKind::InvalidInput)?;
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                Ok(Some(Self { place: cgscope_record::Place::of(path)?, before: None }))
            }
        }
    }

    /// Replaces the text, and keeps owner and mode. A reader of the file gets either the complete old or the complete new text.
    fn replace(&self, text: &str) -> io::Result<()> {
        let (mut file, beside) = self.place.create()?;
        let mut mode = 0o600;
        if let Some((_, was)) = &self.before {
            let is = file.metadata()?;
            if (is.uid(), is.gid()) != (was.uid(), was.gid()) {
                fchown(&file, Some(was.uid()), Some(was.gid()))?;
            }
            mode = was.mode() & 0o777;
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        // Without the sync, the file could be empty after a crash of the host.
        file.sync_all()?;
        beside.keep()
    }
}

/// Reads a text file. Returns an error for other kinds of files, such as a FIFO.
fn read(file: File) -> io::Result<(String, Metadata)> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > LONGEST_BYTES {
        return Err(io::Error::other("it is longer than a mebibyte"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))?;
    Ok((text, metadata))
}
