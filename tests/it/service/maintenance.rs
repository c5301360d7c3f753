//! The care for files: sweep, check, backup.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use strata_config::StoreUrl;
use strata_testing::catalog::execute;
use strata_testing::databases::on_both_databases;
use strata_testing::files::damage_documents;
use strata_testing::machine::{Machine, Server, get};
use strata_testing::maintenance::{BackupKind, CheckReport, Depth, FindingKind};
use strata_testing::metrics::growth;
use strata_testing::owned::{Owned, call, parsed};
use strata_testing::{TestService, files};

const HOUR: Duration = Duration::from_secs(3_600);

on_both_databases! {
    Owned:
    a_sweep_takes_what_nothing_names_and_nothing_else
    a_missing_file_that_nothing_names_is_no_damage
    a_hold_stops_a_sweep
    a_check_names_the_version_whose_file_is_damaged
    a_backup_answers_the_same_bytes
    a_backup_is_of_one_moment_while_others_write
}

/// Sweeps and gives what was removed.
async fn sweep(owned: &Owned, older_than: Duration) -> BTreeSet<String> {
    let mut told = Vec::new();
    let maintenance = &owned.service.services.maintenance;
    let swept = maintenance.sweep(older_than, &mut |file| told.push(file.clone())).await.expect("swept");
    assert!(told.iter().all(|file| file.failure.is_none()), "{told:?}");
    assert_eq!(swept.removed, told.len() as u64);
    assert_eq!(swept.removed_bytes, told.iter().map(|file| file.size_bytes).sum::<u64>());
    told.into_iter().map(|file| format!("{} {}", file.reason.name(), file.path)).collect()
}

fn names(paths: Vec<PathBuf>) -> BTreeSet<String> {
    paths.iter().map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

/// A file that was last written two hours ago.
fn old_file(path: &Path) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, "left behind").expect("written");
    let file = fs::File::options().write(true).open(path).expect("opened");
    file.set_modified(SystemTime::now() - 2 * HOUR).expect("set");
}

async fn a_sweep_takes_what_nothing_names_and_nothing_else(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let saved = parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    let replaced = saved["version"]["alt_file_path"].as_str().expect("a path").to_owned();
    parsed(&owned.save(id, 1, r#"[{"alt":2}]"#).await);
    let store = owned.service.directory().join("store");
    for left in ["versions/left.parquet", "versions/reserved.parquet", "incoming/source.json", "other"] {
        old_file(&store.join(left));
    }
    fs::write(store.join("versions/young.parquet"), "being written?").expect("written");
    owned.service.catalog().await.reserve_file("versions/reserved.parquet", HOUR).await.expect("reserved");

    let counted = growth("strata_swept_files_total{outcome=\"removed\"}", async {
        assert_eq!(sweep(&owned, HOUR).await, BTreeSet::from(["unnamed versions/left.parquet".to_owned()]));
    });
    assert!(counted.await >= 1.0);
    let now = sweep(&owned, Duration::ZERO).await;
    let expected = [format!("unreferenced {replaced}"), "unnamed versions/young.parquet".to_owned()];
    assert_eq!(now, BTreeSet::from(expected));
    assert_eq!(sweep(&owned, Duration::ZERO).await, BTreeSet::new());
    assert_eq!(owned.service.version_files().len(), 3, "the version, its alternate, and what is reserved");
    assert!(store.join("incoming/source.json").exists() && store.join("other").exists());
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/alt/")).await, "{\"alt\":2}\n");
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/")).await, "{\"a\":1}\n");
}

async fn a_missing_file_that_nothing_names_is_no_damage(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let saved = parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    let path = saved["version"]["alt_file_path"].as_str().expect("a path").to_owned();
    let file = owned.service.directory().join("store").join(&path);
    let bytes = fs::read(&file).expect("read");
    fs::remove_file(&file).expect("removed");
    let found = check(&owned, Depth::Everything).await;
    assert!(
        matches!(&found[..], [(of, reason, versions)] if *of == path && reason == "it is missing" && versions.len() == 1),
        "{found:?}"
    );
    parsed(&owned.delete(id, 1).await);
    assert_eq!(check(&owned, Depth::Everything).await, [(path.clone(), "unneeded".to_owned(), Vec::new())]);
    let directory = tempfile::tempdir().expect("a directory");
    let backed_up = owned.service.backup(directory.path(), BackupKind::Copied).await;
    let backed_up = backed_up.expect("a backup without what nobody needs");
    assert_eq!((backed_up.files, backed_up.damaged), (1, 0));
    // One that is there and damaged is told as before: a disk may be failing.
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("written");
    let found = check(&owned, Depth::Everything).await;
    assert!(
        matches!(&found[..], [(_, reason, versions)] if reason.contains("bytes") && versions.is_empty()),
        "{found:?}"
    );
    fs::remove_file(&file).expect("removed");
    owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("swept");
    assert_eq!(check(&owned, Depth::Everything).await, []);
}

async fn a_hold_stops_a_sweep(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    parsed(&owned.save(id, 1, "[]").await);
    parsed(&owned.delete(id, 1).await);
    old_file(&owned.service.directory().join("store/versions/left.parquet"));
    let catalog = owned.service.catalog().await;
    let hold = catalog.hold_files(HOUR).await.expect("held");
    let swept = owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("swept");
    assert_eq!((swept.removed, swept.held), (0, true));
    catalog.release_hold(hold).await.expect("released");
    assert_eq!(sweep(&owned, Duration::ZERO).await.len(), 2);
}

/// Checks and gives the findings as (path, reason or kind, versions).
async fn check(owned: &Owned, depth: Depth) -> Vec<(String, String, Vec<String>)> {
    let CheckReport { damaged, unnamed, findings, .. } = owned.service.check(depth).await;
    let count = |kind| findings.iter().filter(|finding| finding.kind == kind).count();
    let no_damage = count(FindingKind::Unnamed) + count(FindingKind::Unneeded);
    assert_eq!(damaged as usize, findings.len() - no_damage);
    assert_eq!(unnamed as usize, count(FindingKind::Unnamed));
    assert!(!owned.service.catalog().await.files_held().await.expect("an answer"), "the check gave the files back");
    let told = findings.into_iter().map(|finding| {
        let reason = match finding.kind {
            FindingKind::Damaged | FindingKind::Catalog | FindingKind::Store => finding.reason,
            FindingKind::Dangling => "no record".to_owned(),
            FindingKind::Unneeded => "unneeded".to_owned(),
            FindingKind::Unnamed => "unnamed".to_owned(),
        };
        (finding.path, reason, finding.versions)
    });
    told.collect()
}

async fn a_check_names_the_version_whose_file_is_damaged(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#, r#"[{"a":2},{"b":"x"}]"#]).await;
    let saved = parsed(&owned.save(id, 2, r#"[{"alt":1}]"#).await);
    let alt = saved["version"]["alt_file_path"].as_str().expect("a path").to_owned();
    let clone = parsed(&owned.clone(id, "Clone").await)["dataset"]["dataset_id"].clone();
    assert_eq!(check(&owned, Depth::Everything).await, []);
    assert_eq!(check(&owned, Depth::Footers).await, []);

    let store = owned.service.directory().join("store");
    let whole = fs::read(store.join(&alt)).expect("the file");
    let named = vec![format!("dataset {id} \"Things\" v2 alt"), format!("dataset {clone} \"Clone\" v1 alt")];
    for (bytes, reason) in [
        (None, "missing"),
        (Some(whole[..whole.len() - 1].to_vec()), "bytes"),
        (Some(vec![0; whole.len()]), "cannot be read"),
    ] {
        match bytes {
            None => fs::remove_file(store.join(&alt)).expect("removed"),
            Some(bytes) => fs::write(store.join(&alt), bytes).expect("written"),
        }
        for depth in [Depth::Footers, Depth::Everything] {
            let found = check(&owned, depth).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((&found[0].0, &found[0].2), (&alt, &named));
            assert!(found[0].1.contains(reason), "{found:?}");
        }
    }
    fs::write(store.join(&alt), &whole).expect("written");
    old_file(&store.join("versions/left.parquet"));
    let unnamed = ("versions/left.parquet".to_owned(), "unnamed".to_owned(), Vec::new());
    assert_eq!(check(&owned, Depth::Everything).await, [unnamed]);
}

/// The answers of every read that these tests know, in one text.
async fn answers(service: &TestService, id: u64) -> String {
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

/// A service on a directory and nothing else.
async fn open(directory: &Path) -> TestService {
    TestService::open_data(directory).await.expect("it opens")
}

async fn a_backup_answers_the_same_bytes(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1.0}]"#, r#"[{"a":2,"b":{"c":[1]}},{"a":3}]"#]).await;
    parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    parsed(&owned.save(id, 1, r#"[{"alt":2}]"#).await);
    let before = answers(&owned.service, id).await;
    let directory = tempfile::tempdir().expect("a directory");
    for (name, how) in [("linked", BackupKind::Linked), ("copied", BackupKind::Copied)] {
        let to = directory.path().join(name).join("deep");
        let mut told = 0;
        let backed_up = owned.service.backup_with_progress(&to, how, |files| told = files).await.expect("a backup");
        assert_eq!((backed_up.files, told), (4, 4), "the replaced alternate is recorded still");
        // Both directories are temporary ones, on one file system.
        assert_eq!(backed_up.linked, if how == BackupKind::Copied { 0 } else { 4 });
        let top: BTreeSet<String> = fs::read_dir(&to)
            .expect("readable")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .collect();
        assert_eq!(top, BTreeSet::from(["catalog.sqlite".to_owned(), "store".to_owned()]));
        assert!(!owned.service.catalog().await.files_held().await.expect("an answer"));
        let again = owned.service.backup(&to, how).await.expect_err("the directory is not empty");
        assert!(format!("{again:?}").starts_with("NotEmpty("), "{again:?}");
    }
    // What comes after is not in it, nor does what goes take anything from it.
    parsed(&owned.save(id, 2, r#"[{"alt":3}]"#).await);
    parsed(&owned.delete(id, 1).await);
    sweep(&owned, Duration::ZERO).await;
    for name in ["linked", "copied"] {
        let restored = open(&directory.path().join(name).join("deep")).await;
        assert_eq!(answers(&restored, id).await, before, "{name}");
        let checked = restored.check(Depth::Everything).await;
        assert_eq!((checked.files, checked.damaged, checked.unnamed), (4, 0, 0));
        // It is a service like any other: it makes versions and sweeps.
        restored.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("swept");
        assert_eq!(answers(&restored, id).await, before, "{name}");
        let body = format!(r#"{{"dataset_id":{id},"entities":[]}}"#);
        let published = parsed(&call(&restored, owned.token(), "POST", "/dataset/refresh", &body).await);
        assert_eq!(published["version"]["version_number"], json!(3));
    }
    assert_eq!(owned.versions(id).await.len(), 2);
}

async fn a_backup_is_of_one_moment_while_others_write(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let over = std::sync::atomic::AtomicBool::new(false);
    let writes = async {
        let mut number = 0;
        while !over.load(std::sync::atomic::Ordering::SeqCst) {
            number += 1;
            owned.push(id, &format!(r#"[{{"n":{number}}}]"#)).await;
            parsed(&owned.save(id, 1, &format!(r#"[{{"n":{number}}}]"#)).await);
            owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("swept");
        }
    };
    let directory = tempfile::tempdir().expect("a directory");
    let backups = async {
        for number in 0..4 {
            let to = directory.path().join(number.to_string());
            owned.service.backup(&to, BackupKind::Linked).await.expect("a backup");
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
        // A version is made before the alternate that has its number, so they are at most one apart.
        let latest = view["dataset"]["versions"][0]["version_number"].as_u64().expect("a version") - 1;
        let alt = answers_alt(&restored, id).await;
        assert!(latest == alt || latest == alt + 1, "version {latest}, alternate {alt}");
    }
}

/// The number in the alternate of version 1; 0 where there is none yet.
async fn answers_alt(service: &TestService, id: u64) -> u64 {
    let text = answers(service, id).await;
    let answer = text.split(&format!("/api/{id}/things/v1/alt/?format=jsonl 200\n")).nth(1);
    let Some(line) = answer.and_then(|rest| rest.lines().next()) else { return 0 };
    serde_json::from_str::<Value>(line).expect("JSON")["n"].as_u64().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_check_finds_a_changed_byte_wherever_an_answer_could_use_it() {
    let owned = Owned::sqlite().await;
    let entities: Vec<String> = (0..40)
        .map(|number| format!(r#"{{"name":"Größe {number}","n":{number}.5,"t":["x","Y{number}"],"u":null}}"#))
        .collect();
    let id = owned.dataset("Things", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    let file = owned.service.version_files().remove(0);
    let whole = fs::read(&file).expect("the file");
    let answer = owned.lines(&format!("/api/{id}/things/v1/")).await;
    let mut found = 0;
    let steps: Vec<usize> = (0..whole.len()).step_by(whole.len() / 150 + 1).collect();
    for at in &steps {
        let mut bytes = whole.clone();
        bytes[*at] ^= 0x10;
        fs::write(&file, bytes).expect("written");
        match check(&owned, Depth::Everything).await.is_empty() {
            false => found += 1,
            true => {
                // Then no answer changes: a service that has read nothing yet gives the same.
                let fresh = open(owned.service.directory()).await;
                let given = answers(&fresh, id).await;
                assert!(given.contains(&answer), "byte {at} of {} changes an answer unnoticed", whole.len());
            }
        }
    }
    assert!(found * 2 > steps.len(), "{found} of {}", steps.len());
    fs::write(&file, whole).expect("written");
    assert_eq!(check(&owned, Depth::Everything).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_damaged_file_names_the_version_and_cannot_be_opened() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let file = owned.service.version_files().remove(0);
    damage_documents(&file);
    let directory = tempfile::tempdir().expect("a directory");
    let failed = owned.service.backup(directory.path(), BackupKind::Linked).await;
    let message = failed.expect_err("a damaged file").to_string();
    assert!(message.contains(&format!("dataset {id} \"Things\" v1")), "{message}");
    assert!(!owned.service.catalog().await.files_held().await.expect("an answer"));

    let opened = TestService::open_data(directory.path()).await.err().expect("it must not open");
    assert!(opened.contains("incomplete"), "{opened}");
    assert!(!directory.path().join("catalog.sqlite").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_given_up_half_way_is_marked_and_lets_the_files_go() {
    let owned = Owned::sqlite().await;
    owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#, r#"[{"a":2}]"#]).await;
    let directory = tempfile::tempdir().expect("a directory");
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
        _ = owned.service.backup_with_progress(directory.path(), BackupKind::Copied, tell) => {}
    }
    if !directory.path().join("catalog.sqlite").exists() {
        assert!(TestService::open_data(directory.path()).await.is_err());
    }
    // A hold that nobody ends expires by itself.
    execute(&owned.service, "UPDATE file_holds SET expires_at = expires_at - 3600000000").await;
    assert!(!owned.service.catalog().await.files_held().await.expect("an answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_is_backed_up_into_a_directory() {
    let memory = StoreUrl::try_from("memory://".to_owned()).expect("a URL");
    let owned = Owned::configured(|config| config.store.url = Some(memory), None).await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let directory = tempfile::tempdir().expect("a directory");
    let backed_up = owned.service.backup(directory.path(), BackupKind::Linked).await;
    let backed_up = backed_up.expect("a backup");
    assert_eq!((backed_up.files, backed_up.linked), (1, 0));
    let before = answers(&owned.service, id).await;
    assert_eq!(answers(&open(directory.path()).await, id).await, before);
}

#[track_caller]
fn printed(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A machine with a dataset of two versions.
fn machine() -> Machine {
    let machine = Machine::with_user();
    for text in ["{\"a\":1}\n", "{\"a\":2}\n{\"a\":3}\n"] {
        machine.write("small.jsonl", text);
        printed(&machine.run(&["import", "small.jsonl", "--name", "Things", "--owner", "ada@example.test"]), 0);
    }
    machine
}

#[test]
fn the_command_sweep_tells_what_it_removes_and_asks_before_it_endangers_reads() {
    let machine = machine();
    let store = machine.path("strata-data/store");
    old_file(&store.join("versions/left.parquet"));
    old_file(&store.join("versions/left too.parquet"));
    assert_eq!(printed(&machine.run(&["sweep"]), 0), "removed 0 files (0 bytes)\n");
    let refused = machine.run(&["sweep", "--older-than", "1h"]);
    assert_eq!(printed(&refused, 1), "");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("--offline") && message.contains("3942 s"), "{message}");
    assert_eq!(printed(&machine.run(&["sweep", "--older-than", "soon"]), 2), "");
    fs::remove_file(store.join("versions/left too.parquet")).expect("removed");
    let told = printed(&machine.run(&["sweep", "--older-than", "66m"]), 0);
    assert_eq!(told, "removed versions/left.parquet (11 bytes, unnamed)\nremoved 1 file (11 bytes)\n");
    fs::write(store.join("versions/young.parquet"), "x").expect("written");
    let told = lines(&printed(&machine.run(&["sweep", "--older-than", "0s", "--offline", "--json"]), 0));
    assert_eq!(
        told,
        [
            json!({"path": "versions/young.parquet", "size_bytes": 1, "reason": "unnamed"}),
            json!({"removed": 1, "removed_bytes": 1, "failed": 0, "held": false}),
        ]
    );
    assert_eq!(names(files(&store)).len(), 2);
}

#[test]
fn the_command_check_exits_with_1_and_names_what_is_damaged() {
    let machine = machine();
    let whole = printed(&machine.run(&["check"]), 0);
    assert!(whole.starts_with("checked 2 files (") && whole.ends_with("): 0 damaged, 0 unnamed\n"), "{whole}");
    let told = lines(&printed(&machine.run(&["check", "--quick", "--json"]), 0));
    assert_eq!((&told[0]["files"], &told[0]["damaged"]), (&json!(2), &json!(0)));

    let store = machine.path("strata-data/store");
    let file = files(&store)
        .into_iter()
        .max_by_key(|path| fs::metadata(path).expect("a file").modified().expect("a time"))
        .expect("a file");
    damage_documents(&file);
    old_file(&store.join("versions/left.parquet"));
    let text = printed(&machine.run(&["check"]), 1);
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(text.contains(&format!("damaged versions/{name}: ")), "{text}");
    assert!(text.contains("(dataset 1 \"Things\" v2)"), "{text}");
    assert!(text.contains("unnamed versions/left.parquet"), "{text}");
    let told = lines(&printed(&machine.run(&["check", "--json"]), 1));
    let versions = json!([{"dataset_id": 1, "name": "Things", "version": 2, "alt": false}]);
    assert_eq!((&told[0]["finding"], &told[0]["versions"]), (&json!("damaged"), &versions));
    // A footer alone does not tell.
    printed(&machine.run(&["check", "--quick"]), 0);
    fs::remove_file(&file).expect("removed");
    assert!(printed(&machine.run(&["check", "--quick"]), 1).contains("it is missing (dataset 1 \"Things\" v2)"));
}

#[test]
fn the_command_backup_runs_beside_a_server_and_another_serves_the_copy() {
    let machine = machine();
    let server = Server::start(&machine, &[], &[]);
    let told = lines(&printed(&machine.run(&["backup", "copy", "--json"]), 0));
    assert_eq!((&told[0]["files"], &told[0]["directory"]), (&json!(2), &json!("copy")));
    let refused = machine.run(&["backup", "copy"]);
    assert_eq!(printed(&refused, 1), "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("copy is not empty"));
    let (_, expected) = get(&format!("{}/api/1/things/v2/", server.base_url), None);
    let restored = Server::start(&machine, &["--data", "copy"], &[]);
    let (head, body) = get(&format!("{}/api/1/things/v2/", restored.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, expected);

    // One that was interrupted is not mistaken for a backup, nor for a new data directory.
    machine.write("INCOMPLETE-BACKUP", "");
    let refused = machine.run(&["serve", "--data", ".", "--listen", "127.0.0.1:0"]);
    assert_eq!(printed(&refused, 1), "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("an incomplete backup"));
}

#[test]
fn a_server_sweeps_by_itself() {
    let machine = machine();
    let left = machine.path("strata-data/store/versions/left.parquet");
    old_file(&left);
    let options = [("STRATA_SWEEP__INTERVAL_S", "1"), ("STRATA_SWEEP__OLDER_THAN_S", "4000")];
    let server = Server::start(&machine, &[], &options);
    while left.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (head, _) = get(&format!("{}/api/1/things/v2/", server.base_url), None);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(names(files(&machine.path("strata-data/store"))).len(), 2);
}

#[test]
fn a_sweep_that_could_take_what_a_read_uses_is_not_configured() {
    let machine = Machine::with_user();
    machine.write("strata.toml", "[sweep]\nolder_than_s = 3600\n");
    let refused = machine.run(&["check"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(printed(&refused, 1), "");
    assert!(message.contains("`sweep.older_than_s`: 3600 s is too short; it must be more than 3942 s"), "{message}");
}
