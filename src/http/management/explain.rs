//! `/dataset/explain`: what a read of one of the caller's datasets does.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use strata_service::{Explanation, IgnoredParameter, Principal};

use super::{Caller, Fields, body, fields};
use crate::AppState;
use crate::description::TEXT;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input, names};
use crate::error::HttpError;
use crate::headers::content_encoding::weighted_items;
use crate::large_responses;
use crate::params;

const VERSION: &str = "version";
const EXPLAIN: &str = "explain";

const FORMS: [&str; 2] = ["text", "json"];

pub(super) static EXPLAIN_READ: Endpoint =
    Endpoint::get("/dataset/explain", "explainRead", Group::Versions, || get(explain))
        .summary("Runs a query and returns an explanation of it instead of the entities")
        .description(
            "The explanation shows the plan, the indexes that each condition used, and how long each stage took. Send \
             the same parameters as in the query. As in a query, strata ignores unknown parameters.",
        )
        .input(Input::Read(&[
            fields::DATASET_ID,
            Field::optional(VERSION, FieldKind::Version, || json!("v1"))
                .about("The version: `active` (the default), `latest`, or a version number, with or without a `v`."),
            Field::optional(EXPLAIN, FieldKind::OneOf(|| FORMS.to_vec()), || json!("json")).about(
                "The format of the explanation. By default, strata returns `text` if `Accept` prefers text/plain, and \
                 `json` otherwise.",
            ),
        ]))
        .answer(Answer { media: &[TEXT], ..Answer::record::<Explanation>("The explanation as JSON or text.") })
        .errors(&[404, 503]);

async fn explain(
    Caller(user): Caller,
    RawQuery(read): RawQuery,
    State(services): State<AppState>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    // The parser of reads checks names and UTF-8.
    let query = Fields::beside_others(body::decoded(read.as_deref()), &EXPLAIN_READ);
    let dataset = query.dataset_id()?;
    let version = query.optional_selector(VERSION)?;
    let form = query.optional_one_of(EXPLAIN, FORMS, |form| form)?;
    let is_text = form.map_or_else(|| prefers_text(&headers), |form| form == "text");
    let own = names(EXPLAIN_READ.parameters());
    let (request, unknown) = params::parse_beside(read.as_deref(), &own)?;
    let ignored = unknown.into_iter().map(IgnoredParameter::from).collect();
    let principal = Principal::User(user.id);
    let reads = services.reads.clone();
    let explained = async move {
        let explanation = reads.explain(Some(&user), dataset, version, request, ignored).await?;
        if !is_text {
            return Ok(Json(explanation).into_response());
        }
        // It quotes the request: no browser may take it for anything but text.
        let headers = [(CONTENT_TYPE, TEXT), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
        Ok((headers, explanation.to_string()).into_response())
    };
    Box::pin(large_responses::built(&services, principal, explained)).await
}

/// Whether `Accept` names text, and likes it more than JSON, which all management gives.
fn prefers_text(headers: &HeaderMap) -> bool {
    let weight = |wanted: &str| {
        let named = weighted_items(headers.get_all(ACCEPT)).filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, weight)| weight).max().unwrap_or_default()
    };
    weight("text/plain") > weight("application/json")
}
