//! Whole tables of the BPF side in a few system calls (BPF_MAP_LOOKUP_BATCH, Linux 5.6), which aya 0.14 has no call for.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use crate::{plain::Plain, table_reading::bpf};

/// Entries that are read at a time.
const AT_A_TIME: usize = 256;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;

/// The part of `union bpf_attr` for batches.
#[repr(C)]
struct Attributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Calls `each` with every entry of a hash table, whose keys and values are of these sizes. What is entered or removed meanwhile may be there or not.
pub(crate) fn entries<K: Plain, V: Plain>(
    map: BorrowedFd<'_>,
    mut each: impl FnMut(&K, &V),
) -> io::Result<()> {
    let mut keys: Vec<K> = Vec::with_capacity(AT_A_TIME);
    let mut values: Vec<V> = Vec::with_capacity(AT_A_TIME);
    let mut place = 0u32;
    let mut is_first = true;
    let mut room = AT_A_TIME;
    loop {
        keys.reserve(room);
        values.reserve(room);
        let mut next = 0u32;
        let mut attributes = Attributes {
            in_batch: if is_first { 0 } else { (&raw const place) as u64 },
            out_batch: (&raw mut next) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: room as u32,
            map_fd: map.as_raw_fd() as u32,
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: there is room for `count` keys and values, and for the two places.
        let result = unsafe { bpf(BPF_MAP_LOOKUP_BATCH, &mut attributes) };
        let error = result.err().and_then(|error| error.raw_os_error());
        match error {
            None | Some(libc::ENOENT) => {}
            // More entries share a bucket than there is room for.
            Some(libc::ENOSPC) if room < 1 << 16 => {
                room *= 2;
                continue;
            }
            Some(libc::EINTR) => continue,
            Some(code) => return Err(io::Error::from_raw_os_error(code)),
        }
        // SAFETY: the kernel has filled in so many, and any bits are valid.
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
        (place, is_first) = (next, false);
    }
}
