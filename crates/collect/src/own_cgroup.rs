//! A cgroup of its own for a command: it tells which processes belong to it, whoever their parents are by now, and what CPU time
//! all of them have used.
//!
//! It is in the v2 hierarchy, a child of our own cgroup, and has no controller: a controller's cgroup would be scheduled as one
//! beside the others, and measuring would change what is measured.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use cgscope_model::{CgroupReading, printable};
use rustix::fs::{FlockOperation, flock};

use crate::{
    Failure,
    facts::{cgroup_mounts, shown_at},
    limits::cpu_stat,
    source::coarse::text,
};

/// What the name of every such cgroup begins with.
const PREFIX: &str = "cgscope-stat-";
/// Controllers by which a cgroup is served as one beside its siblings.
const WEIGHING: [&str; 2] = ["cpu", "io"];
/// Another cgscope may take a cgroup that is not locked yet for one that was left behind.
const ATTEMPTS: u32 = 5;
/// Processes that were killed or moved need a moment until the kernel lets their cgroup go.
const REMOVAL: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(300),
];

/// A process that is known by more than its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

/// The cgroup of a command. Dropped, it lets its processes go to the cgroup above, and goes.
#[derive(Debug)]
pub struct OwnCgroup {
    directory: PathBuf,
    /// As under the mount.
    path: String,
    /// Held as long as we live: what is not locked was left behind by a cgscope that was killed.
    _lock: File,
}

impl OwnCgroup {
    /// Makes one below our own cgroup, as the files below `root` (`/` but in tests) tell that, and removes those that were left
    /// there by cgscopes that were killed.
    ///
    /// # Errors
    /// There is no v2 hierarchy, it may not be written to, or a cgroup there would change how the command is scheduled.
    pub fn make(root: &Path) -> Result<Self, Failure> {
        let (parent, path) = our_own(root)?;
        keeps_scheduling(&parent)?;
        remove_stale(&parent);
        for _ in 0..ATTEMPTS {
            if let Some(cgroup) = Self::attempt(&parent, &path).map_err(|error| refused(&parent, &error))? {
                return Ok(cgroup);
            }
        }
        Err(failure(format!("a new cgroup in {} was removed at once each time", parent.display()), ""))
    }

    /// `None`: it was taken for one that was left behind.
    fn attempt(parent: &Path, path: &str) -> io::Result<Option<Self>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = parent.join(&name);
        match fs::create_dir(&directory) {
            // Of a namespace with other numbers.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => made?,
        }
        let Ok(lock) = File::open(&directory) else { return Ok(None) };
        let is_ours = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            && fs::metadata(&directory)
                .is_ok_and(|there| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
        let path = format!("{}/{name}", path.trim_end_matches('/'));
        Ok(is_ours.then_some(Self { directory, path, _lock: lock }))
    }

    /// Its path, as under the mount of v2.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Moves a process into it; what it starts from now on is in it, too.
    ///
    /// # Errors
    /// The kernel refuses, as where we may write to the new cgroup but not to one that both are in.
    pub fn add(&self, pid: u32) -> Result<(), Failure> {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string()).map_err(|error| {
            failure(format!("the command could not be moved to {} ({error})", self.directory.display()), "")
        })
    }

    /// What `cpu.stat` tells now: CPU time of all that is or was in it.
    pub fn stat(&self) -> CgroupReading {
        let mut reading = CgroupReading::default();
        if let Ok(text) = fs::read_to_string(self.directory.join("cpu.stat")) {
            cpu_stat(&text, &mut reading);
        }
        reading
    }

    /// The processes in it and in the cgroups that were made below it.
    pub fn processes(&self) -> Vec<Process> {
        processes_below(&self.directory)
    }

    /// Moves the processes that are left to the cgroup above, where they would be without us, and removes it.
    ///
    /// # Errors
    /// It is still there: it has cgroups below it, or processes that cannot be moved.
    pub fn remove(self) -> Result<(), Failure> {
        let removed = self.take_away();
        let stays = format!("the cgroup {} could not be removed", self.directory.display());
        // A second try of the destructor would take its time again.
        std::mem::forget(self);
        removed.map_err(|error| {
            Failure::new(
                format!("{stays} ({error})"),
                "",
                "remove it with rmdir when nothing is in it any more",
            )
        })
    }

    fn take_away(&self) -> io::Result<()> {
        let above = self.directory.parent().unwrap_or(&self.directory).join("cgroup.procs");
        let mut result = Ok(());
        for pause in REMOVAL {
            thread::sleep(pause);
            for pid in pids(&self.directory) {
                // It may have ended meanwhile.
                let _ = fs::write(&above, pid.to_string());
            }
            result = fs::remove_dir(&self.directory);
            match &result {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {}
                _ => return Ok(()),
            }
        }
        result
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        let _ = self.take_away();
    }
}

/// The processes of a cgroup and of all below it, that of `directory`.
pub(crate) fn processes_below(directory: &Path) -> Vec<Process> {
    let mut found = pids(directory);
    let mut below = vec![directory.to_owned()];
    while let Some(directory) = below.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.extend(pids(&entry.path()));
                below.push(entry.path());
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    // One without a name has gone meanwhile.
    let named = |pid| name_of_living(pid).map(|comm| Process { pid, comm });
    found.into_iter().filter_map(named).collect()
}

/// The name of a process that has not ended; `None` also of one that waits to be reaped.
pub fn name_of_living(pid: u32) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = text::stat(&stat).filter(|stat| !stat.is_dead())?;
    Some(printable(&String::from_utf8_lossy(stat.comm)).to_string())
}

/// In v1 a process of several threads that are not all there is listed, too.
fn pids(directory: &Path) -> Vec<u32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process that our namespace does not show.
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

/// Our own cgroup of v2: its directory, and its path as under the mount.
fn our_own(root: &Path) -> Result<(PathBuf, String), Failure> {
    let mountinfo = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mount = cgroup_mounts(&mountinfo).unified.ok_or_else(|| {
        failure("no cgroup v2 hierarchy is mounted".into(), "mount -t cgroup2 none /sys/fs/cgroup")
    })?;
    own_directory(root, &mountinfo, &mount, None).ok_or_else(|| {
        failure(format!("the mount {} does not show cgscope's own cgroup", mount.display()), "")
    })
}

/// Our own cgroup in the hierarchy of a v1 controller, or of v2: its directory, and its path as under the mount.
pub(crate) fn own_directory(
    root: &Path,
    mountinfo: &str,
    mount: &Path,
    controller: Option<&str>,
) -> Option<(PathBuf, String)> {
    let cgroups = fs::read(root.join("proc/self/cgroup")).ok()?;
    let (_, ours) = text::hierarchy(&cgroups, controller)?;
    let shown = shown_at(mountinfo, mount).unwrap_or_else(|| "/".into());
    let path = below(std::str::from_utf8(ours).ok()?, &shown)?;
    // Without the slash at the end that joining with nothing leaves.
    let directory = root.join(format!("{}{path}", mount.display()).trim_matches('/'));
    Some((directory, path))
}

/// A path in the hierarchy as under a mount that shows a part of it.
fn below(path: &str, shown: &str) -> Option<String> {
    let rest = if shown == "/" { path } else { path.strip_prefix(shown)? };
    let is_inside = (rest.is_empty() || rest.starts_with('/')) && rest.split('/').all(|name| name != "..");
    is_inside.then(|| if rest.is_empty() { "/".into() } else { rest.into() })
}

/// Where the parent passes such a controller on, as only a root with processes in it can, its child would have a share of its own.
fn keeps_scheduling(parent: &Path) -> Result<(), Failure> {
    let passed_on = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    match passed_on.split_whitespace().find(|one| WEIGHING.contains(one)) {
        Some(controller) => Err(failure(
            format!(
                "{} passes the {controller} controller on to its children, and one of its own would change how the command \
                 is served",
                parent.display()
            ),
            "start cgscope from a cgroup below it",
        )),
        None => Ok(()),
    }
}

/// Those that nobody holds. One that still has processes in it stays until they have ended.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn refused(parent: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "run it as root, or where that cgroup is delegated to you",
        io::ErrorKind::ReadOnlyFilesystem => "mount it writable",
        _ => "",
    };
    failure(format!("no cgroup can be made in {} ({error})", parent.display()), remedy)
}

fn failure(what: String, remedy: &str) -> Failure {
    const EFFECT: &str =
        "the command has no cgroup of its own and its children are followed by their forks alone";
    Failure::new(what, EFFECT, remedy)
}

#[cfg(test)]
mod tests;
