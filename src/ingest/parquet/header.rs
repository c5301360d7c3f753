//! The headers of pages, read from the file without trusting them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::basic::Encoding;

use super::super::error::SourceError;
use super::damaged;
use super::thrift::{Malformed, Walker};

/// Bytes that are read for a header at first, and at most: statistics in it can hold long texts.
const FIRST_BYTES: usize = 256;
const MAX_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageType {
    Dictionary,
    /// A data page as of version 1: levels and values are compressed together.
    Data {
        definition_levels: Encoding,
        repetition_levels: Encoding,
    },
    /// A data page as of version 2: the levels stand before the values, uncompressed.
    DataV2 {
        nulls: u32,
        rows: u32,
        definition_bytes: u32,
        repetition_bytes: u32,
        is_compressed: bool,
    },
    Index,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) page_type: PageType,
    pub(super) compressed_bytes: u32,
    pub(super) uncompressed_bytes: u32,
    /// Values with nulls, which is levels; in a dictionary, entries.
    pub(super) values: u32,
    pub(super) encoding: Encoding,
    pub(super) crc: Option<u32>,
}

/// The header at `start` of a chunk that ends at `end`, and the bytes that it takes.
pub(super) fn read(file: &File, start: u64, end: u64) -> Result<(Header, u64), SourceError> {
    let rest = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
    let mut length = FIRST_BYTES.min(rest);
    loop {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, start).map_err(|_| damaged("a page extends past the end of the file"))?;
        match parse(&bytes) {
            Ok((header, taken)) => {
                let after = (rest - taken) as u64;
                if u64::from(header.compressed_bytes) > after {
                    return Err(damaged("a page is longer than its column"));
                }
                return Ok((header, taken as u64));
            }
            Err(Malformed) if length < rest.min(MAX_BYTES) => length = (length * 8).min(rest).min(MAX_BYTES),
            Err(Malformed) => return Err(damaged("the header of a page is malformed or longer than 4 MiB")),
        }
    }
}

fn parse(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
    let mut walker = Walker::new(bytes);
    let mut kind = None;
    let mut crc = None;
    let mut is_compressed = true;
    // By the field of the header that contains them, 0 for the page header itself, and by their own field.
    let mut numbers = [[None; 8]; 9];
    let mut encodings = [[None; 8]; 9];
    walker.fields(|page, id, _| {
        match id {
            1 => kind = Some(page.number()?),
            2 | 3 => numbers[0][id as usize] = Some(unsigned(page.number()?)?),
            // The bits of an unsigned number.
            4 => crc = Some(i32::try_from(page.number()?).map_err(|_| Malformed)?.cast_unsigned()),
            // The header of a data page, of a dictionary, and of a data page of version 2.
            5 | 7 | 8 => page.fields(|data, field, kind| {
                match (id, field) {
                    (8, 7) => is_compressed = Walker::boolean(kind)?,
                    (5 | 7, 2) | (5, 3 | 4) | (8, 4) => {
                        encodings[id as usize][field as usize] = Some(encoding_of(data.number()?)?);
                    }
                    (_, 1) | (8, 2 | 3 | 5 | 6) => {
                        numbers[id as usize][field as usize] = Some(unsigned(data.number()?)?);
                    }
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let number = |id: usize, field: usize| numbers[id][field].ok_or(Malformed);
    let levels = |field: usize| encodings[5][field].ok_or(Malformed);
    let page_type = match kind.ok_or(Malformed)? {
        0 => PageType::Data { definition_levels: levels(3)?, repetition_levels: levels(4)? },
        2 => PageType::Dictionary,
        3 => PageType::DataV2 {
            nulls: number(8, 2)?,
            rows: number(8, 3)?,
            definition_bytes: number(8, 5)?,
            repetition_bytes: number(8, 6)?,
            is_compressed,
        },
        // Readers skip pages of unknown kinds.
        _ => PageType::Index,
    };
    // Of the header for the type of the page, as readers take them: a page can contain headers of other types.
    let (values, encoding) = match page_type {
        PageType::Data { .. } => (numbers[5][1], encodings[5][2]),
        PageType::Dictionary => (numbers[7][1], encodings[7][2]),
        PageType::DataV2 { .. } => (numbers[8][1], encodings[8][4]),
        PageType::Index => (Some(0), Some(Encoding::PLAIN)),
    };
    let (values, encoding) = values.zip(encoding).ok_or(Malformed)?;
    let compressed_bytes = number(0, 3)?;
    let uncompressed_bytes = number(0, 2)?;
    Ok((Header { page_type, compressed_bytes, uncompressed_bytes, values, encoding, crc }, walker.position))
}

/// A size or a count, which the format keeps in 31 bits.
fn unsigned(number: i64) -> Result<u32, Malformed> {
    u32::try_from(number).ok().filter(|number| i32::try_from(*number).is_ok()).ok_or(Malformed)
}

#[expect(deprecated, reason = "files have it")]
fn encoding_of(number: i64) -> Result<Encoding, Malformed> {
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
        _ => return Err(Malformed),
    })
}
