//! Refuses HTTP/1.1 requests that do not have the header `Host` once (RFC 9112, section 3.2): 400.
//!
//! They are told as they come from a connection: what a program gives to the router has no such header.

use axum::extract::Request;
use axum::http::Version;
use axum::http::header::HOST;
use axum::response::{IntoResponse, Response};

use crate::error::HttpError;

#[derive(Clone, Copy)]
struct Wrong;

/// Marks a request that came from a connection, if it is to be refused.
pub(crate) fn mark(request: &mut Request) {
    if request.version() == Version::HTTP_11 && request.headers().get_all(HOST).iter().count() != 1 {
        request.extensions_mut().insert(Wrong);
    }
}

pub(super) async fn refuse_wrong(request: Request, handle: impl AsyncFnOnce(Request) -> Response) -> Response {
    match request.extensions().get::<Wrong>() {
        Some(Wrong) => HttpError::Host.into_response(),
        None => handle(request).await,
    }
}
