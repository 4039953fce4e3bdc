//! How many bytes of pages are held: by those who made them, and by clients that have not taken all of theirs.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;

/// The count.
#[derive(Clone, Default)]
pub(super) struct HeldBytes(Arc<AtomicUsize>);

/// A body that is counted as long as any part of it is there.
struct Body {
    bytes: Bytes,
    held: HeldBytes,
}

impl HeldBytes {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// The same body, counted.
    pub(super) fn count(&self, bytes: Bytes) -> Bytes {
        self.0.fetch_add(bytes.len(), Relaxed);
        Bytes::from_owner(Body { bytes, held: self.clone() })
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_counted_until_the_last_piece_of_it_is_gone() {
        let held = HeldBytes::default();
        let mut body = held.count(Bytes::from(vec![7; 100]));
        let other = held.count(Bytes::from_static(b"abc"));
        let (piece, copy) = (body.split_to(1), body.clone());
        assert_eq!((held.bytes(), &*piece, &*other), (103, &[7][..], &b"abc"[..]));
        drop((body, copy));
        assert_eq!(held.bytes(), 103);
        drop(piece);
        assert_eq!(held.bytes(), 3);
    }
}
