//! The URL at which the client reaches the service: the configured one, or the one of the request.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use strata_config::{HostNames, PublicUrl, Server};
use strata_ingest::net::is_localhost;
use strata_service::Services;

use crate::AppState;
use crate::headers::client_ip;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    base_url: String,
    pub https: bool,
}

impl FromRequestParts<AppState> for BaseUrl {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, services: &AppState) -> Result<Self, Infallible> {
        Ok(BaseUrl::of(parts, services))
    }
}

impl BaseUrl {
    pub fn of(parts: &Parts, services: &Services) -> BaseUrl {
        let server = &services.config.server;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
        let forwarded = client_ip::forwarded_https(peer, &parts.headers, &server.trusted_proxies);
        match &server.public_url {
            Some(url) => BaseUrl { base_url: url.as_str().to_owned(), https: url.is_https() },
            None => {
                let https = forwarded.unwrap_or(false);
                let host = host(parts).map_or_else(|| server.listen.as_str().to_owned(), |host| host.to_string());
                BaseUrl { base_url: format!("{}://{host}", if https { "https" } else { "http" }), https }
            }
        }
    }

    /// The path begins with a slash.
    pub fn url(&self, path: &str) -> String {
        [&self.base_url, path].concat()
    }
}

/// Whether a page of another origin sent the request: its `Origin` is neither the configured one nor the host of the
/// request. A page cannot choose the `Host` of its requests.
pub(crate) fn has_foreign_origin(parts: &Parts, public_url: Option<&PublicUrl>) -> bool {
    has_origin_outside(parts, public_url, &HostNames::default())
}

/// Like [`has_foreign_origin`], but also allows pages of these hosts.
pub(crate) fn has_origin_outside(parts: &Parts, public_url: Option<&PublicUrl>, hosts: &HostNames) -> bool {
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
        let allowed = authority.as_ref().is_some_and(|(origin, _)| hosts.contain(origin.host()));
        let same = authority.zip(host(parts)).is_some_and(|((origin, port), host)| {
            let port_of = |authority: &Authority| authority.port_u16().unwrap_or(port);
            origin.host().eq_ignore_ascii_case(host.host()) && port_of(&origin) == port_of(&host)
        });
        !(configured || allowed || same)
    })
}

/// The `Host` of the request, if it is not a host of the service.
///
/// A page can resolve its own name to the address of the service, so that browsers treat it as a page of the service
/// (DNS rebinding). This does not work with an IP address, or with a name of this machine.
pub(crate) fn foreign_host(parts: &Parts, server: &Server) -> Option<String> {
    let Some(host) = host(parts) else {
        // HTTP/1.0 needs no host. Browsers send one.
        return parts.headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    };
    let name = host.host().trim_start_matches('[').trim_end_matches([']', '.']);
    let public_host = server.public_url.as_ref().map(PublicUrl::host);
    let is_own = name.parse::<IpAddr>().is_ok()
        || is_localhost(name)
        || [Some(server.listen.host()), public_host].into_iter().flatten().any(|own| own.eq_ignore_ascii_case(name))
        || server.allowed_hosts.contain(name);
    (!is_own).then(|| host.to_string())
}

/// The host of the request, if it has no user and password.
fn host(parts: &Parts) -> Option<Authority> {
    let named = parts.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    parts
        .uri
        .authority()
        .cloned()
        .or(named)
        .filter(|host| is_plain(host.as_str()) && !host.host().is_empty() && has_possible_port(host))
}

/// Whether an authority without a user has no port, or a valid one.
fn has_possible_port(authority: &Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    port.is_empty() || authority.port_u16().is_some_and(|port| port > 0)
}

/// Whether an authority has no characters with a meaning in a shell, because it appears in commands to paste.
fn is_plain(authority: &str) -> bool {
    authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%:[]".contains(&byte))
}
