//! Memory and processor time of responses that are built as a whole.
//!
//! - `built` is for handlers whose response takes long to build or may be large: it reserves memory for the caller
//!   and builds the response on a thread of its own (see [`LargeResponses`](strata_service::LargeResponses)).
//! - `charged` is the layer around every route except the read endpoint. It charges each complete body of more than
//!   [`UNCHARGED_BYTES`] that nothing was reserved for, so that a new endpoint cannot be forgotten.
//!
//! Bodies of reads and diffs are charged where they are encoded, and carry `Charged`.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use strata_service::{Overloaded, Principal, ReadError, ResponseReservation, Services, UNCHARGED_BYTES};

use super::error::HttpError;
use super::headers::client_ip;
use crate::AppState;

#[derive(Clone, Copy)]
pub(super) struct Charged;

/// Reserves memory for a large response, then builds it ([`reserve`], [`build`]).
pub(super) async fn built(
    services: &Services,
    principal: Principal,
    work: impl Future<Output = Result<Response, HttpError>> + Send + 'static,
) -> Result<Response, HttpError> {
    build(reserve(services, principal).await?, work).await
}

/// Reserves memory for a large response. Waits for up to `query.heavy_wait_s`.
///
/// # Errors
/// 503 if the principal's responses hold too much memory for too long.
pub async fn reserve(services: &Services, principal: Principal) -> Result<ResponseReservation, HttpError> {
    Ok(services.large_responses.reserve(principal).await.map_err(ReadError::from)?)
}

/// Builds a response on a thread of its own, and charges its body to the reservation until the connection has sent it.
/// Dropping the future ends the work at its next await.
///
/// # Errors
/// 503 if the body is larger than what the principal may hold, and the errors of the work.
pub async fn build(
    reservation: ResponseReservation,
    work: impl Future<Output = Result<Response, HttpError>> + Send + 'static,
) -> Result<Response, HttpError> {
    let (response, reservation) = reservation.build(work).await.map_err(ReadError::from)?;
    charge_body(response?, |body| reservation.charge(body)).await
}

/// The layer that charges complete bodies to the client that they are for.
pub(super) async fn charged(State(services): State<AppState>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let client = client_ip::client(&head, &services);
    let response = next.run(Request::from_parts(head, body)).await;
    let charge = |body| services.large_responses.charge(Principal::Anonymous(client), body);
    charge_body(response, charge).await.unwrap_or_else(HttpError::into_response)
}

async fn charge_body(
    response: Response,
    charge: impl FnOnce(Bytes) -> Result<Bytes, Overloaded>,
) -> Result<Response, HttpError> {
    let is_large = response.body().size_hint().exact().is_some_and(|bytes| bytes > UNCHARGED_BYTES);
    if !is_large || response.extensions().get::<Charged>().is_some() {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    // A body of a known size is in memory: nothing is waited for.
    let body = body.collect().await.map_err(|error| HttpError::Panic(format!("failed to collect a body: {error}")))?;
    let body = charge(body.to_bytes()).map_err(ReadError::from)?;
    head.extensions.insert(Charged);
    Ok(Response::from_parts(head, Body::from(body)))
}
