//! Projects entities: steps 2 to 5 of a query (`include_source`, `denull`, `keep_field`, `drop_field`).
//!
//! These steps precede all other steps of a query, but are applied to few documents: predicates are evaluated as if the
//! steps had run ([`EntityProjection::is_path_included`]). Documents are projected when they are returned, or if a
//! predicate cannot be evaluated otherwise.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use strata_json::{FieldProjection, SourceField, TableColumnNames};
use strata_types::field_path::FieldPath;
use strata_types::read_request::ReadRequest;

/// What happens to nulls and empty strings before predicates are evaluated (`denull`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullTreatment {
    Keep,
    Remove,
}

impl NullTreatment {
    pub(crate) fn from_denull(denull: bool) -> NullTreatment {
        if denull { NullTreatment::Remove } else { NullTreatment::Keep }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EntityProjection {
    pub include_source: bool,
    pub denull: bool,
    pub keep: Vec<FieldPath>,
    pub drop: Vec<FieldPath>,
    #[serde(skip)]
    json_projection: OnceLock<FieldProjection>,
}

#[derive(Debug, Default)]
pub struct EntityProjectionScratch {
    without_nulls: Vec<u8>,
    projected: Vec<u8>,
}

impl EntityProjection {
    pub fn from_request(request: &ReadRequest) -> EntityProjection {
        EntityProjection {
            include_source: request.include_source,
            denull: request.denull,
            keep: request.keep_fields.clone(),
            drop: request.drop_fields.clone(),
            json_projection: OnceLock::new(),
        }
    }

    pub(crate) fn json_projection(&self) -> &FieldProjection {
        self.json_projection.get_or_init(|| {
            let source_field = if self.include_source { SourceField::Include } else { SourceField::Remove };
            FieldProjection::new(source_field, &self.keep, &self.drop)
        })
    }

    pub(crate) fn null_treatment(&self) -> NullTreatment {
        NullTreatment::from_denull(self.denull)
    }

    pub fn is_identity(&self) -> bool {
        !self.denull && self.json_projection().is_identity()
    }

    /// Whether the projection can change only the field `_source`. Then the stored hash of the entity, which ignores
    /// `_source`, is still valid.
    pub fn changes_only_source(&self) -> bool {
        !self.denull && self.keep.is_empty() && self.drop.is_empty()
    }

    pub fn has_hidden_fields(&self) -> bool {
        !self.json_projection().is_identity()
    }

    /// Whether the projection includes the scalars at a path: all of them or none. The parent of a kept path has no
    /// scalars, but the parent of a dropped path can have some.
    pub fn is_path_included(&self, keys: &[String]) -> bool {
        let covers = |path: &FieldPath| keys.starts_with(path.keys());
        (self.include_source || keys.first().is_none_or(|key| key != "_source"))
            && (self.keep.is_empty() || self.keep.iter().any(covers))
            && !self.drop.iter().any(covers)
    }

    /// Returns the table columns of projected entities; `None` if the stored column names do not determine them.
    pub fn project_columns(&self, columns: &TableColumnNames) -> Option<TableColumnNames> {
        if self.denull {
            return None;
        }
        let mut keep = Vec::new();
        let mut drop = Vec::new();
        for (paths, keys) in [(&self.keep, &mut keep), (&self.drop, &mut drop)] {
            for path in paths {
                match path.keys() {
                    [key] if is_unambiguous_column_name(key) => keys.push(key.as_str()),
                    _ => return None,
                }
            }
        }
        if !self.include_source {
            drop.push("_source");
        }
        // A column name that starts with a field name can belong to a value below that field, or to another field.
        let continues = |name: &str, key: &&str| {
            name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.') || starts_with_element_number(rest))
        };
        let mut included = Vec::new();
        for name in columns.names() {
            if keep.iter().chain(&drop).any(|key| continues(name, key)) {
                return None;
            }
            if (keep.is_empty() || keep.contains(&name.as_str())) && !drop.contains(&name.as_str()) {
                included.push(name.clone());
            }
        }
        Some(TableColumnNames::from(included))
    }

    pub fn apply<'a>(&self, document: &'a [u8], scratch: &'a mut EntityProjectionScratch) -> &'a [u8] {
        let mut entity = document;
        if self.denull {
            scratch.without_nulls.clear();
            strata_json::remove_nulls(entity, &mut scratch.without_nulls);
            entity = &scratch.without_nulls;
        }
        let projection = self.json_projection();
        if !projection.is_identity() {
            scratch.projected.clear();
            projection.apply(entity, &mut scratch.projected);
            entity = &scratch.projected;
        }
        entity
    }
}

/// Whether only a top-level key can have this table column name: it has no dot and no element number.
fn is_unambiguous_column_name(key: &str) -> bool {
    !key.contains('.') && !key.match_indices('_').any(|(at, _)| starts_with_element_number(&key[at..]))
}

/// Whether a part of a table column name begins with the number of an array element, such as `_0_`.
fn starts_with_element_number(name: &str) -> bool {
    let digits = name.strip_prefix('_').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    digits.is_some_and(|rest| rest.starts_with('_') && rest.len() + 1 < name.len())
}
