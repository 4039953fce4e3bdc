//! The Unix socket for viewers: systemd passes it, or we create it. Also warns if viewers or other users can read the daemon's
//! secrets, or viewers can use the socket of the container runtime.

use std::{
    fs::{self, Metadata},
    io,
    os::fd::{FromRawFd, OwnedFd},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
};

use cgscope_runtimes::Runtimes;
use cgscope_serve::{
    config::{Account, Config, SocketConfig},
    socket::note_senders,
};

use crate::{output::Made, users};

/// Owner and group can read and write.
const MODE: u32 = 0o660;

/// A listening socket. Dropping this value removes the socket file if we created it.
#[derive(Debug)]
pub struct Listening {
    pub listener: UnixListener,
    /// The path of the socket, or a description.
    pub place: String,
    made: Option<Made>,
}

impl Listening {
    /// Opens the configured socket. Returns `None` if the configuration has no socket.
    pub fn open(config: &SocketConfig) -> Result<Option<Self>, String> {
        if let Some(listener) = handed_over() {
            let listening = Self { listener, place: "the socket of systemd".into(), made: None };
            listening.make_ready()?;
            return Ok(Some(listening));
        }
        if config.path.as_os_str().is_empty() {
            return Ok(None);
        }
        let (path, place, owner) = (&config.path, config.path.display(), &config.owner);
        let (uid, gid) = (user_id(&config.owner)?, group_of_socket(config)?);
        remove_stale(path)?;
        let failed = |error: io::Error| {
            format!(
                "the socket {place} cannot be created ({error}), so no viewer could connect: start the daemon as root, or name \
                 another `path` in [socket]"
            )
        };
        // Nobody can connect before owner and group are set.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound.map_err(failed)?;
        let listening = Self { listener, place: place.to_string(), made: Some(Made::of(path)) };
        // Must happen before anybody can connect.
        listening.make_ready()?;
        chown(path, Some(uid), Some(gid)).map_err(|error| {
            format!(
                "the socket {place} cannot be given to user {owner} and group {gid} ({error}): start the daemon as root, or name \
                 another user and group in [socket]"
            )
        })?;
        fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(failed)?;
        Ok(Some(listening))
    }

    /// Returns the group whose members may connect. Returns `None` for root's group, or if the socket has no path.
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
        // Ignore an error, which can occur without privileges. The next daemon detects and removes the stale file.
        let _ = self.made.as_ref().map(Made::remove);
    }
}

/// Returns the first socket that systemd passes.
fn handed_over() -> Option<UnixListener> {
    let mut sockets = sd_notify::listen_fds().ok()?;
    let first = sockets.next()?;
    // SAFETY: systemd passed the descriptor to this process (`LISTEN_PID`), and no other code has taken it.
    Some(UnixListener::from(unsafe { OwnedFd::from_raw_fd(first) }))
}

/// Removes the socket of a killed daemon, but no other file.
fn remove_stale(path: &Path) -> Result<(), String> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    let socket = path.display();
    if !metadata.file_type().is_socket() {
        return Err(format!(
            "{socket} exists and is not a socket, so the daemon cannot create its socket: remove the file, or name another `path` \
             in [socket]"
        ));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(format!(
            "another daemon serves {socket}: stop that daemon (`systemctl stop cgscope`), or name another `path` in [socket]"
        ));
    }
    let removed = fs::remove_file(path);
    removed.map_err(|error| format!("the socket {socket} of an earlier daemon cannot be removed ({error})"))
}

/// Returns the group whose members may connect to a new socket. A host without setup for the daemon lacks the default group. Then
/// only root can connect.
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
    id(account, "user", users::user_id)
}

pub fn group_id(account: &Account) -> Result<u32, String> {
    id(account, "group", |name| {
        users::group(name).map_err(|sentence| {
            format!("{sentence}: create it (`groupadd --system {name}`), or name another group in [socket]")
        })
    })
}

fn id(account: &Account, what: &str, named: impl Fn(&str) -> Result<u32, String>) -> Result<u32, String> {
    match account {
        Account::Id(users::NO_ID) => {
            Err(format!("{} is not a valid id of a {what}: name another one in [socket]", users::NO_ID))
        }
        Account::Id(id) => Ok(*id),
        Account::Name(name) => named(name),
    }
}

/// Mode bits for other users. Shifted left by 3, they are the bits for the group.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// Returns warnings about files that viewers can use, each with a remedy. `viewers` is the group whose members may connect;
/// `None` if it is root's group. Ignores access control lists.
pub fn warnings(config: &Config, viewers: Option<u32>) -> Vec<String> {
    let http = &config.http;
    let secrets = [("tls_key", &http.tls_key), ("users", &http.users)];
    let secrets = secrets.into_iter().filter_map(|(key, path)| Some((key, path.as_deref()?)));
    let mut warnings: Vec<String> = secrets.filter_map(|(key, path)| secret(key, path, viewers)).collect();
    let places = Runtimes::new(&config.containers.runtime).ok();
    let mut places = places.iter().flat_map(Runtimes::places);
    warnings.extend(viewers.and_then(|gid| places.find_map(|path| runtimes(path, gid))));
    warnings
}

fn secret(key: &str, path: &Path, viewers: Option<u32>) -> Option<String> {
    let path_text = path.display();
    if may(path, None, READ) {
        return Some(format!(
            "every user of this host can read {path_text} (`{key}` in [http]): remove this permission (`chmod o= {path_text}`)"
        ));
    }
    let gid = viewers.filter(|gid| may(path, Some(*gid), READ))?;
    Some(format!(
        "viewers (group {}) can read {path_text} (`{key}` in [http]): run `chgrp cgscope-daemon {path_text}; chmod 640 \
         {path_text}`, then replace the key or passwords in that file",
        users::name_of_group(gid)
    ))
}

fn runtimes(socket: &Path, gid: u32) -> Option<String> {
    let (group, path) = (users::name_of_group(gid), socket.display());
    may(socket, Some(gid), WRITE).then(|| {
        format!(
            "viewers (group {group}) can use the container runtime's socket {path}, and whoever uses it can become root: \
             configure another group for this socket (`getent group cgscope-daemon`)"
        )
    })
}

/// Returns whether a member of the group `gid` who is not the owner can access a file. `None`: a user outside the file's groups.
fn may(path: &Path, gid: Option<u32>, what: u32) -> bool {
    // The checks must apply to the target of a link.
    let path: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let mut directories = path.ancestors().skip(1).map(fs::metadata);
    fs::metadata(&path).is_ok_and(|metadata| allows(&metadata, gid, what))
        && directories.all(|directory| directory.is_ok_and(|metadata| allows(&metadata, gid, SEARCH)))
}

fn allows(metadata: &Metadata, gid: Option<u32>, what: u32) -> bool {
    let shift = if gid == Some(metadata.gid()) { 3 } else { 0 };
    metadata.mode() & (what << shift) != 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn the_id_that_chown_ignores_is_refused() {
        for refused in [user_id(&Account::Id(u32::MAX)), group_id(&Account::Id(u32::MAX))] {
            assert!(refused.unwrap_err().contains("name another"));
        }
        assert_eq!((user_id(&Account::Id(7)), group_id(&Account::Id(8))), (Ok(7), Ok(8)));
    }

    const VIEWERS: u32 = 61_100;
    const DAEMONS: u32 = 61_101;

    /// Returns the warnings about a TLS key with this group and mode, in a directory with this mode.
    fn said(gid: u32, mode: u32, directory_mode: u32) -> Vec<String> {
        let directory = std::env::temp_dir().join(format!("cgscope-readers-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory of ours");
        let key = directory.join("tls.key");
        fs::write(&key, "").expect("a file of ours");
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        chown(&key, None, Some(gid)).and_then(|()| set(&key, mode)).expect("a file of ours");
        set(&directory, directory_mode).expect("a directory of ours");
        let config =
            Config::parse(&format!("[http]\ntls_key = {key:?}\ntls_certificate = \"/c\"\n")).expect("right");
        let said = warnings(&config, Some(VIEWERS));
        fs::remove_dir_all(&directory).expect("a directory of ours");
        said
    }

    #[test]
    fn a_key_that_viewers_or_everybody_can_read_causes_a_warning_with_a_remedy() {
        if !rustix::process::geteuid().is_root() {
            // Only root can give files to other groups.
            return;
        }
        let viewers = said(VIEWERS, 0o640, 0o755);
        assert!(
            viewers[0].contains("viewers (group 61100) can read") && viewers[0].contains("tls.key"),
            "{viewers:?}"
        );
        assert!(viewers[0].contains("`chgrp cgscope-daemon "), "{viewers:?}");
        let everybody = said(DAEMONS, 0o644, 0o755);
        assert!(everybody[0].contains("every user of this host can read"), "{everybody:?}");
        assert!(everybody[0].contains("`chmod o= "), "{everybody:?}");
        for (gid, mode, directory_mode) in [
            (DAEMONS, 0o640, 0o755),
            (VIEWERS, 0o600, 0o755),
            (VIEWERS, 0o644, 0o700),
            (VIEWERS, 0o640, 0o750),
        ] {
            assert_eq!(said(gid, mode, directory_mode), [""; 0], "{gid} {mode:o} {directory_mode:o}");
        }
    }
}
