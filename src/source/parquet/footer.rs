//! Checks a Parquet file's footer before a reader builds it. The announced bytes must be there. The depth of the
//! schema, the number of columns and row groups, and the memory of their records must be within bounds.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::DecodeOptions;
use super::super::error::SourceError;
use super::thrift::{Malformed, Walker};
use super::{damaged, over_memory};

/// The length of the footer, and the magic number after it.
const TAIL_BYTES: u64 = 8;

/// The deepest schema: an entity nests 128 levels, and a list or a map takes two more groups for each of its own.
const DEPTH_MAX: usize = 3 * 128;

/// Upper bounds of the bytes that readers keep for one column chunk and for one element of the schema.
const CHUNK_BYTES: u64 = 2 << 10;
const ELEMENT_BYTES: u64 = 1 << 10;

/// What a footer announces.
#[derive(Debug, Default, PartialEq, Eq)]
struct Announced {
    elements: u64,
    columns: u64,
    chunks: u64,
    too_deep: bool,
}

/// Checks the footer of `file`, which has `file_bytes`; gives the bytes that its records take in memory.
///
/// # Errors
/// [`SourceError::BadDocument`] for a damaged one, [`SourceError::TooLarge`].
pub(super) fn check(file: &File, file_bytes: u64, options: &DecodeOptions) -> Result<u64, SourceError> {
    let Some(tail_start) = file_bytes.checked_sub(TAIL_BYTES) else { return Err(damaged("it is too short")) };
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, tail_start).map_err(SourceError::Io)?;
    let [length @ .., b'P', b'A', b'R', b'1'] = tail else {
        return Err(damaged("it does not end with PAR1"));
    };
    let footer_bytes = u64::from(u32::from_le_bytes(length));
    let Some(start) = tail_start.checked_sub(footer_bytes) else {
        return Err(damaged("its footer is longer than the file"));
    };
    // At most half of the memory is for metadata.
    let limit_bytes = options.parquet_memory_bytes / 2;
    if footer_bytes > limit_bytes {
        return Err(over_memory("its footer", footer_bytes, options));
    }
    let mut footer = vec![0; usize::try_from(footer_bytes).map_err(|_| damaged("its footer is too long"))?];
    file.read_exact_at(&mut footer, start).map_err(SourceError::Io)?;
    let found = announced(&footer).map_err(|Malformed| damaged("its footer is not well formed"))?;
    if found.too_deep {
        return Err(SourceError::document(format!(
            "the Parquet file cannot be read: its schema nests deeper than {DEPTH_MAX} groups"
        )));
    }
    if found.columns > options.columns_max as u64 {
        let reason = format!("the table has more than sources.max_columns ({}) columns", options.columns_max);
        return Err(SourceError::TooLarge { place: None, reason });
    }
    let bytes = footer_bytes + found.chunks * CHUNK_BYTES + found.elements * ELEMENT_BYTES;
    if bytes > limit_bytes {
        return Err(over_memory("the account of its columns and row groups", bytes, options));
    }
    Ok(bytes)
}

fn announced(footer: &[u8]) -> Result<Announced, Malformed> {
    let mut found = Announced::default();
    // Children that are still to come, of each group that is open.
    let mut open: Vec<i64> = Vec::new();
    Walker::new(footer)
        .fields(|file, id, kind| {
            match id {
                2 => {
                    for _ in 0..file.list(kind)? {
                        let mut children = 0;
                        file.fields(|element, id, _| {
                            if id == 5 {
                                children = element.number()?;
                            }
                            Ok(id == 5)
                        })?;
                        if children < 0 {
                            return Err(Malformed);
                        }
                        found.elements += 1;
                        found.columns += u64::from(children == 0);
                        if let Some(rest) = open.last_mut() {
                            *rest -= 1;
                        }
                        open.push(children);
                        found.too_deep |= open.len() > DEPTH_MAX;
                        if found.too_deep {
                            // Nothing after it matters.
                            return Err(Malformed);
                        }
                        while open.last() == Some(&0) {
                            open.pop();
                        }
                    }
                }
                4 => {
                    for _ in 0..file.list(kind)? {
                        file.fields(|group, id, kind| {
                            if id != 1 {
                                return Ok(false);
                            }
                            for _ in 0..group.list(kind)? {
                                group.fields(|_, _, _| Ok(false))?;
                                found.chunks += 1;
                            }
                            Ok(true)
                        })?;
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })
        .or_else(|error| if found.too_deep { Ok(()) } else { Err(error) })?;
    Ok(found)
}
