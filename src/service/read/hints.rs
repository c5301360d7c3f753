//! What is said of the conditions of a read that were perhaps meant otherwise, in `explain`, by the tool `read` and on
//! pages:
//!
//! - filters whose value looks like a comparison, where nothing is found;
//! - filters that find nothing in a version whatever their value, which `strict` does not refuse, because their fields
//!   exist: those of a path that ends in objects alone (docs/reference/filters.md, filter), and range filters that
//!   compare with a type that no value at their path has (docs/reference/filters.md, Range filters);
//! - a sort by a path, by objects, or by texts that look like numbers.

use std::fmt::{self, Display};
use std::sync::Arc;

use strata_format::profile::{PathFacts, PathIndex};
use strata_format::reader::VersionReader;
use strata_json::{NumericValue, RangeLimit};
use strata_types::path::Path;
use strata_types::request::{PathValue, RangeBound, ReadRequest};

use crate::read::Reads;
use crate::{Admitted, ReadError, Weight};

/// Hints in an answer. A request may have a thousand range filters.
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
    /// Whether arrays or objects stand there, which no sort orders by, nor by what is in them.
    pub nested: bool,
    /// Where objects stand there and nothing that can be compared, the shortest path below that holds it.
    pub below: Option<String>,
}

impl Comparable {
    /// Without the path below it, for which all paths are looked through.
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

    /// Whether no filter but one for nulls finds anything there, because objects or arrays of them stand there alone.
    pub(crate) fn is_nested_alone(&self) -> bool {
        self.nested && !(self.numbers || self.texts || self.booleans)
    }
}

/// Of paths below one, the shortest, and of those the first by name.
fn below<'a>(path: &str, comparable: impl Iterator<Item = &'a str>) -> Option<String> {
    let is_below = |other: &&str| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    comparable.filter(is_below).min_by_key(|other| (other.len(), *other)).map(str::to_owned)
}

/// What to do with texts that are meant as numbers.
const TYPED: &str = "If the source is csv or tsv, import it again with `infer_types` to get numbers.";

/// What is said of a filter that finds nothing, because its path does not hold what it compares with.
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

/// A sentence for a sort by a path, which is perhaps this one.
pub fn deep_sort_hint(nearest: impl Display) -> String {
    format!("`sort` requires a top-level field, but {nearest} is a nested path.")
}

/// A sentence for a sort by objects, or by texts that look like numbers; `None` where it sorts by neither.
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

/// A sentence for each filter that looks like a comparison, of a read that finds nothing, for each filter whose path
/// does not hold what it compares with, and one for a sort that does not do what was perhaps meant. `types` tells what
/// a path holds, and nothing of one that it does not know.
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
    let (shown, rest) = (shorten(value), shorten(rest.trim_start()));
    Some(format!("`filter={path}:{shown}` finds only the string `{shown}`. Did you mean `{parameter}={path}:{rest}`?"))
}

/// What is said of each filter whose path does not hold what it compares with.
fn filters(request: &ReadRequest, types: impl Fn(&Path) -> Option<Comparable>) -> Vec<FilterHint> {
    let values = [("filter", &request.filters), ("filter_contains", &request.filters_contain)];
    let values = values.into_iter().flat_map(|(parameter, filters)| filters.iter().map(move |one| (parameter, one)));
    // Before anything is looked up: there may be a thousand of these, of which nothing is said.
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

/// Whether a filter may find nulls, which may stand beside objects: only one of whole values finds them.
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

/// The number that a limit perhaps means which is none: quoted, between blanks, with a plus or a decimal comma.
fn number_meant(value: &str) -> Option<String> {
    let bare = value.trim().trim_matches('"').trim();
    let bare = bare.strip_prefix('+').unwrap_or(bare);
    let number = match bare.split_once(',') {
        // It may as well separate thousands.
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
    /// What is to be said of the conditions of a read that finds nothing. Nothing of types where the profile does not
    /// tell them. Reads the paths of the profile for filters and sorts. Waits for nobody: a hint is not worth it.
    pub async fn hints(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Vec<String>, ReadError> {
        let paths = self.paths_for_types(admitted, request).await?;
        Ok(of_conditions(request, true, |path| comparable(paths.as_deref()?, path)))
    }

    /// What is to be said of the filters of a read, whatever it finds. As [`Reads::hints`] otherwise.
    pub async fn filter_hints(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Vec<FilterHint>, ReadError> {
        let paths = self.paths_for_types(admitted, request).await?;
        Ok(filters(request, |path| comparable(paths.as_deref()?, path)))
    }

    /// What is to be said of the sort of a read by a field that is there. As [`Reads::hints`] otherwise.
    pub async fn sort_hint(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Option<String>, ReadError> {
        let paths = self.paths_for_types(admitted, request).await?;
        Ok(sort_hint(request, |path| comparable(paths.as_deref()?, path)))
    }

    /// The paths of the profile if the read has filters or a sort, and they are cached or a permit is free.
    async fn paths_for_types(
        &self,
        admitted: &Admitted,
        request: &ReadRequest,
    ) -> Result<Option<Arc<PathIndex>>, ReadError> {
        if !asks_for_types(request) {
            return Ok(None);
        }
        let reader = VersionReader::open_recorded(&self.store, &admitted.file, &self.cache).await?;
        if let Some(paths) = reader.cached_paths().await {
            return Ok(Some(paths));
        }
        match self.capacity.admission.of(admitted.holder).try_query(Weight::Light) {
            Some(_permit) => Ok(Some(reader.paths().await?)),
            None => Ok(None),
        }
    }
}

/// Whether what is said of the conditions of a read depends on what their paths hold.
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
    fn a_limit_of_the_other_type_is_named_with_what_to_write() {
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
    fn texts_that_look_like_numbers_are_told_and_lead_to_no_comparison_of_texts() {
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
    fn conditions_on_objects_are_told_with_a_path_below() {
        let paths = ["name.official", "name.a.b", "name.common", "names", "name"];
        assert_eq!(below("name", paths.into_iter()).as_deref(), Some("name.a.b"));
        assert_eq!(below("names", paths.into_iter()), None);

        let path = Path::parse("name").expect("a path");
        let nested = || Comparable { nested: true, below: Some("name.a".to_owned()), ..Comparable::default() };
        let of = |value: &str, held: Comparable| {
            let filter = PathValue { path: path.clone(), value: value.to_owned() };
            let ranges = [vec![filter.clone()], vec![], vec![], vec![]];
            let (filters, filters_contain) = (vec![filter.clone()], vec![filter]);
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
    fn a_filter_that_looks_like_a_comparison_is_told_as_one() {
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
