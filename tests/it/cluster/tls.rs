//! TLS between nodes, with certificates from the commands in docs/guides/cluster.md.

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

use super::distributed::{DISTRIBUTED_ENVIRONMENT, DistributedCluster};
use super::harness::{NODES, TestCluster, until};

/// First bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A distributed count of a string that occurs in no entity.
const SEARCHED: &str = "count=true&filter_contains=t:zebra%20crossing";

/// Returns a TLS configuration that trusts a CA, and has the certificate of a node, or none.
fn tls_config(trusted: &Certificates, shown: Option<(&Certificates, usize)>) -> Arc<ClientConfig> {
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

/// Connects to a node, and returns its certificate and the first bytes of its HTTP/2 response.
async fn connect(address: &str, config: Arc<ClientConfig>) -> io::Result<(CertificateDer<'static>, [u8; 16])> {
    let host = address.rsplit_once(':').expect("a port").0.to_owned();
    let stream = TcpStream::connect(address).await.expect("a connection");
    let mut stream = TlsConnector::from(config).connect(ServerName::try_from(host).expect("a host"), stream).await?;
    stream.write_all(PREFACE).await?;
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).expect("a certificate");
    Ok((shown.clone().into_owned(), bytes))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_one_ca_share_queries_with_tls() {
    let mut proxies = Vec::new();
    let mut created = None;
    let cluster = TestCluster::start_each(&DISTRIBUTED_ENVIRONMENT, |page| {
        let certificates = created.insert(Certificates::make(&page.network));
        [0, 1, 2].map(|node| {
            let host = format!("{}1{}", page.network, node + 1);
            let proxy = RecordingProxy::start(&format!("{host}:0"), &format!("{host}:8081"));
            let address = ("STRATA_CLUSTER__INTERNAL_ADDRESS".to_owned(), proxy.address().to_string());
            proxies.push(proxy);
            certificates.environment(node).into_iter().chain([address]).collect()
        })
    })
    .await;
    let mut shared = DistributedCluster::new(cluster).await;
    let certificates = created.expect("certificates are created");
    let others = Certificates::make(certificates.network());
    let expected =
        shared.cluster.client_of(0).get(&shared.path("count=true&filter=k:3")).await.expect("a response").body;
    let check_query = async |shared: &DistributedCluster, node: usize| {
        let reply =
            shared.cluster.client_of(node).get(&shared.path("count=true&filter=k:3")).await.expect("a response");
        assert!(reply.is_ok() && reply.body == expected, "{} {}", reply.status, reply.text());
    };
    let done = "node_tasks_total{outcome=\"done\"}";

    // All nodes have run tasks, and the recorded traffic is encrypted.
    for node in 0..NODES {
        let reply = shared.cluster.client_of(node).get(&shared.path(SEARCHED)).await.expect("a response");
        assert!(reply.is_ok(), "{}", reply.text());
        let expires = shared.metric(node, "node_certificate_expires").await;
        assert!(expires > 1_700_000_000.0, "{expires}");
    }
    for (node, proxy) in proxies.iter().enumerate() {
        assert!(shared.metric(node, done).await > 0.0, "{node}");
        let recorded = proxy.recorded();
        assert!(recorded.starts_with(&[0x16, 0x03]) && recorded.len() > 10_000, "{}", recorded.len());
        assert!(!proxy.has_seen(b"PRI * HTTP/2.0") && !proxy.has_seen(b"zebra crossing"));
    }

    // Clients without a certificate of the CA are rejected.
    let address = shared.cluster.task_address(0);
    let rejected = shared.metric(0, "node_tasks_total{outcome=\"refused\"}").await;
    let url = format!("http://{address}").parse().expect("a URL");
    let plain = async {
        let channel = DefaultChannelResolver::default().get_channel(&url).await.map_err(|error| error.to_string())?;
        let result = create_worker_client(channel).get_worker_info(GetWorkerInfoRequest {}).await;
        result.map(|_| ()).map_err(|error| error.to_string())
    };
    let error = plain.await.expect_err("no TLS");
    assert!(!error.contains("not from a node of this cluster"), "{error}");
    for shown in [None, Some((&others, 0))] {
        assert!(connect(&address, tls_config(&certificates, shown)).await.is_err());
    }
    assert!(connect(&address, tls_config(&others, Some((&certificates, 0)))).await.is_err());
    let (shown, settings) =
        connect(&address, tls_config(&certificates, Some((&certificates, 1)))).await.expect("a node");
    assert_eq!((shown, settings[3]), (certificates.certificate(0), 4), "SETTINGS of HTTP/2");
    until("rejections are counted", async || {
        shared.metric(0, "node_tasks_total{outcome=\"refused\"}").await >= rejected + 4.0
    })
    .await;

    // Nodes use new certificates of a new CA without a restart.
    certificates.replace(&others);
    for node in 0..NODES {
        let address = shared.cluster.task_address(node);
        until("the new certificate is used", async || {
            let result = connect(&address, tls_config(&others, Some((&others, node)))).await;
            result.is_ok_and(|(shown, _)| shown == others.certificate(node))
        })
        .await;
    }
    // Running nodes accept the certificate of a restarted node.
    shared.cluster.nodes[2].kill();
    tokio::task::block_in_place(|| shared.cluster.start_node(2, &[]));
    until("the node gets tasks", async || {
        check_query(&shared, 0).await;
        shared.metric(2, done).await > 0.0
    })
    .await;
    until("the node sends tasks", async || {
        check_query(&shared, 2).await;
        shared.metric(2, "distributed_queries_total{outcome=\"answered\"}").await > 0.0
    })
    .await;

    // A node with a certificate of another CA neither gets nor sends tasks.
    let strangers = Certificates::make(certificates.network());
    shared.cluster.nodes[2].kill();
    let environment = strangers.environment(2);
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    tokio::task::block_in_place(|| shared.cluster.start_node(2, &environment));
    for node in [0, 2] {
        let before = shared.metric(node, "distributed_queries_total{outcome=\"repeated\"}").await;
        until("a query ran again", async || {
            check_query(&shared, node).await;
            shared.metric(node, "distributed_queries_total{outcome=\"repeated\"}").await > before
        })
        .await;
    }
    assert_eq!(shared.metric(2, done).await, 0.0);
    assert_eq!(shared.metric(2, "distributed_queries_total{outcome=\"answered\"}").await, 0.0);
    // The other nodes continue to distribute queries.
    let before = shared.metric(0, "distributed_queries_total{outcome=\"answered\"}").await;
    until("the other nodes distribute queries", async || {
        check_query(&shared, 0).await;
        shared.metric(0, "distributed_queries_total{outcome=\"answered\"}").await > before
    })
    .await;
}
