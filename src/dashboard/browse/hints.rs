//! Hints about unknown parameters and fields, and about filters that find nothing, with a link to what was perhaps
//! meant.

use strata_http::params::{self, UnknownParameter};
use strata_http::visit::quoted;
use strata_service::{FilterHint, UnknownCause, UnknownField, deep_sort_hint};
use strata_types::path::Path;
use strata_types::request::ReadRequest;

use super::links::Links;
use super::{COLUMNS, conditions};
use crate::context::Opened;
use crate::safe_text::Sentence;
use crate::visit::Visit;

const FIELDS: usize = 10;

pub(super) struct Hint {
    pub(super) text: Sentence,
    /// A question, and the page that it leads to.
    pub(super) meant: Option<(Sentence, Option<String>)>,
}

impl Hint {
    pub(super) fn for_parameter(parameter: &UnknownParameter, links: &Links<'_>) -> Hint {
        let name = parameter.0.as_str();
        let nearest = strata_types::similar::nearest(name, params::PARAMETERS.iter().map(|parameter| parameter.name));
        let renamed = |nearest: &str| {
            links.query.mapped(|given, value| (given == name).then(|| (nearest.to_owned(), value.to_owned())))
        };
        let text = format!("This page ignores the unknown parameter {}.", quoted(name));
        let meant = nearest.map(|one| (format!("Did you mean {one}?"), links.beginning_of(&renamed(one))));
        Hint::new(&text, meant)
    }

    fn new(text: &str, meant: Option<(String, Option<String>)>) -> Hint {
        Hint { text: Sentence::new(text), meant: meant.map(|(question, href)| (Sentence::new(&question), href)) }
    }

    fn for_deep_column(path: &Path, links: &Links<'_>) -> Hint {
        let path = quoted(&path.to_string());
        let text = format!("A table has columns only for top-level fields, but {path} is nested.");
        let flattened = links.beginning_of(&links.query.with("flatten", true));
        Hint::new(&text, Some(("Show a column for each nested field".to_owned(), flattened)))
    }

    fn for_field(field: &UnknownField, links: &Links<'_>) -> Hint {
        if let Some(nearest) = field.deep_sort() {
            return Hint::new(&deep_sort_hint(quoted(nearest)), None);
        }
        let path = quoted(&field.path.to_string());
        let parameter = field.parameter;
        let (text, nearest) = match &field.cause {
            UnknownCause::Absent { nearest } => {
                (format!("No entity has the field {path} ({parameter})."), nearest.as_deref())
            }
            UnknownCause::Taken { step } => {
                (format!("{step} removes {path} from every entity before {parameter} is applied."), None)
            }
        };
        let meant = nearest.map(|nearest| {
            let query = links.query.mapped(|name, value| {
                let corrected = (name == parameter).then(|| corrected(name, value, &field.path, nearest)).flatten();
                corrected.map(|value| (name.to_owned(), value))
            });
            let href = (query != links.query).then(|| links.beginning_of(&query)).flatten();
            (format!("Did you mean {}?", quoted(nearest)), href)
        });
        Hint::new(&text, meant)
    }

    fn for_filter(FilterHint { parameter, filter, reason, advice, meant }: FilterHint, links: &Links<'_>) -> Hint {
        let href = meant.and_then(|meant| {
            let query = links.query.mapped(|name, value| {
                let (path, rest) = Path::parse_prefix(value).ok().filter(|_| name == parameter)?;
                let is_it = path == filter.path && rest == filter.value;
                is_it.then(|| (name.to_owned(), format!("{path}:{meant}")))
            });
            (query != links.query).then(|| links.beginning_of(&query)).flatten()
        });
        Hint::new(&reason, advice.map(|advice| (advice, href)))
    }
}

/// The value of a parameter with its wrong path replaced; `None` if the value does not contain the path.
fn corrected(parameter: &str, value: &str, wrong: &Path, right: &str) -> Option<String> {
    if conditions::label(parameter).is_some() {
        let (_, rest) = Path::parse_prefix(value).ok().filter(|(path, _)| path == wrong)?;
        return Some(format!("{right}:{rest}"));
    }
    if parameter == "sort" {
        // A sort names its field without escapes.
        let path = Path::parse(right).ok()?;
        let [right] = path.keys() else { return None };
        let (field, direction) = value.rsplit_once(':').map_or((value, None), |(field, rest)| (field, Some(rest)));
        let is_wrong = matches!(wrong.keys(), [only] if only == field);
        return is_wrong.then(|| direction.map_or(right.clone(), |direction| format!("{right}:{direction}")));
    }
    let paths = Path::parse_list(value);
    let corrected = paths.iter().map(|path| if path == wrong { right.to_owned() } else { path.to_string() });
    paths.contains(wrong).then(|| corrected.collect::<Vec<_>>().join(","))
}

/// Hints about absent fields and about filters and sorts, and the paths that no entity has.
pub(super) async fn for_fields(
    visit: &Visit,
    opened: &Opened,
    request: &ReadRequest,
    links: &Links<'_>,
) -> (Vec<Hint>, Vec<Path>) {
    let reads = &visit.services.reads;
    let admitted = &opened.admitted;
    // A strict read has been refused.
    let unknown = match request.strict {
        true => Vec::new(),
        false => reads.explained_unknown_fields(admitted, request).await,
    };
    let mut hints: Vec<Hint> = unknown.iter().take(FIELDS).map(|field| Hint::for_field(field, links)).collect();
    let filters = reads.filter_hints(admitted, request).await;
    let is_there = |hint: &FilterHint| unknown.iter().all(|field| field.path != hint.filter.path);
    hints.extend(filters.into_iter().filter(is_there).map(|hint| Hint::for_filter(hint, links)));
    let sort = reads.sort_hint(admitted, request).await;
    hints.extend(sort.map(|text| Hint::new(&text, None)));
    let absent = unknown.into_iter().filter(|field| matches!(field.cause, UnknownCause::Absent { .. }));
    (hints, absent.map(|field| field.path).collect())
}

/// Hints about columns that no table has. Flattened tables have more names than fields are known.
pub(super) async fn for_columns(visit: &Visit, opened: &Opened, request: &ReadRequest, links: &Links<'_>) -> Vec<Hint> {
    if request.flatten {
        return Vec::new();
    }
    let columns = Path::parse_list(&links.query.all(COLUMNS).collect::<Vec<_>>().join(","));
    let is_field = |path: &Path| path.keys().len() == 1;
    let (fields, deep): (Vec<Path>, Vec<Path>) = columns.into_iter().partition(is_field);
    let mut hints: Vec<Hint> = deep.iter().take(FIELDS).map(|path| Hint::for_deep_column(path, links)).collect();
    let looked_for: Vec<Path> = fields.into_iter().filter(|path| path.keys() != ["_source"]).collect();
    if !looked_for.is_empty() {
        let looked = ReadRequest { keep: looked_for, ..ReadRequest::default() };
        let unknown = visit.services.reads.explained_unknown_fields(&opened.admitted, &looked).await;
        let unknown = unknown.into_iter().take(FIELDS).map(|field| UnknownField { parameter: COLUMNS, ..field });
        hints.extend(unknown.map(|field| Hint::for_field(&field, links)));
    }
    hints
}
