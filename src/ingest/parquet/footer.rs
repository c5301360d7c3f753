//! Checks a Parquet file's footer before a reader builds it. The announced bytes must be there. The depth of the
//! schema, the number of columns and row groups, and the memory of their records must be within bounds.
//!
//! The reader gets only the fields that decoding needs. Other fields cost memory, and the reader refuses a whole file
//! because of one that it does not expect. For example, Dremio stores a list in the field of the length of a bloom
//! filter.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::file::metadata::ParquetMetaDataReader;

use super::super::DecodeOptions;
use super::super::error::{SourceError, quoted_name};
use super::thrift::{Malformed, StructWriter, Walker};
use super::{damaged, over_memory_limit};

const TAIL_BYTES: u64 = 8;

/// The deepest schema: an entity nests 128 levels, and a list or a map takes two more groups for each of its own.
const DEPTH_MAX: usize = 3 * 128;

/// Upper bounds of the bytes that readers keep for one column chunk and for one element of the schema.
const CHUNK_BYTES: u64 = 2 << 10;
const ELEMENT_BYTES: u64 = 1 << 10;

const ENCRYPTED: &str = "is encrypted, but strata has no keys: decrypt it before you import it";

pub(super) struct Footer {
    pub(super) metadata: Vec<u8>,
    pub(super) memory_bytes: u64,
}

#[derive(Debug)]
struct Announced {
    elements: u64,
    columns: u64,
    chunks: u64,
    too_deep: bool,
    encrypted_chunk: Option<usize>,
    metadata: StructWriter,
}

pub(super) fn read(file: &File, file_bytes: u64, options: &DecodeOptions) -> Result<Footer, SourceError> {
    let Some(tail_start) = file_bytes.checked_sub(TAIL_BYTES) else { return Err(damaged("it is too short")) };
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, tail_start).map_err(SourceError::Io)?;
    let length = match tail {
        [length @ .., b'P', b'A', b'R', b'1'] => length,
        [.., b'P', b'A', b'R', b'E'] => return Err(SourceError::document(format!("the Parquet file {ENCRYPTED}"))),
        _ => return Err(damaged("it does not end with PAR1")),
    };
    let footer_bytes = u64::from(u32::from_le_bytes(length));
    let Some(start) = tail_start.checked_sub(footer_bytes) else {
        return Err(damaged("its footer is longer than the file"));
    };
    // At most half of the memory is for metadata.
    let limit_bytes = options.parquet_memory_bytes / 2;
    if footer_bytes > limit_bytes {
        return Err(over_memory_limit("its footer", footer_bytes, options.parquet_memory_bytes));
    }
    let mut footer = vec![0; usize::try_from(footer_bytes).map_err(|_| damaged("its footer is too long"))?];
    file.read_exact_at(&mut footer, start).map_err(SourceError::Io)?;
    let found = announced(&footer).map_err(|Malformed| damaged("its footer is malformed"))?;
    if found.too_deep {
        return Err(SourceError::document(format!(
            "the Parquet file cannot be read: its schema nests deeper than {DEPTH_MAX} groups"
        )));
    }
    if found.columns > options.columns_max as u64 {
        let reason = format!("the table has more than sources.max_columns ({}) columns", options.columns_max);
        return Err(SourceError::TooLarge { place: None, reason });
    }
    let memory_bytes = footer_bytes + found.chunks * CHUNK_BYTES + found.elements * ELEMENT_BYTES;
    if memory_bytes > limit_bytes {
        return Err(over_memory_limit("its column and row group metadata", memory_bytes, options.parquet_memory_bytes));
    }
    let metadata = found.metadata.into_bytes();
    match found.encrypted_chunk {
        Some(chunk) => Err(encrypted(&metadata, chunk)),
        None => Ok(Footer { metadata, memory_bytes }),
    }
}

/// The error for an encrypted column, which is named if the schema is well formed.
fn encrypted(metadata: &[u8], chunk: usize) -> SourceError {
    let schema = ParquetMetaDataReader::decode_schema(metadata).ok();
    let column = schema.as_ref().and_then(|schema| schema.columns().get(chunk));
    let column =
        column.map_or("a column".to_owned(), |column| format!("column {}", quoted_name(&column.path().string())));
    SourceError::document(format!("the Parquet file cannot be read: {column} {ENCRYPTED}"))
}

fn announced(footer: &[u8]) -> Result<Announced, Malformed> {
    let metadata = StructWriter::new();
    let mut found = Announced { elements: 0, columns: 0, chunks: 0, too_deep: false, encrypted_chunk: None, metadata };
    let metadata = &mut found.metadata;
    // Children that are still to come, of each group that is open.
    let mut open: Vec<i64> = Vec::new();
    Walker::new(footer)
        .fields(|file, id, kind| {
            match id {
                // The version, and the number of rows.
                1 | 3 => file.copy_field(id, kind, metadata)?,
                // The writer's own schema is among the keys. Without keys the list may have no type.
                5 if file.clone().list(kind)? > 0 => file.copy_field(id, kind, metadata)?,
                2 => {
                    file.clone().copy_field(id, kind, metadata)?;
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
                            return Err(Malformed);
                        }
                        while open.last() == Some(&0) {
                            open.pop();
                        }
                    }
                }
                4 => {
                    let groups = file.list(kind)?;
                    metadata.begin_structs(id, groups);
                    for _ in 0..groups {
                        metadata.begin_element();
                        file.fields(|group, id, kind| match id {
                            1 => {
                                let chunks = group.list(kind)?;
                                metadata.begin_structs(id, chunks);
                                for index in 0..chunks {
                                    if copy_chunk(group, metadata)? && found.encrypted_chunk.is_none() {
                                        found.encrypted_chunk = usize::try_from(index).ok();
                                    }
                                    found.chunks += 1;
                                }
                                Ok(true)
                            }
                            // The bytes and the rows of the group.
                            2 | 3 => group.copy_field(id, kind, metadata).map(|()| true),
                            _ => Ok(false),
                        })?;
                        metadata.end_struct();
                        // The record of a row group without columns takes memory, too.
                        found.chunks += 1;
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })
        .or_else(|error| if found.too_deep { Ok(()) } else { Err(error) })?;
    Ok(found)
}

/// Appends the fields of a column chunk that decoding needs. True for an encrypted one.
fn copy_chunk(group: &mut Walker<'_>, out: &mut StructWriter) -> Result<bool, Malformed> {
    let mut is_encrypted = false;
    out.begin_element();
    group.fields(|chunk, id, kind| match id {
        // The reader requires the offset of the chunk.
        2 => chunk.copy_field(id, kind, out).map(|()| true),
        3 => {
            out.begin_struct(id);
            chunk.fields(|metadata, id, kind| match id {
                // Type, encodings, codec, counts, and the offsets of pages.
                1 | 2 | 4..=7 | 9 | 11 => metadata.copy_field(id, kind, out).map(|()| true),
                _ => Ok(false),
            })?;
            out.end_struct();
            Ok(true)
        }
        8 => {
            is_encrypted = true;
            Ok(false)
        }
        _ => Ok(false),
    })?;
    out.end_struct();
    Ok(is_encrypted)
}
