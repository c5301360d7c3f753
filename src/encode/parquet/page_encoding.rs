//! Encodes the parts of pages: definition levels and codes, in Parquet's hybrid of run-length encoding and bit packing.

use strata_types::leb128;

/// Appends the definition levels of rows, which show whether a row has a value. `present` contains the rows with a
/// value, ascending. `None` means that all rows have a value.
pub(super) fn write_definition_levels(rows: usize, present: Option<&[u32]>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match present.filter(|present| present.len() < rows) {
        None => write_rle_run(rows, 1, out),
        Some(present) if present.len() < rows / 16 => {
            let mut row = 0;
            let mut at = 0;
            while let Some(&first) = present.get(at) {
                let first = first as usize;
                if first > row {
                    write_rle_run(first - row, 0, out);
                }
                let count = (at..present.len()).take_while(|&next| present[next] as usize == first + next - at).count();
                write_rle_run(count, 1, out);
                row = first + count;
                at += count;
            }
            if rows > row {
                write_rle_run(rows - row, 0, out);
            }
        }
        Some(present) => {
            let groups = rows.div_ceil(8);
            leb128::write_varint((groups as u64) << 1 | 1, out);
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

/// Appends the number of bits of a dictionary code, and then the codes, which are less than `code_count`.
pub(super) fn write_dictionary_codes(codes: &[u32], code_count: usize, out: &mut Vec<u8>) {
    let width = dictionary_code_bits(code_count);
    out.push(width as u8);
    if code_count == 1 {
        return write_rle_run(codes.len(), 0, out);
    }
    let groups = codes.len().div_ceil(8);
    leb128::write_varint((groups as u64) << 1 | 1, out);
    let end = out.len() + groups * width;
    let mut bits = 0_u64;
    let mut count = 0;
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

/// Appends boolean values as bits. In `values`, each of them is a byte.
pub(super) fn write_boolean_bits(values: &[&[u8]], out: &mut Vec<u8>) {
    for (count, &value) in values.iter().copied().flatten().enumerate() {
        if count % 8 == 0 {
            out.push(0);
        }
        if let Some(last) = out.last_mut() {
            *last |= value << (count % 8);
        }
    }
}

/// The number of bits of dictionary codes that are less than `code_count`, at least one.
pub(super) fn dictionary_code_bits(code_count: usize) -> usize {
    (usize::BITS - code_count.saturating_sub(1).leading_zeros()).max(1) as usize
}

/// Appends a run of `length` equal levels or codes, which have at most eight bits.
fn write_rle_run(length: usize, value: u8, out: &mut Vec<u8>) {
    leb128::write_varint((length as u64) << 1, out);
    out.push(value);
}
