//! The values of a column in a row group, for equality comparisons of single rows and for building hash indexes.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use strata_format::hash_index::{HashIndexEntry, HashedValue, IndexedValue, SeededValueHasher};
use strata_format::layout::ShreddedPart;
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::coop::YieldBudget;
use crate::scan::arrow_kernels::ColumnElements;
use crate::scan::dedup_key_column::{inconsistent_parts_error, remainder_at};
use crate::scan::predicate::PathComparison;

const ELEMENT_WORK_BYTES: usize = 1 << 10;

/// The type of the value that comparisons look for. A number is compared both as a number and as a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparedForm {
    Text,
    Number,
}

impl ComparedForm {
    pub(super) fn for_comparison(comparison: &PathComparison) -> ComparedForm {
        if comparison.number().is_some() { ComparedForm::Number } else { ComparedForm::Text }
    }
}

pub(super) struct EqualityColumn {
    text: ArrayRef,
    numbers: Option<(ArrayRef, ArrayRef)>,
}

impl EqualityColumn {
    /// Reads the texts of a column, and its numbers for [`ComparedForm::Number`].
    pub(super) async fn open(
        reader: &VersionReader,
        row_group: usize,
        shredded: usize,
        form: ComparedForm,
    ) -> Result<EqualityColumn, StorageError> {
        let part = async |part| reader.read_shredded(row_group, shredded, part).await;
        let text = reader.read_folded_texts(row_group, shredded).await?;
        let numbers = match form {
            ComparedForm::Text => None,
            ComparedForm::Number => part(ShreddedPart::Number).await?.zip(part(ShreddedPart::Remainder).await?),
        };
        let column = EqualityColumn { text, numbers };
        let rows = reader.row_groups()[row_group].rows;
        let fits = |array: &ArrayRef| {
            let texts = ColumnElements::new(&column.text);
            let other = ColumnElements::new(array);
            array.len() == rows && texts.len() == other.len() && texts.offsets() == other.offsets()
        };
        let fit = column.numbers.iter().all(|(one, other)| fits(one) && fits(other));
        if fit && column.text.len() == rows { Ok(column) } else { Err(inconsistent_parts_error(shredded)) }
    }

    pub(super) fn is_cached(reader: &VersionReader, row_group: usize, shredded: usize, form: ComparedForm) -> bool {
        let parts: &[ShreddedPart] = match form {
            ComparedForm::Text => &[],
            ComparedForm::Number => &[ShreddedPart::Number, ShreddedPart::Remainder],
        };
        reader.has_cached_folded_texts(row_group, shredded)
            && reader.has_cached_columns(row_group, &reader.column_indices(shredded, parts))
    }

    /// Returns the first `wanted` rows that have an element equal to the compared value. Equality is the same as in
    /// [`ColumnElements::text_equals`] and [`ColumnElements::number_equals`].
    pub(super) async fn find_equal_rows(
        &self,
        rows: impl Iterator<Item = usize> + Send,
        wanted: usize,
        comparison: &PathComparison,
    ) -> Vec<usize> {
        let texts = ColumnElements::new(&self.text);
        let has_text = text_matcher(&texts, comparison);
        let has_number = self.number_matcher(comparison);
        let is_equal = |element: usize| has_text(element) || has_number(element);
        let mut equal = Vec::new();
        let mut budget = YieldBudget::default();
        for row in rows {
            if equal.len() == wanted {
                break;
            }
            let mut elements = texts.elements_in_row(row);
            budget.yield_after(elements.len().max(1) * ELEMENT_WORK_BYTES).await;
            if elements.any(&is_equal) {
                equal.push(row);
            }
        }
        equal
    }

    pub(super) fn is_row_equal(&self, row: usize, form: ComparedForm, comparison: &PathComparison) -> bool {
        let texts = ColumnElements::new(&self.text);
        let mut elements = texts.elements_in_row(row);
        match form {
            ComparedForm::Text => elements.any(text_matcher(&texts, comparison)),
            ComparedForm::Number => elements.any(self.number_matcher(comparison)),
        }
    }

    fn number_elements(&self) -> Option<[ColumnElements<'_>; 2]> {
        self.numbers.as_ref().map(|(doubles, remainders)| [doubles, remainders].map(ColumnElements::new))
    }

    fn number_matcher(&self, comparison: &PathComparison) -> impl Fn(usize) -> bool {
        let number = comparison.number().and_then(|number| Some((number.nearest_double(), number.double_remainder()?)));
        let numbers = self.number_elements();
        move |element| match (&numbers, number) {
            (Some(numbers), Some(number)) => number_at(numbers, element) == Some(number),
            _ => false,
        }
    }

    /// Appends the values of all rows as hash index entries. `first` is the position of the first row in the version.
    pub(super) fn append_index_entries(&self, hasher: &SeededValueHasher, first: u32, out: &mut Vec<HashIndexEntry>) {
        let texts = ColumnElements::new(&self.text);
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
            for element in texts.elements_in_row(row) {
                let values = [text_hash(element), number_hash(element)].into_iter().flatten();
                out.extend(values.map(|value| HashIndexEntry { value, position }));
            }
        }
    }
}

fn text_matcher<'c>(texts: &'c ColumnElements<'c>, comparison: &'c PathComparison) -> impl Fn(usize) -> bool + use<'c> {
    let folded = &comparison.folded;
    let has_text = !(folded.is_empty() && comparison.denull);
    move |element| has_text && texts.bytes_at(element) == Some(folded)
}

fn number_at([doubles, remainders]: &[ColumnElements<'_>; 2], element: usize) -> Option<(f64, i64)> {
    let doubles = doubles.values.as_primitive_opt::<Float64Type>()?;
    let remainders = remainders.values.as_primitive_opt::<Int64Type>()?;
    doubles.is_valid(element).then(|| (doubles.value(element), remainder_at(remainders, element)))
}
