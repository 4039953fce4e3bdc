//! Reads memory by NUMA node: for cgroups from `memory.numa_stat`, for processes from `numa_maps`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_model::{
    ProcessMemory, TaskReading,
    placement::{ByNode, add_by_node},
    sum,
};

/// Lines of `memory.numa_stat` in v2 that do not count the same memory twice (`memory_stats` in `mm/memcontrol.c`).
const DISJOINT: [&str; 6] =
    ["anon", "file", "kernel_stack", "pagetables", "slab_reclaimable", "slab_unreclaimable"];

pub fn numa_stat(text: &str) -> Vec<(u32, u64)> {
    let is_counted = |line: &&str| line.split(' ').next().is_some_and(|name| DISJOINT.contains(&name));
    let words = text.lines().filter(is_counted).flat_map(|line| line.split(' ').skip(1));
    let mut sums = ByNode::new();
    words.filter_map(node_amount).for_each(|(node, bytes)| add_by_node(&mut sums, node, bytes));
    sums
}

/// Converts v1's `memory.numa_stat` from pages to bytes. Before Linux 3.17, it has only `total=...`, without descendants.
pub fn numa_stat_v1(text: &str, page_bytes: u64) -> Vec<(u32, u64)> {
    let line = |name: &str| text.lines().find(|line| line.starts_with(name));
    let line = line("hierarchical_total=").or_else(|| line("total=")).unwrap_or_default();
    let pages: BTreeMap<u32, u64> = line.split(' ').filter_map(node_amount).collect();
    pages.into_iter().map(|(node, pages)| (node, pages.saturating_mul(page_bytes))).collect()
}

fn node_amount(word: &str) -> Option<(u32, u64)> {
    let (node, amount) = word.strip_prefix('N')?.split_once('=')?;
    Some((node.parse().ok()?, amount.parse().ok()?))
}

#[derive(Debug, Default)]
struct Maps {
    by_node: ByNode,
    policies: BTreeMap<Arc<str>, u64>,
}

impl Maps {
    /// Adds a line such as `7f12 bind:1 anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4` (`show_numa_map` in `fs/proc/task_mmu.c`).
    /// The kernel escapes spaces in file names. Two policy names contain a space.
    fn add(&mut self, line: &str, page_bytes: u64) {
        let Some((_, rest)) = line.split_once(' ') else { return };
        let begin = ["weighted interleave", "prefer (many)"].iter().find(|name| rest.starts_with(*name));
        let begin = begin.map_or(0, |name| name.len());
        let end = rest[begin..].find(' ').map_or(rest.len(), |end| begin + end);
        let (policy, words) = rest.split_at(end);
        let page_kib =
            words.split(' ').find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse().ok());
        let page_bytes = page_kib.map_or(page_bytes, |kib: u64| kib.saturating_mul(1024));
        let mut bytes = 0u64;
        for (node, pages) in words.split(' ').filter_map(node_amount) {
            let there = pages.saturating_mul(page_bytes);
            add_by_node(&mut self.by_node, node, there);
            bytes = bytes.saturating_add(there);
        }
        if bytes != 0 {
            sum::add(self.policies.entry(policy.into()).or_default(), bytes);
        }
    }

    fn of(self, tgid: u32) -> ProcessMemory {
        let mut policies: Vec<(Arc<str>, u64)> = self.policies.into_iter().collect();
        policies.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        policies.truncate(POLICIES);
        ProcessMemory { tgid, by_node: self.by_node, policies }
    }
}

const POLICIES: usize = 8;
/// Maximum number of processes to read. We choose the processes with the most CPU time so far.
const PROCESSES: usize = 16;
const PAUSE: Duration = Duration::from_secs(1);
/// Minimum pause between two readings, as a multiple of the duration of the last reading. Readings thus take at most 1 % of the
/// time.
const PAUSES_PER_READING: u32 = 100;

/// Reads on which NUMA nodes the memory of processes is, only on demand. The kernel walks the page tables of each mapping, which
/// takes milliseconds per GiB with 4 KiB pages. During this walk, the kernel holds the mmap lock for reading: the process can
/// fault pages, but cannot map or unmap memory.
pub(crate) struct MemoryFiles {
    root: PathBuf,
    due: Option<Instant>,
    latest: Vec<ProcessMemory>,
}

impl MemoryFiles {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.into(), due: None, latest: Vec::new() }
    }

    /// Returns the memory of the processes of these tasks, ascending by process id. If no reading is due, returns the previous
    /// result.
    pub(crate) fn read(&mut self, tasks: &[Arc<TaskReading>], now: Instant) -> Vec<ProcessMemory> {
        let is_due = self.due.is_none_or(|due| now >= due);
        if is_due {
            let began = Instant::now();
            self.latest = busiest(tasks).into_iter().filter_map(|tgid| self.process(tgid)).collect();
            self.due = Some(now + PAUSE.max(began.elapsed() * PAUSES_PER_READING));
        } else {
            self.latest.retain(|memory| tasks.iter().any(|task| task.tgid == memory.tgid));
        }
        self.latest.clone()
    }

    /// Returns `None` if the process has exited, is unreadable or has no memory (kernel threads), or without NUMA support.
    fn process(&self, tgid: u32) -> Option<ProcessMemory> {
        let file = File::open(self.root.join(format!("proc/{tgid}/numa_maps"))).ok()?;
        let page_bytes = rustix::param::page_size() as u64;
        let mut maps = Maps::default();
        for line in BufReader::with_capacity(1 << 16, file).split(b'\n') {
            maps.add(&String::from_utf8_lossy(&line.ok()?), page_bytes);
        }
        (!maps.by_node.is_empty()).then(|| maps.of(tgid))
    }
}

fn busiest(tasks: &[Arc<TaskReading>]) -> BTreeSet<u32> {
    let ran = sum::tally(tasks.iter().map(|task| (task.tgid, task.totals.on_cpu_ns)));
    let mut ran: Vec<(u32, u64)> = ran.into_iter().collect();
    ran.sort_by_key(|(tgid, ns)| (std::cmp::Reverse(*ns), *tgid));
    ran.into_iter().take(PROCESSES).map(|(tgid, _)| tgid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_v2_cgroup_is_the_sum_of_lines_that_do_not_overlap() {
        let text = "anon N0=4096 N8=100\nfile N0=1 N8=2\nkernel_stack N0=10 N8=0\nshmem N0=9999 N8=9999\n\
                    file_mapped N0=9999 N8=9999\ninactive_anon N0=9999 N8=9999\nslab_reclaimable N0=5 N8=5\n\
                    workingset_refault_anon N0=9999 N8=9999\n";
        assert_eq!(numa_stat(text), [(0, 4096 + 1 + 10 + 5), (8, 107)]);
        assert_eq!(numa_stat(""), []);
        assert_eq!(numa_stat("anon Nx=3 N0\n"), []);
    }

    #[test]
    fn memory_of_a_v1_cgroup_includes_descendants_if_the_file_does() {
        let text = "total=3 N0=1 N1=2\nfile=1 N0=1 N1=0\nanon=2 N0=0 N1=2\nunevictable=0 N0=0 N1=0\n";
        assert_eq!(numa_stat_v1(text, 4096), [(0, 4096), (1, 8192)]);
        let text = format!("{text}hierarchical_total=30 N0=10 N1=20\nhierarchical_file=1 N0=1 N1=0\n");
        assert_eq!(numa_stat_v1(&text, 65536), [(0, 655_360), (1, 1_310_720)]);
        assert_eq!(numa_stat_v1("", 4096), []);
    }

    fn maps(lines: &[&str]) -> ProcessMemory {
        let mut maps = Maps::default();
        lines.iter().for_each(|line| maps.add(line, 4096));
        maps.of(7)
    }

    #[test]
    fn a_process_has_its_pages_by_node_in_bytes_and_by_policy() {
        let memory = maps(&[
            "00400000 default file=/bin/a\\040b N1=99x mapped=3 N0=3 kernelpagesize_kB=4",
            "7f000000 bind:1 anon=10 dirty=10 active=0 N0=2 N1=8 kernelpagesize_kB=4",
            "7f100000 bind:1 huge anon=1 dirty=1 N1=1 kernelpagesize_kB=2048",
            "7f200000 prefer (many):0-1 anon=1 N0=1 kernelpagesize_kB=4",
            "7f300000 weighted interleave:0-1 anon=1 N1=1 kernelpagesize_kB=4",
            "7f400000 interleave=static:0-1 stack anon=1 N0=1",
            "7f500000 default",
        ]);
        assert_eq!(memory.tgid, 7);
        assert_eq!(memory.by_node, [(0, 7 * 4096), (1, 9 * 4096 + (2 << 20))]);
        let policies: Vec<(&str, u64)> =
            memory.policies.iter().map(|(policy, bytes)| (policy.as_ref(), *bytes)).collect();
        assert_eq!(
            policies,
            [
                ("bind:1", 10 * 4096 + (2 << 20)),
                ("default", 3 * 4096),
                ("interleave=static:0-1", 4096),
                ("prefer (many):0-1", 4096),
                ("weighted interleave:0-1", 4096),
            ]
        );
    }

    #[test]
    fn invalid_lines_count_no_memory() {
        assert_eq!(maps(&["", "x", "7f N0=1", "7f default N0=z N=3 N0"]).by_node, []);
    }
}
