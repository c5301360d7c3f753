//! Maintenance of delta versions: checks, scrubs, backups, restores, exports, and damaged bases.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use strata_config::Config;
use strata_service::{BackupCopyMode, OnDamage, restore};
use strata_testing::TestService;
use strata_testing::maintenance::Depth;
use strata_testing::owned::{Owned, parsed};
use strata_types::ids::DatasetId;
use strata_types::version::VersionNumber;

const ENTITIES: usize = 20_000;

fn entity(number: usize, round: usize) -> String {
    format!(r#"{{"id":{number},"round":{round},"kind":"k{}","words":"word{} of an entity"}}"#, number % 7, number % 977)
}

/// Creates a dataset with a complete version and two delta versions, and returns their entities.
async fn create_delta_versions(owned: &Owned) -> (u64, Vec<Vec<String>>) {
    let mut entities: Vec<String> = (0..ENTITIES).map(|number| entity(number, 0)).collect();
    let json = |entities: &[String]| format!("[{}]", entities.join(","));
    let id = owned.dataset("Things", json!({}), &[&json(&entities)]).await;
    let mut versions = vec![entities.clone()];
    for round in 1..=2 {
        for number in (round * 100..ENTITIES).step_by(1_000) {
            entities[number] = entity(number, round);
        }
        entities.swap_remove(round * 70);
        owned.push(id, &json(&entities)).await;
        versions.push(entities.clone());
    }
    (id, versions)
}

fn lines(entities: &[String]) -> String {
    entities.iter().map(|entity| format!("{entity}\n")).collect()
}

/// Returns the file paths of the versions in the data directory.
async fn paths(owned: &Owned, id: u64) -> Vec<PathBuf> {
    let catalog = owned.service.catalog().await;
    let mut paths = Vec::new();
    for number in 1..=3 {
        let status = catalog.version(DatasetId::new(id), VersionNumber::new(number)).await.expect("missing version");
        paths.push(owned.service.directory().join("store").join(status.version.file.path));
    }
    paths
}

async fn check_versions(service: &TestService, id: u64, versions: &[Vec<String>]) {
    for (number, entities) in (1..).zip(versions) {
        let answer = service.get(&format!("/api/{id}/things/v{number}/?format=jsonl")).await;
        assert!(answer.text() == lines(entities), "v{number}");
    }
    let found = service.check(Depth::Everything).await.findings;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_versions_are_backed_up_and_restored() {
    let owned = Owned::sqlite().await;
    let (id, versions) = create_delta_versions(&owned).await;
    let sizes = paths(&owned, id).await.into_iter().map(|path| fs::metadata(path).expect("missing file").len());
    let sizes: Vec<u64> = sizes.collect();
    assert!(sizes[1] < sizes[0] / 4 && sizes[2] < sizes[0] / 4, "{sizes:?}");
    check_versions(&owned.service, id, &versions).await;
    let scrubbed = owned.service.services.maintenance.scrub(0, &mut |damaged| panic!("{damaged:?}")).await;
    assert_eq!(scrubbed.expect("failed to scrub").files, 3);

    let directory = tempfile::tempdir().expect("failed to create directory");
    for (name, mode) in [("copy", BackupCopyMode::AlwaysCopy), ("links", BackupCopyMode::LinkIfPossible)] {
        let backup = directory.path().join(name);
        assert_eq!(owned.service.backup(&backup, mode).await.expect("failed to back up").files, 3);
        let mut config = Config::default();
        config.data.directory = directory.path().join(format!("{name}-restored"));
        let summary = restore(&config, &backup, OnDamage::Fail, &mut |_| {}).await.expect("failed to restore");
        assert_eq!((summary.files, summary.copied, summary.damaged), (3, 3, 0));
        for data in [backup, config.data.directory] {
            let service = TestService::open_data(&data).await.expect("failed to open service");
            check_versions(&service, id, &versions).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_version_is_exported_like_complete_one() {
    let owned = Owned::sqlite().await;
    let (id, versions) = create_delta_versions(&owned).await;
    let complete = owned.dataset("Complete", json!({}), &[&format!("[{}]", versions[2].join(","))]).await;
    for query in [
        "format=json",
        "format=csv",
        "format=tsv",
        "format=xml",
        "format=csv&sort=round:desc&limit=50",
        "format=jsonl&dedup=true&dedup_key=kind",
        "format=jsonl&filter=round:2&keep_field=id",
    ] {
        let delta = owned.service.get(&format!("/api/{id}/things/v3/?{query}")).await;
        let whole = owned.service.get(&format!("/api/{complete}/complete/v1/?{query}")).await;
        assert_eq!((delta.status, delta.whole), (200, true), "{query}: {}", delta.text());
        let name = |text: &str| text.replace("complete", "things").replace("Complete", "Things");
        assert!(name(delta.text()) == name(whole.text()), "{query}");
    }
    let parquet = owned.service.get(&format!("/api/{id}/things/v3/?format=parquet")).await;
    let whole = owned.service.get(&format!("/api/{complete}/complete/v1/?format=parquet")).await;
    assert_eq!(parquet.status, 200);
    assert!(parquet.body == whole.body, "the Parquet exports differ");
    let cloned = parsed(&owned.clone(id, "Clone").await)["dataset"]["dataset_id"].as_u64().expect("missing ID");
    assert!(owned.lines(&format!("/api/{cloned}/clone/v1/")).await == lines(&versions[2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_base_is_reported_for_all_versions() {
    // Nothing is cached that could be returned instead of the files.
    let owned = Owned::start(|config| {
        (config.cache.memory_bytes, config.cache.response_bytes) = (Some(0), 0);
    })
    .await;
    let (id, mut versions) = create_delta_versions(&owned).await;
    let paths = paths(&owned, id).await;
    let name = |path: &Path| path.file_name().expect("missing name").to_string_lossy().into_owned();
    let whole = fs::read(&paths[0]).expect("failed to read");
    let mut damaged = whole.clone();
    let end = damaged.len() / 2;
    damaged[100..end].fill(0);
    let references: Vec<String> = (1..=3).map(|number| format!("dataset {id} \"Things\" v{number}")).collect();
    for bytes in [None, Some(damaged), Some(whole[..end].to_vec())] {
        match &bytes {
            None => fs::remove_file(&paths[0]).expect("failed to remove"),
            Some(bytes) => fs::write(&paths[0], bytes).expect("failed to write"),
        }
        let found = owned.service.check(Depth::Everything).await.findings;
        let of_base = found.iter().find(|finding| finding.path.contains(&name(&paths[0]))).expect("missing finding");
        assert_eq!(of_base.versions, references, "{found:?}");
        let mut scrubbed = Vec::new();
        let maintenance = &owned.service.services.maintenance;
        maintenance.scrub(0, &mut |damaged| scrubbed.push(damaged.clone())).await.expect("failed to scrub");
        let of_base = scrubbed.iter().find(|damaged| paths[0].ends_with(&damaged.path)).expect("missing finding");
        let versions = of_base.versions.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(versions, references, "{scrubbed:?}");
        for number in 1..=3 {
            let answer = owned.service.get(&format!("/api/{id}/things/v{number}/?format=jsonl")).await;
            assert!(answer.status == 500 || !answer.whole, "v{number}: {}", answer.status);
        }
        let directory = tempfile::tempdir().expect("failed to create directory");
        let failed = owned.service.backup(&directory.path().join("copy"), BackupCopyMode::AlwaysCopy).await;
        let message = failed.expect_err("backed up a damaged file").to_string();
        assert!(references.iter().all(|reference| message.contains(reference)), "{message}");
        // A clone would spread the damage.
        assert_eq!(owned.clone(id, "Clone").await.status, 500);
    }

    // A refresh does not use the damaged base.
    let mut entities = versions[2].clone();
    entities[5] = entity(5, 3);
    owned.push(id, &format!("[{}]", entities.join(","))).await;
    assert!(owned.lines(&format!("/api/{id}/things/v4/")).await == lines(&entities));
    fs::write(&paths[0], &whole).expect("failed to restore file");
    versions.push(entities);
    check_versions(&owned.service, id, &versions).await;
}
