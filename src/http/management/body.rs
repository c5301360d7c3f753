//! JSON bodies of management calls, and the fields of bodies and of query strings.
//!
//! A handler takes each field by name, with the type that the field must have, so that an error names the field. For
//! example, `fields.positive("dataset_id")` returns 7 for the body `{"dataset_id":7}` and for the query `dataset_id=7`.
//!
//! - Names that the operation does not list are rejected before a field is taken.
//! - If a field is optional, null means the same as a missing member.
//! - Of members with one name the last one counts. A parameter must not be repeated.

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
use strata_runtime::blocking::blocking;
use strata_service::{BodyRoom, ManageError, Principal, Services};
use strata_types::ids::DatasetId;
use strata_types::index::IndexSettings;
use strata_types::limits;
use strata_types::similar;
use strata_types::version::{VERSION_FORM, VersionNumber, VersionSelector};
use tokio::time::Instant;

use super::DATASET_ID;
use crate::endpoint::{Endpoint, names};
use crate::error::{CallError, HttpError};
use crate::headers::{client_ip, single};
use crate::params;
use crate::text::{quoted, shown};
use crate::values::{boolean, integer, positive, whole_number};

pub(super) const TEXT_FORM: &str = "a string, or null";

pub(super) const OBJECT_FORM: &str = "a JSON object, such as {\"dataset_id\":1}";

/// The fields of a body, which must be a JSON object. The parser limits its depth to 128.
///
/// # Errors
/// 415, 413, 503, 408, and 400, in this order. 503 means that large bodies use too much memory.
pub(super) async fn read(
    services: &Services,
    request: Request,
    limit: u64,
    endpoint: &Endpoint,
) -> Result<Fields, HttpError> {
    if !is_json(request.headers()) {
        return Err(CallError::NotJson.into());
    }
    let (head, body) = request.into_parts();
    let caller = head.extensions.get().copied();
    let holder = caller.unwrap_or_else(|| Principal::Anonymous(client_ip::client(&head, services)));
    let (bytes, room) = collect(services, holder, body, limit).await?;
    check_query(&head.uri)?;
    let members = apart(bytes, |bytes| members(bytes)).await?;
    Ok(Fields::from_body(members, room, endpoint)?)
}

/// Rejects a query string next to a body with all fields, because its parameters would be ignored.
pub(super) fn check_query(uri: &Uri) -> Result<(), CallError> {
    match form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).next() {
        None => Ok(()),
        Some((name, _)) => Err(CallError::InQuery { name: name.into_owned() }),
    }
}

/// Parses a large body on a thread of its own, so that it does not block the threads that serve requests.
pub(crate) async fn apart<T: Send + 'static>(
    bytes: Bytes,
    read: impl FnOnce(&Bytes) -> Result<T, CallError> + Send + 'static,
) -> Result<T, HttpError> {
    if !BodyRoom::is_needed(bytes.len() as u64) {
        return Ok(read(&bytes)?);
    }
    match blocking(move || read(&bytes)).await {
        Ok(outcome) => Ok(outcome?),
        Err(error) => Err(ManageError::Storage(error.into()).into()),
    }
}

pub(super) fn members(bytes: &[u8]) -> Result<Map<String, Value>, CallError> {
    // A tree would take far longer, and many times the memory.
    if values(bytes) > limits::BODY_VALUES {
        let problem = format!("it contains more than {} values; valid: {OBJECT_FORM}", limits::BODY_VALUES);
        return Err(CallError::Body { problem });
    }
    let problem = match serde_json::from_slice(bytes) {
        Ok(Value::Object(members)) => return Ok(members),
        Ok(_) => "it is JSON, but not an object".to_owned(),
        Err(_) if bytes.is_empty() => "it is empty".to_owned(),
        Err(error) => match strata_json::canonicalize(bytes, &mut Vec::new()) {
            Err(DocumentError::NotAnObject { .. }) => "it is not JSON".to_owned(),
            Err(problem) => format!("it is not JSON: {problem}"),
            // Too deep, or a number that is too long.
            Ok(_) => format!("it cannot be parsed: {error}"),
        },
    };
    Err(CallError::Body { problem: format!("{problem}; valid: {OBJECT_FORM}") })
}

/// The number of values in a JSON text, or a few more: each but the first follows a comma, a bracket, or a brace.
fn values(text: &[u8]) -> usize {
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

/// Uncompressed `application/json` or `application/…+json`, with any parameters.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = single(headers, CONTENT_TYPE) else { return false };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let plain =
        headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let structured = essence.strip_prefix("application/").is_some_and(|subtype| subtype.ends_with("+json"));
    plain && (essence == "application/json" || structured)
}

/// The size up to which a body must arrive in the time of a head.
const SMALL_BYTES: u64 = 16 << 10;

/// Rejects entities whose `Content-Length` is too large, before the client sends them (`100 Continue`). The body can
/// have this many bytes in addition to the entities.
pub(crate) fn check_announced(services: &Services, body: &Body, beside: u64) -> Result<(), CallError> {
    let limit = services.config.sources.max_bytes;
    if http_body::Body::size_hint(body).lower() > limit.saturating_add(beside) {
        Err(CallError::TooLarge { limit, option: Some("sources.max_bytes") })
    } else {
        Ok(())
    }
}

/// The whole body, within `limits.body_timeout_s`, or within `server.header_timeout_s` if `limit` allows only small
/// bodies. For a large body, also the reserved memory, which the caller holds as long as the data.
pub(crate) async fn collect(
    services: &Services,
    holder: Principal,
    body: Body,
    limit: u64,
) -> Result<(Bytes, Option<BodyRoom>), HttpError> {
    let config = &services.config;
    let seconds = match limit {
        ..=SMALL_BYTES => config.limits.body_timeout_s.min(config.server.header_timeout_s),
        _ => config.limits.body_timeout_s,
    };
    let option = (limit == config.limits.body_bytes).then_some("limits.body_bytes");
    let too_large = || HttpError::from(CallError::TooLarge { limit, option });
    let announced = http_body::Body::size_hint(&body);
    if announced.lower() > limit {
        return Err(too_large());
    }
    let most = announced.upper().unwrap_or(limit).min(limit);
    let collecting = async {
        let mut body = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX));
        let mut bytes = Vec::new();
        let mut room = None;
        if BodyRoom::is_needed(announced.lower()) {
            room = Some(Room::take(services, holder, most, seconds).await?);
        }
        loop {
            let next = body.frame();
            let next = match &room {
                Some(room) => room.within_pace(bytes.len() as u64, next).await?,
                None => next.await,
            };
            let Some(frame) = next else { break };
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => too_large(),
                false => CallError::Cut.into(),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if room.is_none() && BodyRoom::is_needed((bytes.len() + data.len()) as u64) {
                room = Some(Room::take(services, holder, most, seconds).await?);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.into(), room.map(|room| room.room)))
    };
    let collected = tokio::time::timeout(Duration::from_secs(seconds), collecting).await;
    collected.unwrap_or_else(|_| Err(CallError::TooSlow { seconds }.into()))
}

/// The reserved memory of a large body. Others can wait for it, so the body must arrive at a steady rate.
struct Room {
    room: BodyRoom,
    most_bytes: u64,
    began: Instant,
    seconds: u64,
}

impl Room {
    /// The maximum delay of a body compared to a steady rate.
    const BEHIND: Duration = Duration::from_secs(10);

    async fn take(services: &Services, holder: Principal, most_bytes: u64, seconds: u64) -> Result<Room, HttpError> {
        let room = services.bodies.room(holder, most_bytes).await.map_err(HttpError::Busy)?;
        Ok(Room { room, most_bytes, began: Instant::now(), seconds })
    }

    async fn within_pace<T>(&self, took_bytes: u64, next: impl Future<Output = T>) -> Result<T, CallError> {
        let even = Duration::from_secs(self.seconds).mul_f64(took_bytes as f64 / self.most_bytes.max(1) as f64);
        let next = tokio::time::timeout_at(self.began + even + Room::BEHIND, next).await;
        next.map_err(|_| CallError::NotSteady {
            took_bytes,
            most_bytes: self.most_bytes,
            after_s: self.began.elapsed().as_secs(),
            seconds: self.seconds,
        })
    }
}

/// The decoded parameters of a query string.
type Parameters = Vec<(String, String)>;

pub(super) fn decoded(query: Option<&str>) -> Parameters {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect()
}

/// The members of a JSON object or the parameters of a query string. To take one that is not listed is a bug, and
/// panics if debug assertions are enabled.
pub(crate) struct Fields {
    /// A parameter is a string; one that is repeated is an array.
    pub members: Map<String, Value>,
    origin: Origin,
    listed: Vec<&'static str>,
    _room: Option<BodyRoom>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Body,
    /// All values are strings, so a string of digits is a number.
    Query,
}

impl Fields {
    pub(crate) fn new(members: Map<String, Value>, listed: Vec<&'static str>) -> Fields {
        Fields { members, origin: Origin::Body, listed, _room: None }
    }

    /// The members of a body, if the endpoint lists all of them.
    pub(super) fn from_body(
        members: Map<String, Value>,
        room: Option<BodyRoom>,
        endpoint: &Endpoint,
    ) -> Result<Fields, CallError> {
        let listed = names(endpoint.members());
        CallError::check_known(members.keys().map(String::as_str), &listed)?;
        Ok(Fields { _room: room, ..Fields::new(members, listed) })
    }

    /// The parameters of a query string, if the endpoint lists all of them.
    pub(super) fn from_query(query: Option<&str>, endpoint: &Endpoint) -> Result<Fields, CallError> {
        match params::not_utf8(query.unwrap_or_default()) {
            Some(raw) => Err(CallError::NotUtf8 { raw: raw.to_owned() }),
            None => Fields::from_parameters(decoded(query), endpoint),
        }
    }

    pub(super) fn from_parameters(parameters: Parameters, endpoint: &Endpoint) -> Result<Fields, CallError> {
        CallError::check_known(parameters.iter().map(|(name, _)| name.as_str()), &names(endpoint.parameters()))?;
        Ok(Fields::beside_others(parameters, endpoint))
    }

    /// The parameters that the endpoint lists, next to others, which the caller checks.
    pub(super) fn beside_others(parameters: Parameters, endpoint: &Endpoint) -> Fields {
        let listed = names(endpoint.parameters());
        let mut members = Map::new();
        for (name, value) in parameters {
            let repeated = members.contains_key(&name);
            members.insert(name, if repeated { Value::Array(Vec::new()) } else { Value::String(value) });
        }
        Fields { members, origin: Origin::Query, listed, _room: None }
    }

    fn member(&self, name: &str) -> Option<&Value> {
        debug_assert!(self.listed.contains(&name), "{name} is taken, but not listed");
        self.members.get(name)
    }

    fn present(&self, name: &str) -> Option<&Value> {
        self.member(name).filter(|value| !value.is_null())
    }

    pub(crate) fn dataset_id(&self) -> Result<DatasetId, CallError> {
        self.positive(DATASET_ID).map(DatasetId::new)
    }

    /// The number of a version, for calls that change it: `latest` could mean a version that the caller does not know.
    pub(crate) fn version(&self, name: &'static str) -> Result<VersionNumber, CallError> {
        self.positive(name)
            .map(VersionNumber::new)
            .map_err(|_| self.wrong(name, "a positive integer, the version number"))
    }

    /// In a body, a JSON number in any notation: `7.0` is 7. A number larger than a `u64` becomes `u64::MAX`, which no
    /// record has.
    pub(crate) fn positive(&self, name: &'static str) -> Result<u64, CallError> {
        match self.present(name) {
            Some(Value::Number(number)) => {
                integer(number).filter(|number| *number > 0).or(positive(&number.to_string()))
            }
            Some(Value::String(text)) if self.origin == Origin::Query => positive(text),
            _ => None,
        }
        .ok_or_else(|| match self.present(name) {
            Some(Value::String(text)) if self.origin == Origin::Body && positive(text).is_some() => {
                self.wrong(name, "a positive integer, as a number without quotes")
            }
            _ => self.wrong(name, "a positive integer"),
        })
    }

    pub(crate) fn optional_positive(&self, name: &'static str) -> Result<Option<u64>, CallError> {
        self.present(name).map(|_| self.positive(name)).transpose()
    }

    /// The number of records of a page.
    pub(super) fn limit(&self, default: u32, most: u32) -> Result<u32, CallError> {
        let limit = self.optional_positive("limit")?;
        Ok(limit.map_or(default, |limit| u32::try_from(limit).unwrap_or(most).min(most)))
    }

    /// In a query, a number larger than a `u64` becomes `u64::MAX`.
    pub(crate) fn optional_whole_number(&self, name: &'static str) -> Result<Option<u64>, CallError> {
        let Some(value) = self.present(name) else { return Ok(None) };
        let number = match value {
            Value::Number(number) => integer(number),
            Value::String(text) if self.origin == Origin::Query => whole_number(text),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.wrong(name, "a whole number, 0 or more"))
    }

    pub(crate) fn optional_selector(&self, name: &'static str) -> Result<VersionSelector, CallError> {
        self.present(name).map_or(Ok(VersionSelector::Active), |_| self.selector(name))
    }

    pub(crate) fn selector(&self, name: &'static str) -> Result<VersionSelector, CallError> {
        match self.present(name) {
            Some(Value::Number(_)) => self.positive(name).ok().map(VersionNumber::new).map(VersionSelector::Number),
            Some(Value::String(text)) => VersionSelector::parse_or_number(text).ok(),
            _ => None,
        }
        .ok_or_else(|| self.wrong(name, VERSION_FORM))
    }

    pub(crate) fn optional_one_of<T: Copy, const N: usize>(
        &self,
        name: &'static str,
        values: [T; N],
        name_of: fn(T) -> &'static str,
    ) -> Result<Option<T>, CallError> {
        let Some(value) = self.present(name) else { return Ok(None) };
        let found = values.into_iter().find(|one| value.as_str() == Some(name_of(*one)));
        found.map(Some).ok_or_else(|| self.wrong(name, &values.map(name_of).join(", ")))
    }

    pub(crate) fn text(&self, name: &'static str) -> Result<&str, CallError> {
        match self.present(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(self.wrong(name, "a string")),
        }
    }

    pub(crate) fn optional_text(&self, name: &'static str) -> Result<Option<&str>, CallError> {
        self.present(name).map(|_| self.text(name)).transpose()
    }

    /// `Some(None)` is null. A value that is not a string does not have this form.
    pub(super) fn nullable<T>(&self, name: &'static str, form: &str) -> Result<Option<Option<T>>, CallError>
    where
        T: FromStr<Err: Display>,
    {
        match self.member(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(Value::String(text)) => parse(name, text).map(|parsed| Some(Some(parsed))),
            Some(_) => Err(self.wrong(name, form)),
        }
    }

    pub(crate) fn optional_boolean(&self, name: &'static str) -> Result<Option<bool>, CallError> {
        let Some(value) = self.present(name) else { return Ok(None) };
        let (value, form) = match self.origin {
            Origin::Body => (value.as_bool(), "true or false"),
            Origin::Query => (value.as_str().and_then(boolean), "true, false, 1, or 0"),
        };
        value.map(Some).ok_or_else(|| self.wrong(name, form))
    }

    /// An object with up to two lists of paths. Null means `{}`.
    pub(crate) fn index(&self) -> Result<Option<IndexSettings>, CallError> {
        const NAME: &str = "index";
        const VALID: &str = "{\"always\":[…],\"never\":[…]}, lists of paths, or null";
        let lists = match self.member(NAME) {
            None => return Ok(None),
            Some(Value::Null) => return Ok(Some(IndexSettings::default())),
            Some(Value::Object(lists)) => lists,
            Some(_) => return Err(self.wrong(NAME, VALID)),
        };
        if let Some(member) = lists.keys().find(|member| !matches!(member.as_str(), "always" | "never")) {
            let meant = similar::suggestion(member, ["always", "never"]);
            return Err(CallError::field(NAME, format!("unknown member {};{meant} valid: {VALID}", quoted(member))));
        }
        let texts = |member: &str| -> Result<Vec<&str>, CallError> {
            let wrong = || CallError::field(NAME, format!("{member} is not a list of strings; valid: {VALID}"));
            match lists.get(member) {
                None => Ok(Vec::new()),
                Some(Value::Array(items)) => {
                    items.iter().map(|item| item.as_str()).collect::<Option<_>>().ok_or_else(wrong)
                }
                Some(_) => Err(wrong()),
            }
        };
        let index = IndexSettings::try_new(&texts("always")?, &texts("never")?);
        index.map(Some).map_err(|error| CallError::field(NAME, error))
    }

    pub(crate) fn parsed<T: FromStr<Err: Display>>(&self, name: &'static str) -> Result<T, CallError> {
        parse(name, self.text(name)?)
    }

    pub(crate) fn optional_parsed<T: FromStr<Err: Display>>(&self, name: &'static str) -> Result<Option<T>, CallError> {
        self.present(name).map(|_| self.parsed(name)).transpose()
    }

    fn wrong(&self, name: &'static str, expected: &str) -> CallError {
        let found = match self.member(name) {
            None => "missing".to_owned(),
            Some(Value::Null) => "null is not valid".to_owned(),
            Some(Value::Bool(value)) => format!("{value} is not valid"),
            Some(Value::Number(number)) => format!("{} is not valid", shown(&number.to_string())),
            Some(Value::String(text)) => format!("{} is not valid", quoted(text)),
            Some(Value::Array(_)) if self.origin == Origin::Query => {
                return CallError::field(name, "specified more than once");
            }
            Some(Value::Array(_)) => "an array is not valid".to_owned(),
            Some(Value::Object(_)) => "an object is not valid".to_owned(),
        };
        CallError::field(name, format!("{found}; valid: {expected}"))
    }
}

pub(crate) fn parse<T: FromStr<Err: Display>>(name: &'static str, text: &str) -> Result<T, CallError> {
    text.parse().map_err(|error: T::Err| CallError::field(name, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "limit is taken, but not listed")]
    fn a_member_that_is_not_listed_is_not_taken() {
        let fields = Fields::new(Map::new(), vec!["offset"]);
        let _ = fields.optional_whole_number("limit");
    }

    #[test]
    fn the_values_of_a_text_are_counted_outside_of_strings() {
        for (text, expected) in
            [("", 1), ("7", 1), (r#"{"a":1,"b":[1,2,{"c":null}]}"#, 7), (r#"{"a,[{\",{":"\\","b":","}"#, 3)]
        {
            assert_eq!(values(text.as_bytes()), expected, "{text}");
        }
    }
}
