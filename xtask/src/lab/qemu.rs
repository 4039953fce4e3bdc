//! A QEMU that emulates a kernel faithfully.
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::lab::archive::Apt;
use crate::lab::kernels;

/// Before 8.1 one CPU may run an instruction that another has just changed ("accel/tcg: Always lock pages before
/// translation"). A kernel changes its own when BPF's statistics go on and off, and dies of it ("Oops: int3").
const LEAST: (u32, u32) = (8, 1);

/// The program, and where its files are if these are its own.
#[derive(Debug, Clone)]
pub(crate) struct Qemu {
    program: PathBuf,
    data: Option<PathBuf>,
}

impl Qemu {
    pub(crate) fn command_after(&self, before: &[&str]) -> Command {
        let mut words = before.iter().map(Path::new).chain([self.program.as_path()]);
        let mut command = Command::new(words.next().unwrap_or(&self.program));
        command.args(words);
        if let Some(data) = &self.data {
            // The firmware is that of the machine's own QEMU.
            command.arg("-L").arg(data).args(["-L", "/usr/share/seabios"]);
        }
        command
    }

    /// That of the machine; or where it is too old, the one that its release has as a backport, unpacked and not installed.
    pub(crate) fn find(apt: &Apt) -> Result<Self, Failure> {
        let installed = PathBuf::from("qemu-system-x86_64");
        if is_new_enough(&installed) {
            return Ok(Self { program: installed, data: None });
        }
        let place = kernels::cache()?.join("qemu");
        let program = place.join("usr/bin/qemu-system-x86_64");
        if !is_new_enough(&program) {
            for name in ["qemu-system-x86", "qemu-system-data"] {
                apt.unpack(&format!("{name}/bookworm-backports"), &place)?;
            }
        }
        if !is_new_enough(&program) {
            let (major, minor) = LEAST;
            return Err(Failure::Host(format!(
                "lab: there is no qemu-system-x86_64 {major}.{minor} or later, and older ones let kernels die; install one"
            )));
        }
        Ok(Self { program, data: Some(place.join("usr/share/qemu")) })
    }
}

fn is_new_enough(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| {
        version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|version| version >= LEAST)
    })
}

/// Of `QEMU emulator version 10.0.2 (Debian ...)`.
fn version(text: &str) -> Option<(u32, u32)> {
    let (_, rest) = text.split_once("version ")?;
    let mut numbers = rest.split(['.', ' ']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn the_version_is_read() {
        assert_eq!(version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright"), Some((10, 0)));
        assert!(version("QEMU emulator version 7.2.22 (Debian)") < Some((8, 1)));
        assert_eq!(version("not found"), None);
    }
}
