//! `/dataset/clone`: a new dataset from another's latest version.

use axum::Json;
use axum::extract::State;

use super::DATASET_ID;
use super::records::DatasetAnswer;
use super::{BaseUrl, Caller, JsonBody};
use crate::http::error::HttpError;
use crate::service::App;

/// `POST /dataset/clone`: `dataset_id`, `name`.
pub(super) async fn clone(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    fields.only(&[DATASET_ID, "name"])?;
    let (source, name) = (fields.dataset_id()?, fields.parsed("name")?);
    let cloned = app.datasets().clone_dataset(&user, source, name).await?;
    Ok(Json(DatasetAnswer::new(&cloned, &reached)))
}
