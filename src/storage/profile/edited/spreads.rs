//! The lengths of strings and the ranges of numbers of a path after edits.

use super::delta::Delta;
use crate::storage::profile::bins::NumberBins;
use crate::storage::profile::stored::PathRecord;
use crate::storage::profile::values::ScalarType;

pub(super) fn change_lengths(record: &mut PathRecord, delta: &Delta) -> Option<()> {
    let [gone, came] = [&delta.lengths[0].counts, &delta.lengths[1].counts];
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
pub(super) fn change_bins(record: &mut PathRecord, numbers: u64, delta: &Delta) -> Option<()> {
    let changes = delta.of_type(ScalarType::Number);
    let changes: Option<Vec<(&str, i64)>> =
        changes.map(|(text, more)| Some((std::str::from_utf8(text).ok()?, more))).collect();
    let changes = changes?;
    if changes.is_empty() {
        return Some(());
    }
    let known = match (&record.number_bins, &record.number_min, &record.number_max) {
        (Some(stored), _, _) => stored.numbers(),
        (None, None, _) => Some(NumberBins::default()),
        // All are one number, which has no ranges.
        (None, Some(min), Some(max)) if min.value == max.value && !min.cut && min.value.is_number() => {
            let mut bins = NumberBins::default();
            bins.add_times(&min.value.to_string(), numbers);
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
        bins.add_times(text, more.unsigned_abs());
    }
    for (text, more) in changes.iter().filter(|(_, more)| *more < 0) {
        bins.remove(text, more.unsigned_abs())?;
    }
    record.number_bins = bins.stored();
    Some(())
}
