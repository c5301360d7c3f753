//! Where the outline of a file lies: what stands behind the seal.

use std::ops::Range;

use strata_store::checksums::checksum;

const OFFSET_DIGITS: usize = 16;

const DIGITS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutlinePlace {
    offset: u64,
    length: u32,
    checksum: u32,
}

impl OutlinePlace {
    /// The place of these bytes at an offset. `None` when they are too many.
    pub(crate) fn new(offset: u64, bytes: &[u8]) -> Option<OutlinePlace> {
        Some(OutlinePlace { offset, length: u32::try_from(bytes.len()).ok()?, checksum: checksum(bytes) })
    }

    /// The text behind the seal: offset, length and checksum of the outline, and the checksum of all that, each
    /// behind a colon. A reader believes it before it has compared the seal.
    pub(crate) fn text(&self) -> String {
        let OutlinePlace { offset, length, checksum: sum } = self;
        let place = format!(":{offset:0OFFSET_DIGITS$x}:{length:0DIGITS$x}:{sum:0DIGITS$x}");
        format!("{place}:{:0DIGITS$x}", checksum(place.as_bytes()))
    }

    /// Reads what bytes begin with, if that is what [`OutlinePlace::text`] wrote.
    pub(crate) fn find(behind_seal: &[u8]) -> Option<OutlinePlace> {
        const LENGTH: usize = 4 + OFFSET_DIGITS + 3 * DIGITS;
        let text = std::str::from_utf8(behind_seal.get(..LENGTH)?).ok()?;
        let mut numbers = text.split(':').skip(1).map(|digits| u64::from_str_radix(digits, 16));
        let mut next = || numbers.next()?.ok();
        let offset = next()?;
        let [length, checksum] = [u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?];
        let place = OutlinePlace { offset, length, checksum };
        (place.text() == text).then_some(place)
    }

    pub(crate) fn range(&self) -> Option<Range<u64>> {
        Some(self.offset..self.offset.checked_add(self.length.into())?)
    }

    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == u64::from(self.length) && checksum(bytes) == self.checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let place = OutlinePlace::new(0xABCDE, b"an outline").expect("a place");
        let text = format!("{}\u{1}strata 1.0", place.text()).into_bytes();
        assert_eq!(OutlinePlace::find(&text), Some(place));
        assert!(place.is_of(b"an outline") && !place.is_of(b"a Outline") && !place.is_of(b"an outline "));
        assert_eq!(place.range(), Some(0xABCDE..0xABCDE + 10));
        for at in 0..place.text().len() {
            for bit in 0..8 {
                let mut other = text.clone();
                other[at] ^= 1 << bit;
                assert_eq!(OutlinePlace::find(&other), None, "bit {bit} of byte {at}");
            }
            assert_eq!(OutlinePlace::find(&text[..at]), None);
        }
    }
}
