//! The end of a version file: fetched, verified where it is sealed, and decoded.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::object_file::ObjectFile;
use crate::storage::StorageError;
use crate::storage::checksums::Seal;
use crate::storage::footer::Footer;
use crate::storage::parts::{OFFSET_INDEX, Run};

/// How much of a file's end is fetched first, in the hope that it holds the footer.
const FOOTER_GUESS_BYTES: u64 = 64 << 10;

/// Most bytes of a file's end that are read: footer, page indexes. A damaged length must not take all memory.
const FOOTER_BYTES: u64 = 512 << 20;

/// What stands at both ends of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// Fetches and decodes the footer of a file of this size.
///
/// # Errors
/// When the store fails, or the file's end is not that of a version file.
pub(super) async fn load_footer(file: &ObjectFile, size_bytes: u64) -> Result<Footer, StorageError> {
    let mut end = fetch_end(file, size_bytes).await?;
    let metadata = parse_end(file, &mut end, size_bytes).await?;
    Footer::parse(metadata, end.sealed_from, size_bytes)
}

/// The end of a file, verified where it is sealed.
struct FileEnd {
    run: Run,
    sealed_from: Option<u64>,
    /// Where the footer's metadata begins.
    footer: u64,
}

/// Fetches a file's end, as far as the footer and, where it is sealed, the seal reach.
async fn fetch_end(file: &ObjectFile, size_bytes: u64) -> Result<FileEnd, StorageError> {
    const TRAILER_BYTES: u64 = 8;
    let damaged = |what: &str| StorageError::Layout(format!("its end is damaged: {what}"));
    if size_bytes < MAGIC.len() as u64 + TRAILER_BYTES {
        return Err(damaged("the file is too short for one"));
    }
    let start = size_bytes - size_bytes.min(FOOTER_GUESS_BYTES);
    let mut run = Run { start, bytes: file.fetch(start..size_bytes).await? };
    let trailer = run.slice(size_bytes - TRAILER_BYTES..size_bytes)?;
    let (length, magic) = trailer.split_at(4);
    let length = <[u8; 4]>::try_from(length).map_or(0, u32::from_le_bytes);
    if magic != MAGIC {
        return Err(damaged("it is not that of a Parquet file"));
    }
    let footer = (size_bytes - TRAILER_BYTES).checked_sub(length.into()).filter(|at| size_bytes - at <= FOOTER_BYTES);
    let footer = footer.ok_or_else(|| damaged("its length is not that of a footer"))?;
    extend_to(file, &mut run, footer).await?;
    let Some(seal) = Seal::find(&run.slice(footer..size_bytes)?) else {
        return Ok(FileEnd { run, sealed_from: None, footer });
    };
    if seal.start > footer || size_bytes - seal.start > FOOTER_BYTES {
        return Err(damaged("its seal is not one"));
    }
    extend_to(file, &mut run, seal.start).await?;
    let sealed = run.slice(seal.start..size_bytes)?;
    match Seal::find(&sealed).is_some_and(|seal| seal.verifies(&sealed)) {
        true => Ok(FileEnd { run, sealed_from: Some(seal.start), footer }),
        false => Err(damaged("it does not have its checksum")),
    }
}

/// Fetches what lies between an offset and a run's start.
async fn extend_to(file: &ObjectFile, run: &mut Run, start: u64) -> Result<(), StorageError> {
    if start < run.start {
        let before = file.fetch(start..run.start).await?;
        *run = Run { start, bytes: [before, run.bytes.clone()].concat().into() };
    }
    Ok(())
}

/// The metadata and the page index that a file's end holds.
async fn parse_end(file: &ObjectFile, end: &mut FileEnd, size_bytes: u64) -> Result<ParquetMetaData, StorageError> {
    let footer = end.run.slice(end.footer..size_bytes - 8)?;
    // Parquet's decoders trust some lengths.
    let decode = AssertUnwindSafe(|| ParquetMetaDataReader::decode_metadata(&footer));
    let metadata = catch_unwind(decode).map_err(|_| StorageError::undecodable())??;
    // The page indexes of a file without a seal.
    let indexes = metadata.row_groups().iter().flat_map(|row_group| row_group.columns());
    let indexes = indexes.filter_map(|column| u64::try_from(column.offset_index_offset()?).ok());
    let first = indexes.min().filter(|first| size_bytes.checked_sub(*first).is_some_and(|rest| rest <= FOOTER_BYTES));
    if let Some(first) = first {
        extend_to(file, &mut end.run, first).await?;
    }
    let mut reader = ParquetMetaDataReader::new_with_metadata(metadata)
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(OFFSET_INDEX);
    let decode = AssertUnwindSafe(|| reader.read_page_indexes(&end.run));
    catch_unwind(decode).map_err(|_| StorageError::undecodable())??;
    Ok(reader.finish()?)
}
