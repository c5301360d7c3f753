//! JSON bodies of management calls, and the fields of bodies and query strings.
//!
//! A handler gets each field by name and with its required type, so that errors contain the name. For example,
//! `fields.positive_integer("dataset_id")` returns 7 for the body `{"dataset_id":7}` and for the query `dataset_id=7`.
//!
//! - Names that the operation does not list are rejected before any field is parsed.
//! - For an optional field, null is the same as a missing member.
//! - If a member is repeated, the last one counts. Parameters must not be repeated.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value};
use strata_json::DocumentError;
use strata_runtime::blocking::run_blocking;
use strata_service::{BodyReservation, ManageError, Principal, Services};
use strata_types::ids::DatasetId;
use strata_types::index_settings::IndexSettings;
use strata_types::limits;
use strata_types::suggest;
use strata_types::version::{VERSION_SYNTAX, VersionNumber, VersionSelector, VersionVariant};
use tokio::time::Instant;

use super::DATASET_ID_NAME;
use crate::display_text::{escape_for_display, quote_for_display};
use crate::endpoint::{Endpoint, field_names};
use crate::error::{CallError, HttpError};
use crate::headers::{client_ip, single_value};
use crate::params;
use crate::scalar_parsers::{parse_boolean, parse_positive, parse_whole_number, whole_number_from_json};

pub(super) const TEXT_OR_NULL_FORM: &str = "a string, or null";

pub(super) const OBJECT_FORM: &str = "a JSON object, such as {\"dataset_id\":1}";

/// Reads the fields of a JSON object in the body. The parser limits the depth to 128.
///
/// # Errors
/// Returns 415, 413, 503, 408, or 400, checked in this order. 503 means that large bodies use too much memory.
pub(super) async fn read_fields(
    services: &Services,
    request: Request,
    limit: u64,
    endpoint: &Endpoint,
) -> Result<CallFields, HttpError> {
    if !has_json_body(request.headers()) {
        return Err(CallError::JsonRequired.into());
    }
    let (head, body) = request.into_parts();
    let principal = head.extensions.get().copied();
    let principal = principal.unwrap_or_else(|| Principal::Anonymous(client_ip::request_client(&head, services)));
    let (bytes, reservation) = collect_body(services, principal, body, limit).await?;
    reject_query_string(&head.uri)?;
    let members = parse_off_executor(bytes, |bytes| parse_members(bytes)).await?;
    Ok(CallFields::from_body(members, reservation, endpoint)?)
}

/// Rejects the query string of a call whose fields are all in the body, because the parameters would be ignored.
pub(super) fn reject_query_string(uri: &Uri) -> Result<(), CallError> {
    match form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).next() {
        None => Ok(()),
        Some((name, _)) => Err(CallError::FieldInQuery { name: name.into_owned() }),
    }
}

/// Parses a large body on a separate thread, so that it does not block the threads that serve requests.
pub(crate) async fn parse_off_executor<T: Send + 'static>(
    bytes: Bytes,
    parse: impl FnOnce(&Bytes) -> Result<T, CallError> + Send + 'static,
) -> Result<T, HttpError> {
    if !BodyReservation::is_reservation_needed(bytes.len() as u64) {
        return Ok(parse(&bytes)?);
    }
    match run_blocking(move || parse(&bytes)).await {
        Ok(outcome) => Ok(outcome?),
        Err(error) => Err(ManageError::Storage(error.into()).into()),
    }
}

pub(super) fn parse_members(bytes: &[u8]) -> Result<Map<String, Value>, CallError> {
    // The values are counted first, because a tree of values would take far more time and memory than the count.
    if estimate_json_values(bytes) > limits::MAX_BODY_JSON_VALUES {
        let problem = format!("it contains more than {} values; valid: {OBJECT_FORM}", limits::MAX_BODY_JSON_VALUES);
        return Err(CallError::InvalidBody { problem });
    }
    let problem = match serde_json::from_slice(bytes) {
        Ok(Value::Object(members)) => return Ok(members),
        Ok(_) => "it is JSON, but not an object".to_owned(),
        Err(_) if bytes.is_empty() => "it is empty".to_owned(),
        Err(error) => match strata_json::canonicalize(bytes, &mut Vec::new()) {
            Err(DocumentError::NotAnObject { .. }) => "it is not JSON".to_owned(),
            Err(problem) => format!("it is not JSON: {problem}"),
            // The body is valid JSON, but too deep, or it contains a number that is too long.
            Ok(_) => format!("it cannot be parsed: {error}"),
        },
    };
    Err(CallError::InvalidBody { problem: format!("{problem}; valid: {OBJECT_FORM}") })
}

/// Estimates the number of values in a JSON text: every value except the first follows a comma, bracket, or brace. The
/// result is never too small.
fn estimate_json_values(text: &[u8]) -> usize {
    let mut values = 1;
    let mut in_string = false;
    let mut escaped = false;
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

/// Returns whether a body is uncompressed JSON: `application/json` or `application/…+json`, with any parameters.
pub(crate) fn has_json_body(headers: &HeaderMap) -> bool {
    let Some(value) = single_value(headers, CONTENT_TYPE) else { return false };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let plain =
        headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let structured = essence.strip_prefix("application/").is_some_and(|subtype| subtype.ends_with("+json"));
    plain && (essence == "application/json" || structured)
}

/// Request bodies up to this size must arrive within `server.header_timeout_s`.
const MAX_SMALL_BODY_BYTES: u64 = 16 << 10;

/// Rejects a body with a `Content-Length` that is too large before the client sends it (`100 Continue`). The body can
/// contain `envelope_bytes` in addition to the entities.
pub(crate) fn check_content_length(services: &Services, body: &Body, envelope_bytes: u64) -> Result<(), CallError> {
    let limit = services.config.sources.max_bytes;
    if http_body::Body::size_hint(body).lower() > limit.saturating_add(envelope_bytes) {
        Err(CallError::BodyTooLarge { limit, option: Some("sources.max_bytes") })
    } else {
        Ok(())
    }
}

/// Reads a whole body within `limits.body_timeout_s`, or within `server.header_timeout_s` if `limit` allows only small
/// bodies. For a large body, also returns the memory reservation, which the caller must hold as long as the data.
pub(crate) async fn collect_body(
    services: &Services,
    principal: Principal,
    body: Body,
    limit: u64,
) -> Result<(Bytes, Option<BodyReservation>), HttpError> {
    let config = &services.config;
    let seconds = match limit {
        ..=MAX_SMALL_BODY_BYTES => config.limits.body_timeout_s.min(config.server.header_timeout_s),
        _ => config.limits.body_timeout_s,
    };
    let option = (limit == config.limits.body_bytes).then_some("limits.body_bytes");
    let too_large = || HttpError::from(CallError::BodyTooLarge { limit, option });
    let size_hint = http_body::Body::size_hint(&body);
    if size_hint.lower() > limit {
        return Err(too_large());
    }
    let expected_bytes = size_hint.upper().unwrap_or(limit).min(limit);
    let collecting = async {
        let mut body = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX));
        let mut bytes = Vec::new();
        let mut reservation = None;
        if BodyReservation::is_reservation_needed(size_hint.lower()) {
            reservation = Some(PacedBodyReservation::acquire(services, principal, expected_bytes, seconds).await?);
        }
        loop {
            let next = body.frame();
            let next = match &reservation {
                Some(reservation) => reservation.with_pace_deadline(bytes.len() as u64, next).await?,
                None => next.await,
            };
            let Some(frame) = next else { break };
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => too_large(),
                false => CallError::IncompleteBody.into(),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if reservation.is_none() && BodyReservation::is_reservation_needed((bytes.len() + data.len()) as u64) {
                reservation = Some(PacedBodyReservation::acquire(services, principal, expected_bytes, seconds).await?);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.into(), reservation.map(|reservation| reservation.reservation)))
    };
    let collected = tokio::time::timeout(Duration::from_secs(seconds), collecting).await;
    collected.unwrap_or_else(|_| Err(CallError::BodyTimeout { seconds }.into()))
}

/// Memory reservation of a large request body, which must arrive at a steady rate, because others wait for memory.
struct PacedBodyReservation {
    reservation: BodyReservation,
    expected_bytes: u64,
    started_at: Instant,
    timeout_s: u64,
}

impl PacedBodyReservation {
    const MAX_BODY_DELAY: Duration = Duration::from_secs(10);

    async fn acquire(
        services: &Services,
        principal: Principal,
        expected_bytes: u64,
        timeout_s: u64,
    ) -> Result<PacedBodyReservation, HttpError> {
        let reservation = services.body_limit.acquire(principal, expected_bytes).await.map_err(HttpError::Busy)?;
        Ok(PacedBodyReservation { reservation, expected_bytes, started_at: Instant::now(), timeout_s })
    }

    async fn with_pace_deadline<T>(&self, received_bytes: u64, next: impl Future<Output = T>) -> Result<T, CallError> {
        let progress = received_bytes as f64 / self.expected_bytes.max(1) as f64;
        let steady = Duration::from_secs(self.timeout_s).mul_f64(progress);
        let next = tokio::time::timeout_at(self.started_at + steady + PacedBodyReservation::MAX_BODY_DELAY, next).await;
        next.map_err(|_| CallError::BodyTooSlow {
            received_bytes,
            expected_bytes: self.expected_bytes,
            after_s: self.started_at.elapsed().as_secs(),
            seconds: self.timeout_s,
        })
    }
}

type QueryPairs = Vec<(String, String)>;

pub(super) fn decode_query(query: Option<&str>) -> QueryPairs {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect()
}

/// The fields of a call: the members of a JSON object or the parameters of a query string. Access to a name that the
/// endpoint does not list panics if debug assertions are enabled.
pub(crate) struct CallFields {
    /// The value of a parameter is a string. The value of a repeated parameter is an array.
    pub members: Map<String, Value>,
    source: FieldsSource,
    known_names: Vec<&'static str>,
    _reservation: Option<BodyReservation>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldsSource {
    Body,
    /// In a query string, all values are strings, so strings of digits are parsed as numbers.
    Query,
}

impl CallFields {
    pub(crate) fn new(members: Map<String, Value>, known_names: Vec<&'static str>) -> CallFields {
        CallFields { members, source: FieldsSource::Body, known_names, _reservation: None }
    }

    pub(super) fn from_body(
        members: Map<String, Value>,
        reservation: Option<BodyReservation>,
        endpoint: &Endpoint,
    ) -> Result<CallFields, CallError> {
        let known_names = field_names(endpoint.body_fields());
        CallError::check_field_names(members.keys().map(String::as_str), &known_names)?;
        Ok(CallFields { _reservation: reservation, ..CallFields::new(members, known_names) })
    }

    pub(super) fn from_query(query: Option<&str>, endpoint: &Endpoint) -> Result<CallFields, CallError> {
        match params::find_invalid_utf8(query.unwrap_or_default()) {
            Some(raw) => Err(CallError::QueryNotUtf8 { raw: raw.to_owned() }),
            None => CallFields::from_parameters(decode_query(query), endpoint),
        }
    }

    pub(super) fn from_parameters(parameters: QueryPairs, endpoint: &Endpoint) -> Result<CallFields, CallError> {
        let names = parameters.iter().map(|(name, _)| name.as_str());
        CallError::check_field_names(names, &field_names(endpoint.query_fields()))?;
        Ok(CallFields::from_known_parameters(parameters, endpoint))
    }

    /// Like [`CallFields::from_parameters`], for callers that check unknown names themselves.
    pub(super) fn from_known_parameters(parameters: QueryPairs, endpoint: &Endpoint) -> CallFields {
        let mut members = Map::new();
        for (name, value) in parameters {
            let repeated = members.contains_key(&name);
            members.insert(name, if repeated { Value::Array(Vec::new()) } else { Value::String(value) });
        }
        let known_names = field_names(endpoint.query_fields());
        CallFields { members, source: FieldsSource::Query, known_names, _reservation: None }
    }

    fn known_member(&self, name: &str) -> Option<&Value> {
        debug_assert!(self.known_names.contains(&name), "field {name} is not listed by the endpoint");
        self.members.get(name)
    }

    fn non_null_member(&self, name: &str) -> Option<&Value> {
        self.known_member(name).filter(|value| !value.is_null())
    }

    pub(crate) fn dataset_id(&self) -> Result<DatasetId, CallError> {
        self.positive_integer(DATASET_ID_NAME).map(DatasetId::new)
    }

    /// Returns a version number. Calls that change a version do not accept `latest`, whose meaning can change.
    pub(crate) fn version_number(&self, name: &'static str) -> Result<VersionNumber, CallError> {
        self.positive_integer(name)
            .map(VersionNumber::new)
            .map_err(|_| self.invalid_field_error(name, "a positive integer, the version number"))
    }

    /// Returns a positive integer. In a body, the number can have any notation: `7.0` is 7. A number that exceeds a
    /// `u64` becomes `u64::MAX`, which no record has.
    pub(crate) fn positive_integer(&self, name: &'static str) -> Result<u64, CallError> {
        match self.non_null_member(name) {
            Some(Value::Number(number)) => {
                whole_number_from_json(number).filter(|number| *number > 0).or(parse_positive(&number.to_string()))
            }
            Some(Value::String(text)) if self.source == FieldsSource::Query => parse_positive(text),
            _ => None,
        }
        .ok_or_else(|| match self.non_null_member(name) {
            Some(Value::String(text)) if self.source == FieldsSource::Body && parse_positive(text).is_some() => {
                self.invalid_field_error(name, "a positive integer, as a number without quotes")
            }
            _ => self.invalid_field_error(name, "a positive integer"),
        })
    }

    pub(crate) fn optional_positive_integer(&self, name: &'static str) -> Result<Option<u64>, CallError> {
        self.non_null_member(name).map(|_| self.positive_integer(name)).transpose()
    }

    pub(super) fn page_limit(&self, default: u32, max: u32) -> Result<u32, CallError> {
        let limit = self.optional_positive_integer("limit")?;
        Ok(limit.map_or(default, |limit| u32::try_from(limit).unwrap_or(max).min(max)))
    }

    /// Returns a whole number if present. In a query string, a number that exceeds a `u64` becomes `u64::MAX`.
    pub(crate) fn optional_whole_number(&self, name: &'static str) -> Result<Option<u64>, CallError> {
        let Some(value) = self.non_null_member(name) else { return Ok(None) };
        let number = match value {
            Value::Number(number) => whole_number_from_json(number),
            Value::String(text) if self.source == FieldsSource::Query => parse_whole_number(text),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.invalid_field_error(name, "a whole number, 0 or more"))
    }

    pub(crate) fn version_selector_or_active(&self, name: &'static str) -> Result<VersionSelector, CallError> {
        self.non_null_member(name).map_or(Ok(VersionSelector::Active), |_| self.version_selector(name))
    }

    pub(crate) fn version_variant(&self) -> Result<VersionVariant, CallError> {
        Ok(VersionVariant::from_alt(self.optional_boolean("alt")?.unwrap_or(false)))
    }

    pub(crate) fn version_selector(&self, name: &'static str) -> Result<VersionSelector, CallError> {
        match self.non_null_member(name) {
            Some(Value::Number(_)) => {
                self.positive_integer(name).ok().map(VersionNumber::new).map(VersionSelector::Number)
            }
            Some(Value::String(text)) => VersionSelector::parse_with_bare_number(text).ok(),
            _ => None,
        }
        .ok_or_else(|| self.invalid_field_error(name, VERSION_SYNTAX))
    }

    pub(crate) fn optional_one_of<T: Copy, const N: usize>(
        &self,
        name: &'static str,
        values: [T; N],
        name_of: fn(T) -> &'static str,
    ) -> Result<Option<T>, CallError> {
        let Some(value) = self.non_null_member(name) else { return Ok(None) };
        let selected = values.into_iter().find(|candidate| value.as_str() == Some(name_of(*candidate)));
        selected.map(Some).ok_or_else(|| self.invalid_field_error(name, &values.map(name_of).join(", ")))
    }

    pub(crate) fn text(&self, name: &'static str) -> Result<&str, CallError> {
        match self.non_null_member(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(self.invalid_field_error(name, "a string")),
        }
    }

    pub(crate) fn optional_text(&self, name: &'static str) -> Result<Option<&str>, CallError> {
        self.non_null_member(name).map(|_| self.text(name)).transpose()
    }

    /// Parses a string or null. `Some(None)` means null. `form` describes the valid values in errors.
    pub(super) fn parse_nullable_text<T>(&self, name: &'static str, form: &str) -> Result<Option<Option<T>>, CallError>
    where
        T: FromStr<Err: Display>,
    {
        match self.known_member(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(Value::String(text)) => parse_field(name, text).map(|parsed| Some(Some(parsed))),
            Some(_) => Err(self.invalid_field_error(name, form)),
        }
    }

    pub(crate) fn optional_boolean(&self, name: &'static str) -> Result<Option<bool>, CallError> {
        let Some(value) = self.non_null_member(name) else { return Ok(None) };
        let (value, form) = match self.source {
            FieldsSource::Body => (value.as_bool(), "true or false"),
            FieldsSource::Query => (value.as_str().and_then(parse_boolean), "true, false, 1, or 0"),
        };
        value.map(Some).ok_or_else(|| self.invalid_field_error(name, form))
    }

    pub(crate) fn index_settings(&self) -> Result<Option<IndexSettings>, CallError> {
        const NAME: &str = "index";
        const VALID: &str = "{\"always\":[…],\"never\":[…]}, lists of paths, or null";
        let lists = match self.known_member(NAME) {
            None => return Ok(None),
            Some(Value::Null) => return Ok(Some(IndexSettings::default())),
            Some(Value::Object(lists)) => lists,
            Some(_) => return Err(self.invalid_field_error(NAME, VALID)),
        };
        if let Some(member) = lists.keys().find(|member| !matches!(member.as_str(), "always" | "never")) {
            let meant = suggest::did_you_mean(member, ["always", "never"]);
            let problem = format!("unknown member {};{meant} valid: {VALID}", quote_for_display(member));
            return Err(CallError::for_field(NAME, problem));
        }
        let texts = |member: &str| -> Result<Vec<&str>, CallError> {
            let wrong = || CallError::for_field(NAME, format!("{member} is not a list of strings; valid: {VALID}"));
            match lists.get(member) {
                None => Ok(Vec::new()),
                Some(Value::Array(items)) => {
                    items.iter().map(|item| item.as_str()).collect::<Option<_>>().ok_or_else(wrong)
                }
                Some(_) => Err(wrong()),
            }
        };
        let index = IndexSettings::try_new(&texts("always")?, &texts("never")?);
        index.map(Some).map_err(|error| CallError::for_field(NAME, error))
    }

    /// Returns the member `checks` as JSON. `Some(None)` means null. The services check its contents.
    pub(crate) fn checks(&self) -> Result<Option<Option<String>>, CallError> {
        const NAME: &str = "checks";
        match self.known_member(NAME) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(checks @ Value::Object(_)) => Ok(Some(Some(checks.to_string()))),
            Some(_) => Err(self.invalid_field_error(NAME, "an object, such as {\"required\":[\"name\"]}, or null")),
        }
    }

    pub(crate) fn parse_text<T: FromStr<Err: Display>>(&self, name: &'static str) -> Result<T, CallError> {
        parse_field(name, self.text(name)?)
    }

    pub(crate) fn parse_optional_text<T: FromStr<Err: Display>>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, CallError> {
        self.non_null_member(name).map(|_| self.parse_text(name)).transpose()
    }

    fn invalid_field_error(&self, name: &'static str, expected: &str) -> CallError {
        let problem = match self.known_member(name) {
            None => "missing".to_owned(),
            Some(Value::Null) => "null is not valid".to_owned(),
            Some(Value::Bool(value)) => format!("{value} is not valid"),
            Some(Value::Number(number)) => format!("{} is not valid", escape_for_display(&number.to_string())),
            Some(Value::String(text)) => format!("{} is not valid", quote_for_display(text)),
            Some(Value::Array(_)) if self.source == FieldsSource::Query => {
                return CallError::for_field(name, "specified more than once");
            }
            Some(Value::Array(_)) => "an array is not valid".to_owned(),
            Some(Value::Object(_)) => "an object is not valid".to_owned(),
        };
        CallError::for_field(name, format!("{problem}; valid: {expected}"))
    }
}

pub(crate) fn parse_field<T: FromStr<Err: Display>>(name: &'static str, text: &str) -> Result<T, CallError> {
    text.parse().map_err(|error: T::Err| CallError::for_field(name, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "field limit is not listed by the endpoint")]
    fn unlisted_field_access_panics() {
        let fields = CallFields::new(Map::new(), vec!["offset"]);
        let _ = fields.optional_whole_number("limit");
    }

    #[test]
    fn count_values_ignores_strings() {
        for (text, expected) in
            [("", 1), ("7", 1), (r#"{"a":1,"b":[1,2,{"c":null}]}"#, 7), (r#"{"a,[{\",{":"\\","b":","}"#, 3)]
        {
            assert_eq!(estimate_json_values(text.as_bytes()), expected, "{text}");
        }
    }
}
