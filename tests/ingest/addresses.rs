//! The address policy of outgoing requests, and the removal of credentials from URLs.

use strata_ingest::egress::{AddressPolicy, UrlQuery, strip_credentials};

fn check(policy: &AddressPolicy, address: &str) -> Result<(), &'static str> {
    policy.check(address.parse().expect("failed to parse address"))
}

#[test]
fn special_address_is_rejected_with_kind() {
    let policy = AddressPolicy::default();
    let public = "";
    for (kind, addresses) in [
        (
            public,
            "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 172.15.255.255 \
             172.32.0.0 192.0.1.1 192.167.255.255 198.17.255.255 198.20.0.0 223.255.255.255 2606:4700:4700::1111 \
             2000::1 2a00:1450::1 3ffe::1 2001:200::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:0:808:808::f7f7:f7f7 \
             2002:808:808::1 2606:4700::5efe:8.8.8.8",
        ),
        ("unspecified", "0.0.0.0 0.1.2.3 ::"),
        (
            "private",
            "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.1 64:ff9b::10.0.0.1 2002:c0a8:101::1 \
             2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:10.0.0.1 fc00::1 fd12:3456::1",
        ),
        ("carrier", "100.64.0.0 100.127.255.255"),
        (
            "metadata",
            "100.100.100.200 168.63.129.16 169.254.169.254 192.0.0.192 ::ffff:a9fe:a9fe 64:ff9b::169.254.169.254 \
             2002:a9fe:a9fe::1 2606:4700::5efe:169.254.169.254 fd00:ec2::254",
        ),
        // The last two are Teredo addresses (2001:0::/32) with the loopback address as the client and as the server.
        (
            "loopback",
            "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 2001:0:808:808::80ff:fffe 2001:0:7f00:1::f7f7:f7f7 \
             2002:7f00:1::1",
        ),
        ("link-local", "169.254.0.1 fe80::1 febf::1"),
        ("protocols", "192.0.0.1 2001:1::1 2001:1ff::1"),
        ("documentation", "192.0.2.1 198.51.100.7 203.0.113.7 2001:db8::1 3fff::1 3fff:fff::1"),
        ("6to4", "192.88.99.1"),
        ("benchmarks", "198.18.0.0 198.19.255.255 2001:2::1"),
        ("multicast", "224.0.0.1 239.255.255.255 ff02::1"),
        ("reserved", "240.0.0.1 255.255.255.254 ::ffff:0:127.0.0.1 64:ff9b:0:1::1 4000::1 8000::1"),
        ("broadcast", "255.255.255.255"),
        ("IPv4-compatible", "::2 ::8.8.8.8 ::127.0.0.1"),
        ("local IPv4 translation", "64:ff9b:1::8.8.8.8"),
        ("discard-only", "100::1"),
        ("ORCHID", "2001:10::1 2001:2f:ffff::1"),
        ("segment", "5f00::1"),
        ("site-local", "fec0::1"),
    ] {
        for address in addresses.split(' ') {
            match check(&policy, address) {
                Ok(()) => assert_eq!(kind, public, "{address} passed"),
                Err(reason) => assert!(kind != public && reason.contains(kind), "{address}: {reason}, not {kind}"),
            }
        }
    }
}

#[test]
fn network_allowed_by_operator_passes() {
    let networks = ["127.0.0.0/8", "fd00::/8", "169.254.169.254/32"];
    let policy = AddressPolicy::new(networks.map(|network| network.parse().expect("failed to parse network")));
    let allowed = ["127.0.0.1", "::ffff:127.1.2.3", "64:ff9b::127.0.0.1", "2002:7f00:1::", "fd00::1", "8.8.8.8"];
    for address in allowed.into_iter().chain(["169.254.169.254"]) {
        assert_eq!(check(&policy, address), Ok(()), "{address}");
    }
    for address in ["10.0.0.1", "::1", "fc00::1", "64:ff9b::10.0.0.1", "169.254.169.253"] {
        assert!(check(&policy, address).is_err(), "{address}");
    }
}

#[test]
fn strip_credentials_keeps_other_parts() {
    for (url, stripped, with_query) in [
        ("https://a.test/x?key=s3cret", "https://a.test/x", "https://a.test/x?key=s3cret"),
        ("https://ada:s3cret@a.test/x", "https://a.test/x", "https://a.test/x"),
        ("https://s3cret@a.test:8080/x?s3cret#part", "https://a.test:8080/x#part", "https://a.test:8080/x?s3cret#part"),
        ("https://A.test/a%2fb", "https://A.test/a%2fb", "https://A.test/a%2fb"),
        ("https://a.test", "https://a.test", "https://a.test"),
        ("store:///incoming/a.json", "store:///incoming/a.json", "store:///incoming/a.json"),
        ("s3://bucket/key", "s3://bucket/key", "s3://bucket/key"),
        ("push", "push", "push"),
        ("https://ada:s3cret@[/x?s3cret", "https", "https"),
    ] {
        assert_eq!(strip_credentials(url, UrlQuery::Remove), stripped, "{url}");
        assert_eq!(strip_credentials(url, UrlQuery::Keep), with_query, "{url}");
    }
}
