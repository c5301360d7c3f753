//! The end of a version file: fetched, compared with its seal, and decoded.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{
    FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy, RowGroupMetaData,
};
use parquet::schema::types::{SchemaDescriptor, Type};
use strata_store::checksums::Seal;
use strata_store::{Result, StorageError};

use super::object_file::ObjectFile;
use crate::fetched_range::{FetchedRange, decode};
use crate::footer::{DocumentPages, Footer};
use crate::outline::OutlinePlace;

/// How much of a file's end is fetched first, in the hope that it holds all that is needed: one of so many bytes of the
/// file,
const END_SHARE: u64 = 512;

/// and so many. Of a store in a directory, which answers a second request at once, the least.
const END_BYTES: Range<u64> = 128 << 10..4 << 20;

/// Most bytes of a file's end that are read: footer, page indexes. A damaged length must not take all memory.
const FOOTER_BYTES: u64 = 512 << 20;

const MAGIC: &[u8] = b"PAR1";

/// Fetches the footer of a file, by its outline, if it has one. Costs one request, and another one where the outline or
/// the footer lies farther from the end than was fetched.
pub(super) async fn load_footer(file: &ObjectFile) -> Result<Footer> {
    let end = FileEnd::fetch(file).await?;
    let misplaced = match load_outline(file, &end).await? {
        Ok(Some(footer)) => return Ok(footer),
        Ok(None) => None,
        Err(cause) => Some(format!("its footer index is damaged: {cause}")),
    };
    let mut footer = decode_footer(file, end).await?;
    footer.misplaced = misplaced.or(footer.misplaced);
    Ok(footer)
}

/// Fetches and decodes the footer of a file without its outline: every byte of its end is compared with the seal.
pub(super) async fn load_parquet_footer(file: &ObjectFile) -> Result<Footer> {
    decode_footer(file, FileEnd::fetch(file).await?).await
}

async fn decode_footer(file: &ObjectFile, mut end: FileEnd) -> Result<Footer> {
    let sealed_from = end.fetch_rest(file).await?;
    let metadata = parse_metadata(&end, file.size_bytes)?;
    let pages = document_pages(&metadata, &end.run);
    let mut footer = Footer::parse(&metadata, pages, sealed_from, file.size_bytes)?;
    footer.keep_profile(&end.run);
    Ok(footer)
}

struct FileEnd {
    run: FetchedRange,
    /// The first byte of the footer.
    footer: u64,
}

impl FileEnd {
    async fn fetch(file: &ObjectFile) -> Result<FileEnd> {
        const TRAILER_BYTES: u64 = 8;
        let size_bytes = file.size_bytes;
        if size_bytes < MAGIC.len() as u64 + TRAILER_BYTES {
            return Err(damaged("the file is too short"));
        }
        // A second request to a directory takes no time; bytes that are not needed do.
        let most = if file.store.is_local() { END_BYTES.start } else { END_BYTES.end };
        let guess = (size_bytes / END_SHARE).clamp(END_BYTES.start, most);
        let start = size_bytes - size_bytes.min(guess);
        let run = FetchedRange { start, bytes: file.fetch(start..size_bytes).await? };
        let trailer = run.slice(size_bytes - TRAILER_BYTES..size_bytes)?;
        let (length, magic) = trailer.split_at(4);
        let length = <[u8; 4]>::try_from(length).map_or(0, u32::from_le_bytes);
        if magic != MAGIC {
            return Err(damaged("it is not the end of a Parquet file"));
        }
        let footer = (size_bytes - TRAILER_BYTES).checked_sub(length.into());
        let footer = footer.filter(|at| size_bytes - at <= FOOTER_BYTES);
        Ok(FileEnd { run, footer: footer.ok_or_else(|| damaged("the length of the footer is invalid"))? })
    }

    /// Fetches the rest, as far as the footer and, where it is sealed, the seal reach. Gives the first byte that the
    /// seal covers; `None` if there is no seal, as in a foreign file.
    async fn fetch_rest(&mut self, file: &ObjectFile) -> Result<Option<u64>> {
        let size_bytes = file.size_bytes;
        let footer = self.footer;
        let start = self.run.start;
        // The seal stands at the footer's end, and says where all begins that has to be there.
        let mut seal = Seal::find(&self.run.slice(footer.max(start)..size_bytes)?);
        if seal.is_none() && footer < start {
            self.extend_to(file, footer).await?;
            seal = Seal::find(&self.run.slice(footer..size_bytes)?);
        }
        let Some(seal) = seal else { return Ok(None) };
        if seal.start > footer || size_bytes - seal.start > FOOTER_BYTES {
            return Err(damaged("the footer checksum is invalid"));
        }
        self.extend_to(file, seal.start).await?;
        let sealed = self.run.slice(seal.start..size_bytes)?;
        match Seal::find(&sealed).is_some_and(|seal| seal.verifies(&sealed)) {
            true => Ok(Some(seal.start)),
            false => Err(damaged("it does not match its checksum")),
        }
    }

    async fn extend_to(&mut self, file: &ObjectFile, start: u64) -> Result<()> {
        if start < self.run.start {
            let before = file.fetch(start..self.run.start).await?;
            self.run = FetchedRange { start, bytes: [before, self.run.bytes.clone()].concat().into() };
        }
        Ok(())
    }
}

fn damaged(what: &str) -> StorageError {
    StorageError::Layout(format!("its end is damaged: {what}"))
}

/// What the outline says of a file. `None` when the file has none that this build reads, and the inner error when it
/// is damaged: the Parquet footer says the same.
async fn load_outline(file: &ObjectFile, end: &FileEnd) -> Result<Result<Option<Footer>>> {
    let bytes = end.run.slice(end.footer.max(end.run.start)..file.size_bytes)?;
    let found = Seal::find(&bytes).and_then(|seal| Some((seal.start, OutlinePlace::find(seal.behind(&bytes))?)));
    let Some((sealed_from, place)) = found else { return Ok(Ok(None)) };
    let is_possible = |range: &Range<u64>| range.end <= sealed_from && sealed_from <= end.footer;
    let Some(range) = place.range().filter(is_possible) else {
        return Ok(Err(StorageError::Layout("it is misplaced".to_owned())));
    };
    let bytes = match end.run.slice(range.clone()) {
        // Nothing else of what was fetched is kept.
        Ok(bytes) => Bytes::copy_from_slice(&bytes),
        Err(_) => file.fetch(range).await?,
    };
    if !place.is_of(&bytes) {
        return Ok(Err(StorageError::unverified()));
    }
    let mut footer = Footer::from_outline(bytes, sealed_from, file.size_bytes);
    if let Ok(Some(footer)) = &mut footer {
        footer.keep_profile(&end.run);
    }
    Ok(footer)
}

fn parse_metadata(end: &FileEnd, size_bytes: u64) -> Result<ParquetMetaData> {
    let footer = end.run.slice(end.footer..size_bytes - 8)?;
    // What nobody asks for.
    let options = ParquetMetaDataOptions::new()
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
    decode(|| Ok(ParquetMetaDataReader::decode_metadata_with_options(&footer, Some(&options))?))
}

/// The pages of documents of each row group, by the page indexes. Those of other columns, which are most, are not
/// decoded: their columns are read whole.
fn document_pages(metadata: &ParquetMetaData, end: &FetchedRange) -> Result<DocumentPages> {
    let file = metadata.file_metadata();
    // The same file, as if it had no other columns.
    let documents = file.schema_descr().root_schema().get_fields().iter().take(1).cloned().collect();
    let schema = Type::group_type_builder("documents").with_fields(documents).build()?;
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
    let mut row_groups = Vec::with_capacity(metadata.num_row_groups());
    for row_group in metadata.row_groups() {
        let columns = row_group.columns().iter().take(1).cloned().collect();
        let builder = RowGroupMetaData::builder(schema.clone()).set_num_rows(row_group.num_rows());
        row_groups.push(builder.set_column_metadata(columns).build()?);
    }
    let file = FileMetaData::new(file.version(), file.num_rows(), None, None, schema, None);
    let mut reader = ParquetMetaDataReader::new_with_metadata(ParquetMetaData::new(file, row_groups))
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(PageIndexPolicy::Required);
    decode(|| Ok(reader.read_page_indexes(end)?))?;
    let indexes = reader.finish()?.into_builder().take_offset_index().unwrap_or_default();
    let pages = indexes.into_iter().map(|columns| columns.into_iter().flat_map(|index| index.page_locations).collect());
    Ok(pages.collect())
}
