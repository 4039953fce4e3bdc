//! Programs that the kernel runs over all entries of a table (`bpf_iter` of `bpf_map_elem`, Linux 5.9), which aya 0.14 has no way
//! to attach.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;

/// The part of `union bpf_attr` for links of iterators.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    info: u64,
    info_len: u32,
    unused: u32,
}

/// `union bpf_iter_link_info`: the table, and no more.
#[repr(C)]
struct LinkInfo {
    map: u32,
    unused: u32,
}

/// The part of `union bpf_attr` for iterators.
#[repr(C)]
struct IteratorAttributes {
    link: u32,
    flags: u32,
}

/// A program that is attached to a table: it runs when it is read, and only then.
#[derive(Debug)]
pub(crate) struct TableReading {
    link: OwnedFd,
}

impl TableReading {
    /// Of a loaded program and the table that it was written for.
    pub(crate) fn new(program: BorrowedFd<'_>, table: BorrowedFd<'_>) -> io::Result<Self> {
        let info = LinkInfo { map: table.as_raw_fd() as u32, unused: 0 };
        let link = descriptor(
            BPF_LINK_CREATE,
            LinkAttributes {
                program: program.as_raw_fd() as u32,
                target: 0,
                attach_type: BPF_TRACE_ITER,
                flags: 0,
                info: (&raw const info) as u64,
                info_len: size_of::<LinkInfo>() as u32,
                unused: 0,
            },
        )?;
        Ok(Self { link })
    }

    /// What the program writes of all entries. Needs no privilege (Linux 5.19).
    pub(crate) fn open(&self) -> io::Result<File> {
        let iterator = IteratorAttributes { link: self.link.as_raw_fd() as u32, flags: 0 };
        Ok(descriptor(BPF_ITER_CREATE, iterator)?.into())
    }
}

/// A command that makes a descriptor.
fn descriptor<A>(command: libc::c_long, mut attributes: A) -> io::Result<OwnedFd> {
    // SAFETY: what the attributes point to outlives the call.
    let fd = unsafe { bpf(command, &mut attributes) }?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The system call.
///
/// # Safety
/// What `attributes` point to must be as the command expects it.
pub(crate) unsafe fn bpf<A>(command: libc::c_long, attributes: &mut A) -> io::Result<libc::c_long> {
    // SAFETY: the kernel accesses as many bytes as there are.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<A>() as libc::c_ulong)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
