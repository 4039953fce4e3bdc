//! The memory limit of our own cgroup, and how much of it is left for tasks.
//!
//! The kernel charges task storage to the memory cgroup that created the map (`bpf_map_kzalloc`, Linux 5.11), even beyond its
//! limit. So it would kill cgscope instead of refusing an allocation, and any user who may start threads could cause that.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    facts::{cgroup_mounts, mount_v1, mountinfo},
    limits::number,
    own_cgroup::own_directory,
    source::coarse::text,
};

/// This fraction of a limit stays free for other memory. With 180,000 threads and 1 GiB, that memory took 80 MiB, at peaks 50 MiB
/// more.
const RESERVE: u64 = 4;

#[derive(Debug)]
pub(crate) struct OwnMemory {
    directories: Vec<PathBuf>,
    files: &'static Files,
}

/// Names of files, and of lines in `memory.stat`.
#[derive(Debug)]
struct Files {
    limit: &'static str,
    used: &'static str,
    /// Cached file pages. They can be dropped, except for those of `in_memory`.
    cached: &'static str,
    in_memory: &'static str,
}

const V2: Files = Files { limit: "memory.max", used: "memory.current", cached: "file ", in_memory: "shmem " };
const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_cache ",
    in_memory: "total_shmem ",
};

impl OwnMemory {
    pub(crate) fn new(root: &Path) -> Self {
        let mountinfo = mountinfo(root);
        let v1 = mount_v1(&mountinfo, "memory");
        let (files, controller) = if v1.is_some() { (&V1, Some("memory")) } else { (&V2, None) };
        let mount = v1.or_else(|| cgroup_mounts(&mountinfo).unified);
        let ours = mount.and_then(|mount| own_directory(root, &mountinfo, &mount, controller));
        let directories = ours.map_or_else(Vec::new, |(directory, path)| {
            let depth = path.split('/').filter(|name| !name.is_empty()).count();
            directory.ancestors().take(depth + 1).map(Path::to_owned).collect()
        });
        Self { directories, files }
    }

    /// Returns how many bytes the followed tasks may take in addition; negative if they take too many. `None` if there is no limit.
    pub(crate) fn room(&self) -> Option<i64> {
        self.directories.iter().filter_map(|directory| self.room_in(directory)).min()
    }

    fn room_in(&self, directory: &Path) -> Option<i64> {
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        // `max`, or in v1 a huge number, means no limit.
        let limit = number(&read(self.files.limit)?).filter(|limit| *limit < 1 << 60)?;
        let used = number(&read(self.files.used)?)?;
        let stat = read("memory.stat").unwrap_or_default();
        let of = |name: &str| text::value(stat.as_bytes(), name.as_bytes()).unwrap_or(0);
        let cached = of(self.files.cached).saturating_sub(of(self.files.in_memory));
        let free = i128::from(limit - limit / RESERVE) - i128::from(used.saturating_sub(cached));
        i64::try_from(free).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_layout::wire::{SLEEPER_BYTES, TASK_BYTES};

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
        assert!((50_000..110_000).contains(&(free / TASK_BYTES as i64)), "{TASK_BYTES} bytes each");
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
        assert_eq!(Fake::new("nothing", &[("proc/self/cgroup", "")]).room(), None);
    }
}
