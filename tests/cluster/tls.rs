//! Distributed queries with TLS. Nodes without a certificate, or with a certificate of another CA, are excluded.

use std::sync::Arc;

use strata_query::distribution::DistributionReport;
use strata_testing::certificates::Certificates;
use strata_testing::recording_proxy::RecordingProxy;
use strata_types::read_request::ReadRequest;
use tokio::net::TcpListener;

use super::{PartCache, SECRET, TestNodes, filter, forty_entities, ten_rows_per_group};

const NETWORK: &str = "127.0.0.";

/// A string that occurs in the plan of a task, but in no entity.
const SEARCHED: &str = "zebra crossing";

/// First bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

impl TestNodes {
    /// Adds a node with the common secret and with certificates.
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

    fn with_tls(count: usize, certificates: &Certificates) -> TestNodes {
        let mut nodes = TestNodes::new(0);
        for _ in 0..count {
            nodes.add_with_tls(certificates);
        }
        nodes
    }

    /// Makes all nodes connect to the last node through a recording proxy.
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

/// Returns the nodes that ran tasks of a query, and the reason for a fallback, if any.
fn distribution(used: Option<DistributionReport>) -> Option<(Vec<String>, Option<String>)> {
    let used = used?;
    Some((used.nodes.into_iter().map(|node| node.node).collect(), used.fallback))
}

#[test]
fn tls_hides_traffic_between_nodes() {
    let certificates = Certificates::make(NETWORK);
    let request = Arc::new(filter("v", SEARCHED));
    for has_tls in [false, true] {
        let nodes = if has_tls { TestNodes::with_tls(2, &certificates) } else { TestNodes::new(2) };
        let proxy = nodes.record_last();
        let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
        let (found, used) = nodes.run_on(0, &reader, &request);
        assert_eq!(found, nodes.run_locally(&reader, &request).expect("found"));
        assert_eq!(distribution(used), Some((vec!["n0".to_owned(), "n1".to_owned()], None)));
        for text in [PREFACE, SEARCHED.as_bytes()] {
            assert_eq!(proxy.has_seen(text), !has_tls, "{}", String::from_utf8_lossy(text));
        }
        // The first TLS record is a handshake.
        assert_eq!(proxy.recorded().starts_with(&[0x16, 0x03]), has_tls);
    }
}

#[test]
fn distributed_query_with_tls_equals_local_query() {
    let nodes = TestNodes::with_tls(3, &Certificates::make(NETWORK));
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    for node in 0..3 {
        for request in [filter("k", "1"), ReadRequest { count: true, ..filter("k", "2") }] {
            let (found, used) = nodes.run_on(node, &reader, &request);
            assert_eq!(found, nodes.run_locally(&reader, &request).expect("found"));
            assert_eq!(used.map(|used| (used.nodes.len(), used.fallback)), Some((3, None)));
        }
    }
}

#[test]
fn node_with_certificate_of_another_ca_is_rejected() {
    let mut nodes = TestNodes::with_tls(2, &Certificates::make(NETWORK));
    let other = nodes.add_with_tls(&Certificates::make(NETWORK));
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let request = filter("k", "1");
    let local = nodes.run_locally(&reader, &request).expect("found");
    let (found, used) = nodes.run_on(0, &reader, &request);
    assert_eq!((&found, used.and_then(|used| used.fallback)), (&local, Some(format!("failed: n{other}"))));
    // The next query is distributed among the other nodes.
    let (found, used) = nodes.run_on(0, &reader, &request);
    assert_eq!((&found, distribution(used)), (&local, Some((vec!["n0".to_owned(), "n1".to_owned()], None))));
    let (found, used) = nodes.run_on(other, &reader, &request);
    let fallback = used.and_then(|used| used.fallback).expect("refused");
    assert!(fallback.starts_with("failed: n") && !fallback.contains(&format!("n{other}")), "{fallback}");
    assert_eq!(found, local);
}

#[test]
fn nodes_with_and_without_tls_share_no_queries() {
    let mut nodes = TestNodes::with_tls(2, &Certificates::make(NETWORK));
    let store = nodes.lab.store.clone();
    let plain = nodes.add(SECRET, store);
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let request = filter("k", "1");
    let local = nodes.run_locally(&reader, &request).expect("found");
    let (found, used) = nodes.run_on(0, &reader, &request);
    assert_eq!((&found, distribution(used)), (&local, Some((vec!["n0".to_owned(), "n1".to_owned()], None))));
    let (found, used) = nodes.run_on(plain, &reader, &request);
    assert_eq!((&found, distribution(used)), (&local, None), "no node has the same scheme");
    // The same with addresses that have the wrong scheme.
    let swapped = |address: &str| match address.strip_prefix("https://") {
        Some(address) => address.to_owned(),
        None => format!("https://{address}"),
    };
    for peer in nodes.known.lock().expect("unpoisoned").iter_mut() {
        peer.address = swapped(&peer.address);
    }
    for node in [0, plain] {
        let (found, used) = nodes.run_on(node, &reader, &request);
        let fallback = used.and_then(|used| used.fallback).expect("it ran again");
        assert!(fallback.starts_with("failed: n"), "{fallback}");
        assert_eq!(found, local);
    }
}

#[test]
fn query_succeeds_if_a_node_hangs_in_tls_handshake() {
    let nodes = TestNodes::with_tls(2, &Certificates::make(NETWORK));
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let request = ReadRequest { count: true, ..filter("k", "1") };
    let local = nodes.run_locally(&reader, &request).expect("found");
    let listener = nodes.lab.bench.runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    nodes.add_peer("n9", &format!("https://{}", listener.local_addr().expect("an address")));
    let (found, used) = nodes.run_on(0, &reader, &request);
    assert_eq!(found, local);
    assert_eq!(used.and_then(|used| used.fallback), Some("failed: n9".to_owned()));
    drop(listener);
}
