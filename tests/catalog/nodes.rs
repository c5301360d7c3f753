//! Servers that register, and the datasets that they hold.

use std::time::Duration;

use chrono::TimeDelta;
use strata_catalog::{LeaseHolder, NewNode};
use strata_testing::databases::on_both_databases;
use strata_types::dataset::RefreshTrigger;

use super::{Database, LEASE, clock, create, with_owner};

on_both_databases! {
    Database:
    a_name_belongs_to_whoever_registered_last
    a_lease_names_who_holds_it
    of_lost_servers_alone_refreshes_end
}

fn node(id: &str, process: &str) -> NewNode {
    NewNode {
        id: id.to_owned(),
        process: process.to_owned(),
        version: "0.1.0".to_owned(),
        roles: "http,refresh".to_owned(),
        internal_address: None,
    }
}

fn holder(node: Option<&str>, process: &str) -> LeaseHolder {
    LeaseHolder { node: node.map(str::to_owned), process: process.to_owned() }
}

async fn a_name_belongs_to_whoever_registered_last(database: Database) {
    let clock = clock();
    let catalog = database.open().await.with_clock(clock.clone());
    let (first, second) = (node("a", "p1"), NewNode { internal_address: Some("h:1".to_owned()), ..node("a", "p2") });
    assert!(!catalog.node_lives(&first).await.unwrap());
    catalog.register_node(&first).await.unwrap();
    clock.advance(Duration::from_secs(7));
    assert!(catalog.node_lives(&first).await.unwrap());
    let seen = catalog.node("a").await.unwrap().unwrap();
    assert_eq!((seen.registration, seen.seen_at - seen.started_at), (first.clone(), TimeDelta::seconds(7)));

    catalog.register_node(&second).await.unwrap();
    catalog.register_node(&node("b", "p3")).await.unwrap();
    assert!(!catalog.node_lives(&first).await.unwrap());
    // It is not the first one's to remove any more.
    catalog.remove_node(&first).await.unwrap();
    let listed: Vec<NewNode> = catalog.nodes().await.unwrap().into_iter().map(|node| node.registration).collect();
    assert_eq!(listed, [second.clone(), node("b", "p3")]);

    clock.advance(Duration::from_secs(60));
    assert!(catalog.node_lives(&second).await.unwrap());
    assert_eq!(catalog.forget_nodes(catalog.now() - TimeDelta::seconds(30)).await.unwrap(), 1);
    catalog.remove_node(&second).await.unwrap();
    assert_eq!(catalog.nodes().await.unwrap(), []);
}

async fn a_lease_names_who_holds_it(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let dataset = create(&catalog, owner, "Held").await.unwrap().id;
    assert_eq!(catalog.held_refresh(dataset).await.unwrap(), None);
    for holder in [holder(Some("a"), "p1"), holder(None, "p2")] {
        let catalog = catalog.clone().held_by(holder.clone());
        let lease = catalog.acquire_refresh(dataset, RefreshTrigger::Manual, "a", LEASE).await.unwrap();
        let held = catalog.held_refresh(dataset).await.unwrap().unwrap();
        assert_eq!((held.dataset, held.attempt, &held.holder), (dataset, lease.attempt, &Some(holder)));
        let later = catalog.now() + TimeDelta::hours(1);
        assert_eq!(catalog.held_refreshes(later).await.unwrap(), std::slice::from_ref(&held));
        assert_eq!(catalog.end_dead_refreshes(vec![held.clone()]).await.unwrap(), 1);
        // Once.
        assert_eq!(catalog.end_dead_refreshes(vec![held]).await.unwrap(), 0);
    }
}

async fn of_lost_servers_alone_refreshes_end(database: Database) {
    let clock = clock();
    let (catalog, owner) = with_owner(&database).await;
    let catalog = catalog.with_clock(clock.clone());
    for node in [node("lost", "p1"), node("again", "p3"), node("lives", "p4")] {
        catalog.register_node(&node).await.unwrap();
    }
    let mut datasets = Vec::new();
    for (number, holder) in [
        holder(Some("lost"), "p1"),
        // A command beside that server, and a process before another one of its name.
        holder(Some("lost"), "p2"),
        holder(Some("again"), "p0"),
        holder(Some("lives"), "p4"),
        holder(None, "p5"),
    ]
    .into_iter()
    .enumerate()
    {
        let dataset = create(&catalog, owner, &format!("D{number}")).await.unwrap().id;
        let catalog = catalog.clone().held_by(holder);
        catalog.acquire_refresh(dataset, RefreshTrigger::Manual, &format!("f{number}"), LEASE).await.unwrap();
        datasets.push(dataset);
    }
    clock.advance(Duration::from_secs(31));
    assert!(catalog.node_lives(&node("lives", "p4")).await.unwrap());
    let lost = catalog.refreshes_of_lost_nodes(catalog.now() - TimeDelta::seconds(30)).await.unwrap();
    assert_eq!(lost.iter().map(|held| held.dataset).collect::<Vec<_>>(), datasets[..1]);
}
