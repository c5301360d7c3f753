//! What is said of the conditions of a read that were perhaps meant otherwise, in `explain`, by the tool `read` and on
//! pages:
//!
//! - filters whose value looks like a comparison, where nothing is found;
//! - range filters that find nothing in a version whatever their limit: they compare with a type that no value at their
//!   path has (docs/semantics.md, Range filters). `strict` does not refuse them, because their fields exist;
//! - a sort by a path, or by texts that look like numbers.

use std::fmt::{self, Display};
use std::sync::Arc;

use crate::document::{NumericValue, RangeLimit};
use crate::model::path::Path;
use crate::model::request::{PathValue, RangeBound, ReadRequest};
use crate::service::admission::Weight;
use crate::service::lookup::Admitted;
use crate::service::lookup::error::ReadError;
use crate::service::read::Reads;
use crate::storage::profile::PathIndex;
use crate::storage::reader::VersionReader;

/// Hints in an answer. A request may have a thousand range filters.
const HINTS: usize = 10;

/// Characters of a limit that a hint shows.
const SHOWN_CHARACTERS: usize = 80;

/// Which of the types that range filters compare stand at a path.
#[derive(Clone, Copy, Debug)]
pub(in crate::service) struct Comparable {
    pub numbers: bool,
    pub texts: bool,
    /// Whether the texts look like numbers of several lengths.
    pub numerals: bool,
    /// Whether arrays or objects stand there, which no sort orders by, nor by what is in them.
    pub nested: bool,
}

/// What to do with texts that are meant as numbers.
const TYPED: &str = "With `infer_types`, another import of a csv or tsv has numbers there.";

/// What is said of a range filter that finds nothing, because it compares with a type that its path does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeHint {
    /// The parameter of the filter.
    pub parameter: &'static str,
    /// Its path and its limit, as they came.
    pub filter: PathValue,
    /// Why it finds nothing, as a sentence.
    pub reason: String,
    /// What to write, as a sentence.
    pub advice: Option<String>,
    /// The limit that was perhaps meant.
    pub meant: Option<String>,
}

impl Display for RangeHint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)?;
        self.advice.iter().try_for_each(|advice| write!(formatter, " {advice}"))
    }
}

/// A sentence for a sort by a path, which is perhaps this one.
pub fn deep_sort_hint(nearest: impl Display) -> String {
    format!("sort takes one top-level field, and {nearest} is a path.")
}

/// A sentence for a sort by texts that look like numbers; `None` where it sorts by nothing of that kind.
fn numerals_hint(request: &ReadRequest, types: impl Fn(&Path) -> Option<Comparable>) -> Option<String> {
    let sort = request.sort.as_ref()?;
    let field = Path::from_keys([sort.field.as_str()]).ok()?;
    types(&field).filter(|held| held.texts && held.numerals && !held.nested)?;
    Some(format!(
        "`{field}` holds texts that look like numbers, and texts are sorted by code point: `9` comes after `10`. {TYPED}"
    ))
}

/// A sentence for each filter that looks like a comparison, of a read that finds nothing, and for each range filter
/// whose path holds no value of its limit's type, and one for a sort by texts that look like numbers. `types` tells
/// what a path holds, and nothing of one that it does not know.
pub(in crate::service) fn of_conditions(
    request: &ReadRequest,
    finds_nothing: bool,
    types: impl Fn(&Path) -> Option<Comparable>,
) -> Vec<String> {
    let comparisons = request.filters.iter().filter(|_| finds_nothing).filter_map(comparison);
    let ranges = ranges(request, &types);
    comparisons
        .take(HINTS)
        .chain(ranges.iter().map(RangeHint::to_string))
        .chain(numerals_hint(request, &types))
        .collect()
}

/// What is said of a filter whose value looks like a comparison.
fn comparison(PathValue { path, value }: &PathValue) -> Option<String> {
    let (parameter, rest) = if let Some(rest) = value.strip_prefix(">=") {
        ("filter_gte", rest)
    } else if let Some(rest) = value.strip_prefix("<=") {
        ("filter_lte", rest)
    } else if let Some(rest) = value.strip_prefix('>') {
        ("filter_gt", rest)
    } else if let Some(rest) = value.strip_prefix('<') {
        ("filter_lt", rest)
    } else {
        ("filter", value.strip_prefix('=')?.trim_start_matches('='))
    };
    let (shown, rest) = (shorten(value), shorten(rest.trim_start()));
    Some(format!("`filter={path}:{shown}` finds the text `{shown}` alone. Did you mean `{parameter}={path}:{rest}`?"))
}

/// What is said of each range filter whose path holds no value of its limit's type.
fn ranges(request: &ReadRequest, types: impl Fn(&Path) -> Option<Comparable>) -> Vec<RangeHint> {
    let filters = RangeBound::ALL.into_iter().flat_map(|bound| {
        let filters = request.ranges[bound as usize].iter();
        filters.map(move |filter| (bound.parameter(), filter))
    });
    let hints = filters.filter_map(|(parameter, filter)| hint(parameter, filter, types(&filter.path)?));
    hints.take(HINTS).collect()
}

fn hint(parameter: &'static str, filter: &PathValue, held: Comparable) -> Option<RangeHint> {
    let PathValue { path, value } = filter;
    let shown = shorten(value);
    let (reason, advice, meant) = match (RangeLimit::of(value), held) {
        (RangeLimit::Number(_), Comparable { numbers: false, texts: true, numerals: true, .. }) => (
            format!(
                "`{path}` holds texts that look like numbers, and `{parameter}={path}:{shown}` compares numbers alone, \
                 so it finds nothing."
            ),
            Some(format!("{TYPED} Texts are compared by code point: `9` comes after `10`.")),
            None,
        ),
        (RangeLimit::Number(_), Comparable { numbers: false, texts: true, .. }) => (
            format!(
                "`{path}` holds texts and no numbers, and `{parameter}={path}:{shown}` compares numbers alone, so it \
                 finds nothing."
            ),
            Some(format!("`{parameter}={path}:\"{shown}\"` compares texts, by code point.")),
            Some(format!("\"{value}\"")),
        ),
        (RangeLimit::Number(_), Comparable { numbers: false, texts: false, .. }) => {
            (format!("`{path}` holds no numbers, so `{parameter}={path}:{shown}` finds nothing."), None, None)
        }
        (RangeLimit::Text(_), Comparable { numbers: true, texts: false, .. }) => {
            let meant = number_meant(value);
            let advice = match &meant {
                Some(number) => format!("Did you mean `{parameter}={path}:{}`?", shorten(number)),
                None => "The limit of numbers is a JSON number, such as `1.5`.".to_owned(),
            };
            let reason = format!(
                "`{path}` holds numbers and no texts, and `{parameter}={path}:{shown}` compares texts alone, so it \
                 finds nothing."
            );
            (reason, Some(advice), meant)
        }
        (RangeLimit::Text(_), Comparable { numbers: false, texts: false, .. }) => {
            (format!("`{path}` holds no texts, so `{parameter}={path}:{shown}` finds nothing."), None, None)
        }
        _ => return None,
    };
    Some(RangeHint { parameter, filter: filter.clone(), reason, advice, meant })
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
    /// tell them. Reads the paths of the profile for range filters and sorts. Waits for nobody: a hint is not worth it.
    ///
    /// # Errors
    /// [`ReadError`], of the file.
    pub async fn hints(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Vec<String>, ReadError> {
        let paths = self.paths_for_types(admitted, request).await?;
        Ok(of_conditions(request, true, |path| comparable(paths.as_deref()?, path)))
    }

    /// What is to be said of the range filters of a read, whatever it finds. As [`Reads::hints`] otherwise.
    ///
    /// # Errors
    /// [`ReadError`], of the file.
    pub async fn range_hints(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Vec<RangeHint>, ReadError> {
        let paths = self.paths_for_types(admitted, request).await?;
        Ok(ranges(request, |path| comparable(paths.as_deref()?, path)))
    }

    /// What is to be said of the sort of a read by a field that is there. As [`Reads::hints`] otherwise.
    ///
    /// # Errors
    /// [`ReadError`], of the file.
    pub async fn sort_hint(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Option<String>, ReadError> {
        let paths = self.paths_for_types(admitted, request).await?;
        Ok(numerals_hint(request, |path| comparable(paths.as_deref()?, path)))
    }

    /// The paths of the profile, where the read has range filters or a sort, and they are at hand or there is a permit
    /// at once.
    async fn paths_for_types(
        &self,
        admitted: &Admitted,
        request: &ReadRequest,
    ) -> Result<Option<Arc<PathIndex>>, ReadError> {
        if request.sort.is_none() && request.ranges.iter().all(|filters| filters.is_empty()) {
            return Ok(None);
        }
        let reader = VersionReader::open_recorded(&self.store, &admitted.file, &self.cache).await?;
        if let Some(paths) = reader.cached_paths().await {
            return Ok(Some(paths));
        }
        match self.capacity.admission().of(admitted.holder).try_query(Weight::Light) {
            Some(_permit) => Ok(reader.paths().await?),
            None => Ok(None),
        }
    }
}

/// What a path holds, where the profile tells it.
fn comparable(paths: &PathIndex, path: &Path) -> Option<Comparable> {
    let facts = paths.get(&path.to_string())?;
    let numerals = facts.has_numerals.unwrap_or_default();
    let nested = facts.has_array? || facts.has_object?;
    Some(Comparable { numbers: facts.has_number?, texts: facts.has_string?, numerals, nested })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::request::Sort;

    #[test]
    fn a_limit_of_the_other_type_is_named_with_what_to_write() {
        let held = |numbers, texts| Comparable { numbers, texts, numerals: false, nested: false };
        for (value, holds, words) in [
            ("60", held(false, true), Some("`filter_gt=a.b:\"60\"` compares texts, by code point.")),
            ("60", held(false, false), Some("`a.b` holds no numbers, so")),
            ("60", held(true, true), None),
            ("60", held(true, false), None),
            ("\"60\"", held(false, true), None),
            ("\"60\"", held(true, false), Some("Did you mean `filter_gt=a.b:60`?")),
            ("abc", held(false, true), None),
            ("abc", held(true, false), Some("is a JSON number, such as `1.5`.")),
            ("abc", held(false, false), Some("`a.b` holds no texts, so")),
            ("1,5", held(true, false), Some("Did you mean `filter_gt=a.b:1.5`?")),
            ("1,500", held(true, false), Some("is a JSON number, such as `1.5`.")),
            (" +2", held(true, false), Some("Did you mean `filter_gt=a.b:2`?")),
            ("", held(true, false), Some("is a JSON number, such as `1.5`.")),
        ] {
            let filter = PathValue { path: Path::parse("a.b").expect("a path"), value: value.to_owned() };
            let hint = hint("filter_gt", &filter, holds).map(|hint| hint.to_string());
            match words {
                Some(words) => assert!(hint.as_ref().is_some_and(|hint| hint.contains(words)), "{value}: {hint:?}"),
                None => assert_eq!(hint, None, "{value}"),
            }
        }
        assert_eq!(shorten(&"ä".repeat(100)).chars().count(), SHOWN_CHARACTERS + 1);
    }

    #[test]
    fn texts_that_look_like_numbers_are_told_and_lead_to_no_comparison_of_texts() {
        let numerals = |_: &Path| Some(Comparable { numbers: false, texts: true, numerals: true, nested: false });
        let path = Path::parse("a").expect("a path");
        let filter = PathValue { path: path.clone(), value: "60".to_owned() };
        let hint = hint("filter_gt", &filter, numerals(&path).expect("known")).expect("a hint");
        assert!(hint.to_string().contains("`infer_types`") && hint.meant.is_none(), "{hint}");
        let sort = Some(Sort { field: "a".to_owned(), descending: true });
        let request = ReadRequest { sort, ..ReadRequest::default() };
        let hints = of_conditions(&request, false, numerals);
        assert!(hints.len() == 1 && hints[0].starts_with("`a` holds texts that look like numbers"), "{hints:?}");
        for (numerals, nested) in [(false, false), (true, true)] {
            let others = |_: &Path| Some(Comparable { numbers: true, texts: true, numerals, nested });
            assert!(of_conditions(&request, false, others).is_empty());
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
                .map(|meant| format!("`filter=a:{value}` finds the text `{value}` alone. Did you mean `{meant}`?"));
            assert_eq!(hints, Vec::from_iter(expected));
            assert!(of_conditions(&request, false, |_| None).is_empty());
        }
    }
}
