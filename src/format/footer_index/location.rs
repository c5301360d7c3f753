//! The location of the footer index, which is encoded after the footer checksum.

use std::ops::Range;

use strata_store::checksums::crc32;

const OFFSET_DIGITS: usize = 16;
const HEX_DIGITS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FooterIndexLocation {
    offset: u64,
    length: u32,
    checksum: u32,
}

impl FooterIndexLocation {
    pub(crate) fn new(offset: u64, bytes: &[u8]) -> Option<FooterIndexLocation> {
        Some(FooterIndexLocation { offset, length: u32::try_from(bytes.len()).ok()?, checksum: crc32(bytes) })
    }

    /// Encodes the location of the footer index, followed by a checksum of the location itself, so that readers can use
    /// it before they verify the footer.
    pub(crate) fn encode(&self) -> String {
        let FooterIndexLocation { offset, length, checksum } = self;
        let location = format!(":{offset:0OFFSET_DIGITS$x}:{length:0HEX_DIGITS$x}:{checksum:0HEX_DIGITS$x}");
        format!("{location}:{:0HEX_DIGITS$x}", crc32(location.as_bytes()))
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<FooterIndexLocation> {
        const ENCODED_BYTES: usize = 4 + OFFSET_DIGITS + 3 * HEX_DIGITS;
        let text = std::str::from_utf8(bytes.get(..ENCODED_BYTES)?).ok()?;
        let mut numbers = text.split(':').skip(1).map(|digits| u64::from_str_radix(digits, 16));
        let mut next = || numbers.next()?.ok();
        let offset = next()?;
        let [length, checksum] = [u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?];
        let location = FooterIndexLocation { offset, length, checksum };
        (location.encode() == text).then_some(location)
    }

    pub(crate) fn range(&self) -> Option<Range<u64>> {
        Some(self.offset..self.offset.checked_add(self.length.into())?)
    }

    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == u64::from(self.length) && crc32(bytes) == self.checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_only_encoded_locations() {
        let location = FooterIndexLocation::new(0xABCDE, b"an outline").expect("failed to create location");
        let text = format!("{}\u{1}strata 1.0", location.encode()).into_bytes();
        assert_eq!(FooterIndexLocation::parse(&text), Some(location));
        assert!(
            location.matches(b"an outline") && !location.matches(b"a Outline") && !location.matches(b"an outline ")
        );
        assert_eq!(location.range(), Some(0xABCDE..0xABCDE + 10));
        for byte in 0..location.encode().len() {
            for bit in 0..8 {
                let mut other = text.clone();
                other[byte] ^= 1 << bit;
                assert_eq!(FooterIndexLocation::parse(&other), None, "bit {bit} of byte {byte}");
            }
            assert_eq!(FooterIndexLocation::parse(&text[..byte]), None);
        }
    }
}
