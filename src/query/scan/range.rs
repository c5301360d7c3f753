//! Range filters over the values of a shredded column (docs/reference/filters.md, Range filters).

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;
use strata_format::layout::{ShreddedKind, ShreddedPart};
use strata_format::reader::VersionReader;
use strata_json::{RangeLimit, RangeNeedle};
use strata_store::StorageError;

use crate::pace::Pace;
use crate::scan::kernels::Elements;
use crate::scan::key_column::misfit;
use crate::scan::predicate::Compare;
use crate::scan::range_statistics::{NUMBER, STRING};
use crate::scan::spec::ScanSpec;

/// About the bytes that comparing an integer beyond 64 bits counts as work.
const LONG_INTEGER_BYTES: usize = 512;

/// The parts of a shredded column that a range filter reads in any of these row groups.
pub(super) fn parts(
    reader: &VersionReader,
    mut row_groups: std::ops::Range<usize>,
    shredded: usize,
    range: &RangeNeedle,
) -> Vec<ShreddedPart> {
    match &range.limit {
        RangeLimit::Number(_) => vec![ShreddedPart::Number, ShreddedPart::Remainder],
        RangeLimit::Text(_) => {
            let mut parts = vec![ShreddedPart::Text, ShreddedPart::Exact];
            if row_groups.any(|row_group| reader.kind_range(row_group, shredded) != Some((STRING, STRING))) {
                parts.push(ShreddedPart::Kind);
            }
            parts
        }
    }
}

impl ScanSpec {
    pub(super) async fn by_range(
        &self,
        row_group: usize,
        shredded: usize,
        compare: &Compare,
        range: &RangeNeedle,
    ) -> Result<BooleanBuffer, StorageError> {
        let reader = &self.reader;
        let RangeLimit::Text(limit) = &range.limit else {
            return numbers_within(reader, row_group, shredded, range).await;
        };
        let fits = |text: &[u8]| !(text.is_empty() && compare.denull) && range.bound.admits(text.cmp(limit.as_bytes()));
        let texts = part(reader, row_group, shredded, ShreddedPart::Text).await?;
        let texts = Elements::of(&texts);
        let mut fitting = texts.text_fits(&fits);
        if let Some(exacts) = reader.shredded(row_group, shredded, ShreddedPart::Exact).await? {
            let exacts = Elements::of(&exacts);
            if exacts.len() != fitting.len() {
                return Err(misfit(shredded));
            }
            if let Some(is_folded) = exacts.nulls() {
                // The folded text is the string itself where there is no other one.
                fitting = &(&fitting & &is_folded) | &exacts.text_fits(&fits);
            } else {
                fitting = exacts.text_fits(&fits);
            }
        }
        if reader.kind_range(row_group, shredded) != Some((STRING, STRING)) {
            let kinds = part(reader, row_group, shredded, ShreddedPart::Kind).await?;
            let strings = Elements::of(&kinds).kind_is(ShreddedKind::String);
            if strings.len() != fitting.len() {
                return Err(misfit(shredded));
            }
            fitting = &fitting & &strings;
        }
        Ok(texts.rows(fitting))
    }
}

/// The rows that have a number on the right side of a limit, by a shredded column.
pub(super) async fn numbers_within(
    reader: &VersionReader,
    row_group: usize,
    shredded: usize,
    range: &RangeNeedle,
) -> Result<BooleanBuffer, StorageError> {
    let RangeLimit::Number(limit) = &range.limit else { return Err(misfit(shredded)) };
    let doubles = reader.shredded(row_group, shredded, ShreddedPart::Number).await?;
    let remainders = reader.shredded(row_group, shredded, ShreddedPart::Remainder).await?;
    // A column without these parts holds no number.
    let Some((doubles, remainders)) = doubles.zip(remainders) else {
        return Ok(BooleanBuffer::new_unset(reader.row_groups()[row_group].rows));
    };
    let (doubles, remainders) = (Elements::of(&doubles), Elements::of(&remainders));
    if doubles.len() != remainders.len() {
        return Err(misfit(shredded));
    }
    let mut fitting = doubles.number_within(&remainders, range.bound, limit.double_and_side());
    if reader.kind_range(row_group, shredded).is_none_or(|(_, greatest)| greatest > NUMBER) {
        let kinds = part(reader, row_group, shredded, ShreddedPart::Kind).await?;
        let texts = part(reader, row_group, shredded, ShreddedPart::Text).await?;
        let (kinds, texts) = (Elements::of(&kinds), Elements::of(&texts));
        if kinds.len() != fitting.len() || texts.len() != fitting.len() {
            return Err(misfit(shredded));
        }
        let long: Vec<usize> = kinds.kind_is(ShreddedKind::LongInteger).set_indices().collect();
        let (mut fits, mut pace) = (vec![false; fitting.len()], Pace::default());
        for element in long {
            let text = texts.bytes_at(element).and_then(|text| std::str::from_utf8(text).ok());
            pace.worked(text.map_or(0, str::len) + LONG_INTEGER_BYTES).await;
            fits[element] = text.is_some_and(|text| range.admits_number(text));
        }
        fitting = &fitting | &BooleanBuffer::from(fits);
    }
    Ok(doubles.rows(fitting))
}

async fn part(
    reader: &VersionReader,
    row_group: usize,
    shredded: usize,
    part: ShreddedPart,
) -> Result<ArrayRef, StorageError> {
    reader.shredded(row_group, shredded, part).await?.ok_or_else(|| misfit(shredded))
}
