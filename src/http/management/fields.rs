//! Fields that endpoints of several modules take, and the fields of a call: those of its query string or of its body.

use std::convert::Infallible;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::Uri;
use axum::http::request::Parts;
use serde_json::json;
use strata_service::App;
use strata_types::source::SourceFormat;

use super::DATASET_ID as DATASET_ID_NAME;
use super::body::{self, Fields};
use crate::endpoint::{Endpoint, Field, FieldKind, Input, names};
use crate::error::{CallError, HttpError};
use crate::params;

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

pub(super) fn source_formats() -> Vec<&'static str> {
    SourceFormat::ALL.map(SourceFormat::name).to_vec()
}

/// The query string of a call, whose parameters are taken once their names are checked.
pub(super) struct QueryString {
    pub parameters: Vec<(String, String)>,
    /// What of it is not UTF-8, as it was written.
    pub not_utf8: Option<String>,
}

impl FromRequestParts<App> for QueryString {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        Ok(QueryString::of(&parts.uri))
    }
}

impl QueryString {
    fn of(uri: &Uri) -> QueryString {
        let query = uri.query().unwrap_or_default();
        QueryString {
            parameters: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            not_utf8: params::not_utf8(query).map(str::to_owned),
        }
    }

    pub(super) fn into_fields(self, endpoint: &Endpoint) -> Result<Fields, CallError> {
        if let Some(raw) = self.not_utf8 {
            return Err(CallError::NotUtf8 { raw });
        }
        let listed = names(endpoint.parameters());
        CallError::check_known(self.parameters.iter().map(|(name, _)| name.as_str()), &listed)?;
        Ok(Fields::from_query(self.parameters, listed))
    }

    /// The parameters of an endpoint that takes those of a read, too, whose parser checks names and UTF-8.
    pub(super) fn beside_a_read(self, endpoint: &Endpoint) -> Fields {
        Fields::from_query(self.parameters, names(endpoint.parameters()))
    }
}

impl FromRequest<App> for Fields {
    type Rejection = HttpError;

    async fn from_request(request: Request, app: &App) -> Result<Fields, HttpError> {
        let endpoint: Option<&&Endpoint> = request.extensions().get();
        let endpoint = *endpoint.ok_or_else(|| HttpError::Panic("a route without an endpoint".to_owned()))?;
        match endpoint.input {
            Input::Body(_) => body::read(app, request, app.config().limits.body_bytes, endpoint).await,
            _ => Ok(QueryString::of(request.uri()).into_fields(endpoint)?),
        }
    }
}
