//! How much memory is in use, and was at most.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

static NOW: AtomicUsize = AtomicUsize::new(0);
static BEGUN_WITH: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of the bytes in use.
pub struct Counting;

// SAFETY: all of it is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// From here on.
fn begin() {
    let now = NOW.load(Relaxed);
    BEGUN_WITH.store(now, Relaxed);
    MOST.store(now, Relaxed);
}

/// The most since then, bytes.
fn most() -> usize {
    MOST.load(Relaxed).saturating_sub(BEGUN_WITH.load(Relaxed))
}

/// What hearing or reading may take however little it is: buffers, the tables' columns, zstd.
const AT_LEAST: usize = 4 << 20;
/// And for each byte of it. A row is some 1,500 bytes in memory, and no less than 8 in a file.
const FOR_A_BYTE: usize = 512;

/// Does something with so many bytes.
///
/// # Panics
/// When that takes more memory than they are worth.
pub fn bounded(bytes: usize, act: impl FnOnce()) {
    begin();
    act();
    let most = most();
    assert!(most <= AT_LEAST + FOR_A_BYTE * bytes, "{most} bytes for {bytes}");
}
