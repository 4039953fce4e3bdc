//! Builds the root file system of a virtual machine: the binary, its tests, programs with their libraries, and an init script.
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::lab::archive::Apt;
use crate::lab::kernels::{self, Kernel};
use crate::lab::{built, output};
use crate::readers::installed;
use crate::setup;
use crate::steps::{self, Failure};

/// Programs from the host that the tests call. Others come from busybox; it lacks these, or its versions differ too much.
const PROGRAMS: &str = "bash bpftool cat chrt cyclictest dash env false head id mount perf runqlat setpriv setsid sleep \
    stress-ng tail taskset timeout tmux true umount uname unshare yes";

/// Files for these programs. tmux needs a terminfo entry and a UTF-8 locale.
const FILES: [&str; 5] = [
    "/lib/terminfo/s/screen",
    "/lib/terminfo/t/tmux",
    "/lib/terminfo/x/xterm",
    "/lib/terminfo/l/linux",
    "/usr/lib/locale/C.utf8/LC_CTYPE",
];

const INIT: &str = include_str!("init.sh");
/// Runs the job.
const RUN: &str = include_str!("run.sh");
/// Starts systemd, which runs the job as a service.
const INIT_SYSTEMD: &str = include_str!("systemd/init.sh");
const SERVICE: &str = include_str!("systemd/lab.service");

pub(crate) struct Binaries {
    pub(crate) cgscope: PathBuf,
    pub(crate) tests: PathBuf,
    pub(crate) workload: PathBuf,
    /// The Debian package of `cgscope`. Only a Debian root gets it.
    pub(crate) package: Option<PathBuf>,
}

impl Binaries {
    /// Each binary with its place in the machine.
    fn places(&self) -> [(&Path, &str); 3] {
        [(&self.cgscope, "/lab/cgscope"), (&self.workload, "/lab/workload"), (&self.tests, "/lab/root")]
    }

    /// Adds links to `cgscope` on the PATH, and to it and `workload` where they were built: the tests expect them there.
    fn link(&self, archive: &mut Archive) {
        archive.link("/usr/bin/cgscope", "/lab/cgscope");
        for (built, place) in &self.places()[..2] {
            archive.link(&merged(&built.display().to_string()), place);
        }
    }
}

/// Builds the archive of the root file system. The first process runs `job`.
pub(crate) fn initrd(binaries: &Binaries, kernel: &Kernel, job: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut archive = Archive::new();
    archive.file("/lab/run", 0o755, RUN.as_bytes());
    archive.file("/lab/job", 0o644, job);
    let Some(root) = &kernel.root else {
        add_small_root(&mut archive, binaries)?;
        return Ok(archive.finish());
    };
    archive.file("/init", 0o755, INIT_SYSTEMD.as_bytes());
    archive.file("/etc/systemd/system/lab.service", 0o644, SERVICE.as_bytes());
    archive.link("/etc/systemd/system/multi-user.target.wants/lab.service", "../lab.service");
    // A new file system at /tmp would hide the links of a checkout below it. Services with a /tmp of their own need none of them.
    archive.link("/etc/systemd/system/tmp.mount", "/dev/null");
    for (from, to) in binaries.places() {
        // Their libraries are in the root.
        archive.file(to, 0o755, &read(from)?);
    }
    binaries.link(&mut archive);
    if let Some(package) = &binaries.package {
        let name = package.file_name().unwrap_or_default().display();
        archive.file(&format!("/lab/{name}"), 0o644, &read(package)?);
    }
    // The kernel unpacks one archive after the other.
    let mut both = read(root)?;
    both.extend(archive.finish());
    Ok(both)
}

/// Adds a root with busybox and programs of the host.
fn add_small_root(archive: &mut Archive, binaries: &Binaries) -> Result<(), Failure> {
    for (link, to) in
        [("/bin", "usr/bin"), ("/sbin", "usr/bin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")]
    {
        archive.link(link, to);
    }
    for dir in ["/dev", "/proc", "/sys", "/run", "/root", "/var", "/mnt"] {
        archive.directory(dir);
    }
    archive.file("/init", 0o755, INIT.as_bytes());
    archive.file("/etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n");
    archive.file("/etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n");
    add_with_libraries(archive, &find("busybox")?, "/usr/bin/busybox")?;
    for program in PROGRAMS.split(' ') {
        add_with_libraries(archive, &find(program)?, &format!("/usr/bin/{program}"))?;
    }
    // The BPF schedulers, if the lab has built them.
    for scheduler in fs::read_dir(built::schedulers()?).into_iter().flatten().flatten() {
        let name = scheduler.file_name();
        add_with_libraries(archive, &scheduler.path(), &format!("/usr/bin/{}", name.display()))?;
    }
    archive.link("/usr/bin/sh", "dash");
    for file in FILES {
        // Some distributions keep these files elsewhere; a test then reports the missing terminal.
        if let Ok(content) = fs::read(file) {
            archive.file(&merged(file), 0o644, &content);
        }
    }
    for (from, to) in binaries.places() {
        add_with_libraries(archive, from, to)?;
    }
    binaries.link(archive);
    Ok(())
}

/// Finds a program on PATH or in the `sbin` directories, which PATH may lack.
fn find(program: &str) -> Result<PathBuf, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|dir| dir.join(program)).find(|path| path.is_file()).ok_or_else(|| {
        Failure::Host(format!(
            "lab: {program} is not installed, so the tests that call it would fail; install it"
        ))
    })
}

fn add_with_libraries(archive: &mut Archive, from: &Path, to: &str) -> Result<(), Failure> {
    archive.file(&merged(to), 0o755, &read(from)?);
    // ldd fails for static programs, which need no libraries.
    for library in libraries(&output(Command::new("ldd").arg(from))?) {
        let place = merged(library);
        if !archive.has(&place) {
            archive.file(&place, 0o755, &read(Path::new(library))?);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|why| Failure::Step(format!("lab: cannot read {}: {why}", path.display())))
}

/// The library paths in the output of ldd.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let path = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
        path.starts_with('/').then(|| path.split(' ').next())?
    })
}

/// The path inside the machine, where `/bin`, `/lib` and `/lib64` are links into `/usr`.
fn merged(path: &str) -> String {
    let is_linked = ["/bin/", "/lib/", "/lib64/"].iter().any(|dir| path.starts_with(dir));
    if is_linked { format!("/usr{path}") } else { path.to_owned() }
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An initramfs archive: cpio in the "newc" format (`Documentation/driver-api/early-userspace`).
///
/// All files belong to root. Paths are absolute; missing parent directories are added.
struct Archive {
    bytes: Vec<u8>,
    made: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    fn new() -> Self {
        Self { bytes: Vec::new(), made: BTreeSet::new(), entries: 0 }
    }

    fn has(&self, path: &str) -> bool {
        self.made.contains(path)
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.parents(path);
        self.entry(path, FILE | mode, content);
    }

    fn link(&mut self, path: &str, to: &str) {
        self.parents(path);
        self.entry(path, LINK | 0o777, to.as_bytes());
    }

    fn directory(&mut self, path: &str) {
        self.parents(path);
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 0);
        self.bytes
    }

    /// Adds the parent directories. The kernel creates none, so they must precede their files in the archive.
    fn parents(&mut self, path: &str) {
        if let Some(parent) = Path::new(path).parent().and_then(Path::to_str).filter(|parent| *parent != "/")
        {
            self.directory(parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        if self.made.insert(path.to_owned()) {
            self.header(path.trim_start_matches('/'), mode, content.len());
            self.bytes.extend_from_slice(content);
            self.pad();
        }
    }

    fn header(&mut self, name: &str, mode: u32, size: usize) {
        self.entries += 1;
        // inode, mode, uid, gid, links, mtime, size, device (2), device of a node (2), length of the name, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// systemd with user sessions, container runtimes, and the programs that tests call.
const ROOT_PACKAGES: &str = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,uidmap,containerd,runc,crun,podman,catatonit,\
                        docker.io,iptables,adduser,busybox-static,curl,procps,sudo,tmux";
/// Left out: they are half of the root, and the machine holds the root in memory.
const ROOT_EXCLUDED: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/lib/*/gconv/*"];
/// Runs in the new root.
const ROOT_SETTINGS: &str = include_str!("systemd/settings.sh");
/// cpio keeps owners and hard links. Packages and lists of apt stay out.
const ROOT_PACK: &str = r#"cd "$1" && find . -xdev ! -path "./dev/*" ! -name "*.deb" ! -path "./var/lib/apt/lists/*" \
    ! -name root.cpio | cpio --quiet -o -H newc > root.cpio"#;

/// The archive of the root. Creates it if it is missing.
pub(super) fn systemd_root() -> Result<PathBuf, Failure> {
    let archive = kernels::cache()?.join("systemd/root.cpio");
    let mut version = DefaultHasher::new();
    (ROOT_PACKAGES, ROOT_EXCLUDED, ROOT_SETTINGS, ROOT_PACK).hash(&mut version);
    installed(&archive, &format!("a Debian root with systemd ({:x})", version.finish()), || {
        make_root(&archive)
    })?;
    Ok(archive)
}

fn make_root(archive: &Path) -> Result<(), Failure> {
    setup::ensure(&["mmdebstrap", "cpio"])?;
    let _ = archive.parent().map(fs::create_dir_all);
    let mut made = Command::new("mmdebstrap");
    made.stdout(Stdio::null())
        .args(["--quiet", "--variant=minbase"])
        .arg(format!("--include={ROOT_PACKAGES}"));
    made.args(ROOT_EXCLUDED.map(|path| format!("--dpkgopt=path-exclude={path}")));
    let settings = format!("chroot \"$1\" sh -c '{ROOT_SETTINGS}'");
    let taken = format!("download /root.cpio '{}'", archive.display());
    made.args([settings.as_str(), ROOT_PACK, &taken].map(|hook| format!("--customize-hook={hook}")));
    // The tests are linked with this machine's libc, so the root must have the same release.
    steps::succeed(made.args([&release()?, "/dev/null", &Apt::mirror()?]), |status| {
        format!("lab: mmdebstrap cannot make a Debian root ({status}); see its messages above")
    })
}

/// The code name of this machine's release, such as `bookworm`.
fn release() -> Result<String, Failure> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(str::to_owned).ok_or_else(|| {
        Failure::Host("lab: /etc/os-release has no code name, so no Debian root can be made".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{Archive, libraries, merged};

    #[test]
    fn the_libraries_and_the_loader_are_taken_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f24)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f24)\n";
        let found: Vec<&str> = libraries(text).collect();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert_eq!(libraries("\tnot a dynamic executable\n").count(), 0);
    }

    #[test]
    fn a_path_below_a_link_becomes_a_path_below_its_target() {
        assert_eq!(merged("/lib64/ld-linux-x86-64.so.2"), "/usr/lib64/ld-linux-x86-64.so.2");
        assert_eq!(merged("/usr/lib/a.so"), "/usr/lib/a.so");
    }

    #[test]
    fn entries_follow_their_directories_and_are_aligned_to_four_bytes() {
        let mut archive = Archive::new();
        archive.file("/usr/bin/a", 0o755, b"hello");
        let bytes = archive.finish();
        let starts: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"070701")).collect();
        assert_eq!(starts.len(), 4, "usr, usr/bin, usr/bin/a and the end");
        assert!(starts.iter().all(|start| start % 4 == 0), "{starts:?}");
        let header = |at: usize| String::from_utf8_lossy(&bytes[at..at + 110]).into_owned();
        assert_eq!(&header(starts[0])[14..22], "000041ED", "a directory, rwxr-xr-x");
        assert_eq!(&header(starts[2])[14..22], "000081ED", "a file, rwxr-xr-x");
        assert_eq!(&header(starts[2])[54..62], "00000005", "its length");
        let name = &bytes[starts[2] + 110..];
        assert!(name.starts_with(b"usr/bin/a\0hello\0\0\0"), "{name:?}");
    }

    #[test]
    fn the_same_path_is_packed_once() {
        let mut archive = Archive::new();
        archive.link("/lib", "usr/lib");
        archive.link("/lib", "elsewhere");
        assert!(archive.has("/lib") && !archive.has("/usr"));
        assert_eq!(archive.entries, 1);
    }
}
