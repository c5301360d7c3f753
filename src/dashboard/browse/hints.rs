//! Hints about unknown parameters, missing fields, and filters without matches. A hint can suggest a corrected query.

use strata_http::page_support::quote_for_page;
use strata_http::params::{self, UnknownParameter};
use strata_service::{FilterHint, UnknownField, UnknownFieldCause, nested_sort_hint};
use strata_types::field_path::FieldPath;
use strata_types::read_request::ReadRequest;

use super::links::BrowseLinks;
use super::{COLUMNS_PARAM, conditions};
use crate::context::VersionContext;
use crate::page_request::PageRequest;
use crate::safe_text::InlineCodeText;

const MAX_HINTED_FIELDS: usize = 10;

pub(super) struct QueryHint {
    pub(super) text: InlineCodeText,
    pub(super) suggestion: Option<(InlineCodeText, Option<String>)>,
}

impl QueryHint {
    pub(super) fn for_parameter(parameter: &UnknownParameter, links: &BrowseLinks<'_>) -> QueryHint {
        let name = parameter.0.as_str();
        let nearest =
            strata_types::suggest::find_similar_name(name, params::PARAMETERS.iter().map(|parameter| parameter.name));
        let renamed = |nearest: &str| {
            links.query.replace_pairs(|given, value| (given == name).then(|| (nearest.to_owned(), value.to_owned())))
        };
        let text = format!("This page ignores the unknown parameter {}.", quote_for_page(name));
        let suggestion = nearest.map(|name| (format!("Did you mean {name}?"), links.first_page_url(&renamed(name))));
        QueryHint::new(&text, suggestion)
    }

    fn new(text: &str, suggestion: Option<(String, Option<String>)>) -> QueryHint {
        QueryHint {
            text: InlineCodeText::new(text),
            suggestion: suggestion.map(|(question, href)| (InlineCodeText::new(&question), href)),
        }
    }

    fn for_nested_column(path: &FieldPath, links: &BrowseLinks<'_>) -> QueryHint {
        let path = quote_for_page(&path.to_string());
        let text = format!("A table has columns only for top-level fields, but {path} is nested.");
        let flattened = links.first_page_url(&links.query.with_replaced("flatten", true));
        QueryHint::new(&text, Some(("Show a column for each nested field".to_owned(), flattened)))
    }

    fn for_field(field: &UnknownField, links: &BrowseLinks<'_>) -> QueryHint {
        if let Some(nearest) = field.nearest_nested_sort_path() {
            return QueryHint::new(&nested_sort_hint(quote_for_page(nearest)), None);
        }
        let path = quote_for_page(&field.path.to_string());
        let parameter = field.parameter;
        let (text, nearest) = match &field.cause {
            UnknownFieldCause::Absent { nearest } => {
                (format!("No entity has the field {path} ({parameter})."), nearest.as_deref())
            }
            UnknownFieldCause::Removed { step } => {
                (format!("{step} removes {path} from every entity before {parameter} is applied."), None)
            }
        };
        let suggestion = nearest.map(|nearest| {
            let query = links.query.replace_pairs(|name, value| {
                let corrected = (name == parameter).then(|| replace_path(name, value, &field.path, nearest)).flatten();
                corrected.map(|value| (name.to_owned(), value))
            });
            let href = (query != links.query).then(|| links.first_page_url(&query)).flatten();
            (format!("Did you mean {}?", quote_for_page(nearest)), href)
        });
        QueryHint::new(&text, suggestion)
    }

    fn for_filter(
        FilterHint { parameter, filter, reason, advice, suggested_value }: FilterHint,
        links: &BrowseLinks<'_>,
    ) -> QueryHint {
        let href = suggested_value.and_then(|suggested| {
            let query = links.query.replace_pairs(|name, value| {
                let (path, rest) = FieldPath::parse_path_value(value).ok().filter(|_| name == parameter)?;
                let is_filter = path == filter.path && rest == filter.value;
                is_filter.then(|| (name.to_owned(), format!("{path}:{suggested}")))
            });
            (query != links.query).then(|| links.first_page_url(&query)).flatten()
        });
        QueryHint::new(&reason, advice.map(|advice| (advice, href)))
    }
}

/// Returns the parameter value with the path `wrong` replaced by `right`; `None` if the value does not contain `wrong`.
fn replace_path(parameter: &str, value: &str, wrong: &FieldPath, right: &str) -> Option<String> {
    if conditions::operator_label(parameter).is_some() {
        let (_, rest) = FieldPath::parse_path_value(value).ok().filter(|(path, _)| path == wrong)?;
        return Some(format!("{right}:{rest}"));
    }
    if parameter == "sort" {
        let path = FieldPath::parse(right).ok()?;
        let [right] = path.keys() else { return None };
        let (field, direction) = value.rsplit_once(':').map_or((value, None), |(field, rest)| (field, Some(rest)));
        let is_wrong = matches!(wrong.keys(), [only] if only == field);
        return is_wrong.then(|| direction.map_or(right.clone(), |direction| format!("{right}:{direction}")));
    }
    let paths = FieldPath::parse_list(value);
    let corrected = paths.iter().map(|path| if path == wrong { right.to_owned() } else { path.to_string() });
    paths.contains(wrong).then(|| corrected.collect::<Vec<_>>().join(","))
}

pub(super) async fn load_field_hints(
    req: &PageRequest,
    context: &VersionContext,
    request: &ReadRequest,
    links: &BrowseLinks<'_>,
) -> (Vec<QueryHint>, Vec<FieldPath>) {
    let reads = &req.services.reads;
    let target = &context.authorized_target;
    let unknown = if request.strict { Vec::new() } else { reads.unknown_fields_with_nearest(target, request).await };
    let mut hints: Vec<QueryHint> =
        unknown.iter().take(MAX_HINTED_FIELDS).map(|field| QueryHint::for_field(field, links)).collect();
    let filters = reads.filter_hints(target, request).await;
    let has_field = |hint: &FilterHint| unknown.iter().all(|field| field.path != hint.filter.path);
    hints.extend(filters.into_iter().filter(has_field).map(|hint| QueryHint::for_filter(hint, links)));
    hints.extend(reads.sort_hint(target, request).await.map(|text| QueryHint::new(&text, None)));
    let absent = unknown.into_iter().filter(|field| matches!(field.cause, UnknownFieldCause::Absent { .. }));
    (hints, absent.map(|field| field.path).collect())
}

/// Returns hints about requested columns that do not exist. Flattened tables are not checked, because the profile of
/// the version lacks some of their columns.
pub(super) async fn load_column_hints(
    req: &PageRequest,
    context: &VersionContext,
    request: &ReadRequest,
    links: &BrowseLinks<'_>,
) -> Vec<QueryHint> {
    if request.flatten {
        return Vec::new();
    }
    let columns = FieldPath::parse_list(&links.query.values(COLUMNS_PARAM).collect::<Vec<_>>().join(","));
    let is_field = |path: &FieldPath| path.keys().len() == 1;
    let (fields, deep): (Vec<FieldPath>, Vec<FieldPath>) = columns.into_iter().partition(is_field);
    let mut hints: Vec<QueryHint> =
        deep.iter().take(MAX_HINTED_FIELDS).map(|path| QueryHint::for_nested_column(path, links)).collect();
    let keep_fields: Vec<FieldPath> = fields.into_iter().filter(|path| path.keys() != ["_source"]).collect();
    if !keep_fields.is_empty() {
        let probe = ReadRequest { keep_fields, ..ReadRequest::default() };
        let unknown = req.services.reads.unknown_fields_with_nearest(&context.authorized_target, &probe).await;
        let unknown =
            unknown.into_iter().take(MAX_HINTED_FIELDS).map(|field| UnknownField { parameter: COLUMNS_PARAM, ..field });
        hints.extend(unknown.map(|field| QueryHint::for_field(&field, links)));
    }
    hints
}
