//! The keys of `sort`, from an indexed column if there is one, otherwise from documents.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, Int32Array};
use arrow::datatypes::{Float64Type, Int32Type};
use serde::{Deserialize, Serialize};
use strata_format::layout::{Layout, ShreddedKind, ShreddedPart};
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use strata_types::request::ReadRequest;

use crate::fetch::pages::Pages;
use crate::fetch::reshape::Reshape;
use crate::scan::indexed_column::{NUMBER, STRING};
use crate::scan::key_column::{Scalars, kind};
use crate::scan::row_selection::RowSelection;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSpec {
    pub field: String,
    pub descending: bool,
    /// Whether empty strings count as missing.
    pub denull: bool,
}

impl OrderSpec {
    /// The order of a request. `None` if no entity has the field, or if the request does not depend on the order.
    pub(crate) fn from_request(request: &ReadRequest, reshape: &Reshape) -> Option<OrderSpec> {
        let sort = request.sort.as_ref()?;
        let shuffled = request.sample.is_some() && !request.dedup;
        (!request.count && !shuffled && reshape.sees(std::slice::from_ref(&sort.field))).then(|| OrderSpec {
            field: sort.field.clone(),
            descending: sort.descending,
            denull: reshape.denull,
        })
    }
}

/// The indexed column of a top-level field. `None` if some entities have an array there.
pub(crate) fn order_column(layout: &Layout, field: &str) -> Option<usize> {
    layout.shredded(&[field.to_owned()]).filter(|shredded| !layout.shredded_columns[*shredded].fans_out)
}

/// Bytes of keys after which a batch ends. A sort needs memory for several whole batches, and a sort with a limit keeps
/// every batch of which it has a row. Batches of ordinary keys should not be smaller, because an aggregate that spills
/// is faster with a few large batches.
const MAX_BATCH_BYTES: usize = 2 << 20;

/// The keys of rows of a row group: [`strata_json::write_order`], followed by the position.
pub(crate) struct OrderKeys<'a> {
    spec: &'a OrderSpec,
    first: u64,
    shredded: Option<SortColumn>,
    pub(super) pages: Pages<'a>,
}

impl<'a> OrderKeys<'a> {
    /// For about `wanted` rows.
    pub(crate) async fn open(
        reader: &'a VersionReader,
        row_group: usize,
        wanted: usize,
        spec: &'a OrderSpec,
    ) -> Result<OrderKeys<'a>, StorageError> {
        let group = reader.row_groups()[row_group];
        let shredded = SortColumn::open(reader, row_group, spec).await?;
        Ok(OrderKeys { spec, first: group.first, shredded, pages: Pages::of(reader, row_group, wanted, group.rows) })
    }

    /// The keys of the first of these rows, up to [`MAX_BATCH_BYTES`], at least one. Rows must ascend over all calls.
    pub(crate) async fn keys(&mut self, rows: &[usize]) -> Result<ArrayRef, StorageError> {
        let spec = self.spec;
        let mut keys = BinaryBuilder::with_capacity(rows.len(), rows.len() * 26);
        let mut key = Vec::new();
        for row in rows {
            if keys.values_slice().len() >= MAX_BATCH_BYTES {
                break;
            }
            key.clear();
            let known = self.shredded.as_ref().is_some_and(|shredded| shredded.write(*row, spec, &mut key));
            if !known {
                let document = self.pages.document(*row).await?;
                let value = strata_json::member(document, &spec.field).and_then(strata_json::Scalar::read);
                let empty = matches!(value, Some(strata_json::Scalar::String(text)) if text.raw().is_empty());
                let value = if spec.denull && empty { None } else { value };
                strata_json::write_order(value, spec.descending, &mut key);
            }
            key.extend_from_slice(&(self.first + *row as u64).to_be_bytes());
            keys.append_value(&key);
        }
        let mut keys = keys.finish();
        // Long keys have grown the buffer by doubling.
        if keys.value_data().len() >= MAX_BATCH_BYTES {
            keys.shrink_to_fit();
        }
        Ok(Arc::new(keys))
    }
}

/// The parts of an indexed column that a sort reads in any of these row groups. Columns of numbers need no texts.
pub(super) fn order_parts(
    reader: &VersionReader,
    mut row_groups: std::ops::Range<usize>,
    shredded: usize,
) -> Vec<ShreddedPart> {
    let mut parts = vec![ShreddedPart::Kind, ShreddedPart::Number, ShreddedPart::Remainder];
    let is_numbers = |(min, max): (i32, i32)| min >= ShreddedKind::Number as i32 || max <= ShreddedKind::Nothing as i32;
    if row_groups.any(|row_group| !reader.kind_range(row_group, shredded).is_some_and(is_numbers)) {
        parts.extend([ShreddedPart::Text, ShreddedPart::Exact]);
    }
    parts
}

/// An indexed column in a row group. Without strings and booleans, its texts are not read.
pub struct SortColumn(Scalars);

impl SortColumn {
    /// `None` if the field has no indexed column.
    pub async fn open(
        reader: &VersionReader,
        row_group: usize,
        spec: &OrderSpec,
    ) -> Result<Option<SortColumn>, StorageError> {
        let Some(shredded) = order_column(reader.layout(), &spec.field) else { return Ok(None) };
        let part = async |part| reader.shredded(row_group, shredded, part).await;
        let Some(kinds) = part(ShreddedPart::Kind).await? else { return Ok(None) };
        let mut scalars = Scalars { kinds, texts: None, exacts: None, numbers: None };
        let is_text = |kind: u8| kind == kind::BOOLEAN || kind == kind::STRING;
        // Without early exit, so that the compiler vectorizes it.
        if scalars.kinds().iter().fold(false, |found, kind| found | is_text(*kind)) {
            scalars.texts = part(ShreddedPart::Text).await?;
            scalars.exacts = part(ShreddedPart::Exact).await?;
            if scalars.texts.is_none() {
                return Ok(None);
            }
        }
        scalars.numbers = part(ShreddedPart::Number).await?.zip(part(ShreddedPart::Remainder).await?);
        Ok(Some(SortColumn(scalars)))
    }

    /// Appends the key of a row. Returns false if the document must be read.
    fn write(&self, row: usize, spec: &OrderSpec, key: &mut Vec<u8>) -> bool {
        match self.0.kinds()[row] {
            kind::NULL | kind::NOTHING => strata_json::write_order(None, spec.descending, key),
            kind::NUMBER => {
                let Some((double, remainder)) = self.0.number(row) else { return false };
                strata_json::write_order_double(double, remainder, spec.descending, key);
            }
            kind::BOOLEAN => strata_json::write_order_boolean(self.0.is_true(row), spec.descending, key),
            kind::STRING => match self.0.string(row).unwrap_or_default() {
                b"" if spec.denull => strata_json::write_order(None, spec.descending, key),
                text => strata_json::write_order_string(text, spec.descending, key),
            },
            _ => return false,
        }
        true
    }

    /// The string of a row. `None` for other values.
    pub fn string_at(&self, row: usize) -> Option<&[u8]> {
        (self.0.kinds()[row] == kind::STRING).then(|| self.0.string(row).unwrap_or_default())
    }

    /// The order of two rows with the same rank, by their complete values, then by position.
    pub(crate) fn compare(&self, spec: &OrderSpec, one: usize, other: usize) -> Ordering {
        let values = self.compare_values(one, self, other);
        if spec.descending { values.reverse() } else { values }.then(one.cmp(&other))
    }

    /// The ascending order of two values with the same rank. The other one can be in another row group.
    pub(super) fn compare_values(&self, one: usize, that: &SortColumn, other: usize) -> Ordering {
        match self.0.kinds()[one] {
            kind::NUMBER => {
                let bits = |(double, remainder)| (strata_json::ordered_bits(double), remainder);
                self.0.number(one).map(bits).cmp(&that.0.number(other).map(bits))
            }
            kind::STRING => self.0.string(one).cmp(&that.0.string(other)),
            _ => Ordering::Equal,
        }
    }

    /// A number for every selected row: rows with lower ranks come first, and keys order rows with the same rank.
    /// `u64::MAX` is for rows that come last, or whose document must be read.
    pub(super) fn ranks(&self, spec: &OrderSpec, selected: &RowSelection) -> Ranks {
        let kinds = self.0.kinds();
        let doubles = self.0.numbers.as_ref().map(|(number, _)| number.as_primitive::<Float64Type>().values());
        let mut ranks = vec![u64::MAX; kinds.len()];
        let is_number = |kind: u8| kind == kind::NUMBER || kind <= kind::NOTHING;
        if let Some(doubles) = doubles
            && kinds.iter().fold(true, |all, kind| all & is_number(*kind))
        {
            let rank = |kind: u8, double: f64| {
                if kind <= kind::NOTHING { u64::MAX } else { directed(number_rank(double), spec.descending) }
            };
            match selected {
                RowSelection::Range(range) => {
                    let values = kinds[range.clone()].iter().zip(&doubles[range.clone()]);
                    let ranks = ranks[range.clone()].iter_mut().zip(values);
                    ranks.for_each(|(place, (kind, double))| *place = rank(*kind, *double));
                }
                _ => selected.for_each(|row| ranks[row] = rank(kinds[row], doubles[row])),
            }
            return Ranks { ranks, undecided: false };
        }
        let folded = self.0.texts.as_ref().map(TextRanks::new);
        let exacts = self.0.exacts.as_ref().map(TextRanks::new);
        let mut undecided = false;
        selected.for_each(|row| {
            let rank = match kinds[row] {
                kind::NUMBER => doubles.map_or(0, |doubles| number_rank(doubles[row])),
                kind::STRING => {
                    let exact = exacts.as_ref().and_then(|exacts| exacts.get(row));
                    let text = exact.or_else(|| folded.as_ref().and_then(|folded| folded.get(row))).unwrap_or_default();
                    if spec.denull && text == 0 && self.0.text(row) == Some(b"") {
                        return;
                    }
                    2 << 61 | text >> 3
                }
                kind::BOOLEAN => 3 << 61 | u64::from(self.0.is_true(row)),
                other => {
                    undecided |= other == kind::LONG_INTEGER;
                    return;
                }
            };
            ranks[row] = directed(rank, spec.descending);
        });
        Ranks { ranks, undecided }
    }
}

/// The minimum rank of a row group. `has_text` is whether the column contains strings or booleans anywhere.
pub(super) fn min_rank(reader: &VersionReader, row_group: usize, spec: &OrderSpec, has_text: bool) -> u64 {
    const NOTHING: i32 = ShreddedKind::Nothing as i32;
    let Some(shredded) = order_column(reader.layout(), &spec.field) else { return 0 };
    let Some((min, max)) = reader.kind_range(row_group, shredded) else { return 0 };
    let numbers = reader.number_range(row_group, shredded);
    match (max, numbers) {
        (..=NOTHING, _) => u64::MAX,
        (..=STRING, None) if !spec.descending => 2 << 61,
        // Numbers come first.
        (NUMBER, Some((least, _))) if !spec.descending => number_rank(least),
        (NUMBER, Some((_, greatest))) if min == NUMBER || !has_text => directed(number_rank(greatest), true),
        _ => 0,
    }
}

/// The class in the top three bits, then the first bits of the value.
fn number_rank(double: f64) -> u64 {
    1 << 61 | strata_json::ordered_bits(double) >> 3
}

fn directed(rank: u64, descending: bool) -> u64 {
    if descending { (4 << 61) - 1 - rank } else { rank }
}

/// The first eight bytes of texts as ordered numbers, computed once for each distinct text of a dictionary.
enum TextRanks<'a> {
    Plain(&'a BinaryArray),
    Dictionary { keys: &'a Int32Array, prefixes: Vec<u64> },
}

impl TextRanks<'_> {
    fn new(array: &ArrayRef) -> TextRanks<'_> {
        match array.as_dictionary_opt::<Int32Type>() {
            Some(dictionary) => {
                let values = dictionary.values().as_binary::<i32>();
                let prefixes = (0..values.len()).map(|value| strata_json::prefix(values.value(value))).collect();
                TextRanks::Dictionary { keys: dictionary.keys(), prefixes }
            }
            None => TextRanks::Plain(array.as_binary::<i32>()),
        }
    }

    fn get(&self, row: usize) -> Option<u64> {
        match self {
            TextRanks::Plain(values) => values.is_valid(row).then(|| strata_json::prefix(values.value(row))),
            TextRanks::Dictionary { keys, prefixes } => {
                keys.is_valid(row).then(|| prefixes.get(keys.value(row) as usize).copied())?
            }
        }
    }
}

pub(super) struct Ranks {
    /// By row. Only the ranks of selected rows are valid.
    pub(super) ranks: Vec<u64>,
    /// Whether the document of a selected row must be read.
    pub(super) undecided: bool,
}
