//! The Unix socket for viewers: passed by systemd, or created.

use std::{
    fs, io,
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use cgscope_serve::{
    config::{Account, SocketConfig},
    socket::note_senders,
};

use crate::users;

/// Owner and group can read and write.
const MODE: u32 = 0o660;

/// A listening socket. Dropping it removes the socket file if we created one.
#[derive(Debug)]
pub struct Listening {
    pub listener: UnixListener,
    /// The path, or words for the socket.
    pub place: String,
    made: Option<(PathBuf, u64)>,
}

impl Listening {
    /// Opens the configured socket; `None` if the configuration has none.
    pub fn open(config: &SocketConfig) -> Result<Option<Self>, String> {
        if let Some(listener) = handed_over() {
            let listening = Self { listener, place: "the socket of systemd".into(), made: None };
            listening.make_ready()?;
            return Ok(Some(listening));
        }
        if config.path.as_os_str().is_empty() {
            return Ok(None);
        }
        let path = &config.path;
        let (uid, gid) = (user_id(&config.owner)?, group_of_socket(config)?);
        remove_stale(path)?;
        let failed = |error: io::Error| {
            format!(
                "the socket {} cannot be created ({error}), so no viewer could connect: start the daemon as root, or name \
                 another `path` in [socket]",
                path.display()
            )
        };
        // Nobody can connect until owner and group are set.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound.map_err(failed)?;
        let id = fs::metadata(path).map_err(failed)?.ino();
        let listening = Self { listener, place: path.display().to_string(), made: Some((path.clone(), id)) };
        // Before anybody can connect.
        listening.make_ready()?;
        chown(path, Some(uid), Some(gid)).map_err(|error| {
            format!(
                "the socket {} cannot be given to user {} and group {gid} ({error}): start the daemon as root, or name \
                 another user and group in [socket]",
                path.display(),
                config.owner,
            )
        })?;
        fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(failed)?;
        Ok(Some(listening))
    }

    /// The group whose members may connect; `None` if it is root's, or the socket has no path.
    pub fn viewers(&self) -> Option<u32> {
        let address = self.listener.local_addr().ok()?;
        let metadata = fs::metadata(address.as_pathname()?).ok()?;
        Some(metadata.gid()).filter(|gid| *gid != 0)
    }

    fn make_ready(&self) -> Result<(), String> {
        let done = note_senders(&self.listener).and_then(|()| self.listener.set_nonblocking(true));
        done.map_err(|error| format!("cgscope cannot listen on {} ({error})", self.place))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some((path, id)) = &self.made
            && fs::metadata(path).is_ok_and(|metadata| metadata.ino() == *id)
        {
            // May fail without privileges; the next daemon detects and removes the stale file.
            let _ = fs::remove_file(path);
        }
    }
}

/// The first socket that systemd passes.
fn handed_over() -> Option<UnixListener> {
    let mut sockets = sd_notify::listen_fds().ok()?;
    let first = sockets.next()?;
    // SAFETY: systemd passed the descriptor to this process (`LISTEN_PID`), and nobody else has taken it.
    Some(UnixListener::from(unsafe { OwnedFd::from_raw_fd(first) }))
}

/// Removes the socket of a killed daemon, and no other file.
fn remove_stale(path: &Path) -> Result<(), String> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(format!(
            "{} exists and is not a socket, so the daemon cannot create its socket: remove the \
             file, or name another `path` in [socket]",
            path.display()
        ));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(format!(
            "another daemon serves {}: stop that daemon (`systemctl stop cgscope`), or name another `path` in [socket]",
            path.display()
        ));
    }
    let removed = fs::remove_file(path);
    removed.map_err(|error| {
        format!("the socket {} of an earlier daemon cannot be removed ({error})", path.display())
    })
}

/// The group whose members may connect to a new socket. If the default group does not exist, as on a host without setup for the
/// daemon, only root can connect.
fn group_of_socket(config: &SocketConfig) -> Result<u32, String> {
    let group = config.group();
    match group_id(&group) {
        Err(sentence) if group == SocketConfig::default_viewers() => {
            say!("cgscope: {sentence}; until then only root can connect");
            Ok(0)
        }
        gid => gid,
    }
}

pub fn user_id(account: &Account) -> Result<u32, String> {
    match account {
        Account::Id(users::NO_ID) => Err(no_id("user")),
        Account::Id(id) => Ok(*id),
        Account::Name(name) => users::user_id(name),
    }
}

pub fn group_id(account: &Account) -> Result<u32, String> {
    match account {
        Account::Id(users::NO_ID) => Err(no_id("group")),
        Account::Id(id) => Ok(*id),
        Account::Name(name) => users::group(name).map_err(|sentence| {
            format!("{sentence}: create it (`groupadd --system {name}`), or name another group in [socket]")
        }),
    }
}

fn no_id(what: &str) -> String {
    format!("{} is not a valid id of a {what}: name another one in [socket]", users::NO_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_that_chown_ignores_is_refused() {
        for refused in [user_id(&Account::Id(u32::MAX)), group_id(&Account::Id(u32::MAX))] {
            assert!(refused.unwrap_err().contains("name another"));
        }
        assert_eq!((user_id(&Account::Id(7)), group_id(&Account::Id(8))), (Ok(7), Ok(8)));
    }
}
