//! `…/profile`: what the paths of a version hold, with pictures of their frequent values.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::acting::own;
use super::browse::{types, value_text};
use super::histogram::{self, Range};
use super::opened::{Heading, Tab, open};
use super::place::Place;
use super::query::{Query, invalid_text};
use super::sentence::Sentence;
use super::shown::Shown;
use super::visit::{Reply, Shell, Visit, render};
use super::{closed, figures};
use crate::http::error::HttpError;
use crate::model::version::VersionSelector;
use crate::service::{Admitted, ProfileRequest, ReadError};
use crate::storage::profile::{NumberRange, PathRecord, ValueRecord, lengths_at};

const PAGE: usize = 60;

/// Characters of a path and of a value.
const CHARACTERS: usize = 100;

/// Characters of what paths are searched for.
const SEARCHED: usize = 200;

/// Ranges of the numbers of a path, at most.
const RANGES: usize = 16;

/// The parameter that names the path whose numbers are counted.
const HISTOGRAM: &str = "histogram";

/// Where it is on its page.
const ANCHOR: &str = "#histogram";

/// The width of a full bar in the units of its picture.
const WIDTH: u64 = 1_000;

#[derive(Template)]
#[template(path = "profile.html")]
struct ProfilePage {
    shell: Shell,
    heading: Heading,
    entities: String,
    document_bytes: String,
    file_bytes: String,
    q: String,
    problem: Option<String>,
    /// That there is no path for a histogram.
    no_path: Option<Sentence>,
    /// Leads from one path back to all.
    all: Option<String>,
    action: String,
    summary: String,
    left_out: bool,
    paths: Vec<PathCard>,
    first: Option<String>,
    previous: Option<String>,
    next: Option<String>,
}

struct PathCard {
    id: usize,
    path: Shown,
    types: String,
    fans_out: bool,
    presence: String,
    presence_width: u64,
    present: String,
    missing: u64,
    nulls: Option<(String, Option<String>)>,
    /// Whether the filter that finds nulls may find a text, too.
    has_texts: bool,
    distinct: String,
    shredded: bool,
    ranges: Vec<ValueRange>,
    top: Vec<Bar>,
    /// What is said of them.
    frequent: String,
    /// Strings by their number of characters.
    lengths: Vec<Bar>,
    /// Numbers by the range that they are in.
    numbers: Vec<Bar>,
    /// Whether the path is the only one of the page.
    alone: bool,
    spread: Spread,
}

/// The minimum and the maximum of the values of a type.
struct ValueRange {
    name: &'static str,
    min: Shown,
    max: Shown,
    estimated: bool,
}

#[derive(Default)]
struct Spread {
    href: Option<String>,
    /// Why it cannot be.
    why_not: Option<&'static str>,
    bars: Vec<SpreadBar>,
    outside: Option<String>,
}

struct SpreadBar {
    range: String,
    href: String,
    count: String,
    share: String,
    width: u64,
}

impl Spread {
    /// The way to that of a path; or why there is none, if its numbers are shown in no other way.
    fn of(record: &PathRecord, place: &Place) -> Spread {
        match histogram::can_be_counted(record) {
            Ok(()) => {
                let href = Some(Query::default().and(HISTOGRAM, &record.path).at(&place.profile()) + ANCHOR);
                Spread { href, ..Spread::default() }
            }
            Err(why) => {
                let is_told = record.types.number > 0 && record.number_bins.is_none() && histogram::has_ranges(record);
                Spread { why_not: is_told.then_some(why), ..Spread::default() }
            }
        }
    }

    /// That of these ranges, of so many numbers, each in an entity of its own.
    fn counted(ranges: &[Range], numbers: u64, entities: u64) -> Spread {
        let most = ranges.iter().map(|range| range.count).max().unwrap_or(0);
        let bar = |range: &Range| SpreadBar {
            range: range.text.clone(),
            href: range.href.clone(),
            count: figures::grouped(range.count),
            share: figures::percent(range.count, entities),
            width: width(range.count, most),
        };
        Spread {
            bars: ranges.iter().map(bar).collect(),
            outside: histogram::outside(ranges, numbers),
            ..Spread::default()
        }
    }
}

/// A frequent value, or a range of lengths, as a bar.
struct Bar {
    value: Shown,
    href: Option<String>,
    count: String,
    share: String,
    width: u64,
}

impl PathCard {
    /// Without what leads to reads.
    fn without_reads(mut self) -> PathCard {
        self.top.iter_mut().chain(&mut self.lengths).chain(&mut self.numbers).for_each(|bar| bar.href = None);
        self.nulls = self.nulls.map(|(count, _)| (count, None));
        self.spread = Spread::default();
        self
    }
}

pub(super) async fn show(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(closed::or_told(visit, Tab::Profile, profile))).await
}

struct Seen {
    /// The dataset and the version, in the title.
    name: String,
    selector: VersionSelector,
    /// `None` where the dataset is frozen: its owner sees the profile, and nobody reads.
    admitted: Option<Admitted>,
    heading: Heading,
}

async fn seen(visit: &mut Visit, place: &Place) -> Result<Seen, HttpError> {
    match open(visit, place, place.alt).await {
        Ok(opened) => Ok(Seen {
            name: opened.title(),
            selector: VersionSelector::Number(opened.version.number),
            heading: Heading::of(visit, &opened, place, Tab::Profile),
            admitted: Some(opened.admitted),
        }),
        Err(error @ HttpError::Read(ReadError::Frozen)) => {
            let Ok(own) = own(visit).await else { return Err(error) };
            let dataset = &own.view.dataset;
            Ok(Seen {
                name: dataset.name.as_str().to_owned(),
                selector: place.selector,
                admitted: None,
                heading: Heading::around(visit, dataset, place, Tab::Profile),
            })
        }
        Err(error) => Err(error),
    }
}

async fn profile(visit: &mut Visit) -> Result<Reply, HttpError> {
    let uri = visit.head.uri.clone();
    let (place, _) = Place::parse(uri.path())?;
    let query = visit.query(&["q", "from", HISTOGRAM])?;
    let asked = query.first("q").unwrap_or_default().trim();
    let q: String = asked.chars().take(SEARCHED).collect();
    let is_too_long = q.len() < asked.len();
    let from = query.number("from")?.map_or(0, |from| usize::try_from(from).unwrap_or(usize::MAX));
    let seen = seen(visit, &place).await?;
    let (app, visitor) = (&visit.app, &visit.visitor);
    let alt = seen.admitted.as_ref().map_or(place.alt, |admitted| admitted.alt);
    let reads = app.reads();
    let request = ProfileRequest {
        caller: visitor.user.as_ref(),
        client: visitor.client,
        dataset: place.dataset.id,
        version: seen.selector,
        alt,
    };
    let found = reads.profile(request).await?;
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
        0 => base.at(&place.profile()),
        from => base.with("from", from).at(&place.profile()),
    };
    let of = figures::counted(matching.len() as u64, "path", "paths");
    let summary = match (matching.len(), to - from) {
        (0, _) if one.is_some() => "There is no such path.".to_owned(),
        (0, _) if is_too_long => "No path is looked for.".to_owned(),
        (0, _) if contents.paths.is_empty() => match contents.entities {
            0 => "This version has no paths: it has no entities.".to_owned(),
            _ => "This version has no paths: its entities have no fields.".to_owned(),
        },
        (0, _) => "No path has this text.".to_owned(),
        (all, shown) if all == shown => of,
        (_, 0) => format!("No paths from {} on of {of}.", figures::grouped(asked_from as u64 + 1)),
        _ => format!("{} to {to} of {of}", from + 1),
    };
    let alone = matching.len() == 1;
    let card = |(index, record): (usize, &&PathRecord)| PathCard {
        alone,
        ..card(from + index, record, contents.entities, &place)
    };
    // No link leads to a read that is refused.
    let readable = seen.admitted.is_some();
    let card = |numbered| if readable { card(numbered) } else { card(numbered).without_reads() };
    let mut paths: Vec<PathCard> = matching[from..to].iter().enumerate().map(card).collect();
    // Counting looks at all numbers of a path, so it is done for one, when it is asked for.
    if let (Some(_), [record], [card], Some(admitted)) =
        (one, &matching[from..to], paths.as_mut_slice(), &seen.admitted)
    {
        card.spread = match histogram::can_be_counted(record) {
            Ok(()) => {
                let ranges = Box::pin(histogram::count(visit, admitted, record, &place)).await?;
                Spread::counted(&ranges, record.types.number, contents.entities)
            }
            Err(why) => Spread { why_not: Some(why), ..Spread::default() },
        };
    }
    let no_path = one.filter(|_| matching.is_empty()).map(|one| {
        let valid = "a path of this version, as a filter takes it";
        Sentence::new(&invalid_text(HISTOGRAM, one, "is no path of this version", valid))
    });
    let is_wrong = is_too_long || no_path.is_some();
    let title = match one {
        _ if is_wrong => "Error: Profile".to_owned(),
        Some(one) => format!("Histogram of {}", Shown::short(one, CHARACTERS).plain()),
        None if q.is_empty() => "Profile".to_owned(),
        None => format!("Profile: {}", Shown::short(&q, CHARACTERS).plain()),
    };
    let page = ProfilePage {
        all: one.map(|_| place.profile()),
        shell: visit.shell(format!("{title}, {}", seen.name)),
        heading: Heading {
            version: seen.heading.version.or_else(|| Some(format!("v{}", found.version))),
            ..seen.heading
        },
        entities: figures::counted(contents.entities, "entity", "entities"),
        document_bytes: figures::size(contents.document_bytes),
        file_bytes: figures::size(found.file_size_bytes),
        action: place.profile(),
        summary,
        no_path,
        problem: is_too_long.then(|| format!("What is looked for is longer than {SEARCHED} characters.")),
        left_out: contents.paths_left_out,
        paths,
        first: (from > 0).then(|| at(0)),
        previous: (from > 0).then(|| at(from.saturating_sub(PAGE))),
        next: (to < matching.len()).then(|| at(to)),
        q,
    };
    render(if is_wrong { StatusCode::BAD_REQUEST } else { StatusCode::OK }, &page)
}

fn card(id: usize, record: &PathRecord, entities: u64, place: &Place) -> PathCard {
    let named = !record.path.is_empty();
    let filter = |value: &str| {
        named.then(|| Query::default().and("filter", format!("{}:{value}", record.path)).at(&place.browse()))
    };
    // Outside of arrays, a value stands once in each of its entities.
    let whole = match record.fans_out {
        true => record.types.boolean + record.types.number + record.types.string,
        false => entities,
    };
    let top = record.top.iter().map(|top| {
        let text = value_text(&top.value);
        Bar {
            href: if top.cut { None } else { filter(&text) },
            value: Shown::beginning(&text, CHARACTERS, top.cut),
            count: figures::grouped(top.count),
            share: figures::percent(top.count, whole),
            width: width(top.count, whole),
        }
    });
    let value = |record: &ValueRecord| Shown::beginning(&value_text(&record.value), CHARACTERS, record.cut);
    let number = |record: &ValueRecord| match record.cut {
        false => Shown::new(&figures::grouped_decimal(&value_text(&record.value)), CHARACTERS),
        true => value(record),
    };
    let numbers_between = record.number_min.as_ref().zip(record.number_max.as_ref());
    let strings_between = record.string_min.as_ref().zip(record.string_max.as_ref());
    let estimated = |(min, max): (&ValueRecord, &ValueRecord)| min.estimated || max.estimated;
    let ranges = [
        numbers_between.map(|ends| ValueRange {
            name: "Numbers",
            min: number(ends.0),
            max: number(ends.1),
            estimated: estimated(ends),
        }),
        strings_between.map(|ends| ValueRange {
            name: "Strings",
            min: value(ends.0),
            max: value(ends.1),
            estimated: estimated(ends),
        }),
    ];
    let distinct = figures::grouped(record.distinct.count);
    PathCard {
        id,
        path: if named { Shown::new(&record.path, CHARACTERS) } else { Shown::new("(no name)", CHARACTERS) },
        types: types(&record.types),
        fans_out: record.fans_out,
        presence: figures::percent(record.entities, entities),
        presence_width: width(record.entities, entities),
        present: figures::grouped(record.entities),
        missing: entities.saturating_sub(record.entities),
        nulls: (record.types.null > 0).then(|| (figures::grouped(record.types.null), filter("null"))),
        has_texts: record.types.string > 0,
        distinct: if record.distinct.estimated { format!("about {distinct}") } else { distinct },
        shredded: record.shredded,
        ranges: ranges.into_iter().flatten().collect(),
        top: top.collect(),
        frequent: frequent(record),
        lengths: lengths(record, filter("").filter(|_| !record.fans_out)),
        numbers: numbers(record, place),
        alone: false,
        spread: Spread::of(record, place),
    }
}

/// What is said of the frequent values of a path: by what they are counted, and of what their percentages are.
fn frequent(record: &PathRecord) -> String {
    let (by, of) = match record.fans_out {
        true => ("by how many times they occur in arrays", "all strings, numbers and booleans"),
        false => ("by entities", "all entities"),
    };
    let estimated = if record.top_estimated { ", estimated" } else { "" };
    format!("Frequent values, {by}{estimated}: % of {of}")
}

/// The strings of a path by their length, from the shortest to the longest; none where they were not counted. A filter
/// finds the empty ones, and no other length.
fn lengths(record: &PathRecord, empty: Option<String>) -> Vec<Bar> {
    let counts = &record.string_lengths;
    let most = counts.iter().copied().max().unwrap_or(0);
    let counts = counts.iter().copied().enumerate().skip_while(|(_, count)| *count == 0);
    let bar = |(place, count): (usize, u64)| {
        let range = lengths_at(place);
        let (first, last) = (figures::grouped(*range.start()), figures::grouped(*range.end()));
        Bar {
            value: Shown::whole(&if first == last { first } else { format!("{first} to {last}") }),
            href: empty.clone().filter(|_| place == 0),
            count: figures::grouped(count),
            share: figures::percent(count, record.types.string),
            width: width(count, most),
        }
    };
    counts.map(bar).collect()
}

/// The numbers of a path by their range, from the least to the greatest; none where they were not counted. Where an
/// entity may have several, no filter finds those of one range alone.
fn numbers(record: &PathRecord, place: &Place) -> Vec<Bar> {
    let Some(bins) = &record.number_bins else { return Vec::new() };
    let ranges = bins.ranges(RANGES);
    let most = ranges.iter().map(|range| range.count).max().unwrap_or(0);
    let is_found = !record.path.is_empty() && !record.fans_out;
    let bar = |range: &NumberRange| Bar {
        value: Shown::whole(&histogram::between(&range.from, &range.to)),
        href: (is_found && range.is_exact).then(|| histogram::page_of(&record.path, &range.from, &range.to, place)),
        count: figures::grouped(range.count),
        share: figures::percent(range.count, record.types.number),
        width: width(range.count, most),
    };
    ranges.iter().map(bar).collect()
}

/// The width of a bar: nothing only where there is nothing.
fn width(part: u64, whole: u64) -> u64 {
    let share = u128::from(part) * u128::from(WIDTH) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(WIDTH).clamp(u64::from(part > 0) * 4, WIDTH)
}
