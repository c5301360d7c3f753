//! Loads the end of a version file: fetches it, verifies the footer checksum, and decodes the footer.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{
    FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy, RowGroupMetaData,
};
use parquet::schema::types::{SchemaDescriptor, Type};
use strata_store::checksums::FooterChecksum;
use strata_store::{Result, StorageError};

use super::object_file::ObjectFile;
use crate::fetched_range::{FetchedRange, decode_catching_panics};
use crate::footer::{DocumentPageLocations, FileFooter};
use crate::footer_index::FooterIndexLocation;

/// The first request fetches this fraction from the file's end, within [`TAIL_FETCH_BYTES`], to avoid a second one.
const TAIL_FETCH_DIVISOR: u64 = 512;
/// Limits of the first request. For a local store, the request has the minimum size, because a second request is cheap.
const TAIL_FETCH_BYTES: Range<u64> = 128 << 10..4 << 20;
/// Max bytes of the page indexes and the footer. A damaged length must not exhaust the memory.
const MAX_FOOTER_BYTES: u64 = 512 << 20;
const PARQUET_MAGIC: &[u8] = b"PAR1";

/// Loads a version file's footer, from the footer index if possible. Costs a second request if the first is too small.
pub(super) async fn load_footer(file: &ObjectFile) -> Result<FileFooter> {
    let end = FileTail::fetch(file).await?;
    let index_damage = match load_footer_index(file, &end).await? {
        Ok(Some(footer)) => return Ok(footer),
        Ok(None) => None,
        Err(cause) => Some(format!("its footer index is damaged: {cause}")),
    };
    let mut footer = decode_footer(file, end).await?;
    footer.index_damage = index_damage.or(footer.index_damage);
    Ok(footer)
}

pub(super) async fn load_parquet_footer(file: &ObjectFile) -> Result<FileFooter> {
    decode_footer(file, FileTail::fetch(file).await?).await
}

async fn decode_footer(file: &ObjectFile, mut end: FileTail) -> Result<FileFooter> {
    let checksummed_from = end.verify_footer_checksum(file).await?;
    let metadata = parse_metadata(&end, file.size_bytes)?;
    let pages = document_page_locations(&metadata, &end.range);
    let mut footer = FileFooter::parse(&metadata, pages, checksummed_from, file.size_bytes)?;
    footer.retain_small_profile(&end.range);
    Ok(footer)
}

struct FileTail {
    range: FetchedRange,
    footer_start: u64,
}

impl FileTail {
    async fn fetch(file: &ObjectFile) -> Result<FileTail> {
        const TRAILER_BYTES: u64 = 8;
        let size_bytes = file.size_bytes;
        if size_bytes < PARQUET_MAGIC.len() as u64 + TRAILER_BYTES {
            return Err(tail_damaged("the file is too short"));
        }
        let max_guess = if file.store.is_local() { TAIL_FETCH_BYTES.start } else { TAIL_FETCH_BYTES.end };
        let guess = (size_bytes / TAIL_FETCH_DIVISOR).clamp(TAIL_FETCH_BYTES.start, max_guess);
        let start = size_bytes - size_bytes.min(guess);
        let range = FetchedRange { start, bytes: file.fetch(start..size_bytes).await? };
        let trailer = range.slice(size_bytes - TRAILER_BYTES..size_bytes)?;
        let (length, magic) = trailer.split_at(4);
        let length = <[u8; 4]>::try_from(length).map_or(0, u32::from_le_bytes);
        if magic != PARQUET_MAGIC {
            return Err(tail_damaged("it is not the end of a Parquet file"));
        }
        let footer_start = (size_bytes - TRAILER_BYTES).checked_sub(length.into());
        let footer_start = footer_start.filter(|offset| size_bytes - offset <= MAX_FOOTER_BYTES);
        let footer_start = footer_start.ok_or_else(|| tail_damaged("the length of the footer is invalid"))?;
        Ok(FileTail { range, footer_start })
    }

    /// Verifies the footer checksum and returns the offset of the first covered byte; `None` if there is no checksum.
    async fn verify_footer_checksum(&mut self, file: &ObjectFile) -> Result<Option<u64>> {
        let size_bytes = file.size_bytes;
        let footer = self.footer_start;
        let start = self.range.start;
        // The checksum is at the end of the footer, and contains the offset of the first covered byte.
        let mut checksum = FooterChecksum::find(&self.range.slice(footer.max(start)..size_bytes)?);
        if checksum.is_none() && footer < start {
            self.fetch_back_to(file, footer).await?;
            checksum = FooterChecksum::find(&self.range.slice(footer..size_bytes)?);
        }
        let Some(checksum) = checksum else { return Ok(None) };
        if checksum.covered_from > footer || size_bytes - checksum.covered_from > MAX_FOOTER_BYTES {
            return Err(tail_damaged("the footer checksum is invalid"));
        }
        self.fetch_back_to(file, checksum.covered_from).await?;
        let covered = self.range.slice(checksum.covered_from..size_bytes)?;
        let is_valid = FooterChecksum::find(&covered).is_some_and(|checksum| checksum.matches(&covered));
        if is_valid { Ok(Some(checksum.covered_from)) } else { Err(tail_damaged("it does not match its checksum")) }
    }

    async fn fetch_back_to(&mut self, file: &ObjectFile, start: u64) -> Result<()> {
        if start < self.range.start {
            let before = file.fetch(start..self.range.start).await?;
            self.range = FetchedRange { start, bytes: [before, self.range.bytes.clone()].concat().into() };
        }
        Ok(())
    }
}

fn tail_damaged(what: &str) -> StorageError {
    StorageError::InvalidFile(format!("its end is damaged: {what}"))
}

/// Loads a footer from the footer index; `None` without an index in a supported format. The inner error means damage.
async fn load_footer_index(file: &ObjectFile, end: &FileTail) -> Result<Result<Option<FileFooter>>> {
    let bytes = end.range.slice(end.footer_start.max(end.range.start)..file.size_bytes)?;
    let found = FooterChecksum::find(&bytes)
        .and_then(|checksum| Some((checksum.covered_from, FooterIndexLocation::parse(checksum.bytes_after(&bytes))?)));
    let Some((checksummed_from, location)) = found else { return Ok(Ok(None)) };
    let is_possible = |range: &Range<u64>| range.end <= checksummed_from && checksummed_from <= end.footer_start;
    let Some(range) = location.range().filter(is_possible) else {
        return Ok(Err(StorageError::InvalidFile("it is misplaced".to_owned())));
    };
    let bytes = match end.range.slice(range.clone()) {
        // The footer index is copied, so that the other fetched bytes are not kept in memory.
        Ok(bytes) => Bytes::copy_from_slice(&bytes),
        Err(_) => file.fetch(range).await?,
    };
    if !location.matches(&bytes) {
        return Ok(Err(StorageError::checksum_mismatch()));
    }
    let mut footer = FileFooter::from_footer_index(bytes, checksummed_from, file.size_bytes);
    if let Ok(Some(footer)) = &mut footer {
        footer.retain_small_profile(&end.range);
    }
    Ok(footer)
}

fn parse_metadata(end: &FileTail, size_bytes: u64) -> Result<ParquetMetaData> {
    let footer = end.range.slice(end.footer_start..size_bytes - 8)?;
    // Readers do not use these statistics, so they are not decoded.
    let options = ParquetMetaDataOptions::new()
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
    decode_catching_panics(|| Ok(ParquetMetaDataReader::decode_metadata_with_options(&footer, Some(&options))?))
}

/// Decodes the page index of the document column. All other columns are read as a whole and need no page index.
fn document_page_locations(metadata: &ParquetMetaData, end: &FetchedRange) -> Result<DocumentPageLocations> {
    let file = metadata.file_metadata();
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
    decode_catching_panics(|| Ok(reader.read_page_indexes(end)?))?;
    let indexes = reader.finish()?.into_builder().take_offset_index().unwrap_or_default();
    let pages = indexes.into_iter().map(|columns| columns.into_iter().flat_map(|index| index.page_locations).collect());
    Ok(pages.collect())
}
