//! `GET /openapi.json`: the service described in OpenAPI 3.1, for generators of clients and for tools.
//!
//! | Module | Holds |
//! |---|---|
//! | `read` | the read endpoint; its parameters come from the registry in `http::params` |
//! | `management` | the endpoints of owners, as they stand beside their handlers |
//! | `operational` | health, metrics, and this document |
//! | `parameters` | a parameter of the registry as a parameter of the document |
//! | `headers`, `responses` | what the answers of several operations share |
//!
//! To describe further operations, write a function that returns their `Section` and add it to `SECTIONS`: its tag,
//! its paths, and the schemas they refer to. A schema that is a type of the code should be that type, with
//! `utoipa::ToSchema` derived (`ComponentsBuilder::schema_from`).
//!
//! The document depends on nothing but the build, so it is made once.

mod headers;
mod management;
mod operational;
pub(super) mod parameters;
mod read;
mod responses;

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::Tag;
use utoipa::openapi::{
    Components, ComponentsBuilder, Info, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathItem, Paths, Server,
};

use super::error::HttpError;

/// The parts of the document, in the order in which tools show them.
const SECTIONS: &[fn() -> Section] = &[read::section, management::section, operational::section];

/// The name of the scheme by which a private dataset is read.
const PRIVATE_KEY: &str = "privateKey";

/// Operations that belong together.
struct Section {
    /// Under which names tools show them, in this order. Every operation of the section carries one of them.
    tags: Vec<Tag>,
    /// The operations.
    paths: Paths,
    /// What they refer to. Names are unique over all sections.
    components: Components,
}

/// The whole document.
pub fn document() -> OpenApi {
    let private_key = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The dataset's private key. Needed for private datasets, ignored for public ones."))
        .build();
    let mut components = ComponentsBuilder::new()
        .security_scheme(PRIVATE_KEY, SecurityScheme::Http(private_key))
        .responses_from_iter(responses::shared())
        .build();
    components.headers = headers::shared();
    let mut paths = Paths::new();
    let mut tags = Vec::new();
    for section in SECTIONS {
        let section = section();
        tags.extend(section.tags);
        paths.merge(section.paths);
        components.schemas.extend(section.components.schemas);
        components.parameters.extend(section.components.parameters);
        components.responses.extend(section.components.responses);
        components.headers.extend(section.components.headers);
        components.request_bodies.extend(section.components.request_bodies);
        components.security_schemes.extend(section.components.security_schemes);
    }
    OpenApiBuilder::new()
        .info(info())
        // Relative to where the document was fetched, whatever stands in front of the service.
        .servers(Some([Server::new("/")]))
        .paths(paths)
        .components(Some(components))
        .tags(Some(tags))
        .build()
}

fn info() -> Info {
    InfoBuilder::new()
        .title("strata")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Serves versioned datasets of JSON entities. Every refresh of a dataset makes a new, permanent version; one \
             endpoint filters, sorts, pages and returns any version in six formats. All errors are plain text for people. Owners call with the cookie of a session or \
             an API token; bodies of theirs are JSON, and members that an operation does not know are refused.",
        ))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build()
}

/// The document as it is sent.
struct Rendered {
    bytes: Bytes,
    etag: HeaderValue,
}

static RENDERED: LazyLock<Result<Rendered, String>> = LazyLock::new(|| {
    let text = document().to_pretty_json().map_err(|error| error.to_string())?;
    let hash = hex::encode(Sha256::digest(text.as_bytes()));
    let etag = HeaderValue::try_from(format!("\"{}\"", &hash[..32])).map_err(|error| error.to_string())?;
    Ok(Rendered { bytes: Bytes::from(text), etag })
});

/// By path: the methods that it takes, as the header `Allow` has them.
static METHODS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let methods = |item: &PathItem| {
        // What takes GET takes HEAD.
        let methods = [(&item.get, "GET,HEAD"), (&item.post, "POST"), (&item.put, "PUT"), (&item.delete, "DELETE")];
        let methods = methods.into_iter().filter_map(|(operation, method)| operation.is_some().then_some(method));
        methods.collect::<Vec<_>>().join(",")
    };
    document().paths.paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
});

/// The methods that a path of the document takes, by the pattern of its route, as the header `Allow` has them.
pub(super) fn methods_of(pattern: &str) -> Option<&'static str> {
    METHODS.get(pattern).map(String::as_str)
}

/// `GET /openapi.json`: 200, or 304 when the caller has it already. Readable by scripts of any origin.
pub(super) async fn openapi(headers: HeaderMap) -> Response {
    let rendered = match &*RENDERED {
        Ok(rendered) => rendered,
        Err(reason) => return HttpError::Panic(format!("the OpenAPI document: {reason}")).into_response(),
    };
    let shared = [
        (ETAG, rendered.etag.clone()),
        (CACHE_CONTROL, HeaderValue::from_static("public, no-cache")),
        (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
    ];
    if matches_etag(&headers, &rendered.etag) {
        return (StatusCode::NOT_MODIFIED, shared).into_response();
    }
    let content_type = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (shared, content_type, rendered.bytes.clone()).into_response()
}

/// Whether `If-None-Match` names the tag, in any of its headers, compared weakly (RFC 9110, section 13.1.2).
fn matches_etag(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).any(|tag| {
        let tag = tag.trim_ascii();
        tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_found_in_lists_and_behind_a_weak_mark() {
        let etag = HeaderValue::from_static("\"abc\"");
        for (values, expected) in [
            (&[][..], false),
            (&["\"abc\""], true),
            (&["W/\"abc\""], true),
            (&["\"x\" ,\t\"abc\""], true),
            (&["\"x\"", "\"abc\""], true),
            (&["*"], true),
            (&["abc"], false),
            (&["\"abcd\""], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_NONE_MATCH, HeaderValue::from_static(value));
            }
            assert_eq!(matches_etag(&headers, &etag), expected, "{values:?}");
        }
    }
}
