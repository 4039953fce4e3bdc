//! Builds the root file system of a virtual machine: the binary, its tests, programs with their libraries, and an init script.
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{collections::BTreeSet, fs};

use crate::dist::Tree;
use crate::lab::kernels::{self, Kernel};
use crate::lab::{arch::Arch, archive::Apt, vm};
use crate::setup::{self, installed};
use crate::steps::{self, Failure};

/// Programs of the host that the tests call. All other programs come from busybox. It lacks these programs, or its versions
/// differ too much.
const PROGRAMS: &str = "busybox bash bpftool cat chrt cyclictest dash env false head id mount nice perf runqlat setpriv setsid sleep \
    stress-ng tail taskset timeout tmux true umount uname unshare yes";

/// Files that these programs need. tmux needs a terminfo entry and a UTF-8 locale.
const FILES: [&str; 5] = [
    "/lib/terminfo/s/screen",
    "/lib/terminfo/t/tmux",
    "/lib/terminfo/x/xterm",
    "/lib/terminfo/l/linux",
    "/usr/lib/locale/C.utf8/LC_CTYPE",
];

const INIT: &str = include_str!("init.sh");
const RUN: &str = include_str!("run.sh");
/// The script that starts systemd. systemd runs the job as a service.
const INIT_SYSTEMD: &str = include_str!("systemd/init.sh");
const SERVICE: &str = include_str!("systemd/lab.service");

pub(crate) struct Binaries {
    /// `None`: that of this machine.
    pub(crate) arch: Option<Arch>,
    pub(crate) cgscope: PathBuf,
    pub(crate) tests: PathBuf,
    pub(crate) workload: PathBuf,
    /// The Debian package of `cgscope`. It is only installed in a root with Debian.
    pub(crate) package: Option<PathBuf>,
}

impl Binaries {
    fn places(&self) -> [(&Path, &'static str); 3] {
        [(&self.cgscope, "lab/cgscope"), (&self.workload, "lab/workload"), (&self.tests, "lab/root")]
    }
}

/// Packs the files of the root. The result follows the given archives, because the kernel unpacks one archive after the other.
/// All files belong to root.
const PACK: &str = r#"root=$1 initrd=$2; shift 2; cd "$root" &&
    { cat /dev/null "$@" && find . | cpio --quiet -o -H newc --owner=0:0; } > "$initrd""#;

/// Builds the archive of the root file system, whose first process runs `job`. Returns the path of the archive.
pub(crate) fn initrd(binaries: &Binaries, kernel: &Kernel, job: &[u8]) -> Result<PathBuf, Failure> {
    let place = vm::place(kernel);
    let _ = fs::remove_dir_all(place.join("root"));
    let tree = Tree::new(place.join("root"))?;
    let script = |text: &str| text.replace("ttyS", kernel.id.arch.serial_ports());
    tree.put("lab/run", script(RUN).as_bytes(), 0o755)?;
    tree.put("lab/job", job, 0o644)?;
    match &kernel.root {
        None => put_small_root(&tree, binaries)?,
        Some(_) => put_service(&tree, binaries)?,
    }
    for (from, to) in binaries.places() {
        tree.copy(from, to, 0o755)?;
    }
    // `cgscope` is on PATH. `cgscope` and `workload` are also at the paths where they were built, because the tests expect them
    // there.
    tree.link("usr/bin/cgscope", "/lab/cgscope")?;
    for (built, to) in &binaries.places()[..2] {
        tree.link(&inside(built), &format!("/{to}"))?;
    }
    let initrd = place.join("initrd");
    let mut pack = Command::new("sh");
    pack.args(["-c", PACK, "pack"]).args([&tree.root, &initrd]).args(&kernel.root);
    steps::output(&mut pack)?;
    let _ = fs::remove_dir_all(&tree.root);
    Ok(initrd)
}

/// Adds the service that runs the job. It is for a root with Debian, which has the libraries of the binaries.
fn put_service(tree: &Tree, binaries: &Binaries) -> Result<(), Failure> {
    tree.put("init", INIT_SYSTEMD.as_bytes(), 0o755)?;
    tree.put("etc/systemd/system/lab.service", SERVICE.as_bytes(), 0o644)?;
    tree.link("etc/systemd/system/multi-user.target.wants/lab.service", "../lab.service")?;
    // If systemd mounted a new file system at /tmp, it would hide the links of a checkout in /tmp. Services with a private /tmp
    // do not need these links.
    tree.link("etc/systemd/system/tmp.mount", "/dev/null")?;
    binaries.package.iter().try_for_each(|package| {
        let name = package.file_name().unwrap_or_default().display();
        tree.copy(package, &format!("lab/{name}"), 0o644)
    })
}

fn put_small_root(tree: &Tree, binaries: &Binaries) -> Result<(), Failure> {
    let root = other_root(binaries.arch)?;
    for dir in ["usr/bin", "usr/lib", "usr/lib64", "dev", "proc", "sys", "run", "root", "var", "mnt"] {
        tree.directory(Path::new(dir))?;
    }
    for (link, to) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
        ("bin/sh", "dash"),
    ] {
        tree.link(link, to)?;
    }
    tree.put("init", INIT.as_bytes(), 0o755)?;
    tree.put("etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n", 0o644)?;
    tree.put("etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)?;
    let found = |program: &str| {
        let why = "is not installed, so the tests that call it would fail; install it";
        let found = match &root {
            None => steps::find(program),
            Some(root) => BINARIES.iter().map(|dir| root.join(dir).join(program)).find(|path| path.is_file()),
        };
        found.ok_or_else(|| Failure::Host(format!("lab: {program} {why}")))
    };
    let mut programs = PROGRAMS.split(' ').map(found).collect::<Result<Vec<_>, _>>()?;
    if root.is_none() {
        // The BPF schedulers exist only if the lab has built the kernel.
        let schedulers = fs::read_dir(kernels::schedulers()?).into_iter().flatten().flatten();
        programs.extend(schedulers.map(|scheduler| scheduler.path()));
    }
    for program in &programs {
        tree.copy(program, &format!("usr/bin/{}", program.file_name().unwrap_or_default().display()), 0o755)?;
    }
    let all = programs.iter().map(PathBuf::as_path).chain(binaries.places().map(|(from, _)| from));
    // ldd fails for static programs, which need no libraries.
    let mut listed = String::new();
    for program in all {
        let mut list = Command::new("ldd");
        list.arg(program);
        if root.is_some() {
            // This is what ldd does. These two are static, so they would run.
            if program.ends_with("busybox") || program == binaries.cgscope {
                continue;
            }
            list = runner(binaries.arch, program)?;
            list.env("LD_TRACE_LOADED_OBJECTS", "1");
        }
        let said = list.output().map_err(|why| steps::did_not_start(&list, &why))?;
        listed += &String::from_utf8_lossy(&said.stdout);
    }
    for library in libraries(&listed) {
        let from = root
            .as_ref()
            .map_or_else(|| PathBuf::from(library), |root| root.join(inside(Path::new(library))));
        tree.copy(&from, &inside(Path::new(library)), 0o755)?;
    }
    // Some distributions keep these files elsewhere. If a file is missing, a test reports that there is no terminal.
    let mut files = FILES.into_iter().map(Path::new).filter(|file| file.is_file());
    files.try_for_each(|file| tree.copy(file, &inside(file), 0o644))
}

/// Where programs are in a root.
const BINARIES: [&str; 4] = ["usr/bin", "bin", "usr/sbin", "sbin"];
/// The Debian packages of [`PROGRAMS`].
const PACKAGES: &str = "busybox-static,bash,bpftool,coreutils,dash,util-linux,mount,rt-tests,linux-perf,libbpf-tools,stress-ng,tmux";

/// Returns the directory with [`PROGRAMS`] for another architecture; `None` for that of this machine.
fn other_root(arch: Option<Arch>) -> Result<Option<PathBuf>, Failure> {
    let Some(arch) = arch.filter(|arch| arch.target().is_some()) else { return Ok(None) };
    let root = setup::cache("lab")?.join(format!("root-{}", arch.of_debian()));
    installed(&root, &format!("programs for {} ({PACKAGES})", arch.name()), || {
        let _ = fs::remove_dir_all(&root);
        let mut made = Command::new("mmdebstrap");
        made.args(["--quiet", "--variant=extract"]).arg(format!("--architectures={}", arch.of_debian()));
        made.arg(format!("--include={PACKAGES}")).arg(release()?).arg(&root).arg(Apt::mirror()?);
        steps::succeed(made.stdout(Stdio::null()), "lab: mmdebstrap cannot unpack programs")
    })?;
    Ok(Some(root))
}

/// Returns a command that runs a program, which may be of another architecture.
pub(crate) fn runner(arch: Option<Arch>, program: &Path) -> Result<Command, Failure> {
    let Some((root, arch)) = other_root(arch)?.zip(arch) else { return Ok(Command::new(program)) };
    let mut command = Command::new(format!("qemu-{}-static", arch.name()));
    command.arg("-L").arg(root).arg(program);
    Ok(command)
}

/// Returns the path relative to the machine's root.
fn inside(path: &Path) -> String {
    path.display().to_string().trim_start_matches('/').to_owned()
}

/// Returns the library paths in the output of ldd, which names each program at the start of a line.
fn libraries(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('\t'));
    let paths = lines.map(|line| line.split_once(" => ").map_or(line, |(_, path)| path));
    paths.filter(|path| path.starts_with('/')).filter_map(|path| path.split(' ').next()).collect()
}

/// Packages of the Debian root: systemd with user sessions, container runtimes, and the programs that tests call.
const ROOT_PACKAGES: &str = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,uidmap,containerd,runc,crun,podman,catatonit,\
                        docker.io,iptables,adduser,busybox-static,curl,procps,sudo,tmux";
/// Files that are left out. Without them, the root is half as large. The machine holds the root in memory.
const ROOT_EXCLUDED: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/lib/*/gconv/*"];
const ROOT_SETTINGS: &str = include_str!("systemd/settings.sh");
/// Packs the root. cpio keeps owners and hard links. Packages and lists of apt are left out.
const ROOT_PACK: &str = r#"cd "$1" && find . -xdev ! -path "./dev/*" ! -name "*.deb" ! -path "./var/lib/apt/lists/*" \
    ! -name root.cpio | cpio --quiet -o -H newc > root.cpio"#;

/// Returns the archive of the root. Creates a missing archive.
pub(super) fn systemd_root() -> Result<PathBuf, Failure> {
    let archive = setup::cache("lab")?.join("systemd/root.cpio");
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
    // The tests are linked with the libc of this machine, so the root must be the same Debian release.
    made.args([&release()?, "/dev/null", &Apt::mirror()?]);
    steps::succeed(&mut made, "lab: mmdebstrap cannot make a Debian root")
}

/// Returns the code name of this machine's Debian release, such as `bookworm`.
fn release() -> Result<String, Failure> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(str::to_owned).ok_or_else(|| {
        Failure::Host("lab: /etc/os-release has no code name, so no Debian root can be made".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::libraries;

    #[test]
    fn the_libraries_and_the_loader_are_taken_from_ldd() {
        let text = "/usr/bin/bash:\n\
                    \tlinux-vdso.so.1 (0x00007ffe)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f24)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f24)\n";
        let found: Vec<&str> = libraries(text).into_iter().collect();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(libraries("\tnot a dynamic executable\n").is_empty());
    }
}
