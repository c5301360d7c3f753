//! `/dataset/clone`: a new dataset from another's latest version.

use axum::Json;
use axum::extract::State;
use axum::routing::on;
use utoipa::openapi::HttpMethod;

use super::records::DatasetAnswer;
use super::{BaseUrl, Caller, JsonBody, fields};
use crate::http::endpoint::{Answer, Callers, Endpoint, Field, Group, Input};
use crate::http::error::HttpError;
use crate::service::App;

/// The endpoints of this module.
pub(super) static ENDPOINTS: &[&Endpoint] = &[&CLONE];

static CLONE: Endpoint = Endpoint {
    path: "/dataset/clone",
    operations: &[(HttpMethod::Post, "cloneDataset")],
    group: Group::Datasets,
    summary: "A new dataset whose first version is the latest of a public dataset, or of one of the caller's",
    callers: Callers::Users,
    input: Input::Body(&[Field { about: "What is cloned.", ..fields::DATASET_ID }, fields::NAME]),
    answer: Answer::record::<DatasetAnswer>("The dataset as it is now."),
    errors: &[404, 409],
    handler: |method| on(method, clone),
};

async fn clone(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    body: JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    let fields = body.into_fields(&CLONE)?;
    let (source, name) = (fields.dataset_id()?, fields.parsed("name")?);
    let cloned = app.datasets().clone_dataset(&user, source, name).await?;
    Ok(Json(DatasetAnswer::new(&cloned, &reached)))
}
