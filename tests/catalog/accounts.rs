//! Users, API tokens and sessions.

use std::time::Duration;

use chrono::TimeDelta;
use strata_catalog::{Catalog, CatalogError, StoredSession, TokenGrant};
use strata_testing::databases::on_both_databases;
use strata_types::ids::UserId;
use strata_types::token_scope::TokenScope;
use strata_types::user::UserPlan;

use super::{Database, clock, create, with_owner};

on_both_databases! {
    Database:
    user_change_is_found_by_id
    set_password_deletes_all_sessions
    change_password_keeps_current_session
    remove_user_requires_no_datasets
    create_session_keeps_recently_used_sessions
    expired_token_frees_its_name
    token_is_valid_until_deletion
    concurrent_tokens_respect_limit
    token_use_is_recorded_once_a_minute
    session_is_valid_until_expiry
    deleted_session_is_not_restored
    session_id_duplicate_is_rejected
    nul_character_is_rejected_and_finds_nothing
}

async fn user_change_is_found_by_id(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    catalog.set_plan(owner, UserPlan::Free).await.unwrap();
    catalog.set_password(owner, "new hash").await.unwrap();
    let user = catalog.user(owner).await.unwrap().unwrap();
    assert_eq!((user.plan, user.password_hash.as_str()), (UserPlan::Free, "new hash"));
    assert_eq!(catalog.user_by_email("OWNER@example.test").await.unwrap(), Some(user));

    for missing in [UserId::new(0), UserId::new(owner.get() + 1), UserId::new(u64::MAX)] {
        assert_eq!(catalog.user(missing).await.unwrap(), None);
        assert!(matches!(catalog.set_plan(missing, UserPlan::Pro).await, Err(CatalogError::NotFound)));
        assert!(matches!(catalog.set_password(missing, "h").await, Err(CatalogError::NotFound)));
    }
}

async fn set_password_deletes_all_sessions(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Free).await.unwrap();
    let session = |id: &str, user| StoredSession {
        id_hash: id.to_owned(),
        user,
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + TimeDelta::days(1),
        last_used_at: catalog.now(),
    };
    for session in [session("1", Some(owner)), session("2", Some(owner)), session("3", Some(other)), session("4", None)]
    {
        assert!(catalog.try_create_session(&session, None, 100).await.unwrap());
    }
    catalog.add_token(owner, "ci", "hash", 1_000).await.unwrap();
    catalog.set_password(owner, "new hash").await.unwrap();
    for (id, exists) in [("1", false), ("2", false), ("3", true), ("4", true)] {
        assert_eq!(catalog.session(id).await.unwrap().is_some(), exists, "{id}");
    }
    assert!(catalog.user_by_token("hash").await.unwrap().is_some());
}

async fn change_password_keeps_current_session(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let old = catalog.user(owner).await.unwrap().unwrap().password_hash;
    for id in ["1", "2", "3"] {
        assert!(catalog.try_create_session(&session(&catalog, id, owner), Some(&old), 100).await.unwrap());
    }
    catalog.change_password(owner, &old, "new", Some("2")).await.unwrap();
    for (id, exists) in [("1", false), ("2", true), ("3", false)] {
        assert_eq!(catalog.session(id).await.unwrap().is_some(), exists, "{id}");
    }
    // A caller that verified the old password before the change gets a conflict.
    let late = catalog.change_password(owner, &old, "other", None).await;
    assert!(matches!(late, Err(CatalogError::Conflict)), "{late:?}");
    let late = catalog.try_create_session(&session(&catalog, "4", owner), Some(&old), 100).await;
    assert!(matches!(late, Err(CatalogError::Conflict)), "{late:?}");
    assert_eq!(catalog.user(owner).await.unwrap().unwrap().password_hash, "new");
    catalog.change_password(owner, "new", "newer", None).await.unwrap();
    assert_eq!(catalog.sessions_by_user(owner).await.unwrap(), []);
}

async fn remove_user_requires_no_datasets(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Free).await.unwrap();
    for (id, user) in [("1", owner), ("2", other)] {
        catalog.try_create_session(&session(&catalog, id, user), None, 100).await.unwrap();
        catalog.add_token(user, "ci", id, 10).await.unwrap();
    }
    let dataset = create(&catalog, owner, "A").await.unwrap();
    let rejected = catalog.remove_user(owner).await;
    assert!(matches!(rejected, Err(CatalogError::HasDatasets { count: 1 })), "{rejected:?}");
    assert!(catalog.session("1").await.unwrap().is_some() && catalog.user_by_token("1").await.unwrap().is_some());
    catalog.delete_dataset(dataset.id).await.unwrap();
    catalog.remove_user(owner).await.unwrap();
    assert_eq!(catalog.user(owner).await.unwrap(), None);
    assert!(catalog.session("1").await.unwrap().is_none() && catalog.user_by_token("1").await.unwrap().is_none());
    assert!(catalog.session("2").await.unwrap().is_some() && catalog.user_by_token("2").await.unwrap().is_some());
    assert!(matches!(catalog.remove_user(owner).await, Err(CatalogError::NotFound)));
    let late = create(&catalog, owner, "B").await;
    assert!(matches!(late, Err(CatalogError::NotFound)), "{late:?}");
    // The email address is free, but the ID is not reused.
    let again = catalog.add_user("OWNER@example.test", "h", UserPlan::Free).await.unwrap();
    assert!(again > other, "{again:?}");
}

async fn create_session_keeps_recently_used_sessions(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let session_ids = async || {
        let sessions = catalog.sessions_by_user(owner).await.unwrap();
        sessions.into_iter().map(|session| session.id_hash).collect::<Vec<_>>()
    };
    for id in ["1", "2", "3"] {
        assert!(catalog.try_create_session(&session(&catalog, id, owner), None, 3).await.unwrap());
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(session_ids().await, ["3", "2", "1"]);
    catalog.extend_session("1", clock.now() + TimeDelta::days(1)).await.unwrap();
    assert!(catalog.try_create_session(&session(&catalog, "4", owner), None, 3).await.unwrap());
    assert_eq!(session_ids().await, ["4", "3", "1"]);
    // The new session is never the one that is deleted.
    let early = StoredSession { last_used_at: clock.now() - TimeDelta::days(1), ..session(&catalog, "5", owner) };
    assert!(catalog.try_create_session(&early, None, 1).await.unwrap());
    assert_eq!(session_ids().await, ["5"]);
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(session_ids().await, [] as [&str; 0]);
    assert!(!catalog.delete_session_by_user(owner, "5").await.unwrap(), "the session has expired");
}

async fn expired_token_frees_its_name(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let grant = TokenGrant { scope: TokenScope::Read, expires_at: Some(clock.now() + TimeDelta::seconds(5)) };
    catalog.add_token_with_grant(owner, "ci", "hash 1", grant, 1).await.unwrap();
    assert_eq!(catalog.tokens_by_user(owner).await.unwrap()[0].grant, grant);
    clock.advance(Duration::from_micros(4_999_999));
    assert_eq!(catalog.user_by_token("hash 1").await.unwrap().unwrap().scope, TokenScope::Read);
    let full = catalog.add_token(owner, "other", "hash 2", 1).await;
    assert!(matches!(full, Err(CatalogError::TooManyTokens { limit: 1 })), "{full:?}");
    clock.advance(Duration::from_micros(1));
    assert_eq!(catalog.user_by_token("hash 1").await.unwrap(), None);
    assert_eq!(
        catalog.tokens_by_user(owner).await.unwrap().len(),
        1,
        "an expired token is listed until it is replaced"
    );
    catalog.add_token(owner, "ci", "hash 2", 1).await.unwrap();
    assert_eq!(catalog.tokens_by_user(owner).await.unwrap()[0].grant, TokenGrant::default());
    assert_eq!(catalog.user_by_token("hash 2").await.unwrap().unwrap().scope, TokenScope::Write);
}

/// Returns a session that starts now and lasts a day.
fn session(catalog: &Catalog, id: &str, user: UserId) -> StoredSession {
    StoredSession {
        id_hash: id.to_owned(),
        user: Some(user),
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + TimeDelta::days(1),
        last_used_at: catalog.now(),
    }
}

async fn token_is_valid_until_deletion(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = catalog.add_user("b@example.test", "h", UserPlan::Free).await.unwrap();
    catalog.add_token(owner, "laptop", "hash 1", 1_000).await.unwrap();
    catalog.add_token(owner, "ci", "hash 2", 1_000).await.unwrap();
    catalog.add_token(other, "ci", "hash 3", 1_000).await.unwrap();

    let names = async |user| -> Vec<String> {
        catalog.tokens_by_user(user).await.unwrap().into_iter().map(|token| token.name).collect()
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
    catalog.add_token(owner, "ci", "hash 5", 1_000).await.unwrap();
}

async fn concurrent_tokens_respect_limit(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let other = database.open().await;
    let mut adding = tokio::task::JoinSet::new();
    for number in 0..24 {
        let catalog = if number % 2 == 0 { &catalog } else { &other }.clone();
        adding.spawn(async move { catalog.add_token(owner, &format!("{number}"), &format!("hash {number}"), 5).await });
    }
    let (added, rejected): (Vec<_>, Vec<_>) = adding.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(added.len(), 5);
    let is_limited = |outcome: &Result<(), _>| matches!(outcome, Err(CatalogError::TooManyTokens { limit: 5 }));
    assert!(rejected.iter().all(is_limited), "{rejected:?}");
    assert_eq!(catalog.tokens_by_user(owner).await.unwrap().len(), 5);
}

async fn token_use_is_recorded_once_a_minute(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    catalog.add_token(owner, "ci", "hash", 1_000).await.unwrap();
    let last_used = async || catalog.tokens_by_user(owner).await.unwrap()[0].last_used_at;
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

async fn session_is_valid_until_expiry(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let mut session = StoredSession {
        id_hash: "a".to_owned(),
        user: Some(owner),
        data: r#"{"x":"\u0000 'é"}"#.to_owned(),
        created_at: clock.now(),
        expires_at: clock.now() + TimeDelta::hours(1),
        last_used_at: clock.now(),
    };
    assert!(catalog.try_create_session(&session, None, 100).await.unwrap());
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
    // An expired session cannot be extended, even before it is deleted.
    let extended = catalog.extend_session("a", clock.now() + TimeDelta::hours(1)).await;
    assert!(matches!(extended, Err(CatalogError::NotFound)), "{extended:?}");
    assert_eq!(catalog.delete_expired_sessions().await.unwrap(), 1);
    assert_eq!(database.number("SELECT COUNT(*) FROM sessions").await, 0);
}

async fn deleted_session_is_not_restored(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let session = StoredSession {
        id_hash: "a".to_owned(),
        user: Some(owner),
        data: "{}".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + TimeDelta::hours(1),
        last_used_at: catalog.now(),
    };
    assert!(catalog.try_create_session(&session, None, 100).await.unwrap());
    catalog.delete_session("a").await.unwrap();
    catalog.delete_session("a").await.unwrap();
    let late = catalog.extend_session("a", session.expires_at + TimeDelta::hours(1)).await;
    assert!(matches!(late, Err(CatalogError::NotFound)), "{late:?}");
    assert_eq!(catalog.session("a").await.unwrap(), None);
}

async fn session_id_duplicate_is_rejected(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let first = StoredSession {
        id_hash: "a".to_owned(),
        user: Some(owner),
        data: "first".to_owned(),
        created_at: catalog.now(),
        expires_at: catalog.now() + TimeDelta::hours(1),
        last_used_at: catalog.now(),
    };
    assert!(catalog.try_create_session(&first, None, 100).await.unwrap());
    assert!(
        !catalog
            .try_create_session(&StoredSession { data: "second".to_owned(), ..first.clone() }, None, 100)
            .await
            .unwrap()
    );
    assert_eq!(catalog.session("a").await.unwrap(), Some(first.clone()));
    let orphan = StoredSession { id_hash: "b".to_owned(), user: Some(UserId::new(owner.get() + 1)), ..first };
    let created = catalog.try_create_session(&orphan, None, 100).await;
    assert!(matches!(created, Err(CatalogError::NotFound)), "{created:?}");
}

async fn nul_character_is_rejected_and_finds_nothing(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let nul = "a\0b";
    let added = catalog.add_user(nul, "h", UserPlan::Free).await;
    assert!(matches!(added, Err(CatalogError::NulCharacter { field: "email" })), "{added:?}");
    let added = catalog.add_token(owner, nul, "h", 1_000).await;
    assert!(matches!(added, Err(CatalogError::NulCharacter { field: "name" })), "{added:?}");
    assert_eq!(catalog.user_by_email(nul).await.unwrap(), None);
    assert!(matches!(catalog.delete_token(owner, nul).await, Err(CatalogError::NotFound)));
    assert_eq!(catalog.dataset_by_ping_token(nul).await.unwrap(), None);
}
