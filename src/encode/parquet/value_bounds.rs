//! The minimum and the maximum of a column's values, for statistics and the page index.

use parquet::data_type::ByteArray;
use parquet::file::statistics::{Statistics, ValueStatistics};

use super::column_types::ColumnType;

const MAX_TEXT_BOUND_BYTES: usize = 64;

/// Texts are ordered by bytes, and values of other types by their values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueBounds<'c> {
    column_type: ColumnType,
    min_max: Option<(&'c [u8], &'c [u8])>,
}

impl<'c> ValueBounds<'c> {
    pub(super) fn new(column_type: ColumnType) -> ValueBounds<'c> {
        ValueBounds { column_type, min_max: None }
    }

    #[inline]
    pub(super) fn update_min_max(&mut self, value: &'c [u8]) {
        let Some((min, max)) = &mut self.min_max else {
            self.min_max = Some((value, value));
            return;
        };
        if self.column_type != ColumnType::Text {
            if is_less(self.column_type, value, min) {
                *min = value;
            } else if is_less(self.column_type, max, value) {
                *max = value;
            }
            return;
        }
        // In most cases, the first bytes of two texts decide their order.
        let first = value.first();
        if first <= min.first() && value < *min {
            *min = value;
        } else if first >= max.first() && value > *max {
            *max = value;
        }
    }

    pub(super) fn build_statistics(&self, nulls: u64) -> Statistics {
        fn stats<T>(min_max: Option<(T, T)>, nulls: u64) -> ValueStatistics<T> {
            let (min, max) = min_max.unzip();
            ValueStatistics::new(min, max, None, Some(nulls), false)
        }
        let min_max = self.min_max;
        match self.column_type {
            ColumnType::Text => {
                let Some((min, max)) = min_max else { return Statistics::ByteArray(stats(None, nulls)) };
                let bytes = |bytes: &[u8]| ByteArray::from(bytes.to_vec());
                let lower = truncate_text(min);
                let is_exact = max.len() <= MAX_TEXT_BOUND_BYTES;
                let upper = if is_exact {
                    Some(bytes(max))
                } else {
                    prefix_successor(truncate_text(max)).as_deref().map(bytes)
                };
                let statistics = ValueStatistics::new(Some(bytes(lower)), upper, None, Some(nulls), false);
                let statistics = statistics.with_min_is_exact(lower.len() == min.len());
                Statistics::ByteArray(statistics.with_max_is_exact(is_exact))
            }
            ColumnType::Boolean => {
                Statistics::Boolean(stats(min_max.map(|(min, max)| (decode_boolean(min), decode_boolean(max))), nulls))
            }
            ColumnType::Int64 => {
                Statistics::Int64(stats(min_max.map(|(min, max)| (decode_int64(min), decode_int64(max))), nulls))
            }
            ColumnType::Double => Statistics::Double(stats(min_max.map(decode_double_bounds), nulls)),
        }
    }

    /// The minimum and the maximum for the page index. Both are empty without values. `None` if the maximum is too long
    /// for the index, and no short text is greater.
    pub(super) fn page_index_bounds(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.is_empty() {
            return Some((Vec::new(), Vec::new()));
        }
        let statistics = self.build_statistics(0);
        Some((statistics.min_bytes_opt()?.to_vec(), statistics.max_bytes_opt()?.to_vec()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.min_max.is_none()
    }
}

fn decode_boolean(value: &[u8]) -> bool {
    value != [0]
}

fn decode_int64(value: &[u8]) -> i64 {
    value.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn decode_double(value: &[u8]) -> f64 {
    value.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes))
}

/// Parquet requires that a minimum of zero is written as -0.0, and a maximum of zero as +0.0.
fn decode_double_bounds(bounds: (&[u8], &[u8])) -> (f64, f64) {
    let (min, max) = bounds;
    let zero = |value: f64, zero: f64| if value == 0.0 { zero } else { value };
    (zero(decode_double(min), -0.0), zero(decode_double(max), 0.0))
}

fn is_less(column_type: ColumnType, one: &[u8], other: &[u8]) -> bool {
    match column_type {
        ColumnType::Text | ColumnType::Boolean => one < other,
        ColumnType::Int64 => decode_int64(one) < decode_int64(other),
        ColumnType::Double => decode_double(one) < decode_double(other),
    }
}

fn truncate_text(text: &[u8]) -> &[u8] {
    let mut end = text.len().min(MAX_TEXT_BOUND_BYTES);
    // A truncated text must not end within a character.
    while end < text.len() && end > 0 && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}

/// Returns a text that is greater than all texts that begin with `text`.
fn prefix_successor(text: &[u8]) -> Option<Vec<u8>> {
    let mut characters: Vec<char> = std::str::from_utf8(text).ok()?.chars().collect();
    while let Some(last) = characters.pop() {
        if let Some(next) = char::from_u32(u32::from(last) + 1) {
            characters.push(next);
            return Some(characters.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}
