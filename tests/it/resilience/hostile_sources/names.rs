//! Tests of name servers that do not respond.

use std::net::UdpSocket;
use std::time::Duration;

use serde_json::json;
use strata_config::NameServers;
use strata_testing::owned::{Owned, add_user};
use strata_types::user::UserPlan;

/// Longer than any request that does not hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_name_server_delays_no_other_user() {
    let silent_socket = UdpSocket::bind("127.0.0.1:0").expect("failed to bind a port");
    let address = silent_socket.local_addr().expect("failed to get the address").to_string();
    let owned = Owned::start(|config| {
        config.net.name_servers = NameServers::try_from(vec![address]).expect("failed to get the address");
        config.net.user_look_ups = 2;
        // Longer than the honest requests may take.
        config.net.look_up_timeout_s = 60;
        config.plans.free_active_datasets = 50;
    })
    .await;
    let id = owned.dataset("Honest", json!({}), &["[{\"a\":1}]"]).await;
    let (eve, _) = add_user(&owned.service, "eve@strata.test", UserPlan::Free).await;
    let services = owned.service.services.clone();
    // Both registering a dataset and refreshing it resolve the host name.
    let registering: Vec<_> = (0..20)
        .map(|number| {
            let services = services.clone();
            let eve = eve.clone();
            tokio::spawn(async move {
                let url = format!("http://silent{number}.test/x.json");
                let settings = strata_types::dataset::DatasetChange {
                    source: Some(strata_types::dataset::DatasetSource::Url(url)),
                    ..Default::default()
                };
                let name = format!("Silent {number}").parse().expect("a name");
                services.datasets.create(&eve, name, settings).await
            })
        })
        .collect();
    // The name server receives a query and does not respond.
    silent_socket.set_read_timeout(Some(HANG_TIMEOUT)).expect("failed to set the timeout");
    silent_socket.recv_from(&mut [0; 512]).expect("failed to receive a DNS query");

    let honest = async {
        let answer = owned.service.get(&format!("/api/{id}/honest/active/?pretty=false")).await;
        answer.is("[{\"a\":1}]");
        owned.push(id, "[{\"a\":2}]").await;
    };
    tokio::time::timeout(HANG_TIMEOUT, honest).await.expect("honest requests timed out");
    assert!(registering.iter().any(|one| !one.is_finished()), "no hostile request is still waiting");
    registering.iter().for_each(|one| one.abort());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_name_resolution_is_an_unreachable_source() {
    let silent_socket = UdpSocket::bind("127.0.0.1:0").expect("failed to bind a port");
    let address = silent_socket.local_addr().expect("failed to get the address").to_string();
    let owned = Owned::start(|config| {
        config.net.name_servers = NameServers::try_from(vec![address]).expect("failed to get the address");
        config.net.look_up_timeout_s = 1;
    })
    .await;
    // The URL is accepted at registration, and the fetch fails.
    let id = owned.dataset("Silent", json!({"source": "http://silent.test/x.json"}), &[]).await;
    let answer = owned.call("POST", "/dataset/refresh", &json!({"dataset_id": id}).to_string()).await;
    answer.is_error(502);
    assert!(answer.text().contains("the name did not resolve within 1 s"), "{}", answer.text());
}
