//! Texts in Parquet's delta encodings, written out in full.
//!
//! The library's decoders believe the counts that stand in such a page, and a text of a few bytes can repeat the megabyte
//! before it. So pages are brought into the plain encoding first, within a bound.
//!
//! Source: the Parquet format, "Encodings", `DELTA_BINARY_PACKED` (5), `DELTA_LENGTH_BYTE_ARRAY` (6), `DELTA_BYTE_ARRAY` (7).

use super::thrift::{Malformed, Walker};

/// Why a page is not written out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeltaError {
    /// It is not what it should be.
    Malformed,
    /// It would be longer than it may be.
    TooLong,
}

impl From<Malformed> for DeltaError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The plain form of values in `DELTA_LENGTH_BYTE_ARRAY`, or with `has_prefixes` in `DELTA_BYTE_ARRAY`: at most
/// `values_max` of them, `limit_bytes` together; each after its length, unless all have the same (`has_lengths`).
pub(super) fn to_plain(
    values: &[u8],
    has_prefixes: bool,
    has_lengths: bool,
    values_max: usize,
    limit_bytes: usize,
) -> Result<Vec<u8>, DeltaError> {
    // Four bytes for each length; they are short-lived.
    let values_max = values_max.min(limit_bytes / 4);
    let (prefixes, after) = match has_prefixes {
        true => {
            let (prefixes, after) = lengths(values, values_max)?;
            (Some(prefixes), after)
        }
        false => (None, 0),
    };
    let (suffixes, data) = lengths(&values[after..], values_max)?;
    let mut data = &values[after + data..];
    if prefixes.as_ref().is_some_and(|prefixes| prefixes.len() != suffixes.len()) {
        return Err(DeltaError::Malformed);
    }
    let mut plain: Vec<u8> = Vec::new();
    let mut last = 0..0;
    for (index, suffix) in suffixes.iter().enumerate() {
        let prefix = prefixes.as_ref().map_or(0, |prefixes| prefixes[index]) as usize;
        let (suffix, rest) = data.split_at_checked(*suffix as usize).ok_or(DeltaError::Malformed)?;
        data = rest;
        if prefix > last.len() {
            return Err(DeltaError::Malformed);
        }
        let length = prefix + suffix.len();
        if plain.len() + 4 + length > limit_bytes {
            return Err(DeltaError::TooLong);
        }
        if has_lengths {
            let length = u32::try_from(length).map_err(|_| DeltaError::TooLong)?;
            plain.extend_from_slice(&length.to_le_bytes());
        }
        let start = plain.len();
        plain.extend_from_within(last.start..last.start + prefix);
        plain.extend_from_slice(suffix);
        last = start..plain.len();
    }
    Ok(plain)
}

/// The lengths that `DELTA_BINARY_PACKED` data begins with, and the bytes that they take.
fn lengths(data: &[u8], values_max: usize) -> Result<(Vec<u32>, usize), DeltaError> {
    let mut walker = Walker::new(data);
    let (block, minis, count) = (walker.varint()?, walker.varint()?, walker.varint()?);
    let mut value = walker.number()?;
    if block == 0 || minis == 0 || block % 128 != 0 || block % minis != 0 || (block / minis) % 32 != 0 {
        return Err(DeltaError::Malformed);
    }
    let count = usize::try_from(count).map_err(|_| DeltaError::TooLong)?;
    if count > values_max {
        return Err(DeltaError::TooLong);
    }
    let per_mini = block / minis;
    let length = |value: i64| u32::try_from(value).ok().filter(|length| i32::try_from(*length).is_ok());
    let mut found = Vec::new();
    if count > 0 {
        found.push(length(value).ok_or(DeltaError::Malformed)?);
    }
    while found.len() < count {
        let least = walker.number()?;
        let widths_start = walker.position();
        walker.advance(minis)?;
        for mini in 0..minis as usize {
            if found.len() >= count {
                // The rest of the block has no data.
                break;
            }
            let width = u32::from(data[widths_start + mini]);
            if width > 64 {
                return Err(DeltaError::Malformed);
            }
            let start = walker.position();
            let bytes = per_mini.checked_mul(u64::from(width)).ok_or(DeltaError::Malformed)? / 8;
            walker.advance(bytes)?;
            let packed = &data[start..walker.position()];
            let wanted = (count - found.len()).min(usize::try_from(per_mini).unwrap_or(usize::MAX));
            for number in 0..wanted {
                let delta = unpack(packed, number, width);
                value = value.wrapping_add(least).wrapping_add(delta as i64);
                found.push(length(value).ok_or(DeltaError::Malformed)?);
            }
        }
    }
    Ok((found, walker.position()))
}

/// The number of `width` bits at an index, least significant bits first.
fn unpack(packed: &[u8], index: usize, width: u32) -> u64 {
    let mut value = 0_u64;
    let first = index * width as usize;
    for bit in 0..width as usize {
        let at = first + bit;
        value |= u64::from(packed[at / 8] >> (at % 8) & 1) << bit;
    }
    value
}
