//! Runs a command as another user, with that user's environment and without our terminal.
//!
//! The other user may be hostile to us. A process with our controlling terminal can push characters into the terminal
//! (`TIOCSTI`), which our shell then runs. A process that has the terminal open for reading can read what is typed. So the
//! command leads its own session, as under `su -c`, does not read from a terminal, and has the terminal open for writing only.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, IsTerminal},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Command, Stdio},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    stdio::{stderr, stdout},
};

use crate::{
    child::Output,
    exit::{Error, Result},
    users::{self, User},
};

/// Variables that the other user inherits. Further variables may be secret, or make programs load files.
const KEPT: [&str; 7] = ["PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ"];
const KEPT_PREFIX: &str = "LC_";

/// Makes the command run as the named user, with the user's environment.
pub fn become_user(process: &mut Command, name: &str) -> Result<()> {
    let user = users::user(name).map_err(Error::could_not_run)?;
    process.env_clear().envs(environment(&user, name, env::vars_os()));
    let mut groups = user.groups;
    groups.push(user.gid);
    // SAFETY: only system calls between fork and exec. `Command::uid` would leave the user without groups.
    unsafe {
        process.pre_exec(move || {
            if libc::setgroups(groups.len(), groups.as_ptr()) != 0
                || libc::setresgid(user.gid, user.gid, user.gid) != 0
                || libc::setresuid(user.uid, user.uid, user.uid) != 0
            {
                return Err(io::Error::last_os_error());
            }
            close_at_exec();
            Ok(())
        });
    }
    Ok(())
}

/// Marks all inherited descriptors except the standard ones close-on-exec. Makes only system calls.
fn close_at_exec() {
    const FIRST: libc::c_uint = 3;
    /// The usual limit of open files, for kernels before 5.11.
    const MOST: libc::c_uint = 1 << 16;
    // SAFETY: only descriptor flags change.
    unsafe {
        let flag = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flag) != 0 {
            for open in FIRST..MOST {
                libc::fcntl(open as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

fn environment(
    user: &User,
    name: &str,
    ours: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let is_kept = |name: &OsStr| {
        name.to_str().is_some_and(|name| KEPT.contains(&name) || name.starts_with(KEPT_PREFIX))
    };
    let theirs = [("HOME", user.home.as_str()), ("SHELL", &user.shell), ("USER", name), ("LOGNAME", name)];
    let theirs = theirs.map(|(name, value)| (name.into(), value.into()));
    ours.filter(|(name, _)| is_kept(name)).chain(theirs).collect()
}

/// Makes the command start in a session without a controlling terminal. An open terminal is reopened for writing only.
pub fn leave_terminal(process: &mut Command, output: Output) -> io::Result<()> {
    // SAFETY: one system call between fork and exec. It succeeds, because the new process leads no process group yet.
    unsafe {
        process.pre_exec(|| if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) });
    }
    let (to_stdout, to_stderr) = match output {
        Output::Nowhere => return Ok(()),
        Output::AsOurs => (stdout(), stderr()),
        Output::ToStandardError => (stderr(), stderr()),
    };
    if io::stdin().is_terminal() {
        process.stdin(Stdio::null());
    }
    if let Some(terminal) = for_writing(to_stdout)? {
        process.stdout(terminal);
    }
    if let Some(terminal) = for_writing(to_stderr)? {
        process.stderr(terminal);
    }
    Ok(())
}

/// Reopens a terminal for writing; `None` if `open` is not a terminal.
fn for_writing(open: BorrowedFd) -> io::Result<Option<File>> {
    if !open.is_terminal() {
        return Ok(None);
    }
    let path = format!("/proc/self/fd/{}", open.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let again: OwnedFd = openat(CWD, path, flags, Mode::empty())?;
    Ok(Some(again.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_gets_an_environment_of_their_own() {
        let user =
            User { uid: 7, gid: 8, home: "/home/a".into(), shell: "/bin/zsh".into(), groups: Vec::new() };
        let ours = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("LD_PRELOAD", "/root/x.so"),
            ("HOME", "/root"),
            ("SUDO_UID", "1000"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
        ];
        let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let said: Vec<_> = environment(&user, "a", ours.into_iter())
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(said, ["PATH=/bin", "LC_ALL=C", "HOME=/home/a", "SHELL=/bin/zsh", "USER=a", "LOGNAME=a"]);
    }
}
