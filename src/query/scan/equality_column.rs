//! The values of a column in a row group, for equality comparisons of single rows and for hash indexes.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use strata_format::hash_index::{Entry, HashedValue, IndexedValue, ValueHasher};
use strata_format::layout::ShreddedPart;
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::coop::YieldBudget;
use crate::scan::kernels::Elements;
use crate::scan::key_column::{misfit, remainder_at};
use crate::scan::predicate::Compare;

/// The work of comparing a single element, in bytes.
const COMPARISON_BYTES: usize = 1 << 10;

pub(super) struct EqualityColumn {
    text: ArrayRef,
    numbers: Option<(ArrayRef, ArrayRef)>,
}

impl EqualityColumn {
    pub(super) async fn open(
        reader: &VersionReader,
        row_group: usize,
        shredded: usize,
        with_numbers: bool,
    ) -> Result<EqualityColumn, StorageError> {
        let missing = || StorageError::Layout(format!("indexed column {shredded} has no text"));
        let part = async |part| reader.shredded(row_group, shredded, part).await;
        let text = part(ShreddedPart::Text).await?.ok_or_else(missing)?;
        let numbers = match with_numbers {
            false => None,
            true => part(ShreddedPart::Number).await?.zip(part(ShreddedPart::Remainder).await?),
        };
        let column = EqualityColumn { text, numbers };
        let rows = reader.row_groups()[row_group].rows;
        let fits = |array: &ArrayRef| {
            let own = Elements::new(&column.text);
            let other = Elements::new(array);
            array.len() == rows && own.len() == other.len() && own.offsets() == other.offsets()
        };
        let fit = column.numbers.iter().all(|(one, other)| fits(one) && fits(other));
        if fit && column.text.len() == rows { Ok(column) } else { Err(misfit(shredded)) }
    }

    pub(super) fn is_cached(reader: &VersionReader, row_group: usize, shredded: usize, with_numbers: bool) -> bool {
        let parts = [ShreddedPart::Text, ShreddedPart::Number, ShreddedPart::Remainder];
        reader.caches_columns(row_group, &reader.columns_of(shredded, &parts[..if with_numbers { 3 } else { 1 }]))
    }

    /// The first `wanted` of some rows that have an element equal to the value, like [`Elements::text_equals`] and
    /// [`Elements::number_equals`] for all rows.
    pub(super) async fn equal_rows(
        &self,
        rows: impl Iterator<Item = usize> + Send,
        wanted: usize,
        compare: &Compare,
    ) -> Vec<usize> {
        let texts = Elements::new(&self.text);
        let has_text = text_equals(&texts, compare);
        let has_number = self.number_equals(compare);
        let is_equal = |element: usize| has_text(element) || has_number(element);
        let mut equal = Vec::new();
        let mut budget = YieldBudget::default();
        for row in rows {
            if equal.len() == wanted {
                break;
            }
            let mut elements = texts.elements_of(row);
            budget.consume(elements.len().max(1) * COMPARISON_BYTES).await;
            if elements.any(&is_equal) {
                equal.push(row);
            }
        }
        equal
    }

    /// Whether a row has an element that is equal to the value as a string, or as a number.
    pub(super) fn row_equals(&self, row: usize, is_number: bool, compare: &Compare) -> bool {
        let texts = Elements::new(&self.text);
        let mut elements = texts.elements_of(row);
        match is_number {
            true => elements.any(self.number_equals(compare)),
            false => elements.any(text_equals(&texts, compare)),
        }
    }

    fn number_elements(&self) -> Option<[Elements<'_>; 2]> {
        self.numbers.as_ref().map(|(doubles, remainders)| [doubles, remainders].map(Elements::new))
    }

    fn number_equals(&self, compare: &Compare) -> impl Fn(usize) -> bool {
        let number = compare.number().and_then(|number| Some((number.double(), number.remainder()?)));
        let numbers = self.number_elements();
        move |element| match (&numbers, number) {
            (Some(numbers), Some(number)) => number_at(numbers, element) == Some(number),
            _ => false,
        }
    }

    /// Adds the values of all rows to the entries of a hash index. `first` is the position of the first row.
    pub(super) fn entries(&self, hasher: &ValueHasher, first: u32, entries: &mut Vec<Entry>) {
        let texts = Elements::new(&self.text);
        let dictionary = texts.values.as_dictionary_opt::<Int32Type>();
        let hashes: Vec<HashedValue> = dictionary.map_or_else(Vec::new, |dictionary| {
            let values = dictionary.values().as_binary::<i32>();
            (0..values.len()).map(|value| hasher.hash(IndexedValue::Text(values.value(value)))).collect()
        });
        let text_hash = |element: usize| match dictionary {
            Some(dictionary) if dictionary.is_null(element) => None,
            Some(dictionary) => hashes.get(usize::try_from(dictionary.keys().value(element)).ok()?).copied(),
            None => Some(hasher.hash(IndexedValue::Text(texts.bytes_at(element)?))),
        };
        let numbers = self.number_elements();
        let number_hash = |element: usize| {
            let (double, remainder) = number_at(numbers.as_ref()?, element)?;
            Some(hasher.hash(IndexedValue::Number(double, remainder)))
        };
        for (row, position) in (0..self.text.len()).zip(first..) {
            for element in texts.elements_of(row) {
                let values = [text_hash(element), number_hash(element)].into_iter().flatten();
                entries.extend(values.map(|value| Entry { value, position }));
            }
        }
    }
}

fn text_equals<'c>(texts: &'c Elements<'c>, compare: &'c Compare) -> impl Fn(usize) -> bool + use<'c> {
    let folded = &compare.folded;
    let has_text = !(folded.is_empty() && compare.denull);
    move |element| has_text && texts.bytes_at(element) == Some(folded)
}

fn number_at([doubles, remainders]: &[Elements<'_>; 2], element: usize) -> Option<(f64, i64)> {
    let doubles = doubles.values.as_primitive_opt::<Float64Type>()?;
    let remainders = remainders.values.as_primitive_opt::<Int64Type>()?;
    doubles.is_valid(element).then(|| (doubles.value(element), remainder_at(remainders, element)))
}
