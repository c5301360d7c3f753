//! The groups of `dedup`, and where the values at their paths come from.
//!
//! Entities with only top-level fields (`keep_field`) are compared by these fields, like with `dedup_key`.
//! `dedup_key=a,a.b` compares only `a`, because entities with equal values at `a` have equal values at `a.b`. So no two
//! paths reach the same bytes, and the values of all paths need at most a few times the memory of the entity.

use serde::{Deserialize, Serialize};
use strata_format::aux_index::{AuxKey, PathCodes};
use strata_format::layout::{Layout, ShreddedKind, ShreddedPart};
use strata_format::profile::PathIndex;
use strata_format::reader::VersionReader;
use strata_types::path::Path;
use strata_types::request::ReadRequest;

use crate::fetch::reshape::Reshape;
use crate::scan::key_column::PathColumn;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupSpec {
    /// The paths of `dedup_key`, without descendants of others. If empty, the whole entity is compared.
    pub paths: Vec<Path>,
    pub reshape: Reshape,
}

impl GroupSpec {
    /// The groups of a request. `None` without `dedup`.
    pub(crate) fn from_request(request: &ReadRequest, reshape: &Reshape) -> Option<GroupSpec> {
        if !request.dedup {
            return None;
        }
        let mut sorted: Vec<&Path> = request.dedup_key.iter().collect();
        sorted.sort_unstable();
        // In this order, all descendants follow their path.
        sorted.dedup_by(|path, above| path.keys().starts_with(above.keys()));
        Some(GroupSpec { paths: sorted.into_iter().cloned().collect(), reshape: reshape.clone() })
    }

    /// A text that distinguishes the groups from all others of a file.
    pub(crate) fn name(&self) -> String {
        let texts = |paths: &[Path]| {
            let mut texts: Vec<String> = paths.iter().map(Path::to_string).collect();
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        let reshape = &self.reshape;
        let compared = self.compared();
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
                let keep = texts(&reshape.keep);
                let drop = texts(&reshape.drop);
                format!("{denull} {compared:?} {keep:?} {drop:?} {}", reshape.include_source)
            }
        }
    }

    /// Whether the stored hashes are the keys.
    pub(crate) fn is_stored(&self) -> bool {
        self.paths.is_empty() && self.reshape.changes_source_alone()
    }

    /// The paths whose values are compared. `None` if whole entities are compared.
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

    /// What the keys are read from, by the cache, the profile and the footer.
    pub(crate) async fn reads(&self, reader: &VersionReader, index: Option<&PathIndex>) -> KeyReads {
        let mut reads = KeyReads::default();
        if self.is_stored() {
            reads.columns.push(reader.hash_column());
            return reads;
        }
        let Some(paths) = self.compared() else { return KeyReads { documents: true, ..reads } };
        for path in &paths {
            tokio::task::consume_budget().await;
            if reader.aux_index::<PathCodes>(AuxKey::codes(&path.to_string())).await.hit().is_some() {
                continue;
            }
            match PathAccess::new(reader.layout(), index, path, &self.reshape) {
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

    /// The indexed columns of the compared paths, without those with several values for an entity.
    pub(super) fn shredded<'l>(&self, layout: &'l Layout) -> impl Iterator<Item = usize> + use<'l> {
        let columns = self.compared().into_iter().flatten().filter_map(|path| layout.shredded(path.keys()));
        columns.filter(|shredded| !layout.shredded_columns[*shredded].fans_out)
    }
}

/// What the keys of groups are read from.
#[derive(Debug, Default)]
pub(crate) struct KeyReads {
    pub(super) columns: Vec<usize>,
    /// Indexed columns. If such a column has no value of an entity, its document is read.
    incomplete: Vec<usize>,
    documents: bool,
}

impl KeyReads {
    /// Whether documents of a row group may be read.
    pub(super) fn documents_of(&self, reader: &VersionReader, row_group: usize) -> bool {
        self.documents || self.incomplete.iter().any(|shredded| may_lack(reader, row_group, *shredded))
    }

    /// The number of entities whose documents may be read for a path.
    pub(crate) fn entities_in_documents(&self, reader: &VersionReader) -> u64 {
        if self.documents {
            return reader.entity_count();
        }
        let entities = |shredded: &usize| {
            let row_groups = reader.row_groups().iter().enumerate();
            let lacking = row_groups.filter(|(number, _)| may_lack(reader, *number, *shredded));
            lacking.map(|(_, group)| group.rows as u64).sum()
        };
        self.incomplete.iter().map(entities).max().unwrap_or_default()
    }
}

/// Whether some entity of a row group may have no value in an indexed column, by the footer.
fn may_lack(reader: &VersionReader, row_group: usize, shredded: usize) -> bool {
    const NOTHING: i32 = ShreddedKind::Nothing as i32;
    reader.kind_range(row_group, shredded).is_none_or(|(min, max)| (min..=max).contains(&NOTHING))
}

/// Where the values at a path of a reshaped entity are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathAccess {
    /// No reshaped entity has the path.
    Nothing,
    Column(PathColumn),
    Documents,
}

impl PathAccess {
    pub(super) fn new(layout: &Layout, index: Option<&PathIndex>, path: &Path, reshape: &Reshape) -> PathAccess {
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
        // The parents of a kept path are left, but without their other members.
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

    pub(super) fn reads_documents(self) -> bool {
        matches!(self, PathAccess::Documents | PathAccess::Column(PathColumn { is_complete: false, .. }))
    }
}
