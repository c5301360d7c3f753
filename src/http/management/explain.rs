//! `/dataset/explain`: runs a read of one of the caller's datasets and explains it.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use strata_service::{IgnoredParameter, Principal, ReadExplanation};

use super::{AuthenticatedUser, CallFields, fields, request_body};
use crate::AppState;
use crate::endpoint::{Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec, field_names};
use crate::error::HttpError;
use crate::headers::content_encoding::weighted_items;
use crate::large_responses;
use crate::openapi_components::TEXT_CONTENT_TYPE;
use crate::params;

const VERSION_PARAMETER: &str = "version";
const FORMAT_PARAMETER: &str = "explain";

const EXPLANATION_FORMATS: [&str; 2] = ["text", "json"];

pub(super) static EXPLAIN_READ_ENDPOINT: Endpoint = Endpoint::get(
    "/dataset/explain",
    "explainRead",
    EndpointGroup::Versions,
    || get(explain_read),
)
.summary("Runs a query and returns an explanation of it instead of the entities")
.description(
    "The explanation shows the plan, the indexes that each condition used, and how long each stage took. Send \
             the same parameters as in the query. As in a query, strata ignores unknown parameters.",
)
.input(EndpointInput::ReadQuery(&[
    fields::DATASET_ID_FIELD,
    FieldSpec::optional(VERSION_PARAMETER, FieldKind::VersionSelector, || json!("v1"))
        .description("The version: `active` (the default), `latest`, or a version number, with or without a `v`."),
    FieldSpec::optional(FORMAT_PARAMETER, FieldKind::OneOf(|| EXPLANATION_FORMATS.to_vec()), || json!("json"))
        .description(
            "The format of the explanation. By default, strata returns `text` if `Accept` prefers text/plain, and \
                 `json` otherwise.",
        ),
]))
.response(EndpointResponse {
    extra_content_types: &[TEXT_CONTENT_TYPE],
    ..EndpointResponse::for_record::<ReadExplanation>("The explanation as JSON or text.")
})
.errors(&[404, 503]);

async fn explain_read(
    AuthenticatedUser(user): AuthenticatedUser,
    RawQuery(read): RawQuery,
    State(services): State<AppState>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    // `parse_query_except` reports unknown names and invalid UTF-8 in the query string.
    let query = CallFields::from_known_parameters(request_body::decode_query(read.as_deref()), &EXPLAIN_READ_ENDPOINT);
    let dataset = query.dataset_id()?;
    let version = query.version_selector_or_active(VERSION_PARAMETER)?;
    let format = query.optional_one_of(FORMAT_PARAMETER, EXPLANATION_FORMATS, |format| format)?;
    let is_text = format.map_or_else(|| prefers_text(&headers), |format| format == "text");
    let own = field_names(EXPLAIN_READ_ENDPOINT.query_fields());
    let (request, unknown) = params::parse_query_except(read.as_deref(), &own)?;
    let ignored = unknown.into_iter().map(IgnoredParameter::from).collect();
    let principal = Principal::User(user.id);
    let reads = services.reads.clone();
    let explaining = async move {
        let explanation = reads.explain(Some(&user), dataset, version, request, ignored).await?;
        if !is_text {
            return Ok(Json(explanation).into_response());
        }
        // The text of the explanation quotes the request, so browsers must not treat it as HTML.
        let headers = [(CONTENT_TYPE, TEXT_CONTENT_TYPE), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
        Ok((headers, explanation.to_string()).into_response())
    };
    Box::pin(large_responses::reserve_and_build_response(&services, principal, explaining)).await
}

/// Returns whether the `Accept` header gives text a higher weight than JSON, the default of management responses.
fn prefers_text(headers: &HeaderMap) -> bool {
    let weight = |name: &str| {
        let items = weighted_items(headers.get_all(ACCEPT)).filter(|(item, _)| item.eq_ignore_ascii_case(name));
        items.map(|(_, weight)| weight).max().unwrap_or_default()
    };
    weight("text/plain") > weight("application/json")
}
