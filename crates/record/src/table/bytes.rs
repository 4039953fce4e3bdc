//! Numbers in the bytes of a payload.

use integer_encoding::VarInt;

/// The bytes that are left of a payload.
#[derive(Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn number<N: VarInt>(&mut self) -> Option<N> {
        let (number, length) = N::decode_var(self.0)?;
        self.0 = &self.0[length..];
        Some(number)
    }

    /// A difference. Most are of one byte.
    #[inline]
    pub(super) fn change(&mut self) -> Option<u64> {
        match self.0.split_first() {
            Some((byte, rest)) if *byte < 0x80 => {
                self.0 = rest;
                Some(u64::from(byte >> 1) ^ 0u64.wrapping_sub((byte & 1).into()))
            }
            _ => self.number::<i64>().map(|change| change as u64),
        }
    }

    #[inline]
    pub(super) fn gap(&mut self) -> Option<u64> {
        match self.0.split_first() {
            Some((byte, rest)) if *byte < 0x80 => {
                self.0 = rest;
                Some((*byte).into())
            }
            _ => self.number(),
        }
    }

    /// How many of something follow, of which each takes at least `bytes`.
    pub(crate) fn count(&mut self, bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.gap()?).ok()?;
        (count <= self.0.len() / bytes).then_some(count)
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Places below `length`, ascending.
    pub(super) fn places(&mut self, length: usize, into: &mut Vec<usize>) -> Option<()> {
        into.clear();
        let mut next = 0usize;
        for _ in 0..self.count(1)? {
            let gap = usize::try_from(self.gap()?).ok()?;
            let place = next.checked_add(gap).filter(|place| *place < length)?;
            into.push(place);
            next = place + 1;
        }
        Some(())
    }
}
