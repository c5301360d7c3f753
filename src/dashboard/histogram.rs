//! The histogram of the numbers at a path: exact counts of entities in ranges of equal width with round edges. For
//! example, numbers from 1,999 to 2,026 are counted in `1995 to 2000`, `2000 to 2005`, …, `2025 to 2030`.

use strata_format::profile::{ProfilePathRecord, ValueRecord};
use strata_http::error::HttpError;
use strata_service::AuthorizedTarget;
use strata_types::field_path::FieldPath;

use super::format;
use super::page_request::PageRequest;
use super::query_params::QueryParams;
use super::urls::VersionUrls;

const TARGET_BIN_COUNT: f64 = 10.0;
const MAX_PLAIN_DIGITS: i32 = 15;
const MIN_PLAIN_EXPONENT: i32 = -MAX_PLAIN_DIGITS;

pub(super) struct HistogramBin {
    /// The label of the range, for example `0 to 10`, which excludes 10.
    pub(super) text: String,
    pub(super) href: String,
    pub(super) count: u64,
}

/// Returns an error text if a path can have no histogram: it needs an indexed column and at most one number per entity.
pub(super) fn check_histogram_support(record: &ProfilePathRecord) -> Result<(), &'static str> {
    match record {
        _ if record.types.number == 0 => Err("The path has no numbers."),
        _ if bin_edges(record).is_none() => {
            Err("The numbers are all equal, too close together, or too far apart for ranges of equal width.")
        }
        _ if record.fans_out => Err("The path is in an array, so one entity might be in several ranges."),
        _ if !record.shredded => Err("The path has no indexed column."),
        _ => Ok(()),
    }
}

/// Counts the numbers of a path by range in one scan of its indexed column. The scan needs a permit, as reads do.
pub(super) async fn count_bins(
    req: &PageRequest,
    target: &AuthorizedTarget,
    record: &ProfilePathRecord,
    urls: &VersionUrls,
) -> Result<Vec<HistogramBin>, HttpError> {
    let edges = bin_edges(record).unwrap_or_default();
    let Ok(path) = FieldPath::parse(&record.path) else { return Ok(Vec::new()) };
    let counts = req.services.reads.count_numbers_at_least(target, &path, edges.clone()).await?.unwrap_or_default();
    let ranges = edges.windows(2).zip(counts.windows(2)).map(|(ends, counts)| {
        let [from, to] = ends else { return None };
        let [from_on, to_on] = counts else { return None };
        let count = from_on.saturating_sub(*to_on);
        Some(HistogramBin { text: range_label(from, to), href: range_url(&record.path, from, to, urls), count })
    });
    Ok(ranges.flatten().collect())
}

pub(super) fn range_label(from: &str, to: &str) -> String {
    format!("{} to {}", format::group_decimal_thousands(from), format::group_decimal_thousands(to))
}

pub(super) fn range_url(path: &str, from: &str, to: &str, urls: &VersionUrls) -> String {
    let query = QueryParams::default()
        .with_added("filter_gte", format!("{path}:{from}"))
        .with_added("filter_lt", format!("{path}:{to}"));
    query.to_url(&urls.browse_url())
}

/// Returns the edges of the ranges of a histogram, one more than there are ranges.
pub(super) fn bin_edges(record: &ProfilePathRecord) -> Option<Vec<String>> {
    let number = |value: &Option<ValueRecord>| -> Option<f64> {
        let value = value.as_ref().filter(|value| !value.cut)?;
        value.value.to_string().trim_matches('"').parse().ok()
    };
    round_bin_edges(number(&record.number_min)?, number(&record.number_max)?)
}

/// Returns equidistant round numbers as edges of a histogram. The first is at most `min`; the last exceeds `max`.
fn round_bin_edges(min: f64, max: f64) -> Option<Vec<String>> {
    let width = (max - min) / TARGET_BIN_COUNT;
    if !width.is_normal() || width < 0.0 {
        return None;
    }
    let exponent = width.log10().floor();
    // The distance between edges is 1, 2, 5, or 10 times the power of ten below the width.
    let power = 10f64.powf(exponent);
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= width).unwrap_or(10.0);
    let [first, last] = [min, max].map(|end| (end / (factor * power)).floor());
    // Larger multiples of the distance are not exact as doubles, so two adjacent edges could be equal.
    if !(first.abs() < 1e15 && last.abs() < 1e15 && last - first <= TARGET_BIN_COUNT + 1.0) {
        return None;
    }
    let steps = first as i64..=last as i64 + 1;
    Some(steps.map(|step| decimal_text(step * factor as i64, exponent as i32)).collect())
}

fn decimal_text(number: i64, exponent: i32) -> String {
    if number == 0 {
        return "0".to_owned();
    }
    let sign = if number < 0 { "-" } else { "" };
    let digits = number.unsigned_abs().to_string();
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    match exponent {
        0.. if length + exponent <= MAX_PLAIN_DIGITS => {
            format!("{sign}{digits}{}", "0".repeat(exponent.unsigned_abs() as usize))
        }
        MIN_PLAIN_EXPONENT..0 => {
            let decimals = exponent.unsigned_abs() as usize;
            let padded = format!("{digits:0>width$}", width = decimals + 1);
            let (whole, fraction) = padded.split_at(padded.len() - decimals);
            format!("{sign}{whole}.{fraction}").trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{sign}{digits}e{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_have_round_edges_around_all_numbers() {
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
            let edges = round_bin_edges(min, max);
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
