//! Reads the memory limit of our own cgroup, and how much of it is left for tasks. Returns our own unused memory to the kernel.
//!
//! The kernel charges task storage to the memory cgroup that created the map (`bpf_map_kzalloc`, Linux 5.11), even beyond the
//! limit. Beyond the limit, the kernel would kill cgscope instead of refusing an allocation. Any user who can start threads could
//! cause this.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    slice,
};

use crate::{
    facts::{cgroup_mounts, mount_v1, mountinfo},
    limits::number,
    own_cgroup::own_directory,
    source::coarse::text,
};

/// Limit to assume if a container may hide the real limit. This is the limit of our systemd unit and of our pods.
const ASSUMED: u64 = 1 << 30;
/// Inode of the host's cgroup namespace (`PROC_CGROUP_INIT_INO`, since Linux 4.6).
const HOSTS_NAMESPACE: u64 = 0xeffffffb;

/// 1/`RESERVE` of a limit is reserved for memory other than tasks. With 180,000 threads, other memory took 80 MiB of 1 GiB, and
/// up to 130 MiB at peaks.
const RESERVE: u64 = 4;

pub(crate) struct OwnMemory {
    /// Directories of our cgroup and its visible ancestors; empty if we cannot find our cgroup.
    directories: Vec<PathBuf>,
    files: &'static Files,
    /// Whether hidden ancestors may exist and have a limit.
    hides_limits: bool,
}

/// Names of files, and of lines in `memory.stat`.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// Cached file pages. The kernel can drop them, except for the `in_memory` pages.
    cached: &'static str,
    in_memory: &'static str,
    of_root: (&'static str, bool),
}

const V2: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    cached: "file ",
    in_memory: "shmem ",
    of_root: ("cgroup.type", true),
};
const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_cache ",
    in_memory: "total_shmem ",
    of_root: ("release_agent", false),
};

impl OwnMemory {
    pub(crate) fn new(root: &Path) -> Self {
        let mountinfo = mountinfo(root);
        let v1 = mount_v1(&mountinfo, "memory");
        let (files, controller) = if v1.is_some() { (&V1, Some("memory")) } else { (&V2, None) };
        let mount = v1.or_else(|| cgroup_mounts(&mountinfo).unified);
        let ours = mount.and_then(|mount| own_directory(root, &mountinfo, &mount, controller));
        let directories: Vec<PathBuf> = ours.map_or_else(Vec::new, |(directory, path)| {
            let depth = path.split('/').filter(|name| !name.is_empty()).count();
            directory.ancestors().take(depth + 1).map(Path::to_owned).collect()
        });
        let hides_limits = match directories.last() {
            Some(top) => top.join(files.of_root.0).exists() == files.of_root.1,
            None => {
                fs::metadata(root.join("proc/self/ns/cgroup")).is_ok_and(|it| it.ino() != HOSTS_NAMESPACE)
            }
        };
        Self { directories, files, hides_limits }
    }

    /// Returns how many more bytes tasks may use; negative beyond the limit. `None` if the limit or the current use is unknown.
    pub(crate) fn room(&self) -> Option<i64> {
        let known =
            self.directories.iter().filter_map(|directory| self.room_in(directory, self.limit(directory)?));
        let assumed = || self.room_in(self.directories.first().filter(|_| self.hides_limits)?, ASSUMED);
        known.min().or_else(assumed)
    }

    /// Like [`Self::room`], for the start, when we do not follow any task. If the real limit may be hidden and the use is
    /// unknown, the use counts as 0.
    pub(crate) fn room_at_start(&self) -> Option<i64> {
        let assumed = self.hides_limits.then_some((ASSUMED - ASSUMED / RESERVE) as i64);
        self.room().or(assumed)
    }

    fn limit(&self, directory: &Path) -> Option<u64> {
        let text = fs::read_to_string(directory.join(self.files.limit)).ok()?;
        // `max`, or in v1 a huge number, means no limit.
        number(&text).filter(|limit| *limit < 1 << 60)
    }

    fn room_in(&self, directory: &Path, limit: u64) -> Option<i64> {
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let used = number(&read(self.files.used)?)?;
        let stat = read("memory.stat").unwrap_or_default();
        let of = |name: &str| text::value(stat.as_bytes(), name.as_bytes()).unwrap_or(0);
        let cached = of(self.files.cached).saturating_sub(of(self.files.in_memory));
        let free = i128::from(limit - limit / RESERVE) - i128::from(used.saturating_sub(cached));
        i64::try_from(free).ok()
    }
}

/// Returns memory to the kernel that was needed only until now: freed blocks, and pages of the program and its libraries. If such
/// a page is used again, the kernel maps it again from its cache.
pub(crate) fn return_unused() {
    unsafe extern "C" fn unmap(object: *mut libc::dl_phdr_info, _: usize, _: *mut libc::c_void) -> i32 {
        // SAFETY: the C library passes a loaded object and its headers.
        let (base, segments) = unsafe {
            ((*object).dlpi_addr, slice::from_raw_parts((*object).dlpi_phdr, (*object).dlpi_phnum.into()))
        };
        for segment in segments.iter().filter(|it| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_W == 0)
        {
            let start = (base + segment.p_vaddr) as usize;
            let page = start - start % rustix::param::page_size();
            // SAFETY: nobody has written to the segment, so its pages are equal to the file.
            unsafe { libc::madvise(page as _, start + segment.p_memsz as usize - page, libc::MADV_DONTNEED) };
        }
        0
    }
    // Reading the kernel's types takes 15 MiB for a moment. Without `malloc_trim`, the C library would keep this memory.
    // SAFETY: the callback needs no data.
    unsafe {
        libc::malloc_trim(0);
        libc::dl_iterate_phdr(Some(unmap), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::wire::{HISTOGRAM_BYTES, SLEEPER_BYTES, TASK_BYTES};

    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("cgscope-memory-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
                fs::write(path, text).expect("a file");
            }
            Self(root)
        }

        fn room(&self) -> Option<i64> {
            OwnMemory::new(&self.0).room()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_unit_limit_allows_the_expected_number_of_tasks() {
        let host = Fake::new(
            "v2",
            &[
                ("proc/self/mountinfo", V2_MOUNT),
                ("proc/self/cgroup", "0::/system.slice/cgscope.service\n"),
                ("sys/fs/cgroup/system.slice/memory.max", "max\n"),
                ("sys/fs/cgroup/system.slice/memory.current", "99999999999\n"),
                ("sys/fs/cgroup/system.slice/cgscope.service/memory.max", "1073741824\n"),
                ("sys/fs/cgroup/system.slice/cgscope.service/memory.current", "200000000\n"),
                (
                    "sys/fs/cgroup/system.slice/cgscope.service/memory.stat",
                    "anon 1\nfile 100000000\nshmem 30000000\n",
                ),
            ],
        );
        let free = (1_073_741_824 - 1_073_741_824 / RESERVE) as i64 - 130_000_000;
        assert_eq!(host.room(), Some(free));
        assert!((150_000..250_000).contains(&(free / TASK_BYTES as i64)), "{TASK_BYTES} bytes each");
        let busy = TASK_BYTES + HISTOGRAM_BYTES;
        assert!((100_000..150_000).contains(&(free / busy as i64)), "{busy} bytes each");
        assert!((400_000..700_000).contains(&(free / SLEEPER_BYTES as i64)), "{SLEEPER_BYTES} bytes each");
    }

    #[test]
    fn the_tightest_limit_of_all_ancestors_applies() {
        let host = Fake::new(
            "v1",
            &[
                ("proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
                ("proc/self/cgroup", "4:memory:/a/b\n0::/\n"),
                ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "4096\n"),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "8000000\n"),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "90000000\n"),
                ("sys/fs/cgroup/memory/a/memory.stat", "cache 0\ntotal_cache 3000000\n"),
            ],
        );
        assert_eq!(host.room(), Some(-81_000_000));
    }

    #[test]
    fn without_a_limit_any_number_of_tasks_is_followed() {
        let host = Fake::new(
            "none",
            &[
                ("proc/self/mountinfo", V2_MOUNT),
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/cgroup.procs", "1\n"),
            ],
        );
        assert_eq!(host.room(), None);
        assert_eq!(OwnMemory::new(&host.0).room_at_start(), None);
        assert_eq!(Fake::new("nothing", &[("proc/self/cgroup", "")]).room(), None);
    }

    /// The mount is the host's mount.
    #[test]
    fn in_a_cgroup_namespace_our_cgroup_is_found_by_our_process() {
        let ours = format!("7\n{}\n", std::process::id());
        let mount = |root: &str| format!("30 23 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let files = [
            ("sys/fs/cgroup/pods/cgroup.procs", "12\n"),
            ("sys/fs/cgroup/pods/other/memory.max", "1000\n"),
            ("sys/fs/cgroup/pods/other/inner/cgroup.procs", "13\n"),
            ("sys/fs/cgroup/pods/ours/memory.max", "max\n"),
            ("sys/fs/cgroup/pods/ours/inner/cgroup.procs", ours.as_str()),
            ("sys/fs/cgroup/pods/ours/inner/memory.max", "8000000\n"),
            ("sys/fs/cgroup/pods/ours/inner/memory.current", "1000000\n"),
        ];
        let within = |name: &str, shows: &str, path: &str| {
            let (mount, path) = (mount(shows), format!("0::{path}\n"));
            let of_process = [("proc/self/mountinfo", mount.as_str()), ("proc/self/cgroup", path.as_str())];
            Fake::new(name, &[&files[..], &of_process].concat()).room()
        };
        assert_eq!(within("at-its-root", "/../../..", "/"), Some(7_000_000 - 2_000_000));
        assert_eq!(within("below-its-root", "/../..", "/inner"), Some(5_000_000));
        assert_eq!(within("elsewhere", "/../..", "/other"), None, "our process is not there");
        assert_eq!(within("beside", "/../../else", "/inner"), None, "the mount does not show us");
    }

    #[test]
    fn a_container_without_a_known_limit_has_that_of_our_pods() {
        let host = Fake::new(
            "assumed",
            &[
                ("proc/self/mountinfo", V2_MOUNT),
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/cgroup.type", "domain\n"),
                ("sys/fs/cgroup/memory.max", "max\n"),
                ("sys/fs/cgroup/memory.current", "5000000\n"),
            ],
        );
        assert_eq!(host.room(), Some((3 << 28) - 5_000_000));
        // No file shows our limit. We can read only the inode of our namespace.
        let hidden = Fake::new("hidden", &[("proc/self/cgroup", "0::/\n"), ("proc/self/ns/cgroup", "")]);
        let memory = OwnMemory::new(&hidden.0);
        assert_eq!((memory.room(), memory.room_at_start()), (None, Some(3 << 28)));
    }
}
