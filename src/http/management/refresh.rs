//! `POST /dataset/refresh`: asks for a new version, or sends its entities.
//!
//! The meaning of a request:
//! 1. Without `?dataset_id=`, the body is a JSON object. It is a push if it has the member `entities`, and a fetch of
//!    the dataset's URL otherwise.
//! 2. With `?dataset_id=`, without a body and without `Content-Type`, it is a fetch.
//! 3. With `?dataset_id=` and without `?format=`, a body with a JSON type that begins with `{` is an object with
//!    `entities`.
//! 4. With `?dataset_id=`, any other body is a document in the format of `?format=`, or in a detected format.
//!
//! Only the beginning of a body is in memory; the rest is streamed.

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
use strata_ingest::{InferTypes, SourceError, begins_with_object, has_objects_as_lines};
use strata_service::{Push, RefreshError, Refreshed};
use strata_types::ids::DatasetId;
use strata_types::limits::BRACKET_WITHIN_BYTES;
use strata_types::source::SourceFormat;

use super::body::OBJECT_FORM;
use super::records::{VersionRecord, answers};
use super::{Caller, DATASET_ID, Fields, JsonResult, body, fields};
use crate::AppState;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input, Need};
use crate::error::CallError;

/// Larger than any request that is not a push.
const HEAD_BYTES: usize = BRACKET_WITHIN_BYTES;

const INFER_TYPES: &str = "infer_types";

pub(super) const PATH: &str = "/dataset/refresh";

pub(super) static REFRESH: Endpoint = Endpoint::post(PATH, "refreshDataset", Group::Versions, || post(refresh))
    .summary("Creates a version from the source, or from the entities that you send to a `push` dataset")
    .description(
        "For a dataset with a source URL, send only `dataset_id`. For a `push` dataset, send `entities`, or send a \
         document in any source format and set `dataset_id` in the query string. The response arrives after the \
         refresh has ended. Once strata has received the body, the refresh continues even if you disconnect.",
    )
    .input(Input::BodyOrDocument {
        body: &[
            fields::DATASET_ID,
            Field {
                need: Need::Optional,
                about: "The entities, if the source of the dataset is `push`.",
                ..fields::ENTITIES
            },
        ],
        query: &[
            Field {
                need: Need::Optional,
                about: "The ID of the dataset, if the body does not contain it.",
                ..fields::DATASET_ID
            },
            Field::optional("format", FieldKind::OneOf(fields::source_formats), || json!("jsonl"))
                .about("The format of the pushed document. By default, strata detects it."),
            Field::optional(INFER_TYPES, FieldKind::Boolean, || json!(false)).about(
                "Whether strata converts the type of pushed csv and tsv cells whose text is exactly a number, \
                 boolean, or null. The default is the dataset's setting.",
            ),
        ],
    })
    .answer(Answer::record::<RefreshAnswer>("The new version, with any warnings."))
    .errors(&[404, 409, 422, 502, 503]);

answers! {
    /// A response that contains a new version.
    RefreshAnswer {
        /// The version.
        version: VersionRecord,
        /// Possible mistakes in the source, such as an unexpected cell separator, as sentences for humans. Warnings
        /// never prevent a new version. Omitted if there are none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    }
}

/// Responds when the refresh has ended. A client that disconnects does not cancel it.
async fn refresh(
    Caller(user): Caller,
    State(services): State<AppState>,
    request: Request,
) -> JsonResult<RefreshAnswer> {
    let announced = Announced::from_headers(request.headers())?;
    body::check_announced(&services, request.body(), 0)?;
    let query = Fields::from_query(request.uri().query(), &REFRESH)?;
    let dataset = query.optional_positive(DATASET_ID)?.map(DatasetId::new);
    let format: Option<SourceFormat> = query.optional_parsed("format")?;
    let infer_types = query.optional_boolean(INFER_TYPES)?;
    let for_tables = |found: &str| {
        CallError::field(INFER_TYPES, format!("valid only if you push csv or tsv, but this is {found}; omit it"))
    };
    if let (Some(true), Some(SourceFormat::Json | SourceFormat::Jsonl | SourceFormat::Parquet)) = (infer_types, format)
    {
        return Err(for_tables(format.map_or("another format", SourceFormat::name)).into());
    }
    if let Some(dataset) = dataset {
        // Before anything is read.
        services.ingest.check_owned(user.id, dataset).await?;
    }
    let seconds = services.config.limits.body_timeout_s;
    let mut taken = Taken::new(request.into_body(), Duration::from_secs(seconds));

    let may_be_enveloped = announced.json && format.is_none();
    let query_names_dataset = dataset.is_some();
    let (fetched, enveloped) = match dataset {
        None if !may_be_enveloped => {
            let problem = if announced.json {
                "missing; valid: a positive integer in the query string. If you set format, the body must contain only \
                 the document, such as a JSON array. To send {\"dataset_id\":…,\"entities\":[…]}, omit format"
            } else {
                "missing; valid: a positive integer, in the query string if the body is not a JSON object"
            };
            return Err(CallError::field(DATASET_ID, problem).into());
        }
        None => {
            taken.read_until(|head| head.len() >= HEAD_BYTES).await?;
            (taken.asks_for_a_fetch()?, true)
        }
        Some(dataset) => {
            taken.read_until(|head| !head.trim_ascii().is_empty()).await?;
            let nothing = announced.content_type.is_none() && taken.ended && taken.head.is_empty();
            (nothing.then_some(dataset), may_be_enveloped && taken.begins_with_object().await?)
        }
    };
    if infer_types == Some(true) && (fetched.is_some() || enveloped) {
        return Err(for_tables(if enveloped { "a JSON object" } else { "a fetch" }).into());
    }
    let Refreshed { record, warnings } = match fetched {
        Some(dataset) => services.refreshes.fetch(user.id, dataset).await?,
        None => {
            let are_lines = enveloped && has_objects_as_lines(&taken.head);
            let may_be_document = enveloped && query_names_dataset;
            let content_type = announced.content_type;
            let body = taken.into_stream();
            let infer_types = infer_types.map(|infers| if infers { InferTypes::TablesOnly } else { InferTypes::No });
            let push = Push { dataset, body, content_type, name: None, format, infer_types, enveloped };
            let pushed = services.refreshes.push(user.id, push).await;
            pushed.map_err(|error| match error {
                RefreshError::Source(SourceError::BadBody { reason }) if are_lines => bad_body(reason, LINES),
                RefreshError::Source(SourceError::BadBody { reason })
                    if may_be_document
                        && (reason.contains("unknown field") || reason.contains("entities is missing")) =>
                {
                    bad_body(reason, DOCUMENT)
                }
                error => error,
            })?
        }
    };
    Ok(Json(RefreshAnswer::new((&record).into(), warnings)))
}

/// The advice for JSON lines with a JSON type, which were parsed as an object with `entities`.
const LINES: &str =
    "The body looks like JSON lines: set Content-Type: application/x-ndjson and send dataset_id in the query string";

/// The advice for another document, such as one with a `records_path`, that was parsed as that object.
const DOCUMENT: &str =
    "To push a JSON object as the document, for example with a records_path, add format=json to the query string";

fn bad_body(reason: String, advice: &str) -> RefreshError {
    RefreshError::Source(SourceError::BadBody { reason: format!("{reason}. {advice}") })
}

struct Announced {
    content_type: Option<String>,
    json: bool,
}

impl Announced {
    fn from_headers(headers: &HeaderMap) -> Result<Announced, CallError> {
        for coding in headers.get_all(CONTENT_ENCODING) {
            let coding = coding.to_str().unwrap_or("?").trim().to_ascii_lowercase();
            // The first bytes show the compression.
            if !matches!(coding.as_str(), "" | "identity" | "gzip" | "x-gzip" | "zstd") {
                return Err(CallError::NotSource);
            }
        }
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let Some(content_type) = types.next() else { return Ok(Announced { content_type: None, json: false }) };
        if types.next().is_some() {
            return Err(CallError::NotSource);
        }
        let text = content_type.to_str().map_err(|_| CallError::NotSource)?;
        let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let json = matches!(essence.as_str(), "application/json" | "text/json")
            || (essence.starts_with("application/") && essence.ends_with("+json"));
        let general = matches!(
            essence.as_str(),
            "application/octet-stream"
                | "text/plain"
                | "application/gzip"
                | "application/x-gzip"
                | "application/zstd"
                | "application/x-zstd"
        );
        if !json && !general && SourceFormat::of_content_type(&essence).is_none() {
            return Err(CallError::NotSource);
        }
        Ok(Announced { content_type: Some(text.to_owned()), json })
    }
}

struct Taken {
    head: BytesMut,
    rest: BodyDataStream,
    ended: bool,
    patience: Duration,
}

impl Taken {
    fn new(body: Body, patience: Duration) -> Taken {
        Taken { head: BytesMut::new(), rest: body.into_data_stream(), ended: false, patience }
    }

    async fn read_until(&mut self, enough: impl Fn(&[u8]) -> bool) -> Result<(), CallError> {
        let patience = self.patience;
        let read = async {
            while !enough(&self.head) && self.head.len() < HEAD_BYTES {
                match self.rest.next().await {
                    Some(Ok(chunk)) => self.head.extend_from_slice(&chunk),
                    Some(Err(_)) => return Err(CallError::Cut),
                    None => {
                        self.ended = true;
                        return Ok(());
                    }
                }
            }
            Ok(())
        };
        let late = CallError::TooSlow { seconds: patience.as_secs() };
        tokio::time::timeout(patience, read).await.map_err(|_| late)?
    }

    /// The dataset, if the body is an object without entities. Other text can be compressed, or too long, so the push
    /// parses it.
    fn asks_for_a_fetch(&self) -> Result<Option<DatasetId>, CallError> {
        if !self.ended {
            return Ok(None);
        }
        match serde_json::from_slice(&self.head) {
            Ok(Value::Object(members)) if !members.contains_key("entities") => {
                let fields = Fields::from_body(members, None, &REFRESH)?;
                fields.dataset_id().map(Some)
            }
            Ok(Value::Object(_)) => Ok(None),
            Ok(_) => Err(CallError::Body {
                problem: format!(
                    "it is JSON, but not an object; valid: {OBJECT_FORM}, or an array of entities with ?dataset_id= \
                     in the query string"
                ),
            }),
            Err(_) if self.head.is_empty() => {
                Err(CallError::Body { problem: format!("it is empty; valid: {OBJECT_FORM}") })
            }
            Err(_) => Ok(None),
        }
    }

    /// Whether the body begins with an object, also after a byte order mark or if it is compressed.
    async fn begins_with_object(&mut self) -> Result<bool, CallError> {
        if !matches!(self.head.trim_ascii_start().first(), Some(b'{' | b'[') | None) {
            // It can be compressed.
            self.read_until(|head| head.len() >= HEAD_BYTES).await?;
        }
        Ok(begins_with_object(&self.head))
    }

    fn into_stream(self) -> impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static {
        let head = self.head.freeze();
        let rest = if self.ended { None } else { Some(self.rest) };
        stream::once(async move { Ok(head) }).chain(stream::iter(rest).flatten())
    }
}
