//! Creates a cgroup for all processes of a command, even if they change their parent, and reads their CPU time.
//!
//! The cgroup is a child of our own cgroup in v2, and has no controller. With a controller, the cgroup would compete with its
//! siblings, so measuring would change the result.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, os::unix::fs::MetadataExt, thread, time::Duration};

use cgscope_model::{CgroupReading, command_run::NamedProcess, printable};
use rustix::fs::{FlockOperation, flock};

use crate::{
    Failure,
    facts::{cgroup_mounts, mountinfo, shown_at},
    limits::cpu_stat,
    source::coarse::text,
};

const PREFIX: &str = "cgscope-stat-";
/// Controllers that divide a resource among siblings.
const WEIGHING: [&str; 2] = ["cpu", "io"];
/// Maximum number of attempts to create the cgroup. Another cgscope may remove the new cgroup before we lock it.
const ATTEMPTS: u32 = 5;
/// Pauses before attempts to remove the cgroup, ms. The kernel needs a moment to release killed or moved processes.
const REMOVAL_MS: [u64; 6] = [0, 1, 5, 20, 100, 300];

/// The cgroup of a command. Dropping it moves its processes to the parent cgroup and removes the cgroup.
#[derive(Debug)]
pub struct OwnCgroup {
    directory: PathBuf,
    /// The path below the v2 mount.
    pub path: String,
    /// We hold this lock as long as we run. If the cgroup is not locked, its cgscope was killed.
    _lock: File,
}

impl OwnCgroup {
    /// Creates a child of our own cgroup, and removes the cgroups of killed cgscopes. `root` is `/` except in tests. Fails if
    /// there is no writable v2 hierarchy, or if a cgroup would change the scheduling of the command.
    pub fn make(root: &Path) -> Result<Self, Failure> {
        let (parent, path) = our_own(root)?;
        keeps_scheduling(&parent)?;
        remove_stale(&parent);
        let made = (0..ATTEMPTS).find_map(|_| Self::attempt(&parent, &path).transpose());
        let what = || format!("another process removes each new cgroup in {}", parent.display());
        made.ok_or_else(|| failure(what(), ""))?.map_err(|error| refused(&parent, &error))
    }

    /// Tries to create the cgroup. `None` if another cgscope removed it.
    fn attempt(parent: &Path, path: &str) -> io::Result<Option<Self>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = parent.join(&name);
        match fs::create_dir(&directory) {
            // A cgscope with the same process id in another PID namespace has created this cgroup.
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

    /// Moves a process into the cgroup; its later children start there. Needs for example write access to a common ancestor.
    pub fn add(&self, pid: u32) -> Result<(), Failure> {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string()).map_err(|error| {
            failure(format!("the command could not be moved to {} ({error})", self.directory.display()), "")
        })
    }

    /// Returns the CPU time of all current and earlier processes of the cgroup, from `cpu.stat`.
    pub fn stat(&self) -> CgroupReading {
        let mut reading = CgroupReading::default();
        if let Ok(text) = fs::read_to_string(self.directory.join("cpu.stat")) {
            cpu_stat(&text, &mut reading);
        }
        reading
    }

    /// Returns the processes in the cgroup and its descendants.
    pub fn processes(&self) -> Vec<NamedProcess> {
        processes_below(&self.directory)
    }

    /// Moves all processes to the parent, and removes the cgroup. Fails if children exist, or a process cannot be moved.
    pub fn remove(self) -> Result<(), Failure> {
        let removed = self.take_away();
        let stays = format!("the cgroup {} could not be removed", self.directory.display());
        std::mem::forget(self);
        removed.map_err(|error| {
            Failure::new(format!("{stays} ({error})"), "", "remove it with rmdir when it is empty")
        })
    }

    fn take_away(&self) -> io::Result<()> {
        let above = self.directory.parent().unwrap_or(&self.directory).join("cgroup.procs");
        let mut result = Ok(());
        for pause_ms in REMOVAL_MS {
            thread::sleep(Duration::from_millis(pause_ms));
            for pid in pids(&self.directory) {
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

fn subdirectories(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

pub(crate) fn processes_below(directory: &Path) -> Vec<NamedProcess> {
    let mut found = Vec::new();
    let mut unread = vec![directory.to_owned()];
    while let Some(directory) = unread.pop() {
        found.extend(pids(&directory));
        unread.extend(subdirectories(&directory));
    }
    found.sort_unstable();
    found.dedup();
    let named = |pid| name_of_living(pid).map(|comm| NamedProcess { pid, comm });
    found.into_iter().filter_map(named).collect()
}

/// Returns the name of a process; `None` if the process has exited, even if it is still a zombie.
pub fn name_of_living(pid: u32) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = text::stat(&stat).filter(|stat| !stat.is_dead())?;
    Some(printable(&String::from_utf8_lossy(stat.comm)).to_string())
}

/// Returns the ids of the processes in the cgroup. v1 also lists a process that has only some of its threads there.
fn pids(directory: &Path) -> Vec<u32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    // The kernel shows 0 for a process outside of our PID namespace.
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

fn our_own(root: &Path) -> Result<(PathBuf, String), Failure> {
    let mountinfo = mountinfo(root);
    let mount = cgroup_mounts(&mountinfo).unified.ok_or_else(|| {
        failure("no cgroup v2 hierarchy is mounted".into(), "mount -t cgroup2 none /sys/fs/cgroup")
    })?;
    own_directory(root, &mountinfo, &mount, None).ok_or_else(|| {
        failure(format!("the mount {} does not show cgscope's own cgroup", mount.display()), "")
    })
}

/// Returns the directory of our own cgroup and its path below the mount, in v2 or in the hierarchy of a v1 controller.
pub(crate) fn own_directory(
    root: &Path,
    mountinfo: &str,
    mount: &Path,
    controller: Option<&str>,
) -> Option<(PathBuf, String)> {
    let cgroups = fs::read(root.join("proc/self/cgroup")).ok()?;
    let (_, ours) = text::hierarchy(&cgroups, controller)?;
    let shown = shown_at(mountinfo, mount).unwrap_or_else(|| "/".into());
    let ours = std::str::from_utf8(ours).ok()?;
    let top = root.join(mount.strip_prefix("/").unwrap_or(mount));
    let path = below(ours, &shown).or_else(|| found(&top, &shown, ours))?;
    // Remove the slash that an empty path leaves at the end.
    let directory = root.join(format!("{}{path}", mount.display()).trim_matches('/'));
    Some((directory, path))
}

/// Finds our cgroup by searching for our process. In a cgroup namespace, the directory of a mount of the host can be for example
/// `/../..`. Such a mount starts two levels above the namespace, and the names of these two levels are hidden.
fn found(mount: &Path, shown: &str, ours: &str) -> Option<String> {
    let mut names = shown.strip_prefix('/')?.split('/');
    let hidden = names.try_fold(0, |levels, name| (name == "..").then_some(levels + 1))?;
    let mut level = vec![String::new()];
    for _ in 0..hidden {
        let children = level.iter().flat_map(|path| {
            let children = subdirectories(&mount.join(path.trim_start_matches('/')));
            children.filter_map(move |child| Some(format!("{path}/{}", child.file_name()?.to_str()?)))
        });
        level = children.collect();
    }
    let ours = ours.trim_end_matches('/');
    let mut paths = level.into_iter().map(|path| path + ours);
    paths.find(|path| pids(&mount.join(path.trim_start_matches('/'))).contains(&std::process::id()))
}

/// Converts a path in the hierarchy to a path below a mount that shows the directory `shown`.
fn below(path: &str, shown: &str) -> Option<String> {
    let rest = if shown == "/" { path } else { path.strip_prefix(shown)? };
    let is_inside = (rest.is_empty() || rest.starts_with('/')) && rest.split('/').all(|name| name != "..");
    is_inside.then(|| if rest.is_empty() { "/".into() } else { rest.into() })
}

/// Fails if the parent enables a controller of [`WEIGHING`] for its children, because a child would get its own share. Only a
/// root cgroup can have both processes and such a controller.
fn keeps_scheduling(parent: &Path) -> Result<(), Failure> {
    let passed_on = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    let Some(controller) = passed_on.split_whitespace().find(|one| WEIGHING.contains(one)) else {
        return Ok(());
    };
    let parent = parent.display();
    let what = format!(
        "{parent} enables the {controller} controller for its children, and a cgroup for the command would change the \
         command's share"
    );
    Err(failure(what, "start cgscope in a child cgroup of it"))
}

/// Removes unlocked cgroups. A cgroup with processes remains until the processes exit.
fn remove_stale(parent: &Path) {
    let is_ours =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    for directory in subdirectories(parent).filter(is_ours) {
        let Ok(lock) = File::open(&directory) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir(&directory);
        }
    }
}

fn refused(parent: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "run cgscope as root, or in a cgroup that is delegated to you",
        io::ErrorKind::ReadOnlyFilesystem => "remount the cgroup file system writable",
        _ => "",
    };
    failure(format!("cannot create a cgroup in {} ({error})", parent.display()), remedy)
}

fn failure(what: String, remedy: &str) -> Failure {
    const EFFECT: &str =
        "the command has no cgroup of its own and its children are found only by their forks";
    Failure::new(what, EFFECT, remedy)
}

#[cfg(test)]
mod tests;
