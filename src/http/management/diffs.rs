//! `GET /dataset/diff`: what two versions differ in.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use axum::routing::on;
use serde_json::json;
use utoipa::openapi::HttpMethod;

use super::{Caller, QueryString, diff_schemas, fields};
use crate::diff::{ChangeType, DiffPage};
use crate::http::body::streamed;
use crate::http::endpoint::{Answer, Callers, Endpoint, Field, FieldKind, Group, Input};
use crate::http::error::HttpError;
use crate::http::headers::content_encoding::ContentCoding;
use crate::model::request::Format;
use crate::service::{AnswerBody, App, DiffError, DiffForm};

/// The formats of a diff.
const FORMATS: [Format; 2] = [Format::Json, Format::Jsonl];

/// The endpoints of this module.
pub(super) static ENDPOINTS: &[&Endpoint] = &[&DIFF];

static DIFF: Endpoint = Endpoint {
    path: "/dataset/diff",
    operations: &[(HttpMethod::Get, "diffVersions")],
    group: Group::Versions,
    summary: "What two versions differ in; a page of the records with `change_type`, `offset` and `limit`",
    callers: Callers::Users,
    input: Input::Query(&[
        fields::DATASET_ID,
        Field::required("v1", FieldKind::Version, "The version that is compared.", || json!("1")),
        Field::required("v2", FieldKind::Version, "The version that it is compared with.", || json!("2")),
        Field::optional(
            "change_type",
            FieldKind::OneOf(|| ChangeType::ALL.map(ChangeType::name).to_vec()),
            "Only records of this type.",
            || json!("modified"),
        ),
        Field::optional("offset", FieldKind::WholeNumber, "Skips the first so many records.", || json!(0)),
        Field::optional("limit", FieldKind::WholeNumber, "At most so many records.", || json!(100)),
        Field::optional(
            "format",
            FieldKind::OneOf(|| FORMATS.map(Format::name).to_vec()),
            "`jsonl` is the records alone, one per line.",
            || json!("json"),
        ),
    ]),
    answer: Answer {
        schemas: diff_schemas::schemas,
        headers: &[&["Vary", "Content-Encoding"]],
        ..Answer::of(
            "How many entities were added, subtracted and modified in all, and a page of the records.",
            &[("application/x-ndjson", diff_schemas::lines)],
        )
    },
    errors: &[404, 503],
    handler: |method| on(method, diff),
};

async fn diff(
    Caller(user): Caller,
    State(app): State<App>,
    headers: HeaderMap,
    query: QueryString,
) -> Result<Response, HttpError> {
    let query = query.of(&DIFF)?;
    let dataset = query.dataset_id()?;
    let (v1, v2) = (query.version("v1")?, query.version("v2")?);
    let page = DiffPage {
        change_type: query.one_of("change_type", ChangeType::ALL, ChangeType::name)?,
        offset: query.optional_whole_number("offset")?.unwrap_or(0),
        limit: query.optional_whole_number("limit")?,
    };
    let form = match query.one_of("format", FORMATS, Format::name)? {
        Some(Format::Jsonl) => DiffForm::Lines,
        _ => DiffForm::Result,
    };
    let diff = app.diffs().compare(&user, dataset, v1, v2).await?;
    let answer = diff.answer(&page, form, ContentCoding::negotiate(&headers)).await.map_err(DiffError::from)?;
    let mut response = Response::new(match answer.body {
        AnswerBody::Whole(bytes) => Body::from(bytes),
        AnswerBody::Stream(parts) => streamed(parts).await?,
        AnswerBody::Export(export) => streamed(export.whole()).await?,
    });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.insert(VARY, HeaderValue::from(ACCEPT_ENCODING));
    if answer.coding != ContentCoding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(answer.coding.name()));
    }
    Ok(response)
}
