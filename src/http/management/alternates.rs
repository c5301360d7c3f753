//! `/agent/…` and `/dataset/alternate/…`: pulls a version for editing; saves or deletes its alternate (edited copy).

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
use strata_service::{AlternateError, ResponseBody, Services};
use strata_types::ids::DatasetId;
use strata_types::user::User;
use strata_types::version::VersionNumber;
use utoipa::openapi::{AllOfBuilder, ArrayBuilder, Ref, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::caller::PULL_PATH;
use super::fields::{ENTITIES_FIELD, ETAG_FIELD, ETAG_NAME, VERSION_FIELD, VERSION_NAME};
use super::records::{PushResponse, VersionResponse, VersionSummary, alt_entity_count, response_types};
use super::{
    AuthenticatedUser, CallFields, DATASET_ID_NAME, JsonResult, UserCall, alternate_edits, fields, request_body,
};
use crate::AppState;
use crate::endpoint::{Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec};
use crate::error::{CallError, HttpError, Result};
use crate::openapi_components::schema_of_type;
use crate::streamed_body::stream_body;

pub(super) const ENDPOINTS: &[&Endpoint] = &[
    &SAVE_ALTERNATE_ENDPOINT,
    &DELETE_ALTERNATE_ENDPOINT,
    &alternate_edits::EDIT_ALTERNATE_ENDPOINT,
    &PULL_ENDPOINT,
    &PUSH_ENDPOINT,
];

/// `true` if the version has an alternate. Edit positions then refer to the alternate.
const X_ALTERNATE: HeaderName = HeaderName::from_static("x-alternate");

pub(crate) struct PulledEntities {
    pub record: PulledRecord,
    pub entities: ResponseBody,
    pub has_alternate: bool,
}

impl PulledEntities {
    pub(crate) fn json_envelope(&self) -> Result<(String, &'static str)> {
        let record = serde_json::to_string(&self.record).map_err(|error| HttpError::Panic(error.to_string()))?;
        Ok((format!("{},\"entities\":", record.trim_end_matches('}')), "}"))
    }
}

static PULL_ENDPOINT: Endpoint =
    Endpoint::post(PULL_PATH, "pullForEdit", EndpointGroup::Alternates, || post(pull_for_edit))
        .summary("Returns the entities of a version for editing, with the etag that you need to save them")
        .description(
            "Edit the entities, and then send them with the `etag` to `POST /agent/push_alt_version`. For long lists, \
             set `offset` and `limit` to pull one page at a time.",
        )
        .input(EndpointInput::Body(&[
            fields::DATASET_ID_FIELD,
            FieldSpec::optional(VERSION_NAME, FieldKind::VersionSelectorOrNumber, || json!(1))
                .description("The version to pull. The default is the active version."),
            FieldSpec::optional("alt", FieldKind::Boolean, || json!(false))
                .description("Whether to pull the version's alternate instead of the version itself."),
            FieldSpec::optional("offset", FieldKind::WholeNumber, || json!(0))
                .description("If you pull a page, the zero-based position of its first entity."),
            FieldSpec::optional("limit", FieldKind::WholeNumber, || json!(100))
                .description("If you pull a page, the maximum number of entities in it."),
        ]))
        .response(EndpointResponse {
            schemas: || vec![("PullAnswer".to_owned(), pull_response_schema())],
            headers: &[&["ETag", "X-Alternate"]],
            ..EndpointResponse::new(
                "The entities exactly as stored, and the etag, which strata also returns in the `ETag` header.",
                &[],
            )
        })
        .errors(&[404, 503]);

async fn pull_for_edit(UserCall { user, services, fields, .. }: UserCall) -> Result<Response> {
    let pulled = pull_entities(&services, &user, &fields).await?;
    // Hexadecimal digits in quotes are always a valid header value.
    let etag = HeaderValue::try_from(&pulled.record.etag).ok();
    let has_alternate = HeaderValue::from_static(if pulled.has_alternate { "true" } else { "false" });
    let (before, after) = pulled.json_envelope()?;
    let body = match pulled.entities {
        ResponseBody::Whole(entities) => {
            Body::new(ChunkListBody([before.into(), entities, Bytes::from_static(after.as_bytes())].into()))
        }
        entities => stream_body(surround_chunks(entities.into_stream(), before, after).boxed()).await?,
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().extend(etag.map(|etag| (ETAG, etag)));
    response.headers_mut().insert(X_ALTERNATE, has_alternate);
    Ok(response)
}

fn pull_response_schema() -> RefOr<Schema> {
    let entities = ArrayBuilder::new()
        .items(Ref::from_schema_name("Entity"))
        .description(Some("The entities, exactly as stored."));
    let entities = schema_of_type(Type::Object).property("entities", entities).required("entities");
    RefOr::T(Schema::AllOf(AllOfBuilder::new().item(PulledRecord::schema()).item(entities).build()))
}

/// A response body of several chunks. Concatenating them would copy large chunks, and lose their memory accounting.
struct ChunkListBody(VecDeque<Bytes>);

impl HttpBody for ChunkListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|chunk| chunk.len() as u64).sum())
    }
}

/// Adds text before and after a stream. The first item contains `before` and the first chunk, so that a failure of the
/// first chunk can still return an error status.
fn surround_chunks<E>(
    chunks: impl Stream<Item = Result<Bytes, E>>,
    before: String,
    after: &'static str,
) -> impl Stream<Item = Result<Bytes, E>> {
    let mut before = Some(before);
    let with_prefix = chunks.map(move |chunk| {
        let chunk = chunk?;
        Ok(match before.take() {
            Some(before) => Bytes::from([before.as_bytes(), &chunk].concat()),
            None => chunk,
        })
    });
    with_prefix.chain(futures::stream::once(async move { Ok(Bytes::from_static(after.as_bytes())) }))
}

pub(crate) async fn pull_entities(services: &Services, user: &User, fields: &CallFields) -> Result<PulledEntities> {
    let dataset = fields.dataset_id()?;
    let version = fields.version_selector_or_active(VERSION_NAME)?;
    let variant = fields.version_variant()?;
    let offset = fields.optional_whole_number("offset")?;
    let limit = fields.optional_whole_number("limit")?;
    let pulled = services.reads.pull_entities(user, dataset, version, variant, offset.unwrap_or(0), limit).await?;
    let is_page = offset.is_some() || limit.is_some();
    let record = PulledRecord {
        ok: true,
        dataset_id: dataset.get(),
        version: pulled.version.get(),
        alt: variant.is_alternate(),
        etag: pulled.etag,
        offset: is_page.then_some(offset.unwrap_or(0)),
        total_count: is_page.then_some(pulled.total_count),
        next_offset: is_page.then_some(pulled.next_offset),
    };
    Ok(PulledEntities { record, entities: pulled.entities, has_alternate: pulled.has_alternate })
}

static PUSH_ENDPOINT: Endpoint =
    Endpoint::post("/agent/push_alt_version", "pushAltVersion", EndpointGroup::Alternates, || post(push_alt_version))
        .summary("Saves a version's alternate, unless the alternate has changed since your pull")
        .description(
            "Because you send the `etag` of your pull, you cannot overwrite a change that you have not seen. If the \
     alternate has changed in the meantime, strata returns 409, and you must pull again.",
        )
        .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD, VERSION_FIELD, ETAG_FIELD, ENTITIES_FIELD]))
        .response(EndpointResponse::for_record::<PushResponse>(
            "The version with its saved alternate, and the etag for the next push.",
        ))
        .errors(&[404, 409, 422, 503]);

/// Saves the entities in the body as the alternate (edited copy) of a version. The members of the body can be in any
/// order. The size of the entities is limited by `sources.max_bytes`.
async fn push_alt_version(
    AuthenticatedUser(user): AuthenticatedUser,
    State(services): State<AppState>,
    request: Request,
) -> JsonResult<PushResponse> {
    Ok(Json(push_alternate(&services, &user, checked_body_stream(&services, request)?).await?))
}

pub(crate) async fn push_alternate<S, E>(services: &Services, user: &User, body: S) -> Result<PushResponse>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    static ENVELOPE_NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| PUSH_ENDPOINT.envelope_field_names());
    Ok(PushResponse::from(&save_alternate_body(services, user, body, &ENVELOPE_NAMES).await?))
}

fn checked_body_stream(services: &Services, request: Request) -> Result<BodyDataStream, CallError> {
    if !request_body::has_json_body(request.headers()) {
        return Err(CallError::JsonRequired);
    }
    request_body::check_content_length(services, request.body(), 0)?;
    request_body::reject_query_string(request.uri())?;
    Ok(request.into_body().into_data_stream())
}

/// Saves a body as an alternate. If `envelope_names` includes the etag, the body must contain the current etag.
async fn save_alternate_body<S, E>(
    services: &Services,
    user: &User,
    body: S,
    envelope_names: &'static [&'static str],
) -> Result<catalog::VersionStatus>
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let pushed = services.ingest.receive_entities(user.id, body, envelope_names).await.map_err(AlternateError::from)?;
    let dataset = DatasetId::new(parse_positive_member(&pushed.members, DATASET_ID_NAME)?);
    let version = VersionNumber::new(parse_positive_member(&pushed.members, VERSION_NAME)?);
    let mut etag = None;
    if envelope_names.contains(&ETAG_NAME) {
        etag = pushed.members.string(ETAG_NAME).map_err(HttpError::InvalidEntities)?;
        if etag.is_none() {
            return Err(CallError::for_field(ETAG_NAME, "missing; valid: the etag that pull_for_edit returned").into());
        }
    }
    Ok(services.datasets.save_alternate(user, dataset, version, pushed.entities, etag.as_deref()).await?)
}

fn parse_positive_member(members: &EnvelopeFields, name: &'static str) -> Result<u64> {
    let problem = match members.integer(name).map_err(HttpError::InvalidEntities)? {
        Some(0) => "0 is not valid; valid: a positive integer",
        Some(number) => return Ok(number),
        None => "missing; valid: a positive integer",
    };
    Err(CallError::for_field(name, problem).into())
}

static SAVE_ALTERNATE_ENDPOINT: Endpoint =
    Endpoint::post("/dataset/alternate/save", "saveAlternate", EndpointGroup::Alternates, || post(save_alternate))
        .summary("Saves a version's alternate, replacing any previous alternate")
        .description(
            "The entities replace the whole alternate, and the version itself does not change. To avoid overwriting \
         another user's changes, use `POST /agent/push_alt_version` instead.",
        )
        .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD, VERSION_FIELD, ENTITIES_FIELD]))
        .response(EndpointResponse::for_record::<SavedAlternateResponse>("The version with its saved alternate."))
        .errors(&[404, 409, 422, 503]);

async fn save_alternate(
    AuthenticatedUser(user): AuthenticatedUser,
    State(services): State<AppState>,
    request: Request,
) -> JsonResult<SavedAlternateResponse> {
    static ENVELOPE_NAMES: LazyLock<Vec<&'static str>> =
        LazyLock::new(|| SAVE_ALTERNATE_ENDPOINT.envelope_field_names());
    let saved =
        save_alternate_body(&services, &user, checked_body_stream(&services, request)?, &ENVELOPE_NAMES).await?;
    Ok(Json(SavedAlternateResponse::new(VersionSummary::from(&saved), alt_entity_count(&saved))))
}

static DELETE_ALTERNATE_ENDPOINT: Endpoint =
    Endpoint::delete("/dataset/alternate/delete", "deleteAlternate", EndpointGroup::Alternates, || {
        routing::delete(delete_alternate)
    })
    .summary("Deletes the alternate of a version")
    .description("After the deletion, queries of the alternate return 404. The version itself does not change.")
    .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD, VERSION_FIELD]))
    .response(EndpointResponse::for_record::<VersionResponse>("The updated version."))
    .errors(&[404]);

async fn delete_alternate(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<VersionResponse> {
    let dataset = fields.dataset_id()?;
    let deleted = services.datasets.delete_alternate(&user, dataset, fields.version_number(VERSION_NAME)?).await?;
    Ok(Json(VersionResponse::from(&deleted)))
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

response_types! {
    /// The response after an alternate is saved.
    SavedAlternateResponse {
        /// The version.
        version: VersionSummary,
        /// The number of entities in the alternate. `version.entity_count` does not change, because it counts the
        /// entities of the version itself.
        alt_entity_count: u64,
    }
}
