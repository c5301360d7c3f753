//! Pages of a column, as the specification of Parquet has them: headers in Thrift's compact protocol, definition levels
//! and codes of a dictionary in the hybrid of runs and bit packing.

use strata_types::leb128;

const PLAIN: usize = 0;
const RLE: usize = 3;
const RLE_DICTIONARY: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Dictionary,
    /// Definition levels, and the values themselves.
    Plain,
    /// Definition levels, and codes of the dictionary.
    Codes,
}

/// The sizes of a page in bytes, without its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageSize {
    pub uncompressed: usize,
    pub compressed: usize,
}

/// Appends the header of a page of so many values, nulls counted.
pub(super) fn write_header(kind: PageKind, values: usize, size: PageSize, out: &mut Vec<u8>) {
    /// The type of a 32-bit integer, in the field after the one before.
    const INTEGER: u8 = 0x15;
    /// The type of a structure, two fields and four fields further.
    const DATA_PAGE: u8 = 0x2c;
    const DICTIONARY_PAGE: u8 = 0x4c;
    const STOP: u8 = 0;
    let integer = |value: usize, out: &mut Vec<u8>| {
        out.push(INTEGER);
        // Positive numbers are doubled.
        leb128::write((value as u64) << 1, out);
    };
    integer(if kind == PageKind::Dictionary { 2 } else { 0 }, out);
    integer(size.uncompressed, out);
    integer(size.compressed, out);
    out.push(if kind == PageKind::Dictionary { DICTIONARY_PAGE } else { DATA_PAGE });
    integer(values, out);
    match kind {
        PageKind::Dictionary => integer(PLAIN, out),
        PageKind::Plain | PageKind::Codes => {
            integer(if kind == PageKind::Plain { PLAIN } else { RLE_DICTIONARY }, out);
            integer(RLE, out);
            integer(RLE, out);
        }
    }
    out.extend_from_slice(&[STOP, STOP]);
}

/// Appends the definition levels of so many rows: these have a value, ascending, or all of them.
pub(super) fn write_levels(rows: usize, present: Option<&[u32]>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match present.filter(|present| present.len() < rows) {
        None => write_run(rows, 1, out),
        Some(present) if present.len() < rows / 16 => {
            let (mut row, mut at) = (0, 0);
            while let Some(&first) = present.get(at) {
                let first = first as usize;
                if first > row {
                    write_run(first - row, 0, out);
                }
                let values =
                    (at..present.len()).take_while(|&next| present[next] as usize == first + next - at).count();
                write_run(values, 1, out);
                row = first + values;
                at += values;
            }
            if rows > row {
                write_run(rows - row, 0, out);
            }
        }
        Some(present) => {
            let groups = rows.div_ceil(8);
            leb128::write((groups as u64) << 1 | 1, out);
            let bits = out.len();
            out.resize(bits + groups, 0);
            for &row in present {
                out[bits + row as usize / 8] |= 1 << (row % 8);
            }
        }
    }
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends codes below so many, with the number of bits of each.
pub(super) fn write_codes(codes: &[u32], below: usize, out: &mut Vec<u8>) {
    let width = code_bits(below);
    out.push(width as u8);
    if below == 1 {
        return write_run(codes.len(), 0, out);
    }
    let groups = codes.len().div_ceil(8);
    leb128::write((groups as u64) << 1 | 1, out);
    let end = out.len() + groups * width;
    let (mut bits, mut count) = (0_u64, 0);
    for &code in codes {
        bits |= u64::from(code) << count;
        count += width;
        if count >= 32 {
            out.extend_from_slice(&(bits as u32).to_le_bytes());
            bits >>= 32;
            count -= 32;
        }
    }
    out.extend_from_slice(&bits.to_le_bytes());
    out.resize(end, 0);
}

/// Appends booleans, each a byte, as one bit.
pub(super) fn write_bits(values: &[&[u8]], out: &mut Vec<u8>) {
    for (count, &value) in values.iter().copied().flatten().enumerate() {
        if count % 8 == 0 {
            out.push(0);
        }
        if let Some(last) = out.last_mut() {
            *last |= value << (count % 8);
        }
    }
}

/// Bits of a code below so many; at least one.
pub(super) fn code_bits(below: usize) -> usize {
    (usize::BITS - below.saturating_sub(1).leading_zeros()).max(1) as usize
}

/// Appends so many times the same level or code of at most eight bits.
fn write_run(length: usize, value: u8, out: &mut Vec<u8>) {
    leb128::write((length as u64) << 1, out);
    out.push(value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads the hybrid bit by bit.
    fn read(mut bytes: &[u8], width: usize, count: usize) -> Vec<u32> {
        let mut values = Vec::new();
        while values.len() < count {
            let header = leb128::read(&mut bytes).expect("a header") as usize;
            if header.is_multiple_of(2) {
                let size = width.div_ceil(8);
                let value = bytes[..size].iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
                bytes = &bytes[size..];
                values.resize(values.len() + header / 2, value);
            } else {
                let size = header / 2 * width;
                let bit = |at: usize| u32::from(bytes[at / 8] >> (at % 8) & 1);
                let value = |number: usize| (0..width).fold(0, |value, at| value | bit(number * width + at) << at);
                values.extend((0..header / 2 * 8).map(value));
                bytes = &bytes[size..];
            }
        }
        assert!(bytes.is_empty(), "{} bytes too many", bytes.len());
        values.truncate(count);
        values
    }

    proptest! {
        #[test]
        fn codes_read_back(below in 1_usize..70_000, seeds in prop::collection::vec(any::<u32>(), 0..200)) {
            let codes: Vec<u32> = seeds.iter().map(|seed| seed % below as u32).collect();
            let mut out = Vec::new();
            write_codes(&codes, below, &mut out);
            prop_assert_eq!(usize::from(out[0]), code_bits(below));
            if !codes.is_empty() {
                prop_assert_eq!(read(&out[1..], code_bits(below), codes.len()), codes);
            }
        }

        #[test]
        fn levels_read_back(rows in 0_usize..400, share in 0_u32..40, seeds in prop::collection::vec(any::<u32>(), 400)) {
            let levels: Vec<u32> = seeds[..rows].iter().map(|seed| u32::from(seed % 40 <= share)).collect();
            let present: Vec<u32> = (0..rows as u32).filter(|&row| levels[row as usize] == 1).collect();
            let mut out = Vec::new();
            write_levels(rows, Some(&present), &mut out);
            if present.len() == rows {
                let mut all = Vec::new();
                write_levels(rows, None, &mut all);
                prop_assert_eq!(&all, &out);
            }
            let (length, hybrid) = out.split_at(4);
            prop_assert_eq!(u32::from_le_bytes(length.try_into().expect("four bytes")) as usize, hybrid.len());
            if rows > 0 {
                prop_assert_eq!(read(hybrid, 1, rows), levels);
            }
        }
    }
}
