//! Users and groups from the files of this host. The C library also queries network services, and fails in a static program.

use std::{fs, io};

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub home: String,
    pub shell: String,
    pub groups: Vec<u32>,
}

impl User {
    /// Makes this process run as the user. Makes only system calls, so that it can be called between fork and exec.
    /// [`std::os::unix::process::CommandExt::uid`] would leave the user without supplementary groups.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: the pointer is to `len` ids; the other calls take numbers only.
        let done = unsafe {
            libc::setgroups(self.groups.len(), self.groups.as_ptr()) == 0
                && libc::setresgid(self.gid, self.gid, self.gid) == 0
                && libc::setresuid(self.uid, self.uid, self.uid) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// An id that is no user and no group. System calls with this id leave the owner or the user unchanged.
pub const NO_ID: u32 = u32::MAX;

/// Name of the user and of the group with id 0.
const ROOT: &str = "root";

pub fn user(name: &str) -> Result<User, String> {
    let user = parse_user(&read(USERS)?, &read(GROUPS)?, name);
    user.ok_or_else(|| format!("there is no user {name:?} with valid ids in {USERS}"))
}

pub fn group(name: &str) -> Result<u32, String> {
    if name == ROOT {
        return Ok(0);
    }
    parse_group(&read(GROUPS)?, name)
        .ok_or_else(|| format!("there is no group {name:?} with a valid id in {GROUPS}"))
}

/// Returns the name of a group, or its number if it has no name.
pub fn name_of_group(gid: u32) -> String {
    let file = read(GROUPS).unwrap_or_default();
    parse_name_of_group(&file, gid).unwrap_or_else(|| gid.to_string())
}

/// Returns the id of a user. `root` needs no user file, because an image with a single program may have none.
pub fn user_id(name: &str) -> Result<u32, String> {
    if name == ROOT { Ok(0) } else { user(name).map(|user| user.uid) }
}

fn read(path: &str) -> Result<String, String> {
    let read = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    read.map_err(|error| format!("users and groups cannot be looked up in {path} ({error})"))
}

fn lines(file: &str) -> impl Iterator<Item = Vec<&str>> {
    file.lines().map(|line| line.split(':').collect())
}

fn parse_user(passwd: &str, group: &str, name: &str) -> Option<User> {
    let fields = lines(passwd).find(|fields| fields[0] == name)?;
    let is_member = |fields: &Vec<&str>| {
        fields.get(3).is_some_and(|members| members.split(',').any(|member| member == name))
    };
    Some(User {
        uid: id(fields.get(2)?)?,
        gid: id(fields.get(3)?)?,
        home: (*fields.get(5)?).into(),
        shell: fields.get(6).filter(|shell| !shell.is_empty()).map_or("/bin/sh", |shell| shell).into(),
        groups: lines(group).filter(is_member).filter_map(|fields| id(fields[2])).collect(),
    })
}

fn parse_group(group: &str, name: &str) -> Option<u32> {
    id(lines(group).find(|fields| fields[0] == name)?.get(2)?)
}

fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != NO_ID)
}

fn parse_name_of_group(group: &str, gid: u32) -> Option<String> {
    let has_id = |fields: &Vec<&str>| fields.get(2).is_some_and(|id| id.parse() == Ok(gid));
    lines(group).find(has_id).map(|fields| fields[0].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_the_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nrooter:x:7:8::/home/r:/bin/sh\n";
        let group = "a:x:5:rooter,b\nb:x:6:root\nc:x:7:\nd:x:8:b,rooter\n";
        let user = parse_user(passwd, group, "rooter").unwrap();
        assert_eq!((user.uid, user.gid, user.home.as_str()), (7, 8, "/home/r"));
        assert_eq!(user.groups, [5, 8]);
        assert!(parse_user(passwd, group, "roo").is_none());
        assert_eq!(user.shell, "/bin/sh");
        assert_eq!(parse_group(group, "c"), Some(7));
        assert_eq!(parse_group(group, ""), None);
        assert_eq!((parse_name_of_group(group, 7), parse_name_of_group(group, 9)), (Some("c".into()), None));
    }

    #[test]
    fn the_id_that_chown_ignores_is_not_valid() {
        let passwd = "a:x:4294967295:8::/:\nb:x:7:4294967295::/:\nc:x:7:8::/:\n";
        let group = "all:x:4294967295:c\nd:x:5:c\n";
        assert!(parse_user(passwd, group, "a").is_none() && parse_user(passwd, group, "b").is_none());
        assert_eq!(parse_group(group, "all"), None);
        let user = parse_user(passwd, group, "c").unwrap();
        assert_eq!((user.groups.as_slice(), user.shell.as_str()), (&[5][..], "/bin/sh"));
    }
}
