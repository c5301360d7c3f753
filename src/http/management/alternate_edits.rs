//! `/dataset/alternate/edit`: edits of an alternate (an edited copy of a version) by position, over HTTP and MCP.
//!
//! The entities are slices of the request body, because a tree of values would change the notation of some numbers.

use std::collections::HashMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::routing::post;
use serde_json::json;
use strata_json::{DocumentError, JsonCursor, JsonScalar, JsonType, NumericValue};
use strata_service::{AlternateError, BodyReservation, EditError, EntityChange, EntityEdit, Principal, Services};
use strata_types::ids::DatasetId;
use strata_types::user::User;
use strata_types::version::VersionNumber;

use super::fields::{ETAG_FIELD, ETAG_NAME, VERSION_NAME};
use super::records::PushResponse;
use super::{AuthenticatedUser, CallFields, JsonResult, fields, request_body};
use crate::AppState;
use crate::display_text::{escape_for_display, quote_for_display};
use crate::endpoint::{Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec};
use crate::error::{CallError, HttpError, describe_unknown_field};

pub(crate) const EDITS_NAME: &str = "edits";

/// The nesting levels around an entity in the body: the object, the list of edits, an edit, and the list of an insert.
/// One more level is parsed, so that the error about the depth contains the index of the edit.
const ENVELOPE_DEPTH: usize = 4 + 1;

const EDIT_FORMS: &str =
    "{\"position\":N,\"set\":{…}}, {\"position\":N,\"remove\":true}, or {\"position\":N,\"insert\":[…]}";

const POSITION_NAME: &str = "position";
const EDIT_MEMBERS: [&str; 4] = [POSITION_NAME, "set", "remove", "insert"];

pub(super) static EDIT_ALTERNATE_ENDPOINT: Endpoint = Endpoint::post(
    "/dataset/alternate/edit",
    "editAlternate",
    EndpointGroup::Alternates,
    || post(edit_alternate),
)
.summary("Edits a version's alternate by position; a missing alternate is first created as a copy of the version")
.description(
    "Use this operation to change a few entities without sending the whole list. Positions refer to the list before \
     the edits, and strata applies all edits or none. If the alternate has changed since you received the `etag`, \
     strata returns 409.",
)
.input(EndpointInput::Body(&[
    fields::DATASET_ID_FIELD,
    fields::VERSION_FIELD,
    ETAG_FIELD,
    FieldSpec::required(
        EDITS_NAME,
        FieldKind::Edits,
        || json!([{ "position": 0, "set": { "name": "Aruba", "area": 180 } }, { "position": 3, "remove": true }]),
    )
    .description(
        "A list of edits. Each edit replaces the whole entity at a position, removes it, or inserts entities before \
         it. Positions start at 0 and refer to the list before any edit. To append entities, insert them at the \
         position that equals the length of the list. Each position can have at most one `set` or `remove`. Several \
         inserts at the same position keep their order.",
    ),
]))
.response(EndpointResponse::for_record::<PushResponse>(
    "The version with its saved alternate, and the etag for the next change.",
))
.errors(&[404, 409, 503]);

async fn edit_alternate(
    AuthenticatedUser(user): AuthenticatedUser,
    State(services): State<AppState>,
    request: Request,
) -> JsonResult<PushResponse> {
    if !request_body::has_json_body(request.headers()) {
        return Err(CallError::JsonRequired.into());
    }
    let limit = services.config.limits.body_bytes;
    let uri = request.uri().clone();
    let (bytes, reservation) =
        request_body::collect_body(&services, Principal::User(user.id), request.into_body(), limit).await?;
    request_body::reject_query_string(&uri)?;
    Ok(Json(apply_alternate_edits(&services, &user, bytes, reservation).await?))
}

pub(crate) async fn apply_alternate_edits(
    services: &Services,
    user: &User,
    body: Bytes,
    reservation: Option<BodyReservation>,
) -> Result<PushResponse, HttpError> {
    let AlternateEditCall { dataset, version, etag, edits, oversized_positions } =
        request_body::parse_off_executor(body, |body| AlternateEditCall::parse(body)).await?;
    let saved = services.datasets.edit_alternate(user, dataset, version, &etag, edits, reservation).await;
    let saved = saved.map_err(|error| match &error {
        AlternateError::Edit(EditError { index, problem }) => match oversized_positions.get(index) {
            Some(raw) => CallError::InvalidEdit { index: *index, problem: problem.message(raw) }.into(),
            None => HttpError::from(error),
        },
        _ => HttpError::from(error),
    })?;
    Ok(PushResponse::from(&saved))
}

#[derive(Debug)]
struct AlternateEditCall {
    dataset: DatasetId,
    version: VersionNumber,
    etag: String,
    edits: Vec<EntityEdit>,
    /// For errors: the text of the first position that exceeds a `u64`, by the index of the edit.
    oversized_positions: HashMap<usize, String>,
}

impl AlternateEditCall {
    fn parse(text: &[u8]) -> Result<AlternateEditCall, CallError> {
        let mut message = Vec::with_capacity(text.len());
        strata_json::canonicalize_envelope(text, ENVELOPE_DEPTH, &mut message).map_err(|error| {
            let problem = match error {
                _ if text.is_empty() => "it is empty".to_owned(),
                DocumentError::NotAnObject { .. } => "it is JSON, but not an object".to_owned(),
                error => format!("it cannot be parsed: {error}"),
            };
            CallError::InvalidBody { problem: format!("{problem}; valid: {}", request_body::OBJECT_FORM) }
        })?;
        let message = Bytes::from(message);
        let edits = strata_json::find_member(&message, EDITS_NAME);
        let envelope = replace_with_null(&message, edits);
        let fields = CallFields::from_body(request_body::parse_members(&envelope)?, None, &EDIT_ALTERNATE_ENDPOINT)?;
        let dataset = fields.dataset_id()?;
        let version = fields.version_number(VERSION_NAME)?;
        let etag = fields.text(ETAG_NAME)?.to_owned();
        let wrong =
            |problem: &str| CallError::for_field(EDITS_NAME, format!("{problem}; valid: a list of {EDIT_FORMS}"));
        let list = match edits {
            None => return Err(wrong("missing")),
            Some(b"null") => return Err(wrong("null is not valid")),
            Some(b"[]") => return Err(wrong("the list is empty")),
            Some(list) if JsonType::from_first_byte(list[0]) == Some(JsonType::Array) => list,
            Some(other) => return Err(wrong(&format!("{} is not valid", describe_sent_value(other)))),
        };
        let mut cursor = JsonCursor::new(list);
        cursor.enter();
        let mut edits = Vec::new();
        let mut oversized_positions = HashMap::new();
        while cursor.next_element() {
            let index = edits.len();
            let text = cursor.skip_value();
            let edit = parse_edit(&message, text).map_err(|problem| CallError::InvalidEdit { index, problem })?;
            // An error is about the first of several edits whose positions exceed a `u64`, so one text is enough.
            if edit.position == u64::MAX && oversized_positions.is_empty() {
                let raw = strata_json::find_member(text, POSITION_NAME);
                oversized_positions.extend(raw.map(|raw| (index, describe_sent_value(raw))));
            }
            edits.push(edit);
        }
        Ok(AlternateEditCall { dataset, version, etag, edits, oversized_positions })
    }
}

pub(crate) fn replace_with_null<'a>(text: &'a Bytes, parts: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let start = |part: &[u8]| part.as_ptr().addr() - text.as_ptr().addr();
    let mut parts: Vec<&[u8]> = parts.into_iter().collect();
    if parts.is_empty() {
        return text.clone();
    }
    parts.sort_unstable_by_key(|part| start(part));
    let mut result = Vec::new();
    let mut end = 0;
    for part in parts {
        result.extend_from_slice(&text[end..start(part)]);
        result.extend_from_slice(b"null");
        end = start(part) + part.len();
    }
    result.extend_from_slice(&text[end..]);
    result.into()
}

fn parse_edit(message: &Bytes, edit: &[u8]) -> Result<EntityEdit, String> {
    if JsonType::from_first_byte(edit[0]) != Some(JsonType::Object) {
        return Err(describe_invalid_value(edit, EDIT_FORMS));
    }
    let mut position = None;
    let mut changes = Vec::new();
    let mut nulls = Vec::new();
    for (name, value) in strata_json::members(edit) {
        let name = name.unescape();
        let Some(known) = EDIT_MEMBERS.iter().find(|known| **known == name) else {
            return Err(describe_unknown_field(&name, &EDIT_MEMBERS));
        };
        if value == b"null" {
            nulls.push(*known);
            continue;
        }
        match *known {
            POSITION_NAME => position = Some(parse_position(value)?),
            "set" => changes
                .push(EntityChange::Set(parse_entity(message, value).map_err(|problem| format!("set: {problem}"))?)),
            "remove" if value == b"true" => changes.push(EntityChange::Remove),
            "remove" => return Err(format!("remove: {}", describe_invalid_value(value, valid_form(known)))),
            _ => changes.push(EntityChange::Insert(parse_insert(message, value)?)),
        }
    }
    let is_null = |name: &&str| nulls.contains(name);
    let position = position.ok_or_else(|| {
        let problem = if is_null(&POSITION_NAME) { "null" } else { "missing" };
        format!("position is {problem}; valid: {}", valid_form(POSITION_NAME))
    })?;
    match <[EntityChange; 1]>::try_from(changes) {
        Ok([change]) => Ok(EntityEdit { position, change }),
        Err(changes) if changes.is_empty() => Err(match EDIT_MEMBERS[1..].iter().copied().find(is_null) {
            Some("set") => {
                format!("set: null is not valid; valid: {}, or \"remove\":true to remove the entity", valid_form("set"))
            }
            Some(name) => format!("{name}: null is not valid; valid: {}", valid_form(name)),
            None => format!("set, remove, or insert is missing; valid: {EDIT_FORMS}"),
        }),
        Err(_) => Err(format!("more than one of set, remove, or insert; valid: {EDIT_FORMS}")),
    }
}

/// Parses a whole number in any notation: `7.0` is 7. A number that exceeds a `u64` becomes `u64::MAX`.
fn parse_position(value: &[u8]) -> Result<u64, String> {
    /// 2^64 as a double. All doubles of this size or more are whole numbers.
    const FIRST_DOUBLE_ABOVE_U64: f64 = 18_446_744_073_709_551_616.0;
    let wrong = || format!("position: {}", describe_invalid_value(value, valid_form(POSITION_NAME)));
    let Some(JsonScalar::Number(text)) = JsonScalar::parse(value) else { return Err(wrong()) };
    let number = NumericValue::parse(text).ok_or_else(wrong)?;
    match number.as_i64().map(u64::try_from) {
        Some(Ok(position)) => Ok(position),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(text.parse().unwrap_or(u64::MAX)),
        None if number.nearest_double() >= FIRST_DOUBLE_ABOVE_U64 => Ok(u64::MAX),
        _ => Err(wrong()),
    }
}

fn parse_insert(message: &Bytes, value: &[u8]) -> Result<Vec<Bytes>, String> {
    if JsonType::from_first_byte(value[0]) != Some(JsonType::Array) {
        return Err(format!("insert: {}", describe_invalid_value(value, valid_form("insert"))));
    }
    let mut cursor = JsonCursor::new(value);
    cursor.enter();
    let mut entities = Vec::new();
    while cursor.next_element() {
        let entity = parse_entity(message, cursor.skip_value());
        entities.push(entity.map_err(|problem| format!("insert[{}]: {problem}", entities.len()))?);
    }
    Ok(entities)
}

/// Returns an entity of an edit as a slice of the canonical message, after a check of the entity's depth.
fn parse_entity(message: &Bytes, value: &[u8]) -> Result<Bytes, String> {
    if JsonType::from_first_byte(value[0]) != Some(JsonType::Object) {
        return Err(describe_invalid_value(value, valid_form("set")));
    }
    strata_json::canonicalize(value, &mut Vec::new()).map_err(|error| error.to_string())?;
    Ok(message.slice_ref(value))
}

fn valid_form(member: &str) -> &'static str {
    match member {
        POSITION_NAME => "a whole number, 0 or more",
        "set" => "an object (the whole entity)",
        "remove" => "true",
        _ => "a list of entities",
    }
}

/// Describes a value in an error: the text of a scalar, or the type of any other value.
fn describe_sent_value(value: &[u8]) -> String {
    match JsonScalar::parse(value) {
        Some(JsonScalar::Number(text)) => escape_for_display(text),
        Some(JsonScalar::Bool(value)) => value.to_string(),
        Some(JsonScalar::String(text)) => quote_for_display(&text.unescape()),
        _ if value.starts_with(b"{") => "an object".to_owned(),
        _ if value.starts_with(b"[") => "an array".to_owned(),
        _ => "null".to_owned(),
    }
}

fn describe_invalid_value(value: &[u8], form: &str) -> String {
    format!("{} is not valid; valid: {form}", describe_sent_value(value))
}
