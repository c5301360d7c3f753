//! The minimum and the maximum of a column's values, for statistics and the page index.

use parquet::data_type::ByteArray;
use parquet::file::statistics::{Statistics, ValueStatistics};

use super::types::ColumnType;

/// Longer bounds are truncated.
const MAX_BOUND_BYTES: usize = 64;

/// Text is ordered by bytes, other types by value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds<'c> {
    column_type: ColumnType,
    extremes: Option<(&'c [u8], &'c [u8])>,
}

impl<'c> Bounds<'c> {
    pub(super) fn new(column_type: ColumnType) -> Bounds<'c> {
        Bounds { column_type, extremes: None }
    }

    #[inline]
    pub(super) fn add(&mut self, value: &'c [u8]) {
        let Some((min, max)) = &mut self.extremes else {
            self.extremes = Some((value, value));
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
        // The first byte decides in most cases.
        let first = value.first();
        if first <= min.first() && value < *min {
            *min = value;
        } else if first >= max.first() && value > *max {
            *max = value;
        }
    }

    pub(super) fn statistics(&self, nulls: u64) -> Statistics {
        fn exact<T>(extremes: Option<(T, T)>, nulls: u64) -> ValueStatistics<T> {
            let (min, max) = extremes.unzip();
            ValueStatistics::new(min, max, None, Some(nulls), false)
        }
        let extremes = self.extremes;
        match self.column_type {
            ColumnType::Text => {
                let Some((min, max)) = extremes else { return Statistics::ByteArray(exact(None, nulls)) };
                let bytes = |bytes: &[u8]| ByteArray::from(bytes.to_vec());
                let below = truncated(min);
                let is_exact = max.len() <= MAX_BOUND_BYTES;
                let above = if is_exact { Some(bytes(max)) } else { text_after(truncated(max)).as_deref().map(bytes) };
                let statistics = ValueStatistics::new(Some(bytes(below)), above, None, Some(nulls), false);
                let statistics = statistics.with_min_is_exact(below.len() == min.len());
                Statistics::ByteArray(statistics.with_max_is_exact(is_exact))
            }
            ColumnType::Boolean => {
                Statistics::Boolean(exact(extremes.map(|(min, max)| (boolean(min), boolean(max))), nulls))
            }
            ColumnType::Int64 => Statistics::Int64(exact(extremes.map(|(min, max)| (int64(min), int64(max))), nulls)),
            ColumnType::Double => Statistics::Double(exact(extremes.map(doubles), nulls)),
        }
    }

    /// The bounds for the page index, which are empty without values. `None` if there is no text above the maximum.
    pub(super) fn indexed(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.is_empty() {
            return Some((Vec::new(), Vec::new()));
        }
        let statistics = self.statistics(0);
        Some((statistics.min_bytes_opt()?.to_vec(), statistics.max_bytes_opt()?.to_vec()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.extremes.is_none()
    }
}

fn boolean(value: &[u8]) -> bool {
    value != [0]
}

fn int64(value: &[u8]) -> i64 {
    value.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn double(value: &[u8]) -> f64 {
    value.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes))
}

/// The format requires that the bounds include zeros of both signs.
fn doubles(bounds: (&[u8], &[u8])) -> (f64, f64) {
    let (min, max) = bounds;
    let zero = |value: f64, zero: f64| if value == 0.0 { zero } else { value };
    (zero(double(min), -0.0), zero(double(max), 0.0))
}

fn is_less(column_type: ColumnType, one: &[u8], other: &[u8]) -> bool {
    match column_type {
        ColumnType::Text | ColumnType::Boolean => one < other,
        ColumnType::Int64 => int64(one) < int64(other),
        ColumnType::Double => double(one) < double(other),
    }
}

fn truncated(text: &[u8]) -> &[u8] {
    let mut end = text.len().min(MAX_BOUND_BYTES);
    // Continuation bytes.
    while end < text.len() && end > 0 && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}

/// A text after all that begin with this one.
fn text_after(text: &[u8]) -> Option<Vec<u8>> {
    let mut characters: Vec<char> = std::str::from_utf8(text).ok()?.chars().collect();
    while let Some(last) = characters.pop() {
        if let Some(next) = char::from_u32(u32::from(last) + 1) {
            characters.push(next);
            return Some(characters.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}
