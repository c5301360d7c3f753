//! Reads that another server of the service has handed over ([`crate::cluster::hand_over`]). It has admitted and
//! counted the client, and makes the headers of the answer itself. So only the totals and the body matter here.
//!
//! A request with the headers and without a good token is a request like any other.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};

use super::{coding, file_format, parse, respond};
use crate::cluster::hand_over::{HANDED_HEADER, Handed};
use crate::cluster::token::TOKEN_HEADER;
use crate::http::error::HttpError;
use crate::http::headers::caching;
use crate::service::{App, CacheKey, Holder, meant};

/// What is said of a request that was handed over; `None` without a good token.
pub(super) fn accepted(app: &App, head: &Parts) -> Option<Handed> {
    // Most services hand nothing over.
    let hand_over = app.hand_over()?;
    let header = |name| head.headers.get(name)?.to_str().ok();
    let (said, token) = (header(HANDED_HEADER)?, header(TOKEN_HEADER)?);
    hand_over.accept((token, said), &head.method, head.uri.path_and_query()?.as_str())
}

/// Answers it here, and nowhere else.
pub(super) async fn read(app: &App, head: &Parts, handed: Handed) -> Response {
    let mut response = answer(app, head, handed).await.unwrap_or_else(IntoResponse::into_response);
    caching::forbid(response.headers_mut());
    response
}

async fn answer(app: &App, head: &Parts, handed: Handed) -> Result<Response, HttpError> {
    // Whoever has handed it over answers it sooner.
    if app.load().heavy_waiting > 0 {
        return Ok((StatusCode::SERVICE_UNAVAILABLE, "heavy queries wait here").into_response());
    }
    let parsed = parse(&head.method, &head.uri)?;
    let Some(holder) = Holder::of_name(&handed.holder) else {
        return Ok((StatusCode::BAD_REQUEST, "the holder is nobody").into_response());
    };
    let admitted = app.lookups().find_again(&parsed.target, parsed.request.alt, holder).await?;
    let request = Arc::new(parsed.request);
    let key = CacheKey::of(&admitted, &request);
    if meant(key, &admitted) != handed.answer {
        return Ok((StatusCode::CONFLICT, "another answer is meant").into_response());
    }
    let file = file_format(&request);
    let answer = app.reads().answer_here(key, &admitted, &request, coding(&head.headers, file)).await?;
    respond(answer, &admitted, file, None).await
}
