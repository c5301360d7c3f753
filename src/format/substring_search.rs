//! Substring search in the texts of Arrow arrays.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use arrow::datatypes::Int32Type;
use memchr::memmem::Finder;

/// Calls `on_match` with the index of each text that contains the needle, which must not be empty, in ascending order.
/// The texts of nulls can match.
pub fn for_each_match(texts: &BinaryArray, finder: &Finder<'_>, mut on_match: impl FnMut(usize)) {
    // One search covers the contiguous texts of all rows. A hit across the border of two texts is not a match.
    let ends = &texts.value_offsets()[1..];
    let bytes = &texts.value_data()[..ends.last().map_or(0, |end| *end as usize)];
    let mut row = 0;
    let mut at = texts.value_offsets()[0] as usize;
    while row < ends.len()
        && let Some(hit) = finder.find(&bytes[at..])
    {
        let hit = at + hit;
        row += galloping_partition_point(&ends[row..], &(hit as i32));
        let border = ends[row] as usize;
        if hit + finder.needle().len() <= border {
            on_match(row);
            at = border;
            row += 1;
        } else {
            // After a hit across a border, the search resumes one byte later, because a match can begin within the hit.
            at = hit + 1;
        }
    }
}

/// Calls `on_match` with each row of an indexed column that has a text with the needle for which `accepts` is true,
/// several times if the row has several such texts.
pub(crate) fn for_each_row_containing(
    column: &ArrayRef,
    finder: &Finder<'_>,
    accepts: impl Fn(&[u8]) -> bool,
    mut on_match: impl FnMut(usize),
) {
    let list = column.as_list_opt::<i32>();
    let values = list.map_or(column, |list| list.values());
    let row_of = |element: usize| match list {
        Some(list) => list.value_offsets().partition_point(|start| *start as usize <= element) - 1,
        None => element,
    };
    match values.as_dictionary_opt::<Int32Type>() {
        None => {
            let texts = values.as_binary::<i32>();
            for_each_match(texts, finder, |element| {
                if accepts(texts.value(element)) {
                    on_match(row_of(element));
                }
            });
        }
        Some(dictionary) => {
            let texts = dictionary.values().as_binary::<i32>();
            let mut matches = vec![false; texts.len()];
            for_each_match(texts, finder, |key| matches[key] = accepts(texts.value(key)));
            let keys = dictionary.keys().iter().enumerate();
            let matching = keys.filter(|(_, key)| key.is_some_and(|key| matches[key as usize]));
            matching.for_each(|(element, _)| on_match(row_of(element)));
        }
    }
}

/// Returns the number of values up to `position` in the ascending `ends`. Doubling steps find near positions quickly.
pub(crate) fn galloping_partition_point<T: Ord>(ends: &[T], position: &T) -> usize {
    let mut step = 1;
    while ends.get(step).is_some_and(|end| end <= position) {
        step *= 2;
    }
    let from = step / 2;
    let near = ends.get(from..ends.len().min(step + 1)).unwrap_or_default();
    from + near.partition_point(|end| end <= position)
}
