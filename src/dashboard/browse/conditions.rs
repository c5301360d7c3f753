//! A query in words: as links that remove one part of it, and as the next steps if nothing matches.

use std::fmt;

use askama::filters::HtmlSafe;
use strata_types::path::Path;
use strata_types::request::RangeBound;

use super::links::{FILTER, Links};
use super::{COLUMNS, PAGE, VIEW};
use crate::query::{Query, is_true};
use crate::safe_text::SafeText;

/// The parameters of conditions, with the words between path and value.
pub(super) const OPERATORS: [(&str, &str); 7] = [
    (FILTER, "is"),
    (CONTAINS, "contains"),
    (RangeBound::Greater.parameter(), "is greater than"),
    (RangeBound::GreaterOrEqual.parameter(), "is at least"),
    (RangeBound::Less.parameter(), "is less than"),
    (RangeBound::LessOrEqual.parameter(), "is at most"),
    (IS_NULL, "is null"),
];

/// The operator for null, which is a value of [`FILTER`].
pub(super) const IS_NULL: &str = "null";

const CONTAINS: &str = "filter_contains";
const KEYWORDS: &str = "keywords";
const MODE: &str = "keywords_mode";

/// Characters of a path and of a value.
const CHARACTERS: usize = 60;

const TITLE_CHARACTERS: usize = 80;

/// Links of a kind on a page.
pub(super) const PARTS: usize = 20;

pub(super) fn label(parameter: &str) -> Option<&'static str> {
    OPERATORS.iter().find(|(name, _)| *name == parameter && parameter != IS_NULL).map(|(_, label)| *label)
}

pub(super) struct Part {
    pub(super) words: Words,
    pub(super) href: String,
}

/// Words of ours and of others, with a space between them.
#[derive(Default)]
pub(super) struct Words(Vec<SafeText>);

impl HtmlSafe for Words {}

impl fmt::Display for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.iter().map(SafeText::to_string).collect::<Vec<_>>().join(" "))
    }
}

impl Words {
    fn text(&self) -> String {
        self.0.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn ours(mut self, words: &str) -> Words {
        self.0.extend((!words.is_empty()).then(|| SafeText::whole(words).alone()));
        self
    }

    fn value(mut self, value: &str) -> Words {
        self.0.push(SafeText::short(value, CHARACTERS).naming_ends());
        self
    }

    fn plain(words: &str) -> Words {
        Words::default().ours(words)
    }

    /// A condition, such as `region is Europe`; `None` for a parameter that is not one.
    fn condition(before: &str, parameter: &str, given: &str) -> Option<Words> {
        let label = label(parameter)?;
        let mut words = Words::plain(before);
        let value = match Path::parse_prefix(given) {
            Ok((path, value)) => {
                words.0.push(SafeText::short(&path.to_string(), CHARACTERS));
                value
            }
            Err(_) => given,
        };
        Some(words.ours(label).value(value))
    }
}

/// The active parts of a query, without keywords.
pub(super) struct InForce {
    /// Each with the page without it; `None` if the query is too long to be repeated.
    pub(super) parts: Vec<(Words, Option<String>)>,
    pub(super) more: usize,
}

pub(super) fn in_force(links: &Links<'_>) -> InForce {
    let part = |(place, (name, value)): (usize, &(String, String))| {
        let words = match name.as_str() {
            "sort" => match value.rsplit_once(':') {
                Some((field, "desc")) => Words::plain("sorted by").value(field).ours("descending"),
                Some((field, _)) => Words::plain("sorted by").value(field),
                None => Words::plain("sorted by").value(value),
            },
            "dedup" if is_true(value) => match links.query.all("dedup_key").collect::<Vec<_>>().join(", ") {
                keys if keys.is_empty() => Words::plain("without duplicates"),
                keys => Words::plain("without duplicates by").value(&keys),
            },
            "limit" if value.parse().is_ok_and(|limit: u64| limit != PAGE) => {
                Words::default().value(value).ours("per page")
            }
            "denull" if is_true(value) => Words::plain("without nulls and empty strings"),
            "flatten" if is_true(value) => Words::plain("flattened"),
            "include_source" if !is_true(value) => Words::plain("without _source"),
            "count" if is_true(value) => Words::plain("count only"),
            "sample" => Words::plain("random sample of").value(value),
            "keep_field" => Words::plain("only the fields").value(value),
            "drop_field" => Words::plain("without the fields").value(value),
            COLUMNS => Words::plain("only the columns").value(value),
            parameter => Words::condition("", parameter, value)?,
        };
        Some((place, words))
    };
    let href = |place: usize| {
        let rest = match links.query.pairs()[place].0.as_str() {
            "dedup" => links.query.without(&["dedup", "dedup_key"]),
            "sample" => links.query.without(&["sample", "seed"]),
            _ => links.query.without_place(place),
        };
        links.beginning_of(&rest)
    };
    let mut parts: Vec<(usize, Words)> = links.query.pairs().iter().enumerate().filter_map(part).collect();
    let more = parts.len().saturating_sub(PARTS);
    parts.truncate(PARTS);
    InForce { parts: parts.into_iter().map(|(place, words)| (words, href(place))).collect(), more }
}

/// The query in the title of a page.
pub(super) fn title(links: &Links<'_>, in_force: &InForce) -> String {
    let keywords = links.query.all(KEYWORDS).filter(|list| !list.trim().is_empty()).map(|list| format!("“{list}”"));
    let parts: Vec<String> = keywords.chain(in_force.parts.iter().map(|(words, _)| words.text())).collect();
    let text = parts.join(", ");
    match text.char_indices().nth(TITLE_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Queries that are one change away from a query that nothing matches, and that might match more. None of them searches
/// paths that no entity has.
pub(super) fn next_steps(links: &Links<'_>, absent: &[Path]) -> Vec<Part> {
    let query = &links.query;
    let mut steps = Vec::new();
    let mut add = |words: Words, query: &Query| {
        steps.extend(links.beginning_of(query).map(|href| Part { words, href }));
    };
    let keywords: Vec<&str> = query.all(KEYWORDS).flat_map(|list| list.split(',')).collect();
    let keywords = keywords.iter().filter(|word| !word.trim().is_empty()).count();
    if keywords > 1 && query.first(MODE).is_some_and(|mode| mode == "and") {
        add(Words::plain("Match any of the keywords"), &query.without(&[MODE]));
    }
    for (place, (name, given)) in query.pairs().iter().enumerate() {
        let Some(words) = Words::condition("Remove:", name, given) else { continue };
        let rest = query.without_place(place);
        add(words, &rest);
        let Ok((path, value)) = Path::parse_prefix(given) else { continue };
        let is_there = !absent.contains(&path);
        let change = |name: &str, given: &str| Words::condition("Change to:", name, given).unwrap_or_default();
        if let Some((range, limit)) = as_range(value).filter(|_| name == FILTER && is_there) {
            let meant = format!("{path}:{limit}");
            add(change(range, &meant), &rest.clone().and(range, &meant));
        }
        if is_there && matches!(name.as_str(), FILTER | CONTAINS) && !value.trim().is_empty() && value.trim() != value {
            let trimmed = format!("{path}:{}", value.trim());
            add(change(name, &trimmed), &rest.clone().and(name, &trimmed));
        }
        let is_text = !(value.trim().is_empty() || value.eq_ignore_ascii_case("null"));
        if name == FILTER && is_text && is_there {
            add(change(CONTAINS, given), &rest.clone().and(CONTAINS, given));
        }
        // A comma separates keywords.
        if matches!(name.as_str(), FILTER | CONTAINS) && is_text && !value.contains(',') && keywords == 0 {
            add(Words::plain("Search all fields for").value(value), &rest.and(KEYWORDS, value));
        }
    }
    if keywords > 0 {
        add(Words::plain("Remove the keywords"), &query.without(&[KEYWORDS, MODE]));
    }
    steps.truncate(PARTS - 1);
    let all = query.first(VIEW).map_or_else(Query::default, |view| Query::default().and(VIEW, view));
    steps.push(Part { words: Words::plain("Show all entities"), href: links.here(&all) });
    steps
}

/// The range that a value of a filter, such as `>100` or `<= 7`, was perhaps meant to be: its parameter, and the
/// number.
fn as_range(value: &str) -> Option<(&'static str, &str)> {
    let signs = [
        (">=", RangeBound::GreaterOrEqual),
        ("<=", RangeBound::LessOrEqual),
        (">", RangeBound::Greater),
        ("<", RangeBound::Less),
    ];
    let value = value.trim();
    let mut ranges = signs.into_iter().filter_map(|(sign, bound)| Some((bound, value.strip_prefix(sign)?.trim())));
    let (bound, number) = ranges.next()?;
    let is_number = serde_json::from_str::<serde_json::Number>(number).is_ok();
    is_number.then_some((bound.parameter(), number))
}
