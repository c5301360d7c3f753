//! `/dataset/alternate/…`: the second entity list of a version.

use axum::Json;
use axum::extract::{Request, State};

use super::DATASET_ID;
use super::records::VersionAnswer;
use super::{CallError, Caller, JsonBody, body};
use crate::http::error::HttpError;
use crate::model::ids::DatasetId;
use crate::model::version::VersionNumber;
use crate::service::{AlternateError, App};
use crate::source::EnvelopeFields;

pub(super) const VERSION: &str = "version";

/// `POST /dataset/alternate/save`: `dataset_id`, `version`, `entities`, in any order and of any size within
/// `sources.max_bytes`. Nothing is saved unless the whole body came and can be used.
pub(super) async fn save(
    Caller(user): Caller,
    State(app): State<App>,
    request: Request,
) -> Result<Json<VersionAnswer>, HttpError> {
    if !body::is_json(request.headers()) {
        return Err(CallError::NotJson.into());
    }
    body::check_announced(&app, request.body())?;
    let chunks = request.into_body().into_data_stream();
    let pushed = app.ingest().receive(user.id, chunks, &[DATASET_ID, VERSION]).await.map_err(AlternateError::from)?;
    let dataset = DatasetId::new(positive(&pushed.members, DATASET_ID)?);
    let version = VersionNumber::new(positive(&pushed.members, VERSION)?);
    let saved = app.alternates().save(&user, dataset, version, pushed.entities, None).await?;
    Ok(Json(VersionAnswer::from(&saved)))
}

/// `DELETE /dataset/alternate/delete`: `dataset_id`, `version`.
pub(super) async fn delete(
    Caller(user): Caller,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<VersionAnswer>, HttpError> {
    fields.only(&[DATASET_ID, VERSION])?;
    let (dataset, version) = (fields.dataset_id()?, fields.version(VERSION)?);
    let deleted = app.alternates().delete(&user, dataset, version).await?;
    Ok(Json(VersionAnswer::from(&deleted)))
}

/// A member beside the entities that must be a positive integer.
pub(super) fn positive(members: &EnvelopeFields, name: &'static str) -> Result<u64, HttpError> {
    let problem = match members.integer(name).map_err(HttpError::Entities)? {
        Some(0) => "0 is not valid; valid: a positive integer",
        Some(number) => return Ok(number),
        None => "it is missing; valid: a positive integer",
    };
    Err(CallError::field(name, problem).into())
}
