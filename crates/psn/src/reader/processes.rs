//! The file and the command line of processes: read once, when a process is first seen, as it may exit before the end.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, OnceLock},
};

use cgscope_model::printable;

use super::WantedFields;
use crate::GroupBy;
use cgscope_collect::cmdline;

#[derive(Debug, Default)]
pub(super) struct ProcessNames {
    pub known: HashMap<u32, ProcessName>,
    users: OnceLock<HashMap<u32, Arc<str>>>,
}

#[derive(Debug, Default)]
pub(super) struct ProcessName {
    pub exe: Option<Arc<str>>,
    pub cmdline: Option<Arc<str>>,
}

impl ProcessNames {
    /// Call this with every process that is seen.
    pub fn meet(&mut self, tgid: u32, wanted: WantedFields) {
        self.known.entry(tgid).or_insert_with(|| ProcessName {
            exe: wanted.has(GroupBy::Exe).then(|| exe(tgid)).flatten(),
            cmdline: wanted.has(GroupBy::Cmdline).then(|| cmdline(tgid)).flatten(),
        });
    }

    /// The name of a user; as in ps the number if `/etc/passwd` does not have it.
    pub fn user(&self, uid: u32) -> Arc<str> {
        let users = self.users.get_or_init(|| users(&fs::read_to_string("/etc/passwd").unwrap_or_default()));
        users.get(&uid).cloned().unwrap_or_else(|| uid.to_string().into())
    }
}

/// `None` for a kernel thread, and for a process that exited or is hidden from us.
fn exe(tgid: u32) -> Option<Arc<str>> {
    let path = fs::read_link(format!("/proc/{tgid}/exe")).ok()?;
    Some(printable(&path.to_string_lossy()))
}

/// The first of several users with one number counts, as for `getpwuid`.
fn users(passwd: &str) -> HashMap<u32, Arc<str>> {
    let mut users = HashMap::new();
    for line in passwd.lines() {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok()));
        if let (Some(name), Some(uid)) = (name, uid) {
            users.entry(uid).or_insert_with(|| printable(name));
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_name_that_comes_first() {
        let users = users("root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nbad\nwww:x:33:33::/:\n");
        assert_eq!(users.get(&0).map(|name| &**name), Some("root"));
        assert_eq!(users.get(&33).map(|name| &**name), Some("www"));
        assert_eq!(users.len(), 2);
        assert_eq!(&*ProcessNames::default().user(4_000_000_000), "4000000000");
    }

    #[test]
    fn this_process_has_a_file_and_a_command_line() {
        let mut processes = ProcessNames::default();
        let pid = std::process::id();
        assert!(!processes.known.contains_key(&pid), "not met");
        processes.meet(pid, WantedFields::of(&[GroupBy::Exe, GroupBy::Cmdline], false));
        let expected = std::env::current_exe().expect("it is there");
        assert_eq!(processes.known[&pid].exe.as_deref(), expected.to_str());
        assert!(processes.known[&pid].cmdline.is_some());
    }
}
