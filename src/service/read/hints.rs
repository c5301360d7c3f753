//! Hints about the conditions of a read that may have another meaning than the client expects. `explain`, the tool
//! `read` and pages show them for:
//!
//! - filters that find nothing, and whose value looks like a comparison;
//! - filters that find nothing in a version regardless of their value, but that `strict` accepts because their fields
//!   exist: filters for a path that ends in objects (docs/reference/filters.md, filter), and range filters that compare
//!   with a type that no value at their path has (docs/reference/filters.md, Range filters);
//! - a sort by a nested path, by objects, or by strings that look like numbers.

use std::fmt::{self, Display};
use std::sync::Arc;

use strata_format::profile::{PathFacts, PathIndex};
use strata_format::reader::VersionReader;
use strata_json::{NumericValue, RangeLimit};
use strata_types::path::Path;
use strata_types::request::{PathValue, RangeBound, ReadRequest};

use crate::Admitted;
use crate::read::Reads;

/// Maximum number of hints about filters. A request can have a thousand range filters.
const HINTS: usize = 10;

/// Characters of a limit that a hint shows.
const SHOWN_CHARACTERS: usize = 80;

#[derive(Clone, Debug, Default)]
pub(crate) struct Comparable {
    pub numbers: bool,
    pub texts: bool,
    pub booleans: bool,
    /// Whether the texts look like numbers of several lengths.
    pub numerals: bool,
    /// Whether there are arrays or objects, which no sort orders by.
    pub nested: bool,
    /// The shortest path below that contains comparable values, if there are only objects.
    pub below: Option<String>,
}

impl Comparable {
    /// Without `below`, which requires a scan of all paths.
    pub(crate) fn from_facts(facts: PathFacts) -> Option<Comparable> {
        let texts = facts.has_string?;
        Some(Comparable {
            numbers: facts.has_number?,
            texts,
            booleans: facts.has_text? && !texts,
            numerals: facts.has_numerals.unwrap_or_default(),
            nested: facts.has_array? || facts.has_object?,
            below: None,
        })
    }

    /// Whether only a filter for nulls can find anything, because there are only objects or arrays of them.
    pub(crate) fn is_nested_alone(&self) -> bool {
        self.nested && !(self.numbers || self.texts || self.booleans)
    }
}

/// The shortest path below `path`, and the first by name of several.
fn below<'a>(path: &str, comparable: impl Iterator<Item = &'a str>) -> Option<String> {
    let is_below = |other: &&str| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    comparable.filter(is_below).min_by_key(|other| (other.len(), *other)).map(str::to_owned)
}

/// Advice about strings that should be numbers.
const TYPED: &str = "If the source is csv or tsv, import it again with `infer_types` to get numbers.";

/// A hint about a filter that finds nothing, because no value at its path has the type that it compares with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterHint {
    pub parameter: &'static str,
    pub filter: PathValue,
    pub reason: String,
    pub advice: Option<String>,
    pub meant: Option<String>,
}

impl Display for FilterHint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)?;
        self.advice.iter().try_for_each(|advice| write!(formatter, " {advice}"))
    }
}

/// A hint about a sort by a nested path.
pub fn deep_sort_hint(nearest: impl Display) -> String {
    format!("`sort` requires a top-level field, but {nearest} is a nested path.")
}

/// A hint about a sort by objects, or by strings that look like numbers.
fn sort_hint(request: &ReadRequest, types: impl Fn(&Path) -> Option<Comparable>) -> Option<String> {
    let sort = request.sort.as_ref()?;
    let field = Path::from_keys([sort.field.as_str()]).ok()?;
    let held = types(&field)?;
    if held.is_nested_alone() {
        return Some(format!(
            "`{field}` contains objects or arrays, but no strings, numbers, or booleans, so sorting by it changes \
             nothing."
        ));
    }
    (held.texts && held.numerals && !held.nested).then(|| {
        format!(
            "`{field}` contains strings that look like numbers. Strings are sorted by code point, so `9` comes after \
             `10`. {TYPED}"
        )
    })
}

/// All hints about the conditions of a read. `types` returns the types at a path if they are known.
pub(crate) fn of_conditions(
    request: &ReadRequest,
    finds_nothing: bool,
    types: impl Fn(&Path) -> Option<Comparable>,
) -> Vec<String> {
    let comparisons = request.filters.iter().filter(|_| finds_nothing).filter_map(comparison);
    let filters = filters(request, &types);
    comparisons.take(HINTS).chain(filters.iter().map(FilterHint::to_string)).chain(sort_hint(request, &types)).collect()
}

fn comparison(PathValue { path, value }: &PathValue) -> Option<String> {
    let signs = [(">=", "filter_gte"), ("<=", "filter_lte"), (">", "filter_gt"), ("<", "filter_lt"), ("=", "filter")];
    let named = signs.into_iter().find_map(|(sign, parameter)| Some((parameter, value.strip_prefix(sign)?)));
    let (parameter, rest) = named?;
    let rest = if parameter == "filter" { rest.trim_start_matches('=') } else { rest };
    let shown = shorten(value);
    let rest = shorten(rest.trim_start());
    Some(format!("`filter={path}:{shown}` finds only the string `{shown}`. Did you mean `{parameter}={path}:{rest}`?"))
}

/// Hints about filters that compare with a type that no value at their path has.
fn filters(request: &ReadRequest, types: impl Fn(&Path) -> Option<Comparable>) -> Vec<FilterHint> {
    let values = [("filter", &request.filters), ("filter_contains", &request.filters_contain)];
    let values = values.into_iter().flat_map(|(parameter, filters)| filters.iter().map(move |one| (parameter, one)));
    // Before their types are looked up, because there may be a thousand of these.
    let values = values.filter(|(parameter, filter)| !may_find_nulls(parameter, filter));
    let values = values.filter_map(|(parameter, filter)| nested_hint(parameter, filter, &types(&filter.path)?));
    let ranges = RangeBound::ALL.into_iter().flat_map(|bound| {
        let filters = request.ranges[bound as usize].iter();
        filters.map(move |filter| (bound.parameter(), filter))
    });
    let ranges = ranges.filter_map(|(parameter, filter)| {
        let held = types(&filter.path)?;
        nested_hint(parameter, filter, &held).or_else(|| range_hint(parameter, filter, held))
    });
    values.chain(ranges).take(HINTS).collect()
}

fn nested_hint(parameter: &'static str, filter: &PathValue, held: &Comparable) -> Option<FilterHint> {
    if !held.is_nested_alone() || may_find_nulls(parameter, filter) {
        return None;
    }
    let PathValue { path, value } = filter;
    Some(FilterHint {
        parameter,
        filter: filter.clone(),
        reason: format!(
            "`{path}` contains objects or arrays, but no strings, numbers, or booleans, so `{parameter}={path}:{}` \
             finds nothing.",
            shorten(value)
        ),
        advice: held.below.as_ref().map(|below| format!("Use a nested path, such as `{below}`.")),
        meant: None,
    })
}

/// Whether a filter can find nulls, which can occur next to objects.
fn may_find_nulls(parameter: &str, filter: &PathValue) -> bool {
    parameter == "filter" && filter.value.eq_ignore_ascii_case("null")
}

fn range_hint(parameter: &'static str, filter: &PathValue, held: Comparable) -> Option<FilterHint> {
    let PathValue { path, value } = filter;
    let shown = shorten(value);
    let other_type = |holds: &str, compares: &str| {
        format!(
            "`{path}` contains {holds}. `{parameter}={path}:{shown}` compares only {compares}, so it finds nothing."
        )
    };
    let no_type = |what: &str| format!("`{path}` contains no {what}, so `{parameter}={path}:{shown}` finds nothing.");
    let (reason, advice, meant) = match (RangeLimit::of(value), held) {
        (RangeLimit::Number(_), Comparable { numbers: false, texts: true, numerals: true, .. }) => (
            other_type("strings that look like numbers", "numbers"),
            Some(format!("{TYPED} Strings are compared by code point, so `9` comes after `10`.")),
            None,
        ),
        (RangeLimit::Number(_), Comparable { numbers: false, texts: true, .. }) => (
            other_type("strings but no numbers", "numbers"),
            Some(format!("`{parameter}={path}:\"{shown}\"` compares strings by code point.")),
            Some(format!("\"{value}\"")),
        ),
        (RangeLimit::Number(_), Comparable { numbers: false, texts: false, .. }) => (no_type("numbers"), None, None),
        (RangeLimit::Text(_), Comparable { numbers: true, texts: false, .. }) => {
            let meant = number_meant(value);
            let advice = match &meant {
                Some(number) => format!("Did you mean `{parameter}={path}:{}`?", shorten(number)),
                None => "To compare numbers, use a JSON number, such as `1.5`.".to_owned(),
            };
            (other_type("numbers but no strings", "strings"), Some(advice), meant)
        }
        (RangeLimit::Text(_), Comparable { numbers: false, texts: false, .. }) => (no_type("strings"), None, None),
        _ => return None,
    };
    Some(FilterHint { parameter, filter: filter.clone(), reason, advice, meant })
}

/// The number that a limit may mean that is quoted, or has spaces, a plus sign or a decimal comma.
fn number_meant(value: &str) -> Option<String> {
    let bare = value.trim().trim_matches('"').trim();
    let bare = bare.strip_prefix('+').unwrap_or(bare);
    let number = match bare.split_once(',') {
        // The comma may separate thousands.
        Some((_, decimals)) if decimals.len() == 3 => return None,
        Some((whole, decimals)) => format!("{whole}.{decimals}"),
        None => bare.to_owned(),
    };
    NumericValue::parse(&number).map(|_| number)
}

fn shorten(value: &str) -> String {
    match value.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

impl Reads {
    /// Hints about the conditions of a read that finds nothing. For filters and sorts, this reads the paths of the
    /// profile, but waits for no permit. Without them, there are no hints about types.
    pub async fn hints(&self, admitted: &Admitted, request: &ReadRequest) -> Vec<String> {
        let paths = self.paths_for_types(admitted, request).await;
        of_conditions(request, true, |path| comparable(paths.as_deref()?, path))
    }

    /// Like [`Reads::hints`], about the filters of a read, regardless of what it finds.
    pub async fn filter_hints(&self, admitted: &Admitted, request: &ReadRequest) -> Vec<FilterHint> {
        let paths = self.paths_for_types(admitted, request).await;
        filters(request, |path| comparable(paths.as_deref()?, path))
    }

    /// Like [`Reads::hints`], about the sort of a read by a field that exists.
    pub async fn sort_hint(&self, admitted: &Admitted, request: &ReadRequest) -> Option<String> {
        let paths = self.paths_for_types(admitted, request).await;
        sort_hint(request, |path| comparable(paths.as_deref()?, path))
    }

    /// The paths of the profile if the read has filters or a sort.
    async fn paths_for_types(&self, admitted: &Admitted, request: &ReadRequest) -> Option<Arc<PathIndex>> {
        if !asks_for_types(request) {
            return None;
        }
        let reader = VersionReader::open_recorded(&self.store, &admitted.file, &self.cache).await.ok()?;
        self.path_index(&reader, admitted.holder, false).await.ok()?
    }
}

/// Whether the hints about a read depend on the types at its paths.
pub(crate) fn asks_for_types(request: &ReadRequest) -> bool {
    let ReadRequest { filters, filters_contain, ranges, sort, .. } = request;
    let has_filters = !filters.is_empty() || !filters_contain.is_empty() || ranges.iter().any(|of| !of.is_empty());
    has_filters || sort.is_some()
}

pub(crate) fn comparable(paths: &PathIndex, path: &Path) -> Option<Comparable> {
    let text = path.to_string();
    let mut held = Comparable::from_facts(paths.get(&text)?)?;
    if held.is_nested_alone() {
        let holds = |path: &&str| {
            paths.get(path).is_some_and(|facts| facts.has_text == Some(true) || facts.has_number == Some(true))
        };
        held.below = below(&text, paths.paths().filter(holds));
    }
    Some(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::request::Sort;

    #[test]
    fn limit_of_other_type_gets_a_hint() {
        let held = |numbers, texts| Comparable { numbers, texts, ..Comparable::default() };
        for (value, holds, words) in [
            ("60", held(false, true), Some("`filter_gt=a.b:\"60\"` compares strings by code point.")),
            ("60", held(false, false), Some("`a.b` contains no numbers, so")),
            ("60", held(true, true), None),
            ("60", held(true, false), None),
            ("\"60\"", held(false, true), None),
            ("\"60\"", held(true, false), Some("Did you mean `filter_gt=a.b:60`?")),
            ("abc", held(false, true), None),
            ("abc", held(true, false), Some("use a JSON number, such as `1.5`.")),
            ("abc", held(false, false), Some("`a.b` contains no strings, so")),
            ("1,5", held(true, false), Some("Did you mean `filter_gt=a.b:1.5`?")),
            ("1,500", held(true, false), Some("use a JSON number, such as `1.5`.")),
            (" +2", held(true, false), Some("Did you mean `filter_gt=a.b:2`?")),
            ("", held(true, false), Some("use a JSON number, such as `1.5`.")),
        ] {
            let filter = PathValue { path: Path::parse("a.b").expect("a path"), value: value.to_owned() };
            let hint = range_hint("filter_gt", &filter, holds).map(|hint| hint.to_string());
            match words {
                Some(words) => assert!(hint.as_ref().is_some_and(|hint| hint.contains(words)), "{value}: {hint:?}"),
                None => assert_eq!(hint, None, "{value}"),
            }
        }
        assert_eq!(shorten(&"ä".repeat(100)).chars().count(), SHOWN_CHARACTERS + 1);
    }

    #[test]
    fn numerals_get_a_hint_without_string_comparison() {
        let numerals = |_: &Path| Some(Comparable { texts: true, numerals: true, ..Comparable::default() });
        let path = Path::parse("a").expect("a path");
        let filter = PathValue { path: path.clone(), value: "60".to_owned() };
        let hint = range_hint("filter_gt", &filter, numerals(&path).expect("known")).expect("a hint");
        assert!(hint.to_string().contains("`infer_types`") && hint.meant.is_none(), "{hint}");
        let sort = Some(Sort { field: "a".to_owned(), descending: true });
        let request = ReadRequest { sort, ..ReadRequest::default() };
        let hints = of_conditions(&request, false, numerals);
        assert!(hints.len() == 1 && hints[0].starts_with("`a` contains strings that look like numbers"), "{hints:?}");
        for (numerals, nested) in [(false, false), (true, true)] {
            let others =
                |_: &Path| Some(Comparable { numbers: true, texts: true, numerals, nested, ..Comparable::default() });
            assert!(of_conditions(&request, false, others).is_empty());
        }
    }

    #[test]
    fn condition_on_objects_gets_a_nested_path() {
        let paths = ["name.official", "name.a.b", "name.common", "names", "name"];
        assert_eq!(below("name", paths.into_iter()).as_deref(), Some("name.a.b"));
        assert_eq!(below("names", paths.into_iter()), None);

        let path = Path::parse("name").expect("a path");
        let nested = || Comparable { nested: true, below: Some("name.a".to_owned()), ..Comparable::default() };
        let of = |value: &str, held: Comparable| {
            let filter = PathValue { path: path.clone(), value: value.to_owned() };
            let ranges = [vec![filter.clone()], vec![], vec![], vec![]];
            let filters = vec![filter.clone()];
            let filters_contain = vec![filter];
            let sort = Some(Sort { field: "name".to_owned(), descending: false });
            let request = ReadRequest { filters, filters_contain, ranges, sort, ..ReadRequest::default() };
            of_conditions(&request, false, |_| Some(held.clone()))
        };
        let hints = of("x", nested());
        assert_eq!(hints.len(), 4, "{hints:?}");
        for (hint, parameter) in hints.iter().zip(["filter", "filter_contains", "filter_gt"]) {
            assert!(hint.contains(&format!("so `{parameter}=name:x` finds nothing. Use a nested path")), "{hint}");
            assert!(hint.ends_with("such as `name.a`."), "{hint}");
        }
        assert!(hints[3].ends_with("so sorting by it changes nothing."), "{hints:?}");
        // Such a filter finds nulls, and those may be there. Others never do.
        let hints = of("NULL", nested());
        assert!(hints.len() == 3 && hints[0].contains("so `filter_contains=name:NULL` finds nothing"), "{hints:?}");
        assert!(of("nul", nested())[0].contains("so `filter=name:nul` finds nothing"));
        for held in [Comparable { booleans: true, ..nested() }, Comparable { numbers: true, texts: true, ..nested() }] {
            assert!(of("x", held).iter().all(|hint| !hint.contains("objects")));
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
            let filter = PathValue { path: Path::parse("a").expect("a path"), value: value.to_owned() };
            let request = ReadRequest { filters: vec![filter], ..ReadRequest::default() };
            let hints = of_conditions(&request, true, |_| None);
            let expected = meant
                .map(|meant| format!("`filter=a:{value}` finds only the string `{value}`. Did you mean `{meant}`?"));
            assert_eq!(hints, Vec::from_iter(expected));
            assert!(of_conditions(&request, false, |_| None).is_empty());
        }
    }
}
