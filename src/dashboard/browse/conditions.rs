//! The query in words: links that remove one part of it, and suggestions if no entity matches.

use std::fmt;

use askama::filters::HtmlSafe;
use strata_types::field_path::FieldPath;
use strata_types::read_request::RangeBound;

use super::links::{BrowseLinks, FILTER_PARAM};
use super::{COLUMNS_PARAM, ENTITIES_PER_PAGE, VIEW_PARAM};
use crate::query_params::{QueryParams, is_true_value};
use crate::safe_text::SafeText;

/// The query parameters that are conditions, with the words that the page shows between path and value.
pub(super) const CONDITION_OPERATORS: [(&str, &str); 7] = [
    (FILTER_PARAM, "is"),
    (CONTAINS_PARAM, "contains"),
    (RangeBound::Greater.parameter_name(), "is greater than"),
    (RangeBound::GreaterOrEqual.parameter_name(), "is at least"),
    (RangeBound::Less.parameter_name(), "is less than"),
    (RangeBound::LessOrEqual.parameter_name(), "is at most"),
    (NULL_OPERATOR, "is null"),
];

/// The operator "is null" of the query form, which a request expresses by [`FILTER_PARAM`] with the value `null`.
pub(super) const NULL_OPERATOR: &str = "null";

const CONTAINS_PARAM: &str = "filter_contains";
pub(super) const KEYWORDS_PARAM: &str = "keywords";
const KEYWORDS_MODE_PARAM: &str = "keywords_mode";
pub(super) const MAX_VALUE_CHARACTERS: usize = 60;
const MAX_TITLE_CHARACTERS: usize = 80;
pub(super) const MAX_QUERY_PARTS: usize = 20;

pub(super) fn operator_label(parameter: &str) -> Option<&'static str> {
    let is_shown = |(name, _): &&(&str, &str)| *name == parameter && parameter != NULL_OPERATOR;
    CONDITION_OPERATORS.iter().find(is_shown).map(|(_, label)| *label)
}

pub(super) struct SuggestedQuery {
    pub(super) words: ConditionText,
    pub(super) href: String,
}

#[derive(Default)]
pub(super) struct ConditionText(Vec<SafeText>);

impl HtmlSafe for ConditionText {}

impl fmt::Display for ConditionText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.iter().map(SafeText::to_string).collect::<Vec<_>>().join(" "))
    }
}

impl ConditionText {
    fn plain_text(&self) -> String {
        self.0.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn with_words(mut self, words: &str) -> ConditionText {
        self.0.extend((!words.is_empty()).then(|| SafeText::from_text(words).without_bdi()));
        self
    }

    fn with_value(mut self, value: &str) -> ConditionText {
        self.0.push(SafeText::with_ellipsis(value, MAX_VALUE_CHARACTERS).with_visible_edges());
        self
    }

    fn from_words(words: &str) -> ConditionText {
        ConditionText::default().with_words(words)
    }

    /// Describes a condition: `region is Europe`. Returns `None` if `parameter` is not a condition.
    fn for_condition(before: &str, parameter: &str, condition: &str) -> Option<ConditionText> {
        let label = operator_label(parameter)?;
        let mut words = ConditionText::from_words(before);
        let value = match FieldPath::parse_path_value(condition) {
            Ok((path, value)) => {
                words.0.push(SafeText::with_ellipsis(&path.to_string(), MAX_VALUE_CHARACTERS));
                value
            }
            Err(_) => condition,
        };
        Some(words.with_words(label).with_value(value))
    }
}

pub(super) struct ActiveQuery {
    /// Each part of the query in words, and the URL of the page without the part. The URL is `None` if the query is too
    /// long to be repeated in links.
    pub(super) parts: Vec<(ConditionText, Option<String>)>,
    pub(super) omitted_parts: usize,
}

pub(super) fn describe_active_query(links: &BrowseLinks<'_>) -> ActiveQuery {
    let part = |(index, (name, value)): (usize, &(String, String))| {
        let words = match name.as_str() {
            "sort" => {
                let (field, direction) = value.rsplit_once(':').unwrap_or((value, ""));
                let order = if direction == "desc" { "descending" } else { "" };
                ConditionText::from_words("sorted by").with_value(field).with_words(order)
            }
            "dedup" if is_true_value(value) => match links.query.values("dedup_key").collect::<Vec<_>>().join(", ") {
                keys if keys.is_empty() => ConditionText::from_words("without duplicates"),
                keys => ConditionText::from_words("without duplicates by").with_value(&keys),
            },
            "limit" if value.parse().is_ok_and(|limit: u64| limit != ENTITIES_PER_PAGE) => {
                ConditionText::default().with_value(value).with_words("per page")
            }
            "denull" if is_true_value(value) => ConditionText::from_words("without nulls and empty strings"),
            "flatten" if is_true_value(value) => ConditionText::from_words("flattened"),
            "include_source" if !is_true_value(value) => ConditionText::from_words("without _source"),
            "count" if is_true_value(value) => ConditionText::from_words("count only"),
            "sample" => ConditionText::from_words("random sample of").with_value(value),
            "keep_field" => ConditionText::from_words("only the fields").with_value(value),
            "drop_field" => ConditionText::from_words("without the fields").with_value(value),
            COLUMNS_PARAM => ConditionText::from_words("only the columns").with_value(value),
            parameter => ConditionText::for_condition("", parameter, value)?,
        };
        Some((index, words))
    };
    let href = |index: usize| {
        let rest = match links.query.pairs()[index].0.as_str() {
            "dedup" => links.query.without(&["dedup", "dedup_key"]),
            "sample" => links.query.without(&["sample", "seed"]),
            _ => links.query.without_index(index),
        };
        links.first_page_url(&rest)
    };
    let mut parts: Vec<(usize, ConditionText)> = links.query.pairs().iter().enumerate().filter_map(part).collect();
    let omitted_parts = parts.len().saturating_sub(MAX_QUERY_PARTS);
    parts.truncate(MAX_QUERY_PARTS);
    ActiveQuery { parts: parts.into_iter().map(|(index, words)| (words, href(index))).collect(), omitted_parts }
}

pub(super) fn query_title(links: &BrowseLinks<'_>, active_query: &ActiveQuery) -> String {
    let keywords =
        links.query.values(KEYWORDS_PARAM).filter(|list| !list.trim().is_empty()).map(|list| format!("“{list}”"));
    let parts: Vec<String> = keywords.chain(active_query.parts.iter().map(|(words, _)| words.plain_text())).collect();
    let text = parts.join(", ");
    match text.char_indices().nth(MAX_TITLE_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Suggests queries that change one part of a query without matches. Conditions on `absent` paths are only removed.
pub(super) fn suggest_queries(links: &BrowseLinks<'_>, absent: &[FieldPath]) -> Vec<SuggestedQuery> {
    let query = &links.query;
    let mut suggestions = Vec::new();
    let mut add = |words: ConditionText, query: &QueryParams| {
        suggestions.extend(links.first_page_url(query).map(|href| SuggestedQuery { words, href }));
    };
    let keywords: Vec<&str> = query.values(KEYWORDS_PARAM).flat_map(|list| list.split(',')).collect();
    let keywords = keywords.iter().filter(|word| !word.trim().is_empty()).count();
    if keywords > 1 && query.first(KEYWORDS_MODE_PARAM).is_some_and(|mode| mode == "and") {
        add(ConditionText::from_words("Match any of the keywords"), &query.without(&[KEYWORDS_MODE_PARAM]));
    }
    for (index, (name, condition)) in query.pairs().iter().enumerate() {
        let Some(words) = ConditionText::for_condition("Remove:", name, condition) else { continue };
        let rest = query.without_index(index);
        add(words, &rest);
        let Ok((path, value)) = FieldPath::parse_path_value(condition) else { continue };
        let exists = !absent.contains(&path);
        let change = |name: &str, condition: &str| {
            ConditionText::for_condition("Change to:", name, condition).unwrap_or_default()
        };
        if let Some((range, limit)) = parse_comparison(value).filter(|_| name == FILTER_PARAM && exists) {
            let range_condition = format!("{path}:{limit}");
            add(change(range, &range_condition), &rest.clone().with_added(range, &range_condition));
        }
        let is_text_search = matches!(name.as_str(), FILTER_PARAM | CONTAINS_PARAM);
        if exists && is_text_search && !value.trim().is_empty() && value.trim() != value {
            let trimmed = format!("{path}:{}", value.trim());
            add(change(name, &trimmed), &rest.clone().with_added(name, &trimmed));
        }
        let is_searchable = !(value.trim().is_empty() || value.eq_ignore_ascii_case("null"));
        if name == FILTER_PARAM && is_searchable && exists {
            add(change(CONTAINS_PARAM, condition), &rest.clone().with_added(CONTAINS_PARAM, condition));
        }
        if is_text_search && is_searchable && !value.contains(',') && keywords == 0 {
            let words = ConditionText::from_words("Search all fields for").with_value(value);
            add(words, &rest.with_added(KEYWORDS_PARAM, value));
        }
    }
    if keywords > 0 {
        add(ConditionText::from_words("Remove the keywords"), &query.without(&[KEYWORDS_PARAM, KEYWORDS_MODE_PARAM]));
    }
    suggestions.truncate(MAX_QUERY_PARTS - 1);
    let all = QueryParams::default().with_optional(VIEW_PARAM, query.first(VIEW_PARAM));
    suggestions
        .push(SuggestedQuery { words: ConditionText::from_words("Show all entities"), href: links.page_url(&all) });
    suggestions
}

/// Parses a filter value such as `>100` or `<= 7`, which was probably meant as a range. Returns parameter and number.
fn parse_comparison(value: &str) -> Option<(&'static str, &str)> {
    use RangeBound::{Greater, GreaterOrEqual, Less, LessOrEqual};
    let signs = [(">=", GreaterOrEqual), ("<=", LessOrEqual), (">", Greater), ("<", Less)];
    let value = value.trim();
    let mut ranges = signs.into_iter().filter_map(|(sign, bound)| Some((bound, value.strip_prefix(sign)?.trim())));
    let (bound, number) = ranges.next()?;
    let is_number = serde_json::from_str::<serde_json::Number>(number).is_ok();
    is_number.then_some((bound.parameter_name(), number))
}
