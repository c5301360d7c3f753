//! The keys of `sort`, computed from an indexed column if there is one, otherwise from documents.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, Int64Array, UInt8Array};
use arrow::datatypes::Float64Type;
use serde::{Deserialize, Serialize};
use strata_format::layout::{FileLayout, ShreddedKind, ShreddedPart};
use strata_format::reader::VersionReader;
use strata_json::SortDirection;
use strata_store::StorageError;
use strata_types::read_request::ReadRequest;

use crate::fetch::document_page_reader::DocumentPageReader;
use crate::fetch::entity_projection::EntityProjection;
use crate::scan::dedup_key_column::{ColumnScalars, kind};
use crate::scan::indexed_comparison::{NUMBER_KIND, STRING_KIND};
use crate::scan::row_selection::RowSelection;
use crate::scan::sort_rank::{
    EMPTY_STRING_RANK, LAST_RANK, RowRanks, TextPrefixes, apply_direction, boolean_rank, number_rank, rest_prefix,
    string_rank,
};

/// Bytes of keys after which a batch ends. A sort needs memory for several whole batches, and a sort with a limit holds
/// every batch of which it needs a row. Batches of short keys should not be smaller, because an aggregate that spills
/// is faster with a few large batches.
const MAX_KEY_BATCH_BYTES: usize = 2 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSpec {
    pub field: String,
    pub descending: bool,
    pub denull: bool,
}

impl OrderSpec {
    /// Returns the sort order of a request. `None` if no entity has the field, or if the order has no effect.
    pub(crate) fn from_request(request: &ReadRequest, reshape: &EntityProjection) -> Option<OrderSpec> {
        let sort = request.sort.as_ref()?;
        let shuffled = request.sample.is_some() && !request.dedup;
        (!request.count && !shuffled && reshape.is_path_included(std::slice::from_ref(&sort.field)))
            .then(|| OrderSpec { field: sort.field.clone(), descending: sort.descending, denull: reshape.denull })
    }

    pub(crate) fn direction(&self) -> SortDirection {
        if self.descending { SortDirection::Descending } else { SortDirection::Ascending }
    }
}

/// Integers between these limits, which are not included, equal their nearest double.
const EXACT_INTEGERS: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// Returns the indexed column of a top-level field. `None` if some entities have an array there.
pub(crate) fn sortable_column(layout: &FileLayout, field: &str) -> Option<usize> {
    layout.find_shredded(&[field.to_owned()]).filter(|shredded| !layout.shredded_columns[*shredded].fans_out)
}

/// Reads sort keys of a row group: [`strata_json::write_sort_key`], followed by the position.
pub(crate) struct OrderKeyReader<'a> {
    spec: &'a OrderSpec,
    first_position: u64,
    sort_column: Option<SortColumn>,
    pub(super) page_reader: DocumentPageReader<'a>,
}

impl<'a> OrderKeyReader<'a> {
    pub(crate) async fn open(
        reader: &'a VersionReader,
        row_group: usize,
        wanted: usize,
        spec: &'a OrderSpec,
    ) -> Result<OrderKeyReader<'a>, StorageError> {
        let group = reader.row_groups()[row_group];
        let sort_column = SortColumn::open(reader, row_group, spec).await?;
        Ok(OrderKeyReader {
            spec,
            first_position: group.first_position,
            sort_column,
            page_reader: DocumentPageReader::for_rows(reader, row_group, wanted, group.rows),
        })
    }

    /// Computes sort keys of the first rows, at least one, up to [`MAX_KEY_BATCH_BYTES`]. Later calls need later rows.
    pub(crate) async fn read_keys(&mut self, rows: &[usize]) -> Result<ArrayRef, StorageError> {
        let spec = self.spec;
        let mut keys = BinaryBuilder::with_capacity(rows.len(), rows.len() * 26);
        let mut key = Vec::new();
        for row in rows {
            if keys.values_slice().len() >= MAX_KEY_BATCH_BYTES {
                break;
            }
            key.clear();
            let known = self.sort_column.as_ref().is_some_and(|shredded| shredded.try_append_key(*row, spec, &mut key));
            if !known {
                let document = self.page_reader.document(*row).await?;
                let value = strata_json::find_member(document, &spec.field).and_then(strata_json::JsonScalar::parse);
                let empty = matches!(value, Some(strata_json::JsonScalar::String(text)) if text.raw().is_empty());
                let value = if spec.denull && empty { None } else { value };
                strata_json::write_sort_key(value, spec.direction(), &mut key);
            }
            key.extend_from_slice(&(self.first_position + *row as u64).to_be_bytes());
            keys.append_value(&key);
        }
        let mut keys = keys.finish();
        if keys.value_data().len() >= MAX_KEY_BATCH_BYTES {
            keys.shrink_to_fit();
        }
        Ok(Arc::new(keys))
    }
}

/// Returns the parts of an indexed column that a sort reads in these row groups: no texts if all are numbers.
pub(super) fn sort_column_parts(
    reader: &VersionReader,
    mut row_groups: std::ops::Range<usize>,
    shredded: usize,
) -> Vec<ShreddedPart> {
    let mut parts = vec![ShreddedPart::Kind, ShreddedPart::Number, ShreddedPart::Remainder];
    let is_numbers = |(min, max): (i32, i32)| min >= ShreddedKind::Number as i32 || max <= ShreddedKind::Missing as i32;
    if row_groups.any(|row_group| !reader.kind_range(row_group, shredded).is_some_and(is_numbers)) {
        parts.push(ShreddedPart::Text);
    }
    parts
}

/// An indexed column in a row group, for sorting. Its texts are read only if there are strings or booleans.
pub struct SortColumn(ColumnScalars);

impl SortColumn {
    pub async fn open(
        reader: &VersionReader,
        row_group: usize,
        spec: &OrderSpec,
    ) -> Result<Option<SortColumn>, StorageError> {
        let Some(shredded) = sortable_column(reader.layout(), &spec.field) else { return Ok(None) };
        let part = async |part| reader.read_shredded(row_group, shredded, part).await;
        let rows = reader.row_groups()[row_group].rows;
        // Statistics can show that all rows have one kind, or that no number has a remainder.
        let kinds: ArrayRef = match reader.kind_range(row_group, shredded) {
            Some((min, max)) if min == max => Arc::new(UInt8Array::from_value(min as u8, rows)),
            _ => match part(ShreddedPart::Kind).await? {
                Some(kinds) => kinds,
                None => return Ok(None),
            },
        };
        let mut scalars = ColumnScalars { kinds, texts: None, numbers: None };
        let is_text = |kind: u8| kind == kind::BOOLEAN || kind == kind::STRING;
        // The loop has no early exit, so that the compiler vectorizes it.
        if scalars.kinds().iter().fold(false, |found, kind| found | is_text(*kind)) {
            scalars.texts = part(ShreddedPart::Text).await?;
            if scalars.texts.is_none() {
                return Ok(None);
            }
        }
        let is_exact = |(low, high): (f64, f64)| low > -EXACT_INTEGERS && high < EXACT_INTEGERS;
        let remainders = match reader.number_range(row_group, shredded) {
            Some(range) if is_exact(range) => Some(Arc::new(Int64Array::new_null(rows)) as ArrayRef),
            _ => part(ShreddedPart::Remainder).await?,
        };
        scalars.numbers = part(ShreddedPart::Number).await?.zip(remainders);
        Ok(Some(SortColumn(scalars)))
    }

    /// Appends the sort key of a row. Returns false if the document must be read.
    fn try_append_key(&self, row: usize, spec: &OrderSpec, key: &mut Vec<u8>) -> bool {
        match self.0.kinds()[row] {
            kind::NULL | kind::NOTHING => strata_json::write_sort_key(None, spec.direction(), key),
            kind::NUMBER => {
                let Some((double, remainder)) = self.0.number_at(row) else { return false };
                strata_json::write_sort_key_double(double, remainder, spec.direction(), key);
            }
            kind::BOOLEAN => strata_json::write_sort_key_bool(self.0.is_true(row), spec.direction(), key),
            kind::STRING => match self.0.text_at(row).unwrap_or_default() {
                b"" if spec.denull => strata_json::write_sort_key(None, spec.direction(), key),
                text => strata_json::write_sort_key_string(text, spec.direction(), key),
            },
            _ => return false,
        }
        true
    }

    /// Returns the [`number_bits`] of a row. `None` unless all numbers with these bits are equal.
    pub(super) fn exact_number_bits(&self, spec: &OrderSpec, row: usize) -> Option<u64> {
        let is_number = self.0.kinds()[row] == kind::NUMBER;
        let (double, _) = self.0.number_at(row).filter(|(double, _)| is_number && double.abs() < EXACT_INTEGERS)?;
        Some(number_bits(double, spec.direction()))
    }

    pub fn string_at(&self, row: usize) -> Option<&[u8]> {
        (self.0.kinds()[row] == kind::STRING).then(|| self.0.text_at(row).unwrap_or_default())
    }

    /// Compares two rows with the same rank by their complete values, then by position.
    pub(crate) fn compare_rows(&self, spec: &OrderSpec, one: usize, other: usize) -> Ordering {
        let values = self.compare_values(one, self, other);
        if spec.descending { values.reverse() } else { values }.then(one.cmp(&other))
    }

    /// Compares the values of two rows of equal rank, ascending: row `one` of this column, and row `other` of `that`.
    pub(super) fn compare_values(&self, one: usize, that: &SortColumn, other: usize) -> Ordering {
        match self.0.kinds()[one] {
            kind::NUMBER => {
                let bits = |(double, remainder)| (strata_json::sortable_bits(double), remainder);
                self.0.number_at(one).map(bits).cmp(&that.0.number_at(other).map(bits))
            }
            kind::STRING => self.0.text_at(one).cmp(&that.0.text_at(other)),
            _ => Ordering::Equal,
        }
    }

    /// Ranks the selected rows. `shared_bytes` is the [`shared_prefix_bytes`] of the column.
    pub(super) fn compute_ranks(&self, spec: &OrderSpec, shared_bytes: usize, selected: &RowSelection) -> RowRanks {
        let direction = spec.direction();
        let kinds = self.0.kinds();
        let doubles = self.0.numbers.as_ref().map(|(number, _)| number.as_primitive::<Float64Type>().values());
        let mut ranks = vec![LAST_RANK; kinds.len()];
        let is_number = |kind: u8| kind == kind::NUMBER || kind <= kind::NOTHING;
        if let Some(doubles) = doubles
            && kinds.iter().fold(true, |all, kind| all & is_number(*kind))
        {
            let rank = |kind: u8, double: f64| {
                if kind <= kind::NOTHING { LAST_RANK } else { apply_direction(number_rank(double), direction) }
            };
            match selected {
                RowSelection::Range(range) => {
                    let values = kinds[range.clone()].iter().zip(&doubles[range.clone()]);
                    let ranks = ranks[range.clone()].iter_mut().zip(values);
                    ranks.for_each(|(slot, (kind, double))| *slot = rank(*kind, *double));
                }
                _ => selected.for_each(|row| ranks[row] = rank(kinds[row], doubles[row])),
            }
            return RowRanks { ranks, needs_documents: false };
        }
        let texts = self.0.texts.as_ref().map(|texts| TextPrefixes::new(texts, shared_bytes));
        let mut needs_documents = false;
        selected.for_each(|row| {
            let rank = match kinds[row] {
                kind::NUMBER => doubles.map_or(0, |doubles| number_rank(doubles[row])),
                kind::STRING => {
                    let prefix = texts.as_ref().and_then(|texts| texts.prefix_at(row)).unwrap_or_default();
                    if spec.denull && prefix == 0 && self.0.text_at(row) == Some(b"") {
                        return;
                    }
                    string_rank(prefix)
                }
                kind::BOOLEAN => boolean_rank(self.0.is_true(row)),
                other => {
                    needs_documents |= other == kind::LONG_INTEGER;
                    return;
                }
            };
            ranks[row] = apply_direction(rank, direction);
        });
        RowRanks { ranks, needs_documents }
    }
}

/// Returns the length of the prefix that all strings of an indexed column share, according to the statistics of all row
/// groups. Ranks are comparable only if they are computed with the same length.
pub(super) fn shared_prefix_bytes(reader: &VersionReader, field: &str) -> usize {
    let Some(shredded) = sortable_column(reader.layout(), field) else { return 0 };
    let mut bounds = None::<(&[u8], &[u8])>;
    for row_group in 0..reader.row_groups().len() {
        let kinds = reader.kind_range(row_group, shredded);
        if kinds.is_some_and(|(min, max)| max < ShreddedKind::Boolean as i32 || min > STRING_KIND) {
            continue;
        }
        let Some((low, high)) = reader.text_bounds(row_group, shredded) else { return 0 };
        bounds = Some(bounds.map_or((low, high), |(min, max)| (min.min(low), max.max(high))));
    }
    let Some((min, max)) = bounds else { return 0 };
    min.iter().zip(max).take_while(|(one, other)| one == other).count()
}

/// Limits of the sort ranks of all rows of a row group, according to its statistics.
#[derive(Clone, Copy)]
pub(super) struct RankBounds {
    pub(super) min: u64,
    /// If no row precedes the numbers, a lower limit of their [`number_bits`].
    pub(super) min_number: Option<u64>,
    /// [`LAST_RANK`] if a row may have no sortable value.
    pub(super) max: u64,
}

/// Returns limits of the sort ranks of a row group. `has_text` is whether the column contains strings or booleans in
/// any row group, and `shared_bytes` is its [`shared_prefix_bytes`].
pub(super) fn rank_bounds(
    reader: &VersionReader,
    row_group: usize,
    spec: &OrderSpec,
    has_text: bool,
    shared_bytes: usize,
) -> RankBounds {
    const MISSING: i32 = ShreddedKind::Missing as i32;
    let unknown = RankBounds { min: 0, min_number: None, max: LAST_RANK };
    let Some(shredded) = sortable_column(reader.layout(), &spec.field) else { return unknown };
    let Some((min_kind, max_kind)) = reader.kind_range(row_group, shredded) else { return unknown };
    let mut min_number = None;
    let (low, high) = match max_kind {
        ..=MISSING => return RankBounds { min: LAST_RANK, ..unknown },
        STRING_KIND => match reader.text_bounds(row_group, shredded) {
            Some((low, high)) => {
                (string_rank(rest_prefix(low, shared_bytes)), string_rank(rest_prefix(high, shared_bytes)))
            }
            None => return unknown,
        },
        NUMBER_KIND => match reader.number_range(row_group, shredded) {
            Some((low, high)) => {
                min_number = Some(number_bits(if spec.descending { high } else { low }, spec.direction()));
                (number_rank(low), number_rank(high))
            }
            None => return unknown,
        },
        _ => return unknown,
    };
    let is_uniform = min_kind == max_kind;
    // Rows of the other kinds have lower ranks only in descending order, or no sortable value.
    let has_lower_kinds = spec.descending && !is_uniform && (max_kind == STRING_KIND || has_text);
    let counts_as_missing = spec.denull && low <= EMPTY_STRING_RANK && max_kind == STRING_KIND;
    let (first, last) = if spec.descending {
        (apply_direction(high, SortDirection::Descending), apply_direction(low, SortDirection::Descending))
    } else {
        (low, high)
    };
    RankBounds {
        min: if has_lower_kinds { 0 } else { first },
        min_number: min_number.filter(|_| !has_lower_kinds),
        max: if is_uniform && !counts_as_missing { last } else { LAST_RANK },
    }
}

/// Returns bits that order like numbers in this direction.
fn number_bits(double: f64, direction: SortDirection) -> u64 {
    let bits = strata_json::sortable_bits(double);
    if direction == SortDirection::Descending { !bits } else { bits }
}
