//! Name servers that do not answer.

use std::net::UdpSocket;
use std::time::Duration;

use serde_json::json;
use strata_config::NameServers;
use strata_testing::owned::{Owned, add_user};
use strata_types::user::Plan;

/// Long enough for anything that does not hang.
const NOT_HANGING: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_server_that_does_not_answer_keeps_nobody_else_waiting() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let owned = Owned::start(|config| {
        config.net.name_servers = NameServers::try_from(vec![address]).expect("an address");
        config.net.user_look_ups = 2;
        // Longer than the honest requests may take.
        config.net.look_up_timeout_s = 60;
        config.plans.free_active_datasets = 50;
    })
    .await;
    let id = owned.dataset("Honest", json!({}), &["[{\"a\":1}]"]).await;
    let (eve, _) = add_user(&owned.service, "eve@strata.test", Plan::Free).await;
    let services = owned.service.services.clone();
    // Registering looks names up; so does every refresh.
    let registering: Vec<_> = (0..20)
        .map(|number| {
            let (services, eve) = (services.clone(), eve.clone());
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
    // The name server is asked, and says nothing.
    silent.set_read_timeout(Some(NOT_HANGING)).expect("a timeout");
    silent.recv_from(&mut [0; 512]).expect("a question");

    let honest = async {
        let answer = owned.service.get(&format!("/api/{id}/honest/active/?pretty=false")).await;
        answer.is("[{\"a\":1}]");
        owned.push(id, "[{\"a\":2}]").await;
    };
    tokio::time::timeout(NOT_HANGING, honest).await.expect("honest requests do not wait");
    assert!(registering.iter().any(|one| !one.is_finished()), "the hostile ones still wait");
    registering.iter().for_each(|one| one.abort());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_does_not_resolve_in_time_is_an_unreachable_source() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let owned = Owned::start(|config| {
        config.net.name_servers = NameServers::try_from(vec![address]).expect("an address");
        config.net.look_up_timeout_s = 1;
    })
    .await;
    // It passes at registration, and fails when it is fetched.
    let id = owned.dataset("Silent", json!({"source": "http://silent.test/x.json"}), &[]).await;
    let answer = owned.call("POST", "/dataset/refresh", &json!({"dataset_id": id}).to_string()).await;
    answer.is_error(502);
    assert!(answer.text().contains("the name did not resolve within 1 s"), "{}", answer.text());
}
