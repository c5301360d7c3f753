//! Attacks on nodes and shared services while clients send requests. The recorded requests and responses must be a
//! consistent history.
//!
//! A run contains each attack once, in a random order. With `STRATA_CHAOS_SECONDS`, further rounds follow for at least
//! that time. `STRATA_CHAOS_SEED` selects another order, other delays and other requests.

mod attacks;
mod clients;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use strata_testing::loopback_server::{LoopbackServer, ok};
use tokio::task::JoinSet;

use self::attacks::Attack;
use self::clients::{ALTERNATES, ChaosRun};
use super::harness::{TestCluster, until};
use super::history::{CallOutcome, HistoryEvent, ReadOutcome, TargetVersion};
use super::seeded_random::SeededRandom;

const READERS: u64 = 4;

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: attacks a service of three nodes"]
async fn clients_see_consistent_history_under_attacks() {
    let seed = env_number("STRATA_CHAOS_SEED", 1);
    let seconds = env_number("STRATA_CHAOS_SECONDS", 0);
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    // A limit that Redis must count, but that no client reaches.
    let mut cluster = TestCluster::start(&[("STRATA_LIMITS__PUBLIC_PER_MINUTE", "1000000")]).await;
    let receiver = LoopbackServer::start(|_| ok("", b""));
    let (dataset, _) = cluster.dataset("Chaos", json!({})).await;
    let hook = json!({"dataset_id": dataset, "url": receiver.url("/hook")});
    assert!(cluster.client.post("/webhook/register", &hook).await.is_some_and(|reply| reply.is_ok()));
    let run = Arc::new(ChaosRun::new(dataset));
    for _ in 0..ALTERNATES {
        assert!(matches!(run.publish(&cluster.client, 100).await, CallOutcome::Done(_)));
    }

    let mut clients = JoinSet::new();
    for number in 0..READERS {
        // Clients with persistent connections, and clients with a new connection for each request.
        let client = if number.is_multiple_of(2) { cluster.client.clone() } else { cluster.client.with_keep_alive() };
        clients.spawn(run.clone().read_repeatedly(client, SeededRandom::new(seed + 1_000 + number)));
    }
    clients.spawn(run.clone().publish_repeatedly(cluster.client.with_keep_alive(), SeededRandom::new(seed + 2_000)));
    clients.spawn(run.clone().publish_repeatedly(cluster.client.clone(), SeededRandom::new(seed + 2_001)));
    clients.spawn(run.clone().pin_repeatedly(cluster.client.clone(), SeededRandom::new(seed + 3_000)));
    clients.spawn(
        run.clone().edit_alternates_repeatedly(cluster.client.with_keep_alive(), SeededRandom::new(seed + 4_000)),
    );

    let start = Instant::now();
    let probes = attacks::Probes::new(&cluster).await;
    loop {
        let mut attacks = Attack::all();
        random.shuffle(&mut attacks);
        for attack in attacks {
            let attack_start = run.now();
            attack.perform(&mut cluster, &run, &probes, &mut random).await;
            println!("{attack:?}: from {} to {} ms", attack_start / 1_000, run.now() / 1_000);
            if let Some(ended) = clients.try_join_next() {
                panic!("a client has ended: {ended:?}");
            }
            tokio::time::sleep(Duration::from_millis(200 + random.below(500))).await;
        }
        if start.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
    run.end();
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client ends");
    }

    // After the attacks, a refresh succeeds, and its webhook arrives.
    let mut last = CallOutcome::Unknown;
    until("a version is created", async || {
        last = run.publish(&cluster.client, 100).await;
        matches!(last, CallOutcome::Done(_))
    })
    .await;
    let CallOutcome::Done(last) = last else { unreachable!("the loop waits for success") };
    until("the last webhook arrives", async || delivered(&receiver).contains(&last)).await;
    for version in delivered(&receiver) {
        run.add(run.now(), HistoryEvent::Delivery { version });
    }
    check_history(&cluster, &run, seed).await;
}

/// Returns the versions in the received webhooks.
fn delivered(receiver: &LoopbackServer) -> Vec<u64> {
    let version = |body: &[u8]| serde_json::from_slice::<Value>(body).expect("JSON")["version"].as_u64();
    receiver.received().iter().map(|received| version(&received.body).expect("a version")).collect()
}

/// Adds the existing versions to the history, and checks the history.
async fn check_history(cluster: &TestCluster, run: &ChaosRun, seed: u64) {
    let view =
        cluster.client.view(&format!("/dataset/view?dataset_id={}", run.dataset)).await.expect("a response").json();
    for record in view["dataset"]["versions"].as_array().expect("versions") {
        let number = record["version_number"].as_u64().expect("a number");
        let ReadOutcome::Whole { version, content, size } =
            run.read_unrecorded(&cluster.client, TargetVersion::Version(number), "jsonl").await
        else {
            panic!("version {number} is listed but unreadable");
        };
        assert_eq!(version, number);
        run.list(number, content, size);
    }
    let history = run.history();
    let count = |wanted: fn(&HistoryEvent) -> bool| history.calls.iter().filter(|call| wanted(&call.event)).count();
    let whole = count(|event| matches!(event, HistoryEvent::Read { saw: ReadOutcome::Whole { .. }, .. }));
    let missing = count(|event| matches!(event, HistoryEvent::Read { saw: ReadOutcome::Nothing, .. }));
    let truncated = count(|event| matches!(event, HistoryEvent::Read { saw: ReadOutcome::Truncated, .. }));
    let errors = count(|event| matches!(event, HistoryEvent::Read { saw: ReadOutcome::Error(_), .. }));
    let created = count(|event| matches!(event, HistoryEvent::Publish { outcome: CallOutcome::Done(_), .. }));
    let lost = count(|event| matches!(event, HistoryEvent::Publish { outcome: CallOutcome::Unknown, .. }));
    let pins = count(|event| matches!(event, HistoryEvent::Pin { outcome: CallOutcome::Done(()), .. }));
    let alternates = count(|event| matches!(event, HistoryEvent::Alternate { outcome: CallOutcome::Done(()), .. }));
    let deliveries = count(|event| matches!(event, HistoryEvent::Delivery { .. }));
    println!(
        "reads: {whole} whole, {missing} not found, {truncated} truncated, {errors} errors; {} versions, {created} acknowledged, {lost} \
         calls without a response; {pins} rollbacks; {alternates} changes of alternates; {deliveries} deliveries",
        history.listed.len()
    );
    let violations = history.violations();
    let shown: Vec<String> = violations.iter().take(20).map(|violation| format!("{violation:?}")).collect();
    assert!(
        violations.is_empty(),
        "seed {seed}: {} violations, of which\n{}\ndisturbances: {:?}\n{}",
        violations.len(),
        shown.join("\n"),
        history.disturbances,
        cluster.logs()
    );
    assert!(whole > 100 && created > 3 && pins > 3 && alternates > 3, "too little happened");
}
