//! Heavy reads go to the node that the version file belongs to.

use serde_json::{Value, json};
use strata::catalog::Catalog;
use strata::cluster::token::{Claim, NodeSecret, Purpose, now_s};
use strata::model::secret::Secret;

use super::harness::{Cluster, NODES, until};
use crate::support::metrics;

/// Everything is heavy.
const HEAVY: (&str, &str) = ("STRATA_QUERY__HEAVY_BYTES", "1");

const MEDIUM: (&str, &str) = ("STRATA_QUERY__MEDIUM_BYTES", "1");

async fn counted(cluster: &Cluster, node: usize, outcome: &str) -> u64 {
    let rendering = cluster.door_of(node).get("/metrics").await.expect("an answer").text();
    let series = format!("strata_handed_over_total{{outcome=\"{outcome}\"}}");
    metrics::value(&rendering, &series).unwrap_or_default() as u64
}

/// Whether a node hands reads of this path over. Nothing of it is kept.
async fn hands_over(cluster: &Cluster, node: usize, path: &str) -> bool {
    let before = counted(cluster, node, "answered").await;
    assert!(cluster.door_of(node).get(path).await.expect("an answer").is_ok());
    counted(cluster, node, "answered").await > before
}

async fn start() -> Cluster {
    // Each answer is made anew.
    let cluster = Cluster::start(&[HEAVY, MEDIUM, ("STRATA_CACHE__RESPONSE_BYTES", "0")]).await;
    // All know of all.
    for node in 0..NODES {
        until("the nodes know each other", async || {
            let rendering = cluster.door_of(node).get("/metrics").await.expect("an answer").text();
            metrics::value(&rendering, "strata_nodes{state=\"alive\"}") == Some(NODES as f64)
        })
        .await;
    }
    cluster
}

fn entities(text: &str) -> Value {
    (0..3_000).map(|n| json!({"n": n, "kind": n % 7, "text": format!("{text}{n}")})).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_reads_are_answered_by_the_node_that_the_file_belongs_to() {
    const QUERIES: [&str; 7] = [
        "limit=20",
        "filter=kind:3&sort=n:desc&total=true",
        "keywords=word1&count=true",
        "format=csv&filter=text:word7",
        "format=jsonl&filter=kind:3",
        "format=xml&sample=5&seed=3",
        "filter=text:%27a%27&limit=3",
    ];
    let mut cluster = start().await;
    let mut owners = Vec::new();
    for number in 0..4 {
        let (dataset, _) = cluster.dataset(&format!("Wörter {number}"), json!({})).await;
        cluster.push(dataset, &entities("word")).await;
        let slug = cluster.door.view(&format!("/dataset/view?dataset_id={dataset}")).await.expect("an answer").json();
        let slug = slug["dataset"]["name_slug"].as_str().expect("a slug").to_owned();
        let path = |query: &str| format!("/api/{dataset}/{slug}/active/?{query}");
        let mut own = Vec::new();
        for node in 0..NODES {
            if !hands_over(&cluster, node, &path("filter=kind:3&limit=1")).await {
                own.push(node);
            }
        }
        let [owner] = *own else { panic!("the owner is one of {own:?}") };
        owners.push((owner, path("format=jsonl&filter=kind:3")));
        for query in QUERIES {
            let expected = cluster.door_of(owner).get(&path(query)).await.expect("an answer");
            assert!(expected.is_ok(), "{query}: {}", expected.text());
            for node in (0..NODES).filter(|node| *node != owner) {
                for coding in ["identity", "gzip", "zstd"] {
                    let headers = [("accept-encoding", coding)];
                    let own = cluster.door_of(owner).get_with(&path(query), &headers).await.expect("an answer");
                    let other = cluster.door_of(node).get_with(&path(query), &headers).await.expect("an answer");
                    assert!(other.is_ok() && other.body == own.body, "{query} in {coding} at {node}");
                    for name in ["etag", "content-type", "content-encoding", "x-total-count", "x-total-matches"] {
                        assert_eq!(other.header(name), own.header(name), "{name} of {query} in {coding} at {node}");
                    }
                }
            }
        }
    }
    // What belonged to one that is gone is answered all the same, at once and later.
    let gone = owners[0].0;
    let mut expected = Vec::new();
    for (_, path) in &owners {
        expected.push(cluster.door_of(gone).get(path).await.expect("an answer").body);
    }
    cluster.nodes[gone].kill();
    for node in (0..NODES).filter(|node| *node != gone) {
        for ((_, path), expected) in owners.iter().zip(&expected) {
            let reply = cluster.door_of(node).get(path).await.expect("an answer");
            assert!(reply.is_ok() && reply.body == expected, "{path} at {node}");
        }
    }
    // One that hangs is waited for until it counts as lost.
    tokio::task::block_in_place(|| cluster.start_node(gone, &[]));
    cluster.until_ready().await;
    cluster.nodes[gone].pause();
    let other = (gone + 1) % NODES;
    let reply = cluster.door_of(other).get(&owners[0].1).await.expect("an answer");
    assert!(reply.is_ok() && reply.body == expected[0]);
    cluster.nodes[gone].go_on();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_an_owner_that_is_killed_is_seen_to_be_cut() {
    let mut cluster = start().await;
    let (dataset, _) = cluster.dataset("Large", json!({})).await;
    // More than the buffers on the way hold.
    let text = "0123456789".repeat(1_600);
    cluster.push(dataset, &(0..2_000).map(|n| json!({"n": n, "k": 1, "t": text})).collect()).await;
    // All of them have it. Without a filter there is nothing to select, which is no work.
    let path = format!("/api/{dataset}/large/v1/?format=jsonl&filter=k:1");
    let mut other = None;
    for node in 0..NODES {
        if hands_over(&cluster, node, &format!("{path}&limit=1")).await {
            other = Some(node);
        }
    }
    let other = other.expect("somebody hands it over");
    let whole = cluster.door_of(other).get(&path).await.expect("an answer");
    assert!(whole.is_ok() && whole.body.len() > 30_000_000, "{}", whole.body.len());
    let begun = cluster.door_of(other).begin(&path).await.expect("an answer");
    for node in (0..NODES).filter(|node| *node != other) {
        cluster.nodes[node].kill();
    }
    let cut = begun.rest().await;
    assert_eq!((cut.status, cut.whole), (200, false), "{} bytes", cut.body.len());
    assert!(whole.body.starts_with(&cut.body) && cut.body.len() < whole.body.len());
    // The next one is answered where it comes.
    let again = cluster.door_of(other).get(&path).await.expect("an answer");
    assert!(again.is_ok() && again.body == whole.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_hands_reads_over() {
    let cluster = Cluster::shared().await;
    let (dataset, told) = cluster.dataset("Secret", json!({"private": true})).await;
    cluster.push(dataset, &json!([{"a": 1}])).await;
    let path = format!("/api/{dataset}/secret/v1/");
    let key = format!("Bearer {}", told["private_key"].as_str().expect("a key"));
    // What a server sends to another one.
    let catalog = Catalog::open(&cluster.catalog).await.expect("the catalog");
    let name_of = async |node: usize| {
        let address = cluster.nodes[node].base_url();
        let nodes = catalog.nodes().await.expect("the nodes").into_iter().map(|node| node.registration);
        let found =
            nodes.into_iter().find(|other| Some(&*address) == other.http_address.as_deref().map(url).as_deref());
        found.expect("registered").id
    };
    let (first, second) = (name_of(0).await, name_of(1).await);
    let secret = NodeSecret::new(Secret::from_stored("64 random hexadecimal digits".to_owned()));
    let said = "operator versions/a.parquet";
    let claim = Claim { receiver: &first, purpose: Purpose::Read, method: "GET", target: &path, said };
    let token = |claim: Claim<'_>, time_s: u64| secret.token(&second, &claim, time_s).expect("a token");
    let headers = |token: &str| [("strata-handed-over", said.to_owned()), ("strata-node-token", token.to_owned())];
    let door = cluster.door_of(0).from(cluster.address(103));
    let get = async |token: &str, key: Option<&str>| {
        let headers = headers(token);
        let headers = headers.iter().map(|(name, value)| (*name, &**value));
        let headers: Vec<(&str, &str)> = headers.chain(key.map(|key| ("authorization", key))).collect();
        door.get_with(&path, &headers).await.expect("an answer")
    };
    let let_in = get(&token(claim, now_s()), None).await;
    assert_eq!((let_in.status, &*let_in.text()), (409, "another answer is meant"));
    let wrong = [
        String::new(),
        "x".to_owned(),
        format!("{} {second} {}", now_s(), "0".repeat(64)),
        // For another server, another path, another holder; too old, and too new.
        token(Claim { receiver: &second, ..claim }, now_s()),
        token(Claim { target: &format!("{path}?limit=1"), ..claim }, now_s()),
        token(Claim { said: "user:1 versions/a.parquet", ..claim }, now_s()),
        token(Claim { purpose: Purpose::Task, ..claim }, now_s()),
        token(claim, now_s() - 100),
        token(claim, now_s() + 100),
    ];
    for token in &wrong {
        // Neither let in, nor kept from being counted.
        let refused = get(token, None).await;
        assert_eq!(refused.status, 401, "{token}: {}", refused.text());
        let reply = get(token, Some(&key)).await;
        assert!(reply.is_ok() && reply.header("x-ratelimit-remaining").is_some(), "{token}: {}", reply.text());
    }
}

fn url(address: &str) -> String {
    format!("http://{address}")
}
