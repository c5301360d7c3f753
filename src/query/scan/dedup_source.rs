//! The keys of `dedup`: bytes that are equal exactly for duplicates. The first source that applies is used:
//!
//! 1. the stored hash, if whole entities are compared as they are;
//! 2. codes of the values at each path ([`super::path_codes`]);
//! 3. the values in the indexed columns of the paths, and in documents if a column does not contain all;
//! 4. the documents. A document is walked once for all paths ([`PathTree`]).
//!
//! Nodes compare the keys of partial scans with each other. Codes are valid only in one process, so partial scans do
//! not use them. Keys of values do not depend on the source of the values.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder};
use datafusion::execution::memory_pool::MemoryReservation;
use sha2::{Digest, Sha256};
use strata_format::aux_index::PathCodes;
use strata_format::reader::VersionReader;
use strata_json::{CanonicalForm, PathTree};
use strata_store::StorageError;
use strata_types::path::Path;

use crate::coop::YieldBudget;
use crate::fetch::pages::Pages;
use crate::fetch::reshape::{Reshape, ReshapeScratch};
use crate::scan::dedup_key::{GroupSpec, PathAccess};
use crate::scan::key_column::{KeyColumn, PathColumn, write_value};
use crate::scan::path_codes::{MayRead, path_codes};
use crate::scan::report::AccessName;

/// Codes are used for keys of up to this many paths. For more, reading values takes no longer.
const MAX_CODED_PATHS: usize = 8;

/// Codes are built from documents for up to this many paths of a key, because each path reads all documents.
const MAX_DOCUMENT_PATHS: usize = 2;

/// The work of a path in the key of an entity, in bytes.
const PATH_BYTES: usize = 16;

struct KeyPath {
    path: Path,
    access: PathAccess,
    codes: Option<Codes>,
    /// The node of the tree at which the path ends, if documents may be read for it.
    node: Option<usize>,
}

struct Codes {
    codes: Arc<PathCodes>,
    /// The codes of what `denull` removes, and the code that replaces them.
    denulled: Option<([Option<u16>; 2], u16)>,
    distinct: usize,
}

impl Codes {
    /// `None` if there are too many codes.
    fn new(codes: Arc<PathCodes>, denull: bool) -> Option<Codes> {
        let distinct = codes.distinct;
        if !denull {
            return Some(Codes { codes, denulled: None, distinct });
        }
        let nothing = codes.nothing.map_or_else(|| u16::try_from(distinct), Ok).ok()?;
        let denulled = Some(([codes.null, codes.empty], nothing));
        Some(Codes { codes, denulled, distinct: distinct + 1 })
    }

    #[inline]
    fn get(&self, position: usize) -> u16 {
        let code = self.codes.codes[position];
        match self.denulled {
            Some((removed, nothing)) if removed.contains(&Some(code)) => nothing,
            _ => code,
        }
    }
}

/// The codes of a path in stored entities, if they are valid for reshaped entities.
async fn codes_of(
    reader: &VersionReader,
    path: &Path,
    access: PathAccess,
    reshape: &Reshape,
    may_read: MayRead,
    memory: &MemoryReservation,
) -> Result<Option<Codes>, StorageError> {
    let fans_out = |column: PathColumn| reader.layout().shredded_columns[column.shredded].fans_out;
    let is_below = |other: &Path| other.keys().starts_with(path.keys());
    let is_above = |other: &Path| path.keys().starts_with(other.keys());
    let is_untouched = !reshape.denull && !reshape.drop.iter().any(is_below);
    let is_whole = reshape.keep.is_empty() || reshape.keep.iter().any(is_above);
    let column = match access {
        PathAccess::Column(column) if is_untouched => Some(column),
        PathAccess::Column(column) if column.is_complete && !(reshape.denull && fans_out(column)) => Some(column),
        PathAccess::Documents if is_untouched && is_whole => None,
        _ => return Ok(None),
    };
    let codes = path_codes(reader, path, column, may_read, memory).await?;
    Ok(codes.and_then(|codes| Codes::new(codes, reshape.denull)))
}

/// The source of the keys of a scan. It is the same for all row groups, so that the keys are comparable.
pub(super) struct GroupSource {
    reshape: Reshape,
    keys: Keys,
    /// Whether other nodes compare the keys with their own.
    is_part: bool,
}

enum Keys {
    StoredHashes,
    Entities,
    Paths {
        paths: Vec<KeyPath>,
        /// The tree of the paths for which documents may be read.
        tree: PathTree,
    },
}

impl GroupSource {
    /// `codes` is what can be read to build codes. A partial scan has no codes.
    pub(super) async fn open(
        reader: &VersionReader,
        spec: &GroupSpec,
        codes: Option<MayRead>,
        memory: &MemoryReservation,
    ) -> Result<GroupSource, StorageError> {
        let reshape = spec.reshape.clone();
        let is_part = codes.is_none();
        if spec.is_stored() {
            return Ok(GroupSource { reshape, keys: Keys::StoredHashes, is_part });
        }
        let Some(paths) = spec.compared() else { return Ok(GroupSource { reshape, keys: Keys::Entities, is_part }) };
        // Without a profile, the scan is slower.
        let index = reader.paths().await.ok();
        let access = |path: &Path| PathAccess::new(reader.layout(), index.as_deref(), path, &reshape);
        let accesses: Vec<PathAccess> = paths.iter().map(access).collect();
        let by_documents = accesses.iter().filter(|access| access.reads_documents()).count();
        let may_read = codes.map(|may_read| match paths.len() {
            0..=MAX_CODED_PATHS if by_documents <= MAX_DOCUMENT_PATHS => may_read,
            0..=MAX_CODED_PATHS => may_read.min(MayRead::Columns),
            _ => MayRead::Nothing,
        });
        let mut keys = Vec::with_capacity(paths.len());
        for (path, access) in paths.into_iter().zip(accesses) {
            tokio::task::consume_budget().await;
            let codes = match may_read {
                Some(may_read) => codes_of(reader, &path, access, &reshape, may_read, memory).await?,
                None => None,
            };
            keys.push(KeyPath { path, access, codes, node: None });
        }
        let in_documents = |path: &KeyPath| path.codes.is_none() && path.access.reads_documents();
        let (tree, ends) = PathTree::of(keys.iter().filter(|path| in_documents(path)).map(|path| &path.path));
        for (path, end) in keys.iter_mut().filter(|path| in_documents(path)).zip(ends) {
            path.node = Some(end);
        }
        Ok(GroupSource { reshape, keys: Keys::Paths { paths: keys, tree }, is_part })
    }

    pub(super) fn source(&self) -> AccessName {
        let paths = match &self.keys {
            Keys::StoredHashes => return AccessName::StoredHashes,
            Keys::Entities => return AccessName::Documents,
            Keys::Paths { paths, .. } => paths,
        };
        if self.codes().is_some() {
            AccessName::Codes
        } else if paths.iter().any(|path| path.codes.is_none() && path.access == PathAccess::Documents) {
            AccessName::Documents
        } else {
            AccessName::ShreddedColumn
        }
    }

    /// The codes of the keys. `None` if the keys are not codes.
    pub(super) fn codes(&self) -> Option<GroupCodes<'_>> {
        let Keys::Paths { paths, .. } = &self.keys else { return None };
        // Even if no path has values, because a node that cannot read the profile does not know it.
        if self.is_part {
            return None;
        }
        let mut groups = GroupCodes { paths: Vec::with_capacity(paths.len()), space: 1 };
        for path in paths {
            match &path.codes {
                Some(codes) => {
                    groups.paths.push(codes);
                    groups.space = groups.space.checked_mul(codes.distinct as u64)?;
                }
                None if path.access == PathAccess::Nothing => {}
                None => return None,
            }
        }
        Some(groups)
    }
}

pub(super) struct GroupCodes<'a> {
    paths: Vec<&'a Codes>,
    /// All keys are less than this.
    pub(super) space: u64,
}

impl GroupCodes<'_> {
    /// Calls `visit` with each position and its key.
    #[inline]
    pub(super) fn each(&self, positions: impl Iterator<Item = usize>, mut visit: impl FnMut(usize, u64)) {
        match self.paths.as_slice() {
            [one] if one.denulled.is_none() => {
                let codes = &one.codes.codes;
                positions.for_each(|position| visit(position, codes[position].into()));
            }
            [one, other] if one.denulled.is_none() && other.denulled.is_none() => {
                let first = &one.codes.codes;
                let second = &other.codes.codes;
                let base = other.distinct as u64;
                positions.for_each(|position| {
                    visit(position, u64::from(first[position]) * base + u64::from(second[position]));
                });
            }
            paths => positions.for_each(|position| {
                let key = |key: u64, codes: &&Codes| key * codes.distinct as u64 + u64::from(codes.get(position));
                visit(position, paths.iter().fold(0, key));
            }),
        }
    }
}

/// The keys of rows of a row group.
pub(super) struct GroupKeys<'a> {
    source: &'a GroupSource,
    first: u64,
    hashes: Option<ArrayRef>,
    /// For each path: its column, if values are read from it.
    columns: Vec<Option<KeyColumn>>,
    pub(super) pages: Pages<'a>,
    scratch: ReshapeScratch,
    canonical: CanonicalForm,
    reached: ReachedValues,
    part: Vec<u8>,
    budget: YieldBudget,
}

/// The values at the paths of a key in a document.
#[derive(Debug, Default)]
struct ReachedValues {
    parts: Vec<u8>,
    /// The node of a path, and the range of its values in `parts`, by node and then in document order.
    ranges: Vec<(usize, Range<usize>)>,
}

impl ReachedValues {
    fn read(&mut self, entity: &[u8], tree: &PathTree, canonical: &mut CanonicalForm) {
        let ReachedValues { parts, ranges } = self;
        parts.clear();
        ranges.clear();
        tree.reach_values(entity, |node, value| {
            let start = parts.len();
            write_value(value, canonical, parts);
            match ranges.last_mut() {
                Some((last, range)) if *last == node => range.end = parts.len(),
                _ => ranges.push((node, start..parts.len())),
            }
        });
        ranges.sort_unstable_by_key(|(node, range)| (*node, range.start));
    }

    /// Adds the values of the path that ends at this node to a key.
    fn add_to(&self, key: &mut Sha256, node: usize) {
        let first = self.ranges.partition_point(|(other, _)| *other < node);
        let ranges = self.ranges[first..].iter().take_while(|(other, _)| *other == node);
        let parts = ranges.map(|(_, range)| &self.parts[range.clone()]);
        let length: usize = parts.clone().map(<[u8]>::len).sum();
        key.update((length as u64).to_be_bytes());
        parts.for_each(|part| key.update(part));
    }
}

impl<'a> GroupKeys<'a> {
    /// For about `wanted` rows.
    pub(super) async fn open(
        reader: &'a VersionReader,
        row_group: usize,
        wanted: usize,
        source: &'a GroupSource,
    ) -> Result<GroupKeys<'a>, StorageError> {
        let group = reader.row_groups()[row_group];
        let mut hashes = None;
        let mut columns = Vec::new();
        let mut from_documents = 0;
        match &source.keys {
            Keys::StoredHashes => hashes = Some(reader.hashes(row_group).await?),
            Keys::Entities => from_documents = wanted,
            Keys::Paths { paths, .. } => {
                for path in paths {
                    columns.push(match path.access {
                        PathAccess::Column(column) if path.codes.is_none() => {
                            let found = KeyColumn::open(reader, row_group, column).await?;
                            from_documents = from_documents.max(found.rows_without().min(wanted));
                            Some(found)
                        }
                        PathAccess::Documents if path.codes.is_none() => {
                            from_documents = wanted;
                            None
                        }
                        _ => None,
                    });
                }
            }
        }
        Ok(GroupKeys {
            source,
            first: group.first,
            hashes,
            columns,
            pages: Pages::of(reader, row_group, from_documents, group.rows),
            scratch: ReshapeScratch::default(),
            canonical: CanonicalForm::default(),
            reached: ReachedValues::default(),
            part: Vec::new(),
            budget: YieldBudget::default(),
        })
    }

    /// The keys of these rows. Rows must ascend over all calls.
    pub(super) async fn keys(&mut self, rows: &[usize]) -> Result<ArrayRef, StorageError> {
        let source = self.source;
        // DataFusion groups binary keys faster than keys of a fixed size.
        let mut keys = BinaryBuilder::with_capacity(rows.len(), rows.len() * 32);
        match &source.keys {
            Keys::StoredHashes => {
                let missing = || StorageError::Layout("it has no hash column".to_owned());
                let hashes = self.hashes.as_ref().ok_or_else(missing)?.as_fixed_size_binary();
                rows.iter().for_each(|row| keys.append_value(hashes.value(*row)));
            }
            Keys::Entities => {
                for row in rows {
                    let entity = source.reshape.apply(self.pages.document(*row).await?, &mut self.scratch);
                    self.budget.consume(entity.len()).await;
                    keys.append_value(self.canonical.hash(entity));
                }
            }
            Keys::Paths { paths, tree } => match source.codes() {
                Some(codes) => {
                    let positions = rows.iter().map(|row| self.first as usize + row);
                    codes.each(positions, |_, key| keys.append_value(key.to_be_bytes()));
                }
                None => {
                    for row in rows {
                        keys.append_value(self.key(paths, tree, *row).await?);
                    }
                }
            },
        }
        Ok(Arc::new(keys.finish()))
    }

    async fn key(&mut self, paths: &[KeyPath], tree: &PathTree, row: usize) -> Result<[u8; 32], StorageError> {
        let GroupKeys { source, first, columns, pages, scratch, canonical, reached, part, budget, .. } = self;
        let reads_document = paths
            .iter()
            .zip(&*columns)
            .any(|(path, column)| path.node.is_some() && !column.as_ref().is_some_and(|column| column.holds_all(row)));
        if reads_document {
            let entity = source.reshape.apply(pages.document(row).await?, scratch);
            budget.consume(entity.len()).await;
            reached.read(entity, tree, canonical);
        }
        budget.consume(paths.len() * PATH_BYTES).await;
        let mut key = Sha256::new();
        for (path, column) in paths.iter().zip(&*columns) {
            if let Some(codes) = &path.codes {
                key.update(codes.get(*first as usize + row).to_be_bytes());
                continue;
            }
            part.clear();
            match (column, path.node) {
                (Some(column), _) if column.holds_all(row) => {
                    if !column.write_row(row, source.reshape.denull, part) {
                        return Err(StorageError::Layout(format!("the column of {} has unknown types", path.path)));
                    }
                }
                (_, Some(node)) => {
                    reached.add_to(&mut key, node);
                    continue;
                }
                (_, None) => {}
            }
            key.update((part.len() as u64).to_be_bytes());
            key.update(&*part);
        }
        Ok(key.finalize().into())
    }
}
