//! Warns if users can read the daemon's secrets, or viewers can use the socket of the container runtime.

use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use cgscope_runtimes::Runtimes;
use cgscope_serve::config::Config;

use crate::users;

/// Mode bits for others; shifted left by 3, they are the group's bits.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// Warnings about files that viewers can use, each with a remedy. `viewers` is the group whose members may connect, unless it is
/// root's. Access control lists are not checked.
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
    may(socket, Some(gid), WRITE).then(|| {
        format!(
            "viewers (group {}) can use the container runtime's socket {}, and whoever uses it can become root: configure \
             another group for this socket (`getent group cgscope-daemon`)",
            users::name_of_group(gid),
            socket.display()
        )
    })
}

/// Whether a member of the group `gid` (not the owner) can access a file. `None` is a user in none of the file's groups.
fn may(path: &Path, gid: Option<u32>, what: u32) -> bool {
    // Check the target of a link.
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

    const VIEWERS: u32 = 61_100;
    const DAEMONS: u32 = 61_101;

    /// The warnings about a TLS key with this group and mode, in a directory with this mode.
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
