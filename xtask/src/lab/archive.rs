//! Downloads and unpacks Debian packages without installing them. The machine's own apt is set up for only one release, so this
//! module has its own apt configuration.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{cell::Cell, fs};

use crate::lab::arch::Arch;
use crate::setup;
use crate::steps::{self, Failure, output};

/// The Debian releases that contain the kernels of the lab. A mirror may lack some of them.
const SUITES: [&str; 4] = ["bullseye", "bookworm", "bookworm-backports", "trixie-backports"];

const SETTINGS: &str = include_str!("apt.conf");

/// An apt configuration that is independent of the machine's own. It fetches the package lists only when they are needed.
pub(crate) struct Apt {
    place: PathBuf,
    arch: Arch,
    has_lists: Cell<bool>,
}

impl Apt {
    pub(crate) fn new(arch: Arch) -> Result<Self, Failure> {
        let place = setup::cache("lab")?.join(format!("apt-{}", arch.of_debian()));
        Ok(Self { place, arch, has_lists: Cell::new(false) })
    }

    /// Returns the Debian mirror that the machine uses.
    pub(crate) fn mirror() -> Result<String, Failure> {
        let mut asked = Command::new("apt-get");
        asked.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
        let uris = output(asked.stderr(Stdio::inherit()))?;
        mirror(&uris).map(str::to_owned).ok_or_else(|| {
            Failure::Host(
                "lab: the machine's apt has no source of Debian packages, so kernels cannot be downloaded; \
                 add one, or copy kernels to ~/.cache/cgscope/lab/kernels/SERIES/vmlinuz"
                    .to_owned(),
            )
        })
    }

    /// Fetches new lists from this mirror, but only once in each run.
    fn update(&self) -> Result<(), Failure> {
        if self.has_lists.replace(true) {
            return Ok(());
        }
        let mirror = Self::mirror()?;
        for dir in ["state/lists/partial", "cache/archives/partial"] {
            let dir = self.place.join(dir);
            fs::create_dir_all(&dir).map_err(|why| steps::cannot("write", &dir, &why))?;
        }
        let sources: String = SUITES.iter().map(|suite| format!("deb {mirror} {suite} main\n")).collect();
        steps::write(&self.place.join("sources.list"), sources)?;
        let place = self.place.display().to_string();
        let settings = SETTINGS.replace("@PLACE@", &place).replace("@ARCHITECTURE@", self.arch.of_debian());
        steps::write(&self.place.join("apt.conf"), settings)?;
        eprintln!("lab: downloading the package lists of the archive");
        // If the mirror lacks one of the releases, `apt-get update` fails, but fetches the lists of the others.
        let _ = steps::status(self.command("apt-get").arg("update").stdout(Stdio::null()))?;
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // The machine's own apt settings are ignored, because they may start programs after an update.
        command.env("APT_CONFIG", self.place.join("apt.conf")).env("LC_ALL", "C");
        command
    }

    pub(crate) fn names(&self, beginning: &str) -> Result<Vec<String>, Failure> {
        self.update()?;
        let names = output(self.command("apt-cache").args(["pkgnames", beginning]))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    pub(crate) fn unpack(&self, name: &str, to: &Path) -> Result<(), Failure> {
        self.update()?;
        let debs = self.place.join("debs");
        let _ = fs::remove_dir_all(&debs);
        for dir in [&debs, to] {
            fs::create_dir_all(dir).map_err(|why| steps::cannot("write", dir, &why))?;
        }
        eprintln!("lab: downloading {name}");
        output(self.command("apt-get").args(["download", name]).current_dir(&debs))?;
        let files = fs::read_dir(&debs).map_err(|why| steps::cannot("read", &debs, &why))?;
        for deb in files.flatten() {
            output(Command::new("dpkg").arg("-x").arg(deb.path()).arg(to))?;
        }
        let _ = fs::remove_dir_all(&debs);
        Ok(())
    }
}

/// Returns the URI of the main archive in a list of sources. Only this URI ends in `/debian`; the URIs of updates and security do
/// not.
fn mirror(uris: &str) -> Option<&str> {
    uris.lines().find(|uri| uri.trim_end_matches('/').ends_with("/debian"))
}

#[cfg(test)]
mod tests {
    use super::mirror;

    #[test]
    fn the_mirror_is_that_of_the_machines_apt() {
        let uris = "https://packages.example/other\nhttp://mirror.example/debian-security/\nhttp://mirror.example/debian/\n";
        assert_eq!(mirror(uris), Some("http://mirror.example/debian/"));
        assert_eq!(mirror("https://packages.example/other\n"), None);
    }
}
