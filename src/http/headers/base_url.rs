//! The URL at which the client reaches the service: what is configured, else what the request says.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use strata_config::{HostNames, PublicUrl, Server};
use strata_ingest::net::is_localhost;
use strata_service::App;

use crate::headers::client_ip;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    base_url: String,
    /// Whether by https, as far as the service knows.
    pub https: bool,
}

impl FromRequestParts<App> for BaseUrl {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        Ok(BaseUrl::of(parts, app))
    }
}

impl BaseUrl {
    pub fn of(parts: &Parts, app: &App) -> BaseUrl {
        let server = &app.config().server;
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

    /// The URL of a path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        [&self.base_url, path].concat()
    }
}

/// Whether the request says that a page of another origin made it: there is an `Origin`, and it is neither the
/// configured one nor the host that the request itself is for. A page cannot choose the `Host` of its requests.
pub(crate) fn has_foreign_origin(parts: &Parts, public_url: Option<&PublicUrl>) -> bool {
    has_origin_outside(parts, public_url, &HostNames::default())
}

/// Like [`has_foreign_origin`], but pages of these hosts may make the request, too.
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

/// The `Host` of the request, if it names a host that is not one of the service.
///
/// A page can let its own name point to the address of the service, and then counts as a page of the service (DNS
/// rebinding). It cannot do so with an IP address, or with a name of this machine.
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

/// The host that the request is for, without user and password.
fn host(parts: &Parts) -> Option<Authority> {
    let named = parts.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    parts
        .uri
        .authority()
        .cloned()
        .or(named)
        .filter(|host| is_plain(host.as_str()) && !host.host().is_empty() && has_possible_port(host))
}

/// Whether an authority without user has no port, or one that there can be.
fn has_possible_port(authority: &Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    port.is_empty() || authority.port_u16().is_some_and(|port| port > 0)
}

/// Whether an authority has no characters with a meaning in a shell: addresses are shown in commands to paste.
fn is_plain(authority: &str) -> bool {
    authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%:[]".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_config::ListenAddress;

    #[test]
    fn foreign_host_is_a_name_of_no_own_host() {
        let names =
            |names: &[&str]| HostNames::try_from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let server = Server {
            listen: ListenAddress::try_from("strata.internal:8080".to_owned()).expect("an address"),
            public_url: Some(PublicUrl::try_from("https://data.example.org/strata".to_owned()).expect("a URL")),
            allowed_hosts: names(&["proxy.example.org"]).expect("names"),
            ..Server::default()
        };
        let foreign = |host: &str| {
            let request = http::Request::builder().header(HOST, host).body(()).expect("a request");
            foreign_host(&request.into_parts().0, &server)
        };
        let own = "localhost LOCALHOST:1 a.localhost:8080 127.0.0.1:8080 10.1.2.3 [::1]:8080 [2001:db8::1] \
                   strata.internal:8080 strata.internal. data.example.org Data.Example.Org:443 proxy.example.org:8080";
        for own in own.split(' ') {
            assert_eq!(foreign(own), None, "{own}");
        }
        let others = "evil.example evil.example:8080 localhost.evil.example 127.0.0.1.evil.example example.org \
                      www.data.example.org user@localhost localhost@evil.example [::1 ::1 2130706433 0x7f.1";
        for other in others.split(' ').chain([""]) {
            assert_eq!(foreign(other).as_deref(), Some(other), "{other}");
        }
        assert!(["", "a b", "a:80", "http://a", "[::1]", "a/b"].iter().all(|name| names(&[name]).is_err()));
    }

    #[test]
    fn hosts_are_names_and_addresses() {
        for host in ["localhost:8080", "127.0.0.1", "[::1]:80", "a_b.example.org", "xn--bcher-kva.example"] {
            assert!(is_plain(host), "{host}");
            assert!(has_possible_port(&host.parse().expect("an authority")), "{host}");
        }
        for host in ["x:99999", "x:65536", "x:0", "[::1]:70000"] {
            assert!(host.parse().is_ok_and(|host: Authority| !has_possible_port(&host)), "{host}");
        }
        for host in ["h';id;'x", "user@host", "a$(id)", "a&b", "a b", "a,b", "bücher.example"] {
            assert!(!is_plain(host), "{host}");
        }
    }
}
