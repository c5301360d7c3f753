//! Checks the footer of a Parquet file before the library parses it: its size, the depth of the schema, the numbers of
//! columns and row groups, and the memory of their metadata. The library receives a copy with only the fields that
//! decoding needs. Other fields cost memory, and an unexpected field would make the library reject the file. For
//! example, Dremio stores a list in the field for the bloom filter length.

use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::file::metadata::ParquetMetaDataReader;

use super::super::DecodeOptions;
use super::super::error::{SourceError, quote_name};
use super::thrift::{MalformedThrift, ThriftStructWriter, ThriftWalker};
use super::{damaged_file_error, memory_limit_error};

const FOOTER_TAIL_BYTES: u64 = 8;

/// The maximum schema depth. An entity has up to 128 levels, and each list or map needs two additional groups.
const MAX_SCHEMA_DEPTH: usize = 3 * 128;

/// The maximum memory that the Parquet library needs for the metadata of a column chunk, and for a schema element.
const MAX_CHUNK_METADATA_BYTES: u64 = 2 << 10;
const MAX_SCHEMA_ELEMENT_BYTES: u64 = 1 << 10;
const ENCRYPTED_REASON: &str = "is encrypted, but strata has no keys: decrypt it before you import it";

pub(super) struct CheckedFooter {
    pub(super) metadata: Vec<u8>,
    pub(super) memory_bytes: u64,
}

#[derive(Debug)]
struct FooterSummary {
    schema_element_count: u64,
    column_count: u64,
    chunk_count: u64,
    is_too_deep: bool,
    encrypted_chunk: Option<usize>,
    metadata: ThriftStructWriter,
}

pub(super) fn read_footer(file: &File, file_bytes: u64, options: &DecodeOptions) -> Result<CheckedFooter, SourceError> {
    let Some(tail_start) = file_bytes.checked_sub(FOOTER_TAIL_BYTES) else {
        return Err(damaged_file_error("it is too short"));
    };
    let mut tail = [0; FOOTER_TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, tail_start).map_err(SourceError::Io)?;
    let length = match tail {
        [length @ .., b'P', b'A', b'R', b'1'] => length,
        [.., b'P', b'A', b'R', b'E'] => {
            return Err(SourceError::invalid_document(format!("the Parquet file {ENCRYPTED_REASON}")));
        }
        _ => return Err(damaged_file_error("it does not end with PAR1")),
    };
    let footer_bytes = u64::from(u32::from_le_bytes(length));
    let Some(start) = tail_start.checked_sub(footer_bytes) else {
        return Err(damaged_file_error("its footer is longer than the file"));
    };
    // The metadata in the footer may use half of the memory limit.
    let limit_bytes = options.parquet_memory_bytes / 2;
    if footer_bytes > limit_bytes {
        return Err(memory_limit_error("its footer", footer_bytes, options.parquet_memory_bytes));
    }
    let mut footer = vec![0; usize::try_from(footer_bytes).map_err(|_| damaged_file_error("its footer is too long"))?];
    file.read_exact_at(&mut footer, start).map_err(SourceError::Io)?;
    let summary = summarize_footer(&footer).map_err(|MalformedThrift| damaged_file_error("its footer is malformed"))?;
    if summary.is_too_deep {
        return Err(SourceError::invalid_document(format!(
            "the Parquet file cannot be read: its schema nests deeper than {MAX_SCHEMA_DEPTH} groups"
        )));
    }
    if summary.column_count > options.max_columns as u64 {
        let reason = format!("the table has more than sources.max_columns ({}) columns", options.max_columns);
        return Err(SourceError::TooLarge { position: None, reason });
    }
    let memory_bytes = footer_bytes
        + summary.chunk_count * MAX_CHUNK_METADATA_BYTES
        + summary.schema_element_count * MAX_SCHEMA_ELEMENT_BYTES;
    if memory_bytes > limit_bytes {
        let what = "its column and row group metadata";
        return Err(memory_limit_error(what, memory_bytes, options.parquet_memory_bytes));
    }
    let metadata = summary.metadata.into_bytes();
    match summary.encrypted_chunk {
        Some(chunk) => Err(encrypted_column_error(&metadata, chunk)),
        None => Ok(CheckedFooter { metadata, memory_bytes }),
    }
}

fn encrypted_column_error(metadata: &[u8], chunk: usize) -> SourceError {
    let schema = ParquetMetaDataReader::decode_schema(metadata).ok();
    let column = schema.as_ref().and_then(|schema| schema.columns().get(chunk));
    let column =
        column.map_or("a column".to_owned(), |column| format!("column {}", quote_name(&column.path().string())));
    SourceError::invalid_document(format!("the Parquet file cannot be read: {column} {ENCRYPTED_REASON}"))
}

fn summarize_footer(footer: &[u8]) -> Result<FooterSummary, MalformedThrift> {
    let metadata = ThriftStructWriter::new();
    let mut summary = FooterSummary {
        schema_element_count: 0,
        column_count: 0,
        chunk_count: 0,
        is_too_deep: false,
        encrypted_chunk: None,
        metadata,
    };
    let metadata = &mut summary.metadata;
    // For each schema group that is not completely visited yet, the number of its remaining children.
    let mut open: Vec<i64> = Vec::new();
    ThriftWalker::new(footer)
        .visit_fields(|file, id, kind| {
            match id {
                // These fields of the file metadata are the format version and the number of rows.
                1 | 3 => file.copy_field(id, kind, metadata)?,
                // Field of the file metadata: key-value pairs with the writer's Arrow schema. An empty list is skipped,
                // because its element type might be invalid.
                5 if file.clone().read_list_count(kind)? > 0 => file.copy_field(id, kind, metadata)?,
                2 => {
                    file.clone().copy_field(id, kind, metadata)?;
                    for _ in 0..file.read_list_count(kind)? {
                        let mut children = 0;
                        file.visit_fields(|element, id, _| {
                            if id == 5 {
                                children = element.read_zigzag()?;
                            }
                            Ok(id == 5)
                        })?;
                        if children < 0 {
                            return Err(MalformedThrift);
                        }
                        summary.schema_element_count += 1;
                        summary.column_count += u64::from(children == 0);
                        if let Some(remaining) = open.last_mut() {
                            *remaining -= 1;
                        }
                        open.push(children);
                        summary.is_too_deep |= open.len() > MAX_SCHEMA_DEPTH;
                        if summary.is_too_deep {
                            return Err(MalformedThrift);
                        }
                        while open.last() == Some(&0) {
                            open.pop();
                        }
                    }
                }
                4 => {
                    let groups = file.read_list_count(kind)?;
                    metadata.begin_struct_list(id, groups);
                    for _ in 0..groups {
                        metadata.begin_struct_element();
                        file.visit_fields(|group, id, kind| match id {
                            1 => {
                                let chunks = group.read_list_count(kind)?;
                                metadata.begin_struct_list(id, chunks);
                                for index in 0..chunks {
                                    if copy_column_chunk(group, metadata)? && summary.encrypted_chunk.is_none() {
                                        summary.encrypted_chunk = usize::try_from(index).ok();
                                    }
                                    summary.chunk_count += 1;
                                }
                                Ok(true)
                            }
                            // These fields of a row group are its size and its number of rows.
                            2 | 3 => group.copy_field(id, kind, metadata).map(|()| true),
                            _ => Ok(false),
                        })?;
                        metadata.end_struct();
                        // A row group without columns counts as a column chunk, because its metadata take memory, too.
                        summary.chunk_count += 1;
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })
        .or_else(|error| if summary.is_too_deep { Ok(()) } else { Err(error) })?;
    Ok(summary)
}

/// Copies the fields of a column chunk that decoding needs. Returns whether the chunk is encrypted.
fn copy_column_chunk(group: &mut ThriftWalker<'_>, out: &mut ThriftStructWriter) -> Result<bool, MalformedThrift> {
    let mut is_encrypted = false;
    out.begin_struct_element();
    group.visit_fields(|chunk, id, kind| match id {
        // The library requires the file offset of a column chunk.
        2 => chunk.copy_field(id, kind, out).map(|()| true),
        3 => {
            out.begin_struct(id);
            chunk.visit_fields(|metadata, id, kind| match id {
                // These fields of the column metadata are the type, encodings, codec, sizes, and page offsets.
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
