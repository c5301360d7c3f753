//! Users, API tokens and sessions.

use std::time::Duration;

use chrono::TimeDelta;
use strata_catalog::{Catalog, CatalogError, Grant, SessionRecord};
use strata_testing::databases::on_both_databases;
use strata_types::ids::UserId;
use strata_types::scope::Scope;
use strata_types::user::Plan;

use super::{Database, clock, create, with_owner};

on_both_databases! {
    Database:
    a_user_is_found_by_id_and_changes
    a_new_password_ends_all_sessions
    a_changed_password_keeps_one_session
    a_user_without_datasets_is_removed
    the_sessions_that_were_used_last_stay
    a_token_expires_and_its_name_is_free
    a_token_opens_until_it_is_deleted
    of_many_tokens_at_once_no_more_than_allowed_are_added
    the_use_of_a_token_is_recorded_once_a_minute
    a_session_lives_until_it_expires
    a_deleted_session_does_not_come_back
    a_session_id_is_taken_once
    text_that_no_database_stores_is_refused_and_finds_nothing
}

async fn a_user_is_found_by_id_and_changes(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    catalog.set_plan(owner, Plan::Free).await.unwrap();
    catalog.set_password(owner, "new hash").await.unwrap();
    let user = catalog.user(owner).await.unwrap().unwrap();
    assert_eq!((user.plan, user.password_hash.as_str()), (Plan::Free, "new hash"));
    assert_eq!(catalog.user_by_email("OWNER@example.test").await.unwrap(), Some(user));

    for nobody in [UserId::new(0), UserId::new(owner.get() + 1), UserId::new(u64::MAX)] {
        assert_eq!(catalog.user(nobody).await.unwrap(), None);
        assert!(matches!(catalog.set_plan(nobody, Plan::Pro).await, Err(CatalogError::NotFound)));
        assert!(matches!(catalog.set_password(nobody, "h").await, Err(CatalogError::NotFound)));
    }
}

async fn a_new_password_ends_all_sessions(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", Plan::Free).await.unwrap();
    let session = |id: &str, user| SessionRecord {
        id_hash: id.to_owned(),
        user,
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + TimeDelta::days(1),
        last_used_at: catalog.now(),
    };
    for session in [session("1", Some(owner)), session("2", Some(owner)), session("3", Some(other)), session("4", None)]
    {
        assert!(catalog.create_session(&session, None, 100).await.unwrap());
    }
    catalog.add_token(owner, "ci", "hash", 1_000).await.unwrap();
    catalog.set_password(owner, "new hash").await.unwrap();
    for (id, there) in [("1", false), ("2", false), ("3", true), ("4", true)] {
        assert_eq!(catalog.session(id).await.unwrap().is_some(), there, "{id}");
    }
    assert!(catalog.user_by_token("hash").await.unwrap().is_some());
}

async fn a_changed_password_keeps_one_session(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let old = catalog.user(owner).await.unwrap().unwrap().password_hash;
    for id in ["1", "2", "3"] {
        assert!(catalog.create_session(&session(&catalog, id, owner), Some(&old), 100).await.unwrap());
    }
    catalog.change_password(owner, &old, "new", Some("2")).await.unwrap();
    for (id, there) in [("1", false), ("2", true), ("3", false)] {
        assert_eq!(catalog.session(id).await.unwrap().is_some(), there, "{id}");
    }
    // Who checked the old password before it was changed comes too late.
    let late = catalog.change_password(owner, &old, "other", None).await;
    assert!(matches!(late, Err(CatalogError::Conflict)), "{late:?}");
    let late = catalog.create_session(&session(&catalog, "4", owner), Some(&old), 100).await;
    assert!(matches!(late, Err(CatalogError::Conflict)), "{late:?}");
    assert_eq!(catalog.user(owner).await.unwrap().unwrap().password_hash, "new");
    catalog.change_password(owner, "new", "newer", None).await.unwrap();
    assert_eq!(catalog.sessions_of(owner).await.unwrap(), []);
}

async fn a_user_without_datasets_is_removed(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", Plan::Free).await.unwrap();
    for (id, user) in [("1", owner), ("2", other)] {
        catalog.create_session(&session(&catalog, id, user), None, 100).await.unwrap();
        catalog.add_token(user, "ci", id, 10).await.unwrap();
    }
    let dataset = create(&catalog, owner, "A").await.unwrap();
    let refused = catalog.remove_user(owner).await;
    assert!(matches!(refused, Err(CatalogError::HasDatasets { count: 1 })), "{refused:?}");
    assert!(catalog.session("1").await.unwrap().is_some() && catalog.user_by_token("1").await.unwrap().is_some());
    catalog.delete_dataset(dataset.id).await.unwrap();
    catalog.remove_user(owner).await.unwrap();
    assert_eq!(catalog.user(owner).await.unwrap(), None);
    assert!(catalog.session("1").await.unwrap().is_none() && catalog.user_by_token("1").await.unwrap().is_none());
    assert!(catalog.session("2").await.unwrap().is_some() && catalog.user_by_token("2").await.unwrap().is_some());
    assert!(matches!(catalog.remove_user(owner).await, Err(CatalogError::NotFound)));
    let late = create(&catalog, owner, "B").await;
    assert!(matches!(late, Err(CatalogError::NotFound)), "{late:?}");
    // The address is free, the id is not used again.
    let again = catalog.add_user("OWNER@example.test", "h", Plan::Free).await.unwrap();
    assert!(again > other, "{again:?}");
}

async fn the_sessions_that_were_used_last_stay(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let there = async || {
        let sessions = catalog.sessions_of(owner).await.unwrap();
        sessions.into_iter().map(|session| session.id_hash).collect::<Vec<_>>()
    };
    for id in ["1", "2", "3"] {
        assert!(catalog.create_session(&session(&catalog, id, owner), None, 3).await.unwrap());
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(there().await, ["3", "2", "1"]);
    catalog.extend_session("1", clock.now() + TimeDelta::days(1)).await.unwrap();
    assert!(catalog.create_session(&session(&catalog, "4", owner), None, 3).await.unwrap());
    assert_eq!(there().await, ["4", "3", "1"]);
    // One that comes last is never the one that ends.
    let early = SessionRecord { last_used_at: clock.now() - TimeDelta::days(1), ..session(&catalog, "5", owner) };
    assert!(catalog.create_session(&early, None, 1).await.unwrap());
    assert_eq!(there().await, ["5"]);
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(there().await, [] as [&str; 0]);
    assert!(!catalog.delete_session_of(owner, "5").await.unwrap(), "it has expired");
}

async fn a_token_expires_and_its_name_is_free(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let grant = Grant { scope: Scope::Read, expires_at: Some(clock.now() + TimeDelta::seconds(5)) };
    catalog.add_granted_token(owner, "ci", "hash 1", grant, 1).await.unwrap();
    assert_eq!(catalog.tokens(owner).await.unwrap()[0].grant, grant);
    clock.advance(Duration::from_micros(4_999_999));
    assert_eq!(catalog.user_by_token("hash 1").await.unwrap().unwrap().scope, Scope::Read);
    let full = catalog.add_token(owner, "other", "hash 2", 1).await;
    assert!(matches!(full, Err(CatalogError::TooManyTokens { limit: 1 })), "{full:?}");
    clock.advance(Duration::from_micros(1));
    assert_eq!(catalog.user_by_token("hash 1").await.unwrap(), None);
    assert_eq!(catalog.tokens(owner).await.unwrap().len(), 1, "it is shown until there is a new one");
    catalog.add_token(owner, "ci", "hash 2", 1).await.unwrap();
    assert_eq!(catalog.tokens(owner).await.unwrap()[0].grant, Grant::default());
    assert_eq!(catalog.user_by_token("hash 2").await.unwrap().unwrap().scope, Scope::Write);
}

/// A session that begins now.
fn session(catalog: &Catalog, id: &str, user: UserId) -> SessionRecord {
    SessionRecord {
        id_hash: id.to_owned(),
        user: Some(user),
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + TimeDelta::days(1),
        last_used_at: catalog.now(),
    }
}

async fn a_token_opens_until_it_is_deleted(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", Plan::Free).await.unwrap();
    catalog.add_token(owner, "laptop", "hash 1", 1_000).await.unwrap();
    catalog.add_token(owner, "ci", "hash 2", 1_000).await.unwrap();
    catalog.add_token(other, "ci", "hash 3", 1_000).await.unwrap();

    let names = async |user| -> Vec<String> {
        catalog.tokens(user).await.unwrap().into_iter().map(|token| token.name).collect()
    };
    assert_eq!(names(owner).await, ["ci", "laptop"]);
    assert_eq!(catalog.user_by_token("hash 3").await.unwrap().unwrap().user.id, other);
    assert_eq!(catalog.user_by_token("hash 4").await.unwrap(), None);

    catalog.delete_token(owner, "ci").await.unwrap();
    assert_eq!(catalog.user_by_token("hash 2").await.unwrap(), None);
    assert_eq!(catalog.user_by_token("hash 1").await.unwrap().unwrap().user.id, owner);
    assert_eq!((names(owner).await, names(other).await), (vec!["laptop".to_owned()], vec!["ci".to_owned()]));
    let again = catalog.delete_token(owner, "ci").await;
    assert!(matches!(again, Err(CatalogError::NotFound)), "{again:?}");
    // The name is free again.
    catalog.add_token(owner, "ci", "hash 5", 1_000).await.unwrap();
}

async fn of_many_tokens_at_once_no_more_than_allowed_are_added(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = database.open().await;
    let mut adding = tokio::task::JoinSet::new();
    for number in 0..24 {
        let catalog = if number % 2 == 0 { &catalog } else { &other }.clone();
        adding.spawn(async move { catalog.add_token(owner, &format!("{number}"), &format!("hash {number}"), 5).await });
    }
    let (added, refused): (Vec<_>, Vec<_>) = adding.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(added.len(), 5);
    let limited = |outcome: &Result<(), _>| matches!(outcome, Err(CatalogError::TooManyTokens { limit: 5 }));
    assert!(refused.iter().all(limited), "{refused:?}");
    assert_eq!(catalog.tokens(owner).await.unwrap().len(), 5);
}

async fn the_use_of_a_token_is_recorded_once_a_minute(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    catalog.add_token(owner, "ci", "hash", 1_000).await.unwrap();
    let last_used = async || catalog.tokens(owner).await.unwrap()[0].last_used_at;
    assert_eq!(last_used().await, None);

    let first = clock.now();
    catalog.user_by_token("hash").await.unwrap();
    assert_eq!(last_used().await, Some(first));
    clock.advance(Duration::from_secs(59));
    catalog.user_by_token("hash").await.unwrap();
    assert_eq!(last_used().await, Some(first));
    clock.advance(Duration::from_secs(1));
    catalog.user_by_token("hash").await.unwrap();
    assert_eq!(last_used().await, Some(clock.now()));
}

async fn a_session_lives_until_it_expires(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let mut session = SessionRecord {
        id_hash: "a".to_owned(),
        user: Some(owner),
        data: r#"{"x":"\u0000 'é"}"#.to_owned(),
        created_at: clock.now(),
        expires_at: clock.now() + TimeDelta::hours(1),
        last_used_at: clock.now(),
    };
    assert!(catalog.create_session(&session, None, 100).await.unwrap());
    assert_eq!(catalog.session("a").await.unwrap(), Some(session.clone()));

    clock.advance(Duration::from_secs(3_599));
    assert_eq!(catalog.delete_expired_sessions().await.unwrap(), 0);
    session.expires_at = clock.now() + TimeDelta::seconds(2);
    catalog.extend_session("a", session.expires_at).await.unwrap();
    session.last_used_at = clock.now();
    clock.advance(Duration::from_secs(1));
    assert_eq!(catalog.session("a").await.unwrap(), Some(session.clone()));
    clock.advance(Duration::from_secs(1));
    assert_eq!(catalog.session("a").await.unwrap(), None);
    // It is over, even before it is removed.
    let extended = catalog.extend_session("a", clock.now() + TimeDelta::hours(1)).await;
    assert!(matches!(extended, Err(CatalogError::NotFound)), "{extended:?}");
    assert_eq!(catalog.delete_expired_sessions().await.unwrap(), 1);
    assert_eq!(database.number("SELECT COUNT(*) FROM sessions").await, 0);
}

async fn a_deleted_session_does_not_come_back(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let session = SessionRecord {
        id_hash: "a".to_owned(),
        user: Some(owner),
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + TimeDelta::hours(1),
        last_used_at: catalog.now(),
    };
    assert!(catalog.create_session(&session, None, 100).await.unwrap());
    catalog.delete_session("a").await.unwrap();
    catalog.delete_session("a").await.unwrap();
    let late = catalog.extend_session("a", session.expires_at + TimeDelta::hours(1)).await;
    assert!(matches!(late, Err(CatalogError::NotFound)), "{late:?}");
    assert_eq!(catalog.session("a").await.unwrap(), None);
}

async fn a_session_id_is_taken_once(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let first = SessionRecord {
        id_hash: "a".to_owned(),
        user: Some(owner),
        data: "first".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + TimeDelta::hours(1),
        last_used_at: catalog.now(),
    };
    assert!(catalog.create_session(&first, None, 100).await.unwrap());
    assert!(
        !catalog
            .create_session(&SessionRecord { data: "second".to_owned(), ..first.clone() }, None, 100)
            .await
            .unwrap()
    );
    assert_eq!(catalog.session("a").await.unwrap(), Some(first.clone()));
    let nobody = SessionRecord { id_hash: "b".to_owned(), user: Some(UserId::new(owner.get() + 1)), ..first };
    let created = catalog.create_session(&nobody, None, 100).await;
    assert!(matches!(created, Err(CatalogError::NotFound)), "{created:?}");
}

async fn text_that_no_database_stores_is_refused_and_finds_nothing(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let nul = "a\0b";
    let added = catalog.add_user(nul, "h", Plan::Free).await;
    assert!(matches!(added, Err(CatalogError::Nul { field: "email" })), "{added:?}");
    let added = catalog.add_token(owner, nul, "h", 1_000).await;
    assert!(matches!(added, Err(CatalogError::Nul { field: "name" })), "{added:?}");
    assert_eq!(catalog.user_by_email(nul).await.unwrap(), None);
    assert!(matches!(catalog.delete_token(owner, nul).await, Err(CatalogError::NotFound)));
    assert_eq!(catalog.dataset_by_ping_token(nul).await.unwrap(), None);
}
