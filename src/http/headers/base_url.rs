//! The URL at which the client reaches the service: `server.public_url`, or the host of the request.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use strata_config::{HostNames, HttpServerConfig, PublicUrl};
use strata_ingest::egress::is_localhost;
use strata_service::Services;

use crate::AppState;
use crate::headers::client_ip;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    url: String,
    pub https: bool,
}

impl FromRequestParts<AppState> for BaseUrl {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, services: &AppState) -> Result<Self, Infallible> {
        Ok(BaseUrl::from_request_head(parts, services))
    }
}

impl BaseUrl {
    pub fn from_request_head(parts: &Parts, services: &Services) -> BaseUrl {
        let server = &services.config.server;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
        let forwarded = client_ip::forwarded_https(peer, &parts.headers, &server.trusted_proxies);
        match &server.public_url {
            Some(url) => BaseUrl { url: url.as_str().to_owned(), https: url.is_https() },
            None => {
                let https = forwarded.unwrap_or(false);
                let host =
                    request_host(parts).map_or_else(|| server.listen.as_str().to_owned(), |host| host.to_string());
                BaseUrl { url: format!("{}://{host}", if https { "https" } else { "http" }), https }
            }
        }
    }

    pub fn absolute_url(&self, path: &str) -> String {
        [&self.url, path].concat()
    }
}

/// Whether a page of another origin sent the request: the `Origin` header matches neither `server.public_url` nor the
/// `Host` header. A page cannot choose the `Host` of its requests.
pub(crate) fn has_foreign_origin(parts: &Parts, public_url: Option<&PublicUrl>) -> bool {
    has_disallowed_origin(parts, public_url, &HostNames::default())
}

/// Like [`has_foreign_origin`], but also allows pages on the specified hosts.
pub(crate) fn has_disallowed_origin(parts: &Parts, public_url: Option<&PublicUrl>, hosts: &HostNames) -> bool {
    parts.headers.get_all(ORIGIN).iter().any(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let configured = public_url.is_some_and(|url| url.origin().eq_ignore_ascii_case(origin));
        let authority = origin.split_once("://").and_then(|(scheme, rest)| {
            let port = match scheme {
                "http" => 80,
                "https" => 443,
                _ => return None,
            };
            Some((rest.parse::<Authority>().ok().filter(|origin| !origin.as_str().contains('@'))?, port))
        });
        let allowed = authority.as_ref().is_some_and(|(origin, _)| hosts.contains(origin.host()));
        let same = authority.zip(request_host(parts)).is_some_and(|((origin, port), host)| {
            let port_of = |authority: &Authority| authority.port_u16().unwrap_or(port);
            origin.host().eq_ignore_ascii_case(host.host()) && port_of(&origin) == port_of(&host)
        });
        !(configured || allowed || same)
    })
}

/// Returns the `Host` header if it does not name this service.
///
/// A page can resolve its own name to the address of the service, so that browsers treat it as a page of the service
/// (DNS rebinding). This does not work with an IP address, or with a name of this machine.
pub(crate) fn foreign_host(parts: &Parts, server: &HttpServerConfig) -> Option<String> {
    let Some(host) = request_host(parts) else {
        // A request without a `Host` header is allowed: HTTP/1.0 needs no host, and browsers always send one.
        return parts.headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    };
    let name = host.host().trim_start_matches('[').trim_end_matches([']', '.']);
    let public_host = server.public_url.as_ref().map(PublicUrl::host);
    let is_own = name.parse::<IpAddr>().is_ok()
        || is_localhost(name)
        || [Some(server.listen.host()), public_host].into_iter().flatten().any(|own| own.eq_ignore_ascii_case(name))
        || server.allowed_hosts.contains(name);
    (!is_own).then(|| host.to_string())
}

/// Returns the host of the request. A host with a user or password is rejected.
fn request_host(parts: &Parts) -> Option<Authority> {
    let named = parts.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let host = parts.uri.authority().cloned().or(named);
    host.filter(|host| is_shell_safe(host.as_str()) && !host.host().is_empty() && has_valid_port(host))
}

fn has_valid_port(authority: &Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    port.is_empty() || authority.port_u16().is_some_and(|port| port > 0)
}

/// Whether a host with a port has no shell metacharacters. The base URL is part of commands that users paste.
fn is_shell_safe(authority: &str) -> bool {
    authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%:[]".contains(&byte))
}
