//! `/dataset/…`: the caller's datasets, and the states of their versions.

use axum::Json;
use axum::extract::State;

use super::DATASET_ID;
use super::records::{
    DatasetAnswer, DatasetRecord, DatasetViewAnswer, DatasetViewRecord, DatasetsAnswer, Done, VersionRecord,
};
use super::{BaseUrl, CallError, Caller, Fields, JsonBody, Query, body};
use crate::http::error::HttpError;
use crate::model::dataset::{DEFAULT_SCHEDULE, DatasetSource};
use crate::model::ids::DatasetId;
use crate::model::limits;
use crate::model::schedule::SCHEDULE_FORM;
use crate::service::{App, DatasetSettings, OwnedDataset};

/// Most datasets in one answer of a list.
const LISTED: u32 = limits::LISTED_DATASETS as u32;

/// `POST /dataset/create`: `name`, perhaps `private`, `source`, `format`, `records_path`, `publish_query`,
/// `schedule`, `index`.
pub(super) async fn create(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    fields.only(&[&["name"], SETTINGS].concat())?;
    let (name, settings) = (fields.parsed("name")?, settings(&fields)?);
    let created = app.datasets().create(&user, name, settings, DEFAULT_SCHEDULE).await?;
    Ok(Json(DatasetAnswer::new(&created, &reached)))
}

/// `POST /dataset/update`: `dataset_id`, and what changes.
pub(super) async fn update(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    fields.only(&[&[DATASET_ID, "name"], SETTINGS].concat())?;
    let (id, mut settings) = (fields.dataset_id()?, settings(&fields)?);
    settings.name = fields.optional_text("name")?.map(|name| body::parse("name", name)).transpose()?;
    let updated = app.datasets().update(&user, id, settings).await?;
    Ok(Json(DatasetAnswer::new(&updated, &reached)))
}

/// The fields of [`settings`].
const SETTINGS: &[&str] = &["private", "source", "format", "records_path", "publish_query", "schedule", "index"];

/// What a body says of a dataset, but its name.
fn settings(fields: &Fields) -> Result<DatasetSettings, CallError> {
    let format = fields.nullable_text("format")?;
    let schedule = fields.nullable_text_of("schedule", SCHEDULE_FORM)?;
    Ok(DatasetSettings {
        name: None,
        private: fields.optional_boolean("private")?,
        source: fields.optional_text("source")?.map(DatasetSource::from),
        format: format.map(|format| format.map(|text| body::parse("format", text)).transpose()).transpose()?,
        records_path: fields.nullable_text("records_path")?.map(|path| path.map(str::to_owned)),
        publish_query: fields.optional_boolean("publish_query")?,
        schedule: schedule
            .map(|schedule| schedule.map(|text| body::parse("schedule", text)).transpose())
            .transpose()?,
        index: fields.index()?,
    })
}

/// `DELETE /dataset/delete`: `dataset_id`.
pub(super) async fn delete(
    Caller(user): Caller,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<Done>, HttpError> {
    fields.only(&[DATASET_ID])?;
    app.datasets().delete(&user, fields.dataset_id()?).await?;
    Ok(Json(Done::OK))
}

/// `GET /dataset/list`; a page of it with `after` (a `dataset_id`) and `limit`.
pub(super) async fn list(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    query: Query,
) -> Result<Json<DatasetsAnswer>, HttpError> {
    query.only(&["after", "limit"])?;
    let after = query.optional_positive("after")?.map(DatasetId::new);
    let limit = query.optional_positive("limit")?;
    let limit = limit.map_or(LISTED, |limit| u32::try_from(limit).unwrap_or(LISTED).min(LISTED));
    let datasets = app.datasets().list(&user, after, limit).await?;
    let datasets = datasets.iter().map(|dataset| DatasetRecord::new(dataset, &reached)).collect();
    Ok(Json(DatasetsAnswer { ok: true, datasets }))
}

/// `GET /dataset/view`: `dataset_id`.
pub(super) async fn view(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    query: Query,
) -> Result<Json<DatasetViewAnswer>, HttpError> {
    query.only(&[DATASET_ID])?;
    let view = app.datasets().view(&user, query.dataset_id()?).await?;
    let versions = view.versions.iter().map(VersionRecord::from).collect();
    let owned = OwnedDataset { dataset: view.dataset, last_attempts: view.last_attempts };
    let dataset = DatasetViewRecord { dataset: DatasetRecord::new(&owned, &reached), versions };
    Ok(Json(DatasetViewAnswer { ok: true, dataset }))
}

/// `POST /dataset/rotate_key`: `dataset_id`.
pub(super) async fn rotate_key(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    fields.only(&[DATASET_ID])?;
    let rotated = app.datasets().rotate_key(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&rotated, &reached)))
}

/// `POST /dataset/rollback`: `dataset_id`, `version_number`, perhaps `freeze`.
pub(super) async fn rollback(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    fields.only(&[DATASET_ID, "version_number", "freeze"])?;
    let (id, version) = (fields.dataset_id()?, fields.version("version_number")?);
    let freeze = fields.optional_boolean("freeze")?.unwrap_or(false);
    let rolled_back = app.datasets().rollback(&user, id, version, freeze).await?;
    Ok(Json(DatasetAnswer::new(&rolled_back, &reached)))
}

/// `POST /dataset/unpin`: `dataset_id`.
pub(super) async fn unpin(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    fields.only(&[DATASET_ID])?;
    let unpinned = app.datasets().unpin(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&unpinned, &reached)))
}

/// `POST /dataset/unfreeze`: `dataset_id`.
pub(super) async fn unfreeze(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    fields.only(&[DATASET_ID])?;
    let unfrozen = app.datasets().unfreeze(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&unfrozen, &reached)))
}
