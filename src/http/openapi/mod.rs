//! `GET /openapi.json`: the service described in OpenAPI 3.1, for generators of clients and for tools.
//!
//! The read endpoint describes itself (`http::read`): its path is not its route, and its parameters are a registry.
//!
//! The document depends on nothing but the build, so it is made once.

pub mod examples;
mod operations;
pub mod reference;
mod schemas;

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};
use strata_encode::{ContentCoding, compress};
use strata_types::similar;
use utoipa::openapi::{ContactBuilder, Info, InfoBuilder, LicenseBuilder, OpenApi, Server};

use super::description::headers::{CACHING, CORS};
use super::description::{JSON, headers, responses};
use super::endpoint::{Answer, Callers, Endpoint, Group};
use super::error::HttpError;
use super::headers::caching;
use super::{health, management, mcp, metrics, read};
use crate::headers::content_encoding;

pub(super) static DOCUMENT: Endpoint =
    Endpoint::get("/openapi.json", "getOpenApi", Group::Operational, || get(openapi))
        .summary("Returns this OpenAPI document")
        .description(
            "You can generate a client from this document. The document changes only when the server is upgraded, so \
         you can cache it.",
        )
        .callers(Callers::Anybody)
        .answer(Answer {
            headers: &[CORS, CACHING, &["Content-Encoding"]],
            not_modified: Some("`If-None-Match` matches the current document."),
            ..Answer::new("An OpenAPI 3.1 document.", &[JSON])
        });

/// Every endpoint of the document but the read endpoint.
fn endpoints() -> impl Iterator<Item = &'static Endpoint> {
    management::endpoints().chain([&health::HEALTH, &health::READINESS, &metrics::METRICS, &DOCUMENT])
}

fn document() -> OpenApi {
    // In the order in which tools show them.
    let mut operations = operations::section(endpoints());
    let webhooks = operations.webhooks.take();
    let mut document = read::section().merge_from(operations);
    document.webhooks = webhooks;
    document.info = info();
    // Relative to where the document was fetched, whatever stands in front of the service.
    document.servers = Some(vec![Server::new("/")]);
    let components = document.components.get_or_insert_default();
    components.headers = headers::shared();
    let shared = responses::shared().map(|(name, response)| (name.to_owned(), response.into()));
    components.responses.extend(shared);
    document
}

fn info() -> Info {
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

struct Rendered {
    bytes: Bytes,
    etag: HeaderValue,
}

/// The document in each coding, in the order of [`ContentCoding::ALL`].
static RENDERED: LazyLock<Result<[Rendered; ContentCoding::ALL.len()], String>> = LazyLock::new(|| {
    let text = document().to_pretty_json().map_err(|error| error.to_string())?;
    let hash = hex::encode(Sha256::digest(text.as_bytes()));
    let rendered = |coding: ContentCoding| {
        let bytes = compress(coding, text.as_bytes()).map_err(|error| error.to_string())?;
        let etag = format!("\"{}{}\"", &hash[..32], coding.etag_suffix());
        Ok::<_, String>(Rendered { bytes, etag: HeaderValue::try_from(etag).map_err(|error| error.to_string())? })
    };
    let [identity, gzip, brotli, zstd] = ContentCoding::ALL.map(rendered);
    Ok([identity?, gzip?, brotli?, zstd?])
});

/// The methods of a route of the document, as the header `Allow` lists them.
pub(super) fn methods_of(pattern: &str) -> Option<&'static str> {
    endpoints().find(|endpoint| endpoint.path == pattern).map(Endpoint::allowed)
}

/// The path of the document, or of the tools for agents, that is most like an unknown one, if one is close.
pub(super) fn nearest_path(unknown: &str) -> Option<&'static str> {
    let paths = endpoints().map(|endpoint| endpoint.path).filter(|path| !path.contains('{'));
    similar::nearest(unknown, paths.chain([mcp::PATH]))
}

/// 200, or 304 when the caller has the document already. Readable by scripts of any origin.
async fn openapi(headers: HeaderMap) -> Response {
    let rendered = match &*RENDERED {
        Ok(rendered) => rendered,
        Err(reason) => return HttpError::Panic(format!("the OpenAPI document: {reason}")).into_response(),
    };
    let coding = content_encoding::negotiate(&headers);
    let Rendered { bytes, etag } = &rendered[coding as usize];
    let mut response = match caching::is_held(&headers, etag) {
        true => (StatusCode::NOT_MODIFIED, Body::new(caching::NoBody)).into_response(),
        false => {
            let mut response = bytes.clone().into_response();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            content_encoding::describe(coding, response.headers_mut());
            response
        }
    };
    let headers = response.headers_mut();
    caching::describe(headers, Some(etag.clone()), false, true);
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}
