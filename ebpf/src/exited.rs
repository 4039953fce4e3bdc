//! Reads the figures of exited tasks by cgroup. In most of a host's thousands of cgroups no task has exited lately, so an entry
//! is written in full only if it has changed.

use core::ptr;

use aya_ebpf::helpers::generated::bpf_seq_write;
use cgscope_ledger::wire::{Exited, ExitedRecord};

use crate::kernel::{EntryContext, SeqFile};

/// Maximum size in bytes of a record and the entry that may follow it.
const LONGEST: usize = size_of::<ExitedRecord>() + size_of::<Exited>();

// Wherever the longest record might not fit, two entries never fit.
const _: () = assert!(2 * size_of::<Exited>() > LONGEST);

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map_elem")]
pub extern "C" fn read_exited(ctx: *const EntryContext) -> i32 {
    // SAFETY: the context of an iterator over `EXITED`, the only map that this program is attached to.
    let (seq, Some((cgroup_id, place))) = (unsafe { EntryContext::parts::<Exited>(ctx) }) else { return 0 };
    if seq.space_left() <= LONGEST as u64 {
        // The longest record may not fit: overflow the buffer on purpose. The kernel then passes it to user space and repeats
        // this entry.
        write_place(seq, place);
        write_place(seq, place);
        return 0;
    }
    // SAFETY: a map value. `complete` is read before the figures, so it counts no addition whose figures are missing.
    let (complete, reported) = unsafe {
        (ptr::read_volatile(&raw const (*place).complete), ptr::read_volatile(&raw const (*place).reported))
    };
    let mut record = ExitedRecord { cgroup_id, follows: (!Exited::is_reported(complete, reported)).into() };
    // SAFETY: readable in the given size.
    unsafe {
        bpf_seq_write(seq.pointer().cast(), (&raw mut record).cast(), size_of::<ExitedRecord>() as u32)
    };
    if record.follows != 0 {
        write_place(seq, place);
        // SAFETY: as above; nobody else writes `reported`.
        unsafe { ptr::write_volatile(&raw mut (*place).reported, [complete, reported[0]]) };
    }
    0
}

#[inline(always)]
fn write_place(seq: SeqFile, place: *mut Exited) {
    // SAFETY: a map value, readable in its full size.
    unsafe { bpf_seq_write(seq.pointer().cast(), place.cast(), size_of::<Exited>() as u32) };
}
