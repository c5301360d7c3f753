//! `…/usage`: the requests for a dataset by day, as charts and as a table, and its storage.

use std::collections::HashMap;

use askama::Template;
use axum::http::StatusCode;
use chrono::{NaiveDate, Utc};
use strata_catalog::{DayUsage, UsageCounts};

use super::context::{Heading, Tab};
use super::form_handling::{OwnerContext, own};
use super::format;
use super::query::Query;
use super::visit::{PageResult, Shell, Visit, render};

/// The time spans in days. The last is how long the counts are stored.
const SPANS: [u64; 4] = [7, 30, 90, 400];

const DEFAULT_SPAN: u64 = 30;

const DAYS: &str = "days";

/// The width of a day, and the height of a chart, in its units.
const DAY: u64 = 10;
const HEIGHT: u64 = 200;

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    shell: Shell,
    heading: Heading,
    days: u64,
    first: String,
    last: String,
    charts: Vec<Chart>,
    rows: Vec<DayUsage>,
    total: UsageCounts,
    versions: String,
    stored: String,
}

struct Chart {
    id: &'static str,
    title: &'static str,
    about: String,
    most: String,
    width: u64,
    bars: Vec<Bar>,
    /// The classes and names of the parts of a bar.
    parts: &'static [(&'static str, &'static str)],
}

struct Bar {
    x: u64,
    title: String,
    /// From the bottom: a class, the top and the height.
    parts: Vec<(&'static str, u64, u64)>,
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    let query = visit.query(&[DAYS])?;
    let days = query.one_of(DAYS, &SPANS.map(|days| days.to_string()).each_ref().map(String::as_str))?;
    let days = days.and_then(|days| days.parse().ok()).unwrap_or(DEFAULT_SPAN);
    let own = own(visit).await?;
    let OwnerContext { place, view } = &own;
    let read = visit.services.usage.days(&visit.user()?, place.id, days).await?;
    let today = DayUsage::day_of(Utc::now());
    let first = today.saturating_sub(u32::try_from(days - 1).unwrap_or(u32::MAX));
    let mut total = UsageCounts::default();
    read.iter().for_each(|day| total.add(day.counts));
    // Versions may share a file.
    let files: HashMap<_, _> = view
        .versions
        .iter()
        .flat_map(|record| std::iter::once(&record.version.file).chain(&record.version.alt))
        .map(|file| (&file.path, file.size_bytes))
        .collect();
    let page = UsagePage {
        shell: visit.shell(format!("Usage, {}", view.dataset.name.as_str())),
        heading: own.heading(visit, Tab::Usage),
        days,
        first: date(first).to_string(),
        last: date(today).to_string(),
        charts: charts(first, today, &read, &total),
        rows: read,
        total,
        versions: format::counted(view.versions.len() as u64, "version", "versions"),
        stored: format::size(files.values().sum()),
    };
    render(StatusCode::OK, &page)
}

fn date(day: u32) -> NaiveDate {
    DayUsage { day, counts: UsageCounts::default() }.date()
}

fn charts(first: u32, last: u32, read: &[DayUsage], total: &UsageCounts) -> Vec<Chart> {
    let width = (u64::from(last - first) + 1) * DAY;
    let chart = |id, title, about, parts, shown: &dyn Fn(u64) -> String, of: &dyn Fn(&UsageCounts) -> Vec<u64>| {
        let most = read.iter().map(|day| of(&day.counts).iter().sum()).max().unwrap_or(0);
        let shown_days = read.iter().rev().filter(|day| (first..=last).contains(&day.day));
        let bars = shown_days.map(|day| {
            let values = of(&day.counts);
            let title = format!("{}: {}", day.date(), shown(values.iter().sum()));
            Bar { x: u64::from(day.day - first) * DAY + 1, title, parts: stacked(parts, &values, most) }
        });
        Chart { id, title, about, most: shown(most), width, bars: bars.collect(), parts }
    };
    let requests = |counts: &UsageCounts| {
        let others = counts.requests.saturating_sub(counts.not_modified).saturating_sub(counts.rate_limited);
        vec![others, counts.not_modified, counts.rate_limited]
    };
    let count = |number: u64| format::counted(number, "request", "requests");
    vec![
        chart("requests", "Requests", count(total.requests), PARTS, &count, &requests),
        chart("bytes", "Bytes sent", format::size(total.bytes), BYTES, &format::size, &|counts| vec![counts.bytes]),
    ]
}

const PARTS: &[(&str, &str)] =
    &[("fill", "served"), ("fill-good", "304, not modified"), ("fill-danger", "429, too many requests")];
const BYTES: &[(&str, &str)] = &[("fill", "bytes")];

/// The parts of a bar, from the bottom. Each part is visible.
fn stacked(parts: &[(&'static str, &str)], values: &[u64], most: u64) -> Vec<(&'static str, u64, u64)> {
    let mut bottom = HEIGHT;
    let mut stacked = Vec::new();
    for ((class, _), value) in parts.iter().zip(values).filter(|(_, value)| **value > 0) {
        let share = u128::from(*value) * u128::from(HEIGHT) / u128::from(most.max(1));
        let height = u64::try_from(share).unwrap_or(HEIGHT).clamp(3, HEIGHT).min(bottom);
        bottom -= height;
        stacked.push((*class, bottom, height));
    }
    stacked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fit_into_their_chart_and_are_visible() {
        assert_eq!(stacked(PARTS, &[100, 0, 0], 100), [("fill", 0, 200)]);
        assert_eq!(stacked(PARTS, &[0, 50, 50], 100), [("fill-good", 100, 100), ("fill-danger", 0, 100)]);
        assert_eq!(stacked(PARTS, &[1_000_000, 1, 1], 1_000_002)[1..], [("fill-good", 0, 1), ("fill-danger", 0, 0)]);
        assert_eq!(stacked(BYTES, &[u64::MAX], u64::MAX), [("fill", 0, 200)]);
        assert_eq!(stacked(BYTES, &[0], 0), []);
        let day = |day, requests| DayUsage { day, counts: UsageCounts { requests, ..UsageCounts::default() } };
        let read = [day(9, 4), day(7, 1), day(3, 9)];
        let charts = charts(5, 9, &read, &UsageCounts::default());
        let bars: Vec<(u64, &str)> = charts[0].bars.iter().map(|bar| (bar.x, bar.title.as_str())).collect();
        assert_eq!(bars, [(21, "1970-01-08: 1 request"), (41, "1970-01-10: 4 requests")]);
        assert_eq!(charts[0].width, 50);
    }
}
