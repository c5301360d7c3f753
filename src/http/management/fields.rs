//! Fields that endpoints of several modules take, and the fields of a call: those of its query string or of its body.

use axum::extract::{FromRequest, Request};
use serde_json::json;
use strata_types::source::SourceFormat;

use super::DATASET_ID as DATASET_ID_NAME;
use super::body::{self, Fields};
use crate::AppState;
use crate::endpoint::{Endpoint, Field, FieldKind, Input};
use crate::error::HttpError;

pub(super) const DATASET_ID: Field =
    Field::required(DATASET_ID_NAME, FieldKind::Id, || json!(1)).about("The ID of one of your datasets.");

pub(super) const NAME: Field = Field::required("name", FieldKind::DatasetName, || json!("World Countries"))
    .about("The name of the dataset. It must be unique among your datasets and contain a letter or digit.");

pub(super) const VERSION_NAME: &str = "version";

/// A version that must be named by its number.
pub(super) const VERSION: Field =
    Field::required(VERSION_NAME, FieldKind::Id, || json!(1)).about("The number of one of the dataset's versions.");

pub(super) const ENTITIES: Field =
    Field::required("entities", FieldKind::Entities, || json!([{ "name": "Aruba", "area": 180 }]))
        .about("The entities, in order.");

pub(super) const ETAG_MEMBER: &str = "etag";

pub(super) const ETAG_FIELD: Field =
    Field::required(ETAG_MEMBER, FieldKind::Text, || json!("\"00112233445566778899aabbccddeeff\""))
        .about("The etag from the pull or from the previous change.");

pub(super) fn source_formats() -> Vec<&'static str> {
    SourceFormat::ALL.map(SourceFormat::name).to_vec()
}

impl FromRequest<AppState> for Fields {
    type Rejection = HttpError;

    async fn from_request(request: Request, services: &AppState) -> Result<Fields, HttpError> {
        let endpoint: Option<&&Endpoint> = request.extensions().get();
        let endpoint = *endpoint.ok_or_else(|| HttpError::Panic("a route without an endpoint".to_owned()))?;
        match endpoint.input {
            Input::Body(_) => body::read(services, request, services.config.limits.body_bytes, endpoint).await,
            _ => Ok(Fields::from_query(request.uri().query(), endpoint)?),
        }
    }
}
