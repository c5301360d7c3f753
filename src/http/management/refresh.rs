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
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::routing::post;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use strata_ingest::{SourceError, TypeInference, begins_with_object, has_object_per_line};
use strata_service::{PushRequest, RefreshError, RefreshedVersion};
use strata_types::ids::DatasetId;
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

/// Larger than the body of any fetch.
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

/// Responds after the refresh has ended. A client that disconnects does not cancel it.
async fn refresh_dataset(
    AuthenticatedUser(user): AuthenticatedUser,
    State(services): State<AppState>,
    request: Request,
) -> JsonResult<RefreshResponse> {
    let header = ContentTypeHeader::from_headers(request.headers())?;
    request_body::check_content_length(&services, request.body(), 0)?;
    let query = CallFields::from_query(request.uri().query(), &REFRESH_ENDPOINT)?;
    let dataset = query.optional_positive_integer(DATASET_ID_NAME)?.map(DatasetId::new);
    let format: Option<SourceFormat> = query.parse_optional_text("format")?;
    let infer_types = query.optional_boolean(INFER_TYPES_PARAMETER)?;
    let not_a_table = |found: &str| {
        CallError::for_field(
            INFER_TYPES_PARAMETER,
            format!("valid only if you push csv or tsv, but this is {found}; omit it"),
        )
    };
    if let (Some(true), Some(SourceFormat::Json | SourceFormat::Jsonl | SourceFormat::Parquet)) = (infer_types, format)
    {
        return Err(not_a_table(format.map_or("another format", SourceFormat::name)).into());
    }
    if let Some(dataset) = dataset {
        services.ingest.check_owner(user.id, dataset).await?;
    }
    let seconds = services.config.limits.body_timeout_s;
    let mut peeked = PeekedBody::new(request.into_body(), Duration::from_secs(seconds));

    let may_be_enveloped = header.is_json && format.is_none();
    let query_names_dataset = dataset.is_some();
    let (fetch_target, is_enveloped) = match dataset {
        None if !may_be_enveloped => {
            let problem = if header.is_json {
                "missing; valid: a positive integer in the query string. If you set format, the body must contain only \
                 the document, such as a JSON array. To send {\"dataset_id\":…,\"entities\":[…]}, omit format"
            } else {
                "missing; valid: a positive integer, in the query string if the body is not a JSON object"
            };
            return Err(CallError::for_field(DATASET_ID_NAME, problem).into());
        }
        None => {
            peeked.read_until(|head| head.len() >= MAX_BUFFERED_HEAD_BYTES).await?;
            (peeked.fetch_target()?, true)
        }
        Some(dataset) => {
            peeked.read_until(|head| !head.trim_ascii().is_empty()).await?;
            let is_fetch = header.content_type.is_none() && peeked.is_at_end && peeked.head.is_empty();
            (is_fetch.then_some(dataset), may_be_enveloped && peeked.begins_with_object().await?)
        }
    };
    if infer_types == Some(true) && (fetch_target.is_some() || is_enveloped) {
        return Err(not_a_table(if is_enveloped { "a JSON object" } else { "a fetch" }).into());
    }
    let RefreshedVersion { record, warnings } = match fetch_target {
        Some(dataset) => services.refreshes.refresh_from_source(user.id, dataset).await?,
        None => {
            let are_lines = is_enveloped && has_object_per_line(&peeked.head);
            let may_be_document = is_enveloped && query_names_dataset;
            let content_type = header.content_type;
            let body = peeked.into_stream();
            let infer_types =
                infer_types.map(|infers| if infers { TypeInference::TablesOnly } else { TypeInference::Off });
            let push = PushRequest { dataset, body, content_type, name: None, format, infer_types, is_enveloped };
            let pushed = services.refreshes.push(user.id, push).await;
            pushed.map_err(|error| match error {
                RefreshError::Source(SourceError::InvalidBody { reason }) if are_lines => {
                    bad_body_error(reason, JSON_LINES_ADVICE)
                }
                RefreshError::Source(SourceError::InvalidBody { reason })
                    if may_be_document
                        && (reason.contains("unknown field") || reason.contains("entities is missing")) =>
                {
                    bad_body_error(reason, JSON_DOCUMENT_ADVICE)
                }
                error => error,
            })?
        }
    };
    Ok(Json(RefreshResponse::new((&record).into(), warnings)))
}

/// The advice for JSON lines with a JSON content type, which were parsed as an object with `entities`.
const JSON_LINES_ADVICE: &str =
    "The body looks like JSON lines: set Content-Type: application/x-ndjson and send dataset_id in the query string";

/// The advice for other documents that were parsed as an object with `entities`, such as one with a `records_path`.
const JSON_DOCUMENT_ADVICE: &str =
    "To push a JSON object as the document, for example with a records_path, add format=json to the query string";

fn bad_body_error(reason: String, advice: &str) -> RefreshError {
    RefreshError::Source(SourceError::InvalidBody { reason: format!("{reason}. {advice}") })
}

struct ContentTypeHeader {
    content_type: Option<String>,
    is_json: bool,
}

impl ContentTypeHeader {
    fn from_headers(headers: &HeaderMap) -> Result<ContentTypeHeader, CallError> {
        for coding in headers.get_all(CONTENT_ENCODING) {
            let coding = coding.to_str().unwrap_or("?").trim().to_ascii_lowercase();
            // The compression is detected from the first bytes.
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

    /// Returns the dataset if the body is an object without entities. Other bodies might be compressed or incomplete,
    /// so the push parses them.
    fn fetch_target(&self) -> Result<Option<DatasetId>, CallError> {
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

    /// Whether the body begins with a JSON object. Byte order marks and compression are handled.
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
