//! Hints about conditions of a read that might mean something else than the client expects. `explain`, the tool `read`
//! and pages show hints for:
//!
//! - filters that find nothing, and whose value looks like a comparison, such as `a:>5`;
//! - filters that cannot find anything although their fields exist: filters for a path that contains only objects, and
//!   range filters for a type that no value at the path has (docs/reference/filters.md);
//! - a sort by a nested path, by objects, or by strings that look like numbers.

use std::fmt::{self, Display};
use std::sync::Arc;

use strata_format::profile::{PathFacts, ProfilePaths};
use strata_format::reader::VersionReader;
use strata_json::{NumericValue, RangeOperand};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, RangeBound, ReadRequest};

use crate::AuthorizedTarget;
use crate::read::ReadService;
use crate::read::unknown_fields::PermitWait;

/// Limit of the hints about filters, because a request can have a thousand range filters.
const MAX_FILTER_HINTS: usize = 10;
const MAX_SHOWN_CHARACTERS: usize = 80;

#[derive(Clone, Debug, Default)]
pub(crate) struct ComparableTypes {
    pub has_numbers: bool,
    pub has_strings: bool,
    pub has_booleans: bool,
    /// Whether the strings at the path look like numbers of several lengths, so that sorting them is misleading.
    pub has_numeric_strings: bool,
    pub has_nested: bool,
    /// The shortest path with comparable values below a path that has only objects.
    pub path_below: Option<String>,
}

impl ComparableTypes {
    /// Converts a profile's facts about a path. Does not set `path_below`, which requires a scan of all paths.
    pub(crate) fn from_facts(facts: PathFacts) -> Option<ComparableTypes> {
        let has_strings = facts.has_string?;
        Some(ComparableTypes {
            has_numbers: facts.has_number?,
            has_strings,
            has_booleans: facts.has_text? && !has_strings,
            has_numeric_strings: facts.has_numeric_strings.unwrap_or_default(),
            has_nested: facts.has_array? || facts.has_object?,
            path_below: None,
        })
    }

    /// Returns whether only a filter for null can match at the path: its values are objects or arrays of objects.
    pub(crate) fn is_nested_only(&self) -> bool {
        self.has_nested && !(self.has_numbers || self.has_strings || self.has_booleans)
    }
}

fn shortest_path_below<'a>(path: &str, comparable: impl Iterator<Item = &'a str>) -> Option<String> {
    let is_below = |other: &&str| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    comparable.filter(is_below).min_by_key(|other| (other.len(), *other)).map(str::to_owned)
}

const INFER_TYPES_ADVICE: &str = "If the source is csv or tsv, import it again with `infer_types` to get numbers.";

/// A hint about a filter that finds nothing, because no value at the path has the type of the filter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterHint {
    pub parameter: &'static str,
    pub filter: PathValue,
    pub reason: String,
    pub advice: Option<String>,
    pub suggested_value: Option<String>,
}

impl Display for FilterHint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)?;
        self.advice.iter().try_for_each(|advice| write!(formatter, " {advice}"))
    }
}

pub fn nested_sort_hint(nested_path: impl Display) -> String {
    format!("`sort` requires a top-level field, but {nested_path} is a nested path.")
}

fn sort_hint(request: &ReadRequest, types: impl Fn(&FieldPath) -> Option<ComparableTypes>) -> Option<String> {
    let sort = request.sort.as_ref()?;
    let field = FieldPath::from_keys([sort.field.as_str()]).ok()?;
    let field_types = types(&field)?;
    if field_types.is_nested_only() {
        return Some(format!(
            "`{field}` contains objects or arrays, but no strings, numbers, or booleans, so sorting by it changes \
             nothing."
        ));
    }
    (field_types.has_strings && field_types.has_numeric_strings && !field_types.has_nested).then(|| {
        format!(
            "`{field}` contains strings that look like numbers. Strings are sorted by code point, so `9` comes after \
             `10`. {INFER_TYPES_ADVICE}"
        )
    })
}

pub(crate) fn filter_and_sort_hints(
    request: &ReadRequest,
    entity_count: u64,
    types: impl Fn(&FieldPath) -> Option<ComparableTypes>,
) -> Vec<String> {
    let comparisons = request.filters.iter().filter(|_| entity_count == 0).filter_map(comparison_sign_hint);
    let filters = filter_hints(request, &types);
    let hints = comparisons.take(MAX_FILTER_HINTS).chain(filters.iter().map(FilterHint::to_string));
    hints.chain(sort_hint(request, &types)).collect()
}

fn comparison_sign_hint(PathValue { path, value }: &PathValue) -> Option<String> {
    let signs = [(">=", "filter_gte"), ("<=", "filter_lte"), (">", "filter_gt"), ("<", "filter_lt"), ("=", "filter")];
    let (parameter, rest) =
        signs.into_iter().find_map(|(sign, parameter)| Some((parameter, value.strip_prefix(sign)?)))?;
    let rest = if parameter == "filter" { rest.trim_start_matches('=') } else { rest };
    let shown = truncate_value(value);
    let rest = truncate_value(rest.trim_start());
    Some(format!("`filter={path}:{shown}` finds only the string `{shown}`. Did you mean `{parameter}={path}:{rest}`?"))
}

fn filter_hints(request: &ReadRequest, types: impl Fn(&FieldPath) -> Option<ComparableTypes>) -> Vec<FilterHint> {
    let values = [("filter", &request.filters), ("filter_contains", &request.contains_filters)];
    let values =
        values.into_iter().flat_map(|(parameter, filters)| filters.iter().map(move |filter| (parameter, filter)));
    // Filters for null are skipped before the type lookup of their paths, because a request can have a thousand.
    let values = values.filter(|(parameter, filter)| !can_match_null(parameter, filter));
    let values = values.filter_map(|(parameter, filter)| nested_hint(parameter, filter, &types(&filter.path)?));
    let ranges = RangeBound::ALL.into_iter().flat_map(|bound| {
        request.range_filters[bound as usize].iter().map(move |filter| (bound.parameter_name(), filter))
    });
    let ranges = ranges.filter_map(|(parameter, filter)| {
        let path_types = types(&filter.path)?;
        nested_hint(parameter, filter, &path_types).or_else(|| range_hint(parameter, filter, path_types))
    });
    values.chain(ranges).take(MAX_FILTER_HINTS).collect()
}

fn nested_hint(parameter: &'static str, filter: &PathValue, types: &ComparableTypes) -> Option<FilterHint> {
    if !types.is_nested_only() || can_match_null(parameter, filter) {
        return None;
    }
    let PathValue { path, value } = filter;
    Some(FilterHint {
        parameter,
        filter: filter.clone(),
        reason: format!(
            "`{path}` contains objects or arrays, but no strings, numbers, or booleans, so `{parameter}={path}:{}` \
             finds nothing.",
            truncate_value(value)
        ),
        advice: types.path_below.as_ref().map(|below| format!("Use a nested path, such as `{below}`.")),
        suggested_value: None,
    })
}

fn can_match_null(parameter: &str, filter: &PathValue) -> bool {
    parameter == "filter" && filter.value.eq_ignore_ascii_case("null")
}

fn range_hint(parameter: &'static str, filter: &PathValue, types: ComparableTypes) -> Option<FilterHint> {
    let PathValue { path, value } = filter;
    let shown = truncate_value(value);
    let other_type = |contained: &str, compared: &str| {
        format!(
            "`{path}` contains {contained}. `{parameter}={path}:{shown}` compares only {compared}, so it finds nothing."
        )
    };
    let no_type =
        |missing: &str| format!("`{path}` contains no {missing}, so `{parameter}={path}:{shown}` finds nothing.");
    let (reason, advice, meant) = match (RangeOperand::from_filter_value(value), types) {
        (
            RangeOperand::Number(_),
            ComparableTypes { has_numbers: false, has_strings: true, has_numeric_strings: true, .. },
        ) => (
            other_type("strings that look like numbers", "numbers"),
            Some(format!("{INFER_TYPES_ADVICE} Strings are compared by code point, so `9` comes after `10`.")),
            None,
        ),
        (RangeOperand::Number(_), ComparableTypes { has_numbers: false, has_strings: true, .. }) => (
            other_type("strings but no numbers", "numbers"),
            Some(format!("`{parameter}={path}:\"{shown}\"` compares strings by code point.")),
            Some(format!("\"{value}\"")),
        ),
        (RangeOperand::Number(_), ComparableTypes { has_numbers: false, has_strings: false, .. }) => {
            (no_type("numbers"), None, None)
        }
        (RangeOperand::String(_), ComparableTypes { has_numbers: true, has_strings: false, .. }) => {
            let meant = suggest_number(value);
            let advice = match &meant {
                Some(number) => format!("Did you mean `{parameter}={path}:{}`?", truncate_value(number)),
                None => "To compare numbers, use a JSON number, such as `1.5`.".to_owned(),
            };
            (other_type("numbers but no strings", "strings"), Some(advice), meant)
        }
        (RangeOperand::String(_), ComparableTypes { has_numbers: false, has_strings: false, .. }) => {
            (no_type("strings"), None, None)
        }
        _ => return None,
    };
    Some(FilterHint { parameter, filter: filter.clone(), reason, advice, suggested_value: meant })
}

/// Returns the number that a filter value probably means if it is quoted or has spaces, a plus sign or a decimal comma.
fn suggest_number(value: &str) -> Option<String> {
    let bare = value.trim().trim_matches('"').trim();
    let bare = bare.strip_prefix('+').unwrap_or(bare);
    let number = match bare.split_once(',') {
        // A comma before three digits might separate thousands.
        Some((_, decimals)) if decimals.len() == 3 => return None,
        Some((whole, decimals)) => format!("{whole}.{decimals}"),
        None => bare.to_owned(),
    };
    NumericValue::parse(&number).map(|_| number)
}

fn truncate_value(value: &str) -> String {
    match value.char_indices().nth(MAX_SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

impl ReadService {
    /// Returns hints for a read that finds nothing. The profile is read only if a permit for it is free at once.
    pub async fn empty_result_hints(&self, target: &AuthorizedTarget, request: &ReadRequest) -> Vec<String> {
        let paths = self.load_profile_paths(target, request).await;
        filter_and_sort_hints(request, 0, |path| comparable_types(paths.as_deref()?, path))
    }

    pub async fn filter_hints(&self, target: &AuthorizedTarget, request: &ReadRequest) -> Vec<FilterHint> {
        let paths = self.load_profile_paths(target, request).await;
        filter_hints(request, |path| comparable_types(paths.as_deref()?, path))
    }

    pub async fn sort_hint(&self, target: &AuthorizedTarget, request: &ReadRequest) -> Option<String> {
        let paths = self.load_profile_paths(target, request).await;
        sort_hint(request, |path| comparable_types(paths.as_deref()?, path))
    }

    async fn load_profile_paths(&self, target: &AuthorizedTarget, request: &ReadRequest) -> Option<Arc<ProfilePaths>> {
        if !has_filter_or_sort(request) {
            return None;
        }
        let reader = VersionReader::open_recorded(&self.store, &target.file, &self.cache).await.ok()?;
        self.load_path_index(&reader, target.principal, PermitWait::Skip).await.ok()?
    }
}

pub(crate) fn has_filter_or_sort(request: &ReadRequest) -> bool {
    let ReadRequest { filters, contains_filters, range_filters, sort, .. } = request;
    let has_ranges = range_filters.iter().any(|filters| !filters.is_empty());
    let has_filters = !filters.is_empty() || !contains_filters.is_empty() || has_ranges;
    has_filters || sort.is_some()
}

pub(crate) fn comparable_types(paths: &ProfilePaths, path: &FieldPath) -> Option<ComparableTypes> {
    let text = path.to_string();
    let mut types = ComparableTypes::from_facts(paths.get(&text)?)?;
    if types.is_nested_only() {
        let is_comparable = |path: &&str| {
            paths.get(path).is_some_and(|facts| facts.has_text == Some(true) || facts.has_number == Some(true))
        };
        types.path_below = shortest_path_below(&text, paths.paths().filter(is_comparable));
    }
    Some(types)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::read_request::SortField;

    #[test]
    fn value_of_other_type_gets_a_hint() {
        let types =
            |has_numbers, has_strings| ComparableTypes { has_numbers, has_strings, ..ComparableTypes::default() };
        for (value, types, words) in [
            ("60", types(false, true), Some("`filter_gt=a.b:\"60\"` compares strings by code point.")),
            ("60", types(false, false), Some("`a.b` contains no numbers, so")),
            ("60", types(true, true), None),
            ("60", types(true, false), None),
            ("\"60\"", types(false, true), None),
            ("\"60\"", types(true, false), Some("Did you mean `filter_gt=a.b:60`?")),
            ("abc", types(false, true), None),
            ("abc", types(true, false), Some("use a JSON number, such as `1.5`.")),
            ("abc", types(false, false), Some("`a.b` contains no strings, so")),
            ("1,5", types(true, false), Some("Did you mean `filter_gt=a.b:1.5`?")),
            ("1,500", types(true, false), Some("use a JSON number, such as `1.5`.")),
            (" +2", types(true, false), Some("Did you mean `filter_gt=a.b:2`?")),
            ("", types(true, false), Some("use a JSON number, such as `1.5`.")),
        ] {
            let filter = PathValue { path: FieldPath::parse("a.b").expect("a path"), value: value.to_owned() };
            let hint = range_hint("filter_gt", &filter, types).map(|hint| hint.to_string());
            match words {
                Some(words) => assert!(hint.as_ref().is_some_and(|hint| hint.contains(words)), "{value}: {hint:?}"),
                None => assert_eq!(hint, None, "{value}"),
            }
        }
        assert_eq!(truncate_value(&"ä".repeat(100)).chars().count(), MAX_SHOWN_CHARACTERS + 1);
    }

    #[test]
    fn numeric_strings_get_a_hint_about_types() {
        let has_numeric_strings = |_: &FieldPath| {
            Some(ComparableTypes { has_strings: true, has_numeric_strings: true, ..ComparableTypes::default() })
        };
        let path = FieldPath::parse("a").expect("a path");
        let filter = PathValue { path: path.clone(), value: "60".to_owned() };
        let hint = range_hint("filter_gt", &filter, has_numeric_strings(&path).expect("known")).expect("a hint");
        assert!(hint.to_string().contains("`infer_types`") && hint.suggested_value.is_none(), "{hint}");
        let sort = Some(SortField { field: "a".to_owned(), descending: true });
        let request = ReadRequest { sort, ..ReadRequest::default() };
        let hints = filter_and_sort_hints(&request, 1, has_numeric_strings);
        assert!(hints.len() == 1 && hints[0].starts_with("`a` contains strings that look like numbers"), "{hints:?}");
        for (has_numeric_strings, has_nested) in [(false, false), (true, true)] {
            let others = |_: &FieldPath| {
                Some(ComparableTypes {
                    has_numbers: true,
                    has_strings: true,
                    has_numeric_strings,
                    has_nested,
                    ..ComparableTypes::default()
                })
            };
            assert!(filter_and_sort_hints(&request, 1, others).is_empty());
        }
    }

    #[test]
    fn condition_on_objects_gets_a_nested_path() {
        let paths = ["name.official", "name.a.b", "name.common", "names", "name"];
        assert_eq!(shortest_path_below("name", paths.into_iter()).as_deref(), Some("name.a.b"));
        assert_eq!(shortest_path_below("names", paths.into_iter()), None);

        let path = FieldPath::parse("name").expect("a path");
        let nested = || ComparableTypes {
            has_nested: true,
            path_below: Some("name.a".to_owned()),
            ..ComparableTypes::default()
        };
        let hints_for = |value: &str, types: ComparableTypes| {
            let filter = PathValue { path: path.clone(), value: value.to_owned() };
            let range_filters = [vec![filter.clone()], vec![], vec![], vec![]];
            let filters = vec![filter.clone()];
            let contains_filters = vec![filter];
            let sort = Some(SortField { field: "name".to_owned(), descending: false });
            let request = ReadRequest { filters, contains_filters, range_filters, sort, ..ReadRequest::default() };
            filter_and_sort_hints(&request, 1, |_| Some(types.clone()))
        };
        let hints = hints_for("x", nested());
        assert_eq!(hints.len(), 4, "{hints:?}");
        for (hint, parameter) in hints.iter().zip(["filter", "filter_contains", "filter_gt"]) {
            assert!(hint.contains(&format!("so `{parameter}=name:x` finds nothing. Use a nested path")), "{hint}");
            assert!(hint.ends_with("such as `name.a`."), "{hint}");
        }
        assert!(hints[3].ends_with("so sorting by it changes nothing."), "{hints:?}");
        // `filter` can find nulls, but `filter_contains` and ranges cannot.
        let hints = hints_for("NULL", nested());
        assert!(hints.len() == 3 && hints[0].contains("so `filter_contains=name:NULL` finds nothing"), "{hints:?}");
        assert!(hints_for("nul", nested())[0].contains("so `filter=name:nul` finds nothing"));
        for types in [
            ComparableTypes { has_booleans: true, ..nested() },
            ComparableTypes { has_numbers: true, has_strings: true, ..nested() },
        ] {
            assert!(hints_for("x", types).iter().all(|hint| !hint.contains("objects")));
        }
    }

    #[test]
    fn filter_like_a_comparison_gets_a_hint() {
        for (value, meant) in [
            (">5", Some("filter_gt=a:5")),
            (">= 5", Some("filter_gte=a:5")),
            ("<5", Some("filter_lt=a:5")),
            ("<=5", Some("filter_lte=a:5")),
            ("==5", Some("filter=a:5")),
            ("5", None),
            ("a>5", None),
        ] {
            let filter = PathValue { path: FieldPath::parse("a").expect("a path"), value: value.to_owned() };
            let request = ReadRequest { filters: vec![filter], ..ReadRequest::default() };
            let hints = filter_and_sort_hints(&request, 0, |_| None);
            let expected = meant
                .map(|meant| format!("`filter=a:{value}` finds only the string `{value}`. Did you mean `{meant}`?"));
            assert_eq!(hints, Vec::from_iter(expected));
            assert!(filter_and_sort_hints(&request, 1, |_| None).is_empty());
        }
    }
}
