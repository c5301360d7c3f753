//! Conditions on indexed columns: decided by statistics, bloom filters and values (docs/reference/filters.md).
//!
//! The statistics of numbers are the minimum and the maximum of their doubles. A double below 2^53 in magnitude is the
//! number itself. Above, numbers on both sides of a limit may share its double, so that statistics leave them open. The
//! statistics of strings may be truncated and may cover other texts too, so they are bounds only.
//!
//! For example, `filter_gt=age:30` skips a row group with ages from 20 to 30. In one with ages from 31 to 40, all rows
//! match and the column is not read.

use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;
use strata_format::layout::{ShreddedKind, ShreddedPart};
use strata_format::reader::VersionReader;
use strata_json::{RangeLimit, RangeNeedle};
use strata_store::StorageError;
use strata_types::request::RangeBound;

use crate::coop::YieldBudget;
use crate::scan::kernels::Elements;
use crate::scan::key_column::misfit;
use crate::scan::predicate::{Compare, Comparison};
use crate::scan::report::PruneCounter;

/// The smallest double that several numbers may share: 2^53.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// The work of comparing an integer of more than 64 bits, in bytes.
const LONG_INTEGER_BYTES: usize = 512;

pub(super) const STRING: i32 = ShreddedKind::String as i32;
pub(super) const NUMBER: i32 = ShreddedKind::Number as i32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatsPruning {
    NoneMatch,
    AllMatch,
    Unknown,
}

/// A comparison with the values of an indexed column.
#[derive(Clone, Copy)]
pub(crate) struct IndexedColumn<'a> {
    pub(crate) reader: &'a VersionReader,
    pub(crate) column: usize,
    pub(crate) compare: &'a Compare,
}

impl IndexedColumn<'_> {
    pub(super) async fn prune(self, row_group: usize) -> Result<Option<PruneCounter>, StorageError> {
        let IndexedColumn { reader, column, compare } = self;
        match compare.comparison {
            Comparison::Equal => {}
            Comparison::Contains => return Ok(None),
            Comparison::Range(_) => {
                let counter: PruneCounter = match compare.needs_exact_text() {
                    true => |used| &mut used.pruned_by_texts,
                    false => |used| &mut used.pruned_by_numbers,
                };
                return Ok((self.prune_by_statistics(row_group) == StatsPruning::NoneMatch).then_some(counter));
            }
        }
        if compare.matches_null() && reader.holds_null(row_group, column) {
            return Ok(None);
        }
        let mut counter: PruneCounter = |used| &mut used.pruned_by_bloom_filter;
        if let Some(number) = compare.number() {
            let range = reader.number_range(row_group, column);
            if range.is_some_and(|(min, max)| (min..=max).contains(&number.double())) {
                return Ok(None);
            }
            counter = |used| &mut used.pruned_by_numbers;
        }
        Ok((!reader.may_hold_text(row_group, column, &compare.folded).await?).then_some(counter))
    }

    /// Decides a range filter by statistics, which the footer contains.
    pub(super) fn prune_by_statistics(self, row_group: usize) -> StatsPruning {
        let IndexedColumn { reader, column, compare } = self;
        let (Some(range), Some(kinds)) = (compare.range(), reader.kind_range(row_group, column)) else {
            return StatsPruning::Unknown;
        };
        let (min_kind, max_kind) = kinds;
        let has_one_in_each_row = !reader.layout().shredded_columns[column].fans_out;
        let bound = range.bound;
        let all_match = match &range.limit {
            RangeLimit::Number(_) if max_kind < NUMBER => return StatsPruning::NoneMatch,
            RangeLimit::Number(limit) => {
                let Some(numbers) = reader.number_range(row_group, column) else { return StatsPruning::Unknown };
                let (best, worst) = best_and_worst(bound, numbers);
                let limit = limit.double_and_side();
                if max_kind == NUMBER && admits(bound, best, limit) == Some(false) {
                    return StatsPruning::NoneMatch;
                }
                kinds == (NUMBER, NUMBER) && admits(bound, worst, limit) == Some(true)
            }
            RangeLimit::Text(_) if max_kind < STRING || min_kind > STRING => return StatsPruning::NoneMatch,
            RangeLimit::Text(limit) => {
                let Some(bounds) = reader.string_bounds(row_group, column) else { return StatsPruning::Unknown };
                let may_be_removed = compare.denull && bounds.0.is_empty();
                let (best, worst) = best_and_worst(bound, bounds);
                if !bound.admits(best.cmp(limit.as_bytes())) {
                    return StatsPruning::NoneMatch;
                }
                kinds == (STRING, STRING) && !may_be_removed && bound.admits(worst.cmp(limit.as_bytes()))
            }
        };
        if has_one_in_each_row && all_match { StatsPruning::AllMatch } else { StatsPruning::Unknown }
    }

    /// The Parquet columns that the comparison reads in any of these row groups.
    pub(super) fn columns(self, mut row_groups: Range<usize>) -> Vec<usize> {
        use ShreddedPart::{Exact, Kind, Number, Remainder, Text};
        let IndexedColumn { reader, column, compare } = self;
        let has_only_strings = |row_group| reader.kind_range(row_group, column) == Some((STRING, STRING));
        let parts: &[ShreddedPart] = match compare.range().map(|range| &range.limit) {
            Some(RangeLimit::Number(_)) => &[Number, Remainder],
            Some(RangeLimit::Text(_)) if row_groups.all(has_only_strings) => &[Text, Exact],
            Some(RangeLimit::Text(_)) => &[Text, Exact, Kind],
            None if compare.number().is_some() => &[Text, Number, Remainder],
            None => &[Text],
        };
        reader.columns_of(column, parts)
    }

    /// The rows of a row group that match.
    pub(super) async fn rows(self, row_group: usize) -> Result<BooleanBuffer, StorageError> {
        let IndexedColumn { reader, column, compare } = self;
        if let Some(range) = compare.range() {
            return match &range.limit {
                RangeLimit::Number(_) => self.numbers_within(row_group, range).await,
                RangeLimit::Text(limit) => self.texts_within(row_group, range.bound, limit.as_bytes()).await,
            };
        }
        let missing = || StorageError::Layout(format!("indexed column {column} has no text"));
        let text = self.part(row_group, ShreddedPart::Text).await?.ok_or_else(missing)?;
        let text = Elements::new(&text);
        let folded = &compare.folded;
        let without_empty = folded.is_empty() && compare.denull;
        if compare.comparison == Comparison::Contains {
            let mut elements = text.text_contains(folded);
            if without_empty {
                elements = &elements & &!&text.text_equals(b"");
            }
            return Ok(text.rows(elements));
        }
        let mut elements = if without_empty { BooleanBuffer::new_unset(text.len()) } else { text.text_equals(folded) };
        if let Some(number) = compare.number()
            && let Some(doubles) = self.part(row_group, ShreddedPart::Number).await?
            && let Some(remainders) = self.part(row_group, ShreddedPart::Remainder).await?
        {
            let equal = Elements::new(&doubles).number_equals(&Elements::new(&remainders), number);
            elements = &elements | &equal;
        }
        if compare.matches_null()
            && reader.holds_null(row_group, column)
            && let Some(kinds) = self.part(row_group, ShreddedPart::Kind).await?
        {
            elements = &elements | &Elements::new(&kinds).kind_is(ShreddedKind::Null);
        }
        Ok(text.rows(elements))
    }

    async fn texts_within(
        self,
        row_group: usize,
        bound: RangeBound,
        limit: &[u8],
    ) -> Result<BooleanBuffer, StorageError> {
        let IndexedColumn { reader, column, compare } = self;
        let fits = |text: &[u8]| !(text.is_empty() && compare.denull) && bound.admits(text.cmp(limit));
        let texts = self.required_part(row_group, ShreddedPart::Text).await?;
        let texts = Elements::new(&texts);
        let mut fitting = texts.text_fits(&fits);
        if let Some(exacts) = self.part(row_group, ShreddedPart::Exact).await? {
            let exacts = Elements::new(&exacts);
            self.check_lengths(exacts.len(), fitting.len())?;
            fitting = match exacts.nulls() {
                // Without an exact text, the folded text is the string itself.
                Some(is_folded) => &(&fitting & &is_folded) | &exacts.text_fits(&fits),
                None => exacts.text_fits(&fits),
            };
        }
        if reader.kind_range(row_group, column) != Some((STRING, STRING)) {
            let kinds = self.required_part(row_group, ShreddedPart::Kind).await?;
            let strings = Elements::new(&kinds).kind_is(ShreddedKind::String);
            self.check_lengths(strings.len(), fitting.len())?;
            fitting = &fitting & &strings;
        }
        Ok(texts.rows(fitting))
    }

    /// The rows that have a number on the right side of a limit, which is a number.
    pub(super) async fn numbers_within(
        self,
        row_group: usize,
        range: &RangeNeedle,
    ) -> Result<BooleanBuffer, StorageError> {
        let IndexedColumn { reader, column, .. } = self;
        let RangeLimit::Number(limit) = &range.limit else { return Err(misfit(column)) };
        let doubles = self.part(row_group, ShreddedPart::Number).await?;
        let remainders = self.part(row_group, ShreddedPart::Remainder).await?;
        // A column without these parts contains no number.
        let Some((doubles, remainders)) = doubles.zip(remainders) else {
            return Ok(BooleanBuffer::new_unset(reader.row_groups()[row_group].rows));
        };
        let doubles = Elements::new(&doubles);
        let remainders = Elements::new(&remainders);
        self.check_lengths(doubles.len(), remainders.len())?;
        let mut fitting = doubles.number_within(&remainders, range.bound, limit.double_and_side());
        if reader.kind_range(row_group, column).is_none_or(|(_, max_kind)| max_kind > NUMBER) {
            let kinds = self.required_part(row_group, ShreddedPart::Kind).await?;
            let texts = self.required_part(row_group, ShreddedPart::Text).await?;
            let texts = Elements::new(&texts);
            let long = Elements::new(&kinds).kind_is(ShreddedKind::LongInteger);
            self.check_lengths(long.len(), fitting.len())?;
            self.check_lengths(texts.len(), fitting.len())?;
            let long: Vec<usize> = long.set_indices().collect();
            let mut fits = vec![false; fitting.len()];
            let mut budget = YieldBudget::default();
            for element in long {
                let text = texts.bytes_at(element).and_then(|text| std::str::from_utf8(text).ok());
                budget.consume(text.map_or(0, str::len) + LONG_INTEGER_BYTES).await;
                fits[element] = text.is_some_and(|text| range.admits_number(text));
            }
            fitting = &fitting | &BooleanBuffer::from(fits);
        }
        Ok(doubles.rows(fitting))
    }

    fn check_lengths(self, one: usize, other: usize) -> Result<(), StorageError> {
        if one == other { Ok(()) } else { Err(misfit(self.column)) }
    }

    async fn part(self, row_group: usize, part: ShreddedPart) -> Result<Option<ArrayRef>, StorageError> {
        self.reader.shredded(row_group, self.column, part).await
    }

    async fn required_part(self, row_group: usize, part: ShreddedPart) -> Result<ArrayRef, StorageError> {
        self.part(row_group, part).await?.ok_or_else(|| misfit(self.column))
    }
}

/// Of a minimum and a maximum, the value that is most likely to fit, and the one that is least likely to fit.
fn best_and_worst<T>(bound: RangeBound, range: (T, T)) -> (T, T) {
    let (min, max) = range;
    if bound.is_lower() { (max, min) } else { (min, max) }
}

/// Whether a number with this double is on the right side of a limit; `None` if the double does not decide.
fn admits(bound: RangeBound, double: f64, double_and_side: (f64, i128)) -> Option<bool> {
    let (limit, side) = double_and_side;
    let ordering = double.partial_cmp(&limit)?;
    match ordering.is_eq() {
        true if double.abs() < INEXACT => Some(bound.admits(0_i128.cmp(&side))),
        true => None,
        false => Some(bound.admits(ordering)),
    }
}
