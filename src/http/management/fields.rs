//! Fields that several endpoints share, and the extractor of [`CallFields`] from a query string or a body.

use axum::extract::{FromRequest, Request};
use serde_json::json;
use strata_types::source::SourceFormat;

use super::DATASET_ID_NAME;
use super::request_body::{self, CallFields};
use crate::AppState;
use crate::endpoint::{Endpoint, EndpointInput, FieldKind, FieldSpec};
use crate::error::HttpError;

pub(super) const DATASET_ID_FIELD: FieldSpec =
    FieldSpec::required(DATASET_ID_NAME, FieldKind::Id, || json!(1)).description("The ID of one of your datasets.");

pub(super) const NAME_FIELD: FieldSpec =
    FieldSpec::required("name", FieldKind::DatasetName, || json!("World Countries"))
        .description("The name of the dataset. It must be unique among your datasets and contain a letter or digit.");

pub(super) const VERSION_NAME: &str = "version";

pub(super) const VERSION_FIELD: FieldSpec = FieldSpec::required(VERSION_NAME, FieldKind::Id, || json!(1))
    .description("The number of one of the dataset's versions.");

pub(super) const ENTITIES_FIELD: FieldSpec =
    FieldSpec::required("entities", FieldKind::Entities, || json!([{ "name": "Aruba", "area": 180 }]))
        .description("The entities, in order.");

pub(super) const ETAG_NAME: &str = "etag";

pub(super) const ETAG_FIELD: FieldSpec =
    FieldSpec::required(ETAG_NAME, FieldKind::Text, || json!("\"00112233445566778899aabbccddeeff\""))
        .description("The etag from the pull or from the previous change.");

pub(super) const CHECKS_FIELD: FieldSpec = FieldSpec::optional(
    "checks",
    FieldKind::Checks,
    || json!({ "min_entities": 100, "required": ["name"] }),
)
.description(
    "The checks that the entities of a refresh must pass to become a version. If one fails, the refresh fails, and \
         the active version does not change. A change replaces all checks. The default is null (no checks).",
);

pub(super) fn source_format_names() -> Vec<&'static str> {
    SourceFormat::ALL.map(SourceFormat::name).to_vec()
}

impl FromRequest<AppState> for CallFields {
    type Rejection = HttpError;

    async fn from_request(request: Request, services: &AppState) -> Result<CallFields, HttpError> {
        let endpoint: Option<&&Endpoint> = request.extensions().get();
        let endpoint = *endpoint.ok_or_else(|| HttpError::Panic("the route has no endpoint extension".to_owned()))?;
        match endpoint.input {
            EndpointInput::Body(_) => {
                request_body::read_fields(services, request, services.config.limits.body_bytes, endpoint).await
            }
            _ => Ok(CallFields::from_query(request.uri().query(), endpoint)?),
        }
    }
}
