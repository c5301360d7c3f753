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
