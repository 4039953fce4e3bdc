//! Creates the Debian root that the machine `systemd` boots, with mmdebstrap, and keeps it as an archive for the kernel.
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::lab::archive::Apt;
use crate::lab::kernels;
use crate::readers::installed;
use crate::{setup, steps};

/// systemd with user sessions, container runtimes, and the programs that tests call.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,uidmap,containerd,runc,crun,podman,catatonit,\
                        docker.io,iptables,adduser,busybox-static,curl,procps,sudo,tmux";
/// Left out: they are half of the root, and the machine holds the root in memory.
const EXCLUDED: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/lib/*/gconv/*"];
/// Runs in the new root.
const SETTINGS: &str = include_str!("systemd/settings.sh");
/// cpio keeps owners and hard links. Packages and lists of apt stay out.
const PACK: &str = r#"cd "$1" && find . -xdev ! -path "./dev/*" ! -name "*.deb" ! -path "./var/lib/apt/lists/*" \
    ! -name root.cpio | cpio --quiet -o -H newc > root.cpio"#;

/// The archive of the root. Creates it if it is missing.
pub(super) fn root() -> Result<PathBuf, Failure> {
    let archive = kernels::cache()?.join("systemd/root.cpio");
    let mut version = DefaultHasher::new();
    (PACKAGES, EXCLUDED, SETTINGS, PACK).hash(&mut version);
    installed(&archive, &format!("a Debian root with systemd ({:x})", version.finish()), || make(&archive))?;
    Ok(archive)
}

fn make(archive: &Path) -> Result<(), Failure> {
    setup::ensure(&["mmdebstrap", "cpio"])?;
    let _ = archive.parent().map(fs::create_dir_all);
    let mut made = Command::new("mmdebstrap");
    made.stdout(Stdio::null()).args(["--quiet", "--variant=minbase"]).arg(format!("--include={PACKAGES}"));
    made.args(EXCLUDED.map(|path| format!("--dpkgopt=path-exclude={path}")));
    let settings = format!("chroot \"$1\" sh -c '{SETTINGS}'");
    let taken = format!("download /root.cpio '{}'", archive.display());
    made.args([settings.as_str(), PACK, &taken].map(|hook| format!("--customize-hook={hook}")));
    // The tests are linked with this machine's libc, so the root must have the same release.
    let status = steps::status(made.args([&release()?, "/dev/null", &Apt::mirror()?]))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Step(format!(
        "lab: mmdebstrap cannot make a Debian root ({status}); see its messages above"
    )))
}

/// The code name of this machine's release, such as `bookworm`.
fn release() -> Result<String, Failure> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(str::to_owned).ok_or_else(|| {
        Failure::Host("lab: /etc/os-release has no code name, so no Debian root can be made".to_owned())
    })
}
