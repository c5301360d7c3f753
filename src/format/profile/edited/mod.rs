//! The profile of an edited version: the previous profile without the removed and with the added entities.
//!
//! The entity count and the type counts are exact, and so are records of paths with unchanged values. For other paths:
//!
//! - A minimum or maximum widens to added values. If a value that equals it is removed, it becomes an estimated bound.
//! - Distinct and frequent values are exact if the profile lists exactly the values that occur more than once.
//!   Otherwise, they become estimates. The error is at most the number of changed values.
//! - The ranges of the number histogram keep their width or widen.

mod bounds;
mod path_changes;
mod shredding;
mod values;

use std::collections::HashMap;

use bytes::Bytes;
use strata_types::field_path::FieldPath;
use strata_types::index_settings::IndexSettings;

use self::path_changes::{PathChange, ProfileChanges};
use self::values::RepeatedValueCounts;
use super::builder::{PathCounts, ProfileBuilder};
use super::histogram::NumberHistogram;
use super::limits::MAX_PROFILE_PATHS;
use super::shredding::{NotShreddedReason, ShreddingLimits};
use super::stored::{ProfilePathRecord, StoredProfile};
use super::value_statistics::{ScalarType, TypeCounts};
use crate::layout::FileLayout;
use crate::path_tree::PathNode;

pub fn total_bytes(documents: &[Bytes]) -> u64 {
    documents.iter().map(|document| document.len() as u64).sum()
}

/// Computes the profile of a version after an edit, without reading the other entities. Returns `None` if that is
/// impossible. In `layout`, paths lose their indexed column if its dictionary would get too many values.
pub fn profile_after_edit(
    before: &StoredProfile,
    removed: &[Bytes],
    added: &[Bytes],
    layout: &mut FileLayout,
) -> Option<StoredProfile> {
    if before.paths_left_out {
        return None;
    }
    let ProfileChanges { tree, by_node } = ProfileChanges::try_new(removed, added)?;
    let mut after = StoredProfile {
        entities: (before.entities + added.len() as u64).checked_sub(removed.len() as u64)?,
        document_bytes: (before.document_bytes + total_bytes(added)).checked_sub(total_bytes(removed))?,
        ..before.clone()
    };
    let path_indexes: HashMap<&str, usize> =
        before.paths.iter().enumerate().map(|(index, record)| (&*record.path, index)).collect();
    let mut new = Vec::new();
    for (node, change) in by_node.iter().enumerate().skip(1) {
        let keys = tree.keys(node as PathNode);
        let path = FieldPath::from_keys(keys.clone()).map_or_else(|_| String::new(), |path| path.to_string());
        // Paths without a printable form have an empty text in the profile, so the profile cannot distinguish them.
        if path.is_empty() {
            if change.is_unchanged() {
                continue;
            }
            return None;
        }
        match path_indexes.get(&*path) {
            Some(index) => {
                let record = &mut after.paths[*index];
                apply_change(record, change)?;
                shredding::update_shredded_status(record, &keys, layout);
            }
            None => new.push(keys),
        }
    }
    if !new.is_empty() {
        append_new_paths(&new, added, &mut after)?;
    }
    after.paths.retain(|record| record.entities > 0);
    if after.paths.len() >= MAX_PROFILE_PATHS {
        return None;
    }
    after.set_unmet_index_paths(layout);
    Some(after)
}

fn append_new_paths(new: &[Vec<String>], added: &[Bytes], after: &mut StoredProfile) -> Option<()> {
    let mut profile = ProfileBuilder::default();
    added.iter().for_each(|document| profile.add(document));
    let limits = ShreddingLimits::default();
    let index = IndexSettings::default();
    let stored = profile.to_stored(&profile.choose_shredded(&limits, &index), &index);
    for keys in new {
        let path = FieldPath::from_keys(keys.clone()).ok()?.to_string();
        let mut record = stored.paths.iter().find(|record| record.path == path)?.clone();
        let scalars = profile.paths[profile.find_node(keys)? as usize].scalar_entities;
        record.shredded = false;
        record.why_not_shredded = Some(match scalars {
            0 => NotShreddedReason::NoScalar,
            _ if scalars * limits.max_entities_per_scalar < after.entities => NotShreddedReason::TooRare,
            _ => NotShreddedReason::Edited,
        });
        after.paths.push(record);
    }
    Some(())
}

fn apply_change(record: &mut ProfilePathRecord, change: &PathChange) -> Option<()> {
    if change.is_unchanged() {
        return Some(());
    }
    let [removed, added] = &change.counts;
    let changed = |count: u64, get: fn(&PathCounts) -> u64| count.checked_add(get(added))?.checked_sub(get(removed));
    let types = record.types;
    record.entities = changed(record.entities, |counts| counts.entities)?;
    record.types = TypeCounts {
        null: changed(types.null, |counts| counts.types.null)?,
        boolean: changed(types.boolean, |counts| counts.types.boolean)?,
        number: changed(types.number, |counts| counts.types.number)?,
        string: changed(types.string, |counts| counts.types.string)?,
        object: changed(types.object, |counts| counts.types.object)?,
        array: changed(types.array, |counts| counts.types.array)?,
    };
    record.text_bytes = changed(record.text_bytes, |counts| counts.text_bytes)?;
    update_string_lengths(record, change)?;
    update_number_histogram(record, types.number, change)?;
    if record.types.number == 0 {
        record.number_bins = None;
    }
    let scalars = record.types.scalars();
    record.fans_out = match [removed.fans_out, added.fans_out] {
        [_, true] => true,
        // Only reading all entities would show whether one still has a value inside an array at this path.
        [true, false] if record.fans_out && scalars <= record.entities && scalars > 0 => return None,
        [true, false] if scalars == 0 => false,
        _ => record.fans_out,
    };
    if !change.values.is_empty() {
        let repeated_values = RepeatedValueCounts::try_new(record, change);
        bounds::update_min_max(record, change, repeated_values.as_ref())?;
        values::update_distinct_and_top_values(record, change, repeated_values);
    }
    Some(())
}

fn update_string_lengths(record: &mut ProfilePathRecord, change: &PathChange) -> Option<()> {
    let [removed, added] = change.counts.each_ref().map(|counts| &counts.string_lengths);
    if removed.is_empty() && added.is_empty() {
        return Some(());
    }
    let lengths = &mut record.string_lengths;
    lengths.resize(lengths.len().max(removed.len()).max(added.len()), 0);
    lengths.iter_mut().zip(added).for_each(|(count, added)| *count += added);
    for (count, removed) in lengths.iter_mut().zip(removed) {
        *count = count.checked_sub(*removed)?;
    }
    while lengths.last() == Some(&0) {
        lengths.pop();
    }
    Some(())
}

/// Applies an edit to the number histogram of a path. Must run before the minimum and the maximum are updated.
/// `numbers` is the count of numbers before the edit.
fn update_number_histogram(record: &mut ProfilePathRecord, numbers: u64, change: &PathChange) -> Option<()> {
    let changes = change.values_of_type(ScalarType::Number);
    let changes: Option<Vec<(&str, i64)>> =
        changes.map(|(text, count_change)| Some((std::str::from_utf8(text).ok()?, count_change))).collect();
    let changes = changes?;
    if changes.is_empty() {
        return Some(());
    }
    let known = match (&record.number_bins, &record.number_min, &record.number_max) {
        (Some(stored), _, _) => Some(stored.clone()).filter(NumberHistogram::is_valid),
        (None, None, _) => Some(NumberHistogram::default()),
        (None, Some(min), Some(max)) if min.value == max.value && !min.cut && min.value.is_number() => {
            let mut bins = NumberHistogram::default();
            bins.add(&min.value.to_string(), numbers);
            Some(bins)
        }
        _ => None,
    };
    let Some(mut bins) = known else {
        record.number_bins = None;
        return Some(());
    };
    for (text, count_change) in changes.iter().filter(|(_, count_change)| *count_change > 0) {
        bins.add(text, count_change.unsigned_abs());
    }
    for (text, count_change) in changes.iter().filter(|(_, count_change)| *count_change < 0) {
        bins.remove(text, count_change.unsigned_abs())?;
    }
    record.number_bins = bins.to_stored();
    Some(())
}
