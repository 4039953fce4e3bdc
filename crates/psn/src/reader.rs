//! Reads the state of all threads at one moment. No hook runs between two readings.

mod task_iterator;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, io, path::Path};

use cgscope_collect::clock::{Ticks, monotonic_ns};
use cgscope_collect::facts::{self, CgroupMounts};
use cgscope_collect::shared_parts::{self, CgroupIds, Follow, ProcFiles, text};
use cgscope_collect::{Failure, KernelSymbols, cgroups::CgroupTree, cmdline};
use cgscope_ledger::Loss;
use cgscope_model::{Losses, Mode, Selection, printable};

use crate::{GroupBy, Tally, ThreadFilter, ThreadNames, ThreadReading, ThreadState};
use task_iterator::TaskIterator;

/// The fields to read for a thread, besides its name, state and CPU.
#[derive(Clone, Copy, Debug)]
pub struct WantedFields {
    /// Read threads in all states, not only active threads.
    pub(crate) all_states: bool,
    columns: u32,
}

impl WantedFields {
    pub fn new(tally: &Tally, filter: &ThreadFilter, all_states: bool) -> Self {
        let columns = tally.columns.iter().chain(filter.needs_cgroups().then_some(&GroupBy::Cgroup));
        Self { all_states, columns: columns.fold(0, |bits, column| bits | 1 << *column as u32) }
    }

    fn has(self, column: GroupBy) -> bool {
        self.columns & 1 << column as u32 != 0
    }
}

/// Reads all threads except cgscope's own threads.
pub struct ThreadReader {
    source: ThreadSource,
    pub(crate) mode: Mode,
    pub(crate) wanted: WantedFields,
    tree: Option<CgroupTree>,
    nodes: BTreeMap<u32, u32>,
    places: KernelPlaces,
    processes: ProcessNames,
    pub(crate) losses: Losses,
    /// Sentences about requested fields that this kernel does not report.
    pub refused: Vec<String>,
}

enum ThreadSource {
    Iterator(Box<TaskIterator>),
    Walk(Box<ProcWalk>),
}

/// Receives each thread that was read.
type Each<'a> = &'a mut dyn FnMut(&ThreadReading);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundRead {
    /// Number of threads that were visited, including threads that `each` does not receive.
    pub threads: u64,
    /// Whether all selected processes and threads have exited.
    pub has_target_exited: bool,
    pub is_whole: bool,
}

impl ThreadReader {
    /// Starts a reader. [`Mode::Bpf`] reads exact states with a task iterator in the kernel. [`Mode::Coarse`] reads `/proc`,
    /// which has only the kernel's state letters. The letters do not show whether a runnable thread is on a CPU or out of quota,
    /// nor which threads wait for a device.
    pub fn start(selection: &Selection, wanted: WantedFields, mode: Mode) -> Result<Self, Failure> {
        let host = Path::new("/");
        let mounts = CgroupMounts::read(host);
        let tree = mounts.cpu().map(CgroupTree::new);
        let nodes = facts::cpu_to_node(host);
        shared_parts::check(selection, tree.as_ref(), &nodes)?;
        let (places, processes, losses, mut refused) = Default::default();
        let source = match mode {
            Mode::Bpf => {
                let iterator = TaskIterator::start(selection, wanted, &mounts, tree.as_ref(), &mut refused)?;
                ThreadSource::Iterator(Box::new(iterator))
            }
            Mode::Coarse => ThreadSource::Walk(Box::new(ProcWalk::start(selection, wanted, &mounts)?)),
        };
        Ok(Self { source, mode, wanted, tree, nodes, places, processes, losses, refused })
    }

    pub(crate) fn read(&mut self, mut each: impl FnMut(&ThreadReading)) -> Result<RoundRead, Failure> {
        let (wanted, processes) = (self.wanted, &mut self.processes);
        let mut met = |reading: &ThreadReading| {
            processes.meet(reading.tgid, wanted);
            each(reading);
        };
        let read = match &mut self.source {
            ThreadSource::Iterator(iterator) => iterator.read(&mut self.places, &mut met),
            ThreadSource::Walk(walk) => walk.read(&mut self.places, &mut met),
        }?;
        self.losses.add(Loss::ReadingCutShort, u64::from(!read.is_whole));
        Ok(read)
    }

    pub(crate) fn learn_cgroups(&mut self, ids: impl IntoIterator<Item = u64> + Clone) {
        let (Some(tree), now) = (&mut self.tree, Instant::now()) else { return };
        if let ThreadSource::Walk(walk) = &self.source {
            walk.cgroups.iter().for_each(|cgroups| cgroups.report(tree, now));
        }
        tree.learn(ids, now);
    }

    /// Returns why kernel functions or processes have no names; `None` if nothing is missing.
    pub(crate) fn nameless(&self) -> Option<Failure> {
        self.places.nameless().or_else(|| {
            let is_full = self.processes.bytes >= MOST_NAME_BYTES;
            let (what, effect) = ("the names of processes take 64 MiB", "further processes have none");
            is_full.then(|| Failure::new(what, effect, "select a part of the host"))
        })
    }
}

impl ThreadNames for ThreadReader {
    fn name(&self, column: GroupBy, reading: &ThreadReading) -> Option<Arc<str>> {
        match column {
            GroupBy::Syscall => system_call(reading.syscall?),
            GroupBy::Wchan => self.places.wchan(reading.place),
            GroupBy::Kstack => self.places.kstack(reading.place),
            GroupBy::Cgroup => self.tree.as_ref()?.path(reading.cgroup_id?).cloned(),
            GroupBy::Username => Some(self.processes.user(reading.uid?)),
            GroupBy::Exe => self.processes.known.get(&reading.tgid)?.exe.clone(),
            GroupBy::Cmdline => self.processes.known.get(&reading.tgid)?.cmdline.clone(),
            // The names of the other columns are not looked up.
            _ => None,
        }
    }

    fn node(&self, cpu: u32) -> Option<u32> {
        self.nodes.get(&cpu).copied()
    }
}

/// Returns the name of a system call on this architecture, or its number if it is newer than our table.
fn system_call(number: i32) -> Option<Arc<str>> {
    let number = usize::try_from(number).ok()?;
    let call = syscalls::Sysno::new(number);
    Some(call.map_or_else(|| number.to_string().into(), |call| call.name().into()))
}

/// Time between two searches for new processes, the same as in psn.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The selected processes, the processes that they start, and the selected threads.
struct ChosenProcesses {
    pub files: ProcFiles,
    pub follow: Follow,
    pub pids: Vec<u32>,
    pub tids: Vec<u32>,
    looked: Option<Instant>,
    pub has_exited: bool,
}

impl ChosenProcesses {
    pub fn new(selection: &Selection) -> io::Result<Self> {
        let mut files = ProcFiles::open(Path::new("/proc"))?;
        let since_ticks = Ticks::of_this_host().at(monotonic_ns());
        let follow = Follow::new(selection, since_ticks, &mut files);
        let tids = selection.tids.clone();
        Ok(Self { files, follow, pids: Vec::new(), tids, looked: None, has_exited: false })
    }

    /// Searches for new processes if the last search is older than [`LOOK_EVERY`]. Returns whether it searched.
    pub fn update(&mut self) -> io::Result<bool> {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(false);
        }
        self.looked = Some(Instant::now());
        let forks = self.files.of_host("stat").and_then(text::forks);
        self.pids = self.follow.processes(&mut self.files, forks)?;
        let is_there = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
        self.has_exited = !matches!(self.follow, Follow::All)
            && !self.follow.whole_processes().chain(self.tids.iter().copied()).any(|id| is_there(&id));
        Ok(true)
    }
}

const MOST_NAME_BYTES: usize = 64 << 20;

/// Names of users, and executables and command lines of processes. They are read early, because a process might exit.
#[derive(Debug, Default)]
struct ProcessNames {
    known: HashMap<u32, ProcessName>,
    bytes: usize,
    users: OnceLock<HashMap<u32, Arc<str>>>,
}

#[derive(Debug, Default)]
struct ProcessName {
    exe: Option<Arc<str>>,
    cmdline: Option<Arc<str>>,
}

impl ProcessNames {
    /// Reads the names of a process that is new. Call this for every process that is seen.
    fn meet(&mut self, tgid: u32, wanted: WantedFields) {
        let is_wanted = wanted.has(GroupBy::Exe) || wanted.has(GroupBy::Cmdline);
        // Any user can start processes with long command lines. After this maximum, new processes get no name.
        if !is_wanted || self.bytes >= MOST_NAME_BYTES {
            return;
        }
        self.known.entry(tgid).or_insert_with(|| {
            let name = ProcessName {
                exe: wanted.has(GroupBy::Exe).then(|| exe(tgid)).flatten(),
                cmdline: wanted.has(GroupBy::Cmdline).then(|| cmdline(tgid)).flatten(),
            };
            self.bytes += size_of::<ProcessName>()
                + [&name.exe, &name.cmdline].into_iter().flatten().map(|name| name.len()).sum::<usize>();
            name
        });
    }

    /// Returns the name of a user. As in ps, the result is the user id if `/etc/passwd` has no such user.
    fn user(&self, uid: u32) -> Arc<str> {
        let users = self.users.get_or_init(|| users(&fs::read_to_string("/etc/passwd").unwrap_or_default()));
        users.get(&uid).cloned().unwrap_or_else(|| uid.to_string().into())
    }
}

/// Returns the path of a process's executable. `None` if the process is a kernel thread, has exited or is hidden from us.
fn exe(tgid: u32) -> Option<Arc<str>> {
    let path = fs::read_link(format!("/proc/{tgid}/exe")).ok()?;
    Some(printable(&path.to_string_lossy()))
}

/// Parses `/etc/passwd`. If several users share a user id, the first user counts, as for `getpwuid`.
fn users(passwd: &str) -> HashMap<u32, Arc<str>> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, printable(name)))
    };
    // A later element of a map replaces an earlier one.
    passwd.lines().rev().filter_map(user).collect()
}

/// The places in the kernel where threads are blocked, numbered from 1.
#[derive(Debug, Default)]
struct KernelPlaces {
    numbers: HashMap<KernelPlace, u32>,
    places: Vec<KernelPlace>,
    symbols: KernelSymbols,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum KernelPlace {
    /// Return addresses, the innermost first.
    Addresses(Arc<[u64]>),
    /// The text of `/proc/PID/wchan` and `/proc/PID/stack`; empty if not read.
    Text(Arc<[u8]>, Arc<[u8]>),
}

impl KernelPlaces {
    pub fn of_addresses(&mut self, addresses: &[u64]) -> u32 {
        if addresses.is_empty() { 0 } else { self.number(KernelPlace::Addresses(addresses.into())) }
    }

    /// Returns the number of a place read from `/proc`; 0 if there is none.
    pub fn of_text(&mut self, wchan: &[u8], stack: &[u8]) -> u32 {
        // A thread that is not blocked has the wchan `0`.
        let wchan = if wchan == b"0" { b"" } else { wchan };
        let is_empty = wchan.is_empty() && stack.is_empty();
        if is_empty { 0 } else { self.number(KernelPlace::Text(wchan.into(), stack.into())) }
    }

    fn number(&mut self, place: KernelPlace) -> u32 {
        *self.numbers.entry(place).or_insert_with_key(|place| {
            self.places.push(place.clone());
            self.places.len() as u32
        })
    }

    fn get(&self, number: u32) -> Option<&KernelPlace> {
        self.places.get(number.checked_sub(1)? as usize)
    }

    pub fn wchan(&self, number: u32) -> Option<Arc<str>> {
        match self.get(number)? {
            KernelPlace::Addresses(stack) => self.symbols.wchan(stack).map(Into::into),
            KernelPlace::Text(wchan, _) if wchan.is_empty() => None,
            KernelPlace::Text(wchan, _) => Some(printable(&String::from_utf8_lossy(wchan))),
        }
    }

    /// Returns the kernel stack from the outermost to the innermost function, as psn prints it. A function without a name is `?`.
    pub fn kstack(&self, number: u32) -> Option<Arc<str>> {
        let functions: Vec<String> = match self.get(number)? {
            KernelPlace::Addresses(stack) => {
                self.symbols.load().ok()?;
                let name = |address: &u64| self.symbols.caller(*address).unwrap_or("?").to_owned();
                stack.iter().map(name).collect()
            }
            KernelPlace::Text(_, stack) => functions(stack),
        };
        let functions: Vec<String> = functions.iter().rev().map(|name| format!("{name}()")).collect();
        (!functions.is_empty()).then(|| printable(&functions.join("->")))
    }

    /// Returns why addresses have no names; `None` if they have names or there are no addresses.
    pub fn nameless(&self) -> Option<Failure> {
        let has_addresses = self.places.iter().any(|place| matches!(place, KernelPlace::Addresses(_)));
        if has_addresses { self.symbols.load().err() } else { None }
    }
}

/// Parses the functions in `/proc/PID/stack`, whose lines are `[<0>] futex_wait_queue+0x61/0x90 [module]`.
fn functions(stack: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(stack);
    let line = |line: &str| {
        let function = line.split_once("] ")?.1;
        Some(function.split('+').next().unwrap_or(function).to_owned())
    };
    text.lines().filter_map(line).collect()
}

struct ProcWalk {
    chosen: ChosenProcesses,
    pub cgroups: Option<CgroupIds>,
    wanted: WantedFields,
}

impl ProcWalk {
    pub fn start(
        selection: &Selection,
        wanted: WantedFields,
        mounts: &CgroupMounts,
    ) -> Result<Self, Failure> {
        let chosen = ChosenProcesses::new(selection).map_err(|error| {
            let what = format!("/proc cannot be read ({error})");
            Failure::of_mode(what, "no thread can be read", "mount -t proc proc /proc")
        })?;
        Ok(Self { chosen, cgroups: CgroupIds::new(Path::new("/"), mounts), wanted })
    }

    pub fn read(&mut self, places: &mut KernelPlaces, each: Each<'_>) -> Result<RoundRead, Failure> {
        self.cgroups.iter_mut().for_each(CgroupIds::begin);
        // The list of all processes is read in each round: this costs little compared with reading the files of the processes.
        let pids = match self.chosen.follow {
            Follow::All => self.chosen.files.processes(),
            Follow::Chosen(_) => self.chosen.update().map(|_| self.chosen.pids.clone()),
        };
        let pids =
            pids.map_err(|error| Failure::new(format!("/proc could not be read ({error})"), "", ""))?;
        let mut read = RoundRead { is_whole: true, ..RoundRead::default() };
        let own_pid = std::process::id();
        for pid in pids.into_iter().filter(|pid| *pid != own_pid) {
            let Some((threads, tids)) = self.chosen.files.threads(pid) else { continue };
            for tid in tids {
                if self.chosen.follow.wants(pid, tid) {
                    read.threads += 1;
                    self.read_thread(threads.as_fd(), pid, tid, places).iter().for_each(&mut *each);
                }
            }
        }
        read.has_target_exited = self.chosen.has_exited;
        Ok(read)
    }

    /// Reads a thread. `None` if the thread has exited, or its state is not requested.
    fn read_thread(
        &mut self,
        threads: BorrowedFd<'_>,
        pid: u32,
        tid: u32,
        places: &mut KernelPlaces,
    ) -> Option<ThreadReading> {
        let (files, wanted) = (&mut self.chosen.files, self.wanted);
        let stat = files.of_thread(threads, tid, "stat").and_then(text::stat)?;
        let state = ThreadState::of_letter(stat.state);
        if !wanted.all_states && !state.is_active() {
            return None;
        }
        let (comm, cpu) = (comm(stat.comm), Some(stat.cpu));
        let mut reading = ThreadReading { tid, tgid: pid, comm, state, cpu, ..ThreadReading::default() };
        if wanted.has(GroupBy::Syscall) && state.is_blocked() {
            reading.syscall = files.of_thread(threads, tid, "syscall").and_then(syscall);
        }
        let mut text = |is_wanted: bool, name| {
            is_wanted.then(|| files.of_thread(threads, tid, name)).flatten().unwrap_or_default().to_vec()
        };
        let wchan = text(wanted.has(GroupBy::Wchan) && state.is_blocked(), "wchan");
        reading.place = places.of_text(&wchan, &text(wanted.has(GroupBy::Kstack), "stack"));
        if wanted.has(GroupBy::Username) {
            reading.uid = files.of_thread(threads, tid, "status").and_then(text::real_uid);
        }
        if wanted.has(GroupBy::Cgroup)
            && let Some(cgroups) = &mut self.cgroups
        {
            reading.cgroup_id = files.of_thread(threads, tid, "cgroup").and_then(|text| cgroups.id(text));
        }
        Some(reading)
    }
}

/// Returns the name as the BPF program reports it: at most 15 bytes, and no kworker suffix of `/proc` (`wq_worker_comm`).
fn comm(name: &[u8]) -> [u8; 16] {
    let is_worker = name.starts_with(b"kworker/") && !name.starts_with(b"kworker/R");
    let end = if is_worker { name.iter().position(|byte| b"-+".contains(byte)) } else { None };
    let name = &name[..end.unwrap_or(name.len()).min(15)];
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name);
    comm
}

/// Parses `/proc/PID/task/TID/syscall`, and returns the number of the system call. The file has the number and its arguments,
/// `-1` outside of a system call, or `running`. For a kernel thread, all values are 0. For a user process, at least the stack
/// pointer near the end is not 0.
fn syscall(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number: i32 = words.next()?.parse().ok()?;
    (number >= 0 && words.any(|word| word != "0x0")).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_have_the_names_of_this_machine() {
        assert_eq!(system_call(libc::SYS_futex as i32).as_deref(), Some("futex"));
        assert_eq!(system_call(libc::SYS_read as i32).as_deref(), Some("read"));
        assert_eq!(system_call(9_999).as_deref(), Some("9999"));
        assert_eq!(system_call(-1), None, "none");
    }

    #[test]
    fn the_first_name_of_a_user_counts() {
        let users = users("root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nbad\nwww:x:33:33::/:\n");
        assert_eq!(users.get(&0).map(|name| &**name), Some("root"));
        assert_eq!(users.get(&33).map(|name| &**name), Some("www"));
        assert_eq!(users.len(), 2);
        assert_eq!(&*ProcessNames::default().user(4_000_000_000), "4000000000");
    }

    #[test]
    fn this_process_has_an_executable_and_a_command_line() {
        let mut processes = ProcessNames::default();
        let pid = std::process::id();
        assert!(!processes.known.contains_key(&pid), "the process has not been read");
        processes.meet(pid, WantedFields { all_states: false, columns: u32::MAX });
        let expected = std::env::current_exe().expect("the executable");
        assert_eq!(processes.known[&pid].exe.as_deref(), expected.to_str());
        assert!(processes.known[&pid].cmdline.is_some());
    }

    #[test]
    fn equal_places_have_one_number() {
        let mut places = KernelPlaces::default();
        assert_eq!(places.of_addresses(&[]), 0);
        let first = places.of_addresses(&[1, 2]);
        assert_eq!(places.of_addresses(&[1, 3]), first + 1);
        assert_eq!(places.of_addresses(&[1, 2]), first);
        assert_eq!(places.of_text(b"0", b""), 0, "a thread that is not blocked has no place");
        let named = places.of_text(b"pipe_read", b"");
        assert_eq!(places.of_text(b"pipe_read", b""), named);
        assert_eq!(places.wchan(named).as_deref(), Some("pipe_read"));
        assert_eq!(places.kstack(named), None);
    }

    #[test]
    fn a_stack_is_printed_from_its_outermost_function_on() {
        let mut places = KernelPlaces::default();
        let stack = b"[<0>] futex_wait_queue+0x61/0x90\n[<0>] __futex_wait+0x14d/0x1c0 [a]\n[<0>] do_syscall_64+0x5d/0x90\n";
        let number = places.of_text(b"futex_wait_queue", stack);
        assert_eq!(
            places.kstack(number).as_deref(),
            Some("do_syscall_64()->__futex_wait()->futex_wait_queue()")
        );
        assert_eq!(places.kstack(0), None);
    }

    #[test]
    fn names_are_the_same_as_on_the_kernel_side() {
        for (name, expected) in [
            (&b"kworker/0:1-events"[..], &b"kworker/0:1"[..]),
            (b"kworker/u8:2+flush-254:0", b"kworker/u8:2"),
            (b"kworker/R-slub_flushwq", b"kworker/R-slub_"),
            (b"a-b", b"a-b"),
        ] {
            let comm = comm(name);
            assert_eq!(comm.split(|byte| *byte == 0).next(), Some(expected));
        }
    }

    #[test]
    fn the_first_number_is_the_system_call() {
        assert_eq!(syscall(b"202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffd 0x7f12\n"), Some(202));
        assert_eq!(syscall(b"0 0x0 0x7f 0x10 0x0 0x0 0x0 0x7ffd 0x7f12\n"), Some(0), "read");
        assert_eq!(syscall(b"0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n"), None, "a kernel thread");
        for text in [&b"running\n"[..], b"-1 0x7ffd 0x7f12\n", b""] {
            assert_eq!(syscall(text), None);
        }
    }
}
