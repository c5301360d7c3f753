//! `GET /dataset/diff`: what two versions differ in.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;

use super::DATASET_ID;
use super::{Caller, Query};
use crate::http::content_encoding::ContentCoding;
use crate::http::error::HttpError;
use crate::http::read::streamed;
use crate::model::request::Format;
use crate::query::diff::{ChangeType, DiffPage};
use crate::service::{AnswerBody, App, DiffError, DiffForm};

/// The formats of a diff.
const FORMATS: [Format; 2] = [Format::Json, Format::Jsonl];

/// `dataset_id`, `v1`, `v2`; a page of the records with `change_type`, `offset`, `limit`; `format`.
pub(super) async fn diff(
    Caller(user): Caller,
    State(app): State<App>,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, HttpError> {
    query.only(&[DATASET_ID, "v1", "v2", "change_type", "offset", "limit", "format"])?;
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
