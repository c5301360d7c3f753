//! The keys of `sort`, computed from an indexed column if there is one, otherwise from documents.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, Int32Array};
use arrow::datatypes::{Float64Type, Int32Type};
use serde::{Deserialize, Serialize};
use strata_format::layout::{FileLayout, ShreddedKind, ShreddedPart};
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use strata_types::read_request::ReadRequest;

use crate::fetch::document_page_reader::DocumentPageReader;
use crate::fetch::entity_projection::EntityProjection;
use crate::scan::dedup_key_column::{ColumnScalars, kind};
use crate::scan::indexed_comparison::{NUMBER_KIND, STRING_KIND};
use crate::scan::row_selection::RowSelection;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSpec {
    pub field: String,
    pub descending: bool,
    pub denull: bool,
}

impl OrderSpec {
    /// Returns `None` if no entity has the field, or if the response does not depend on the order.
    pub(crate) fn from_request(request: &ReadRequest, reshape: &EntityProjection) -> Option<OrderSpec> {
        let sort = request.sort.as_ref()?;
        let shuffled = request.sample.is_some() && !request.dedup;
        (!request.count && !shuffled && reshape.is_path_included(std::slice::from_ref(&sort.field)))
            .then(|| OrderSpec { field: sort.field.clone(), descending: sort.descending, denull: reshape.denull })
    }
}

/// Returns the indexed column of a top-level field. `None` if some entities have an array there.
pub(crate) fn sortable_column(layout: &FileLayout, field: &str) -> Option<usize> {
    layout.find_shredded(&[field.to_owned()]).filter(|shredded| !layout.shredded_columns[*shredded].fans_out)
}

/// Bytes of keys after which a batch ends. A sort needs memory for several whole batches, and a sort with a limit holds
/// every batch of which it needs a row. Batches of short keys should not be smaller, because an aggregate that spills
/// is faster with a few large batches.
const MAX_KEY_BATCH_BYTES: usize = 2 << 20;

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

    /// Computes the keys of the first rows, up to [`MAX_KEY_BATCH_BYTES`], at least one. Rows must ascend over all
    /// calls.
    pub(crate) async fn read_keys(&mut self, rows: &[usize]) -> Result<ArrayRef, StorageError> {
        let spec = self.spec;
        let mut keys = BinaryBuilder::with_capacity(rows.len(), rows.len() * 26);
        let mut key = Vec::new();
        for row in rows {
            if keys.values_slice().len() >= MAX_KEY_BATCH_BYTES {
                break;
            }
            key.clear();
            let known = self.sort_column.as_ref().is_some_and(|shredded| shredded.write_key(*row, spec, &mut key));
            if !known {
                let document = self.page_reader.document(*row).await?;
                let value = strata_json::find_member(document, &spec.field).and_then(strata_json::JsonScalar::parse);
                let empty = matches!(value, Some(strata_json::JsonScalar::String(text)) if text.raw().is_empty());
                let value = if spec.denull && empty { None } else { value };
                strata_json::write_sort_key(value, spec.descending, &mut key);
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

/// Returns the parts of a column that a sort reads in any of these row groups. Columns of numbers need no texts.
pub(super) fn sort_column_parts(
    reader: &VersionReader,
    mut row_groups: std::ops::Range<usize>,
    shredded: usize,
) -> Vec<ShreddedPart> {
    let mut parts = vec![ShreddedPart::Kind, ShreddedPart::Number, ShreddedPart::Remainder];
    let is_numbers = |(min, max): (i32, i32)| min >= ShreddedKind::Number as i32 || max <= ShreddedKind::Missing as i32;
    if row_groups.any(|row_group| !reader.kind_range(row_group, shredded).is_some_and(is_numbers)) {
        parts.extend([ShreddedPart::Text, ShreddedPart::Exact]);
    }
    parts
}

/// An indexed column in a row group. Its texts are read only if there are strings or booleans.
pub struct SortColumn(ColumnScalars);

impl SortColumn {
    pub async fn open(
        reader: &VersionReader,
        row_group: usize,
        spec: &OrderSpec,
    ) -> Result<Option<SortColumn>, StorageError> {
        let Some(shredded) = sortable_column(reader.layout(), &spec.field) else { return Ok(None) };
        let part = async |part| reader.read_shredded(row_group, shredded, part).await;
        let Some(kinds) = part(ShreddedPart::Kind).await? else { return Ok(None) };
        let mut scalars = ColumnScalars { kinds, texts: None, exact_texts: None, numbers: None };
        let is_text = |kind: u8| kind == kind::BOOLEAN || kind == kind::STRING;
        // Without early exit, so that the compiler vectorizes the loop.
        if scalars.kinds().iter().fold(false, |found, kind| found | is_text(*kind)) {
            scalars.texts = part(ShreddedPart::Text).await?;
            scalars.exact_texts = part(ShreddedPart::Exact).await?;
            if scalars.texts.is_none() {
                return Ok(None);
            }
        }
        scalars.numbers = part(ShreddedPart::Number).await?.zip(part(ShreddedPart::Remainder).await?);
        Ok(Some(SortColumn(scalars)))
    }

    /// Appends the key of a row. Returns false if the document must be read.
    fn write_key(&self, row: usize, spec: &OrderSpec, key: &mut Vec<u8>) -> bool {
        match self.0.kinds()[row] {
            kind::NULL | kind::NOTHING => strata_json::write_sort_key(None, spec.descending, key),
            kind::NUMBER => {
                let Some((double, remainder)) = self.0.number_at(row) else { return false };
                strata_json::write_sort_key_double(double, remainder, spec.descending, key);
            }
            kind::BOOLEAN => strata_json::write_sort_key_bool(self.0.is_true(row), spec.descending, key),
            kind::STRING => match self.0.string_at(row).unwrap_or_default() {
                b"" if spec.denull => strata_json::write_sort_key(None, spec.descending, key),
                text => strata_json::write_sort_key_string(text, spec.descending, key),
            },
            _ => return false,
        }
        true
    }

    pub fn string_at(&self, row: usize) -> Option<&[u8]> {
        (self.0.kinds()[row] == kind::STRING).then(|| self.0.string_at(row).unwrap_or_default())
    }

    /// Compares two rows with the same rank by their complete values, then by position.
    pub(crate) fn compare_rows(&self, spec: &OrderSpec, one: usize, other: usize) -> Ordering {
        let values = self.compare_values(one, self, other);
        if spec.descending { values.reverse() } else { values }.then(one.cmp(&other))
    }

    /// Compares two values with the same rank, ascending. The other one can be in another row group.
    pub(super) fn compare_values(&self, one: usize, that: &SortColumn, other: usize) -> Ordering {
        match self.0.kinds()[one] {
            kind::NUMBER => {
                let bits = |(double, remainder)| (strata_json::sortable_bits(double), remainder);
                self.0.number_at(one).map(bits).cmp(&that.0.number_at(other).map(bits))
            }
            kind::STRING => self.0.string_at(one).cmp(&that.0.string_at(other)),
            _ => Ordering::Equal,
        }
    }

    /// Computes a rank for every selected row: rows with lower ranks come first, and keys order rows with the same
    /// rank. Rows that come last, or whose document must be read, have the rank `u64::MAX`.
    pub(super) fn compute_ranks(&self, spec: &OrderSpec, selected: &RowSelection) -> RowRanks {
        let kinds = self.0.kinds();
        let doubles = self.0.numbers.as_ref().map(|(number, _)| number.as_primitive::<Float64Type>().values());
        let mut ranks = vec![u64::MAX; kinds.len()];
        let is_number = |kind: u8| kind == kind::NUMBER || kind <= kind::NOTHING;
        if let Some(doubles) = doubles
            && kinds.iter().fold(true, |all, kind| all & is_number(*kind))
        {
            let rank = |kind: u8, double: f64| {
                if kind <= kind::NOTHING { u64::MAX } else { apply_direction(number_rank(double), spec.descending) }
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
        let folded = self.0.texts.as_ref().map(TextPrefixRanks::new);
        let exact_texts = self.0.exact_texts.as_ref().map(TextPrefixRanks::new);
        let mut needs_documents = false;
        selected.for_each(|row| {
            let rank = match kinds[row] {
                kind::NUMBER => doubles.map_or(0, |doubles| number_rank(doubles[row])),
                kind::STRING => {
                    let exact = exact_texts.as_ref().and_then(|exact_texts| exact_texts.rank_at(row));
                    let text = exact.or_else(|| folded.as_ref().and_then(|f| f.rank_at(row))).unwrap_or_default();
                    if spec.denull && text == 0 && self.0.text_at(row) == Some(b"") {
                        return;
                    }
                    2 << 61 | text >> 3
                }
                kind::BOOLEAN => 3 << 61 | u64::from(self.0.is_true(row)),
                other => {
                    needs_documents |= other == kind::LONG_INTEGER;
                    return;
                }
            };
            ranks[row] = apply_direction(rank, spec.descending);
        });
        RowRanks { ranks, needs_documents }
    }
}

/// `has_text` is whether the column contains strings or booleans in any row group.
pub(super) fn row_group_min_rank(reader: &VersionReader, row_group: usize, spec: &OrderSpec, has_text: bool) -> u64 {
    const MISSING: i32 = ShreddedKind::Missing as i32;
    let Some(shredded) = sortable_column(reader.layout(), &spec.field) else { return 0 };
    let Some((min, max)) = reader.kind_range(row_group, shredded) else { return 0 };
    let numbers = reader.number_range(row_group, shredded);
    match (max, numbers) {
        (..=MISSING, _) => u64::MAX,
        (..=STRING_KIND, None) if !spec.descending => 2 << 61,
        (NUMBER_KIND, Some((low, _))) if !spec.descending => number_rank(low),
        (NUMBER_KIND, Some((_, high))) if min == NUMBER_KIND || !has_text => apply_direction(number_rank(high), true),
        _ => 0,
    }
}

/// Contains the class in the top three bits, then the first bits of the value.
fn number_rank(double: f64) -> u64 {
    1 << 61 | strata_json::sortable_bits(double) >> 3
}

fn apply_direction(rank: u64, descending: bool) -> u64 {
    if descending { (4 << 61) - 1 - rank } else { rank }
}

/// The first eight bytes of texts as ordered numbers, computed once for each distinct text of a dictionary.
enum TextPrefixRanks<'a> {
    Plain(&'a BinaryArray),
    Dictionary { keys: &'a Int32Array, prefixes: Vec<u64> },
}

impl TextPrefixRanks<'_> {
    fn new(array: &ArrayRef) -> TextPrefixRanks<'_> {
        match array.as_dictionary_opt::<Int32Type>() {
            Some(dictionary) => {
                let values = dictionary.values().as_binary::<i32>();
                let prefixes = (0..values.len()).map(|i| strata_json::sortable_prefix(values.value(i))).collect();
                TextPrefixRanks::Dictionary { keys: dictionary.keys(), prefixes }
            }
            None => TextPrefixRanks::Plain(array.as_binary::<i32>()),
        }
    }

    fn rank_at(&self, row: usize) -> Option<u64> {
        match self {
            TextPrefixRanks::Plain(values) => {
                values.is_valid(row).then(|| strata_json::sortable_prefix(values.value(row)))
            }
            TextPrefixRanks::Dictionary { keys, prefixes } => {
                keys.is_valid(row).then(|| prefixes.get(keys.value(row) as usize).copied())?
            }
        }
    }
}

pub(super) struct RowRanks {
    /// By row. Only the ranks of selected rows are valid.
    pub(super) ranks: Vec<u64>,
    pub(super) needs_documents: bool,
}
