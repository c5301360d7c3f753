//! The list of query parameters, and the parser of query strings (docs/reference/query-semantics.md, Parameters).
//!
//! For each pair of the query string, in order:
//! 1. Decode the name and the value. Bytes that are not UTF-8 are an error, even in unknown parameters.
//! 2. Look up the exact name. An unknown name is recorded once and otherwise ignored.
//! 3. Reject a second value of a parameter that cannot be repeated.
//! 4. Call the parameter's `apply`, which stores the value in the request.
//!
//! The first error ends the parsing. At the end, strict requests with unknown names are rejected, and so are requests
//! with too many filters, paths, and keywords, because each of them costs work per entity.

use std::borrow::Cow;
use std::collections::HashSet;

use axum::http::StatusCode;
use serde_json::{Map, Value};
use strata_service::IgnoredParameter;
use strata_types::field_path::FieldPath;
pub use strata_types::limits::MAX_QUERY_ITEMS;
use strata_types::read_request::ReadRequest;
use strata_types::version::{VersionNumber, VersionSelector};
use strata_types::{limits, suggest};

use super::{
    InvalidValue, ParameterRepetition, QueryParameter, UnknownParameter, filter_parameters, form_decoder,
    result_parameters,
};
use crate::display_text::{escape_for_display, quote_for_display};
use crate::error::HttpError;
use crate::scalar_parsers::whole_number_from_json;

/// All query parameters in the order of docs/reference/query-semantics.md, Steps, followed by the parameters of the
/// whole response. The documentation has the same order. The order in a URL does not matter.
pub static PARAMETERS: [QueryParameter; 27] = [
    result_parameters::INCLUDE_SOURCE,
    result_parameters::DENULL,
    filter_parameters::KEEP_FIELD,
    filter_parameters::DROP_FIELD,
    filter_parameters::FILTER,
    filter_parameters::FILTER_CONTAINS,
    filter_parameters::FILTER_GT,
    filter_parameters::FILTER_GTE,
    filter_parameters::FILTER_LT,
    filter_parameters::FILTER_LTE,
    filter_parameters::KEYWORDS,
    filter_parameters::KEYWORDS_MODE,
    result_parameters::SORT,
    result_parameters::DEDUP,
    filter_parameters::DEDUP_KEY,
    result_parameters::SAMPLE,
    result_parameters::SEED,
    result_parameters::OFFSET,
    result_parameters::LIMIT,
    result_parameters::FLATTEN,
    result_parameters::FORMAT,
    result_parameters::TYPED,
    result_parameters::PRETTY,
    result_parameters::COUNT,
    result_parameters::TOTAL,
    result_parameters::ALT,
    result_parameters::STRICT,
];

/// Maximum length of a query string. The limit is lower than hyper's (65,534 bytes for the whole target), so that
/// strata can return a helpful error.
pub const MAX_QUERY_BYTES: usize = limits::MAX_QUERY_STRING_BYTES;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("the query string is {bytes} bytes long; valid: at most {MAX_QUERY_BYTES} bytes")]
    QueryTooLong { bytes: usize },
    #[error("parameter name {} is not UTF-8; valid: percent-encoded UTF-8", quote_for_display(.raw))]
    NameNotUtf8 { raw: String },
    #[error(
        "parameter {}: {} is not UTF-8; valid: percent-encoded UTF-8",
        quote_if_unknown(.name),
        quote_for_display(.raw)
    )]
    ValueNotUtf8 { name: String, raw: String },
    #[error("parameter {name}: {} is a second value; valid: {name} given at most once", quote_for_display(.value))]
    SpecifiedTwice { name: &'static str, value: String },
    #[error("parameter {name}: {} {}; valid: {}", quote_for_display(.value), .reason.problem, .reason.valid)]
    InvalidText { name: &'static str, value: String, reason: InvalidValue },
    /// The value of a parameter in a JSON object is invalid and not a string.
    #[error("parameter {name}: {} {}; valid: {}", escape_for_display(.value), .reason.problem, .reason.valid)]
    InvalidJson { name: &'static str, value: String, reason: InvalidValue },
    #[error(
        "unknown parameter {}, which strict=true does not allow;{} valid: {}",
        quote_for_display(.name),
        suggest::did_you_mean(.name, parameter_names()),
        parameter_names().collect::<Vec<_>>().join(", ")
    )]
    UnknownName { name: String },
    /// A parameter of other reads, or an unknown one, where a parameter must not be ignored.
    #[error("parameter {} is not allowed here; valid: {valid}", quote_if_unknown(.name))]
    NotAllowed { name: String, valid: &'static str },
    #[error("parameter since is missing; valid: since=vN, the version that you have")]
    SinceMissing,
    #[error(
        "keep_field, drop_field, filter, filter_contains, filter_gt, filter_gte, filter_lt, filter_lte, keywords, and \
         dedup_key contain {items} items; valid: at most {MAX_QUERY_ITEMS} in total"
    )]
    TooManyItems { items: usize },
}

impl ParameterError {
    fn with_json_value(self, raw: Option<&Value>) -> ParameterError {
        match (self, raw) {
            (ParameterError::InvalidText { name, reason, .. }, Some(raw)) if !raw.is_string() => {
                ParameterError::InvalidJson { name, value: raw.to_string(), reason }
            }
            (error, _) => error,
        }
    }
}

impl From<ParameterError> for HttpError {
    fn from(error: ParameterError) -> Self {
        let status = match error {
            ParameterError::QueryTooLong { .. } => StatusCode::URI_TOO_LONG,
            _ => StatusCode::BAD_REQUEST,
        };
        HttpError::InvalidRequest { status, text: format!("Invalid query: {error}.") }
    }
}

impl From<UnknownParameter> for IgnoredParameter {
    fn from(UnknownParameter(name): UnknownParameter) -> Self {
        let nearest = suggest::find_similar_name(&name, parameter_names());
        IgnoredParameter { name, nearest }
    }
}

/// Parses a query string in one pass.
///
/// Returns the request, and the distinct non-empty names of unknown parameters in order.
pub fn parse_query(query: Option<&str>) -> Result<(ReadRequest, Vec<UnknownParameter>), ParameterError> {
    parse_query_except(query, &[])
}

/// Like [`parse_query`], but skips the parameters in `skipped`, which the endpoint parses by itself.
pub fn parse_query_except(
    query: Option<&str>,
    skipped: &[&str],
) -> Result<(ReadRequest, Vec<UnknownParameter>), ParameterError> {
    let query = query.unwrap_or_default();
    if query.len() > MAX_QUERY_BYTES {
        return Err(ParameterError::QueryTooLong { bytes: query.len() });
    }

    let mut builder = ReadRequestBuilder::default();
    let mut unknown = Vec::new();
    let mut seen = HashSet::new();
    let mut has_empty_name = false;

    for pair in form_decoder::split_pairs(query) {
        let (name, value) = decode_pair(pair)?;
        match PARAMETERS.iter().position(|parameter| parameter.name == name) {
            Some(index) => builder.set_parameter(index, value)?,
            None if skipped.contains(&&*name) => {}
            None if !name.is_empty() && seen.insert(name.clone()) => unknown.push(UnknownParameter(name.into_owned())),
            // An unknown parameter with an empty name cannot be listed in the response header.
            None => has_empty_name |= name.is_empty(),
        }
    }
    let request = builder.finish()?;
    match unknown.first() {
        None if request.strict && has_empty_name => Err(ParameterError::UnknownName { name: String::new() }),
        Some(UnknownParameter(name)) if request.strict => Err(ParameterError::UnknownName { name: name.clone() }),
        _ => Ok((request, unknown)),
    }
}

/// Parses the query string of a request for changes: only `since=vN`.
pub fn parse_since(query: Option<&str>) -> Result<VersionNumber, ParameterError> {
    const NAME: &str = "since";
    let mut since = None;
    for (name, value) in decode_pairs(query.unwrap_or_default())? {
        if name != NAME {
            return Err(ParameterError::NotAllowed { name: name.into_owned(), valid: NAME });
        }
        if since.is_some() {
            return Err(ParameterError::SpecifiedTwice { name: NAME, value: value.into_owned() });
        }
        let Ok(VersionSelector::Number(number)) = value.parse() else {
            let reason = InvalidValue::new("is not a version", "v and a version number without leading zeros");
            return Err(ParameterError::InvalidText { name: NAME, value: value.into_owned(), reason });
        };
        since = Some(number);
    }
    since.ok_or(ParameterError::SinceMissing)
}

/// Like [`parse_query`], for a file whose name contains the format and the alternate. JSON is compact by default.
pub fn parse_file_query(query: Option<&str>) -> Result<(ReadRequest, Vec<UnknownParameter>), ParameterError> {
    let is_in_path = |parameter: &QueryParameter| {
        let in_path = [result_parameters::FORMAT, result_parameters::COUNT, result_parameters::ALT];
        in_path.iter().any(|other| other.name == parameter.name)
    };
    let pairs = decode_pairs(query.unwrap_or_default())?;
    if let Some(parameter) = PARAMETERS.iter().filter(|one| is_in_path(one)).find(|one| has_name(&pairs, one.name)) {
        let valid = "all parameters of a read except for format, count, and alt";
        return Err(ParameterError::NotAllowed { name: parameter.name.to_owned(), valid });
    }
    let (mut request, unknown) = parse_query(query)?;
    request.pretty &= has_name(&pairs, result_parameters::PRETTY.name);
    Ok((request, unknown))
}

/// The decoded name and value of a parameter.
type DecodedPair<'q> = (Cow<'q, str>, Cow<'q, str>);

fn has_name(pairs: &[DecodedPair<'_>], name: &str) -> bool {
    pairs.iter().any(|(other, _)| other == name)
}

/// Decodes the names and values of a query string.
fn decode_pairs(query: &str) -> Result<Vec<DecodedPair<'_>>, ParameterError> {
    if query.len() > MAX_QUERY_BYTES {
        return Err(ParameterError::QueryTooLong { bytes: query.len() });
    }
    form_decoder::split_pairs(query).map(decode_pair).collect()
}

fn decode_pair(pair: form_decoder::RawPair<'_>) -> Result<DecodedPair<'_>, ParameterError> {
    let name = form_decoder::decode_component(pair.name)
        .ok_or_else(|| ParameterError::NameNotUtf8 { raw: pair.name.to_owned() })?;
    match form_decoder::decode_component(pair.value) {
        Some(value) => Ok((name, value)),
        None => Err(ParameterError::ValueNotUtf8 { name: name.into_owned(), raw: pair.value.to_owned() }),
    }
}

/// Returns the paths in all valid values of a query string, in order, with their parameters.
pub fn paths_in_query(query: &str) -> Vec<(&'static str, FieldPath)> {
    let mut paths = Vec::new();
    for pair in form_decoder::split_pairs(query) {
        let (Some(name), Some(value)) =
            (form_decoder::decode_component(pair.name), form_decoder::decode_component(pair.value))
        else {
            continue;
        };
        let mut single = ReadRequest::default();
        let parameter = PARAMETERS.iter().find(|parameter| parameter.name == name);
        if parameter.is_some_and(|parameter| (parameter.apply)(&value, &mut single).is_ok()) {
            paths.extend(single.paths_by_parameter());
        }
    }
    paths
}

/// Replaces the `offset` in a query string, or appends it. All other pairs stay unchanged, in the same order.
pub fn replace_offset(query: &str, offset: u64) -> String {
    let own = format!("{}={offset}", result_parameters::OFFSET.name);
    let is_offset = |pair: &str| {
        form_decoder::split_pairs(pair)
            .any(|pair| form_decoder::decode_component(pair.name).as_deref() == Some(result_parameters::OFFSET.name))
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<&str> = pairs.map(|pair| if is_offset(pair) { &own } else { pair }).collect();
    if !pairs.contains(&own.as_str()) {
        pairs.push(&own);
    }
    pairs.join("&")
}

/// Parses the parameters in a JSON object. A member is a value of the parameter's kind, an array if the parameter can
/// be repeated, or null if the parameter is not set. Other members are ignored. The total length of all values is
/// limited like a query string.
pub fn parse_json_members(members: &Map<String, Value>) -> Result<ReadRequest, ParameterError> {
    let mut values = Vec::new();
    for (index, parameter) in PARAMETERS.iter().enumerate() {
        let Some(value) = members.get(parameter.name) else { continue };
        let single = parameter.repetition == ParameterRepetition::Single;
        let texts = match value {
            Value::Array(items) if !single => items.iter().map(scalar_to_text).collect(),
            Value::Null => Some(Vec::new()),
            value => scalar_to_text(value).map(|text| vec![text]),
        };
        let invalid = || ParameterError::InvalidJson {
            name: parameter.name,
            value: value.to_string(),
            reason: InvalidValue::new("has the wrong type", parameter.kind.label()),
        };
        values.extend(texts.ok_or_else(invalid)?.into_iter().map(|text| (index, value, text)));
    }
    let bytes = values.iter().map(|(_, _, text)| text.len()).sum();
    if bytes > MAX_QUERY_BYTES {
        return Err(ParameterError::QueryTooLong { bytes });
    }
    let mut builder = ReadRequestBuilder::default();
    for (index, raw, text) in values {
        builder.set_parameter(index, text.into()).map_err(|error| error.with_json_value(Some(raw)))?;
    }
    builder.finish().map_err(|error| error.with_json_value(members.get(result_parameters::SEED.name)))
}

fn scalar_to_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        // The number `7.0` is a valid whole number, and becomes the text `7`.
        Value::Number(number) => {
            Some(whole_number_from_json(number).map_or_else(|| number.to_string(), |number| number.to_string()))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[derive(Default)]
struct ReadRequestBuilder {
    request: ReadRequest,
    is_set: [bool; PARAMETERS.len()],
}

impl ReadRequestBuilder {
    fn set_parameter(&mut self, index: usize, value: Cow<'_, str>) -> Result<(), ParameterError> {
        let parameter = &PARAMETERS[index];
        if self.is_set[index] && parameter.repetition == ParameterRepetition::Single {
            return Err(ParameterError::SpecifiedTwice { name: parameter.name, value: value.into_owned() });
        }
        self.is_set[index] = true;
        let result = (parameter.apply)(&value, &mut self.request);
        let name = parameter.name;
        result.map_err(|reason| ParameterError::InvalidText { name, value: value.into_owned(), reason })
    }

    fn finish(self) -> Result<ReadRequest, ParameterError> {
        if let ReadRequest { seed: Some(seed), sample: None, .. } = self.request {
            let reason = InvalidValue::new("requires sample", "seed together with sample");
            let name = result_parameters::SEED.name;
            return Err(ParameterError::InvalidText { name, value: seed.to_string(), reason });
        }
        match count_query_items(&self.request) {
            ..=MAX_QUERY_ITEMS => Ok(self.request),
            items => Err(ParameterError::TooManyItems { items }),
        }
    }
}

fn count_query_items(request: &ReadRequest) -> usize {
    let paths = request.keep_fields.len() + request.drop_fields.len() + request.dedup_key.len();
    let conditions = request.filters.len() + request.contains_filters.len() + request.range_filters().count();
    paths + conditions + request.keywords.len()
}

fn parameter_names() -> impl Iterator<Item = &'static str> {
    PARAMETERS.iter().map(|parameter| parameter.name)
}

/// For error messages: returns a known parameter name without quotation marks, and any other name in quotation marks.
fn quote_if_unknown(name: &str) -> String {
    if parameter_names().any(|known| known == name) { name.to_owned() } else { quote_for_display(name) }
}
