//! What every BPF object needs.

/// The kernel lets only GPL-compatible programs use `bpf_get_current_task_btf`, `bpf_seq_write`, `bpf_get_task_stack` and task
/// storage.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
