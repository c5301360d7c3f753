//! `/dataset/alternate/edit`: edits of an alternate by position, over HTTP and by agents.
//!
//! The entities are slices of the request, because a tree of values would change the notation of some numbers.

use std::collections::HashMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::routing::post;
use serde_json::json;
use strata_json::{Cursor, DocumentError, JsonType, NumericValue, Scalar};
use strata_service::{AlternateError, BodyRoom, EditError, EntityChange, EntityEdit, Principal, Services};
use strata_types::ids::DatasetId;
use strata_types::user::User;
use strata_types::version::VersionNumber;

use super::fields::VERSION_NAME;
use super::fields::{ETAG_FIELD, ETAG_MEMBER};
use super::records::PushAnswer;
use super::{Caller, Fields, JsonResult, body, fields};
use crate::AppState;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input};
use crate::error::{CallError, HttpError, unknown};
use crate::text::{quoted, shown};

pub(crate) const EDITS: &str = "edits";

/// Levels around an entity: the object, the list of edits, an edit, and the list of an insert. One more is parsed, so
/// that the error contains the edit.
const AROUND: usize = 4 + 1;

const FORMS: &str =
    "{\"position\":N,\"set\":{…}}, {\"position\":N,\"remove\":true}, or {\"position\":N,\"insert\":[…]}";

const POSITION: &str = "position";

const MEMBERS: [&str; 4] = [POSITION, "set", "remove", "insert"];

pub(super) static EDIT: Endpoint = Endpoint::post(
    "/dataset/alternate/edit",
    "editAlternate",
    Group::Alternates,
    || post(edit),
)
.summary("Edits a version's alternate by position; a missing alternate is first created as a copy of the version")
.description(
    "Use this operation to change a few entities without sending the whole list. Positions refer to the list before \
     the edits, and strata applies all edits or none. If the alternate has changed since you received the `etag`, \
     strata returns 409.",
)
.input(Input::Body(&[
    fields::DATASET_ID,
    fields::VERSION,
    ETAG_FIELD,
    Field::required(
        EDITS,
        FieldKind::Edits,
        || json!([{ "position": 0, "set": { "name": "Aruba", "area": 180 } }, { "position": 3, "remove": true }]),
    )
    .about(
        "A list of edits. Each edit replaces the whole entity at a position, removes it, or inserts entities before \
         it. Positions start at 0 and refer to the list before any edit. To append entities, insert them at the \
         position that equals the length of the list. Each position can have at most one `set` or `remove`. Several \
         inserts at the same position keep their order.",
    ),
]))
.answer(Answer::record::<PushAnswer>("The version with its saved alternate, and the etag for the next change."))
.errors(&[404, 409, 503]);

async fn edit(Caller(user): Caller, State(services): State<AppState>, request: Request) -> JsonResult<PushAnswer> {
    if !body::is_json(request.headers()) {
        return Err(CallError::NotJson.into());
    }
    let limit = services.config.limits.body_bytes;
    let uri = request.uri().clone();
    let (bytes, room) = body::collect(&services, Principal::User(user.id), request.into_body(), limit).await?;
    body::check_query(&uri)?;
    Ok(Json(make(&services, &user, bytes, room).await?))
}

/// Edits by HTTP and by tool, from the body of the call.
pub(crate) async fn make(
    services: &Services,
    user: &User,
    body: Bytes,
    room: Option<BodyRoom>,
) -> Result<PushAnswer, HttpError> {
    let Call { dataset, version, etag, edits, beyond } = body::apart(body, |body| Call::parse(body)).await?;
    let saved = services.datasets.edit_alternate(user, dataset, version, &etag, edits, room).await;
    let saved = saved.map_err(|error| match &error {
        AlternateError::Edit(EditError { index, problem }) => match beyond.get(index) {
            Some(sent) => CallError::Edit { index: *index, problem: problem.text(sent) }.into(),
            None => HttpError::from(error),
        },
        _ => HttpError::from(error),
    })?;
    Ok(PushAnswer::from(&saved))
}

#[derive(Debug)]
struct Call {
    dataset: DatasetId,
    version: VersionNumber,
    etag: String,
    edits: Vec<EntityEdit>,
    /// Positions that are larger than a `u64`, as they were sent, by the index of their edit.
    beyond: HashMap<usize, String>,
}

impl Call {
    fn parse(text: &[u8]) -> Result<Call, CallError> {
        let mut message = Vec::with_capacity(text.len());
        strata_json::canonicalize_message(text, AROUND, &mut message).map_err(|error| {
            let problem = match error {
                _ if text.is_empty() => "it is empty".to_owned(),
                DocumentError::NotAnObject { .. } => "it is JSON, but not an object".to_owned(),
                error => format!("it cannot be parsed: {error}"),
            };
            CallError::Body { problem: format!("{problem}; valid: {}", body::OBJECT_FORM) }
        })?;
        let message = Bytes::from(message);
        let edits = strata_json::member(&message, EDITS);
        let beside = with_nulls(&message, edits);
        let fields = Fields::from_body(body::members(&beside)?, None, &EDIT)?;
        let dataset = fields.dataset_id()?;
        let version = fields.version(VERSION_NAME)?;
        let etag = fields.text(ETAG_MEMBER)?.to_owned();
        let wrong = |found: &str| CallError::field(EDITS, format!("{found}; valid: a list of {FORMS}"));
        let list = match edits {
            None => return Err(wrong("missing")),
            Some(b"null") => return Err(wrong("null is not valid")),
            Some(b"[]") => return Err(wrong("the list is empty")),
            Some(list) if JsonType::of(list[0]) == Some(JsonType::Array) => list,
            Some(other) => return Err(wrong(&format!("{} is not valid", sent_as(other)))),
        };
        let mut cursor = Cursor::new(list);
        cursor.enter();
        let mut edits = Vec::new();
        let mut beyond = HashMap::new();
        while cursor.next_element() {
            let index = edits.len();
            let text = cursor.skip_value();
            let edit = parse_edit(&message, text).map_err(|problem| CallError::Edit { index, problem })?;
            // Only the first one is reported.
            if edit.position == u64::MAX && beyond.is_empty() {
                beyond.extend(strata_json::member(text, POSITION).map(|sent| (index, sent_as(sent))));
            }
            edits.push(edit);
        }
        Ok(Call { dataset, version, etag, edits, beyond })
    }
}

/// The text with these parts replaced by null.
pub(crate) fn with_nulls<'a>(text: &'a Bytes, parts: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let start = |part: &[u8]| part.as_ptr().addr() - text.as_ptr().addr();
    let mut parts: Vec<&[u8]> = parts.into_iter().collect();
    if parts.is_empty() {
        return text.clone();
    }
    parts.sort_unstable_by_key(|part| start(part));
    let mut written = Vec::new();
    let mut end = 0;
    for part in parts {
        written.extend_from_slice(&text[end..start(part)]);
        written.extend_from_slice(b"null");
        end = start(part) + part.len();
    }
    written.extend_from_slice(&text[end..]);
    written.into()
}

fn parse_edit(message: &Bytes, edit: &[u8]) -> Result<EntityEdit, String> {
    if JsonType::of(edit[0]) != Some(JsonType::Object) {
        return Err(format!("{} is not valid; valid: {FORMS}", sent_as(edit)));
    }
    let mut position = None;
    let mut changes = Vec::new();
    let mut nulls = Vec::new();
    for (name, value) in strata_json::members(edit) {
        let name = name.unescape();
        let Some(known) = MEMBERS.iter().find(|known| **known == name) else { return Err(unknown(&name, &MEMBERS)) };
        if value == b"null" {
            nulls.push(*known);
            continue;
        }
        match *known {
            POSITION => position = Some(parse_position(value)?),
            "set" => {
                changes.push(EntityChange::Set(entity(message, value).map_err(|problem| format!("set: {problem}"))?))
            }
            "remove" if value == b"true" => changes.push(EntityChange::Remove),
            "remove" => return Err(format!("remove: {} is not valid; valid: {}", sent_as(value), form(known))),
            _ => changes.push(EntityChange::Insert(parse_insert(message, value)?)),
        }
    }
    let is_null = |name: &&str| nulls.contains(name);
    let position = position.ok_or_else(|| {
        let found = if is_null(&POSITION) { "null" } else { "missing" };
        format!("position is {found}; valid: {}", form(POSITION))
    })?;
    match <[EntityChange; 1]>::try_from(changes) {
        Ok([change]) => Ok(EntityEdit { position, change }),
        Err(changes) if changes.is_empty() => Err(match MEMBERS[1..].iter().copied().find(is_null) {
            Some("set") => {
                format!("set: null is not valid; valid: {}, or \"remove\":true to remove the entity", form("set"))
            }
            Some(name) => format!("{name}: null is not valid; valid: {}", form(name)),
            None => format!("set, remove, or insert is missing; valid: {FORMS}"),
        }),
        Err(_) => Err(format!("more than one of set, remove, or insert; valid: {FORMS}")),
    }
}

/// A whole number in any notation: `7.0` is 7. A number larger than a `u64` is past the end of every list.
fn parse_position(value: &[u8]) -> Result<u64, String> {
    /// The smallest double above `u64`. It and all larger doubles are whole numbers.
    const BEYOND: f64 = 18_446_744_073_709_551_616.0;
    let wrong = || format!("position: {} is not valid; valid: {}", sent_as(value), form(POSITION));
    let Some(Scalar::Number(text)) = Scalar::read(value) else { return Err(wrong()) };
    let number = NumericValue::parse(text).ok_or_else(wrong)?;
    match number.integer().map(u64::try_from) {
        Some(Ok(position)) => Ok(position),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(text.parse().unwrap_or(u64::MAX)),
        None if number.double() >= BEYOND => Ok(u64::MAX),
        _ => Err(wrong()),
    }
}

fn parse_insert(message: &Bytes, value: &[u8]) -> Result<Vec<Bytes>, String> {
    if JsonType::of(value[0]) != Some(JsonType::Array) {
        return Err(format!("insert: {} is not valid; valid: {}", sent_as(value), form("insert")));
    }
    let mut cursor = Cursor::new(value);
    cursor.enter();
    let mut entities = Vec::new();
    while cursor.next_element() {
        let entity = entity(message, cursor.skip_value());
        entities.push(entity.map_err(|problem| format!("insert[{}]: {problem}", entities.len()))?);
    }
    Ok(entities)
}

/// An entity of the message, which is canonical but can be too deep.
fn entity(message: &Bytes, value: &[u8]) -> Result<Bytes, String> {
    if JsonType::of(value[0]) != Some(JsonType::Object) {
        return Err(format!("{} is not valid; valid: {}", sent_as(value), form("set")));
    }
    strata_json::canonicalize(value, &mut Vec::new()).map_err(|error| error.to_string())?;
    Ok(message.slice_ref(value))
}

fn form(member: &str) -> &'static str {
    match member {
        POSITION => "a whole number, 0 or more",
        "set" => "an object (the whole entity)",
        "remove" => "true",
        _ => "a list of entities",
    }
}

/// A scalar as it was sent, or the type of another value.
fn sent_as(value: &[u8]) -> String {
    match Scalar::read(value) {
        Some(Scalar::Number(text)) => shown(text),
        Some(Scalar::Bool(value)) => value.to_string(),
        Some(Scalar::String(text)) => quoted(&text.unescape()),
        _ => match value.first() {
            Some(b'{') => "an object".to_owned(),
            Some(b'[') => "an array".to_owned(),
            _ => "null".to_owned(),
        },
    }
}
