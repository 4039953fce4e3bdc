//! Decides which account's limits a user id counts towards. Users can run processes under the ids that `/etc/subuid` gives them,
//! in a user namespace where they keep their groups. These ids count for their owner; otherwise each id would have limits of its
//! own.
//!
//! The daemon has no privileges, so the kernel does not show it the owner of another process's user namespace
//! (`/proc/PID/ns/user` and PIDFD_GET_USER_NAMESPACE need the right to trace the process). A login uid may be unset, and a
//! process without one can set it to any user's. So the file that `newuidmap` reads decides.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The files with ranges of subordinate user ids, and with users by name.
const FILES: [&str; 2] = ["/etc/subuid", "/etc/passwd"];

/// Identifies the version of a file: device, inode, size in bytes, and the time of the last status change (s, ns).
type Version = Option<(u64, u64, u64, i64, i64)>;

/// The owners of subordinate user ids.
#[derive(Debug)]
pub(super) struct Accounts {
    files: [PathBuf; 2],
    versions: [Version; 2],
    ranges: Vec<Range>,
}

/// A range of user ids that count for one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    account: u32,
}

impl Default for Accounts {
    fn default() -> Self {
        Self::of_files(FILES.map(PathBuf::from))
    }
}

impl Accounts {
    pub(super) fn of_files(files: [PathBuf; 2]) -> Self {
        Self { files, versions: [None; 2], ranges: Vec::new() }
    }

    /// Reads the files again if one of them has changed.
    pub(super) fn refresh(&mut self) {
        let versions = self.files.each_ref().map(|file| version(file));
        if self.versions != versions {
            let [ranges, users] = self.files.each_ref().map(|file| fs::read(file).unwrap_or_default());
            let [ranges, users] = [ranges, users].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            self.ranges = parse(&ranges, &users);
            self.versions = versions;
        }
    }

    /// Returns the account of a user id: its owner, or the id itself.
    pub(super) fn of(&self, uid: u32) -> u32 {
        let range = self.ranges.iter().find(|range| (range.first..=range.last).contains(&uid));
        range.map_or(uid, |range| range.account)
    }
}

fn version(file: &Path) -> Version {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
}

/// Parses lines `OWNER:FIRST:COUNT` (subuid(5)). The owner is a name or a number.
fn parse(subuid: &str, passwd: &str) -> Vec<Range> {
    let users: HashMap<&str, u32> = passwd.lines().filter_map(user).collect();
    let mut accounts: HashMap<&str, u32> = HashMap::new();
    let ranges = subuid.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next().filter(|owner| !owner.is_empty() && !owner.starts_with('#'))?;
        let first: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok().filter(|count| *count > 0)?;
        let uid = users.get(owner).copied().or_else(|| owner.parse().ok());
        // Containers must not use up root's limits, so root's ranges have an account of their own. So has an owner without an
        // entry in the file of users; all ranges of that owner share one account.
        let account = match uid.filter(|uid| *uid != 0) {
            Some(uid) => uid,
            None => *accounts.entry(owner).or_insert(first),
        };
        Some(Range { first, last: first.saturating_add(count - 1), account })
    });
    ranges.collect()
}

fn user(line: &str) -> Option<(&str, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    Some((name, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n";

    fn accounts(subuid: &str, uids: &[u32]) -> Vec<u32> {
        let accounts = Accounts { ranges: parse(subuid, PASSWD), ..Accounts::default() };
        uids.iter().map(|uid| accounts.of(*uid)).collect()
    }

    #[test]
    fn subordinate_ids_count_for_their_owner_and_others_for_themselves() {
        let subuid = "alice:100000:65536\n1001:200000:10\n";
        let uids = [0, 1000, 1001, 99_999, 100_000, 165_535, 165_536, 200_009, 200_010];
        assert_eq!(accounts(subuid, &uids), [0, 1000, 1001, 99_999, 1000, 1000, 165_536, 1001, 200_010]);
    }

    #[test]
    fn ranges_of_root_and_of_unknown_owners_have_their_own_accounts() {
        let subuid = "root:100000:10\nroot:200000:10\ncarol:300000:10\ncarol:400000:10\n";
        assert_eq!(
            accounts(subuid, &[100_003, 200_003, 300_003, 400_003]),
            [100_000, 100_000, 300_000, 300_000]
        );
    }

    #[test]
    fn invalid_lines_are_ignored() {
        let subuid = "# alice:1:1\n\nalice\nalice:x:5\nalice:5\nalice:5:0\n:5:5\nalice:4294967290:100\n";
        assert_eq!(accounts(subuid, &[1, 5, u32::MAX - 1, 4_294_967_289]), [1, 5, 1000, 4_294_967_289]);
    }

    #[test]
    fn a_range_that_is_added_later_counts_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["subuid", "passwd"].map(|name| folder.path().join(name));
        let mut accounts = Accounts::of_files(files.clone());
        accounts.refresh();
        assert_eq!(accounts.of(100_000), 100_000, "there is no file");
        fs::write(&files[0], "alice:100000:10\n").unwrap();
        accounts.refresh();
        assert_eq!(accounts.of(100_001), 100_000, "there is no such user");
        fs::write(&files[1], PASSWD).unwrap();
        accounts.refresh();
        assert_eq!(accounts.of(100_001), 1000);
    }
}
