//! Waits for a CPU, computed from the kernel's trace events of wakeups and switches.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fs,
    path::{Path, PathBuf},
    ptr,
};

/// Size of the trace buffer of each CPU, KiB. On a fast machine, the events of threads that wake each other need some 40 MiB.
const BUFFER_KIB: &str = "131072";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    /// Time at which the wait ended, ns of CLOCK_MONOTONIC.
    pub(crate) end_ns: u64,
    pub(crate) ns: u64,
}

/// What a thread does from `at_ns` on, ns of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at_ns: u64,
    pub(crate) does: Does,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Run,
    Sleep,
    /// It waits. If it slept, `waker` is the thread that woke it; `None`: an interrupt.
    Wait {
        waker: Option<u32>,
    },
}

/// A trace of some threads that is being recorded. Drop removes the trace instance and the mount.
pub(crate) struct SchedTrace {
    mount: PathBuf,
    instance: PathBuf,
}

impl SchedTrace {
    pub(crate) fn start(tids: &[u32]) -> Self {
        Self::of(tids, "sched_wakeup")
    }

    /// Records switches, and the event `sched_waking` or `sched_wakeup`.
    fn of(tids: &[u32], wakeup: &str) -> Self {
        let name = format!("cgscope-test-{}", std::process::id());
        let mount = std::env::temp_dir().join(&name);
        fs::create_dir(&mount).unwrap_or_else(|error| panic!("{}: {error}", mount.display()));
        let at = CString::new(mount.to_str().expect("a path of ours")).expect("a path without a zero byte");
        let kind = c"tracefs".as_ptr();
        // SAFETY: the strings end with NUL, and the data pointer can be null.
        let mounted = unsafe { libc::mount(kind, at.as_ptr(), kind, 0, ptr::null()) };
        assert_eq!(mounted, 0, "tracefs: {}", std::io::Error::last_os_error());
        let trace = Self { instance: mount.join("instances").join(&name), mount };
        fs::create_dir(&trace.instance).expect("an instance of the trace");
        trace.write("trace_clock", "mono");
        trace.write("buffer_size_kb", BUFFER_KIB);
        let any = |fields: &[&str]| {
            let of_thread =
                |tid: &u32| fields.iter().map(|field| format!("{field} == {tid}")).collect::<Vec<_>>();
            tids.iter().flat_map(of_thread).collect::<Vec<_>>().join(" || ")
        };
        for (event, fields) in [("sched_switch", &["prev_pid", "next_pid"][..]), (wakeup, &["pid"])] {
            trace.write(&format!("events/sched/{event}/filter"), &any(fields));
            trace.write(&format!("events/sched/{event}/enable"), "1");
        }
        trace
    }

    /// Also records who woke a thread. Read it with [`Self::read_past`].
    pub(crate) fn start_of_wakers(tids: &[u32]) -> Self {
        Self::of(tids, "sched_waking")
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.instance.join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    pub(crate) fn stop(&self) {
        self.write("tracing_on", "0");
    }

    /// Returns the completed waits of each thread in chronological order. Call [`Self::stop`] first.
    pub(crate) fn read(self, tids: &[u32]) -> BTreeMap<u32, Vec<Waited>> {
        self.assert_complete();
        let text = fs::read(self.instance.join("trace")).expect("the trace");
        waits(&String::from_utf8_lossy(&text), tids)
    }

    /// Returns what each thread did, in chronological order. All threads slept at the start of the trace. Call [`Self::stop`] first.
    pub(crate) fn read_past(self, tids: &[u32]) -> BTreeMap<u32, Vec<Change>> {
        self.assert_complete();
        let text = fs::read(self.instance.join("trace")).expect("the trace");
        past(&String::from_utf8_lossy(&text), tids)
    }

    fn assert_complete(&self) {
        for cpu in fs::read_dir(self.instance.join("per_cpu")).expect("the CPUs of the trace").flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).expect("the losses of the trace");
            for lost in ["overrun: ", "commit overrun: ", "dropped events: "] {
                let is_none = stats.lines().any(|line| line.strip_prefix(lost) == Some("0"));
                assert!(is_none, "{}: {stats}", cpu.path().display());
            }
        }
    }
}

impl Drop for SchedTrace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
        unmount(&self.mount);
        let _ = fs::remove_dir(&self.mount);
    }
}

fn unmount(mount: &Path) {
    let at = CString::new(mount.to_str().expect("a path of ours")).expect("a path without a zero byte");
    // SAFETY: the string ends with NUL.
    unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
}

/// A wait begins when a thread is woken, or is switched out while runnable. A wait ends when the thread is switched in.
fn waits(trace: &str, tids: &[u32]) -> BTreeMap<u32, Vec<Waited>> {
    let (mut running, mut since) = (BTreeSet::new(), BTreeMap::new());
    let mut waits: BTreeMap<u32, Vec<Waited>> = tids.iter().map(|tid| (*tid, Vec::new())).collect();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let number = |field: &str| word(line, field).and_then(|word| word.parse::<u32>().ok());
        let now_ns = stamp_ns(line);
        if line.contains(" sched_wakeup: ") {
            let tid = number("pid").expect("the woken thread");
            // If a thread is woken before it is switched out, no wait begins.
            if !running.contains(&tid) {
                since.entry(tid).or_insert(now_ns);
            }
            continue;
        }
        let [left, came] = ["prev_pid", "next_pid"].map(|field| number(field).expect("the switched threads"));
        running.remove(&left);
        match word(line, "prev_state") {
            Some(state) if state.starts_with('R') => drop(since.insert(left, now_ns)),
            _ => drop(since.remove(&left)),
        }
        running.insert(came);
        if let (Some(begun_ns), Some(waits)) = (since.remove(&came), waits.get_mut(&came)) {
            waits.push(Waited { end_ns: now_ns, ns: now_ns - begun_ns });
        }
    }
    waits
}

fn past(trace: &str, tids: &[u32]) -> BTreeMap<u32, Vec<Change>> {
    let asleep = Change { at_ns: 0, does: Does::Sleep };
    let mut past: BTreeMap<u32, Vec<Change>> = tids.iter().map(|tid| (*tid, vec![asleep])).collect();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let number = |field: &str| word(line, field).and_then(|word| word.parse::<u32>().ok());
        let at_ns = stamp_ns(line);
        let mut add = |tid: Option<u32>, does, is_wakeup: bool| {
            let Some(changes) = tid.and_then(|tid| past.get_mut(&tid)) else { return };
            // A thread that is woken before it is switched out sleeps, but nobody is known to wake it.
            if !is_wakeup || changes.last().is_some_and(|last| last.does == Does::Sleep) {
                changes.push(Change { at_ns, does });
            }
        };
        if line.contains(" sched_waking: ") {
            add(number("pid"), Does::Wait { waker: waker(line) }, true);
            continue;
        }
        let is_runnable = word(line, "prev_state").is_some_and(|state| state.starts_with('R'));
        add(number("prev_pid"), if is_runnable { Does::Wait { waker: None } } else { Does::Sleep }, false);
        add(number("next_pid"), Does::Run, false);
    }
    past
}

/// Returns the current thread of an event: `  comm-7 [001] d..2. 4711.123456: ...`. In an interrupt (the third flag), there is none.
fn waker(line: &str) -> Option<u32> {
    let (task, rest) = line.split_once(" [")?;
    let flags = rest.split_ascii_whitespace().nth(1)?;
    let tid = task.trim().rsplit('-').next()?.parse().ok()?;
    flags.chars().nth(2).filter(|context| *context == '.').map(|_| tid)
}

fn word<'l>(line: &'l str, field: &str) -> Option<&'l str> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(field)?.strip_prefix('='))
}

/// Parses the time of a line such as `  comm-7 [001] d..2. 4711.123456: sched_switch: ...`. The trace has a resolution of 1 µs.
fn stamp_ns(line: &str) -> u64 {
    let (before, _) = line.split_once(": sched_").expect("an event of the scheduler");
    let stamp = before.rsplit(' ').next().expect("its time");
    let (s, us) = stamp.split_once('.').expect("seconds and microseconds");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    number(s) * 1_000_000_000 + number(us) * 1_000
}
