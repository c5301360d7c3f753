//! Parses page headers without trusting them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::basic::Encoding;

use super::super::error::SourceError;
use super::damaged_file_error;
use super::thrift::{MalformedThrift, ThriftWalker};

/// The initial and maximum number of bytes read for a page header, whose statistics can contain long strings.
const INITIAL_HEADER_BYTES: usize = 256;
const MAX_HEADER_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageType {
    Dictionary,
    /// A version 1 data page, whose levels and values are compressed together.
    Data {
        definition_levels: Encoding,
        repetition_levels: Encoding,
    },
    /// A version 2 data page, whose levels precede the values and are not compressed.
    DataV2 {
        null_count: u32,
        row_count: u32,
        definition_level_bytes: u32,
        repetition_level_bytes: u32,
        is_compressed: bool,
    },
    Index,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) page_type: PageType,
    pub(super) compressed_bytes: u32,
    pub(super) uncompressed_bytes: u32,
    /// The number of values including nulls, or of dictionary entries.
    pub(super) value_count: u32,
    pub(super) encoding: Encoding,
    pub(super) crc: Option<u32>,
}

/// Returns the page header at `start` in a column chunk that ends at `end`, and the size of the header.
pub(super) fn read_page_header(file: &File, start: u64, end: u64) -> Result<(PageHeader, u64), SourceError> {
    let rest = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
    let mut length = INITIAL_HEADER_BYTES.min(rest);
    loop {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, start)
            .map_err(|_| damaged_file_error("a page extends past the end of the file"))?;
        match parse_page_header(&bytes) {
            Ok((header, header_bytes)) => {
                let remaining = (rest - header_bytes) as u64;
                if u64::from(header.compressed_bytes) > remaining {
                    return Err(damaged_file_error("a page is longer than its column"));
                }
                return Ok((header, header_bytes as u64));
            }
            Err(MalformedThrift) if length < rest.min(MAX_HEADER_BYTES) => {
                length = (length * 8).min(rest).min(MAX_HEADER_BYTES)
            }
            Err(MalformedThrift) => {
                return Err(damaged_file_error("the header of a page is malformed or longer than 4 MiB"));
            }
        }
    }
}

fn parse_page_header(bytes: &[u8]) -> Result<(PageHeader, usize), MalformedThrift> {
    let mut walker = ThriftWalker::new(bytes);
    let mut kind = None;
    let mut crc = None;
    let mut is_compressed = true;
    // Indexed by two Thrift field IDs: a nested header (0 for the page header itself), and a field in this header.
    let mut numbers = [[None; 8]; 9];
    let mut encodings = [[None; 8]; 9];
    walker.visit_fields(|page, id, _| {
        match id {
            1 => kind = Some(page.read_zigzag()?),
            2 | 3 => numbers[0][id as usize] = Some(to_size(page.read_zigzag()?)?),
            // The CRC of a page is unsigned, but this field stores its bits as a signed number.
            4 => crc = Some(i32::try_from(page.read_zigzag()?).map_err(|_| MalformedThrift)?.cast_unsigned()),
            // These fields are the nested headers of a data page, a dictionary page, and a version 2 data page.
            5 | 7 | 8 => page.visit_fields(|data, field, kind| {
                match (id, field) {
                    (8, 7) => is_compressed = ThriftWalker::boolean_from_type(kind)?,
                    (5 | 7, 2) | (5, 3 | 4) | (8, 4) => {
                        encodings[id as usize][field as usize] = Some(encoding_from_number(data.read_zigzag()?)?);
                    }
                    (_, 1) | (8, 2 | 3 | 5 | 6) => {
                        numbers[id as usize][field as usize] = Some(to_size(data.read_zigzag()?)?);
                    }
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let number = |id: usize, field: usize| numbers[id][field].ok_or(MalformedThrift);
    let levels = |field: usize| encodings[5][field].ok_or(MalformedThrift);
    let page_type = match kind.ok_or(MalformedThrift)? {
        0 => PageType::Data { definition_levels: levels(3)?, repetition_levels: levels(4)? },
        2 => PageType::Dictionary,
        3 => PageType::DataV2 {
            null_count: number(8, 2)?,
            row_count: number(8, 3)?,
            definition_level_bytes: number(8, 5)?,
            repetition_level_bytes: number(8, 6)?,
            is_compressed,
        },
        // Pages of unknown types are skipped.
        _ => PageType::Index,
    };
    // Only the nested header for the type of the page counts, because a page can contain headers of other types.
    let (value_count, encoding) = match page_type {
        PageType::Data { .. } => (numbers[5][1], encodings[5][2]),
        PageType::Dictionary => (numbers[7][1], encodings[7][2]),
        PageType::DataV2 { .. } => (numbers[8][1], encodings[8][4]),
        PageType::Index => (Some(0), Some(Encoding::PLAIN)),
    };
    let (value_count, encoding) = value_count.zip(encoding).ok_or(MalformedThrift)?;
    let compressed_bytes = number(0, 3)?;
    let uncompressed_bytes = number(0, 2)?;
    Ok((PageHeader { page_type, compressed_bytes, uncompressed_bytes, value_count, encoding, crc }, walker.position))
}

/// Converts a size or a count, for which the Parquet format uses 31 bits.
fn to_size(number: i64) -> Result<u32, MalformedThrift> {
    u32::try_from(number).ok().filter(|number| i32::try_from(*number).is_ok()).ok_or(MalformedThrift)
}

#[expect(deprecated, reason = "files have it")]
fn encoding_from_number(number: i64) -> Result<Encoding, MalformedThrift> {
    Ok(match number {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        4 => Encoding::BIT_PACKED,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return Err(MalformedThrift),
    })
}
