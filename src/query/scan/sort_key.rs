//! The key of `sort`: from a shredded column where one holds it, from the documents otherwise.

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
use crate::scan::key_column::Scalars;
use crate::scan::row_selection::RowSelection;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSpec {
    pub field: String,
    pub descending: bool,
    /// Whether an empty string is as good as missing.
    pub denull: bool,
}

impl OrderSpec {
    /// What a request sorts by; `None` where nothing could be sorted, so that all entities come last and keep their
    /// order, and where the order does not matter: for a count, and for a sample of what no dedup has chosen from.
    pub(crate) fn of(request: &ReadRequest, reshape: &Reshape) -> Option<OrderSpec> {
        let sort = request.sort.as_ref()?;
        let shuffled = request.sample.is_some() && !request.dedup;
        (!request.count && !shuffled && reshape.sees(std::slice::from_ref(&sort.field))).then(|| OrderSpec {
            field: sort.field.clone(),
            descending: sort.descending,
            denull: reshape.denull,
        })
    }
}

/// The shredded column that holds what a top-level field is ordered by; `None` when it has none, or when arrays lie on
/// its path: those a shredded column cannot tell from single values.
pub(crate) fn order_column(layout: &Layout, field: &str) -> Option<usize> {
    layout.shredded(&[field.to_owned()]).filter(|shredded| !layout.shredded_columns[*shredded].fans_out)
}

/// Bytes of keys after which a batch of them ends: strings may be long. A sort takes memory for whole batches, several
/// times over, and one for the first few of an order keeps every batch of which it has a row. Fewer bytes would cut
/// batches of ordinary keys, too: where memory is short, an aggregate that spills does better with a few large ones.
const BATCH_BYTES: usize = 2 << 20;

/// The order keys of rows of a row group: see [`document::write_order`], each followed by the position.
pub(crate) struct OrderKeys<'a> {
    spec: &'a OrderSpec,
    first: u64,
    shredded: Option<SortColumn>,
    pub(super) pages: Pages<'a>,
}

impl<'a> OrderKeys<'a> {
    /// Of `wanted` rows, most likely.
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

    /// The keys of the first of these rows, which come after those asked for before: of as many as take
    /// [`BATCH_BYTES`], at least one.
    pub(crate) async fn keys(&mut self, rows: &[usize]) -> Result<ArrayRef, StorageError> {
        let spec = self.spec;
        let mut keys = BinaryBuilder::with_capacity(rows.len(), rows.len() * 26);
        let mut key = Vec::new();
        for row in rows {
            if keys.values_slice().len() >= BATCH_BYTES {
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
        // A batch is accounted with all that it keeps alive, and long keys have grown it by doubling.
        if keys.value_data().len() >= BATCH_BYTES {
            keys.shrink_to_fit();
        }
        Ok(Arc::new(keys))
    }
}

/// The parts of a shredded column that a sort reads in any of these row groups: not the texts of what can only be
/// numbers.
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

/// The texts are not read where no row has a string or a boolean: those of numbers may be most of a column.
pub struct SortColumn(Scalars);

impl SortColumn {
    /// The shredded column of the field in a row group, if there is one ([`order_column`]).
    pub async fn open(
        reader: &VersionReader,
        row_group: usize,
        spec: &OrderSpec,
    ) -> Result<Option<SortColumn>, StorageError> {
        let Some(shredded) = order_column(reader.layout(), &spec.field) else { return Ok(None) };
        let part = async |part| reader.shredded(row_group, shredded, part).await;
        let Some(kinds) = part(ShreddedPart::Kind).await? else { return Ok(None) };
        let mut scalars = Scalars { kinds, texts: None, exacts: None, numbers: None };
        let is_text = |kind: u8| kind == ShreddedKind::Boolean as u8 || kind == ShreddedKind::String as u8;
        // All of them are looked at, many at once.
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

    /// Appends the key of a row; false when the document has to tell.
    fn write(&self, row: usize, spec: &OrderSpec, key: &mut Vec<u8>) -> bool {
        let kind = self.0.kinds()[row];
        if kind == ShreddedKind::Null as u8 || kind == ShreddedKind::Nothing as u8 {
            strata_json::write_order(None, spec.descending, key);
        } else if kind == ShreddedKind::Number as u8 {
            let Some((double, remainder)) = self.0.number(row) else { return false };
            strata_json::write_order_double(double, remainder, spec.descending, key);
        } else if kind == ShreddedKind::Boolean as u8 {
            strata_json::write_order_boolean(self.0.is_true(row), spec.descending, key);
        } else if kind == ShreddedKind::String as u8 {
            let text = self.0.string(row).unwrap_or_default();
            if spec.denull && text.is_empty() {
                strata_json::write_order(None, spec.descending, key);
            } else {
                strata_json::write_order_string(text, spec.descending, key);
            }
        } else {
            return false;
        }
        true
    }

    /// The string of a row; `None` where there is none, and where the document has to tell.
    pub fn string_at(&self, row: usize) -> Option<&[u8]> {
        (self.0.kinds()[row] == ShreddedKind::String as u8).then(|| self.0.string(row).unwrap_or_default())
    }

    /// The order of two rows of one rank, by all of their values; rows of equal values keep theirs.
    pub(crate) fn compare(&self, spec: &OrderSpec, one: usize, other: usize) -> Ordering {
        let values = self.compare_values(one, self, other);
        if spec.descending { values.reverse() } else { values }.then(one.cmp(&other))
    }

    /// The order of two values of one rank, ascending, of which the other may lie in another row group.
    pub(super) fn compare_values(&self, one: usize, that: &SortColumn, other: usize) -> Ordering {
        let kind = self.0.kinds()[one];
        if kind == ShreddedKind::Number as u8 {
            let bits = |(double, remainder)| (strata_json::ordered_bits(double), remainder);
            self.0.number(one).map(bits).cmp(&that.0.number(other).map(bits))
        } else if kind == ShreddedKind::String as u8 {
            self.0.string(one).cmp(&that.0.string(other))
        } else {
            Ordering::Equal
        }
    }

    /// A number for every selected row that orders no worse than its key: rows of a lower rank come first, rows of one
    /// rank are told apart by their keys. `u64::MAX` is for rows that come last or whose document has to tell.
    pub(super) fn ranks(&self, spec: &OrderSpec, selected: &RowSelection) -> Ranks {
        let kinds = self.0.kinds();
        let doubles = self.0.numbers.as_ref().map(|(number, _)| number.as_primitive::<Float64Type>().values());
        let mut ranks = vec![u64::MAX; kinds.len()];
        let is_number = |kind: u8| kind == ShreddedKind::Number as u8 || kind <= ShreddedKind::Nothing as u8;
        if let Some(doubles) = doubles
            && kinds.iter().fold(true, |all, kind| all & is_number(*kind))
        {
            let rank = |kind: u8, double: f64| {
                let is_last = kind <= ShreddedKind::Nothing as u8;
                if is_last { u64::MAX } else { directed(number_rank(double), spec.descending) }
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
        let folded = self.0.texts.as_ref().map(TextRanks::of);
        let exacts = self.0.exacts.as_ref().map(TextRanks::of);
        let mut undecided = false;
        selected.for_each(|row| {
            let kind = kinds[row];
            let rank = if kind == ShreddedKind::Number as u8 {
                doubles.map_or(0, |doubles| number_rank(doubles[row]))
            } else if kind == ShreddedKind::String as u8 {
                let exact = exacts.as_ref().and_then(|exacts| exacts.get(row));
                let text = exact.or_else(|| folded.as_ref().and_then(|folded| folded.get(row))).unwrap_or_default();
                if spec.denull && text == 0 && self.0.text(row) == Some(b"") {
                    return;
                }
                2 << 61 | text >> 3
            } else if kind == ShreddedKind::Boolean as u8 {
                3 << 61 | u64::from(self.0.is_true(row))
            } else {
                undecided |= kind == ShreddedKind::LongInteger as u8;
                return;
            };
            ranks[row] = directed(rank, spec.descending);
        });
        Ranks { ranks, undecided }
    }
}

/// A rank that no row of a row group is below, by the statistics of its column; 0 where they do not tell. `has_text` is
/// whether the column holds strings or booleans anywhere.
pub(super) fn least_rank(reader: &VersionReader, row_group: usize, spec: &OrderSpec, has_text: bool) -> u64 {
    const NOTHING: i32 = ShreddedKind::Nothing as i32;
    let Some(shredded) = order_column(reader.layout(), &spec.field) else { return 0 };
    let Some((min, max)) = reader.kind_range(row_group, shredded) else { return 0 };
    let numbers = reader.number_range(row_group, shredded);
    match (max, numbers) {
        // Nothing to sort by.
        (..=NOTHING, _) => u64::MAX,
        (..=STRING, None) if !spec.descending => 2 << 61,
        // Numbers come first, or there is nothing else.
        (NUMBER, Some((least, _))) if !spec.descending => number_rank(least),
        (NUMBER, Some((_, greatest))) if min == NUMBER || !has_text => directed(number_rank(greatest), true),
        _ => 0,
    }
}

/// The class in the top three bits, then as much of the value as fits.
fn number_rank(double: f64) -> u64 {
    1 << 61 | strata_json::ordered_bits(double) >> 3
}

fn directed(rank: u64, descending: bool) -> u64 {
    if descending { (4 << 61) - 1 - rank } else { rank }
}

/// The first eight bytes of texts as numbers that order as they do: computed once per distinct text of a dictionary.
enum TextRanks<'a> {
    Plain(&'a BinaryArray),
    Dictionary { keys: &'a Int32Array, prefixes: Vec<u64> },
}

impl TextRanks<'_> {
    fn of(array: &ArrayRef) -> TextRanks<'_> {
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
    /// By row; those of rows that are not selected tell nothing.
    pub(super) ranks: Vec<u64>,
    /// Whether some selected row's document has to tell.
    pub(super) undecided: bool,
}
