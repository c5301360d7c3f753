//! `…/profile`: the paths of a version with charts of their values.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use strata_format::profile::{NumberRange, ProfilePathRecord, ValueRecord, length_range};
use strata_http::error::HttpError;
use strata_service::{AuthorizedTarget, ReadError};
use strata_types::version::{VersionSelector, VersionVariant};

use super::browse::value_text;
use super::context::{DatasetHeading, DatasetTab, load_version_context};
use super::form_handling::load_owner_context;
use super::histogram::{self, HistogramBin};
use super::page_request::{PageLayout, PageRequest, PageResult, render};
use super::query_params::{QueryParams, invalid_parameter_text};
use super::safe_text::{InlineCodeText, SafeText};
use super::urls::VersionUrls;
use super::{format, unavailable};

const PATHS_PER_PAGE: usize = 60;
const MAX_VALUE_CHARACTERS: usize = 100;
const MAX_SEARCH_CHARACTERS: usize = 200;
const MAX_NUMBER_RANGES: usize = 16;
const HISTOGRAM_PARAM: &str = "histogram";
const HISTOGRAM_ANCHOR: &str = "#histogram";
const MAX_BAR_WIDTH: u64 = 1_000;

#[derive(Template)]
#[template(path = "profile.html")]
struct VersionProfilePage<'a> {
    layout: PageLayout,
    heading: DatasetHeading,
    entities: u64,
    document_bytes: String,
    file_bytes: String,
    q: String,
    problem: Option<String>,
    missing_path_problem: Option<InlineCodeText>,
    /// Whether the page shows only the path of [`HISTOGRAM_PARAM`].
    is_histogram_page: bool,
    summary: String,
    has_omitted_paths: bool,
    paths: Vec<PathCard<'a>>,
    has_single_match: bool,
    first: Option<String>,
    previous: Option<String>,
    next: Option<String>,
}

struct PathCard<'a> {
    id: usize,
    record: &'a ProfilePathRecord,
    path: SafeText,
    nulls_url: Option<String>,
    ranges: Vec<ValueRange>,
    frequent_values: Vec<ProfileBar>,
    lengths: Vec<ProfileBar>,
    numbers: Vec<ProfileBar>,
    histogram: PathHistogram,
}

struct ValueRange {
    name: &'static str,
    min: SafeText,
    max: SafeText,
    estimated: bool,
}

#[derive(Default)]
struct PathHistogram {
    href: Option<String>,
    unavailable_reason: Option<&'static str>,
    bins: Vec<HistogramBin>,
    max_count: u64,
    outside_text: Option<String>,
}

impl PathHistogram {
    /// Links to a path's histogram. If there can be none and the page has no other chart of the numbers, explains why.
    fn histogram_link_or_reason(record: &ProfilePathRecord, urls: &VersionUrls) -> PathHistogram {
        match histogram::check_histogram_support(record) {
            Ok(()) => {
                let query = QueryParams::default().with_added(HISTOGRAM_PARAM, &record.path);
                let href = Some(query.to_url(&urls.page_url("profile")) + HISTOGRAM_ANCHOR);
                PathHistogram { href, ..PathHistogram::default() }
            }
            Err(why) => {
                let needs_reason =
                    record.types.number > 0 && record.number_bins.is_none() && histogram::bin_edges(record).is_some();
                PathHistogram { unavailable_reason: needs_reason.then_some(why), ..PathHistogram::default() }
            }
        }
    }

    fn from_bins(bins: Vec<HistogramBin>, numbers: u64) -> PathHistogram {
        let counted: u64 = bins.iter().map(|range| range.count).sum();
        let outside = numbers.saturating_sub(counted);
        let outside_text =
            || format!("{} outside these ranges.", format::pluralize(outside, "number is", "numbers are"));
        PathHistogram {
            max_count: bins.iter().map(|range| range.count).max().unwrap_or(0),
            outside_text: (outside > 0).then(outside_text),
            bins,
            ..PathHistogram::default()
        }
    }
}

struct ProfileBar {
    value: SafeText,
    href: Option<String>,
    count: u64,
    total: u64,
    max_count: u64,
}

pub(super) async fn show_profile(req: PageRequest) -> Response {
    req.respond_on_worker(|req| {
        Box::pin(unavailable::run_or_show_unavailable(req, DatasetTab::Profile, render_profile))
    })
    .await
}

struct ProfileContext {
    name: String,
    selector: VersionSelector,
    /// The version that the page can query; `None` if the dataset is frozen: its owner can see only the profile.
    authorized_target: Option<AuthorizedTarget>,
    heading: DatasetHeading,
}

async fn load_profile_context(req: &mut PageRequest, urls: &VersionUrls) -> Result<ProfileContext, HttpError> {
    match load_version_context(req, urls, urls.alt).await {
        Ok(context) => Ok(ProfileContext {
            name: context.title(),
            selector: VersionSelector::Number(context.version.number),
            heading: DatasetHeading::new(req, &context, urls, DatasetTab::Profile),
            authorized_target: Some(context.authorized_target),
        }),
        Err(error @ HttpError::Read(ReadError::Frozen)) => {
            let Ok(own) = load_owner_context(req).await else { return Err(error) };
            let dataset = &own.view.dataset;
            Ok(ProfileContext {
                name: dataset.name.as_str().to_owned(),
                selector: urls.selector,
                authorized_target: None,
                heading: DatasetHeading::for_dataset(req, dataset, urls, DatasetTab::Profile),
            })
        }
        Err(error) => Err(error),
    }
}

async fn render_profile(req: &mut PageRequest) -> PageResult {
    let (urls, _) = VersionUrls::parse(req.head.uri.path())?;
    let query = req.parse_query(&["q", "from", HISTOGRAM_PARAM])?;
    let search = query.first("q").unwrap_or_default().trim();
    let q: String = search.chars().take(MAX_SEARCH_CHARACTERS).collect();
    let is_too_long = q.len() < search.len();
    let requested_from = query.parse_number("from")?.map_or(0, |from| usize::try_from(from).unwrap_or(usize::MAX));
    let context = load_profile_context(req, &urls).await?;
    let authorized = context.authorized_target.as_ref();
    let variant = authorized.map_or(VersionVariant::from_alt(urls.alt), |target| target.variant);
    let found = req.services.reads.profile(req.profile_request(urls.dataset.id, context.selector, variant)).await?;
    let contents = &found.contents;

    let folded_q = q.to_lowercase();
    let selected = query.first(HISTOGRAM_PARAM);
    let is_match = |path: &&ProfilePathRecord| match selected {
        Some(selected) => path.path == selected,
        None => !is_too_long && (folded_q.is_empty() || path.path.to_lowercase().contains(&folded_q)),
    };
    let matching: Vec<&ProfilePathRecord> = contents.paths.iter().filter(is_match).collect();
    let from = requested_from.min(matching.len());
    let to = matching.len().min(from + PATHS_PER_PAGE);
    let base = if q.is_empty() { QueryParams::default() } else { QueryParams::default().with_added("q", &q) };
    let page_url = |from: usize| match from {
        0 => base.to_url(&urls.page_url("profile")),
        from => base.with_replaced("from", from).to_url(&urls.page_url("profile")),
    };
    let total = format::pluralize(matching.len() as u64, "path", "paths");
    let summary = match (matching.len(), to - from) {
        (0, _) if selected.is_some() => "Path not found.".to_owned(),
        (0, _) if is_too_long => "No paths were searched.".to_owned(),
        (0, _) if contents.paths.is_empty() => match contents.entities {
            0 => "This version has no paths because it has no entities.".to_owned(),
            _ => "This version has no paths because its entities have no fields.".to_owned(),
        },
        (0, _) => "No paths contain this text.".to_owned(),
        (all, shown) if all == shown => total,
        (_, 0) => {
            let number = format::group_thousands(requested_from as u64 + 1);
            format!("There is no path number {number} ({total} in total).")
        }
        _ => format!("{} to {to} of {total}", from + 1),
    };
    let reads = context.authorized_target.as_ref().map(|_| &urls);
    let card = |id: usize| build_path_card(id, matching[id], contents.entities, reads);
    let mut paths: Vec<PathCard> = (from..to).map(card).collect();
    // A histogram scans all numbers of a path, so the page counts only the requested histogram.
    if let (Some(_), [record], [card], Some(target)) =
        (selected, &matching[from..to], paths.as_mut_slice(), &context.authorized_target)
    {
        card.histogram = match histogram::check_histogram_support(record) {
            Ok(()) => {
                let bins = Box::pin(histogram::count_bins(req, target, record, &urls)).await?;
                PathHistogram::from_bins(bins, record.types.number)
            }
            Err(why) => PathHistogram { unavailable_reason: Some(why), ..PathHistogram::default() },
        };
    }
    let missing_path_problem = selected.filter(|_| matching.is_empty()).map(|selected| {
        let valid = "a path in this version, written as in a filter";
        InlineCodeText::new(&invalid_parameter_text(HISTOGRAM_PARAM, selected, "is not a path in this version", valid))
    });
    let is_wrong = is_too_long || missing_path_problem.is_some();
    let title = match selected {
        _ if is_wrong => "Error: Profile".to_owned(),
        Some(selected) => format!("Histogram of {}", SafeText::with_ellipsis(selected, MAX_VALUE_CHARACTERS).text),
        None if q.is_empty() => "Profile".to_owned(),
        None => format!("Profile: {}", SafeText::with_ellipsis(&q, MAX_VALUE_CHARACTERS).text),
    };
    let page = VersionProfilePage {
        is_histogram_page: selected.is_some(),
        layout: req.layout(format!("{title}, {}", context.name)),
        heading: DatasetHeading {
            version: context.heading.version.or_else(|| Some(format!("v{}", found.version))),
            ..context.heading
        },
        entities: contents.entities,
        document_bytes: format::byte_size(contents.document_bytes),
        file_bytes: format::byte_size(found.file_size_bytes),
        summary,
        missing_path_problem,
        problem: is_too_long.then(|| format!("The search text is longer than {MAX_SEARCH_CHARACTERS} characters.")),
        has_omitted_paths: contents.paths_left_out,
        paths,
        has_single_match: matching.len() == 1,
        first: (from > 0).then(|| page_url(0)),
        previous: (from > 0).then(|| page_url(from.saturating_sub(PATHS_PER_PAGE))),
        next: (to < matching.len()).then(|| page_url(to)),
        q,
    };
    render(if is_wrong { StatusCode::BAD_REQUEST } else { StatusCode::OK }, &page)
}

fn build_path_card<'a>(
    id: usize,
    record: &'a ProfilePathRecord,
    entities: u64,
    reads: Option<&VersionUrls>,
) -> PathCard<'a> {
    let has_name = !record.path.is_empty();
    let filter = |value: &str| {
        let urls = reads.filter(|_| has_name)?;
        Some(QueryParams::default().with_added("filter", format!("{}:{value}", record.path)).to_url(&urls.browse_url()))
    };
    // Outside arrays, an entity has at most one value at a path, so percentages are shares of all entities.
    let total = match record.fans_out {
        true => record.types.boolean + record.types.number + record.types.string,
        false => entities,
    };
    let frequent_values = record.top.iter().map(|top| {
        let text = value_text(&top.value);
        let href = if top.cut { None } else { filter(&text) };
        let value = SafeText::from_prefix(&text, MAX_VALUE_CHARACTERS, top.cut);
        ProfileBar { value, href, count: top.count, total, max_count: total }
    });
    let value =
        |record: &ValueRecord| SafeText::from_prefix(&value_text(&record.value), MAX_VALUE_CHARACTERS, record.cut);
    let number = |record: &ValueRecord| match record.cut {
        false => SafeText::new(&format::group_decimal_thousands(&value_text(&record.value)), MAX_VALUE_CHARACTERS),
        true => value(record),
    };
    let between = |name, ends: [&'a Option<ValueRecord>; 2], shown: &dyn Fn(&ValueRecord) -> SafeText| {
        let (min, max) = ends[0].as_ref().zip(ends[1].as_ref())?;
        Some(ValueRange { name, min: shown(min), max: shown(max), estimated: min.estimated || max.estimated })
    };
    let ranges = [
        between("Numbers", [&record.number_min, &record.number_max], &number),
        between("Strings", [&record.string_min, &record.string_max], &value),
    ];
    PathCard {
        id,
        record,
        path: SafeText::new(if has_name { &record.path } else { "(no name)" }, MAX_VALUE_CHARACTERS),
        nulls_url: filter("null"),
        ranges: ranges.into_iter().flatten().collect(),
        frequent_values: frequent_values.collect(),
        lengths: build_length_bars(record, filter("").filter(|_| !record.fans_out)),
        numbers: build_number_bars(record, reads),
        histogram: reads.map(|urls| PathHistogram::histogram_link_or_reason(record, urls)).unwrap_or_default(),
    }
}

fn frequent_values_caption(record: &ProfilePathRecord) -> String {
    let (grouping, base) = match record.fans_out {
        true => ("by number of occurrences in arrays", "all strings, numbers, and booleans"),
        false => ("by number of entities", "all entities"),
    };
    let estimated = if record.top_estimated { ", estimated" } else { "" };
    format!("Frequent values {grouping}{estimated} (% of {base})")
}

/// Returns a bar for each range of string lengths at a path. Only the bar of empty strings can link to a filter.
fn build_length_bars(record: &ProfilePathRecord, empty: Option<String>) -> Vec<ProfileBar> {
    let counts = &record.string_lengths;
    let max_count = counts.iter().copied().max().unwrap_or(0);
    let bars = counts.iter().copied().enumerate().skip_while(|(_, count)| *count == 0).map(|(index, count)| {
        let range = length_range(index);
        let [first, last] = [range.start(), range.end()].map(|length| format::group_thousands(*length));
        let value = SafeText::from_text(&if first == last { first } else { format!("{first} to {last}") });
        ProfileBar { value, href: empty.clone().filter(|_| index == 0), count, total: record.types.string, max_count }
    });
    bars.collect()
}

/// Returns a bar for each range of numbers at a path. Inside arrays, no filter can select a range, so there is no link.
fn build_number_bars(record: &ProfilePathRecord, reads: Option<&VersionUrls>) -> Vec<ProfileBar> {
    let Some(bins) = &record.number_bins else { return Vec::new() };
    let ranges = bins.to_ranges(MAX_NUMBER_RANGES);
    let max_count = ranges.iter().map(|range| range.count).max().unwrap_or(0);
    let reads = reads.filter(|_| !record.path.is_empty() && !record.fans_out);
    let bar = |range: &NumberRange| {
        let value = SafeText::from_text(&histogram::range_label(&range.from, &range.to));
        let urls = reads.filter(|_| range.is_exact);
        let href = urls.map(|urls| histogram::range_url(&record.path, &range.from, &range.to, urls));
        ProfileBar { value, href, count: range.count, total: record.types.number, max_count }
    };
    ranges.iter().map(bar).collect()
}

/// Returns the width of a bar, which is visible unless `part` is 0.
fn bar_width(part: u64, whole: u64) -> u64 {
    let share = u128::from(part) * u128::from(MAX_BAR_WIDTH) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(MAX_BAR_WIDTH).clamp(u64::from(part > 0) * 4, MAX_BAR_WIDTH)
}
