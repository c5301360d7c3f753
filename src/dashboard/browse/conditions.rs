//! What a query asks for, in words: as links that take one part of it away, and as the next steps where nothing
//! matches.

use std::fmt;

use askama::filters::HtmlSafe;
use strata_types::path::Path;
use strata_types::request::RangeBound;

use super::links::{FILTER, Links};
use super::{COLUMNS, PAGE, VIEW};
use crate::query::{Query, is_true};
use crate::shown::Shown;

/// What a condition is made with: its parameter, and the words between its path and its value.
pub(super) const OPERATORS: [(&str, &str); 7] = [
    (FILTER, "is"),
    (CONTAINS, "contains"),
    (RangeBound::Greater.parameter(), "is greater than"),
    (RangeBound::GreaterOrEqual.parameter(), "is at least"),
    (RangeBound::Less.parameter(), "is less than"),
    (RangeBound::LessOrEqual.parameter(), "is at most"),
    (IS_NULL, "is null"),
];

/// What asks for null, which is a value of [`FILTER`].
pub(super) const IS_NULL: &str = "null";

const CONTAINS: &str = "filter_contains";
const KEYWORDS: &str = "keywords";
const MODE: &str = "keywords_mode";

/// Characters of a path and of a value.
const CHARACTERS: usize = 60;

const TITLE_CHARACTERS: usize = 80;

/// Links of a kind in a page, at most.
pub(super) const PARTS: usize = 20;

/// The words of a parameter of conditions; `None` for any other.
pub(super) fn label(parameter: &str) -> Option<&'static str> {
    OPERATORS.iter().find(|(name, _)| *name == parameter && parameter != IS_NULL).map(|(_, label)| *label)
}

/// A part of a query, as a link that leads on.
pub(super) struct Part {
    pub(super) words: Words,
    pub(super) href: String,
}

/// A few words, some of which are of others.
#[derive(Default)]
pub(super) struct Words {
    before: &'static str,
    path: Option<Shown>,
    between: &'static str,
    value: Option<Shown>,
}

impl HtmlSafe for Words {}

impl fmt::Display for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |part: &Option<Shown>| part.as_ref().map(Shown::to_string).unwrap_or_default();
        formatter.write_str(&joined([self.before, &shown(&self.path), self.between, &shown(&self.value)]))
    }
}

/// Words with a space between them.
fn joined(words: [&str; 4]) -> String {
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

impl Words {
    fn text(&self) -> String {
        let plain = |part: &Option<Shown>| part.as_ref().map(|part| part.text.clone()).unwrap_or_default();
        joined([self.before, &plain(&self.path), self.between, &plain(&self.value)])
    }

    fn plain(before: &'static str) -> Words {
        Words { before, ..Words::default() }
    }

    fn of(before: &'static str, value: &str) -> Words {
        Words { before, value: Some(Shown::short(value, CHARACTERS).naming_ends()), ..Words::default() }
    }

    /// The value in the place of the path, before what stands between.
    fn value_first(self) -> Words {
        Words { path: self.value, value: None, ..self }
    }

    /// A condition, such as `region is Europe`; `None` where the parameter is of none.
    fn condition(before: &'static str, parameter: &str, given: &str) -> Option<Words> {
        let between = label(parameter)?;
        let (path, value) = match Path::parse_prefix(given) {
            Ok((path, value)) => (Some(Shown::short(&path.to_string(), CHARACTERS)), value),
            Err(_) => (None, given),
        };
        Some(Words { before, path, between, value: Some(Shown::short(value, CHARACTERS).naming_ends()) })
    }
}

/// What is in force besides keywords.
pub(super) struct InForce {
    /// Each with the page without it; the words alone where the query is too long to be repeated.
    pub(super) parts: Vec<(Words, Option<String>)>,
    pub(super) more: usize,
}

pub(super) fn in_force(links: &Links<'_>) -> InForce {
    let part = |(place, (name, value)): (usize, &(String, String))| {
        let words = match name.as_str() {
            "sort" => match value.rsplit_once(':') {
                Some((field, "desc")) => Words { between: "descending", ..Words::of("sorted by", field).value_first() },
                Some((field, _)) => Words::of("sorted by", field),
                None => Words::of("sorted by", value),
            },
            "dedup" if is_true(value) => match links.query.all("dedup_key").collect::<Vec<_>>().join(", ") {
                keys if keys.is_empty() => Words::plain("without duplicates"),
                keys => Words::of("without duplicates by", &keys),
            },
            "limit" if value.parse().is_ok_and(|limit: u64| limit != PAGE) => {
                Words { between: "per page", ..Words::of("", value).value_first() }
            }
            "denull" if is_true(value) => Words::plain("without nulls and empty strings"),
            "flatten" if is_true(value) => Words::plain("flattened"),
            "include_source" if !is_true(value) => Words::plain("without _source"),
            "count" if is_true(value) => Words::plain("count only"),
            "sample" => Words::of("random sample of", value),
            "keep_field" => Words::of("only the fields", value),
            "drop_field" => Words::of("without the fields", value),
            COLUMNS => Words::of("only the columns", value),
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

/// What the title of a page says of its query: the keywords and what else is in force, shortened.
pub(super) fn title(links: &Links<'_>, in_force: &InForce) -> String {
    let keywords = links.query.all(KEYWORDS).filter(|list| !list.trim().is_empty()).map(|list| format!("“{list}”"));
    let parts: Vec<String> = keywords.chain(in_force.parts.iter().map(|(words, _)| words.text())).collect();
    let text = parts.join(", ");
    match text.char_indices().nth(TITLE_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Where to go on from a query that nothing matches: each query is one change away from it, and may match more.
/// Nothing more is looked for in paths that no entity has.
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
        // A comma would make two keywords of it.
        if matches!(name.as_str(), FILTER | CONTAINS) && is_text && !value.contains(',') && keywords == 0 {
            add(Words::of("Search all fields for", value), &rest.and(KEYWORDS, value));
        }
    }
    if keywords > 0 {
        add(Words::plain("Remove the keywords"), &query.without(&[KEYWORDS, MODE]));
    }
    steps.truncate(PARTS - 1);
    let all = Query::default();
    let all = query.first(VIEW).map_or(all.clone(), |view| all.and(VIEW, view));
    steps.push(Part { words: Words::plain("Show all entities"), href: links.here(&all) });
    steps
}

/// The range that the value of a filter was perhaps meant to be, `>100` or `<= 7`: its parameter, and the number.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    fn linked(links: &Links<'_>) -> Vec<Part> {
        let parts = in_force(links).parts.into_iter();
        parts.map(|(words, href)| Part { words, href: href.unwrap_or("none".to_owned()) }).collect()
    }

    fn told(parts: &[Part]) -> Vec<(String, String)> {
        let plain = |words: &Words| words.to_string().replace("<bdi>", "").replace("</bdi>", "");
        parts.iter().map(|part| (plain(&part.words), part.href.replace("/ui/1/x/v1/", ""))).collect()
    }

    fn steps(links: &Links<'_>) -> Vec<Part> {
        next_steps(links, &[Path::parse("nope").expect("a path")])
    }

    fn check(of: fn(&Links<'_>) -> Vec<Part>, query: &str, expected: &[(&str, &str)]) {
        let (place, _) = Place::parse("/ui/1/x/v1/").expect("a place");
        let links = Links::new(&place, Query::parse(Some(query)), Some(query));
        let expected: Vec<_> = expected.iter().map(|(words, href)| ((*words).to_owned(), (*href).to_owned())).collect();
        assert_eq!(told(&of(&links)), expected, "{query}");
    }

    #[test]
    fn each_part_in_force_can_be_taken_away() {
        check(linked, "view=json&limit=50&offset=10&keywords=a", &[]);
        check(linked, "view=json&limit=5&offset=10", &[("5 per page", "?view=json")]);
        check(linked, "columns=a,b&sort=c", &[("only the columns a,b", "?sort=c"), ("sorted by c", "?columns=a,b")]);
        check(
            linked,
            r"filter=a\:b:x&filter_gt=n:3&sort=n:desc&offset=9",
            &[
                (r"a\:b is x", "?filter_gt=n:3&sort=n:desc"),
                ("n is greater than 3", r"?filter=a%5C:b:x&sort=n:desc"),
                ("sorted by n descending", r"?filter=a%5C:b:x&filter_gt=n:3"),
            ],
        );
        check(
            linked,
            "dedup=1&dedup_key=a&sample=3&seed=1&denull=true&include_source=false&flatten=0",
            &[
                ("without duplicates by a", "?sample=3&seed=1&denull=true&include_source=false&flatten=0"),
                ("random sample of 3", "?dedup=1&dedup_key=a&denull=true&include_source=false&flatten=0"),
                (
                    "without nulls and empty strings",
                    "?dedup=1&dedup_key=a&sample=3&seed=1&include_source=false&flatten=0",
                ),
                ("without _source", "?dedup=1&dedup_key=a&sample=3&seed=1&denull=true&flatten=0"),
            ],
        );
        let long_without_sort = format!("?filter=a:{}", "x".repeat(2_000));
        let long = format!("filter=a:{}&sort=b", "x".repeat(2_000));
        check(linked, &long, &[(&format!("a is {}…", "x".repeat(60)), "?sort=b"), ("sorted by b", &long_without_sort)]);
        check(linked, &format!("filter=a:b&keywords={}", "x".repeat(5_000)), &[("a is b", "none")]);
        let (place, _) = Place::parse("/ui/1/x/v1/").expect("a place");
        let many = vec!["filter=a:b"; 25].join("&");
        let InForce { parts, more } = in_force(&Links::new(&place, Query::parse(Some(&many)), Some(&many)));
        assert_eq!((parts.len(), more), (20, 5));
    }

    #[test]
    fn a_title_has_the_query_in_short() {
        let (place, _) = Place::parse("/ui/1/x/v1/").expect("a place");
        let long = format!("filter=a:{}&filter=b:{}", "x".repeat(70), "y".repeat(70));
        let shortened = format!("a is {}…, b is {}…", "x".repeat(60), "y".repeat(7));
        for (query, expected) in [
            ("", ""),
            ("view=json&offset=50", ""),
            (
                "keywords=a,b&filter=country:%3CFR%3E&sort=amount:desc",
                "“a,b”, country is <FR>, sorted by amount descending",
            ),
            ("filter=country:FR&sort=amount", "country is FR, sorted by amount"),
            (&long, &shortened),
        ] {
            let links = Links::new(&place, Query::parse(Some(query)), Some(query));
            assert_eq!(title(&links, &in_force(&links)), expected);
        }
    }

    #[test]
    fn a_query_that_nothing_matches_has_next_steps() {
        check(
            steps,
            "view=json&filter=a:x&filter_gte=n:3",
            &[
                ("Remove: a is x", "?view=json&filter_gte=n:3"),
                ("Change to: a contains x", "?view=json&filter_gte=n:3&filter_contains=a:x"),
                ("Search all fields for x", "?view=json&filter_gte=n:3&keywords=x"),
                ("Remove: n is at least 3", "?view=json&filter=a:x"),
                ("Show all entities", "?view=json"),
            ],
        );
        check(
            steps,
            "keywords=a,b&keywords_mode=and&filter=a:null",
            &[
                ("Match any of the keywords", "?keywords=a,b&filter=a:null"),
                ("Remove: a is null", "?keywords=a,b&keywords_mode=and"),
                ("Remove the keywords", "?filter=a:null"),
                ("Show all entities", ""),
            ],
        );
        check(
            steps,
            "filter=nope:1&filter=n:%3E%3D%201.5",
            &[
                ("Remove: nope is 1", "?filter=n:%3E%3D%201.5"),
                ("Search all fields for 1", "?filter=n:%3E%3D%201.5&keywords=1"),
                ("Remove: n is &gt;= 1.5", "?filter=nope:1"),
                ("Change to: n is at least 1.5", "?filter=nope:1&filter_gte=n:1.5"),
                ("Change to: n contains &gt;= 1.5", "?filter=nope:1&filter_contains=n:%3E%3D%201.5"),
                ("Search all fields for &gt;= 1.5", "?filter=nope:1&keywords=%3E%3D%201.5"),
                ("Show all entities", ""),
            ],
        );
        // Nobody sees a blank at the end of a value.
        let blank = "<span class=\"ctl\">U+0020</span>";
        check(
            steps,
            "filter=a:%20ok",
            &[
                (&format!("Remove: a is {blank}ok"), ""),
                ("Change to: a is ok", "?filter=a:ok"),
                (&format!("Change to: a contains {blank}ok"), "?filter_contains=a:%20ok"),
                (&format!("Search all fields for {blank}ok"), "?keywords=%20ok"),
                ("Show all entities", ""),
            ],
        );
    }
}
