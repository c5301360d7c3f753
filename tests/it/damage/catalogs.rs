//! The same of catalogs: whatever is damaged in the database while no server runs, the service refuses to open it, fails,
//! or answers as before.

use std::fs;
use std::path::Path;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use strata::config::{Config, StoreUrl};
use strata::service::{App, BackupFiles};

use super::{Damage, Tally, ask, damages, entities, furnished, reads};
use crate::alternates::{Owned, parsed};
use crate::support::TestService;

/// A service's catalog as one file, and the files that it names.
async fn copy(owned: &Owned, directory: &Path) -> Vec<u8> {
    owned.service.app.backup(directory, BackupFiles::Copied, &mut |_| {}).await.expect("a backup");
    fs::read(directory.join("catalog.sqlite")).expect("a catalog")
}

/// A service on a catalog of these bytes and the store of another directory; `None` if it does not open.
async fn open(catalog: &[u8], store: &Path, directory: &Path) -> Option<TestService> {
    fs::write(directory.join("catalog.sqlite"), catalog).expect("written");
    let mut config = Config::default();
    config.data.directory = directory.to_owned();
    config.store.url = Some(StoreUrl::try_from(store.display().to_string()).expect("a URL"));
    config.query.threads = 2;
    (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
    let app = App::open(&config).await.ok()?;
    Some(TestService::on(app))
}

/// A catalog with more than fits into one page of any table.
async fn populous() -> (Owned, u64) {
    let (owned, id) = furnished().await;
    for number in 0..12 {
        let one = format!(r#"[{{"n":{number}}}]"#);
        let versions: Vec<&str> = vec![&one; 1 + number % 5];
        let other = owned.dataset(&format!("Dataset {number}"), json!({"private": number % 2 == 0}), &versions).await;
        if number % 3 == 0 {
            let body = json!({"dataset_id": other, "version_number": 1, "freeze": number % 2 == 0}).to_string();
            parsed(&owned.call("POST", "/dataset/rollback", &body).await);
        }
    }
    (owned, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_read_on_a_damaged_catalog_is_right_or_fails() {
    let (owned, id) = populous().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (home, away) = (directory.path().join("home"), directory.path().join("away"));
    let whole = copy(&owned, &home).await;
    // Another service's catalog, of which every record is whole.
    let other = super::owned().await;
    for name in ["Foreign", "Things", "Others"] {
        other.dataset(name, json!({}), &[&entities(5), "[]"]).await;
    }
    let foreign = copy(&other, &away).await;

    let store = home.join("store");
    // One of each kind: here the files are whole, and what decides is the catalog.
    let mut reads: Vec<String> = reads(id, "things").into_iter().step_by(6).collect();
    reads.extend([format!("/api/{id}/things/v2/?count=true"), format!("/api/{id}/things/v1/alt/?count=true")]);
    reads.push(format!("/api/{}/others/active/?count=true", id + 1));
    for number in 0..12 {
        let other = id + 2 + number;
        reads.push(format!("/api/{other}/dataset-{number}/active/?count=true"));
        reads.push(format!("/api/{other}/dataset-{number}/v2/?format=jsonl"));
    }
    reads.push(format!("/dataset/diff?dataset_id={id}&v1=1&v2=2&limit=3"));
    reads.push("/api/99/nothing/v1/".to_owned());
    let sound = directory.path().join("sound");
    fs::create_dir(&sound).expect("made");
    let service = open(&whole, &store, &sound).await.expect("it opens");
    let mut before = Vec::new();
    for uri in &reads {
        before.push(ask(&service, &owned.token, uri).await);
    }
    let mut tally = Tally::default();
    let mut count = 0;
    for seed in damages(60) {
        let mut random = StdRng::seed_from_u64(seed);
        let kind = Damage::draw(&mut random);
        if matches!(kind, Damage::Replaced) {
            // Another catalog as a whole is another service.
            continue;
        }
        let damaged = kind.apply(&whole, &foreign, &mut random);
        if damaged == whole {
            continue;
        }
        count += 1;
        let place = tempfile::tempdir_in(&directory).expect("a directory");
        let Some(service) = open(&damaged, &store, place.path()).await else {
            tally.failed += reads.len() as u64;
            tally.noticed(kind);
            continue;
        };
        let what = format!("seed {seed}, {kind:?}");
        let mut noticed = false;
        for (uri, before) in reads.iter().zip(&before) {
            noticed |= tally.judge(&what, uri, before, &ask(&service, &owned.token, uri).await);
        }
        if noticed {
            tally.noticed(kind);
        }
    }
    tally.is_right_or_failed(count, "catalogs");
}
