//! Evaluates comparisons on indexed columns by statistics and values (docs/reference/filters.md).
//!
//! The statistics of numbers are the minimum and the maximum of their doubles. A double below 2^53 in magnitude is the
//! number itself. Beyond, numbers on both sides of a limit may share the double of the limit, so that statistics cannot
//! decide. The statistics of strings may be truncated and may cover other texts too, so they are bounds only.
//!
//! For example, `filter_gt=age:30` skips a row group with ages from 20 to 30. In a row group with ages from 31 to 40,
//! all rows match and the column is not read.

use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;
use strata_format::layout::{ShreddedKind, ShreddedPart};
use strata_format::reader::VersionReader;
use strata_format::writer::DOCUMENT_PAGE_TARGET_BYTES;
use strata_json::{RangeOperand, RangePredicate};
use strata_store::StorageError;
use strata_types::read_request::RangeBound;

use crate::coop::YieldBudget;
use crate::scan::arrow_kernels::ColumnElements;
use crate::scan::dedup_key_column::inconsistent_parts_error;
use crate::scan::predicate::{ComparisonOperator, PathComparison};
use crate::scan::scan_report::PruneCounter;

/// The smallest double that several integers may share: 2^53.
const MIN_INEXACT_DOUBLE: f64 = 9_007_199_254_740_992.0;
const LONG_INTEGER_WORK_BYTES: usize = 512;
pub(super) const STRING_KIND: i32 = ShreddedKind::String as i32;
pub(super) const NUMBER_KIND: i32 = ShreddedKind::Number as i32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatsPruning {
    NoneMatch,
    AllMatch,
    Unknown,
}

#[derive(Clone, Copy)]
pub(crate) struct IndexedComparison<'a> {
    pub(crate) reader: &'a VersionReader,
    pub(crate) column: usize,
    pub(crate) compare: &'a PathComparison,
}

impl IndexedComparison<'_> {
    pub(super) fn prune(self, row_group: usize) -> Option<PruneCounter> {
        let IndexedComparison { reader, column, compare } = self;
        match compare.operator {
            ComparisonOperator::Equal => {}
            ComparisonOperator::Contains => return None,
            ComparisonOperator::Range(_) => {
                let counter: PruneCounter = match compare.needs_exact_text() {
                    true => |used| &mut used.pruned_by_texts,
                    false => |used| &mut used.pruned_by_numbers,
                };
                return (self.prune_by_statistics(row_group) == StatsPruning::NoneMatch).then_some(counter);
            }
        }
        if compare.can_match_null() && reader.may_have_null(row_group, column) {
            return None;
        }
        let mut counter: PruneCounter = |used| &mut used.pruned_by_texts;
        if let Some(number) = compare.number() {
            let range = reader.number_range(row_group, column);
            if range.is_some_and(|(min, max)| (min..=max).contains(&number.nearest_double())) {
                return None;
            }
            counter = |used| &mut used.pruned_by_numbers;
        }
        let shredded = &reader.layout().shredded_columns[column];
        let is_outside = match reader.text_bounds(row_group, column) {
            Some((min, max)) if shredded.needs_folding => is_outside_in_any_case(&compare.folded, min, max),
            Some((min, max)) => !(min..=max).contains(&compare.folded.as_slice()),
            // Without bounds, the row group has no texts in such a column.
            None => shredded.omits_integer_texts(),
        };
        is_outside.then_some(counter)
    }

    /// Whether the keyword index finds the few rows with the value in less time than the column.
    pub(super) fn is_sought_in_keyword_index(self) -> bool {
        /// In fewer row groups, a column is read as fast.
        const MIN_ROW_GROUPS: usize = 4;
        let IndexedComparison { reader, column, compare } = self;
        let shredded = &reader.layout().shredded_columns[column];
        let is_text = compare.number().is_none() || !shredded.has_numbers;
        compare.operator == ComparisonOperator::Equal
            && is_text
            && !compare.can_match_null()
            && !shredded.dictionary
            && reader.row_groups().len() >= MIN_ROW_GROUPS
    }

    /// Whether reading the documents of `count` rows takes less than reading the column, which is not cached.
    pub(super) fn costs_more_than_documents(self, row_group: usize, count: usize) -> bool {
        let IndexedComparison { reader, compare, .. } = self;
        let columns = self.parquet_columns_to_read(row_group..row_group + 1);
        let column_bytes = reader.total_column_sizes(row_group, &columns).decompressed_bytes;
        compare.operator == ComparisonOperator::Equal
            && (count * DOCUMENT_PAGE_TARGET_BYTES) as u64 <= column_bytes
            && !reader.has_cached_columns(row_group, &columns)
    }

    pub(super) fn prune_by_statistics(self, row_group: usize) -> StatsPruning {
        let IndexedComparison { reader, column, compare } = self;
        let (Some(range), Some(kinds)) = (compare.range_needle(), reader.kind_range(row_group, column)) else {
            return StatsPruning::Unknown;
        };
        let (min_kind, max_kind) = kinds;
        let has_one_in_each_row = !reader.layout().shredded_columns[column].fans_out;
        let bound = range.bound;
        let all_match = match &range.operand {
            RangeOperand::Number(_) if max_kind < NUMBER_KIND => return StatsPruning::NoneMatch,
            RangeOperand::Number(limit) => {
                let Some(numbers) = reader.number_range(row_group, column) else { return StatsPruning::Unknown };
                let (best, worst) = most_and_least_likely_match(bound, numbers);
                let limit = limit.double_and_tie_breaker();
                if max_kind == NUMBER_KIND && double_in_range(bound, best, limit) == Some(false) {
                    return StatsPruning::NoneMatch;
                }
                kinds == (NUMBER_KIND, NUMBER_KIND) && double_in_range(bound, worst, limit) == Some(true)
            }
            RangeOperand::String(_) if max_kind < STRING_KIND || min_kind > STRING_KIND => {
                return StatsPruning::NoneMatch;
            }
            RangeOperand::String(limit) => {
                let Some(bounds) = reader.text_bounds(row_group, column) else { return StatsPruning::Unknown };
                let may_be_removed = compare.denull && bounds.0.is_empty();
                let (best, worst) = most_and_least_likely_match(bound, bounds);
                if !bound.accepts(best.cmp(limit.as_bytes())) {
                    return StatsPruning::NoneMatch;
                }
                kinds == (STRING_KIND, STRING_KIND) && !may_be_removed && bound.accepts(worst.cmp(limit.as_bytes()))
            }
        };
        if has_one_in_each_row && all_match { StatsPruning::AllMatch } else { StatsPruning::Unknown }
    }

    pub(super) fn parquet_columns_to_read(self, mut row_groups: Range<usize>) -> Vec<usize> {
        use ShreddedPart::{Kind, Number, Remainder, Text};
        let IndexedComparison { reader, column, compare } = self;
        let has_only_strings = |row_group| reader.kind_range(row_group, column) == Some((STRING_KIND, STRING_KIND));
        let parts: &[ShreddedPart] = match compare.range_needle().map(|range| &range.operand) {
            Some(RangeOperand::Number(_)) => &[Number, Remainder],
            Some(RangeOperand::String(_)) if row_groups.all(has_only_strings) => &[Text],
            Some(RangeOperand::String(_)) => &[Text, Kind],
            None if compare.number().is_some() || self.can_match_omitted_integers() => &[Text, Number, Remainder],
            None => &[Text],
        };
        reader.column_indices(column, parts)
    }

    pub(super) async fn matching_rows(self, row_group: usize) -> Result<BooleanBuffer, StorageError> {
        let IndexedComparison { reader, column, compare } = self;
        if let Some(range) = compare.range_needle() {
            return match &range.operand {
                RangeOperand::Number(_) => self.rows_with_number_in_range(row_group, range).await,
                RangeOperand::String(limit) => {
                    self.rows_with_text_in_range(row_group, range.bound, limit.as_bytes()).await
                }
            };
        }
        let text = reader.read_folded_texts(row_group, column).await?;
        let text = ColumnElements::new(&text);
        let folded = &compare.folded;
        let without_empty = folded.is_empty() && compare.denull;
        if compare.operator == ComparisonOperator::Contains {
            let mut elements = text.text_contains(folded);
            if without_empty {
                elements = &elements & &!&text.text_equals(b"");
            }
            if self.can_match_omitted_integers() {
                elements = &elements | &self.omitted_integers_containing(row_group, &text, folded).await?;
            }
            return Ok(text.to_row_bits(elements));
        }
        let mut elements = if without_empty { BooleanBuffer::new_unset(text.len()) } else { text.text_equals(folded) };
        if let Some(number) = compare.number()
            && let Some(doubles) = self.read_part(row_group, ShreddedPart::Number).await?
            && let Some(remainders) = self.read_part(row_group, ShreddedPart::Remainder).await?
        {
            let equal = ColumnElements::new(&doubles).number_equals(&ColumnElements::new(&remainders), number);
            elements = &elements | &equal;
        }
        if compare.can_match_null()
            && reader.may_have_null(row_group, column)
            && let Some(kinds) = self.read_part(row_group, ShreddedPart::Kind).await?
        {
            elements = &elements | &ColumnElements::new(&kinds).kind_equals(ShreddedKind::Null);
        }
        Ok(text.to_row_bits(elements))
    }

    /// Whether the needle of a substring filter can occur in an integer whose text is omitted.
    fn can_match_omitted_integers(self) -> bool {
        let IndexedComparison { reader, column, compare } = self;
        compare.operator == ComparisonOperator::Contains
            && reader.layout().shredded_columns[column].omits_integer_texts()
            && compare.folded.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
    }

    /// Selects the elements whose text is omitted and contains the needle.
    async fn omitted_integers_containing(
        self,
        row_group: usize,
        texts: &ColumnElements<'_>,
        needle: &[u8],
    ) -> Result<BooleanBuffer, StorageError> {
        let doubles = self.read_required_part(row_group, ShreddedPart::Number).await?;
        let remainders = self.read_required_part(row_group, ShreddedPart::Remainder).await?;
        let doubles = ColumnElements::new(&doubles);
        let remainders = ColumnElements::new(&remainders);
        self.check_equal_lengths(doubles.len(), texts.len())?;
        self.check_equal_lengths(remainders.len(), texts.len())?;
        Ok(doubles.omitted_integer_contains(&remainders, texts, needle))
    }

    async fn rows_with_text_in_range(
        self,
        row_group: usize,
        bound: RangeBound,
        limit: &[u8],
    ) -> Result<BooleanBuffer, StorageError> {
        let IndexedComparison { reader, column, compare } = self;
        let in_range = |text: &[u8]| !(text.is_empty() && compare.denull) && bound.accepts(text.cmp(limit));
        let texts = self.read_required_part(row_group, ShreddedPart::Text).await?;
        let texts = ColumnElements::new(&texts);
        let mut matching = texts.text_satisfies(&in_range);
        if reader.kind_range(row_group, column) != Some((STRING_KIND, STRING_KIND)) {
            let kinds = self.read_required_part(row_group, ShreddedPart::Kind).await?;
            let strings = ColumnElements::new(&kinds).kind_equals(ShreddedKind::String);
            self.check_equal_lengths(strings.len(), matching.len())?;
            matching = &matching & &strings;
        }
        Ok(texts.to_row_bits(matching))
    }

    /// Selects the rows that have a number in a range. The limit of the range must be a number.
    pub(super) async fn rows_with_number_in_range(
        self,
        row_group: usize,
        range: &RangePredicate,
    ) -> Result<BooleanBuffer, StorageError> {
        let IndexedComparison { reader, column, .. } = self;
        let RangeOperand::Number(limit) = &range.operand else { return Err(inconsistent_parts_error(column)) };
        let doubles = self.read_part(row_group, ShreddedPart::Number).await?;
        let remainders = self.read_part(row_group, ShreddedPart::Remainder).await?;
        let Some((doubles, remainders)) = doubles.zip(remainders) else {
            return Ok(BooleanBuffer::new_unset(reader.row_groups()[row_group].rows));
        };
        let doubles = ColumnElements::new(&doubles);
        let remainders = ColumnElements::new(&remainders);
        self.check_equal_lengths(doubles.len(), remainders.len())?;
        let mut matching = doubles.number_in_range(&remainders, range.bound, limit.double_and_tie_breaker());
        if reader.kind_range(row_group, column).is_none_or(|(_, max_kind)| max_kind > NUMBER_KIND) {
            let kinds = self.read_required_part(row_group, ShreddedPart::Kind).await?;
            let texts = self.read_required_part(row_group, ShreddedPart::Text).await?;
            let texts = ColumnElements::new(&texts);
            let long = ColumnElements::new(&kinds).kind_equals(ShreddedKind::LongInteger);
            self.check_equal_lengths(long.len(), matching.len())?;
            self.check_equal_lengths(texts.len(), matching.len())?;
            let long: Vec<usize> = long.set_indices().collect();
            let mut in_range = vec![false; matching.len()];
            let mut budget = YieldBudget::default();
            for element in long {
                let text = texts.bytes_at(element).and_then(|text| std::str::from_utf8(text).ok());
                budget.yield_after(text.map_or(0, str::len) + LONG_INTEGER_WORK_BYTES).await;
                in_range[element] = text.is_some_and(|text| range.matches_number(text));
            }
            matching = &matching | &BooleanBuffer::from(in_range);
        }
        Ok(doubles.to_row_bits(matching))
    }

    fn check_equal_lengths(self, one: usize, other: usize) -> Result<(), StorageError> {
        if one == other { Ok(()) } else { Err(inconsistent_parts_error(self.column)) }
    }

    async fn read_part(self, row_group: usize, part: ShreddedPart) -> Result<Option<ArrayRef>, StorageError> {
        self.reader.read_shredded(row_group, self.column, part).await
    }

    async fn read_required_part(self, row_group: usize, part: ShreddedPart) -> Result<ArrayRef, StorageError> {
        self.read_part(row_group, part).await?.ok_or_else(|| inconsistent_parts_error(self.column))
    }
}

/// Whether no text between two bounds has this case-folded form.
fn is_outside_in_any_case(folded: &[u8], min: &[u8], max: &[u8]) -> bool {
    // Of the texts with a folded form in ASCII, the one in uppercase is the first, and the folded form is the last.
    // Only the Kelvin sign, which is folded to `k`, comes after all ASCII characters.
    folded.is_ascii() && (max < folded.to_ascii_uppercase().as_slice() || (min > folded && !folded.contains(&b'k')))
}

/// Returns the end of `range` that is most likely to match a range filter, and the end that is least likely.
fn most_and_least_likely_match<T>(bound: RangeBound, range: (T, T)) -> (T, T) {
    let (min, max) = range;
    if bound.is_lower_bound() { (max, min) } else { (min, max) }
}

/// Whether a number with this nearest double is in the range. `None` if the double is not sufficient to decide.
fn double_in_range(bound: RangeBound, double: f64, limit_and_tie_breaker: (f64, i128)) -> Option<bool> {
    let (limit, side) = limit_and_tie_breaker;
    let ordering = double.partial_cmp(&limit)?;
    match ordering.is_eq() {
        true if double.abs() < MIN_INEXACT_DOUBLE => Some(bound.accepts(0_i128.cmp(&side))),
        true => None,
        false => Some(bound.accepts(ordering)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_never_exclude_another_case() {
        for character in '\0'..=char::MAX {
            let folded = strata_json::fold_case(&character.to_string()).into_bytes();
            let mut bytes = [0; 4];
            let text = character.encode_utf8(&mut bytes).as_bytes();
            assert!(!is_outside_in_any_case(&folded, text, text), "{character:?}");
        }
        assert!(is_outside_in_any_case(b"a5", b"b", b"z"));
        assert!(is_outside_in_any_case(b"x5", b"A", b"Wz"));
        assert!(!is_outside_in_any_case(b"x5", b"A", b"XZ"));
        assert!(!is_outside_in_any_case("\u{e4}".as_bytes(), b"a", b"b"));
    }
}
