//! LEB128 numbers: seven bits per byte, lowest first. The highest bit means that more bytes follow. 300 is `AC 02`.

#[inline]
pub fn write_varint(number: impl Into<u64>, out: &mut Vec<u8>) {
    let mut rest = number.into();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Removes a number from the front of `bytes`. Returns `None` if the number is truncated or longer than ten bytes. Bits
/// above the 64th are ignored.
#[inline]
pub fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
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

/// Like [`read_varint`], but returns `None` if the number exceeds 32 bits.
#[inline]
pub fn read_varint_u32(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(read_varint(bytes)?).ok()
}
