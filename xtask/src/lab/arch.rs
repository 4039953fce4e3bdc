//! The architectures of the lab's machines.
use std::env::consts::ARCH;

use crate::setup;
use crate::steps::{self, Failure};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Arch {
    #[default]
    #[value(name = "x86_64")]
    X86,
    #[value(name = "aarch64")]
    Arm,
}

impl Arch {
    pub(crate) fn of_this_machine() -> Self {
        if ARCH == Self::Arm.name() { Self::Arm } else { Self::X86 }
    }

    /// Returns the name as in Rust.
    pub(crate) fn name(self) -> &'static str {
        self.choose("x86_64", "aarch64")
    }

    /// Returns the name in Debian.
    pub(crate) fn of_debian(self) -> &'static str {
        self.choose("amd64", "arm64")
    }

    /// Returns the Debian package of QEMU.
    pub(crate) fn qemu(self) -> &'static str {
        self.choose("qemu-system-x86", "qemu-system-arm")
    }

    /// Returns what the names of serial ports begin with.
    pub(crate) fn serial_ports(self) -> &'static str {
        self.choose("ttyS", "ttyAMA")
    }

    /// Returns QEMU's arguments for the board and the CPU. Signing pointers as real machines do would take most of the time.
    pub(crate) fn machine(self) -> &'static [&'static str] {
        self.choose(&["-cpu", "max"], &["-machine", "virt,gic-version=max", "-cpu", "max,pauth-impdef=on"])
    }

    /// Returns the target of cargo; `None` for the architecture of this machine.
    pub(crate) fn target(self) -> Option<&'static str> {
        let target = self.choose("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu");
        (self.name() != ARCH).then_some(target)
    }

    /// Installs what a build and a machine of this architecture need, and returns the linker.
    pub(crate) fn cross_linker(self) -> Result<&'static str, Failure> {
        let packages = self.choose(
            "gcc-x86-64-linux-gnu libc6-dev-amd64-cross qemu-user-static mmdebstrap",
            "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static mmdebstrap",
        );
        setup::ensure(&[packages])?;
        if let (Some(target), true) = (self.target(), steps::find("rustup").is_some()) {
            setup::run(
                setup::outside(std::process::Command::new("rustup").args(["target", "add", target])),
                target,
            )?;
        }
        Ok(self.choose("x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc"))
    }

    fn choose<T>(self, x86: T, arm: T) -> T {
        match self {
            Self::X86 => x86,
            Self::Arm => arm,
        }
    }
}
