//! Addresses of servers as they are registered in the catalog: `host:port`, or `https://host:port` where they are
//! reached with TLS. A server that has none leaves the latter alone.

const SCHEME: &str = "https";

pub(super) fn registered(host_and_port: &str, has_tls: bool) -> String {
    match has_tls {
        true => format!("{SCHEME}://{host_and_port}"),
        false => host_and_port.to_owned(),
    }
}

/// Host and port of an address, and whether it is one with TLS.
pub(super) fn parts(address: &str) -> (&str, bool) {
    match address.split_once("://") {
        Some((SCHEME, host_and_port)) => (host_and_port, true),
        _ => (address, false),
    }
}

pub(super) fn url(address: &str) -> String {
    let (host_and_port, has_tls) = parts(address);
    format!("{}://{host_and_port}", if has_tls { SCHEME } else { "http" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_tells_whether_it_is_one_with_tls() {
        for (has_tls, address, url_of) in
            [(false, "10.0.0.7:8081", "http://10.0.0.7:8081"), (true, "https://10.0.0.7:8081", "https://10.0.0.7:8081")]
        {
            assert_eq!(registered("10.0.0.7:8081", has_tls), address);
            assert_eq!(parts(address), ("10.0.0.7:8081", has_tls));
            assert_eq!(url(address), url_of);
        }
    }
}
