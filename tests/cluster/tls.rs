//! Nodes with certificates. Who has none, or one that another authority has signed, neither gives nor gets anything.

use std::sync::Arc;

use strata_query::distribute::DistributedUse;
use strata_testing::certificates::Certificates;
use strata_testing::recording_proxy::RecordingProxy;
use strata_types::request::ReadRequest;
use tokio::net::TcpListener;

use super::{Nodes, PartCache, SECRET, filter, forty, tens};

const NETWORK: &str = "127.0.0.";

/// A text that is in no entity, and in the plan of a part.
const SEARCHED: &str = "zebra crossing";

/// How HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

impl Nodes {
    /// Adds a node with the secret of all, and with certificates.
    fn add_with_tls(&mut self, certificates: &Certificates) -> usize {
        let store = self.lab.store.clone();
        let number = self.engines.len();
        self.add_at(
            &format!("{NETWORK}1{}", number % 3 + 1),
            (Some(certificates.section(number % 3)), PartCache::new(0)),
            SECRET,
            store,
        )
    }

    fn with_tls(count: usize, certificates: &Certificates) -> Nodes {
        let mut nodes = Nodes::new(0);
        for _ in 0..count {
            nodes.add_with_tls(certificates);
        }
        nodes
    }

    /// What all hear of the last node is that it is reached through a proxy.
    fn record_last(&self) -> RecordingProxy {
        let mut known = self.known.lock().expect("unpoisoned");
        let address = &mut known.last_mut().expect("a node").address;
        let (scheme, target) = address.split_once("://").map_or(("", &**address), |(_, target)| ("https://", target));
        let host = target.rsplit_once(':').expect("a port").0.to_owned();
        let _runtime = self.lab.bench.runtime.enter();
        let proxy = RecordingProxy::start(&format!("{host}:0"), target);
        *address = format!("{scheme}{}", proxy.address());
        proxy
    }
}

/// How the query was distributed: the nodes that gave a part, and why it ran again.
fn shared(used: Option<DistributedUse>) -> Option<(Vec<String>, Option<String>)> {
    let used = used?;
    Some((used.nodes.into_iter().map(|node| node.node).collect(), used.fallback))
}

#[test]
fn whoever_reads_the_network_sees_nothing_of_what_nodes_say() {
    let certificates = Certificates::make(NETWORK);
    let request = Arc::new(filter("v", SEARCHED));
    for has_tls in [false, true] {
        let nodes = if has_tls { Nodes::with_tls(2, &certificates) } else { Nodes::new(2) };
        let proxy = nodes.record_last();
        let reader = nodes.version(&forty(), &tens());
        let (found, used) = nodes.found(0, &reader, &request);
        assert_eq!(found, nodes.alone(&reader, &request).expect("found"));
        assert_eq!(shared(used), Some((vec!["n0".to_owned(), "n1".to_owned()], None)));
        for text in [PREFACE, SEARCHED.as_bytes()] {
            assert_eq!(proxy.has_seen(text), !has_tls, "{}", String::from_utf8_lossy(text));
        }
        // The first record of TLS is a handshake.
        assert_eq!(proxy.recorded().starts_with(&[0x16, 0x03]), has_tls);
    }
}

#[test]
fn any_request_finds_with_tls_what_it_finds_alone() {
    let nodes = Nodes::with_tls(3, &Certificates::make(NETWORK));
    let reader = nodes.version(&forty(), &tens());
    for node in 0..3 {
        for request in [filter("k", "1"), ReadRequest { count: true, ..filter("k", "2") }] {
            let (found, used) = nodes.found(node, &reader, &request);
            assert_eq!(found, nodes.alone(&reader, &request).expect("found"));
            assert_eq!(used.map(|used| (used.nodes.len(), used.fallback)), Some((3, None)));
        }
    }
}

#[test]
fn a_node_with_a_certificate_of_another_authority_gives_and_gets_nothing() {
    let mut nodes = Nodes::with_tls(2, &Certificates::make(NETWORK));
    let other = nodes.add_with_tls(&Certificates::make(NETWORK));
    let reader = nodes.version(&forty(), &tens());
    let request = filter("k", "1");
    let alone = nodes.alone(&reader, &request).expect("found");
    let (found, used) = nodes.found(0, &reader, &request);
    assert_eq!((&found, used.and_then(|used| used.fallback)), (&alone, Some(format!("failed: n{other}"))));
    // The next one goes to the others.
    let (found, used) = nodes.found(0, &reader, &request);
    assert_eq!((&found, shared(used)), (&alone, Some((vec!["n0".to_owned(), "n1".to_owned()], None))));
    let (found, used) = nodes.found(other, &reader, &request);
    let fallback = used.and_then(|used| used.fallback).expect("refused");
    assert!(fallback.starts_with("failed: n") && !fallback.contains(&format!("n{other}")), "{fallback}");
    assert_eq!(found, alone);
}

#[test]
fn nodes_with_and_without_tls_leave_each_other_alone() {
    let mut nodes = Nodes::with_tls(2, &Certificates::make(NETWORK));
    let store = nodes.lab.store.clone();
    let plain = nodes.add(SECRET, store);
    let reader = nodes.version(&forty(), &tens());
    let request = filter("k", "1");
    let alone = nodes.alone(&reader, &request).expect("found");
    let (found, used) = nodes.found(0, &reader, &request);
    assert_eq!((&found, shared(used)), (&alone, Some((vec!["n0".to_owned(), "n1".to_owned()], None))));
    let (found, used) = nodes.found(plain, &reader, &request);
    assert_eq!((&found, shared(used)), (&alone, None), "there is nobody for it");
    // Even if they are told of each other as of their like.
    let swapped = |address: &str| match address.strip_prefix("https://") {
        Some(address) => address.to_owned(),
        None => format!("https://{address}"),
    };
    for peer in nodes.known.lock().expect("unpoisoned").iter_mut() {
        peer.address = swapped(&peer.address);
    }
    for node in [0, plain] {
        let (found, used) = nodes.found(node, &reader, &request);
        let fallback = used.and_then(|used| used.fallback).expect("it ran again");
        assert!(fallback.starts_with("failed: n"), "{fallback}");
        assert_eq!(found, alone);
    }
}

#[test]
fn a_node_that_says_nothing_where_tls_begins_is_done_without() {
    let nodes = Nodes::with_tls(2, &Certificates::make(NETWORK));
    let reader = nodes.version(&forty(), &tens());
    let request = ReadRequest { count: true, ..filter("k", "1") };
    let alone = nodes.alone(&reader, &request).expect("found");
    let listener = nodes.lab.bench.runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    nodes.tell("n9", &format!("https://{}", listener.local_addr().expect("an address")));
    let (found, used) = nodes.found(0, &reader, &request);
    assert_eq!(found, alone);
    assert_eq!(used.and_then(|used| used.fallback), Some("failed: n9".to_owned()));
    drop(listener);
}
