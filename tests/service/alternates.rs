//! Concurrent saves of alternates.

use serde_json::json;
use strata_service::{AlternateError, ManageError, alternate_etag};
use strata_testing::databases::on_both_databases;
use strata_testing::owned::Owned;
use strata_types::ids::DatasetId;
use strata_types::version::VersionNumber;

on_both_databases! {
    Owned:
    only_one_of_two_saves_with_one_etag_succeeds
}

async fn only_one_of_two_saves_with_one_etag_succeeds(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let id = DatasetId::new(id);
    let version = VersionNumber::new(1);
    let services = &owned.service.services;
    let user = &owned.user;
    let save = async |entities: &str, etag: Option<&str>| {
        services.datasets.save_alternate(user, id, version, owned.receive(entities).await.entities, etag).await
    };
    let saved = save("[]", None).await.expect("saved");
    let first = alternate_etag(&saved.version);
    assert!(first.len() > 10 && first.starts_with('"') && first.ends_with('"'), "{first}");
    // Saving equal entities again creates another alternate.
    let second = alternate_etag(&save("[]", Some(&first)).await.expect("saved").version);
    assert_ne!(first, second);
    let stale = save(r#"[{"a":1}]"#, Some(&first)).await;
    assert!(matches!(stale, Err(AlternateError::Manage(ManageError::Stale))), "{stale:?}");

    let (first, second) = tokio::join!(save(r#"[{"a":1}]"#, Some(&second)), save(r#"[{"a":2}]"#, Some(&second)));
    let winner = match (&first, &second) {
        (Ok(_), Err(AlternateError::Manage(ManageError::Stale))) => 1,
        (Err(AlternateError::Manage(ManageError::Stale)), Ok(_)) => 2,
        _ => panic!("{first:?} and {second:?}"),
    };
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/alt/")).await, format!("{{\"a\":{winner}}}\n"));

    let current = alternate_etag(&first.or(second).expect("one save succeeds").version);
    services.datasets.delete_alternate(user, id, version).await.expect("deleted");
    let stale = save("[]", Some(&current)).await;
    assert!(matches!(stale, Err(AlternateError::Manage(ManageError::Stale))), "{stale:?}");
    // The failed save left no file.
    let swept = services.maintenance.sweep(std::time::Duration::ZERO, &mut |_| {}).await.expect("swept");
    assert_eq!(owned.service.version_files().len(), 1, "{swept:?}");
}
