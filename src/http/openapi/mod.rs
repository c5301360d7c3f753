//! `GET /openapi.json`: the OpenAPI 3.1 document of the service, for client generators and other tools.
//!
//! The read endpoint has its own description (`http::read`), because its path is not its route and its parameters are a
//! registry. The document depends only on the build, so it is built once per process.

mod endpoint_operations;
pub mod examples;
mod field_schemas;
pub mod reference;

use std::sync::LazyLock;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};
use strata_encode::{ContentCoding, compress_body};
use strata_types::suggest;
use utoipa::openapi::{ContactBuilder, Info, InfoBuilder, LicenseBuilder, OpenApi, Server};

use super::endpoint::{self, AllowedCallers, Endpoint, EndpointGroup, EndpointResponse};
use super::error::HttpError;
use super::headers::caching::{self, CachingHeaders};
use super::openapi_components::response_headers::{CACHING_HEADERS, CORS_HEADERS};
use super::openapi_components::{JSON_CONTENT_TYPE, error_responses, response_headers};
use super::{health, management, mcp, metrics, read};
use crate::AppState;
use crate::headers::content_encoding;

static OPENAPI_ENDPOINT: Endpoint =
    Endpoint::get("/openapi.json", "getOpenApi", EndpointGroup::Operational, || get(get_openapi))
        .summary("Returns this OpenAPI document")
        .description(
            "You can generate a client from this document. The document changes only when the server is upgraded, so \
         you can cache it.",
        )
        .callers(AllowedCallers::Anyone)
        .response(EndpointResponse {
            headers: &[CORS_HEADERS, CACHING_HEADERS, &["Content-Encoding"]],
            not_modified: Some("`If-None-Match` matches the current document."),
            ..EndpointResponse::new("An OpenAPI 3.1 document.", &[JSON_CONTENT_TYPE])
        });

pub(super) fn routes() -> Router<AppState> {
    endpoint::routes(std::iter::once(&OPENAPI_ENDPOINT))
}

/// All documented endpoints except the read endpoint.
fn documented_endpoints() -> impl Iterator<Item = &'static Endpoint> {
    management::endpoints().chain([
        &health::HEALTH_ENDPOINT,
        &health::READINESS_ENDPOINT,
        &metrics::METRICS_ENDPOINT,
        &OPENAPI_ENDPOINT,
    ])
}

fn build_document() -> OpenApi {
    // Tools show the operations in the order of the OpenAPI document.
    let mut operations = endpoint_operations::endpoints_section(documented_endpoints());
    let webhooks = operations.webhooks.take();
    let mut document = read::openapi_section().merge_from(operations);
    document.webhooks = webhooks;
    document.info = document_info();
    // A relative server URL also works behind a proxy.
    document.servers = Some(vec![Server::new("/")]);
    let components = document.components.get_or_insert_default();
    components.headers = response_headers::header_components();
    let shared = error_responses::read_error_components().map(|(name, response)| (name.to_owned(), response.into()));
    components.responses.extend(shared);
    document
}

fn document_info() -> Info {
    InfoBuilder::new()
        .title("strata")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Serves versioned datasets of JSON entities. Every refresh of a dataset creates a new, permanent version. \
             You can query any version through the same endpoint, and get the response in one of six formats. To \
             manage your datasets, send a session cookie or an API token. Request bodies are JSON, and unknown members \
             return 400. All errors are plain text for humans.",
        ))
        .contact(Some(ContactBuilder::new().name(Some("The operator of this server")).build()))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build()
}

struct EncodedOpenApi {
    bytes: Bytes,
    etag: HeaderValue,
}

/// The document in each content coding, in the order of [`ContentCoding::ALL`].
static ENCODED_DOCUMENTS: LazyLock<Result<[EncodedOpenApi; ContentCoding::ALL.len()], String>> = LazyLock::new(|| {
    let text = build_document().to_pretty_json().map_err(|error| error.to_string())?;
    let hash = hex::encode(Sha256::digest(text.as_bytes()));
    let encoded = |coding: ContentCoding| {
        let bytes = compress_body(coding, text.as_bytes()).map_err(|error| error.to_string())?;
        let etag = format!("\"{}{}\"", &hash[..32], coding.etag_suffix());
        let etag = HeaderValue::try_from(etag).map_err(|error| error.to_string())?;
        Ok::<_, String>(EncodedOpenApi { bytes, etag })
    };
    let [identity, gzip, brotli, zstd] = ContentCoding::ALL.map(encoded);
    Ok([identity?, gzip?, brotli?, zstd?])
});

pub(super) fn allowed_methods(pattern: &str) -> Option<&'static str> {
    documented_endpoints().find(|endpoint| endpoint.path == pattern).map(Endpoint::allow_header)
}

/// Returns the documented path (or `/mcp`) that is most similar to an unknown path, if one is similar enough.
pub(super) fn nearest_path(unknown: &str) -> Option<&'static str> {
    let paths = documented_endpoints().map(|endpoint| endpoint.path).filter(|path| !path.contains('{'));
    suggest::find_similar_name(unknown, paths.chain([mcp::MCP_PATH]))
}

/// Returns the OpenAPI document, or 304 if the caller already has it. Scripts of any origin can read it.
async fn get_openapi(headers: HeaderMap) -> Result<Response, HttpError> {
    let failure = |reason: &String| HttpError::Panic(format!("failed to build the OpenAPI document: {reason}"));
    let documents = ENCODED_DOCUMENTS.as_ref().map_err(failure)?;
    let coding = content_encoding::negotiate(&headers);
    let EncodedOpenApi { bytes, etag } = &documents[coding as usize];
    let mut response = match caching::is_not_modified(&headers, etag) {
        true => (StatusCode::NOT_MODIFIED, Body::new(caching::UnsizedEmptyBody)).into_response(),
        false => {
            let mut response = bytes.clone().into_response();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON_CONTENT_TYPE));
            content_encoding::set_encoding_headers(coding, response.headers_mut());
            response
        }
    };
    let headers = response.headers_mut();
    let etag = Some(etag.clone());
    caching::set_caching_headers(headers, CachingHeaders { etag, is_private: false, is_coded: true });
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    Ok(response)
}
