//! The histogram of a path's numbers: exact counts of entities in ranges of equal width, each with a link to its
//! entities.

use strata_format::profile::{PathRecord, ValueRecord};
use strata_http::error::HttpError;
use strata_service::Admitted;
use strata_types::path::Path;

use super::format;
use super::query::Query;
use super::urls::Place;
use super::visit::Visit;

/// The approximate number of ranges; at most two more if the ends are not round numbers.
const RANGES: f64 = 10.0;

/// Digits before which a number is written without an exponent.
const PLAIN_DIGITS: i32 = 15;
const MIN_PLAIN_EXPONENT: i32 = -PLAIN_DIGITS;

pub(super) struct Range {
    /// For example, `0 to 10`, without 10.
    pub(super) text: String,
    pub(super) href: String,
    pub(super) count: u64,
}

/// Whether the numbers of a path can be counted by ranges: they have an indexed column, and an entity has at most one.
pub(super) fn can_be_counted(record: &PathRecord) -> Result<(), &'static str> {
    match record {
        _ if record.types.number == 0 => Err("The path has no numbers."),
        _ if edges(record).is_none() => {
            Err("The numbers are all equal, too close together, or too far apart for ranges of equal width.")
        }
        _ if record.fans_out => Err("The path is in an array, so one entity might be in several ranges."),
        _ if !record.shredded => Err("The path has no indexed column."),
        _ => Ok(()),
    }
}

/// Counts the numbers of a path by ranges in one scan of its column, which is admitted as a read.
pub(super) async fn count(
    visit: &Visit,
    admitted: &Admitted,
    record: &PathRecord,
    place: &Place,
) -> Result<Vec<Range>, HttpError> {
    let edges = edges(record).unwrap_or_default();
    let Ok(path) = Path::parse(&record.path) else { return Ok(Vec::new()) };
    let counted = visit.services.reads.numbers_not_below(admitted, &path, edges.clone()).await?;
    let counts = counted.unwrap_or_default();
    let ranges = edges.windows(2).zip(counts.windows(2)).map(|(ends, counts)| {
        let [from, to] = ends else { return None };
        let [from_on, to_on] = counts else { return None };
        let count = from_on.saturating_sub(*to_on);
        Some(Range { text: between(from, to), href: page_of(&record.path, from, to, place), count })
    });
    Ok(ranges.flatten().collect())
}

pub(super) fn between(from: &str, to: &str) -> String {
    format!("{} to {}", format::grouped_decimal(from), format::grouped_decimal(to))
}

pub(super) fn page_of(path: &str, from: &str, to: &str, place: &Place) -> String {
    let query = Query::default().and("filter_gte", format!("{path}:{from}")).and("filter_lt", format!("{path}:{to}"));
    query.at(&place.browse())
}

/// The ends of the ranges of a path.
pub(super) fn edges(record: &PathRecord) -> Option<Vec<String>> {
    let number = |value: &Option<ValueRecord>| -> Option<f64> {
        let value = value.as_ref().filter(|value| !value.cut)?;
        value.value.to_string().trim_matches('"').parse().ok()
    };
    round_edges(number(&record.number_min)?, number(&record.number_max)?)
}

/// Round numbers at equal distances, the first at most `min`, the last greater than `max`.
fn round_edges(min: f64, max: f64) -> Option<Vec<String>> {
    let width = (max - min) / RANGES;
    if !width.is_normal() || width < 0.0 {
        return None;
    }
    let exponent = width.log10().floor();
    // Steps of 1, 2, 5 or 10 of the power of ten below the width.
    let power = 10f64.powf(exponent);
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= width).unwrap_or(10.0);
    let [first, last] = [min, max].map(|end| (end / (times * power)).floor());
    // Larger neighbors would be equal.
    if !(first.abs() < 1e15 && last.abs() < 1e15 && last - first <= RANGES + 1.0) {
        return None;
    }
    let steps = first as i64..=last as i64 + 1;
    Some(steps.map(|step| decimal(step * times as i64, exponent as i32)).collect())
}

fn decimal(number: i64, exponent: i32) -> String {
    if number == 0 {
        return "0".to_owned();
    }
    let sign = if number < 0 { "-" } else { "" };
    let digits = number.unsigned_abs().to_string();
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    match exponent {
        0.. if length + exponent <= PLAIN_DIGITS => {
            format!("{sign}{digits}{}", "0".repeat(exponent.unsigned_abs() as usize))
        }
        MIN_PLAIN_EXPONENT..0 => {
            let decimals = exponent.unsigned_abs() as usize;
            let padded = format!("{digits:0>width$}", width = decimals + 1);
            let (whole, fraction) = padded.split_at(padded.len() - decimals);
            let text = format!("{sign}{whole}.{fraction}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{sign}{digits}e{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_round_ends_around_all_numbers() {
        for (min, max, ends) in [
            (0.0, 99.0, Some(("0", "100", 10))),
            (0.0, 100.0, Some(("0", "110", 11))),
            (-3.0, 4.0, Some(("-3", "5", 8))),
            (-0.07, 0.93, Some(("-0.1", "1", 11))),
            (1_999.0, 2_026.0, Some(("1995", "2030", 7))),
            (0.5, 1_400_000_000.0, Some(("0", "1600000000", 8))),
            (1e-30, 2e-30, Some(("10e-31", "21e-31", 11))),
            (-1e300, 1e300, Some(("-10e299", "12e299", 11))),
            (5.0, 5.0, None),
            (9_007_199_254_740_992.0, 9_007_199_254_740_994.0, None),
            (f64::MIN, f64::MAX, None),
            (0.0, f64::INFINITY, None),
            (5.0, 1.0, None),
        ] {
            let edges = round_edges(min, max);
            match (edges, ends) {
                (None, None) => {}
                (Some(edges), Some((first, last, ranges))) => {
                    let found = (edges[0].as_str(), edges[edges.len() - 1].as_str(), edges.len() - 1);
                    assert_eq!(found, (first, last, ranges), "{min} to {max}: {edges:?}");
                    assert!(edges.len() <= 13, "12 ranges at most: {edges:?}");
                    let numbers: Vec<f64> = edges.iter().map(|edge| edge.parse().expect("a number")).collect();
                    assert!(numbers.is_sorted() && numbers[0] <= min && max < numbers[numbers.len() - 1], "{edges:?}");
                }
                (edges, ends) => panic!("{min} to {max}: {edges:?}, not {ends:?}"),
            }
        }
    }
}
