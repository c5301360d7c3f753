//! Query strings of management calls.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::Fields;
use crate::http::endpoint::{Endpoint, names};
use crate::http::error::CallError;
use crate::http::params;
use crate::service::App;

/// The query string of a call, whose parameters are taken once their names are checked.
pub(super) struct QueryString {
    parameters: Vec<(String, String)>,
    /// What of it is not UTF-8, as it was written.
    not_utf8: Option<String>,
}

impl From<Vec<(String, String)>> for QueryString {
    fn from(parameters: Vec<(String, String)>) -> QueryString {
        QueryString { parameters, not_utf8: None }
    }
}

impl FromRequestParts<App> for QueryString {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(QueryString {
            parameters: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            not_utf8: params::not_utf8(query).map(str::to_owned),
        })
    }
}

impl QueryString {
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
