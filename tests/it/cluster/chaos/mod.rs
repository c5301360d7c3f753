//! Servers are killed and stopped, and the parts that they share with them, while clients go on. What the clients were
//! told is recorded, and the judge of histories accepts it.
//!
//! A run does each kind of attack once, in an order by chance. `STRATA_CHAOS_SECONDS` makes it go on with further
//! rounds for so long, and `STRATA_CHAOS_SEED` chooses another order, other pauses and other requests.

mod attacks;
mod clients;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use strata_testing::loopback_server::{LoopbackServer, ok};
use tokio::task::JoinSet;

use self::attacks::Attack;
use self::clients::{ALTERNATES, Run};
use super::dice::Dice;
use super::harness::{Cluster, until};
use super::history::{Event, Outcome, Place, Saw};

/// Clients that read.
const READERS: u64 = 4;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: attacks a service of three nodes"]
async fn what_clients_are_told_is_right_whatever_is_killed() {
    let (seed, seconds) = (number("STRATA_CHAOS_SEED", 1), number("STRATA_CHAOS_SECONDS", 0));
    println!("seed {seed}");
    let mut dice = Dice::of(seed);
    // So that Redis counts reads, whatever becomes of it, and none is refused.
    let mut cluster = Cluster::start(&[("STRATA_LIMITS__PUBLIC_PER_MINUTE", "1000000")]).await;
    let receiver = LoopbackServer::start(|_| ok("", b""));
    let (dataset, _) = cluster.dataset("Chaos", json!({})).await;
    let hook = json!({"dataset_id": dataset, "url": receiver.url("/hook")});
    assert!(cluster.door.post("/webhook/register", &hook).await.is_some_and(|reply| reply.is_ok()));
    let run = Arc::new(Run::new(dataset));
    for _ in 0..ALTERNATES {
        assert!(matches!(run.publish(&cluster.door, 100).await, Outcome::Done(_)));
    }

    let mut clients = JoinSet::new();
    for number in 0..READERS {
        // Some keep their connections, and some have a new one for each request.
        let door = if number.is_multiple_of(2) { cluster.door.clone() } else { cluster.door.keeping() };
        clients.spawn(run.clone().reads(door, Dice::of(seed + 1_000 + number)));
    }
    clients.spawn(run.clone().publishes(cluster.door.keeping(), Dice::of(seed + 2_000)));
    clients.spawn(run.clone().publishes(cluster.door.clone(), Dice::of(seed + 2_001)));
    clients.spawn(run.clone().pins(cluster.door.clone(), Dice::of(seed + 3_000)));
    clients.spawn(run.clone().alternates(cluster.door.keeping(), Dice::of(seed + 4_000)));

    let begun = Instant::now();
    let probes = attacks::Probes::new(&cluster).await;
    loop {
        let mut attacks = Attack::all();
        dice.shuffle(&mut attacks);
        for attack in attacks {
            let at = run.now();
            attack.perform(&mut cluster, &run, &probes, &mut dice).await;
            println!("{attack:?}: from {} to {} ms", at / 1_000, run.now() / 1_000);
            if let Some(ended) = clients.try_join_next() {
                panic!("a client has ended: {ended:?}");
            }
            tokio::time::sleep(Duration::from_millis(200 + dice.below(500))).await;
        }
        if begun.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
    run.end();
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client ends");
    }

    // All is calm: a call is done, and the webhook of its version comes.
    let mut last = Outcome::Unknown;
    until("a version is made", async || {
        last = run.publish(&cluster.door, 100).await;
        matches!(last, Outcome::Done(_))
    })
    .await;
    let Outcome::Done(last) = last else { unreachable!("it was waited for") };
    until("the last webhook comes", async || delivered(&receiver).contains(&last)).await;
    for version in delivered(&receiver) {
        run.add(run.now(), Event::Delivery { version });
    }
    judge(&cluster, &run, seed).await;
}

/// The versions that the receiver of the webhook heard of.
fn delivered(receiver: &LoopbackServer) -> Vec<u64> {
    let version = |body: &[u8]| serde_json::from_slice::<Value>(body).expect("JSON")["version"].as_u64();
    receiver.received().iter().map(|received| version(&received.body).expect("a version")).collect()
}

/// Completes the history with the versions that are there in the end, and has it judged.
async fn judge(cluster: &Cluster, run: &Run, seed: u64) {
    let view = cluster.door.view(&format!("/dataset/view?dataset_id={}", run.dataset)).await.expect("an answer").json();
    for record in view["dataset"]["versions"].as_array().expect("versions") {
        let number = record["version_number"].as_u64().expect("a number");
        let Saw::Whole { version, content, size } = run.look(&cluster.door, Place::Version(number), "jsonl").await
        else {
            panic!("version {number} is listed and cannot be read");
        };
        assert_eq!(version, number);
        run.list(number, content, size);
    }
    let history = run.history();
    let count = |wanted: fn(&Event) -> bool| history.calls.iter().filter(|call| wanted(&call.event)).count();
    let whole = count(|event| matches!(event, Event::Read { saw: Saw::Whole { .. }, .. }));
    let nothing = count(|event| matches!(event, Event::Read { saw: Saw::Nothing, .. }));
    let cut = count(|event| matches!(event, Event::Read { saw: Saw::Cut, .. }));
    let errors = count(|event| matches!(event, Event::Read { saw: Saw::Error(_), .. }));
    let made = count(|event| matches!(event, Event::Publish { outcome: Outcome::Done(_), .. }));
    let lost = count(|event| matches!(event, Event::Publish { outcome: Outcome::Unknown, .. }));
    let pins = count(|event| matches!(event, Event::Pin { outcome: Outcome::Done(()), .. }));
    let alternates = count(|event| matches!(event, Event::Alternate { outcome: Outcome::Done(()), .. }));
    let deliveries = count(|event| matches!(event, Event::Delivery { .. }));
    println!(
        "reads: {whole} whole, {nothing} of nothing, {cut} cut, {errors} errors; {} versions, {made} acknowledged, {lost} \
         calls without an answer; {pins} rollbacks; {alternates} changes of alternates; {deliveries} deliveries",
        history.listed.len()
    );
    let violations = history.violations();
    let told: Vec<String> = violations.iter().take(20).map(|violation| format!("{violation:?}")).collect();
    assert!(
        violations.is_empty(),
        "seed {seed}: {} violations, of which\n{}\ndisturbances: {:?}\n{}",
        violations.len(),
        told.join("\n"),
        history.disturbances,
        cluster.logs()
    );
    assert!(whole > 100 && made > 3 && pins > 3 && alternates > 3, "too little happened");
}
