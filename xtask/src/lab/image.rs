//! The root of a virtual machine: the binary, its tests, the programs that they call with their libraries, and a first process.
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::lab::cpio::Archive;
use crate::steps;

/// Programs that the tests call. Others come from busybox; these must be as on the host, or busybox lacks them.
const PROGRAMS: &str = "bash bpftool cat chrt cyclictest dash env false head id mount perf runqlat setpriv setsid sleep \
    stress-ng tail taskset timeout tmux true umount uname unshare yes";

/// Files for these programs: tmux needs a terminal that it knows and a locale with UTF-8.
const FILES: [&str; 5] = [
    "/lib/terminfo/s/screen",
    "/lib/terminfo/t/tmux",
    "/lib/terminfo/x/xterm",
    "/lib/terminfo/l/linux",
    "/usr/lib/locale/C.utf8/LC_CTYPE",
];

const INIT: &str = include_str!("init.sh");

pub(crate) struct Binaries {
    pub(crate) cgscope: PathBuf,
    pub(crate) tests: PathBuf,
    pub(crate) workload: PathBuf,
}

/// The part that is the same for every kernel.
pub(crate) fn base(binaries: &Binaries) -> Result<Archive, Failure> {
    let mut archive = Archive::new();
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
    add_with_libraries(&mut archive, &find("busybox")?, "/usr/bin/busybox")?;
    for program in PROGRAMS.split(' ') {
        add_with_libraries(&mut archive, &find(program)?, &format!("/usr/bin/{program}"))?;
    }
    archive.link("/usr/bin/sh", "dash");
    for file in FILES {
        // Not every distribution has them there; the test of a missing terminal reports it.
        if let Ok(content) = fs::read(file) {
            archive.file(&merged(file), 0o644, &content);
        }
    }
    // The tests expect the two others where they were built.
    for binary in [&binaries.cgscope, &binaries.workload] {
        add_with_libraries(&mut archive, binary, &binary.display().to_string())?;
    }
    add_with_libraries(&mut archive, &binaries.tests, "/lab/root")?;
    archive.link("/usr/bin/cgscope", &binaries.cgscope.display().to_string());
    Ok(archive)
}

/// Finds a program; those of administration are not always on PATH.
fn find(program: &str) -> Result<PathBuf, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|dir| dir.join(program)).find(|path| path.is_file()).ok_or_else(|| {
        Failure::Host(format!("lab: {program} is not here, so the tests that call it would fail; install it"))
    })
}

fn add_with_libraries(archive: &mut Archive, from: &Path, to: &str) -> Result<(), Failure> {
    archive.file(&merged(to), 0o755, &read(from)?);
    let mut ldd = Command::new("ldd");
    // It fails for static programs, which need none.
    let output = ldd.arg(from).output().map_err(|why| steps::did_not_start(&ldd, &why))?;
    for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
        let place = merged(library);
        if !archive.has(&place) {
            archive.file(&place, 0o755, &read(Path::new(library))?);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|why| Failure::Step(format!("lab: {} cannot be read ({why})", path.display())))
}

/// The paths in the output of ldd.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let path = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
        path.starts_with('/').then(|| path.split(' ').next())?
    })
}

/// The path in the machine, where `/lib` and others are links into `/usr`.
fn merged(path: &str) -> String {
    let is_linked = ["/bin/", "/lib/", "/lib64/"].iter().any(|dir| path.starts_with(dir));
    if is_linked { format!("/usr{path}") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{libraries, merged};

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
    fn what_lies_behind_a_link_is_put_where_it_leads() {
        assert_eq!(merged("/lib64/ld-linux-x86-64.so.2"), "/usr/lib64/ld-linux-x86-64.so.2");
        assert_eq!(merged("/usr/lib/a.so"), "/usr/lib/a.so");
    }
}
