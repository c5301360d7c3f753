//! The key of `dedup`. Each of these is used where the ones before it do not apply:
//!
//! 1. the stored hash, where whole entities are compared as they are;
//! 2. codes of what each path reaches ([`super::path_codes`]);
//! 3. the values in the shredded columns of the paths, and in documents where a column does not hold all;
//! 4. the documents.
//!
//! Entities that keep top-level fields alone (`keep_field`) are compared by these fields, as with `dedup_key`.
//!
//! A document is walked once for all paths that need it ([`PathTree`]). `dedup_key=a,a.b` compares `a` only, because
//! entities with equal values at `a` have equal values at `a.b`. So no two paths reach the same bytes, and the values
//! of all paths need at most a few times the memory of the entity.
//!
//! Other processes compare the keys of a part of a scan with their own. Codes have a meaning in one process alone, so
//! there are none: keys of values are the same bytes, wherever the values were found.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryBuilder};
use datafusion::execution::memory_pool::MemoryReservation;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strata_format::aux_index::{AuxKey, PathCodes};
use strata_format::layout::{Layout, ShreddedKind, ShreddedPart};
use strata_format::profile::PathIndex;
use strata_format::reader::VersionReader;
use strata_json::{CanonicalForm, PathTree};
use strata_store::StorageError;
use strata_types::path::Path;
use strata_types::request::ReadRequest;

use crate::fetch::pages::Pages;
use crate::fetch::reshape::{Reshape, ReshapeScratch};
use crate::pace::Pace;
use crate::scan::key_column::{KeyColumn, PathColumn, write_value};
use crate::scan::metrics::AccessName;
use crate::scan::path_codes::{MayRead, path_codes};

/// Codes are made for keys of so many paths: for more, reading values takes no longer.
const CODED_PATHS: usize = 8;

/// About the bytes that a path counts as work in the key of an entity.
const PATH_BYTES: usize = 16;

/// Codes are made from documents for so many paths of a key: each reads all of them.
const DOCUMENT_PATHS: usize = 2;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupSpec {
    /// The paths of `dedup_key`, of which none is below another; none is the whole entity.
    pub paths: Vec<Path>,
    /// What is left of an entity before it is compared.
    pub reshape: Reshape,
}

impl GroupSpec {
    /// The groups of a request; `None` without `dedup`.
    pub(crate) fn of(request: &ReadRequest, reshape: &Reshape) -> Option<GroupSpec> {
        if !request.dedup {
            return None;
        }
        let mut sorted: Vec<&Path> = request.dedup_key.iter().collect();
        sorted.sort_unstable();
        // In this order, a path is followed by all paths below it.
        sorted.dedup_by(|path, above| path.keys().starts_with(above.keys()));
        Some(GroupSpec { paths: sorted.into_iter().cloned().collect(), reshape: reshape.clone() })
    }

    /// A text that tells these groups from all others of a file.
    pub(crate) fn name(&self) -> String {
        let texts = |paths: &[Path]| {
            let mut texts: Vec<String> = paths.iter().map(Path::to_string).collect();
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        let (reshape, compared) = (&self.reshape, self.compared());
        let is_whole = |path: &Path| {
            let keys = path.keys();
            let is_cut = reshape.drop.iter().any(|drop| drop.keys().starts_with(keys));
            reshape.sees(keys) && !is_cut
        };
        let denull = reshape.denull;
        match compared.as_deref() {
            Some(paths) if paths.iter().all(is_whole) => format!("{denull} {:?}", texts(paths)),
            _ => {
                let compared = compared.as_deref().map(texts);
                let (keep, drop) = (texts(&reshape.keep), texts(&reshape.drop));
                format!("{denull} {compared:?} {keep:?} {drop:?} {}", reshape.include_source)
            }
        }
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.paths.is_empty() && self.reshape.changes_source_alone()
    }

    /// The paths whose values are compared; `None` where the whole entity is.
    pub(crate) fn compared(&self) -> Option<Vec<Path>> {
        if !self.paths.is_empty() {
            return Some(self.paths.clone());
        }
        let keep = &self.reshape.keep;
        if keep.is_empty() || keep.iter().any(|path| path.keys().len() > 1) {
            return None;
        }
        let mut fields: Vec<Path> = keep.iter().filter(|path| path.keys()[0] != "_source").cloned().collect();
        fields.sort();
        fields.dedup();
        Some(fields)
    }

    /// What the keys are read from, as far as the cache, the profile and the footer know.
    pub(super) async fn reads(&self, reader: &VersionReader) -> KeyReads {
        let mut reads = KeyReads::default();
        if self.is_stored() {
            reads.columns.push(reader.hash_column());
            return reads;
        }
        let Some(paths) = self.compared() else { return KeyReads { documents: true, ..reads } };
        // Whoever makes the keys reads it, too.
        let index = reader.paths().await.ok();
        for path in &paths {
            tokio::task::consume_budget().await;
            if has_codes(reader, path).await {
                continue;
            }
            match access(reader.layout(), index.as_deref(), path, &self.reshape) {
                PathAccess::Nothing => {}
                PathAccess::Documents => reads.documents = true,
                PathAccess::Column(PathColumn { shredded, is_complete }) => {
                    reads.columns.extend(reader.columns_of(shredded, &ShreddedPart::ALL));
                    reads.incomplete.extend((!is_complete).then_some(shredded));
                }
            }
        }
        reads
    }

    /// The shredded columns of the paths that are compared. Whether those that fan out are read, the profile tells.
    pub(super) fn shredded<'l>(&self, layout: &'l Layout) -> impl Iterator<Item = usize> + use<'l> {
        let columns = self.compared().into_iter().flatten().filter_map(|path| layout.shredded(path.keys()));
        columns.filter(|shredded| !layout.shredded_columns[*shredded].fans_out)
    }

    /// How many paths are compared, and of how many entities documents may have to tell, at most: as far as the cache
    /// and the footer know. `None` where whole entities are compared.
    pub(crate) async fn sources(&self, reader: &VersionReader) -> Option<(usize, u64)> {
        let paths = self.compared()?;
        let index = reader.cached_paths().await;
        let mut from_documents = 0;
        for path in &paths {
            let entities = match access(reader.layout(), index.as_deref(), path, &self.reshape) {
                PathAccess::Nothing | PathAccess::Column(PathColumn { is_complete: true, .. }) => 0,
                PathAccess::Column(column) => entities_without(reader, column.shredded),
                PathAccess::Documents => reader.entity_count(),
            };
            if entities > from_documents && !has_codes(reader, path).await {
                from_documents = entities;
            }
        }
        Some((paths.len(), from_documents))
    }
}

#[derive(Debug, Default)]
pub(super) struct KeyReads {
    pub(super) columns: Vec<usize>,
    /// Shredded columns; where they hold nothing of an entity, its document has to tell.
    incomplete: Vec<usize>,
    documents: bool,
}

impl KeyReads {
    /// Whether documents of a row group may have to tell.
    pub(super) fn documents_of(&self, reader: &VersionReader, row_group: usize) -> bool {
        self.documents || self.incomplete.iter().any(|shredded| may_lack(reader, row_group, *shredded))
    }
}

async fn has_codes(reader: &VersionReader, path: &Path) -> bool {
    reader.aux_index::<PathCodes>(AuxKey::codes(&path.to_string())).await.hit().is_some()
}

/// Whether some entity of a row group may have no scalar in a shredded column, by the footer.
fn may_lack(reader: &VersionReader, row_group: usize, shredded: usize) -> bool {
    const NOTHING: i32 = ShreddedKind::Nothing as i32;
    reader.kind_range(row_group, shredded).is_none_or(|(min, max)| (min..=max).contains(&NOTHING))
}

/// How many entities may have no scalar in a shredded column, by the footer: all of those row groups in which some may.
fn entities_without(reader: &VersionReader, shredded: usize) -> u64 {
    let row_groups = reader.row_groups().iter().enumerate();
    row_groups.filter(|(number, _)| may_lack(reader, *number, shredded)).map(|(_, group)| group.rows as u64).sum()
}

/// Where what a path reaches in a reshaped entity is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathAccess {
    /// Nowhere: no entity has it, or none has it left.
    Nothing,
    Column(PathColumn),
    Documents,
}

impl PathAccess {
    fn reads_documents(self) -> bool {
        matches!(self, PathAccess::Documents | PathAccess::Column(PathColumn { is_complete: false, .. }))
    }
}

/// Where what a path reaches is found, before anything is read but the layout and the paths of the profile.
fn access(layout: &Layout, index: Option<&PathIndex>, path: &Path, reshape: &Reshape) -> PathAccess {
    let keys = path.keys();
    let facts = index.and_then(|index| index.get(&path.to_string()));
    let is_absent = facts.is_none() && index.is_some_and(PathIndex::is_complete);
    let holds_scalars_alone =
        facts.is_some_and(|facts| (facts.has_object, facts.has_array) == (Some(false), Some(false)));
    let is_above = |other: &Path| keys.starts_with(other.keys());
    let is_below = |other: &Path| other.keys().starts_with(keys);
    let is_dropped = reshape.drop.iter().any(is_above) || (!reshape.include_source && keys[0] == "_source");
    let keep = &reshape.keep;
    let is_kept = keep.is_empty() || keep.iter().any(is_above);
    // Above a kept path objects and arrays are left, without what is not kept in them.
    let is_partly_kept = !is_kept && keep.iter().any(is_below);
    if is_absent || is_dropped || !(is_kept || is_partly_kept) || (is_partly_kept && holds_scalars_alone) {
        return PathAccess::Nothing;
    }
    if is_partly_kept {
        return PathAccess::Documents;
    }
    match layout.shredded(keys) {
        Some(shredded) if holds_scalars_alone || !layout.shredded_columns[shredded].fans_out => {
            PathAccess::Column(PathColumn { shredded, is_complete: holds_scalars_alone })
        }
        _ => PathAccess::Documents,
    }
}

struct KeyPath {
    path: Path,
    access: PathAccess,
    codes: Option<Codes>,
    /// The node of the tree at which it ends, if documents may be read for it.
    node: Option<usize>,
}

struct KeyPaths {
    paths: Vec<KeyPath>,
    /// The tree of the paths for which documents may be read.
    tree: PathTree,
}

struct Codes {
    codes: Arc<PathCodes>,
    /// Codes of what `denull` takes away, and the one that stands for it then.
    denulled: Option<([Option<u16>; 2], u16)>,
    distinct: usize,
}

impl Codes {
    /// Those of entities as they are stored, or without nulls and empty strings; `None` where there are too many.
    fn of(codes: Arc<PathCodes>, denull: bool) -> Option<Codes> {
        let distinct = codes.distinct;
        if !denull {
            return Some(Codes { codes, denulled: None, distinct });
        }
        let nothing = codes.nothing.map_or_else(|| u16::try_from(distinct), Ok).ok()?;
        let denulled = Some(([codes.null, codes.empty], nothing));
        Some(Codes { codes, denulled, distinct: distinct + 1 })
    }

    #[inline]
    fn at(&self, position: usize) -> u16 {
        let code = self.codes.codes[position];
        match self.denulled {
            Some((taken, nothing)) if taken.contains(&Some(code)) => nothing,
            _ => code,
        }
    }
}

/// The codes of a path, for which so much may be read. They are those of entities as they are stored.
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
    Ok(codes.and_then(|codes| Codes::of(codes, reshape.denull)))
}

/// Where the keys of a scan come from: decided once, so that they are comparable.
pub(super) struct GroupSource {
    reshape: Reshape,
    keys: Keys,
    /// Whether other processes compare the keys with their own.
    is_part: bool,
}

enum Keys {
    StoredHashes,
    Entities,
    Paths(KeyPaths),
}

impl GroupSource {
    /// For the keys of a scan, which may read so much for codes, or of a part of one, which has none.
    pub(super) async fn open(
        reader: &VersionReader,
        spec: &GroupSpec,
        codes: Option<MayRead>,
        memory: &MemoryReservation,
    ) -> Result<GroupSource, StorageError> {
        let (reshape, is_part) = (spec.reshape.clone(), codes.is_none());
        if spec.is_stored() {
            return Ok(GroupSource { reshape, keys: Keys::StoredHashes, is_part });
        }
        let Some(paths) = spec.compared() else { return Ok(GroupSource { reshape, keys: Keys::Entities, is_part }) };
        // A profile that cannot be read is reported, and makes this slower, not wrong.
        let index = reader.paths().await.ok();
        let access = |path: &Path| access(reader.layout(), index.as_deref(), path, &reshape);
        let accesses: Vec<PathAccess> = paths.iter().map(access).collect();
        let by_documents = accesses.iter().filter(|access| access.reads_documents()).count();
        let may_read = codes.map(|may_read| match paths.len() {
            0..=CODED_PATHS if by_documents <= DOCUMENT_PATHS => may_read,
            0..=CODED_PATHS => may_read.min(MayRead::Columns),
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
        Ok(GroupSource { reshape, keys: Keys::Paths(KeyPaths { paths: keys, tree }), is_part })
    }

    /// Where the keys come from, for people, and the column, where it is one.
    pub(super) fn source(&self) -> AccessName {
        let paths = match &self.keys {
            Keys::StoredHashes => return AccessName::StoredHashes,
            Keys::Entities => return AccessName::Documents,
            Keys::Paths(KeyPaths { paths, .. }) => paths,
        };
        if self.codes().is_some() {
            AccessName::Codes
        } else if paths.iter().any(|path| path.codes.is_none() && path.access == PathAccess::Documents) {
            AccessName::Documents
        } else {
            AccessName::ShreddedColumn
        }
    }

    /// The codes that are the keys; `None` where they are not.
    pub(super) fn codes(&self) -> Option<GroupCodes<'_>> {
        let Keys::Paths(KeyPaths { paths, .. }) = &self.keys else { return None };
        // Not even where no path reaches anything: who cannot read the profile does not know.
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
    /// Every key is below this.
    pub(super) space: u64,
}

impl GroupCodes<'_> {
    /// Calls `visit` with the place and the key of each of these positions, in their order.
    #[inline]
    pub(super) fn each(&self, positions: impl Iterator<Item = usize>, mut visit: impl FnMut(usize, u64)) {
        match self.paths.as_slice() {
            [one] if one.denulled.is_none() => {
                let codes = &one.codes.codes;
                positions.for_each(|position| visit(position, codes[position].into()));
            }
            [one, other] if one.denulled.is_none() && other.denulled.is_none() => {
                let (first, second, base) = (&one.codes.codes, &other.codes.codes, other.distinct as u64);
                positions.for_each(|position| {
                    visit(position, u64::from(first[position]) * base + u64::from(second[position]));
                });
            }
            paths => positions.for_each(|position| {
                let key = |key: u64, codes: &&Codes| key * codes.distinct as u64 + u64::from(codes.at(position));
                visit(position, paths.iter().fold(0, key));
            }),
        }
    }
}

/// The group keys of rows of a row group: equal exactly for entities that are duplicates.
pub(super) struct GroupKeys<'a> {
    source: &'a GroupSource,
    first: u64,
    /// The stored hashes, where they are the keys.
    hashes: Option<ArrayRef>,
    /// By path: its column, where it is one and there are no codes.
    columns: Vec<Option<KeyColumn>>,
    pub(super) pages: Pages<'a>,
    scratch: ReshapeScratch,
    canonical: CanonicalForm,
    reached: ReachedValues,
    part: Vec<u8>,
    pace: Pace,
}

/// The values that the paths of a key reach in one document, as key parts.
#[derive(Debug, Default)]
struct ReachedValues {
    parts: Vec<u8>,
    /// Ranges of `parts` with the node of their path, by node and then in document order. Values of one path that
    /// follow each other share a range.
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

    /// Adds the part of the path that ends at this node to a key.
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
    /// Of `wanted` rows, most likely.
    pub(super) async fn open(
        reader: &'a VersionReader,
        row_group: usize,
        wanted: usize,
        source: &'a GroupSource,
    ) -> Result<GroupKeys<'a>, StorageError> {
        let group = reader.row_groups()[row_group];
        let (mut hashes, mut columns, mut from_documents) = (None, Vec::new(), 0);
        match &source.keys {
            Keys::StoredHashes => hashes = Some(reader.hashes(row_group).await?),
            Keys::Entities => from_documents = wanted,
            Keys::Paths(KeyPaths { paths, .. }) => {
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
            pace: Pace::default(),
        })
    }

    /// The keys of these rows, which come after those asked for before.
    pub(super) async fn keys(&mut self, rows: &[usize]) -> Result<ArrayRef, StorageError> {
        let source = self.source;
        // DataFusion groups binary keys faster than those of fixed size.
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
                    self.pace.worked(entity.len()).await;
                    keys.append_value(self.canonical.hash(entity));
                }
            }
            Keys::Paths(paths) => match source.codes() {
                Some(codes) => {
                    let positions = rows.iter().map(|row| self.first as usize + row);
                    codes.each(positions, |_, key| keys.append_value(key.to_be_bytes()));
                }
                None => {
                    for row in rows {
                        keys.append_value(self.key(paths, *row).await?);
                    }
                }
            },
        }
        Ok(Arc::new(keys.finish()))
    }

    async fn key(&mut self, key_paths: &KeyPaths, row: usize) -> Result<[u8; 32], StorageError> {
        let GroupKeys { source, first, columns, pages, scratch, canonical, reached, part, pace, .. } = self;
        let KeyPaths { paths, tree } = key_paths;
        let reads_document = paths
            .iter()
            .zip(&*columns)
            .any(|(path, column)| path.node.is_some() && !column.as_ref().is_some_and(|column| column.holds_all(row)));
        if reads_document {
            let entity = source.reshape.apply(pages.document(row).await?, scratch);
            pace.worked(entity.len()).await;
            reached.read(entity, tree, canonical);
        }
        pace.worked(paths.len() * PATH_BYTES).await;
        let mut key = Sha256::new();
        for (path, column) in paths.iter().zip(&*columns) {
            if let Some(codes) = &path.codes {
                key.update(codes.at(*first as usize + row).to_be_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::key_column::write_reached;

    fn paths(list: &str) -> Vec<Path> {
        Path::parse_list(list)
    }

    #[test]
    fn paths_below_others_are_left_out() {
        for (list, expected) in [
            ("b,a", "a,b"),
            ("a.b,a,a.b.c,a.c", "a"),
            ("a.b.c,a.b,a.b,ab,a!,a.bc", "a.b,a.bc,a!,ab"),
            (r"a\.b,a.b,a..b", r"a..b,a.b,a\.b"),
        ] {
            let request = ReadRequest { dedup: true, dedup_key: paths(list), ..ReadRequest::default() };
            let groups = GroupSpec::of(&request, &Reshape::of(&request)).expect("groups");
            assert_eq!(groups.paths, paths(expected), "{list}");
        }
    }

    /// With 500 paths, an entity was walked 500 times.
    #[test]
    fn one_walk_writes_the_parts_of_all_paths() {
        let list = paths(r"z,a.b,k..x,none,a\.b,d.e");
        let (tree, nodes) = PathTree::of(&list);
        let mut canonical = CanonicalForm::default();
        let mut reached = ReachedValues::default();
        for entity in [
            r#"{"d":[{"e":{"y":1.0,"x":[2]}},[{"e":3}],4],"a":{"b":"B"},"z":[1],"k":{"":{"x":null}},"a.b":1e2}"#,
            r#"{"a":[{"b":1},{"c":1,"b":[]},{"b":true}],"z":{},"k":[{"":[{"x":""}]}]}"#,
            "{}",
        ] {
            reached.read(entity.as_bytes(), &tree, &mut canonical);
            for (path, node) in list.iter().zip(&nodes) {
                let mut part = Vec::new();
                write_reached(entity.as_bytes(), path, &mut canonical, &mut part);
                let expected = Sha256::new().chain_update((part.len() as u64).to_be_bytes()).chain_update(&part);
                let mut key = Sha256::new();
                reached.add_to(&mut key, *node);
                assert_eq!(key.finalize(), expected.finalize(), "{path} in {entity}");
            }
        }
    }
}
