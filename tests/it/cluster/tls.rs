//! Servers that talk to each other with TLS, with certificates that the commands of docs/guides/cluster.md make.

use std::io;
use std::sync::Arc;

use datafusion_distributed::GetWorkerInfoRequest;
use datafusion_distributed::grpc::{DefaultChannelResolver, create_worker_client};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use strata_testing::certificates::Certificates;
use strata_testing::recording_proxy::RecordingProxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::distributed::{SHARED, Shared};
use super::harness::{Cluster, NODES, until};

/// How HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A count that all servers take part in, of a text that is in no entity.
const SEARCHED: &str = "count=true&filter_contains=t:zebra%20crossing";

/// What a client does with TLS: it trusts an authority, and shows the certificate of a server, or none.
fn client(trusted: &Certificates, shown: Option<(&Certificates, usize)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted.path("ca.pem")).expect("a certificate")).expect("added");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some((certificates, node)) => {
            let [_, (_, key), _] = certificates.options(node);
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            builder.with_client_auth_cert(vec![certificates.certificate(node)], key).expect("a certificate")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// The certificate of who is at an address, and what it says to a client that begins HTTP/2.
async fn said(address: &str, client: Arc<ClientConfig>) -> io::Result<(CertificateDer<'static>, [u8; 16])> {
    let host = address.rsplit_once(':').expect("a port").0.to_owned();
    let stream = TcpStream::connect(address).await.expect("a connection");
    let mut stream = TlsConnector::from(client).connect(ServerName::try_from(host).expect("a host"), stream).await?;
    stream.write_all(PREFACE).await?;
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).expect("a certificate");
    Ok((shown.clone().into_owned(), bytes))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_queries_are_shared_with_tls_and_by_servers_of_one_authority_alone() {
    let (mut proxies, mut made) = (Vec::new(), None);
    let cluster = Cluster::start_each(&SHARED, |page| {
        let certificates = made.insert(Certificates::make(&page.network));
        [0, 1, 2].map(|node| {
            let host = format!("{}1{}", page.network, node + 1);
            let proxy = RecordingProxy::start(&format!("{host}:0"), &format!("{host}:8081"));
            let reached = ("STRATA_CLUSTER__INTERNAL_ADDRESS".to_owned(), proxy.address().to_string());
            proxies.push(proxy);
            certificates.environment(node).into_iter().chain([reached]).collect()
        })
    })
    .await;
    let mut shared = Shared::of(cluster).await;
    let certificates = made.expect("made");
    let others = Certificates::make(certificates.network());
    let expected = shared.cluster.door_of(0).get(&shared.path("count=true&filter=k:3")).await.expect("an answer").body;
    let is_right = async |shared: &Shared, node: usize| {
        let reply = shared.cluster.door_of(node).get(&shared.path("count=true&filter=k:3")).await.expect("an answer");
        assert!(reply.is_ok() && reply.body == expected, "{} {}", reply.status, reply.text());
    };
    let done = "node_tasks_total{outcome=\"done\"}";

    // All have worked for others, and who reads the network sees TLS and no words.
    for node in 0..NODES {
        let reply = shared.cluster.door_of(node).get(&shared.path(SEARCHED)).await.expect("an answer");
        assert!(reply.is_ok(), "{}", reply.text());
        let expires = shared.counted(node, "node_certificate_expires").await;
        assert!(expires > 1_700_000_000.0, "{expires}");
    }
    for (node, proxy) in proxies.iter().enumerate() {
        assert!(shared.counted(node, done).await > 0.0, "{node}");
        let recorded = proxy.recorded();
        assert!(recorded.starts_with(&[0x16, 0x03]) && recorded.len() > 10_000, "{}", recorded.len());
        assert!(!proxy.has_seen(b"PRI * HTTP/2.0") && !proxy.has_seen(b"zebra crossing"));
    }

    // Who shows no certificate of the authority is told nothing.
    let address = shared.cluster.tasks_of(0);
    let refused = shared.counted(0, "node_tasks_total{outcome=\"refused\"}").await;
    let url = format!("http://{address}").parse().expect("a URL");
    let plain = async {
        let channel = DefaultChannelResolver::default().get_channel(&url).await.map_err(|error| error.to_string())?;
        let told = create_worker_client(channel).get_worker_info(GetWorkerInfoRequest {}).await;
        told.map(|_| ()).map_err(|error| error.to_string())
    };
    let told = plain.await.expect_err("no TLS");
    assert!(!told.contains("not from a node of this cluster"), "{told}");
    for shown in [None, Some((&others, 0))] {
        assert!(said(&address, client(&certificates, shown)).await.is_err());
    }
    assert!(said(&address, client(&others, Some((&certificates, 0)))).await.is_err());
    let (shown, settings) = said(&address, client(&certificates, Some((&certificates, 1)))).await.expect("a node");
    assert_eq!((shown, settings[3]), (certificates.certificate(0), 4), "SETTINGS of HTTP/2");
    until("refusals are counted", async || {
        shared.counted(0, "node_tasks_total{outcome=\"refused\"}").await >= refused + 4.0
    })
    .await;

    // New certificates, of a new authority, are used without a restart.
    certificates.replace(&others);
    for node in 0..NODES {
        let address = shared.cluster.tasks_of(node);
        until("the new certificate is used", async || {
            let said = said(&address, client(&others, Some((&others, node)))).await;
            said.is_ok_and(|(shown, _)| shown == others.certificate(node))
        })
        .await;
    }
    // That of a server that begins is known to those that go on.
    shared.cluster.nodes[2].kill();
    tokio::task::block_in_place(|| shared.cluster.start_node(2, &[]));
    until("the server is given tasks", async || {
        is_right(&shared, 0).await;
        shared.counted(2, done).await > 0.0
    })
    .await;
    until("the server gives tasks", async || {
        is_right(&shared, 2).await;
        shared.counted(2, "distributed_queries_total{outcome=\"answered\"}").await > 0.0
    })
    .await;

    // One of another authority does nothing for others, and they do nothing for it.
    let strangers = Certificates::make(certificates.network());
    shared.cluster.nodes[2].kill();
    let environment = strangers.environment(2);
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    tokio::task::block_in_place(|| shared.cluster.start_node(2, &environment));
    for node in [0, 2] {
        let before = shared.counted(node, "distributed_queries_total{outcome=\"repeated\"}").await;
        until("a query was repeated", async || {
            is_right(&shared, node).await;
            shared.counted(node, "distributed_queries_total{outcome=\"repeated\"}").await > before
        })
        .await;
    }
    assert_eq!(shared.counted(2, done).await, 0.0);
    assert_eq!(shared.counted(2, "distributed_queries_total{outcome=\"answered\"}").await, 0.0);
    // The others go on without it.
    let before = shared.counted(0, "distributed_queries_total{outcome=\"answered\"}").await;
    until("the others share queries", async || {
        is_right(&shared, 0).await;
        shared.counted(0, "distributed_queries_total{outcome=\"answered\"}").await > before
    })
    .await;
}
