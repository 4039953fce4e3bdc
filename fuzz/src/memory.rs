//! Counts the memory in use, and its maximum.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

static NOW: AtomicUsize = AtomicUsize::new(0);
static BEGUN_WITH: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which also counts the bytes in use.
pub struct Counting;

// SAFETY: the system's allocator handles every call.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn begin() {
    let now = NOW.load(Relaxed);
    BEGUN_WITH.store(now, Relaxed);
    MOST.store(now, Relaxed);
}

/// Returns the maximum growth since [`begin`], bytes.
fn most() -> usize {
    MOST.load(Relaxed).saturating_sub(BEGUN_WITH.load(Relaxed))
}

/// Fixed part of the memory limit, bytes: buffers, the tables' columns, zstd.
const AT_LEAST: usize = 4 << 20;
/// Additional limit for each input byte. A row takes about 1,500 bytes in memory, and at least 8 bytes in a file.
const FOR_A_BYTE: usize = 512;

/// Runs `act`, which handles `bytes` bytes of input, and checks its memory use.
///
/// # Panics
/// Panics if `act` uses more memory than this input allows.
pub fn bounded(bytes: usize, act: impl FnOnce()) {
    begin();
    act();
    let most = most();
    assert!(most <= AT_LEAST + FOR_A_BYTE * bytes, "{most} bytes of memory for an input of {bytes}");
}
