//! Sweeps, checks and backups.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use strata_config::StoreUrl;
use strata_service::BackupCopyMode;
use strata_testing::catalog::execute;
use strata_testing::databases::on_both_databases;
use strata_testing::files::damage_documents;
use strata_testing::machine::{Machine, Server, get};
use strata_testing::maintenance::{CheckReport, Depth, FindingKind};
use strata_testing::metrics::growth;
use strata_testing::owned::{Owned, call, parsed};
use strata_testing::{TestService, files};

const HOUR: Duration = Duration::from_secs(3_600);

on_both_databases! {
    Owned:
    sweep_removes_only_unreferenced_files
    missing_unreferenced_file_is_not_damage
    file_hold_stops_sweep
    check_reports_versions_of_damaged_file
    restored_backup_returns_same_responses
    backup_during_writes_is_consistent
}

/// Sweeps, and returns the reasons and paths of the removed files.
async fn sweep(owned: &Owned, older_than: Duration) -> BTreeSet<String> {
    let mut reported = Vec::new();
    let maintenance = &owned.service.services.maintenance;
    let swept = maintenance.sweep(older_than, &mut |file| reported.push(file.clone())).await.expect("failed to sweep");
    assert!(reported.iter().all(|file| file.failure.is_none()), "{reported:?}");
    assert_eq!(swept.removed, reported.len() as u64);
    assert_eq!(swept.removed_bytes, reported.iter().map(|file| file.size_bytes).sum::<u64>());
    reported.into_iter().map(|file| format!("{} {}", file.reason.name(), file.path)).collect()
}

fn file_names(paths: Vec<PathBuf>) -> BTreeSet<String> {
    paths.iter().map(|path| path.file_name().expect("missing name").to_string_lossy().into_owned()).collect()
}

/// Creates a file that was last modified two hours ago.
fn old_file(path: &Path) {
    fs::create_dir_all(path.parent().expect("missing parent")).expect("failed to create");
    fs::write(path, "left behind").expect("failed to write");
    let file = fs::File::options().write(true).open(path).expect("failed to open");
    file.set_modified(SystemTime::now() - 2 * HOUR).expect("failed to set option");
}

async fn sweep_removes_only_unreferenced_files(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let saved = parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    let replaced = saved["version"]["alt_file_path"].as_str().expect("missing path").to_owned();
    parsed(&owned.save(id, 1, r#"[{"alt":2}]"#).await);
    let store = owned.service.directory().join("store");
    for left in ["versions/left.parquet", "versions/reserved.parquet", "incoming/source.json", "other"] {
        old_file(&store.join(left));
    }
    fs::write(store.join("versions/young.parquet"), "being written?").expect("failed to write");
    owned
        .service
        .catalog()
        .await
        .reserve_file("versions/reserved.parquet", HOUR)
        .await
        .expect("failed to reserve file");

    let counted = growth("strata_swept_files_total{outcome=\"removed\"}", async {
        assert_eq!(sweep(&owned, HOUR).await, BTreeSet::from(["unnamed versions/left.parquet".to_owned()]));
    });
    assert!(counted.await >= 1.0);
    let now = sweep(&owned, Duration::ZERO).await;
    let expected = [format!("unreferenced {replaced}"), "unnamed versions/young.parquet".to_owned()];
    assert_eq!(now, BTreeSet::from(expected));
    assert_eq!(sweep(&owned, Duration::ZERO).await, BTreeSet::new());
    assert_eq!(owned.service.version_files().len(), 3, "expected the version, its alternate and the reserved file");
    assert!(store.join("incoming/source.json").exists() && store.join("other").exists());
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/alt/")).await, "{\"alt\":2}\n");
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/")).await, "{\"a\":1}\n");
}

async fn missing_unreferenced_file_is_not_damage(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let saved = parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    let path = saved["version"]["alt_file_path"].as_str().expect("missing path").to_owned();
    let file = owned.service.directory().join("store").join(&path);
    let bytes = fs::read(&file).expect("failed to read");
    fs::remove_file(&file).expect("failed to remove");
    let found = check(&owned, Depth::Everything).await;
    assert!(
        matches!(&found[..], [(of, reason, versions)] if *of == path && reason == "it is missing" && versions.len() == 1),
        "{found:?}"
    );
    parsed(&owned.delete(id, 1).await);
    assert_eq!(check(&owned, Depth::Everything).await, [(path.clone(), "unneeded".to_owned(), Vec::new())]);
    let directory = tempfile::tempdir().expect("failed to create directory");
    let backed_up = owned.service.backup(directory.path(), BackupCopyMode::AlwaysCopy).await;
    let backed_up = backed_up.expect("failed to back up without unneeded file");
    assert_eq!((backed_up.files, backed_up.damaged), (1, 0));
    // A damaged file is still reported, because a disk can be failing.
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("failed to write");
    let found = check(&owned, Depth::Everything).await;
    assert!(
        matches!(&found[..], [(_, reason, versions)] if reason.contains("bytes") && versions.is_empty()),
        "{found:?}"
    );
    fs::remove_file(&file).expect("failed to remove");
    owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("failed to sweep");
    assert_eq!(check(&owned, Depth::Everything).await, []);
}

async fn file_hold_stops_sweep(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    parsed(&owned.save(id, 1, "[]").await);
    parsed(&owned.delete(id, 1).await);
    old_file(&owned.service.directory().join("store/versions/left.parquet"));
    let catalog = owned.service.catalog().await;
    let hold = catalog.acquire_file_hold(HOUR).await.expect("failed to place hold");
    let swept = owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("failed to sweep");
    assert_eq!((swept.removed, swept.was_held), (0, true));
    catalog.release_hold(hold).await.expect("failed to release hold");
    assert_eq!(sweep(&owned, Duration::ZERO).await.len(), 2);
}

/// Checks, and returns the findings as (path, reason or kind, versions).
async fn check(owned: &Owned, depth: Depth) -> Vec<(String, String, Vec<String>)> {
    let CheckReport { damaged, unnamed, findings, .. } = owned.service.check(depth).await;
    let count = |kind| findings.iter().filter(|finding| finding.kind == kind).count();
    let no_damage = count(FindingKind::Unnamed) + count(FindingKind::Unneeded);
    assert_eq!(damaged as usize, findings.len() - no_damage);
    assert_eq!(unnamed as usize, count(FindingKind::Unnamed));
    assert!(
        !owned.service.catalog().await.has_file_holds().await.expect("failed to get response"),
        "the check did not release its hold"
    );
    let reported = findings.into_iter().map(|finding| {
        let reason = match finding.kind {
            FindingKind::Damaged | FindingKind::Catalog | FindingKind::Store => finding.reason,
            FindingKind::Dangling => "no record".to_owned(),
            FindingKind::Unneeded => "unneeded".to_owned(),
            FindingKind::Unnamed => "unnamed".to_owned(),
        };
        (finding.path, reason, finding.versions)
    });
    reported.collect()
}

async fn check_reports_versions_of_damaged_file(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#, r#"[{"a":2},{"b":"x"}]"#]).await;
    let saved = parsed(&owned.save(id, 2, r#"[{"alt":1}]"#).await);
    let alt = saved["version"]["alt_file_path"].as_str().expect("missing path").to_owned();
    let clone = parsed(&owned.clone(id, "Clone").await)["dataset"]["dataset_id"].clone();
    assert_eq!(check(&owned, Depth::Everything).await, []);
    assert_eq!(check(&owned, Depth::Footers).await, []);

    let store = owned.service.directory().join("store");
    let whole = fs::read(store.join(&alt)).expect("failed to read file");
    let named = vec![format!("dataset {id} \"Things\" v2 alt"), format!("dataset {clone} \"Clone\" v1 alt")];
    for (bytes, reason) in [
        (None, "missing"),
        (Some(whole[..whole.len() - 1].to_vec()), "bytes"),
        (Some(vec![0; whole.len()]), "cannot be read"),
    ] {
        match bytes {
            None => fs::remove_file(store.join(&alt)).expect("failed to remove"),
            Some(bytes) => fs::write(store.join(&alt), bytes).expect("failed to write"),
        }
        for depth in [Depth::Footers, Depth::Everything] {
            let found = check(&owned, depth).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((&found[0].0, &found[0].2), (&alt, &named));
            assert!(found[0].1.contains(reason), "{found:?}");
        }
    }
    fs::write(store.join(&alt), &whole).expect("failed to write");
    old_file(&store.join("versions/left.parquet"));
    let unnamed = ("versions/left.parquet".to_owned(), "unnamed".to_owned(), Vec::new());
    assert_eq!(check(&owned, Depth::Everything).await, [unnamed]);
}

/// Returns the responses of all reads of these tests in one text.
async fn all_responses(service: &TestService, id: u64) -> String {
    let mut all = String::new();
    for path in ["v1", "v2", "latest", "active", "v1/alt", "v2/alt", "v3"] {
        for query in ["", "?format=jsonl", "?format=csv", "?filter=a:2&count=true"] {
            let uri = format!("/api/{id}/things/{path}/{query}");
            let answer = service.get(&uri).await;
            assert!(answer.whole, "{uri}");
            all += &format!("{uri} {}\n{}\n", answer.status, String::from_utf8_lossy(&answer.body));
        }
    }
    all
}

/// Opens a service on a data directory.
async fn open(directory: &Path) -> TestService {
    TestService::open_data(directory).await.expect("failed to open service")
}

async fn restored_backup_returns_same_responses(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1.0}]"#, r#"[{"a":2,"b":{"c":[1]}},{"a":3}]"#]).await;
    parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    parsed(&owned.save(id, 1, r#"[{"alt":2}]"#).await);
    let before = all_responses(&owned.service, id).await;
    let directory = tempfile::tempdir().expect("failed to create directory");
    for (name, copy_mode) in [("linked", BackupCopyMode::LinkIfPossible), ("copied", BackupCopyMode::AlwaysCopy)] {
        let to = directory.path().join(name).join("deep");
        let mut reported = 0;
        let backed_up = owned.service.backup_with_progress(&to, copy_mode, |files| reported = files).await;
        let backed_up = backed_up.expect("failed to back up");
        assert_eq!((backed_up.files, reported), (4, 4), "the replaced alternate is still recorded");
        // Both directories are temporary directories on the same file system.
        assert_eq!(backed_up.linked, if copy_mode == BackupCopyMode::AlwaysCopy { 0 } else { 4 });
        let top: BTreeSet<String> = fs::read_dir(&to)
            .expect("failed to read directory")
            .map(|entry| entry.expect("failed to read entry").file_name().into_string().expect("invalid UTF-8"))
            .collect();
        assert_eq!(top, BTreeSet::from(["catalog.sqlite".to_owned(), "store".to_owned()]));
        assert!(!owned.service.catalog().await.has_file_holds().await.expect("failed to get response"));
        let again = owned.service.backup(&to, copy_mode).await.expect_err("backup into used directory succeeded");
        assert!(format!("{again:?}").starts_with("NotEmpty("), "{again:?}");
    }
    // Later changes are not in the backup, and later removals do not affect it.
    parsed(&owned.save(id, 2, r#"[{"alt":3}]"#).await);
    parsed(&owned.delete(id, 1).await);
    sweep(&owned, Duration::ZERO).await;
    for name in ["linked", "copied"] {
        let restored = open(&directory.path().join(name).join("deep")).await;
        assert_eq!(all_responses(&restored, id).await, before, "{name}");
        let checked = restored.check(Depth::Everything).await;
        assert_eq!((checked.files, checked.damaged, checked.unnamed), (4, 0, 0));
        // The restored service creates versions and sweeps.
        restored.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("failed to sweep");
        assert_eq!(all_responses(&restored, id).await, before, "{name}");
        let body = format!(r#"{{"dataset_id":{id},"entities":[]}}"#);
        let published = parsed(&call(&restored, owned.token(), "POST", "/dataset/refresh", &body).await);
        assert_eq!(published["version"]["version_number"], json!(3));
    }
    assert_eq!(owned.versions(id).await.len(), 2);
}

async fn backup_during_writes_is_consistent(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let over = std::sync::atomic::AtomicBool::new(false);
    let writes = async {
        let mut number = 0;
        while !over.load(std::sync::atomic::Ordering::SeqCst) {
            number += 1;
            owned.push(id, &format!(r#"[{{"n":{number}}}]"#)).await;
            parsed(&owned.save(id, 1, &format!(r#"[{{"n":{number}}}]"#)).await);
            owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("failed to sweep");
        }
    };
    let directory = tempfile::tempdir().expect("failed to create directory");
    let backups = async {
        for number in 0..4 {
            let to = directory.path().join(number.to_string());
            owned.service.backup(&to, BackupCopyMode::LinkIfPossible).await.expect("failed to back up");
        }
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    tokio::join!(writes, backups);
    for number in 0..4 {
        let restored = open(&directory.path().join(number.to_string())).await;
        let checked = restored.check(Depth::Everything).await;
        assert_eq!((checked.damaged, checked.unnamed), (0, 0), "{:?}", checked.findings);
        let path = format!("/dataset/view?dataset_id={id}");
        let view = parsed(&call(&restored, owned.token(), "GET", &path, "").await);
        // Each version is created before the alternate with its number, so their numbers differ by at most one.
        let latest = view["dataset"]["versions"][0]["version_number"].as_u64().expect("missing version") - 1;
        let alt = alternate_number(&restored, id).await;
        assert!(latest == alt || latest == alt + 1, "version {latest}, alternate {alt}");
    }
}

/// Returns the number in the alternate of version 1; 0 without an alternate.
async fn alternate_number(service: &TestService, id: u64) -> u64 {
    let text = all_responses(service, id).await;
    let answer = text.split(&format!("/api/{id}/things/v1/alt/?format=jsonl 200\n")).nth(1);
    let Some(line) = answer.and_then(|rest| rest.lines().next()) else { return 0 };
    serde_json::from_str::<Value>(line).expect("failed to parse JSON")["n"].as_u64().expect("failed to parse number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_check_finds_every_relevant_changed_byte() {
    let owned = Owned::sqlite().await;
    let entities: Vec<String> = (0..40)
        .map(|number| format!(r#"{{"name":"Größe {number}","n":{number}.5,"t":["x","Y{number}"],"u":null}}"#))
        .collect();
    let id = owned.dataset("Things", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    let file = owned.service.version_files().remove(0);
    let whole = fs::read(&file).expect("failed to read file");
    let answer = owned.lines(&format!("/api/{id}/things/v1/")).await;
    let mut found = 0;
    let steps: Vec<usize> = (0..whole.len()).step_by(whole.len() / 150 + 1).collect();
    for at in &steps {
        let mut bytes = whole.clone();
        bytes[*at] ^= 0x10;
        fs::write(&file, bytes).expect("failed to write");
        match check(&owned, Depth::Everything).await.is_empty() {
            false => found += 1,
            true => {
                // If the check finds no damage, a newly opened service returns the same responses.
                let fresh = open(owned.service.directory()).await;
                let fresh_answers = all_responses(&fresh, id).await;
                assert!(fresh_answers.contains(&answer), "byte {at} of {} changes a response undetected", whole.len());
            }
        }
    }
    assert!(found * 2 > steps.len(), "found {found} of {}", steps.len());
    fs::write(&file, whole).expect("failed to write");
    assert_eq!(check(&owned, Depth::Everything).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_of_damaged_file_fails_with_version() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let file = owned.service.version_files().remove(0);
    damage_documents(&file);
    let directory = tempfile::tempdir().expect("failed to create directory");
    let failed = owned.service.backup(directory.path(), BackupCopyMode::LinkIfPossible).await;
    let message = failed.expect_err("backup of damaged file succeeded").to_string();
    assert!(message.contains(&format!("dataset {id} \"Things\" v1")), "{message}");
    assert!(!owned.service.catalog().await.has_file_holds().await.expect("failed to get response"));

    let opened = TestService::open_data(directory.path()).await.err().expect("opened unexpectedly");
    assert!(opened.contains("incomplete"), "{opened}");
    assert!(!directory.path().join("catalog.sqlite").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_backup_is_marked_and_releases_hold() {
    let owned = Owned::sqlite().await;
    owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#, r#"[{"a":2}]"#]).await;
    let directory = tempfile::tempdir().expect("failed to create directory");
    let (one, first) = tokio::sync::oneshot::channel();
    let mut one = Some(one);
    let tell = |_| {
        if let Some(one) = one.take() {
            let _ = one.send(());
        }
    };
    tokio::select! {
        biased;
        _ = first => {}
        _ = owned.service.backup_with_progress(directory.path(), BackupCopyMode::AlwaysCopy, tell) => {}
    }
    if !directory.path().join("catalog.sqlite").exists() {
        assert!(TestService::open_data(directory.path()).await.is_err());
    }
    // The hold was not released, so it must expire.
    execute(&owned.service, "UPDATE file_holds SET expires_at = expires_at - 3600000000").await;
    assert!(!owned.service.catalog().await.has_file_holds().await.expect("failed to get response"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_store_is_backed_up_to_directory() {
    let memory = StoreUrl::try_from("memory://".to_owned()).expect("failed to parse URL");
    let owned = Owned::configured(|config| config.store.url = Some(memory), None).await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let directory = tempfile::tempdir().expect("failed to create directory");
    let backed_up = owned.service.backup(directory.path(), BackupCopyMode::LinkIfPossible).await;
    let backed_up = backed_up.expect("failed to back up");
    assert_eq!((backed_up.files, backed_up.linked), (1, 0));
    let before = all_responses(&owned.service, id).await;
    assert_eq!(all_responses(&open(directory.path()).await, id).await, before);
}

#[track_caller]
fn stdout(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("invalid UTF-8")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("failed to parse JSON")).collect()
}

/// Returns a machine with a dataset of two versions.
fn machine_with_versions() -> Machine {
    let machine = Machine::with_user();
    for text in ["{\"a\":1}\n", "{\"a\":2}\n{\"a\":3}\n"] {
        machine.write("small.jsonl", text);
        stdout(&machine.run(&["import", "small.jsonl", "--name", "Things", "--owner", "ada@example.test"]), 0);
    }
    machine
}

#[test]
fn sweep_command_requires_offline_for_short_age() {
    let machine = machine_with_versions();
    let store = machine.path("strata-data/store");
    old_file(&store.join("versions/left.parquet"));
    old_file(&store.join("versions/left too.parquet"));
    assert_eq!(stdout(&machine.run(&["sweep"]), 0), "removed 0 files (0 bytes)\n");
    let refused = machine.run(&["sweep", "--older-than", "1h"]);
    assert_eq!(stdout(&refused, 1), "");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("--offline") && message.contains("3942 s"), "{message}");
    assert_eq!(stdout(&machine.run(&["sweep", "--older-than", "soon"]), 2), "");
    fs::remove_file(store.join("versions/left too.parquet")).expect("failed to remove");
    let reported = stdout(&machine.run(&["sweep", "--older-than", "66m"]), 0);
    assert_eq!(reported, "removed versions/left.parquet (11 bytes, unnamed)\nremoved 1 file (11 bytes)\n");
    fs::write(store.join("versions/young.parquet"), "x").expect("failed to write");
    let reported = lines(&stdout(&machine.run(&["sweep", "--older-than", "0s", "--offline", "--json"]), 0));
    assert_eq!(
        reported,
        [
            json!({"path": "versions/young.parquet", "size_bytes": 1, "reason": "unnamed"}),
            json!({"removed": 1, "removed_bytes": 1, "failed": 0, "held": false}),
        ]
    );
    assert_eq!(file_names(files(&store)).len(), 2);
}

#[test]
fn check_command_reports_damage_with_exit_code_1() {
    let machine = machine_with_versions();
    let whole = stdout(&machine.run(&["check"]), 0);
    assert!(whole.starts_with("checked 2 files (") && whole.ends_with("): 0 damaged, 0 unnamed\n"), "{whole}");
    let reported = lines(&stdout(&machine.run(&["check", "--quick", "--json"]), 0));
    assert_eq!((&reported[0]["files"], &reported[0]["damaged"]), (&json!(2), &json!(0)));

    let store = machine.path("strata-data/store");
    let file = files(&store)
        .into_iter()
        .max_by_key(|path| fs::metadata(path).expect("missing file").modified().expect("missing time"))
        .expect("missing file");
    damage_documents(&file);
    old_file(&store.join("versions/left.parquet"));
    let text = stdout(&machine.run(&["check"]), 1);
    let name = file.file_name().expect("missing name").to_string_lossy().into_owned();
    assert!(text.contains(&format!("damaged versions/{name}: ")), "{text}");
    assert!(text.contains("(dataset 1 \"Things\" v2)"), "{text}");
    assert!(text.contains("unnamed versions/left.parquet"), "{text}");
    let reported = lines(&stdout(&machine.run(&["check", "--json"]), 1));
    let versions = json!([{"dataset_id": 1, "name": "Things", "version": 2, "alt": false}]);
    assert_eq!((&reported[0]["finding"], &reported[0]["versions"]), (&json!("damaged"), &versions));
    // Checking only the footer does not find the damage.
    stdout(&machine.run(&["check", "--quick"]), 0);
    fs::remove_file(&file).expect("failed to remove");
    assert!(stdout(&machine.run(&["check", "--quick"]), 1).contains("it is missing (dataset 1 \"Things\" v2)"));
}

#[test]
fn backup_command_works_during_running_server() {
    let machine = machine_with_versions();
    let server = Server::start(&machine, &[], &[]);
    let reported = lines(&stdout(&machine.run(&["backup", "copy", "--json"]), 0));
    assert_eq!((&reported[0]["files"], &reported[0]["directory"]), (&json!(2), &json!("copy")));
    let refused = machine.run(&["backup", "copy"]);
    assert_eq!(stdout(&refused, 1), "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("copy is not empty"));
    let (_, expected) = get(&format!("{}/api/1/things/v2/", server.base_url), None);
    let restored = Server::start(&machine, &["--data", "copy"], &[]);
    let (head, body) = get(&format!("{}/api/1/things/v2/", restored.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, expected);

    // An interrupted backup cannot be opened as a backup or as a new data directory.
    machine.write("INCOMPLETE-BACKUP", "");
    let refused = machine.run(&["serve", "--data", ".", "--listen", "127.0.0.1:0"]);
    assert_eq!(stdout(&refused, 1), "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("an incomplete backup"));
}

#[test]
fn server_sweeps_periodically() {
    let machine = machine_with_versions();
    let left = machine.path("strata-data/store/versions/left.parquet");
    old_file(&left);
    let options = [("STRATA_SWEEP__INTERVAL_S", "1"), ("STRATA_SWEEP__OLDER_THAN_S", "4000")];
    let server = Server::start(&machine, &[], &options);
    while left.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (head, _) = get(&format!("{}/api/1/things/v2/", server.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(file_names(files(&machine.path("strata-data/store"))).len(), 2);
}

#[test]
fn sweep_age_below_max_read_time_is_rejected() {
    let machine = Machine::with_user();
    machine.write("strata.toml", "[sweep]\nolder_than_s = 3600\n");
    let refused = machine.run(&["check"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(stdout(&refused, 1), "");
    assert!(message.contains("`sweep.older_than_s`: 3600 s is too short; it must be more than 3942 s"), "{message}");
}
