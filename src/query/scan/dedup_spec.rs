//! The groups of `dedup`, and the sources of the values at their paths.
//!
//! Entities with only top-level fields (`keep_field`) are compared by these fields, like with `dedup_key`.
//! `dedup_key=a,a.b` compares only `a`, because entities with equal values at `a` have equal values at `a.b`. So no two
//! paths lead to the same bytes, and the values of all paths need at most a few times the memory of the entity.

use serde::{Deserialize, Serialize};
use strata_format::aux_index::{AuxKey, PathCodes};
use strata_format::layout::{FileLayout, HASH_COLUMN_INDEX, ShreddedKind, ShreddedPart};
use strata_format::profile::ProfilePaths;
use strata_format::reader::VersionReader;
use strata_types::field_path::FieldPath;
use strata_types::read_request::ReadRequest;

use crate::fetch::entity_projection::EntityProjection;
use crate::scan::dedup_key_column::PathColumn;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DedupSpec {
    /// The paths of `dedup_key`, without paths below other paths in it. If empty, whole entities are compared.
    pub paths: Vec<FieldPath>,
    pub reshape: EntityProjection,
}

impl DedupSpec {
    pub(crate) fn from_request(request: &ReadRequest, reshape: &EntityProjection) -> Option<DedupSpec> {
        if !request.dedup {
            return None;
        }
        let mut sorted: Vec<&FieldPath> = request.dedup_key.iter().collect();
        sorted.sort_unstable();
        // In sorted order, the paths below a path directly follow it.
        sorted.dedup_by(|path, above| path.keys().starts_with(above.keys()));
        Some(DedupSpec { paths: sorted.into_iter().cloned().collect(), reshape: reshape.clone() })
    }

    /// Returns a cache key that distinguishes the groups of this `dedup` from the groups of others in the same file.
    pub(crate) fn cache_key_text(&self) -> String {
        let texts = |paths: &[FieldPath]| {
            let mut texts: Vec<String> = paths.iter().map(FieldPath::to_string).collect();
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        let reshape = &self.reshape;
        let compared = self.compared_paths();
        let is_whole = |path: &FieldPath| {
            let keys = path.keys();
            let is_cut = reshape.drop.iter().any(|drop| drop.keys().starts_with(keys));
            reshape.is_path_included(keys) && !is_cut
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

    pub(crate) fn uses_stored_hashes(&self) -> bool {
        self.paths.is_empty() && self.reshape.changes_only_source()
    }

    /// Returns the paths whose values `dedup` compares. `None` if it compares whole entities.
    pub(crate) fn compared_paths(&self) -> Option<Vec<FieldPath>> {
        if !self.paths.is_empty() {
            return Some(self.paths.clone());
        }
        let keep = &self.reshape.keep;
        if keep.is_empty() || keep.iter().any(|path| path.keys().len() > 1) {
            return None;
        }
        let mut fields: Vec<FieldPath> = keep.iter().filter(|path| path.keys()[0] != "_source").cloned().collect();
        fields.sort();
        fields.dedup();
        Some(fields)
    }

    /// Decides which columns and documents the `dedup` keys are read from, by the cache, the profile and the footer.
    pub(crate) async fn plan_key_reads(&self, reader: &VersionReader, profile: Option<&ProfilePaths>) -> DedupReadPlan {
        let mut reads = DedupReadPlan::default();
        if self.uses_stored_hashes() {
            reads.columns.push(HASH_COLUMN_INDEX);
            return reads;
        }
        let Some(paths) = self.compared_paths() else { return DedupReadPlan { needs_documents: true, ..reads } };
        for path in &paths {
            tokio::task::consume_budget().await;
            let key = AuxKey::for_path_codes(&path.to_string());
            if reader.cached_aux_index::<PathCodes>(key).await.into_hit().is_some() {
                continue;
            }
            match PathValueSource::new(reader.layout(), profile, path, &self.reshape) {
                PathValueSource::Absent => {}
                PathValueSource::Documents => reads.needs_documents = true,
                PathValueSource::Column(PathColumn { column_number: shredded, is_complete }) => {
                    reads.columns.extend(reader.column_indices(shredded, &ShreddedPart::ALL));
                    reads.incomplete_columns.extend((!is_complete).then_some(shredded));
                }
            }
        }
        reads
    }

    /// Lists the indexed columns of the compared paths, except columns with several values for an entity.
    pub(super) fn single_value_columns<'l>(&self, layout: &'l FileLayout) -> impl Iterator<Item = usize> + use<'l> {
        let columns = self.compared_paths().into_iter().flatten().filter_map(|path| layout.find_shredded(path.keys()));
        columns.filter(|shredded| !layout.shredded_columns[*shredded].fans_out)
    }
}

#[derive(Debug, Default)]
pub(crate) struct DedupReadPlan {
    pub(super) columns: Vec<usize>,
    /// Indexed columns without all values: if such a column has no value for an entity, the entity's document is read.
    incomplete_columns: Vec<usize>,
    needs_documents: bool,
}

impl DedupReadPlan {
    pub(super) fn may_read_documents(&self, reader: &VersionReader, row_group: usize) -> bool {
        self.needs_documents
            || self.incomplete_columns.iter().any(|shredded| may_have_missing_values(reader, row_group, *shredded))
    }

    pub(crate) fn max_documents_read(&self, reader: &VersionReader) -> u64 {
        if self.needs_documents {
            return reader.entity_count();
        }
        let entities = |shredded: &usize| {
            let row_groups = reader.row_groups().iter().enumerate();
            let lacking = row_groups.filter(|(number, _)| may_have_missing_values(reader, *number, *shredded));
            lacking.map(|(_, group)| group.rows as u64).sum()
        };
        self.incomplete_columns.iter().map(entities).max().unwrap_or_default()
    }
}

fn may_have_missing_values(reader: &VersionReader, row_group: usize, column_number: usize) -> bool {
    const MISSING: i32 = ShreddedKind::Missing as i32;
    reader.kind_range(row_group, column_number).is_none_or(|(min, max)| (min..=max).contains(&MISSING))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathValueSource {
    Absent,
    Column(PathColumn),
    Documents,
}

impl PathValueSource {
    pub(super) fn new(
        layout: &FileLayout,
        profile: Option<&ProfilePaths>,
        path: &FieldPath,
        reshape: &EntityProjection,
    ) -> PathValueSource {
        let keys = path.keys();
        let facts = profile.and_then(|profile| profile.get(&path.to_string()));
        let is_absent = facts.is_none() && profile.is_some_and(ProfilePaths::is_complete);
        let has_only_scalars = facts.is_some_and(|f| (f.has_object, f.has_array) == (Some(false), Some(false)));
        let is_above = |other: &FieldPath| keys.starts_with(other.keys());
        let is_below = |other: &FieldPath| other.keys().starts_with(keys);
        let is_dropped = reshape.drop.iter().any(is_above) || (!reshape.include_source && keys[0] == "_source");
        let keep = &reshape.keep;
        let is_kept = keep.is_empty() || keep.iter().any(is_above);
        // The parents of a path in `keep_field` remain in the entity, but without their other members.
        let is_partly_kept = !is_kept && keep.iter().any(is_below);
        if is_absent || is_dropped || !(is_kept || is_partly_kept) || (is_partly_kept && has_only_scalars) {
            return PathValueSource::Absent;
        }
        if is_partly_kept {
            return PathValueSource::Documents;
        }
        match layout.find_shredded(keys) {
            Some(shredded) if has_only_scalars || !layout.shredded_columns[shredded].fans_out => {
                PathValueSource::Column(PathColumn { column_number: shredded, is_complete: has_only_scalars })
            }
            _ => PathValueSource::Documents,
        }
    }

    pub(super) fn reads_documents(self) -> bool {
        matches!(self, PathValueSource::Documents | PathValueSource::Column(PathColumn { is_complete: false, .. }))
    }
}
