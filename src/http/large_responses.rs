//! Memory and processor time of responses that are built as a whole.
//!
//! - [`reserve_and_build_response`] is for responses that take long or might be large. It reserves memory for the
//!   caller and builds the response on its own thread (see [`LargeResponseLimit`](strata_service::LargeResponseLimit)).
//! - [`charge_complete_bodies`] is the layer around every route except the read endpoint. It charges each complete body
//!   of more than [`MAX_UNCHARGED_RESPONSE_BYTES`] without a reservation, so that new endpoints are covered, too.
//!
//! Bodies of reads and diffs are charged where they are encoded, and are marked with [`BodyAlreadyCharged`].

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use strata_service::{MAX_UNCHARGED_RESPONSE_BYTES, Overloaded, Principal, ReadError, ResponseReservation, Services};

use super::error::HttpError;
use super::headers::client_ip;
use crate::AppState;

#[derive(Clone, Copy)]
pub(super) struct BodyAlreadyCharged;

pub(super) async fn reserve_and_build_response(
    services: &Services,
    principal: Principal,
    work: impl Future<Output = Result<Response, HttpError>> + Send + 'static,
) -> Result<Response, HttpError> {
    build_response(reserve_response_memory(services, principal).await?, work).await
}

/// Reserves memory for a large response. Waits for at most `query.heavy_wait_s`.
///
/// # Errors
/// Returns 503 if the principal's other responses do not release enough memory in time.
pub async fn reserve_response_memory(
    services: &Services,
    principal: Principal,
) -> Result<ResponseReservation, HttpError> {
    Ok(services.large_responses.reserve(principal).await.map_err(ReadError::from)?)
}

/// Builds a response on its own thread, and charges the body to the reservation until the connection has sent it.
/// Dropping the future stops the work at its next await.
///
/// # Errors
/// Returns 503 if the body exceeds the principal's memory limit, and the errors of `work`.
pub async fn build_response(
    reservation: ResponseReservation,
    work: impl Future<Output = Result<Response, HttpError>> + Send + 'static,
) -> Result<Response, HttpError> {
    let (response, reservation) = reservation.build(work).await.map_err(ReadError::from)?;
    charge_body(response?, |body| reservation.charge(body)).await
}

/// Charges each complete response body to the network of the client.
pub(super) async fn charge_complete_bodies(State(services): State<AppState>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let client = client_ip::request_client(&head, &services);
    let response = next.run(Request::from_parts(head, body)).await;
    let charge = |body| services.large_responses.charge(Principal::Anonymous(client), body);
    charge_body(response, charge).await.unwrap_or_else(HttpError::into_response)
}

async fn charge_body(
    response: Response,
    charge: impl FnOnce(Bytes) -> Result<Bytes, Overloaded>,
) -> Result<Response, HttpError> {
    let is_large = response.body().size_hint().exact().is_some_and(|bytes| bytes > MAX_UNCHARGED_RESPONSE_BYTES);
    if !is_large || response.extensions().get::<BodyAlreadyCharged>().is_some() {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    // A response body of a known size is already in memory, so collecting it does not wait.
    let body = body.collect().await.map_err(|error| HttpError::Panic(format!("failed to collect a body: {error}")))?;
    let body = charge(body.to_bytes()).map_err(ReadError::from)?;
    head.extensions.insert(BodyAlreadyCharged);
    Ok(Response::from_parts(head, Body::from(body)))
}
