//! The profile of an edited list: the previous profile without the removed entities and with the added ones.
//!
//! The numbers of entities and of values by type are exact, and so is the record of a path whose removed and added
//! values are the same. For other paths:
//!
//! - A minimum or maximum stays, or is an added value. If a removed value equals it, it is only a bound from then on,
//!   and marked as estimated.
//! - Distinct and frequent values are exact if the profile lists exactly the values that occur more than once. If not,
//!   they are estimates from then on, and their error is at most the number of changed values.
//! - The ranges of numbers are as wide as before, or wider.
//!
//! If something that must be exact cannot be computed, there is no profile, and the list must be read for one.

mod bounds;
mod delta;
mod shredded;
mod values;

use std::collections::HashMap;

use bytes::Bytes;
use strata_types::index::IndexSettings;
use strata_types::path::Path;

use self::delta::{Delta, Deltas};
use self::values::Counted;
use super::bins::StoredBins;
use super::builder::{PathCounts, ProfileBuilder};
use super::limits::PATHS;
use super::shredding::{NotShredded, ShreddingBounds};
use super::stored::{PathRecord, StoredProfile};
use super::values::{ScalarType, TypeCounts};
use crate::layout::Layout;
use crate::tree::Node;

pub fn bytes_of(documents: &[Bytes]) -> u64 {
    documents.iter().map(|document| document.len() as u64).sum()
}

/// The profile of a list from which entities were removed, and to which others were added, in its order. `None` if it
/// cannot be computed. Retires columns of the layout that cannot store the added values.
pub fn edited(
    before: &StoredProfile,
    removed: &[Bytes],
    added: &[Bytes],
    layout: &mut Layout,
) -> Option<StoredProfile> {
    if before.paths_left_out {
        return None;
    }
    let Deltas { tree, by_node } = Deltas::try_new(removed, added)?;
    let mut after = StoredProfile {
        entities: (before.entities + added.len() as u64).checked_sub(removed.len() as u64)?,
        document_bytes: (before.document_bytes + bytes_of(added)).checked_sub(bytes_of(removed))?,
        ..before.clone()
    };
    let places: HashMap<&str, usize> =
        before.paths.iter().enumerate().map(|(place, record)| (&*record.path, place)).collect();
    let mut new = Vec::new();
    for (node, delta) in by_node.iter().enumerate().skip(1) {
        let keys = tree.keys(node as Node);
        let path = Path::from_keys(keys.clone()).map_or_else(|_| String::new(), |path| path.to_string());
        // Several paths can have no name.
        if path.is_empty() {
            if delta.is_none() {
                continue;
            }
            return None;
        }
        match places.get(&*path) {
            Some(place) => {
                let record = &mut after.paths[*place];
                change(record, delta)?;
                shredded::tell_shredding(record, &keys, layout);
            }
            None => new.push(keys),
        }
    }
    if !new.is_empty() {
        append_new_paths(&new, added, &mut after)?;
    }
    after.paths.retain(|record| record.entities > 0);
    if after.paths.len() >= PATHS {
        return None;
    }
    after.set_unmet(layout);
    Some(after)
}

fn append_new_paths(new: &[Vec<String>], added: &[Bytes], after: &mut StoredProfile) -> Option<()> {
    let mut profile = ProfileBuilder::default();
    added.iter().for_each(|document| profile.add(document));
    let bounds = ShreddingBounds::default();
    let index = IndexSettings::default();
    let told = profile.describe(&profile.choose_shredded(&bounds, &index), &index);
    for keys in new {
        let path = Path::from_keys(keys.clone()).ok()?.to_string();
        let mut record = told.paths.iter().find(|record| record.path == path)?.clone();
        let scalars = profile.paths[profile.node(keys)? as usize].scalar_entities;
        record.shredded = false;
        record.why_not_shredded = Some(match scalars {
            0 => NotShredded::NoScalar,
            _ if scalars * bounds.one_in < after.entities => NotShredded::TooRare,
            _ => NotShredded::Edited,
        });
        after.paths.push(record);
    }
    Some(())
}

/// Changes the record of a path as edits do; `None` if that cannot be computed.
fn change(record: &mut PathRecord, delta: &Delta) -> Option<()> {
    if delta.is_none() {
        return Some(());
    }
    let [gone, came] = &delta.counts;
    let changed = |count: u64, of: fn(&PathCounts) -> u64| count.checked_add(of(came))?.checked_sub(of(gone));
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
    change_lengths(record, delta)?;
    change_bins(record, types.number, delta)?;
    if record.types.number == 0 {
        record.number_bins = None;
    }
    let scalars = record.types.scalars();
    record.fans_out = match [gone.fans_out, came.fans_out] {
        [_, true] => true,
        // Some entity has several, or none that went had any below an array.
        [true, false] if record.fans_out && scalars <= record.entities && scalars > 0 => return None,
        [true, false] if scalars == 0 => false,
        _ => record.fans_out,
    };
    if !delta.values.is_empty() {
        let counted = Counted::try_new(record, delta);
        bounds::widen_bounds(record, delta, counted.as_ref())?;
        values::change_values(record, delta, counted);
    }
    Some(())
}

fn change_lengths(record: &mut PathRecord, delta: &Delta) -> Option<()> {
    let [gone, came] = delta.counts.each_ref().map(|counts| &counts.string_lengths);
    if gone.is_empty() && came.is_empty() {
        return Some(());
    }
    let lengths = &mut record.string_lengths;
    lengths.resize(lengths.len().max(gone.len()).max(came.len()), 0);
    for (count, came) in lengths.iter_mut().zip(came) {
        *count += came;
    }
    for (count, gone) in lengths.iter_mut().zip(gone) {
        *count = count.checked_sub(*gone)?;
    }
    while lengths.last() == Some(&0) {
        lengths.pop();
    }
    Some(())
}

/// The numbers by their range, of which there were so many, before the minimum and the maximum change. What went is
/// taken out, and the ranges are as wide as before.
fn change_bins(record: &mut PathRecord, numbers: u64, delta: &Delta) -> Option<()> {
    let changes = delta.of_type(ScalarType::Number);
    let changes: Option<Vec<(&str, i64)>> =
        changes.map(|(text, more)| Some((std::str::from_utf8(text).ok()?, more))).collect();
    let changes = changes?;
    if changes.is_empty() {
        return Some(());
    }
    let known = match (&record.number_bins, &record.number_min, &record.number_max) {
        (Some(stored), _, _) => Some(stored.clone()).filter(StoredBins::is_valid),
        (None, None, _) => Some(StoredBins::default()),
        // All are one number, which has no ranges.
        (None, Some(min), Some(max)) if min.value == max.value && !min.cut && min.value.is_number() => {
            let mut bins = StoredBins::default();
            bins.add(&min.value.to_string(), numbers);
            Some(bins)
        }
        _ => None,
    };
    // The profile before the edit left the ranges out.
    let Some(mut bins) = known else {
        record.number_bins = None;
        return Some(());
    };
    for (text, more) in changes.iter().filter(|(_, more)| *more > 0) {
        bins.add(text, more.unsigned_abs());
    }
    for (text, more) in changes.iter().filter(|(_, more)| *more < 0) {
        bins.remove(text, more.unsigned_abs())?;
    }
    record.number_bins = bins.stored();
    Some(())
}
