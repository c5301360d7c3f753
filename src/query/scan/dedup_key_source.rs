//! The keys of `dedup`: bytes that are equal exactly for duplicates. The first applicable source is used:
//!
//! 1. the stored hash, if stored entities are compared as a whole;
//! 2. codes of the values at each path ([`super::path_codes`]);
//! 3. the values in the indexed columns of the paths, and in documents if a column does not contain all values;
//! 4. the documents. A document is walked once for all paths ([`PathTrie`]).
//!
//! Nodes compare the keys of partial scans with each other. Codes are valid only in one process, so partial scans do
//! not use them. Other keys do not depend on the source of the values.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder};
use datafusion::execution::memory_pool::MemoryReservation;
use futures::future::try_join_all;
use sha2::{Digest, Sha256};
use strata_format::aux_index::PathCodes;
use strata_format::reader::VersionReader;
use strata_json::{CanonicalFormWriter, EntityHash, PathTrie};
use strata_store::StorageError;
use strata_types::field_path::FieldPath;

use crate::coop::YieldBudget;
use crate::fetch::document_page_reader::DocumentPageReader;
use crate::fetch::entity_projection::{EntityProjection, EntityProjectionScratch};
use crate::scan::dedup_key_column::{DedupKeyColumn, PathColumn, append_key_part};
use crate::scan::dedup_spec::{DedupSpec, PathValueSource};
use crate::scan::path_codes::{AllowedReads, get_or_build_codes};
use crate::scan::scan_report::AccessPath;

/// Up to this many paths, `dedup` keys consist of path codes. For more paths, reading the values takes no longer.
const MAX_CODED_PATHS: usize = 8;
/// Up to this many paths of a `dedup` key get path codes from documents, because each path reads all documents.
const MAX_DOCUMENT_PATHS: usize = 2;
const PATH_WORK_BYTES: usize = 16;

struct DedupKeyPath {
    path: FieldPath,
    value_source: PathValueSource,
    codes: Option<DenulledValueCodes>,
    /// The node of the path trie at which the path ends. Set if documents may be read for the path.
    tree_node: Option<usize>,
}

struct DenulledValueCodes {
    codes: Arc<PathCodes>,
    /// The path codes of null and of the empty string, which `denull` removes, and the code that replaces them.
    denull_mapping: Option<([Option<u16>; 2], u16)>,
    distinct_count: usize,
}

impl DenulledValueCodes {
    fn new(codes: Arc<PathCodes>, denull: bool) -> Option<DenulledValueCodes> {
        let distinct = codes.distinct_codes;
        if !denull {
            return Some(DenulledValueCodes { codes, denull_mapping: None, distinct_count: distinct });
        }
        let missing_code = codes.missing_code.map_or_else(|| u16::try_from(distinct), Ok).ok()?;
        let denull_mapping = Some(([codes.null_code, codes.empty_code], missing_code));
        Some(DenulledValueCodes { codes, denull_mapping, distinct_count: distinct + 1 })
    }

    #[inline]
    fn code_at(&self, position: usize) -> u16 {
        let code = self.codes.codes[position];
        match self.denull_mapping {
            Some((removed, missing_code)) if removed.contains(&Some(code)) => missing_code,
            _ => code,
        }
    }
}

/// Loads the path codes of a path in stored entities, if they are also valid after the projection of the entities.
async fn load_projected_codes(
    reader: &VersionReader,
    path: &FieldPath,
    source: PathValueSource,
    projection: &EntityProjection,
    allowed_reads: AllowedReads,
    memory: &MemoryReservation,
) -> Result<Option<DenulledValueCodes>, StorageError> {
    let fans_out = |column: PathColumn| reader.layout().shredded_columns[column.column_number].fans_out;
    let is_below = |other: &FieldPath| other.keys().starts_with(path.keys());
    let is_above = |other: &FieldPath| path.keys().starts_with(other.keys());
    let is_untouched = !projection.denull && !projection.drop.iter().any(is_below);
    let is_whole = projection.keep.is_empty() || projection.keep.iter().any(is_above);
    let column = match source {
        PathValueSource::Column(column) if is_untouched => Some(column),
        PathValueSource::Column(column) if column.is_complete && !(projection.denull && fans_out(column)) => {
            Some(column)
        }
        PathValueSource::Documents if is_untouched && is_whole => None,
        _ => return Ok(None),
    };
    let codes = get_or_build_codes(reader, path, column, allowed_reads, memory).await?;
    Ok(codes.and_then(|codes| DenulledValueCodes::new(codes, projection.denull)))
}

/// The source of the `dedup` keys of a scan. It is the same for all row groups, so that the keys are comparable.
pub(super) struct DedupKeySource {
    projection: EntityProjection,
    kind: DedupKeyKind,
    is_partial: bool,
}

enum DedupKeyKind {
    StoredHashes,
    WholeEntities,
    Paths { paths: Vec<DedupKeyPath>, tree: PathTrie },
}

impl DedupKeySource {
    /// Opens the source of `dedup` keys. `codes` limits the reads for path codes; `None` for a partial scan.
    pub(super) async fn open(
        reader: &VersionReader,
        spec: &DedupSpec,
        codes: Option<AllowedReads>,
        memory: &MemoryReservation,
    ) -> Result<DedupKeySource, StorageError> {
        let projection = spec.reshape.clone();
        let is_partial = codes.is_none();
        if spec.uses_stored_hashes() {
            return Ok(DedupKeySource { projection, kind: DedupKeyKind::StoredHashes, is_partial });
        }
        let Some(paths) = spec.compared_paths() else {
            return Ok(DedupKeySource { projection, kind: DedupKeyKind::WholeEntities, is_partial });
        };
        // If the profile cannot be read, the scan works without it, but is slower.
        let profile = reader.profile_paths().await.ok();
        let source = |path: &FieldPath| PathValueSource::new(reader.layout(), profile.as_deref(), path, &projection);
        let sources: Vec<PathValueSource> = paths.iter().map(source).collect();
        let document_paths = sources.iter().filter(|source| source.reads_documents()).count();
        let may_read = codes.map(|may_read| match paths.len() {
            0..=MAX_CODED_PATHS if document_paths <= MAX_DOCUMENT_PATHS => may_read,
            0..=MAX_CODED_PATHS => may_read.min(AllowedReads::Columns),
            _ => AllowedReads::Nothing,
        });
        // The columns of all paths are read at the same time.
        let load_codes = |(path, source): (FieldPath, PathValueSource)| {
            let projection = &projection;
            async move {
                tokio::task::consume_budget().await;
                let codes = match may_read {
                    Some(may_read) => load_projected_codes(reader, &path, source, projection, may_read, memory).await?,
                    None => None,
                };
                Ok::<_, StorageError>(DedupKeyPath { path, value_source: source, codes, tree_node: None })
            }
        };
        let mut keys = try_join_all(paths.into_iter().zip(sources).map(load_codes)).await?;
        let in_documents = |path: &DedupKeyPath| path.codes.is_none() && path.value_source.reads_documents();
        let (tree, ends) = PathTrie::from_paths(keys.iter().filter(|path| in_documents(path)).map(|path| &path.path));
        keys.iter_mut().filter(|path| in_documents(path)).zip(ends).for_each(|(path, end)| path.tree_node = Some(end));
        Ok(DedupKeySource { projection, kind: DedupKeyKind::Paths { paths: keys, tree }, is_partial })
    }

    pub(super) fn access_path(&self) -> AccessPath {
        let paths = match &self.kind {
            DedupKeyKind::StoredHashes => return AccessPath::StoredHashes,
            DedupKeyKind::WholeEntities => return AccessPath::Documents,
            DedupKeyKind::Paths { paths, .. } => paths,
        };
        if self.dedup_key_codes().is_some() {
            AccessPath::Codes
        } else if paths.iter().any(|path| path.codes.is_none() && path.value_source == PathValueSource::Documents) {
            AccessPath::Documents
        } else {
            AccessPath::ShreddedColumn
        }
    }

    /// Returns the path codes of the `dedup` keys. `None` if the keys are not codes.
    pub(super) fn dedup_key_codes(&self) -> Option<DedupKeyCodes<'_>> {
        let DedupKeyKind::Paths { paths, .. } = &self.kind else { return None };
        // Nodes compare these keys, so partial scans use no codes, even if a profile shows that no path has values.
        if self.is_partial {
            return None;
        }
        let mut groups = DedupKeyCodes { paths: Vec::with_capacity(paths.len()), key_limit: 1 };
        for path in paths {
            match &path.codes {
                Some(codes) => {
                    groups.paths.push(codes);
                    groups.key_limit = groups.key_limit.checked_mul(codes.distinct_count as u64)?;
                }
                None if path.value_source == PathValueSource::Absent => {}
                None => return None,
            }
        }
        Some(groups)
    }
}

pub(super) struct DedupKeyCodes<'a> {
    paths: Vec<&'a DenulledValueCodes>,
    pub(super) key_limit: u64,
}

impl DedupKeyCodes<'_> {
    #[inline]
    pub(super) fn for_each_key(&self, positions: impl Iterator<Item = usize>, mut visit: impl FnMut(usize, u64)) {
        match self.paths.as_slice() {
            [one] if one.denull_mapping.is_none() => {
                let codes = &one.codes.codes;
                positions.for_each(|position| visit(position, codes[position].into()));
            }
            [one, other] if one.denull_mapping.is_none() && other.denull_mapping.is_none() => {
                let first = &one.codes.codes;
                let second = &other.codes.codes;
                let base = other.distinct_count as u64;
                positions.for_each(|position| {
                    visit(position, u64::from(first[position]) * base + u64::from(second[position]));
                });
            }
            paths => positions.for_each(|position| {
                let key = |key: u64, codes: &&DenulledValueCodes| {
                    key * codes.distinct_count as u64 + u64::from(codes.code_at(position))
                };
                visit(position, paths.iter().fold(0, key));
            }),
        }
    }
}

pub(super) struct DedupKeyReader<'a> {
    source: &'a DedupKeySource,
    first_position: u64,
    stored_hashes: Option<ArrayRef>,
    columns: Vec<Option<DedupKeyColumn>>,
    pub(super) page_reader: DocumentPageReader<'a>,
    scratch: EntityProjectionScratch,
    canonical: CanonicalFormWriter,
    path_values: DocumentPathValues,
    key_part: Vec<u8>,
    budget: YieldBudget,
}

#[derive(Debug, Default)]
struct DocumentPathValues {
    value_bytes: Vec<u8>,
    /// Trie node of each path and a range of its values in `value_bytes`, ordered by node, then by document position.
    ranges: Vec<(usize, Range<usize>)>,
}

impl DocumentPathValues {
    fn read(&mut self, entity: &[u8], tree: &PathTrie, canonical: &mut CanonicalFormWriter) {
        let DocumentPathValues { value_bytes, ranges } = self;
        value_bytes.clear();
        ranges.clear();
        tree.visit_values(entity, |node, value| {
            let start = value_bytes.len();
            append_key_part(value, canonical, value_bytes);
            match ranges.last_mut() {
                Some((last, range)) if *last == node => range.end = value_bytes.len(),
                _ => ranges.push((node, start..value_bytes.len())),
            }
        });
        ranges.sort_unstable_by_key(|(node, range)| (*node, range.start));
    }

    fn hash_values_at_node(&self, key: &mut Sha256, node: usize) {
        let first = self.ranges.partition_point(|(other, _)| *other < node);
        let ranges = self.ranges[first..].iter().take_while(|(other, _)| *other == node);
        let parts = ranges.map(|(_, range)| &self.value_bytes[range.clone()]);
        let length: usize = parts.clone().map(<[u8]>::len).sum();
        key.update((length as u64).to_be_bytes());
        parts.for_each(|part| key.update(part));
    }
}

impl<'a> DedupKeyReader<'a> {
    pub(super) async fn open(
        reader: &'a VersionReader,
        row_group: usize,
        wanted: usize,
        source: &'a DedupKeySource,
    ) -> Result<DedupKeyReader<'a>, StorageError> {
        let group = reader.row_groups()[row_group];
        let mut stored_hashes = None;
        let mut columns = Vec::new();
        let mut document_rows = 0;
        match &source.kind {
            DedupKeyKind::StoredHashes => stored_hashes = Some(reader.read_entity_hashes(row_group).await?),
            DedupKeyKind::WholeEntities => document_rows = wanted,
            DedupKeyKind::Paths { paths, .. } => {
                for path in paths {
                    columns.push(match path.value_source {
                        PathValueSource::Column(column) if path.codes.is_none() => {
                            let found = DedupKeyColumn::open(reader, row_group, column).await?;
                            document_rows = document_rows.max(found.count_rows_needing_documents().min(wanted));
                            Some(found)
                        }
                        PathValueSource::Documents if path.codes.is_none() => {
                            document_rows = wanted;
                            None
                        }
                        _ => None,
                    });
                }
            }
        }
        Ok(DedupKeyReader {
            source,
            first_position: group.first_position,
            stored_hashes,
            columns,
            page_reader: DocumentPageReader::for_rows(reader, row_group, document_rows, group.rows),
            scratch: EntityProjectionScratch::default(),
            canonical: CanonicalFormWriter::default(),
            path_values: DocumentPathValues::default(),
            key_part: Vec::new(),
            budget: YieldBudget::default(),
        })
    }

    /// Computes the `dedup` keys of rows of a row group. Each call needs later rows than the call before.
    pub(super) async fn read_keys(&mut self, rows: &[usize]) -> Result<ArrayRef, StorageError> {
        let source = self.source;
        // DataFusion groups binary keys faster than keys of a fixed size.
        let mut keys = BinaryBuilder::with_capacity(rows.len(), rows.len() * size_of::<EntityHash>());
        match &source.kind {
            DedupKeyKind::StoredHashes => {
                let missing = || StorageError::InvalidFile("it has no hash column".to_owned());
                let hashes = self.stored_hashes.as_ref().ok_or_else(missing)?.as_fixed_size_binary();
                rows.iter().for_each(|row| keys.append_value(hashes.value(*row)));
            }
            DedupKeyKind::WholeEntities => {
                for row in rows {
                    let entity = source.projection.apply(self.page_reader.document(*row).await?, &mut self.scratch);
                    self.budget.yield_after(entity.len()).await;
                    keys.append_value(self.canonical.hash_without_source_field(entity));
                }
            }
            DedupKeyKind::Paths { paths, tree } => match source.dedup_key_codes() {
                Some(codes) => {
                    let positions = rows.iter().map(|row| self.first_position as usize + row);
                    codes.for_each_key(positions, |_, key| keys.append_value(key.to_be_bytes()));
                }
                None => {
                    for row in rows {
                        keys.append_value(self.row_key(paths, tree, *row).await?);
                    }
                }
            },
        }
        Ok(Arc::new(keys.finish()))
    }

    async fn row_key(
        &mut self,
        paths: &[DedupKeyPath],
        tree: &PathTrie,
        row: usize,
    ) -> Result<EntityHash, StorageError> {
        let source = self.source;
        let first_position = self.first_position as usize;
        let DedupKeyReader { columns, page_reader, scratch, canonical, path_values, key_part, budget, .. } = self;
        let reads_document = paths.iter().zip(&*columns).any(|(path, column)| {
            path.tree_node.is_some() && !column.as_ref().is_some_and(|column| column.is_row_complete(row))
        });
        if reads_document {
            let entity = source.projection.apply(page_reader.document(row).await?, scratch);
            budget.yield_after(entity.len()).await;
            path_values.read(entity, tree, canonical);
        }
        budget.yield_after(paths.len() * PATH_WORK_BYTES).await;
        let mut key = Sha256::new();
        for (path, column) in paths.iter().zip(&*columns) {
            if let Some(codes) = &path.codes {
                key.update(codes.code_at(first_position + row).to_be_bytes());
                continue;
            }
            key_part.clear();
            match (column, path.tree_node) {
                (Some(column), _) if column.is_row_complete(row) => {
                    if !column.try_append_row_key(row, source.projection.null_treatment(), key_part) {
                        let cause = format!("the column of {} has unknown types", path.path);
                        return Err(StorageError::InvalidFile(cause));
                    }
                }
                (_, Some(node)) => {
                    path_values.hash_values_at_node(&mut key, node);
                    continue;
                }
                (_, None) => {}
            }
            key.update((key_part.len() as u64).to_be_bytes());
            key.update(&*key_part);
        }
        Ok(strata_json::truncate_sha256(key))
    }
}
