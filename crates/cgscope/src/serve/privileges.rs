//! Gives up the privileges that the daemon no longer needs after loading BPF, before anybody can connect.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

use crate::users::User;

/// Switches to another user, if one is given, and gives up every capability for good. Call it while there is only one thread:
/// other threads would keep their privileges.
///
/// The loaded maps and programs stay open, and reading them needs no privilege. Since Linux 5.19 (commit c8644cd0efe7), bpf(2)
/// needs one only to create maps and to load programs.
pub fn give_up(user: Option<&User>) -> Result<(), String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| {
            format!("{what} ({error}), so the daemon ends, because it must not serve with privileges")
        }
    };
    set_no_new_privs(true).map_err(io::Error::from).map_err(failed("new privileges cannot be prevented"))?;
    for capability in CapabilitySet::all().iter() {
        // Ignore errors: the process cannot remove a capability that it lacks, and an unknown capability does not exist.
        let _ = remove_capability_from_bounding_set(capability);
    }
    if let Some(user) = user {
        become_user(user).map_err(failed("the daemon could not become its user"))?;
    }
    // An error means that the kernel has no ambient capabilities.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(io::Error::from).map_err(failed("capabilities cannot be given up"))
}

fn become_user(user: &User) -> io::Result<()> {
    // SAFETY: the pointer is to `len` ids; the other calls take numbers only.
    let done = unsafe {
        libc::setgroups(user.groups.len(), user.groups.as_ptr()) == 0
            && libc::setresgid(user.gid, user.gid, user.gid) == 0
            && libc::setresuid(user.uid, user.uid, user.uid) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
