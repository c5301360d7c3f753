//! Numbers as LEB128: seven bits a byte, the lowest first; the highest bit says that more follow. 300 is `AC 02`.

/// Appends a number, which takes ten bytes at most.
#[inline]
pub fn write(number: impl Into<u64>, out: &mut Vec<u8>) {
    let mut rest = number.into();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads the number at the start of `bytes`, which then start behind it. `None` if `bytes` end too early, or if the
/// number takes more than ten bytes. The bits above the 64th are ignored.
#[inline]
pub fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Like [`read`], but `None` if the number has more than 32 bits.
#[inline]
pub fn read_u32(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(read(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_written() {
        let numbers = [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), 1 << 32, u64::MAX];
        let mut out = Vec::new();
        numbers.iter().for_each(|number| write(*number, &mut out));
        let mut rest = &out[..];
        let mut rest_u32 = &out[..];
        for number in numbers {
            assert_eq!(read(&mut rest), Some(number));
            assert_eq!(read_u32(&mut rest_u32), u32::try_from(number).ok());
        }
        assert_eq!(read(&mut rest), None);
        assert_eq!(out[5..7], [0xAC, 0x02], "300");
    }

    #[test]
    fn damaged_numbers_are_refused() {
        for damaged in [&[][..], &[0x80], &[0xFF; 9], &[0xFF; 11]] {
            assert_eq!(read(&mut &damaged[..]), None, "{damaged:?}");
        }
        assert_eq!(read_u32(&mut &[0xFF, 0xFF, 0xFF, 0xFF, 0x1F][..]), None);
    }
}
