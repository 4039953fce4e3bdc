//! Makes the `bpf(2)` calls that aya 0.14 lacks: iterators over all entries of a map (`bpf_iter` of `bpf_map_elem`, Linux 5.9),
//! and reads of a whole map in a few calls (BPF_MAP_LOOKUP_BATCH, Linux 5.6).

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use aya::Pod;
use cgscope_ledger::{
    Offsets, Stack,
    chains::{PairKey, PairSums},
    culprits::{Pairs, TaskNames},
    demand::Slots,
    pressure::Pressures,
    threads::{ThreadRecord, ThreadsConfig},
    wire::{
        AccountsRecord, Config, CpuCounters, Exited, ExitedRecord, Histogram, ListRecord, Marks, Placement,
        Reported, SameRecord, StackCount, StackKey, TaskRecord,
    },
};

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;

/// The part of `union bpf_attr` that we use for BPF_LINK_CREATE.
#[derive(Default)]
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

/// An iterator program attached to a map or to a single task. The program runs only when the iterator is read.
pub(crate) struct TableReading {
    link: OwnedFd,
}

impl TableReading {
    /// Attaches to the map with this descriptor, or to the task with this id (Linux 6.1).
    pub(crate) fn new(program: BorrowedFd<'_>, target: u32) -> io::Result<Self> {
        // `union bpf_iter_link_info`: the map or the task, and an unused word.
        let info = [target, 0];
        let attributes = LinkAttributes {
            program: program.as_raw_fd() as u32,
            attach_type: BPF_TRACE_ITER,
            info: (&raw const info) as u64,
            info_len: size_of_val(&info) as u32,
            ..LinkAttributes::default()
        };
        Ok(Self { link: descriptor(BPF_LINK_CREATE, attributes)? })
    }

    /// Opens a stream of the program's output. Needs no privilege (Linux 5.19).
    pub(crate) fn open(&self) -> io::Result<File> {
        let flags = 0;
        Ok(descriptor(BPF_ITER_CREATE, [self.link.as_raw_fd() as u32, flags])?.into())
    }
}

fn descriptor<A>(command: libc::c_long, mut attributes: A) -> io::Result<OwnedFd> {
    // SAFETY: everything that the attributes point to outlives the call.
    let fd = unsafe { bpf(command, &mut attributes) }?;
    // SAFETY: the kernel has just created this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Makes the system call. The pointers in `attributes` must be valid for `command`.
unsafe fn bpf<A>(command: libc::c_long, attributes: &mut A) -> io::Result<libc::c_long> {
    // SAFETY: the kernel accesses at most `size_of::<A>()` bytes.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<A>() as libc::c_ulong)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

const AT_A_TIME: usize = 256;

#[repr(C)]
struct BatchAttributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Calls `each` for every entry of a hash map. Can miss an entry that is added or removed during the call.
pub(crate) fn entries<K: Plain, V: Plain>(
    map: BorrowedFd<'_>,
    mut each: impl FnMut(&K, &V),
) -> io::Result<()> {
    let mut keys: Vec<K> = Vec::with_capacity(AT_A_TIME);
    let mut values: Vec<V> = Vec::with_capacity(AT_A_TIME);
    let mut place: Option<u32> = None;
    let mut room = AT_A_TIME;
    loop {
        keys.reserve(room);
        values.reserve(room);
        let mut next = 0u32;
        let mut attributes = BatchAttributes {
            in_batch: place.as_ref().map_or(0, |place| (&raw const *place) as u64),
            out_batch: (&raw mut next) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: room as u32,
            map_fd: map.as_raw_fd() as u32,
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: the buffers hold `count` keys and values, and both batch positions are valid.
        let result = unsafe { bpf(BPF_MAP_LOOKUP_BATCH, &mut attributes) };
        let error = result.err().and_then(|error| error.raw_os_error());
        match error {
            None | Some(libc::ENOENT) => {}
            Some(libc::ENOSPC) if room < 1 << 16 => {
                room *= 2;
                continue;
            }
            Some(libc::EINTR) => continue,
            Some(code) => return Err(io::Error::from_raw_os_error(code)),
        }
        // SAFETY: the kernel has filled in `count` entries, and any bits are valid.
        unsafe {
            keys.set_len(attributes.count as usize);
            values.set_len(attributes.count as usize);
        }
        keys.iter().zip(&values).for_each(|(key, value)| each(key, value));
        keys.clear();
        values.clear();
        if error.is_some() {
            return Ok(());
        }
        place = Some(next);
    }
}

/// A type that consists of integers.
///
/// # Safety
///
/// Any bits must be a valid value of the type.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: the type consists of integers and arrays of integers.
        unsafe impl Plain for $type {}
    )*};
}

plain! {
    u64, Exited, ExitedRecord, SameRecord, ListRecord, TaskRecord, Reported, Placement, AccountsRecord,
    Stack, Histogram, StackKey, StackCount, Pairs, TaskNames, Pressures, Slots, CpuCounters, Marks, Offsets, Config, ThreadRecord,
    ThreadsConfig, PairKey, PairSums, [u64; 8]
}

/// Wraps a plain type for aya. We cannot implement aya's trait for types of another crate.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Raw<T>(pub T);

// SAFETY: `Plain` makes the same promise for the wrapped type.
unsafe impl<T: Plain + 'static> Pod for Raw<T> {}

impl<T: Plain> Raw<T> {
    /// Returns the bytes of the value.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the type consists of integers and has no padding.
        unsafe { std::slice::from_raw_parts((&raw const self.0).cast(), size_of::<T>()) }
    }
}
