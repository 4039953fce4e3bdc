//! The reading of exited tasks by cgroup. Tasks exited lately in few of a host's thousands of cgroups, so a place is written whole
//! only if it changed.

use core::ptr;

use aya_ebpf::helpers::generated::bpf_seq_write;
use cgscope_layout::wire::{Exited, ExitedRecord};

use crate::kernel::{EntryContext, SeqFile};

/// Bytes of a record with what may follow it.
const LONGEST: usize = size_of::<ExitedRecord>() + size_of::<Exited>();

// Two of them do not fit where a record might not.
const _: () = assert!(2 * size_of::<Exited>() > LONGEST);

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map_elem")]
pub extern "C" fn read_exited(ctx: *const EntryContext) -> i32 {
    // SAFETY: the context of an iterator over `EXITED`, which is the only one that it is attached to.
    let (seq, Some((cgroup_id, place))) = (unsafe { EntryContext::parts::<Exited>(ctx) }) else { return 0 };
    if seq.room() <= LONGEST as u64 {
        // Longer than the room: the kernel hands over what is there and shows this place again.
        write_place(seq, place);
        write_place(seq, place);
        return 0;
    }
    // SAFETY: a value of the table. `complete` is read before the figures: it is not ahead of them.
    let (complete, told) = unsafe {
        (ptr::read_volatile(&raw const (*place).complete), ptr::read_volatile(&raw const (*place).told))
    };
    let mut record = ExitedRecord { cgroup_id, follows: (!Exited::is_told(complete, told)).into() };
    // SAFETY: readable in the size given.
    unsafe {
        bpf_seq_write(seq.pointer().cast(), (&raw mut record).cast(), size_of::<ExitedRecord>() as u32)
    };
    if record.follows != 0 {
        write_place(seq, place);
        // SAFETY: as above; nobody else writes it.
        unsafe { ptr::write_volatile(&raw mut (*place).told, [complete, told[0]]) };
    }
    0
}

#[inline(always)]
fn write_place(seq: SeqFile, place: *mut Exited) {
    // SAFETY: a value of the table is readable in its whole size.
    unsafe { bpf_seq_write(seq.pointer().cast(), place.cast(), size_of::<Exited>() as u32) };
}
