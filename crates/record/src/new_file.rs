//! Who owns a new file, and who can read it.
//!
//! What root measures, other users must not see, so root's files are mode 0600, as `perf.data` is. Under `sudo` a file goes to
//! the user who ran `sudo`, but only where that user could have made it: in another directory, a file that belongs to a user
//! and that root or a service may trust would be a way to more rights.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Gid, Mode, OFlags, Stat, Uid, fchown, fstat, openat},
    process::{geteuid, getuid},
};

/// Makes a new file in the working directory.
///
/// # Errors
/// There is one already, or it cannot be made.
pub fn create_here(name: impl AsRef<OsStr>) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, ".", flags, Mode::empty())?;
    Ok(create(&directory, name.as_ref(), None)?)
}

/// Makes a new file in a directory, in place of `replaced` if there is one.
pub(crate) fn create(directory: &OwnedFd, name: &OsStr, replaced: Option<&Stat>) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::from_raw_mode(mode(geteuid(), replaced)))?;
    let variable = |name: &str| env::var(name).ok();
    if let Some(invoker) = Invoker::of(getuid(), geteuid(), variable)
        && fstat(directory).is_ok_and(|directory| invoker.can_make_files_in(&directory))
    {
        // Where it cannot be given away (some network file systems), it stays root's.
        let _ = fchown(file.as_fd(), Some(invoker.uid), Some(invoker.gid));
    }
    Ok(file.into())
}

/// The permissions of a new file, before the umask: those of a file of the same owner that it replaces are never exceeded. Files
/// of others count for nothing: they may have been left there for that.
fn mode(user: Uid, replaced: Option<&Stat>) -> u32 {
    let most = if user.is_root() { 0o600 } else { 0o666 };
    match replaced {
        Some(replaced) if replaced.st_uid == user.as_raw() => most & replaced.st_mode,
        _ => most,
    }
}

/// Who ran `sudo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Invoker {
    uid: Uid,
    gid: Gid,
}

impl Invoker {
    /// From the environment, which is trusted if we are root in every respect: whoever sets the environment of root is root.
    fn of(real: Uid, effective: Uid, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let id = |name| variable(name)?.parse().ok().filter(|id: &u32| *id != 0 && *id != u32::MAX);
        let (uid, gid) = (id("SUDO_UID")?, id("SUDO_GID")?);
        let is_root = real.is_root() && effective.is_root();
        is_root.then(|| Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) })
    }

    /// Without the groups of the user, which are not known here.
    fn can_make_files_in(self, directory: &Stat) -> bool {
        let owns = directory.st_uid == self.uid.as_raw() && directory.st_mode & 0o200 != 0;
        owns || directory.st_mode & 0o002 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(uid: u32, mode: u32) -> Stat {
        // SAFETY: zeros are a value of it.
        let mut stat: Stat = unsafe { std::mem::zeroed() };
        (stat.st_uid, stat.st_mode) = (uid, mode);
        stat
    }

    #[test]
    fn permissions_are_only_ever_removed_and_only_by_a_file_of_the_same_owner() {
        let (root, user) = (Uid::ROOT, Uid::from_raw(1000));
        assert_eq!((mode(root, None), mode(user, None)), (0o600, 0o666));
        for (owner, theirs) in [(0, 0o4777), (65_534, 0o4777), (65_534, 0), (0, 0o100_644)] {
            assert_eq!(mode(root, Some(&stat(owner, theirs))), 0o600, "{owner} {theirs:o}");
        }
        assert_eq!(mode(root, Some(&stat(0, 0o400))), 0o400);
        assert_eq!(mode(user, Some(&stat(1000, 0o106_640))), 0o640);
        assert_eq!(mode(user, Some(&stat(0, 0o600))), 0o666);
    }

    #[test]
    fn only_root_gives_files_to_the_user_of_sudo() {
        let (root, user) = (Uid::ROOT, Uid::from_raw(1000));
        let of = |real, effective, uid: &'static str, gid: &'static str| {
            Invoker::of(real, effective, |name| {
                let value = if name == "SUDO_UID" { uid } else { gid };
                (value != "-").then(|| value.into())
            })
        };
        assert_eq!(of(root, root, "1000", "100"), Some(Invoker { uid: user, gid: Gid::from_raw(100) }));
        assert_eq!(of(user, root, "1000", "100"), None);
        assert_eq!(of(user, user, "1000", "100"), None);
        // The last one would leave the owner as it is.
        for (uid, gid) in [("-", "100"), ("1000", "-"), ("0", "0"), ("x", "100"), ("4294967295", "100")] {
            assert_eq!(of(root, root, uid, gid), None, "{uid} {gid}");
        }
    }

    #[test]
    fn a_file_goes_to_the_user_of_sudo_only_where_that_user_could_have_made_it() {
        let invoker = Invoker { uid: Uid::from_raw(1000), gid: Gid::from_raw(100) };
        let can = |uid, mode| invoker.can_make_files_in(&stat(uid, mode));
        assert!(can(1000, 0o700) && can(0, 0o1777));
        assert!(!can(0, 0o755) && !can(2000, 0o775) && !can(1000, 0o555));
    }
}
