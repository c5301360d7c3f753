//! `/agent/…` and `/dataset/alternate/…`: the entities of a version for an editor, and the alternate that an editor or
//! owner saves, the second entity list of the version.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use axum::Json;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use axum::routing::{self, post};
use futures::{Stream, StreamExt};
use http_body::{Body as HttpBody, Frame, SizeHint};
use serde::Serialize;
use serde_json::json;
use strata_catalog as catalog;
use strata_ingest::EnvelopeFields;
use strata_service::{AlternateError, AnswerBody, Services};
use strata_types::ids::DatasetId;
use strata_types::user::User;
use strata_types::version::VersionNumber;
use utoipa::openapi::{AllOfBuilder, ArrayBuilder, Ref, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::caller::PULL_PATH;
use super::fields::{ETAG_FIELD, ETAG_MEMBER, VERSION_NAME};
use super::records::{PushAnswer, VersionAnswer, VersionRecord, alt_entity_count, answers};
use super::{Caller, DATASET_ID, Fields, JsonResult, alternate_edits, body, fields};
use crate::AppState;
use crate::body::streamed;
use crate::description::typed;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input};
use crate::error::{CallError, HttpError};

pub(super) const ENDPOINTS: &[&Endpoint] = &[&SAVE, &DELETE, &alternate_edits::EDIT, &PULL, &PUSH];

/// Whether the version has an alternate, to which positions of edits then refer.
const X_ALTERNATE: HeaderName = HeaderName::from_static("x-alternate");

/// Pulled entities, and the record that surrounds them in the response.
pub(crate) struct PulledEntities {
    pub record: PulledRecord,
    pub entities: AnswerBody,
    pub has_alternate: bool,
}

impl PulledEntities {
    /// The JSON before and after the entities.
    pub(crate) fn around(&self) -> Result<(String, &'static str), HttpError> {
        let record = serde_json::to_string(&self.record).map_err(|error| HttpError::Panic(error.to_string()))?;
        Ok((format!("{},\"entities\":", record.trim_end_matches('}')), "}"))
    }
}

static PULL: Endpoint = Endpoint::post(PULL_PATH, "pullForEdit", Group::Alternates, || post(pull_for_edit))
    .summary("Returns the entities of a version for editing, with the etag that you need to save them")
    .description(
        "Edit the entities, and then send them with the `etag` to `POST /agent/push_alt_version`. For long lists, \
             set `offset` and `limit` to pull one page at a time.",
    )
    .input(Input::Body(&[
        fields::DATASET_ID,
        Field::optional(VERSION_NAME, FieldKind::VersionOrNumber, || json!(1))
            .about("The version to pull. The default is the active version."),
        Field::optional("alt", FieldKind::Boolean, || json!(false))
            .about("Whether to pull the version's alternate instead of the version itself."),
        Field::optional("offset", FieldKind::WholeNumber, || json!(0))
            .about("If you pull a page, the zero-based position of its first entity."),
        Field::optional("limit", FieldKind::WholeNumber, || json!(100))
            .about("If you pull a page, the maximum number of entities in it."),
    ]))
    .answer(Answer {
        schemas: || vec![("PullAnswer".to_owned(), pull_answer())],
        headers: &[&["ETag", "X-Alternate"]],
        ..Answer::new(
            "The entities exactly as stored, and the etag, which strata also returns in the `ETag` header.",
            &[],
        )
    })
    .errors(&[404, 503]);

async fn pull_for_edit(
    Caller(user): Caller,
    State(services): State<AppState>,
    fields: Fields,
) -> Result<Response, HttpError> {
    let pulled = pull(&services, &user, &fields).await?;
    // Hexadecimal digits in quotes are always a valid value.
    let etag = HeaderValue::try_from(&pulled.record.etag).ok();
    let has_alternate = HeaderValue::from_static(if pulled.has_alternate { "true" } else { "false" });
    let (before, after) = pulled.around()?;
    let body = match pulled.entities {
        AnswerBody::Whole(entities) => {
            Body::new(Pieces([before.into(), entities, Bytes::from_static(after.as_bytes())].into()))
        }
        AnswerBody::Stream(chunks) => streamed(wrapped(chunks, before, after).boxed()).await?,
        AnswerBody::Export(export) => streamed(wrapped(export.whole(), before, after).boxed()).await?,
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().extend(etag.map(|etag| (ETAG, etag)));
    response.headers_mut().insert(X_ALTERNATE, has_alternate);
    Ok(response)
}

fn pull_answer() -> RefOr<Schema> {
    let entities = ArrayBuilder::new()
        .items(Ref::from_schema_name("Entity"))
        .description(Some("The entities, exactly as stored."));
    let entities = typed(Type::Object).property("entities", entities).required("entities");
    RefOr::T(Schema::AllOf(AllOfBuilder::new().item(PulledRecord::schema()).item(entities).build()))
}

/// A whole body in several pieces without a copy, because large pieces are charged until they are sent.
struct Pieces(VecDeque<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// The chunks between two strings. The first chunk contains the first string, so that a failure before it returns an
/// error.
fn wrapped<E>(
    chunks: impl Stream<Item = Result<Bytes, E>>,
    before: String,
    after: &'static str,
) -> impl Stream<Item = Result<Bytes, E>> {
    let mut before = Some(before);
    let begun = chunks.map(move |chunk| {
        let chunk = chunk?;
        Ok(match before.take() {
            Some(before) => Bytes::from([before.as_bytes(), &chunk].concat()),
            None => chunk,
        })
    });
    begun.chain(futures::stream::once(async move { Ok(Bytes::from_static(after.as_bytes())) }))
}

/// Pulls by HTTP and by tool.
pub(crate) async fn pull(services: &Services, user: &User, fields: &Fields) -> Result<PulledEntities, HttpError> {
    let dataset = fields.dataset_id()?;
    let version = fields.optional_selector(VERSION_NAME)?;
    let alt = fields.optional_boolean("alt")?.unwrap_or(false);
    let offset = fields.optional_whole_number("offset")?;
    let limit = fields.optional_whole_number("limit")?;
    let pulled = services.reads.pull(user, dataset, version, alt, offset.unwrap_or(0), limit).await?;
    let is_page = offset.is_some() || limit.is_some();
    let record = PulledRecord {
        ok: true,
        dataset_id: dataset.get(),
        version: pulled.version.get(),
        alt,
        etag: pulled.etag,
        offset: is_page.then_some(offset.unwrap_or(0)),
        total_count: is_page.then_some(pulled.total_count),
        next_offset: is_page.then_some(pulled.next_offset),
    };
    Ok(PulledEntities { record, entities: pulled.entities, has_alternate: pulled.has_alternate })
}

static PUSH: Endpoint =
    Endpoint::post("/agent/push_alt_version", "pushAltVersion", Group::Alternates, || post(push_alt_version))
        .summary("Saves a version's alternate, unless the alternate has changed since your pull")
        .description(
            "Because you send the `etag` of your pull, you cannot overwrite a change that you have not seen. If the \
     alternate has changed in the meantime, strata returns 409, and you must pull again.",
        )
        .input(Input::Body(&[fields::DATASET_ID, fields::VERSION, ETAG_FIELD, fields::ENTITIES]))
        .answer(Answer::record::<PushAnswer>("The version with its saved alternate, and the etag for the next push."))
        .errors(&[404, 409, 422, 503]);

/// Members can have any order, and entities any size up to `sources.max_bytes`.
async fn push_alt_version(
    Caller(user): Caller,
    State(services): State<AppState>,
    request: Request,
) -> JsonResult<PushAnswer> {
    Ok(Json(push(&services, &user, pushed_body(&services, request)?).await?))
}

/// Pushes by HTTP and by tool.
pub(crate) async fn push<S, E>(services: &Services, user: &User, body: S) -> Result<PushAnswer, HttpError>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    static BESIDE: LazyLock<Vec<&'static str>> = LazyLock::new(|| PUSH.beside_entities());
    Ok(PushAnswer::from(&save_entities(services, user, body, &BESIDE).await?))
}

fn pushed_body(services: &Services, request: Request) -> Result<BodyDataStream, CallError> {
    if !body::is_json(request.headers()) {
        return Err(CallError::NotJson);
    }
    body::check_announced(services, request.body(), 0)?;
    body::check_query(request.uri())?;
    Ok(request.into_body().into_data_stream())
}

/// Saves the entities of a body as an alternate. If the members next to them include an etag, it must be current.
async fn save_entities<S, E>(
    services: &Services,
    user: &User,
    body: S,
    beside: &'static [&'static str],
) -> Result<catalog::VersionRecord, HttpError>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let pushed = services.ingest.receive(user.id, body, beside).await.map_err(AlternateError::from)?;
    let dataset = DatasetId::new(positive(&pushed.members, DATASET_ID)?);
    let version = VersionNumber::new(positive(&pushed.members, VERSION_NAME)?);
    let mut etag = None;
    if beside.contains(&ETAG_MEMBER) {
        etag = pushed.members.text(ETAG_MEMBER).map_err(HttpError::Entities)?;
        if etag.is_none() {
            return Err(CallError::field(ETAG_MEMBER, "missing; valid: the etag that pull_for_edit returned").into());
        }
    }
    Ok(services.datasets.save_alternate(user, dataset, version, pushed.entities, etag.as_deref()).await?)
}

fn positive(members: &EnvelopeFields, name: &'static str) -> Result<u64, HttpError> {
    let problem = match members.integer(name).map_err(HttpError::Entities)? {
        Some(0) => "0 is not valid; valid: a positive integer",
        Some(number) => return Ok(number),
        None => "missing; valid: a positive integer",
    };
    Err(CallError::field(name, problem).into())
}

static SAVE: Endpoint = Endpoint::post("/dataset/alternate/save", "saveAlternate", Group::Alternates, || post(save))
    .summary("Saves a version's alternate, replacing any previous alternate")
    .description(
        "The entities replace the whole alternate, and the version itself does not change. To avoid overwriting \
         another user's changes, use `POST /agent/push_alt_version` instead.",
    )
    .input(Input::Body(&[fields::DATASET_ID, fields::VERSION, fields::ENTITIES]))
    .answer(Answer::record::<SavedAnswer>("The version with its saved alternate."))
    .errors(&[404, 409, 422, 503]);

async fn save(Caller(user): Caller, State(services): State<AppState>, request: Request) -> JsonResult<SavedAnswer> {
    static BESIDE: LazyLock<Vec<&'static str>> = LazyLock::new(|| SAVE.beside_entities());
    let saved = save_entities(&services, &user, pushed_body(&services, request)?, &BESIDE).await?;
    Ok(Json(SavedAnswer::new(VersionRecord::from(&saved), alt_entity_count(&saved))))
}

static DELETE: Endpoint =
    Endpoint::delete("/dataset/alternate/delete", "deleteAlternate", Group::Alternates, || routing::delete(delete))
        .summary("Deletes the alternate of a version")
        .description("After the deletion, queries of the alternate return 404. The version itself does not change.")
        .input(Input::Body(&[fields::DATASET_ID, fields::VERSION]))
        .answer(Answer::record::<VersionAnswer>("The updated version."))
        .errors(&[404]);

async fn delete(Caller(user): Caller, State(services): State<AppState>, fields: Fields) -> JsonResult<VersionAnswer> {
    let dataset = fields.dataset_id()?;
    let deleted = services.datasets.delete_alternate(&user, dataset, fields.version(VERSION_NAME)?).await?;
    Ok(Json(VersionAnswer::from(&deleted)))
}

/// The response to a pull, in addition to the entities.
#[derive(Serialize, ToSchema)]
pub(crate) struct PulledRecord {
    /// Always true.
    pub ok: bool,
    /// The dataset.
    pub dataset_id: u64,
    /// The number of the version.
    pub version: u64,
    /// Whether the entities come from the version's alternate.
    pub alt: bool,
    /// The etag for `push_alt_version` and for edits. The etag changes when the alternate is saved or deleted. Pages
    /// with the same etag belong to the same list.
    pub etag: String,
    /// If you pulled a page, the position of its first entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// If you pulled a page, the number of entities in the whole list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_count: Option<u64>,
    /// If you pulled a page, the offset of the next page, or null at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub next_offset: Option<Option<u64>>,
}

answers! {
    /// The response after an alternate is saved.
    SavedAnswer {
        /// The version.
        version: VersionRecord,
        /// The number of entities in the alternate. `version.entity_count` does not change, because it counts the
        /// entities of the version itself.
        alt_entity_count: u64,
    }
}
