//! The client's address of a request, as far as trusted proxies tell.
//!
//! Every proxy adds the address that it was reached from at the end of `X-Forwarded-For` or `Forwarded`; what stands
//! before may be anybody's invention. So the walk goes backwards:
//! 1. Start at the peer of the connection. While the address is a trusted proxy's, believe what it added: the next one.
//! 2. The first address that is not trusted is the client.
//! 3. Where nothing follows, or nothing that is an address (`unknown`, an obfuscated identifier, garbage), the last
//!    trusted address stands for the client.
//!
//! A proxy writes one of the two headers and may pass the other on as it came. Where both are there and do not lead to
//! the same client, neither is believed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::header::{FORWARDED, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use strata_config::TrustedProxies;
use strata_service::{App, Client, SessionOrigin};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whom a request counts for. A request without a peer came over no network.
pub(crate) fn of(head: &Parts, app: &App) -> Client {
    address(head, &app.config().server.trusted_proxies).map_or(Client::Unspecified, Client::from)
}

/// Where a session is begun that this request begins.
pub(crate) fn session_origin(head: &Parts, app: &App) -> SessionOrigin {
    let program = head.headers.get(USER_AGENT).and_then(|program| program.to_str().ok());
    SessionOrigin::new(address(head, &app.config().server.trusted_proxies), program)
}

fn address(head: &Parts, trusted: &TrustedProxies) -> Option<IpAddr> {
    let ConnectInfo(peer) = head.extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(client_address(peer.ip(), &head.headers, trusted))
}

/// Whether the client came by https, as a trusted peer says it: `X-Forwarded-Proto`, or `proto` in `Forwarded`, the
/// last one of each. `None` when nothing is said that can be believed, or the two do not agree.
pub(crate) fn forwarded_https(peer: Option<SocketAddr>, headers: &HeaderMap, trusted: &TrustedProxies) -> Option<bool> {
    peer.filter(|peer| trusted.contain(peer.ip()))?;
    let is_https = |scheme: &str| match scheme.trim_matches(BLANKS).to_ascii_lowercase().as_str() {
        "https" => Some(true),
        "http" => Some(false),
        _ => None,
    };
    let listed = lines(headers, &X_FORWARDED_PROTO).next().map(|line| is_https(line.rsplit(',').next()?));
    let described = lines(headers, &FORWARDED).next().map(|line| {
        let elements = split_outside_quotes(line, ',')?;
        is_https(&parameter(elements.last()?, "proto")?)
    });
    match (listed, described) {
        (Some(said), None) | (None, Some(said)) => said,
        (Some(one), Some(other)) if one == other => one,
        _ => None,
    }
}

/// The address of the client that a peer speaks for.
pub(crate) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    if !trusted.contain(peer) {
        return peer;
    }
    // The last hop first.
    let listed =
        || last_untrusted(peer, lines(headers, &X_FORWARDED_FOR).flat_map(|line| line.rsplit(',').map(node)), trusted);
    let described = || last_untrusted(peer, lines(headers, &FORWARDED).flat_map(described_hops), trusted);
    match (headers.contains_key(X_FORWARDED_FOR), headers.contains_key(FORWARDED)) {
        (false, false) => peer,
        (true, false) => listed(),
        (false, true) => described(),
        (true, true) => Some(listed()).filter(|client| *client == described()).unwrap_or(peer),
    }
}

/// Where the walk ends, given the hops from the nearest on; `None` is one that is no address.
fn last_untrusted(peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>, trusted: &TrustedProxies) -> IpAddr {
    let mut last = peer;
    for hop in hops {
        let Some(address) = hop else { break };
        last = address;
        if !trusted.contain(address) {
            break;
        }
    }
    last
}

/// The lines of a header, the last one first. One that is not text is as an empty one, which names no address.
fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().rev().map(|value: &HeaderValue| value.to_str().unwrap_or_default())
}

/// The hops of a line of `Forwarded` (RFC 7239, section 4), the last one first.
fn described_hops(line: &str) -> impl Iterator<Item = Option<IpAddr>> {
    let elements = split_outside_quotes(line, ',').unwrap_or_default();
    // A line whose quotes do not close cannot be told apart; a line of nothing names no address.
    let nothing = elements.is_empty().then_some(None);
    elements.into_iter().rev().map(|element| node(&parameter(element, "for")?)).chain(nothing)
}

/// A parameter of an element; `None` also when the element is malformed or has more than one.
fn parameter(element: &str, wanted: &str) -> Option<String> {
    let mut found = None;
    for pair in split_outside_quotes(element, ';')? {
        let (name, value) = pair.trim_matches(BLANKS).split_once('=')?;
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            return None;
        }
        let value = unquoted(value)?;
        if name.eq_ignore_ascii_case(wanted) && found.replace(value).is_some() {
            return None;
        }
    }
    found
}

const BLANKS: [char; 2] = [' ', '\t'];

/// The parts between separators that do not stand in a quoted string; `None` when the last one does not end.
fn split_outside_quotes(text: &str, separator: char) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if character == separator && !quoted => {
                parts.push(&text[start..at]);
                start = at + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!quoted).then_some(parts)
}

fn unquoted(value: &str) -> Option<String> {
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

/// RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// An address, with or without a port: `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn node(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches(BLANKS);
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
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(address)
}

/// A port, or an obfuscated one (RFC 7239, section 6).
fn is_port(text: &str) -> bool {
    let obfuscated = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match text.strip_prefix('_') {
        Some(name) => obfuscated(name),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn trusted() -> TrustedProxies {
        let networks = ["10.0.0.0/8", "192.0.2.7", "2001:db8:aaaa::/48", "::ffff:172.16.0.0/108"];
        TrustedProxies::try_from(networks.map(str::to_owned).to_vec()).expect("networks")
    }

    fn headers(lines: &[(HeaderName, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        headers
    }

    #[track_caller]
    fn check(peer: &str, lines: &[(HeaderName, &str)], expected: &str) {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (name.clone(), value.as_bytes())).collect();
        let found = client_address(peer.parse().expect(peer), &headers(&lines), &trusted());
        assert_eq!(found, expected.parse::<IpAddr>().expect(expected), "{lines:?}");
    }

    #[track_caller]
    fn check_listed(value: &str, expected: &str) {
        check("10.0.0.1", &[(X_FORWARDED_FOR, value)], expected);
    }

    #[track_caller]
    fn check_described(value: &str, expected: &str) {
        check("10.0.0.1", &[(FORWARDED, value)], expected);
    }

    #[test]
    fn only_a_trusted_peer_is_believed() {
        for header in [(X_FORWARDED_FOR, "1.1.1.1"), (FORWARDED, "for=1.1.1.1")] {
            for peer in ["203.0.113.9", "192.0.2.8", "2001:db8:aaab::1", "11.0.0.1"] {
                check(peer, std::slice::from_ref(&header), peer);
            }
            for peer in ["10.255.0.1", "192.0.2.7", "2001:db8:aaaa:1::1", "::ffff:10.0.0.1", "172.16.3.4"] {
                check(peer, std::slice::from_ref(&header), "1.1.1.1");
            }
        }
        check("10.0.0.1", &[], "10.0.0.1");
    }

    #[test]
    fn the_last_hop_that_is_not_trusted_is_the_client() {
        check_listed("1.1.1.1, 203.0.113.9", "203.0.113.9");
        check_listed("1.1.1.1, 203.0.113.9,10.1.1.1 ,\t192.0.2.7", "203.0.113.9");
        check_listed("10.3.3.3, 10.2.2.2", "10.3.3.3");
        check_listed("2001:db8:1::5", "2001:db8:1::5");
        check_listed("[2001:db8:1::5]:4711, 10.0.0.2:80", "2001:db8:1::5");
        check_listed("203.0.113.9:1234", "203.0.113.9");
        check_described("for=1.1.1.1, for=203.0.113.9;proto=https;by=10.0.0.1", "203.0.113.9");
        check_described("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17");
        check_described("by=_x;FOR=\"203.0.113.9:_p.1\" , for=10.0.0.2", "203.0.113.9");
        check_described("for=203.0.113.9;host=\"a,b;for=\\\"1.1.1.1\"", "203.0.113.9");
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines =
            [(X_FORWARDED_FOR, "1.1.1.1"), (X_FORWARDED_FOR, "203.0.113.9, 10.0.0.3"), (X_FORWARDED_FOR, "10.0.0.2")];
        check("10.0.0.1", &lines, "203.0.113.9");
        let lines =
            [(FORWARDED, "for=\"unclosed"), (FORWARDED, "for=203.0.113.9, for=10.0.0.3"), (FORWARDED, "for=10.0.0.2")];
        check("10.0.0.1", &lines, "203.0.113.9");
    }

    #[test]
    fn what_is_no_address_ends_the_walk_at_the_last_trusted_one() {
        let no_addresses = "| |unknown|_hidden|localhost|1.1.1|1.1.1.1.1|1.1.1.1:|1.1.1.1:port|1.1.1.1:123456|1.1.1.1:80:80|\
                            [1.1.1.1]|[::1|::1]|[::1]80|[::1]:_|fe80::1%eth0|01.1.1.1|1.1.1.1 2.2.2.2";
        for bad in no_addresses.split('|') {
            check_listed(&format!("1.1.1.1, {bad}"), "10.0.0.1");
            check_listed(&format!("1.1.1.1, {bad}, 10.0.0.2"), "10.0.0.2");
            check_listed(&format!("{bad}, 203.0.113.9, 10.0.0.2"), "203.0.113.9");
            check_described(&format!("for=1.1.1.1, for=\"{bad}\", for=10.0.0.2"), "10.0.0.2");
        }
        let no_elements = "|for|for=|for=[2001:db8::1]|for=1.1.1.1;for=1.1.1.1|for =1.1.1.1|proto=https|for=1.1.1.1;|\
                           for=1.1.1.1;;by=_x|for=\"1.1.1.1\"x|=1.1.1.1|1.1.1.1|for=1.1.1.1;x=a b";
        for bad in no_elements.split('|') {
            check_described(&format!("for=1.1.1.1, {bad}"), "10.0.0.1");
            check_described(&format!("{bad}, for=203.0.113.9"), "203.0.113.9");
        }
        // A quote that the client leaves open must not swallow what the proxies add.
        for added in ["for=203.0.113.9", "for=\"[2001:db8:1::5]\"", "for=\"203.0.113.9:1\";by=\"_a\""] {
            check_described(&format!("for=1.1.1.1;x=\", {added}"), "10.0.0.1");
            check_described(&format!("for=1.1.1.1;x=\"\\, {added}"), "10.0.0.1");
        }
        let lines = headers(&[(X_FORWARDED_FOR, b"1.1.1.1, \xff")]);
        let peer = "10.0.0.1".parse().expect("an address");
        assert_eq!(client_address(peer, &lines, &trusted()), peer);
    }

    #[test]
    fn two_headers_must_agree() {
        let lines = |listed, described| [(X_FORWARDED_FOR, listed), (FORWARDED, described)];
        check("10.0.0.1", &lines("1.1.1.1, 203.0.113.9", "for=203.0.113.9"), "203.0.113.9");
        check("10.0.0.1", &lines("203.0.113.9", "for=1.1.1.1"), "10.0.0.1");
        check("10.0.0.1", &lines("unknown", "for=1.1.1.1"), "10.0.0.1");
    }

    #[test]
    fn a_trusted_peer_tells_the_scheme() {
        let check = |peer: &str, lines: &[(HeaderName, &str)], expected| {
            let lines: Vec<_> = lines.iter().map(|(name, value)| (name.clone(), value.as_bytes())).collect();
            let peer = SocketAddr::new(peer.parse().expect(peer), 1);
            assert_eq!(forwarded_https(Some(peer), &headers(&lines), &trusted()), expected, "{lines:?}");
        };
        check("203.0.113.9", &[(X_FORWARDED_PROTO, "https")], None);
        check("10.0.0.1", &[], None);
        check("10.0.0.1", &[(X_FORWARDED_PROTO, "https")], Some(true));
        check("10.0.0.1", &[(X_FORWARDED_PROTO, "https, HTTP ")], Some(false));
        check("10.0.0.1", &[(X_FORWARDED_PROTO, "ftp")], None);
        check("10.0.0.1", &[(FORWARDED, "for=1.1.1.1;proto=http, proto=\"https\"")], Some(true));
        check("10.0.0.1", &[(FORWARDED, "proto=https;proto=https")], None);
        check("10.0.0.1", &[(FORWARDED, "proto=https"), (X_FORWARDED_PROTO, "http")], None);
        check("10.0.0.1", &[(FORWARDED, "proto=https"), (X_FORWARDED_PROTO, "https")], Some(true));
    }

    #[test]
    fn without_a_peer_nothing_is_believed() {
        let request = http::Request::builder().header(X_FORWARDED_FOR, "1.1.1.1").body(()).expect("a request");
        assert_eq!(address(&request.into_parts().0, &trusted()), None);
    }

    const PARTS: &[&str] =
        &["for=", "1.1.1.1", "\"", "\\", ",", ";", "=", " ", "[::1]", "unknown", "10.0.0.9", "by=_x", ":80"];

    /// What a client may send before the proxies add theirs.
    fn invented() -> impl Strategy<Value = String> {
        prop_oneof![vec(select(PARTS), 0..12).prop_map(|parts| parts.concat()), "[ -~]{0,40}"]
    }

    proptest! {
        #[test]
        fn what_a_client_invents_is_never_believed(
            invented in invented(),
            own_line in any::<bool>(),
            described in any::<bool>(),
            quoted in any::<bool>(),
            inner in 0..3_usize,
        ) {
            // The client 203.0.113.9 comes through `inner` trusted proxies and the one that is the peer.
            let mut added = vec![if quoted { "for=\"203.0.113.9:1\"" } else { "for=203.0.113.9" }];
            added.extend(["for=10.0.0.2", "for=\"10.0.0.3\""].into_iter().take(inner));
            let added: Vec<String> = added.into_iter().map(|hop| match described {
                true => hop.to_owned(),
                false => hop.trim_start_matches("for=").replace('"', ""),
            }).collect();
            let name = if described { FORWARDED } else { X_FORWARDED_FOR };
            let added = added.join(", ");
            let mut lines = vec![];
            let joined = format!("{invented}, {added}");
            if own_line {
                lines.extend([(name.clone(), invented.as_bytes()), (name, added.as_bytes())]);
            } else {
                lines.push((name, joined.as_bytes()));
            }
            let found = client_address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), &headers(&lines), &trusted());
            let client = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
            // An open quote may hide who it was; nothing makes it somebody else.
            prop_assert!(found == client || found == IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), "{found}");
            if own_line || !described {
                prop_assert_eq!(found, client);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(listed in vec(any::<u8>(), 0..60), described in vec(any::<u8>(), 0..60)) {
            let mut lines = HeaderMap::new();
            for (name, value) in [(X_FORWARDED_FOR, listed), (FORWARDED, described)] {
                lines.extend(HeaderValue::from_bytes(&value).ok().map(|value| (Some(name), value)).into_iter());
            }
            let untrusted = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
            prop_assert_eq!(client_address(untrusted, &lines, &trusted()), untrusted);
            client_address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), &lines, &trusted());
        }
    }
}
