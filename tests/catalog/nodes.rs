//! The registration of nodes, and the leases that they hold.

use std::time::Duration;

use chrono::TimeDelta;
use strata_catalog::{LeaseHolder, NodeRegistration};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::RefreshTrigger;

use super::{Database, LEASE, clock, create, with_owner};

on_both_databases! {
    Database:
    node_name_belongs_to_last_registration
    lease_records_holder
    refreshes_of_offline_nodes_end
}

fn node(id: &str, process: &str) -> NodeRegistration {
    NodeRegistration {
        id: id.to_owned(),
        process_id: process.to_owned(),
        version: "0.1.0".to_owned(),
        roles: "http,refresh".to_owned(),
        internal_address: None,
    }
}

fn holder(node: Option<&str>, process: &str) -> LeaseHolder {
    LeaseHolder { node_id: node.map(str::to_owned), process_id: process.to_owned() }
}

async fn node_name_belongs_to_last_registration(database: Database) {
    let clock = clock();
    let catalog = database.open().await.with_clock(clock.clone());
    let first = node("a", "p1");
    let second = NodeRegistration { internal_address: Some("h:1".to_owned()), ..node("a", "p2") };
    assert!(!catalog.try_record_heartbeat(&first).await.unwrap());
    catalog.register_node(&first).await.unwrap();
    clock.advance(Duration::from_secs(7));
    assert!(catalog.try_record_heartbeat(&first).await.unwrap());
    let record = catalog.node("a").await.unwrap().unwrap();
    assert_eq!(
        (record.registration, record.last_heartbeat_at - record.started_at),
        (first.clone(), TimeDelta::seconds(7))
    );

    catalog.register_node(&second).await.unwrap();
    catalog.register_node(&node("b", "p3")).await.unwrap();
    assert!(!catalog.try_record_heartbeat(&first).await.unwrap());
    // A replaced process must not remove the node.
    catalog.remove_node(&first).await.unwrap();
    let listed: Vec<NodeRegistration> =
        catalog.nodes().await.unwrap().into_iter().map(|node| node.registration).collect();
    assert_eq!(listed, [second.clone(), node("b", "p3")]);

    clock.advance(Duration::from_secs(60));
    assert!(catalog.try_record_heartbeat(&second).await.unwrap());
    assert_eq!(catalog.remove_offline_nodes(catalog.now() - TimeDelta::seconds(30)).await.unwrap(), 1);
    catalog.remove_node(&second).await.unwrap();
    assert_eq!(catalog.nodes().await.unwrap(), []);
}

async fn lease_records_holder(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let dataset = create(&catalog, owner, "Held").await.unwrap().id;
    assert_eq!(catalog.refresh_lease(dataset).await.unwrap(), None);
    for holder in [holder(Some("a"), "p1"), holder(None, "p2")] {
        let catalog = catalog.clone().with_lease_holder(holder.clone());
        let lease = catalog.acquire_refresh(dataset, RefreshTrigger::Manual, "a", LEASE).await.unwrap();
        let record = catalog.refresh_lease(dataset).await.unwrap().unwrap();
        assert_eq!((record.dataset, record.attempt, &record.holder), (dataset, lease.attempt, &Some(holder)));
        let later = catalog.now() + TimeDelta::hours(1);
        assert_eq!(catalog.leases_started_before(later).await.unwrap(), std::slice::from_ref(&record));
        assert_eq!(catalog.end_orphaned_refreshes(vec![record.clone()]).await.unwrap(), 1);
        assert_eq!(catalog.end_orphaned_refreshes(vec![record]).await.unwrap(), 0, "the refresh has already ended");
    }
}

async fn refreshes_of_offline_nodes_end(database: Database) {
    let clock = clock();
    let (catalog, owner) = with_owner(&database).await;
    let catalog = catalog.with_clock(clock.clone());
    for node in [node("lost", "p1"), node("again", "p3"), node("lives", "p4")] {
        catalog.register_node(&node).await.unwrap();
    }
    let mut datasets = Vec::new();
    for (number, holder) in [
        holder(Some("lost"), "p1"),
        // A command on the same node, and an earlier process of another node.
        holder(Some("lost"), "p2"),
        holder(Some("again"), "p0"),
        holder(Some("lives"), "p4"),
        holder(None, "p5"),
    ]
    .into_iter()
    .enumerate()
    {
        let dataset = create(&catalog, owner, &format!("D{number}")).await.unwrap().id;
        let catalog = catalog.clone().with_lease_holder(holder);
        catalog.acquire_refresh(dataset, RefreshTrigger::Manual, &format!("f{number}"), LEASE).await.unwrap();
        datasets.push(dataset);
    }
    clock.advance(Duration::from_secs(31));
    assert!(catalog.try_record_heartbeat(&node("lives", "p4")).await.unwrap());
    let leases = catalog.leases_of_offline_nodes(catalog.now() - TimeDelta::seconds(30)).await.unwrap();
    assert_eq!(leases.iter().map(|lease| lease.dataset).collect::<Vec<_>>(), datasets[..1]);
}
