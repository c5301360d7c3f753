//! `POST /dataset/refresh`: creates a version from the source, or from entities in the request.
//!
//! The meaning of a request:
//! 1. Without `?dataset_id=`, the body is a JSON object. It is a push if it has the member `entities`, and a fetch of
//!    the dataset's URL otherwise.
//! 2. With `?dataset_id=`, without a body, and without `Content-Type`, it is a fetch.
//! 3. With `?dataset_id=` and without `?format=`, a body with a JSON type that begins with `{` is an object with
//!    `entities`.
//! 4. With `?dataset_id=`, any other body is a document in the format of `?format=`, or in a detected format.
//!
//! Only the beginning of a body is buffered. The rest is streamed.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, Uri};
use axum::routing::post;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use strata_ingest::{SourceError, TypeInference, begins_with_object, has_object_per_line};
use strata_service::{PushRequest, RefreshError, RefreshedVersion, Services};
use strata_types::ids::{DatasetId, UserId};
use strata_types::limits::MAX_BYTES_BEFORE_BRACE;
use strata_types::source::SourceFormat;

use super::records::{VersionSummary, response_types};
use super::request_body::OBJECT_FORM;
use super::{AuthenticatedUser, CallFields, DATASET_ID_NAME, JsonResult, fields, request_body};
use crate::AppState;
use crate::endpoint::{
    Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldRequirement, FieldSpec,
};
use crate::error::CallError;

/// Max bytes of a body that are buffered to find out its meaning. This limit is larger than the body of any fetch.
const MAX_BUFFERED_HEAD_BYTES: usize = MAX_BYTES_BEFORE_BRACE;

const INFER_TYPES_PARAMETER: &str = "infer_types";

pub(super) const REFRESH_PATH: &str = "/dataset/refresh";

pub(super) static REFRESH_ENDPOINT: Endpoint =
    Endpoint::post(REFRESH_PATH, "refreshDataset", EndpointGroup::Versions, || post(refresh_dataset))
        .summary("Creates a version from the source, or from the entities that you send to a `push` dataset")
        .description(
            "For a dataset with a source URL, send only `dataset_id`. For a `push` dataset, send `entities`, or send a \
         document in any source format and set `dataset_id` in the query string. The response arrives after the \
         refresh has ended. Once strata has received the body, the refresh continues even if you disconnect.",
        )
        .input(EndpointInput::BodyOrDocument {
            body: &[
                fields::DATASET_ID_FIELD,
                FieldSpec {
                    requirement: FieldRequirement::Optional,
                    description: "The entities, if the source of the dataset is `push`.",
                    ..fields::ENTITIES_FIELD
                },
            ],
            query: &[
                FieldSpec {
                    requirement: FieldRequirement::Optional,
                    description: "The ID of the dataset, if the body does not contain it.",
                    ..fields::DATASET_ID_FIELD
                },
                FieldSpec::optional("format", FieldKind::OneOf(fields::source_format_names), || json!("jsonl"))
                    .description("The format of the pushed document. By default, strata detects it."),
                FieldSpec::optional(INFER_TYPES_PARAMETER, FieldKind::Boolean, || json!(false)).description(
                    "Whether strata converts the type of pushed csv and tsv cells whose text is exactly a number, \
                 boolean, or null. The default is the dataset's setting.",
                ),
            ],
        })
        .response(EndpointResponse::for_record::<RefreshResponse>("The new version, with any warnings."))
        .errors(&[404, 409, 422, 502, 503]);

response_types! {
    /// A response that contains a new version.
    RefreshResponse {
        /// The version.
        version: VersionSummary,
        /// Possible mistakes in the source, such as an unexpected cell separator, as sentences for humans. Warnings
        /// never prevent a new version. Omitted if there are none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    }
}

/// Creates a version, and responds after the refresh has ended. A client that disconnects does not cancel the refresh.
async fn refresh_dataset(
    AuthenticatedUser(user): AuthenticatedUser,
    State(services): State<AppState>,
    request: Request,
) -> JsonResult<RefreshResponse> {
    let header = ContentTypeHeader::from_supported_headers(request.headers())?;
    request_body::check_content_length(&services, request.body(), 0)?;
    let query = RefreshQuery::parse(request.uri())?;
    if let Some(dataset) = query.dataset {
        services.ingest.check_owner(user.id, dataset).await?;
    }
    let seconds = services.config.limits.body_timeout_s;
    let mut peeked = PeekedBody::new(request.into_body(), Duration::from_secs(seconds));
    let RefreshCall { fetch_target, is_enveloped } = peeked.read_call(&header, &query).await?;
    if query.infer_types == Some(true) && (fetch_target.is_some() || is_enveloped) {
        return Err(not_a_table_error(if is_enveloped { "a JSON object" } else { "a fetch" }).into());
    }
    let RefreshedVersion { record, warnings } = match fetch_target {
        Some(dataset) => services.refreshes.refresh_from_source(user.id, dataset).await?,
        None => push_body(&services, user.id, header, query, is_enveloped, peeked).await?,
    };
    Ok(Json(RefreshResponse::new((&record).into(), warnings)))
}

async fn push_body(
    services: &Services,
    user: UserId,
    header: ContentTypeHeader,
    query: RefreshQuery,
    is_enveloped: bool,
    peeked: PeekedBody,
) -> Result<RefreshedVersion, RefreshError> {
    let RefreshQuery { dataset, format, infer_types } = query;
    let are_lines = is_enveloped && has_object_per_line(&peeked.head);
    let may_be_document = is_enveloped && dataset.is_some();
    let content_type = header.content_type;
    let body = peeked.into_stream();
    let infer_types = infer_types.map(|infers| if infers { TypeInference::TablesOnly } else { TypeInference::Off });
    let push = PushRequest { dataset, body, content_type, name: None, format, infer_types, is_enveloped };
    services.refreshes.push(user, push).await.map_err(|error| match error {
        RefreshError::Source(SourceError::InvalidBody { reason }) if are_lines => {
            bad_body_error(reason, JSON_LINES_ADVICE)
        }
        RefreshError::Source(SourceError::InvalidBody { reason })
            if may_be_document && (reason.contains("unknown field") || reason.contains("entities is missing")) =>
        {
            bad_body_error(reason, JSON_DOCUMENT_ADVICE)
        }
        error => error,
    })
}

/// The advice for JSON lines with a JSON content type, which were parsed as an object with `entities`.
const JSON_LINES_ADVICE: &str =
    "The body looks like JSON lines: set Content-Type: application/x-ndjson and send dataset_id in the query string";

/// The advice in errors about other documents that were parsed as an object with `entities`, such as a document that
/// needs a `records_path`.
const JSON_DOCUMENT_ADVICE: &str =
    "To push a JSON object as the document, for example with a records_path, add format=json to the query string";

fn bad_body_error(reason: String, advice: &str) -> RefreshError {
    RefreshError::Source(SourceError::InvalidBody { reason: format!("{reason}. {advice}") })
}

struct RefreshQuery {
    dataset: Option<DatasetId>,
    format: Option<SourceFormat>,
    infer_types: Option<bool>,
}

impl RefreshQuery {
    fn parse(uri: &Uri) -> Result<RefreshQuery, CallError> {
        let fields = CallFields::from_query(uri.query(), &REFRESH_ENDPOINT)?;
        let dataset = fields.optional_positive_integer(DATASET_ID_NAME)?.map(DatasetId::new);
        let format: Option<SourceFormat> = fields.parse_optional_text("format")?;
        let infer_types = fields.optional_boolean(INFER_TYPES_PARAMETER)?;
        match format {
            Some(other @ (SourceFormat::Json | SourceFormat::Jsonl | SourceFormat::Parquet))
                if infer_types == Some(true) =>
            {
                Err(not_a_table_error(other.name()))
            }
            _ => Ok(RefreshQuery { dataset, format, infer_types }),
        }
    }
}

fn not_a_table_error(found: &str) -> CallError {
    let problem = format!("valid only if you push csv or tsv, but this is {found}; omit it");
    CallError::for_field(INFER_TYPES_PARAMETER, problem)
}

/// A call that fetches the source of the target dataset, or a push of entities if there is no target.
struct RefreshCall {
    fetch_target: Option<DatasetId>,
    /// Whether the body is a JSON object with the fields of the call.
    is_enveloped: bool,
}

struct ContentTypeHeader {
    content_type: Option<String>,
    is_json: bool,
}

impl ContentTypeHeader {
    fn from_supported_headers(headers: &HeaderMap) -> Result<ContentTypeHeader, CallError> {
        for coding in headers.get_all(CONTENT_ENCODING) {
            let coding = coding.to_str().unwrap_or("?").trim().to_ascii_lowercase();
            // Valid values of `Content-Encoding` have no effect: the first bytes show the compression.
            if !matches!(coding.as_str(), "" | "identity" | "gzip" | "x-gzip" | "zstd") {
                return Err(CallError::SourceFormatRequired);
            }
        }
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let Some(content_type) = types.next() else {
            return Ok(ContentTypeHeader { content_type: None, is_json: false });
        };
        if types.next().is_some() {
            return Err(CallError::SourceFormatRequired);
        }
        let text = content_type.to_str().map_err(|_| CallError::SourceFormatRequired)?;
        let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_json = matches!(essence.as_str(), "application/json" | "text/json")
            || (essence.starts_with("application/") && essence.ends_with("+json"));
        let is_generic = matches!(
            essence.as_str(),
            "application/octet-stream"
                | "text/plain"
                | "application/gzip"
                | "application/x-gzip"
                | "application/zstd"
                | "application/x-zstd"
        );
        if !is_json && !is_generic && SourceFormat::from_content_type(&essence).is_none() {
            return Err(CallError::SourceFormatRequired);
        }
        Ok(ContentTypeHeader { content_type: Some(text.to_owned()), is_json })
    }
}

struct PeekedBody {
    head: BytesMut,
    rest: BodyDataStream,
    is_at_end: bool,
    read_timeout: Duration,
}

impl PeekedBody {
    fn new(body: Body, read_timeout: Duration) -> PeekedBody {
        PeekedBody { head: BytesMut::new(), rest: body.into_data_stream(), is_at_end: false, read_timeout }
    }

    async fn read_until(&mut self, enough: impl Fn(&[u8]) -> bool) -> Result<(), CallError> {
        let read_timeout = self.read_timeout;
        let read = async {
            while !enough(&self.head) && self.head.len() < MAX_BUFFERED_HEAD_BYTES {
                match self.rest.next().await {
                    Some(Ok(chunk)) => self.head.extend_from_slice(&chunk),
                    Some(Err(_)) => return Err(CallError::IncompleteBody),
                    None => {
                        self.is_at_end = true;
                        return Ok(());
                    }
                }
            }
            Ok(())
        };
        let late = CallError::BodyTimeout { seconds: read_timeout.as_secs() };
        tokio::time::timeout(read_timeout, read).await.map_err(|_| late)?
    }

    /// Reads as much of the body as is necessary to distinguish a fetch from a push.
    async fn read_call(&mut self, header: &ContentTypeHeader, query: &RefreshQuery) -> Result<RefreshCall, CallError> {
        let may_be_enveloped = header.is_json && query.format.is_none();
        match query.dataset {
            None if !may_be_enveloped => {
                let problem = if header.is_json {
                    "missing; valid: a positive integer in the query string. If you set format, the body must contain \
                     only the document, such as a JSON array. To send {\"dataset_id\":…,\"entities\":[…]}, omit format"
                } else {
                    "missing; valid: a positive integer, in the query string if the body is not a JSON object"
                };
                Err(CallError::for_field(DATASET_ID_NAME, problem))
            }
            None => {
                self.read_until(|head| head.len() >= MAX_BUFFERED_HEAD_BYTES).await?;
                Ok(RefreshCall { fetch_target: self.parse_fetch_target()?, is_enveloped: true })
            }
            Some(dataset) => {
                self.read_until(|head| !head.trim_ascii().is_empty()).await?;
                let is_fetch = header.content_type.is_none() && self.is_at_end && self.head.is_empty();
                let is_enveloped = may_be_enveloped && self.begins_with_object().await?;
                Ok(RefreshCall { fetch_target: is_fetch.then_some(dataset), is_enveloped })
            }
        }
    }

    /// Returns the dataset to fetch if the body is a complete JSON object without `entities`, and `None` for a push,
    /// whose body might be compressed or incomplete.
    fn parse_fetch_target(&self) -> Result<Option<DatasetId>, CallError> {
        if !self.is_at_end {
            return Ok(None);
        }
        match serde_json::from_slice(&self.head) {
            Ok(Value::Object(members)) if !members.contains_key("entities") => {
                let fields = CallFields::from_body(members, None, &REFRESH_ENDPOINT)?;
                fields.dataset_id().map(Some)
            }
            Ok(Value::Object(_)) => Ok(None),
            Ok(_) => Err(CallError::InvalidBody {
                problem: format!(
                    "it is JSON, but not an object; valid: {OBJECT_FORM}, or an array of entities with ?dataset_id= \
                     in the query string"
                ),
            }),
            Err(_) if self.head.is_empty() => {
                Err(CallError::InvalidBody { problem: format!("it is empty; valid: {OBJECT_FORM}") })
            }
            Err(_) => Ok(None),
        }
    }

    /// Returns whether the body begins with a JSON object, even after a byte order mark or in compressed form.
    async fn begins_with_object(&mut self) -> Result<bool, CallError> {
        if !matches!(self.head.trim_ascii_start().first(), Some(b'{' | b'[') | None) {
            self.read_until(|head| head.len() >= MAX_BUFFERED_HEAD_BYTES).await?;
        }
        Ok(begins_with_object(&self.head))
    }

    fn into_stream(self) -> impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static {
        let head = self.head.freeze();
        let rest = if self.is_at_end { None } else { Some(self.rest) };
        stream::once(async move { Ok(head) }).chain(stream::iter(rest).flatten())
    }
}
