//! Numbers as LEB128: seven bits a byte, the lowest first; the highest bit says that more follow.

use std::fmt;

/// Bytes are not shapes that this build writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged(pub(super) &'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the shapes are damaged: {}", self.0)
    }
}

impl std::error::Error for Damaged {}

/// Appends a number.
#[inline]
pub(super) fn write(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number at the start of `bytes`, which are then those behind it. `None` when they are cut off, or it has more
/// than 32 bits.
#[inline]
pub(super) fn read(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u64;
    for shift in [0, 7, 14, 21, 28] {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if *byte < 0x80 {
            return u32::try_from(number).ok();
        }
    }
    None
}

/// So many bytes from the start of `bytes`, which are then those behind them.
pub(super) fn take<'b>(bytes: &mut &'b [u8], length: u32) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(length as usize)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, 1 << 28, u32::MAX];
        let mut out = Vec::new();
        numbers.iter().for_each(|number| write(*number, &mut out));
        let mut rest = out.as_slice();
        numbers.iter().for_each(|number| assert_eq!(read(&mut rest), Some(*number)));
        assert_eq!((read(&mut rest), take(&mut rest, 1)), (None, None));
        assert_eq!(read(&mut &[0xFF, 0xFF, 0xFF, 0xFF, 0x1F][..]), None);
        assert_eq!(read(&mut &[0xFF; 9][..]), None);
    }
}
