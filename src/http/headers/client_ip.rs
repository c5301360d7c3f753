//! The client address of a request, as reported by trusted proxies.
//!
//! Each proxy appends the address of its client to `X-Forwarded-For` or `Forwarded`. Earlier addresses can be forged,
//! so the addresses are read backwards, beginning with the peer of the connection. The first address that is not a
//! trusted proxy is the client. If the next address is missing or invalid (`unknown`, an obfuscated identifier), the
//! last trusted address counts as the client.
//!
//! For example, `X-Forwarded-For: 1.1.1.1, 203.0.113.9` from a trusted peer means the client 203.0.113.9.
//!
//! A proxy writes one of the two headers and might pass on the other one unchanged. If both are present but result in
//! different clients, both are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::header::{FORWARDED, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use strata_config::TrustedProxies;
use strata_service::{ClientNetwork, Services, SessionOrigin};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The client network that resource limits count the request toward.
pub(crate) fn request_client(head: &Parts, services: &Services) -> ClientNetwork {
    request_address(head, &services.config.server.trusted_proxies)
        .map_or(ClientNetwork::Unspecified, ClientNetwork::from)
}

pub(crate) fn session_origin(head: &Parts, services: &Services) -> SessionOrigin {
    let program = head.headers.get(USER_AGENT).and_then(|program| program.to_str().ok());
    SessionOrigin::new(request_address(head, &services.config.server.trusted_proxies), program)
}

fn request_address(head: &Parts, trusted: &TrustedProxies) -> Option<IpAddr> {
    let ConnectInfo(peer) = head.extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(client_address(peer.ip(), &head.headers, trusted))
}

/// Whether the client uses https, as a trusted peer reports in the last value of `X-Forwarded-Proto`, or of `proto` in
/// `Forwarded`. Returns `None` if neither header reports a scheme, or if the headers differ.
pub(crate) fn forwarded_https(peer: Option<SocketAddr>, headers: &HeaderMap, trusted: &TrustedProxies) -> Option<bool> {
    peer.filter(|peer| trusted.contains(peer.ip()))?;
    let is_https = |scheme: &str| match scheme.trim_matches(HEADER_WHITESPACE).to_ascii_lowercase().as_str() {
        "https" => Some(true),
        "http" => Some(false),
        _ => None,
    };
    let listed =
        header_lines_reversed(headers, &X_FORWARDED_PROTO).next().map(|line| is_https(line.rsplit(',').next()?));
    let described = header_lines_reversed(headers, &FORWARDED).next().map(|line| {
        let elements = split_outside_quotes(line, ',')?;
        is_https(&forwarded_parameter(elements.last()?, "proto")?)
    });
    match (listed, described) {
        (Some(https), None) | (None, Some(https)) => https,
        (Some(first), Some(second)) if first == second => first,
        _ => None,
    }
}

pub(crate) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    if !trusted.contains(peer) {
        return peer;
    }
    let listed = || {
        last_untrusted(
            peer,
            header_lines_reversed(headers, &X_FORWARDED_FOR).flat_map(|line| line.rsplit(',').map(parse_hop_address)),
            trusted,
        )
    };
    let described =
        || last_untrusted(peer, header_lines_reversed(headers, &FORWARDED).flat_map(forwarded_hops), trusted);
    match (headers.contains_key(X_FORWARDED_FOR), headers.contains_key(FORWARDED)) {
        (false, false) => peer,
        (true, false) => listed(),
        (false, true) => described(),
        (true, true) => Some(listed()).filter(|client| *client == described()).unwrap_or(peer),
    }
}

/// Returns the address of the client. `hops` starts with the nearest proxy; `None` is a hop without an address.
fn last_untrusted(peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>, trusted: &TrustedProxies) -> IpAddr {
    let mut last = peer;
    for hop in hops {
        let Some(address) = hop else { break };
        last = address;
        if !trusted.contains(address) {
            break;
        }
    }
    last
}

/// The lines of a header in reverse order. A line that is not ASCII becomes empty.
fn header_lines_reversed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().rev().map(|value: &HeaderValue| value.to_str().unwrap_or_default())
}

/// The hops in a `Forwarded` line (RFC 7239, section 4) in reverse order.
fn forwarded_hops(line: &str) -> impl Iterator<Item = Option<IpAddr>> {
    let elements = split_outside_quotes(line, ',').unwrap_or_default();
    // A line with an unclosed quotation mark counts as a hop without an address.
    let invalid_line = elements.is_empty().then_some(None);
    let hop = |element: &str| parse_hop_address(&forwarded_parameter(element, "for")?);
    elements.into_iter().rev().map(hop).chain(invalid_line)
}

fn forwarded_parameter(element: &str, wanted: &str) -> Option<String> {
    let mut parameter = None;
    for pair in split_outside_quotes(element, ';')? {
        let (name, value) = pair.trim_matches(HEADER_WHITESPACE).split_once('=')?;
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            return None;
        }
        let value = unquote(value)?;
        if name.eq_ignore_ascii_case(wanted) && parameter.replace(value).is_some() {
            return None;
        }
    }
    parameter
}

const HEADER_WHITESPACE: [char; 2] = [' ', '\t'];

/// Splits a text at separators outside of quoted strings. Returns `None` if a quoted string does not end.
fn split_outside_quotes(text: &str, separator: char) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if character == separator && !quoted => {
                parts.push(&text[start..index]);
                start = index + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!quoted).then_some(parts)
}

fn unquote(value: &str) -> Option<String> {
    let Some(rest) = value.strip_prefix('"') else {
        return (!value.is_empty() && value.bytes().all(is_token_byte)).then(|| value.to_owned());
    };
    let mut text = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(text),
            '\\' => text.push(characters.next()?),
            character => text.push(character),
        }
    }
}

/// Whether a byte can be part of a token in a header (`tchar` of RFC 9110, section 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Parses an address with or without a port: `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn parse_hop_address(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches(HEADER_WHITESPACE);
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    let (address, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (IpAddr::V6(address.parse::<Ipv6Addr>().ok()?), port)
        }
        None => {
            let (address, _) = text.split_once(':')?;
            (IpAddr::V4(address.parse::<Ipv4Addr>().ok()?), &text[address.len()..])
        }
    };
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_valid_port)).then_some(address)
}

/// A port is a number of up to 5 digits or an obfuscated name (RFC 7239, section 6).
fn is_valid_port(text: &str) -> bool {
    let obfuscated = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match text.strip_prefix('_') {
        Some(name) => obfuscated(name),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
