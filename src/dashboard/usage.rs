//! `…/usage`: the requests for a dataset by day as charts and as a table, and the stored bytes.

use std::collections::HashMap;

use askama::Template;
use axum::http::StatusCode;
use chrono::{NaiveDate, Utc};
use strata_catalog::{DailyUsage, UsageCounts};

use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::{OwnerContext, load_owner_context};
use super::format;
use super::page_request::{PageLayout, PageRequest, PageResult, render};
use super::query_params::QueryParams;

/// The selectable periods. Daily counts are stored for the longest period.
const PERIODS_DAYS: [u64; 4] = [7, 30, 90, 400];

const DEFAULT_PERIOD_DAYS: u64 = 30;
const DAYS_PARAM: &str = "days";
const DAY_WIDTH: u64 = 10;
const CHART_HEIGHT: u64 = 200;

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    layout: PageLayout,
    heading: DatasetHeading,
    days: u64,
    first_day: String,
    last_day: String,
    charts: Vec<UsageChart>,
    rows: Vec<DailyUsage>,
    total: UsageCounts,
    versions: String,
    stored: String,
}

struct UsageChart {
    id: &'static str,
    title: &'static str,
    total_text: String,
    max_text: String,
    width: u64,
    bars: Vec<UsageBar>,
    parts: &'static [(&'static str, &'static str)],
}

struct UsageBar {
    x: u64,
    title: String,
    /// The CSS class, top, and height of each part of the bar, from the bottom up.
    parts: Vec<(&'static str, u64, u64)>,
}

pub(super) async fn show_usage(req: &mut PageRequest) -> PageResult {
    let query = req.parse_query(&[DAYS_PARAM])?;
    let days =
        query.parse_choice(DAYS_PARAM, &PERIODS_DAYS.map(|days| days.to_string()).each_ref().map(String::as_str))?;
    let days = days.and_then(|days| days.parse().ok()).unwrap_or(DEFAULT_PERIOD_DAYS);
    let own = load_owner_context(req).await?;
    let OwnerContext { urls, view } = &own;
    let daily_usage = req.services.usage.daily_usage(&req.require_user()?, urls.id, days).await?;
    let today = DailyUsage::day_number(Utc::now());
    let first = today.saturating_sub(u32::try_from(days - 1).unwrap_or(u32::MAX));
    let mut total = UsageCounts::default();
    daily_usage.iter().for_each(|day| total.add(day.counts));
    let files: HashMap<_, _> = view
        .versions
        .iter()
        .flat_map(|record| std::iter::once(&record.version.file).chain(&record.version.alternate))
        .map(|file| (&file.path, file.size_bytes))
        .collect();
    let page = UsagePage {
        layout: req.layout(format!("Usage, {}", view.dataset.name.as_str())),
        heading: own.heading(req, DatasetTab::Usage),
        days,
        first_day: day_to_date(first).to_string(),
        last_day: day_to_date(today).to_string(),
        charts: build_charts(first, today, &daily_usage, &total),
        rows: daily_usage,
        total,
        versions: format::pluralize(view.versions.len() as u64, "version", "versions"),
        stored: format::byte_size(files.values().sum()),
    };
    render(StatusCode::OK, &page)
}

fn day_to_date(day: u32) -> NaiveDate {
    DailyUsage { day, counts: UsageCounts::default() }.date()
}

fn build_charts(first: u32, last: u32, daily_usage: &[DailyUsage], total: &UsageCounts) -> Vec<UsageChart> {
    let width = (u64::from(last - first) + 1) * DAY_WIDTH;
    let chart =
        |id, title, about, parts, shown: &dyn Fn(u64) -> String, values_of: &dyn Fn(&UsageCounts) -> Vec<u64>| {
            let max = daily_usage.iter().map(|day| values_of(&day.counts).iter().sum()).max().unwrap_or(0);
            let bars = daily_usage.iter().rev().filter(|day| (first..=last).contains(&day.day)).map(|day| {
                let values = values_of(&day.counts);
                let title = format!("{}: {}", day.date(), shown(values.iter().sum()));
                let x = u64::from(day.day - first) * DAY_WIDTH + 1;
                UsageBar { x, title, parts: stack_bar_parts(parts, &values, max) }
            });
            UsageChart { id, title, total_text: about, max_text: shown(max), width, bars: bars.collect(), parts }
        };
    let requests = |counts: &UsageCounts| {
        let served = counts.requests.saturating_sub(counts.not_modified).saturating_sub(counts.rate_limited);
        vec![served, counts.not_modified, counts.rate_limited]
    };
    let count = |number: u64| format::pluralize(number, "request", "requests");
    let sent_bytes = |counts: &UsageCounts| vec![counts.sent_bytes];
    let sent_total = format::byte_size(total.sent_bytes);
    vec![
        chart("requests", "Requests", count(total.requests), REQUEST_SERIES, &count, &requests),
        chart("bytes", "Bytes sent", sent_total, BYTES_SERIES, &format::byte_size, &sent_bytes),
    ]
}

const REQUEST_SERIES: &[(&str, &str)] =
    &[("fill", "served"), ("fill-good", "304, not modified"), ("fill-danger", "429, too many requests")];
const BYTES_SERIES: &[(&str, &str)] = &[("fill", "bytes")];

/// Stacks the parts of a bar. Each nonzero part is at least 3 SVG units high if the bar has space for it.
fn stack_bar_parts(parts: &[(&'static str, &str)], values: &[u64], max: u64) -> Vec<(&'static str, u64, u64)> {
    let mut bottom = CHART_HEIGHT;
    let mut stacked = Vec::new();
    for ((class, _), value) in parts.iter().zip(values).filter(|(_, value)| **value > 0) {
        let share = u128::from(*value) * u128::from(CHART_HEIGHT) / u128::from(max.max(1));
        let height = u64::try_from(share).unwrap_or(CHART_HEIGHT).clamp(3, CHART_HEIGHT).min(bottom);
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
        assert_eq!(stack_bar_parts(REQUEST_SERIES, &[100, 0, 0], 100), [("fill", 0, 200)]);
        assert_eq!(
            stack_bar_parts(REQUEST_SERIES, &[0, 50, 50], 100),
            [("fill-good", 100, 100), ("fill-danger", 0, 100)]
        );
        assert_eq!(
            stack_bar_parts(REQUEST_SERIES, &[1_000_000, 1, 1], 1_000_002)[1..],
            [("fill-good", 0, 1), ("fill-danger", 0, 0)]
        );
        assert_eq!(stack_bar_parts(BYTES_SERIES, &[u64::MAX], u64::MAX), [("fill", 0, 200)]);
        assert_eq!(stack_bar_parts(BYTES_SERIES, &[0], 0), []);
        let day = |day, requests| DailyUsage { day, counts: UsageCounts { requests, ..UsageCounts::default() } };
        let read = [day(9, 4), day(7, 1), day(3, 9)];
        let charts = build_charts(5, 9, &read, &UsageCounts::default());
        let bars: Vec<(u64, &str)> = charts[0].bars.iter().map(|bar| (bar.x, bar.title.as_str())).collect();
        assert_eq!(bars, [(21, "1970-01-08: 1 request"), (41, "1970-01-10: 4 requests")]);
        assert_eq!(charts[0].width, 50);
    }
}
