//! The list of parameters, and the parser of query strings (docs/reference/query-semantics.md, Parameters).
//!
//! For each pair of the query string, in order:
//! 1. Decode the name and the value (`decode`). Bytes that are not UTF-8 are an error, even in unknown parameters.
//! 2. Look up the exact name. An unknown name is recorded once and ignored.
//! 3. Reject a second value of a parameter that cannot be repeated.
//! 4. Let the parameter write its value into the request.
//!
//! The first error ends the parsing. Finally, strict requests with unknown names are rejected, and so are requests with
//! too many filters, paths, and keywords, because each costs work per entity.

use std::borrow::Cow;
use std::collections::HashSet;

use axum::http::StatusCode;
use serde_json::{Map, Value};
use strata_service::IgnoredParameter;
use strata_types::path::Path;
use strata_types::request::ReadRequest;
use strata_types::{limits, similar};

use super::{InvalidValue, Parameter, Repetition, UnknownParameter, decode, result, selection};
use crate::error::HttpError;
use crate::text::{quoted, shown};
use crate::values::integer;

/// All parameters in the order of docs/reference/query-semantics.md, Steps, followed by those of the whole response.
/// The documentation has this order. The order in a URL does not matter.
pub static PARAMETERS: [Parameter; 27] = [
    result::INCLUDE_SOURCE,
    result::DENULL,
    selection::KEEP_FIELD,
    selection::DROP_FIELD,
    selection::FILTER,
    selection::FILTER_CONTAINS,
    selection::FILTER_GT,
    selection::FILTER_GTE,
    selection::FILTER_LT,
    selection::FILTER_LTE,
    selection::KEYWORDS,
    selection::KEYWORDS_MODE,
    result::SORT,
    result::DEDUP,
    selection::DEDUP_KEY,
    result::SAMPLE,
    result::SEED,
    result::OFFSET,
    result::LIMIT,
    result::FLATTEN,
    result::FORMAT,
    result::TYPED,
    result::PRETTY,
    result::COUNT,
    result::TOTAL,
    result::ALT,
    result::STRICT,
];

/// Less than the limit of hyper (65,534 bytes for the whole target), so that the error has a text.
pub const QUERY_BYTES_LIMIT: usize = limits::QUERY_BYTES;

/// Filters, listed paths, and keywords of a request.
pub const ITEMS_LIMIT: usize = limits::ITEMS;

/// The text contains the parameter, the value, and the valid values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("the query string is {bytes} bytes long; valid: at most {QUERY_BYTES_LIMIT} bytes")]
    QueryTooLong { bytes: usize },
    #[error("parameter name {} is not UTF-8; valid: percent-encoded UTF-8", quoted(.raw))]
    NameNotUtf8 { raw: String },
    #[error("parameter {}: {} is not UTF-8; valid: percent-encoded UTF-8", bare(.name), quoted(.raw))]
    ValueNotUtf8 { name: String, raw: String },
    #[error("parameter {name}: {} is a second value; valid: {name} given at most once", quoted(.value))]
    GivenTwice { name: &'static str, value: String },
    #[error("parameter {name}: {} {}; valid: {}", quoted(.value), .reason.problem, .reason.valid)]
    Invalid { name: &'static str, value: String, reason: InvalidValue },
    /// An invalid JSON value that is not a string.
    #[error("parameter {name}: {} {}; valid: {}", shown(.value), .reason.problem, .reason.valid)]
    InvalidJson { name: &'static str, value: String, reason: InvalidValue },
    #[error(
        "unknown parameter {}, which strict=true does not allow;{} valid: {}",
        quoted(.name),
        meant(.name),
        listed()
    )]
    Unknown { name: String },
    #[error(
        "keep_field, drop_field, filter, filter_contains, filter_gt, filter_gte, filter_lt, filter_lte, keywords, and \
         dedup_key contain {items} items; valid: at most {ITEMS_LIMIT} in total"
    )]
    TooManyItems { items: usize },
}

impl ParameterError {
    fn for_json(self, sent: Option<&Value>) -> ParameterError {
        match (self, sent) {
            (ParameterError::Invalid { name, reason, .. }, Some(sent)) if !sent.is_string() => {
                ParameterError::InvalidJson { name, value: sent.to_string(), reason }
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
        HttpError::Invalid { status, text: format!("Invalid query: {error}.") }
    }
}

impl From<UnknownParameter> for IgnoredParameter {
    fn from(UnknownParameter(name): UnknownParameter) -> Self {
        let nearest = similar::nearest(&name, names());
        IgnoredParameter { name, nearest }
    }
}

/// Parses the part of a URL after `?` in one pass.
///
/// Returns the request, and the distinct names of ignored parameters in order, without the empty name.
pub fn parse(query: Option<&str>) -> Result<(ReadRequest, Vec<UnknownParameter>), ParameterError> {
    parse_beside(query, &[])
}

/// Like [`parse`], but skips the parameters of an operation.
pub fn parse_beside(query: Option<&str>, own: &[&str]) -> Result<(ReadRequest, Vec<UnknownParameter>), ParameterError> {
    let query = query.unwrap_or_default();
    if query.len() > QUERY_BYTES_LIMIT {
        return Err(ParameterError::QueryTooLong { bytes: query.len() });
    }

    let mut values = Values::default();
    let mut unknown = Vec::new();
    let mut unknown_seen = HashSet::new();
    let mut has_nameless = false;

    for pair in decode::pairs(query) {
        let name =
            decode::decode(pair.name).ok_or_else(|| ParameterError::NameNotUtf8 { raw: pair.name.to_owned() })?;
        let Some(value) = decode::decode(pair.value) else {
            return Err(ParameterError::ValueNotUtf8 { name: name.into_owned(), raw: pair.value.to_owned() });
        };
        match PARAMETERS.iter().position(|parameter| parameter.name == name) {
            Some(index) => values.apply(index, value)?,
            None if own.contains(&&*name) => {}
            None if !name.is_empty() && unknown_seen.insert(name.clone()) => {
                unknown.push(UnknownParameter(name.into_owned()));
            }
            // The header cannot name it.
            None => has_nameless |= name.is_empty(),
        }
    }
    let request = values.finish()?;
    match unknown.first() {
        None if request.strict && has_nameless => Err(ParameterError::Unknown { name: String::new() }),
        Some(UnknownParameter(name)) if request.strict => Err(ParameterError::Unknown { name: name.clone() }),
        _ => Ok((request, unknown)),
    }
}

/// The paths in the valid values of a query string, in order, each with its parameter.
pub fn paths(query: &str) -> Vec<(&'static str, Path)> {
    let mut paths = Vec::new();
    for pair in decode::pairs(query) {
        let (Some(name), Some(value)) = (decode::decode(pair.name), decode::decode(pair.value)) else { continue };
        let mut alone = ReadRequest::default();
        let parameter = PARAMETERS.iter().find(|parameter| parameter.name == name);
        if parameter.is_some_and(|parameter| (parameter.apply)(&value, &mut alone).is_ok()) {
            paths.extend(alone.named_paths());
        }
    }
    paths
}

/// The query string with another `offset`: all other pairs stay where they were, as they were written.
pub fn with_offset(query: &str, offset: u64) -> String {
    let own = format!("{}={offset}", result::OFFSET.name);
    let is_offset =
        |pair: &str| decode::pairs(pair).any(|pair| decode::decode(pair.name).as_deref() == Some(result::OFFSET.name));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<&str> = pairs.map(|pair| if is_offset(pair) { &own } else { pair }).collect();
    if !pairs.contains(&own.as_str()) {
        pairs.push(&own);
    }
    pairs.join("&")
}

/// Parses parameters from JSON members: a value of the parameter's kind, an array if it can be repeated, or null if it
/// is not set. Other members are ignored. All values together have the limit of a query string.
pub fn parse_json(members: &Map<String, Value>) -> Result<ReadRequest, ParameterError> {
    let mut given = Vec::new();
    for (index, parameter) in PARAMETERS.iter().enumerate() {
        let Some(value) = members.get(parameter.name) else { continue };
        let single = parameter.repetition == Repetition::Single;
        let texts = match value {
            Value::Array(items) if !single => items.iter().map(text).collect(),
            Value::Null => Some(Vec::new()),
            value => text(value).map(|text| vec![text]),
        };
        let invalid = || ParameterError::InvalidJson {
            name: parameter.name,
            value: value.to_string(),
            reason: InvalidValue::new("has the wrong type", parameter.kind.text()),
        };
        given.extend(texts.ok_or_else(invalid)?.into_iter().map(|text| (index, value, text)));
    }
    let bytes = given.iter().map(|(_, _, text)| text.len()).sum();
    if bytes > QUERY_BYTES_LIMIT {
        return Err(ParameterError::QueryTooLong { bytes });
    }
    let mut values = Values::default();
    for (index, sent, text) in given {
        values.apply(index, text.into()).map_err(|error| error.for_json(Some(sent)))?;
    }
    values.finish().map_err(|error| error.for_json(members.get(result::SEED.name)))
}

/// A scalar as in a URL.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        // `7.0` is 7.
        Value::Number(number) => Some(integer(number).map_or_else(|| number.to_string(), |number| number.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[derive(Default)]
struct Values {
    request: ReadRequest,
    given: [bool; PARAMETERS.len()],
}

impl Values {
    /// Applies a value to the parameter at this index of [`PARAMETERS`].
    fn apply(&mut self, index: usize, value: Cow<'_, str>) -> Result<(), ParameterError> {
        let parameter = &PARAMETERS[index];
        if self.given[index] && parameter.repetition == Repetition::Single {
            return Err(ParameterError::GivenTwice { name: parameter.name, value: value.into_owned() });
        }
        self.given[index] = true;
        let applied = (parameter.apply)(&value, &mut self.request);
        applied.map_err(|reason| ParameterError::Invalid { name: parameter.name, value: value.into_owned(), reason })
    }

    fn finish(self) -> Result<ReadRequest, ParameterError> {
        if let ReadRequest { seed: Some(seed), sample: None, .. } = self.request {
            let reason = InvalidValue::new("requires sample", "seed together with sample");
            return Err(ParameterError::Invalid { name: result::SEED.name, value: seed.to_string(), reason });
        }
        match items(&self.request) {
            ..=ITEMS_LIMIT => Ok(self.request),
            items => Err(ParameterError::TooManyItems { items }),
        }
    }
}

fn items(request: &ReadRequest) -> usize {
    let paths = request.keep.len() + request.drop.len() + request.dedup_key.len();
    let conditions = request.filters.len() + request.filters_contain.len() + request.ranges().count();
    paths + conditions + request.keywords.len()
}

fn meant(name: &str) -> String {
    similar::suggestion(name, names())
}

fn listed() -> String {
    names().collect::<Vec<_>>().join(", ")
}

fn names() -> impl Iterator<Item = &'static str> {
    PARAMETERS.iter().map(|parameter| parameter.name)
}

/// A name without quotation marks if it is the name of a parameter.
fn bare(name: &str) -> String {
    if names().any(|known| known == name) { name.to_owned() } else { quoted(name) }
}
