//! Decides which indexed columns remain usable after edits.

use strata_types::field_path::FieldPath;

use crate::layout::FileLayout;
use crate::profile::builder::ProfileBuilder;
use crate::profile::limits::MAX_EXACT_DISTINCT;
use crate::profile::shredding::{NotShreddedReason, ShreddingChoice, ShreddingLimits};
use crate::profile::stored::{ProfilePathRecord, StoredProfile, UnmetIndexPath};
use crate::profile::value_statistics::ValueStatistics;

pub(super) fn update_shredded_status(record: &mut ProfilePathRecord, keys: &[String], layout: &mut FileLayout) {
    if let Some(number) = layout.find_shredded(keys) {
        let column = &mut layout.shredded_columns[number];
        column.retired = column.dictionary && record.distinct.count > MAX_EXACT_DISTINCT as u64;
        if !column.retired {
            return;
        }
    }
    let why = match record.why_not_shredded {
        _ if record.types.scalars() == 0 => NotShreddedReason::NoScalar,
        None | Some(NotShreddedReason::NoScalar) => NotShreddedReason::Edited,
        Some(why) => why,
    };
    record.shredded = false;
    record.why_not_shredded = Some(why);
}

impl StoredProfile {
    pub fn set_unmet_index_paths(&mut self, layout: &FileLayout) {
        let why = |path: &str| match self.paths.iter().find(|record| record.path == path) {
            Some(record) if record.types.scalars() > 0 => NotShreddedReason::Edited,
            None if self.paths_left_out => NotShreddedReason::NotFollowed,
            Some(_) | None => NotShreddedReason::NoScalar,
        };
        let missing = layout.index.always_indexed().iter().filter(|path| layout.find_shredded(path.keys()).is_none());
        let unmet = missing.map(FieldPath::to_string).map(|path| UnmetIndexPath { why: why(&path), path });
        self.index.unmet = unmet.collect();
    }
}

impl ProfileBuilder {
    /// Returns the indexed columns in the file of an edited version, for [`ProfileBuilder::to_stored`].
    pub fn shredding_for_layout(&self, layout: &FileLayout) -> ShreddingChoice {
        let mut choice = self.choose_shredded(&ShreddingLimits::default(), &layout.index);
        for (node, _) in self.path_nodes() {
            let why = &mut choice.not_shredded[node as usize];
            let is_shredded = layout.find_shredded(&self.tree.keys(node)).is_some();
            *why = (!is_shredded).then(|| why.unwrap_or(NotShreddedReason::Edited));
        }
        choice
    }

    pub fn retire_oversized_dictionaries(&self, layout: &mut FileLayout) {
        for column in &mut layout.shredded_columns {
            let values = self.find_node(&column.keys).map(|node| &self.paths[node as usize].values);
            column.retired |= column.dictionary && values.is_some_and(ValueStatistics::is_estimated);
        }
    }

    /// Retires the columns that cannot represent all values at their paths, other than oversized dictionaries.
    pub fn retire_unfit_columns(&self, layout: &mut FileLayout) {
        for column in &mut layout.shredded_columns {
            column.retired |= match self.find_node(&column.keys).map(|node| &self.paths[node as usize]) {
                Some(path) => {
                    (path.counts.fans_out && !column.fans_out)
                        || (path.needs_folding && !column.needs_folding)
                        || (path.counts.types.number > 0 && !column.has_numbers)
                }
                // The profile might not cover the path.
                None => self.paths_left_out,
            };
        }
    }
}
