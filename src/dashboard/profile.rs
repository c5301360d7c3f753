//! `…/profile`: the paths of a version, with charts of their frequent values.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use strata_format::profile::{NumberRange, PathRecord, ValueRecord, lengths_at};
use strata_http::error::HttpError;
use strata_service::{Admitted, ReadError};
use strata_types::version::VersionSelector;

use super::browse::value_text;
use super::context::{Heading, Tab, open};
use super::form_handling::own;
use super::histogram::{self, Range};
use super::query::{Query, invalid_text};
use super::safe_text::{SafeText, Sentence};
use super::urls::Place;
use super::visit::{PageResult, Shell, Visit, render};
use super::{format, unavailable};

const PAGE: usize = 60;

/// Characters of a path and of a value.
const CHARACTERS: usize = 100;

const SEARCHED: usize = 200;

const RANGES: usize = 16;

/// The parameter that names the path whose numbers are counted.
const HISTOGRAM: &str = "histogram";

const ANCHOR: &str = "#histogram";

/// The width of a full bar in the units of its chart.
const WIDTH: u64 = 1_000;

#[derive(Template)]
#[template(path = "profile.html")]
struct ProfilePage<'a> {
    shell: Shell,
    heading: Heading,
    entities: u64,
    document_bytes: String,
    file_bytes: String,
    q: String,
    problem: Option<String>,
    /// Says that the path of the histogram does not exist.
    no_path: Option<Sentence>,
    /// Whether only the path of the histogram is shown.
    is_one: bool,
    summary: String,
    left_out: bool,
    paths: Vec<PathCard<'a>>,
    /// Whether only one path matches.
    alone: bool,
    first: Option<String>,
    previous: Option<String>,
    next: Option<String>,
}

struct PathCard<'a> {
    id: usize,
    record: &'a PathRecord,
    path: SafeText,
    /// The page of the entities with null there.
    nulls: Option<String>,
    ranges: Vec<ValueRange>,
    top: Vec<Bar>,
    /// Strings by their number of characters.
    lengths: Vec<Bar>,
    /// Numbers by the range that they are in.
    numbers: Vec<Bar>,
    spread: Spread,
}

struct ValueRange {
    name: &'static str,
    min: SafeText,
    max: SafeText,
    estimated: bool,
}

#[derive(Default)]
struct Spread {
    href: Option<String>,
    /// Why there is no histogram.
    why_not: Option<&'static str>,
    ranges: Vec<Range>,
    most: u64,
    outside: Option<String>,
}

impl Spread {
    /// The link to the histogram of a path; or why there is none, if its numbers are shown in no other way.
    fn new(record: &PathRecord, place: &Place) -> Spread {
        match histogram::can_be_counted(record) {
            Ok(()) => {
                let href = Some(Query::default().and(HISTOGRAM, &record.path).at(&place.page("profile")) + ANCHOR);
                Spread { href, ..Spread::default() }
            }
            Err(why) => {
                let is_told =
                    record.types.number > 0 && record.number_bins.is_none() && histogram::edges(record).is_some();
                Spread { why_not: is_told.then_some(why), ..Spread::default() }
            }
        }
    }

    fn counted(ranges: Vec<Range>, numbers: u64) -> Spread {
        let counted: u64 = ranges.iter().map(|range| range.count).sum();
        let left = numbers.saturating_sub(counted);
        let outside = || format!("{} outside these ranges.", format::counted(left, "number is", "numbers are"));
        Spread {
            most: ranges.iter().map(|range| range.count).max().unwrap_or(0),
            outside: (left > 0).then(outside),
            ranges,
            ..Spread::default()
        }
    }
}

/// A frequent value, or a range of lengths or numbers.
struct Bar {
    value: SafeText,
    href: Option<String>,
    count: u64,
    /// 100 %.
    all: u64,
    /// The count of the longest bar.
    most: u64,
}

pub(super) async fn show(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(unavailable::or_told(visit, Tab::Profile, profile))).await
}

struct ProfileContext {
    name: String,
    selector: VersionSelector,
    /// `None` if the dataset is frozen: its owner sees the profile, but reads are refused.
    admitted: Option<Admitted>,
    heading: Heading,
}

async fn seen(visit: &mut Visit, place: &Place) -> Result<ProfileContext, HttpError> {
    match open(visit, place, place.alt).await {
        Ok(opened) => Ok(ProfileContext {
            name: opened.title(),
            selector: VersionSelector::Number(opened.version.number),
            heading: Heading::new(visit, &opened, place, Tab::Profile),
            admitted: Some(opened.admitted),
        }),
        Err(error @ HttpError::Read(ReadError::Frozen)) => {
            let Ok(own) = own(visit).await else { return Err(error) };
            let dataset = &own.view.dataset;
            Ok(ProfileContext {
                name: dataset.name.as_str().to_owned(),
                selector: place.selector,
                admitted: None,
                heading: Heading::for_dataset(visit, dataset, place, Tab::Profile),
            })
        }
        Err(error) => Err(error),
    }
}

async fn profile(visit: &mut Visit) -> PageResult {
    let uri = visit.head.uri.clone();
    let (place, _) = Place::parse(uri.path())?;
    let query = visit.query(&["q", "from", HISTOGRAM])?;
    let asked = query.first("q").unwrap_or_default().trim();
    let q: String = asked.chars().take(SEARCHED).collect();
    let is_too_long = q.len() < asked.len();
    let from = query.number("from")?.map_or(0, |from| usize::try_from(from).unwrap_or(usize::MAX));
    let seen = seen(visit, &place).await?;
    let alt = seen.admitted.as_ref().map_or(place.alt, |admitted| admitted.alt);
    let found = visit.services.reads.profile(visit.profile(place.dataset.id, seen.selector, alt)).await?;
    let contents = &found.contents;

    let wanted = q.to_lowercase();
    let one = query.first(HISTOGRAM);
    let shown = |path: &&PathRecord| match one {
        Some(one) => path.path == one,
        None => !is_too_long && (wanted.is_empty() || path.path.to_lowercase().contains(&wanted)),
    };
    let matching: Vec<&PathRecord> = contents.paths.iter().filter(shown).collect();
    let asked_from = from;
    let from = from.min(matching.len());
    let to = matching.len().min(from + PAGE);
    let base = if q.is_empty() { Query::default() } else { Query::default().and("q", &q) };
    let at = |from: usize| match from {
        0 => base.at(&place.page("profile")),
        from => base.with("from", from).at(&place.page("profile")),
    };
    let of = format::counted(matching.len() as u64, "path", "paths");
    let summary = match (matching.len(), to - from) {
        (0, _) if one.is_some() => "Path not found.".to_owned(),
        (0, _) if is_too_long => "No paths were searched.".to_owned(),
        (0, _) if contents.paths.is_empty() => match contents.entities {
            0 => "This version has no paths because it has no entities.".to_owned(),
            _ => "This version has no paths because its entities have no fields.".to_owned(),
        },
        (0, _) => "No paths contain this text.".to_owned(),
        (all, shown) if all == shown => of,
        (_, 0) => format!("There is no path number {} ({of} in total).", format::grouped(asked_from as u64 + 1)),
        _ => format!("{} to {to} of {of}", from + 1),
    };
    // There are no links to reads that are refused.
    let reads = seen.admitted.as_ref().map(|_| &place);
    let cards = matching[from..to].iter().enumerate();
    let cards = cards.map(|(index, record)| card(from + index, record, contents.entities, reads));
    let mut paths: Vec<PathCard> = cards.collect();
    // Counting scans all numbers of a path, so it is done for one path, on demand.
    if let (Some(_), [record], [card], Some(admitted)) =
        (one, &matching[from..to], paths.as_mut_slice(), &seen.admitted)
    {
        card.spread = match histogram::can_be_counted(record) {
            Ok(()) => {
                let ranges = Box::pin(histogram::count(visit, admitted, record, &place)).await?;
                Spread::counted(ranges, record.types.number)
            }
            Err(why) => Spread { why_not: Some(why), ..Spread::default() },
        };
    }
    let no_path = one.filter(|_| matching.is_empty()).map(|one| {
        let valid = "a path in this version, written as in a filter";
        Sentence::new(&invalid_text(HISTOGRAM, one, "is not a path in this version", valid))
    });
    let is_wrong = is_too_long || no_path.is_some();
    let title = match one {
        _ if is_wrong => "Error: Profile".to_owned(),
        Some(one) => format!("Histogram of {}", SafeText::short(one, CHARACTERS).text),
        None if q.is_empty() => "Profile".to_owned(),
        None => format!("Profile: {}", SafeText::short(&q, CHARACTERS).text),
    };
    let page = ProfilePage {
        is_one: one.is_some(),
        shell: visit.shell(format!("{title}, {}", seen.name)),
        heading: Heading {
            version: seen.heading.version.or_else(|| Some(format!("v{}", found.version))),
            ..seen.heading
        },
        entities: contents.entities,
        document_bytes: format::size(contents.document_bytes),
        file_bytes: format::size(found.file_size_bytes),
        summary,
        no_path,
        problem: is_too_long.then(|| format!("The search text is longer than {SEARCHED} characters.")),
        left_out: contents.paths_left_out,
        paths,
        alone: matching.len() == 1,
        first: (from > 0).then(|| at(0)),
        previous: (from > 0).then(|| at(from.saturating_sub(PAGE))),
        next: (to < matching.len()).then(|| at(to)),
        q,
    };
    render(if is_wrong { StatusCode::BAD_REQUEST } else { StatusCode::OK }, &page)
}

/// A path, with links to reads of the version `reads`.
fn card<'a>(id: usize, record: &'a PathRecord, entities: u64, reads: Option<&Place>) -> PathCard<'a> {
    let named = !record.path.is_empty();
    let filter = |value: &str| {
        let place = reads.filter(|_| named)?;
        Some(Query::default().and("filter", format!("{}:{value}", record.path)).at(&place.browse()))
    };
    // Outside of arrays, an entity contains a value once.
    let whole = match record.fans_out {
        true => record.types.boolean + record.types.number + record.types.string,
        false => entities,
    };
    let top = record.top.iter().map(|top| {
        let text = value_text(&top.value);
        let href = if top.cut { None } else { filter(&text) };
        Bar { value: SafeText::beginning(&text, CHARACTERS, top.cut), href, count: top.count, all: whole, most: whole }
    });
    let value = |record: &ValueRecord| SafeText::beginning(&value_text(&record.value), CHARACTERS, record.cut);
    let number = |record: &ValueRecord| match record.cut {
        false => SafeText::new(&format::grouped_decimal(&value_text(&record.value)), CHARACTERS),
        true => value(record),
    };
    let between = |name, ends: [&'a Option<ValueRecord>; 2], shown: &dyn Fn(&ValueRecord) -> SafeText| {
        let (min, max) = ends[0].as_ref().zip(ends[1].as_ref())?;
        let estimated = min.estimated || max.estimated;
        Some(ValueRange { name, min: shown(min), max: shown(max), estimated })
    };
    let ranges = [
        between("Numbers", [&record.number_min, &record.number_max], &number),
        between("Strings", [&record.string_min, &record.string_max], &value),
    ];
    PathCard {
        id,
        record,
        path: if named { SafeText::new(&record.path, CHARACTERS) } else { SafeText::new("(no name)", CHARACTERS) },
        nulls: filter("null"),
        ranges: ranges.into_iter().flatten().collect(),
        top: top.collect(),
        lengths: lengths(record, filter("").filter(|_| !record.fans_out)),
        numbers: numbers(record, reads),
        spread: reads.map(|place| Spread::new(record, place)).unwrap_or_default(),
    }
}

/// The caption of the frequent values of a path.
fn frequent(record: &PathRecord) -> String {
    let (by, of) = match record.fans_out {
        true => ("by number of occurrences in arrays", "all strings, numbers, and booleans"),
        false => ("by number of entities", "all entities"),
    };
    let estimated = if record.top_estimated { ", estimated" } else { "" };
    format!("Frequent values {by}{estimated} (% of {of})")
}

/// The strings of a path by their length. A filter finds the empty ones, but no other length.
fn lengths(record: &PathRecord, empty: Option<String>) -> Vec<Bar> {
    let counts = &record.string_lengths;
    let most = counts.iter().copied().max().unwrap_or(0);
    let counts = counts.iter().copied().enumerate().skip_while(|(_, count)| *count == 0);
    let bars = counts.map(|(place, count)| {
        let range = lengths_at(place);
        let [first, last] = [range.start(), range.end()].map(|length| format::grouped(*length));
        let value = SafeText::whole(&if first == last { first } else { format!("{first} to {last}") });
        Bar { value, href: empty.clone().filter(|_| place == 0), count, all: record.types.string, most }
    });
    bars.collect()
}

/// The numbers of a path by their range. In arrays, no filter finds those of one range.
fn numbers(record: &PathRecord, reads: Option<&Place>) -> Vec<Bar> {
    let Some(bins) = &record.number_bins else { return Vec::new() };
    let ranges = bins.ranges(RANGES);
    let most = ranges.iter().map(|range| range.count).max().unwrap_or(0);
    let reads = reads.filter(|_| !record.path.is_empty() && !record.fans_out);
    let bar = |range: &NumberRange| {
        let value = SafeText::whole(&histogram::between(&range.from, &range.to));
        let place = reads.filter(|_| range.is_exact);
        let href = place.map(|place| histogram::page_of(&record.path, &range.from, &range.to, place));
        Bar { value, href, count: range.count, all: record.types.number, most }
    };
    ranges.iter().map(bar).collect()
}

/// The width of a bar, which is visible unless its part is 0.
fn width(part: u64, whole: u64) -> u64 {
    let share = u128::from(part) * u128::from(WIDTH) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(WIDTH).clamp(u64::from(part > 0) * 4, WIDTH)
}
