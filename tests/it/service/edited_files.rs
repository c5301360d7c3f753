//! The files of edited alternates in a service: the size of an edit, and the protection of the base file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use strata_service::BackupCopyMode;
use strata_testing::TestService;
use strata_testing::maintenance::Depth;
use strata_testing::owned::{Owned, parsed};

/// Enough entities that an edit does not write the list in full.
const ENTITIES: usize = 20_000;

fn entity(number: usize) -> String {
    let words = format!("word{} ", number % 977).repeat(105);
    format!(r#"{{"id":{number},"kind":"k{}","words":"{words}"}}"#, number % 7)
}

/// Creates a dataset with one version of [`ENTITIES`] entities, and returns the entities.
async fn create_large_version(owned: &Owned) -> (u64, Vec<String>) {
    let entities: Vec<String> = (0..ENTITIES).map(entity).collect();
    let id = owned.dataset("Things", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    (id, entities)
}

/// Returns the sizes of the version files.
fn file_sizes(service: &TestService) -> BTreeMap<PathBuf, u64> {
    let size = |path: PathBuf| (path.clone(), fs::metadata(path).expect("missing file").len());
    service.version_files().into_iter().map(size).collect()
}

/// Edits version 1 and returns the path of the alternate.
async fn edit(owned: &Owned, id: u64, edits: &str) -> PathBuf {
    let edited = parsed(&owned.edit(id, &owned.etag(id, 1).await, edits).await);
    owned.service.directory().join("store").join(edited["version"]["alt_file_path"].as_str().expect("missing path"))
}

/// Returns the findings of a check. Each begins with its kind.
async fn findings(service: &TestService) -> Vec<String> {
    let findings = service.check(Depth::Everything).await.findings;
    findings.iter().map(|finding| format!("{:?}: {finding:?}", finding.kind)).collect()
}

fn text(entities: &[String]) -> String {
    entities.iter().map(|entity| format!("{entity}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_of_large_version_writes_only_changes() {
    let owned = Owned::sqlite().await;
    let (id, mut entities) = create_large_version(&owned).await;
    let base = file_sizes(&owned.service);
    let whole = *base.values().next().expect("missing version file");
    assert!(whole > 1 << 19, "{whole}");

    let edits = r#"[{"position":3,"set":{"id":3,"kind":"k3","words":"changed"}},{"position":10000,"remove":true},
                    {"position":20000,"insert":[{"id":20000,"kind":"new","words":"appended","more":{"n":1}}]}]"#;
    let first = edit(&owned, id, edits).await;
    entities[3] = r#"{"id":3,"kind":"k3","words":"changed"}"#.to_owned();
    entities.remove(10_000);
    entities.push(r#"{"id":20000,"kind":"new","words":"appended","more":{"n":1}}"#.to_owned());
    let alt = format!("/api/{id}/things/v1/alt/");
    assert!(owned.lines(&alt).await == text(&entities), "the list does not match its edits");
    let own = file_sizes(&owned.service)[&first];
    assert!(own < whole / 20 && own < 64 << 10, "the edited file has {own} bytes, the base {whole}");

    // An edit of the edited alternate.
    let edits =
        r#"[{"position":0,"insert":[{"id":-1,"kind":"new","words":"before"}]},{"position":19999,"remove":true}]"#;
    let second = edit(&owned, id, edits).await;
    entities.pop();
    entities.insert(0, r#"{"id":-1,"kind":"new","words":"before"}"#.to_owned());
    assert!(owned.lines(&alt).await == text(&entities), "the list does not match both edits");
    assert!(file_sizes(&owned.service)[&second] < 64 << 10);
    for (query, body) in [
        ("count=true&keywords=changed", "1"),
        ("count=true&filter=kind:k3", "2857"),
        ("count=true&filter=more.n:1", "0"),
        ("count=true&filter_contains=words:word12%20word12%20", "21"),
        ("count=true&dedup=true&dedup_key=kind", "8"),
    ] {
        let answer = owned.service.get(&format!("{alt}?{query}")).await;
        let found: Value = serde_json::from_str(answer.text()).expect("failed to parse JSON");
        assert_eq!(found["count"].to_string(), body, "{query}");
    }
    let answer = owned.service.get(&format!("{alt}?format=jsonl&sort=id:asc&limit=2&keep_field=id")).await;
    answer.is("{\"id\":-1}\n{\"id\":0}\n");
    let answer = owned.service.get(&format!("{alt}?format=csv&limit=1")).await;
    assert!(answer.text().starts_with("id,kind,words\n"), "{:?}", answer.text().lines().next());
    let diff = owned.call("GET", &format!("/dataset/diff?dataset_id={id}&v1=1&v2=1&alt=true&limit=0"), "").await;
    assert_eq!(diff.status, 200, "{}", diff.text());
    let profile = parsed(&owned.call("GET", &format!("/dataset/profile?dataset_id={id}&version=1&alt=true"), "").await);
    let paths = profile["profile"]["paths"].as_array().expect("missing paths");
    let of = |path: &str| paths.iter().find(|record| record["path"] == path).expect("missing path");
    assert_eq!((&of("id")["entities"], &of("id")["number_min"]["value"]), (&json!(20_000), &json!(-1)));
    assert!(!paths.iter().any(|record| record["path"] == "more.n"), "the path was removed");
    let unknown = owned.service.get(&format!("{alt}?count=true&filter=more.n:1&strict=true")).await;
    unknown.is_error(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn base_of_edited_alternate_is_kept_and_backed_up() {
    let owned = Owned::sqlite().await;
    let (id, entities) = create_large_version(&owned).await;
    let base = owned.service.version_files().remove(0);
    let replaced = edit(&owned, id, r#"[{"position":0,"remove":true}]"#).await;
    let alternate = edit(&owned, id, r#"[{"position":0,"set":{"id":1,"kind":"k0","words":"mine"}}]"#).await;
    let mut expected = entities[1..].to_vec();
    expected[0] = r#"{"id":1,"kind":"k0","words":"mine"}"#.to_owned();
    let expected = text(&expected);

    // A clone shares both files and then diverges.
    let clone = parsed(&owned.clone(id, "Clone").await)["dataset"]["dataset_id"].as_u64().expect("missing ID");
    assert!(owned.lines(&format!("/api/{clone}/clone/v1/alt/")).await == expected);
    edit(&owned, clone, r#"[{"position":0,"remove":true}]"#).await;
    assert_eq!(findings(&owned.service).await, Vec::<String>::new());
    let scrubbed = owned.service.services.maintenance.scrub(0, &mut |damaged| panic!("{damaged:?}")).await;
    assert_eq!(scrubbed.expect("failed to scrub").files, 4);

    // The sweep removes only the replaced alternate.
    let mut swept = Vec::new();
    let maintenance = &owned.service.services.maintenance;
    maintenance.sweep(Duration::ZERO, &mut |file| swept.push(file.path.clone())).await.expect("failed to sweep");
    assert_eq!(swept.len(), 1);
    assert!(replaced.ends_with(&swept[0]), "{swept:?}");
    assert!(owned.lines(&format!("/api/{id}/things/v1/alt/")).await == expected);

    // A backup contains both files, and the restored service returns the same responses.
    let directory = tempfile::tempdir().expect("failed to create directory");
    let to = directory.path().join("copy");
    assert_eq!(owned.service.backup(&to, BackupCopyMode::AlwaysCopy).await.expect("failed to back up").files, 3);
    let restored = TestService::open_data(&to).await.expect("failed to open service");
    let lines = restored.get(&format!("/api/{id}/things/v1/alt/?format=jsonl")).await;
    assert!(lines.text() == expected);
    assert_eq!(findings(&restored).await, Vec::<String>::new());

    // Deleting an alternate does not affect the version.
    parsed(&owned.delete(id, 1).await);
    owned.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await.expect("failed to sweep");
    assert!(base.exists() && !alternate.exists());
    assert!(owned.lines(&format!("/api/{id}/things/v1/")).await == text(&entities));
    assert!(owned.lines(&format!("/api/{clone}/clone/v1/alt/")).await == text(&entities[2..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_base_is_reported_without_panic() {
    // Nothing is cached that could be returned instead of the files.
    let owned = Owned::start(|config| {
        (config.cache.memory_bytes, config.cache.response_bytes) = (Some(0), 0);
    })
    .await;
    let (id, _) = create_large_version(&owned).await;
    let base = owned.service.version_files().remove(0);
    // A replaced alternate, whose file waits for the sweep.
    let replaced = edit(&owned, id, r#"[{"position":7,"remove":true}]"#).await;
    let alternate = edit(&owned, id, r#"[{"position":5,"remove":true}]"#).await;
    let etag = owned.etag(id, 1).await;
    let alt = format!("/api/{id}/things/v1/alt/?format=jsonl&limit=3");
    assert_eq!(owned.service.get(&alt).await.status, 200);
    let whole = fs::read(&base).expect("failed to read");
    let mut damaged = whole.clone();
    let end = damaged.len() / 2;
    damaged[100..end].fill(0);
    let name = |path: &Path| path.file_name().expect("missing name").to_string_lossy().into_owned();
    let mut without_base = 0;
    for bytes in [None, Some(damaged), Some(whole[..whole.len() / 2].to_vec())] {
        match &bytes {
            None => fs::remove_file(&base).expect("failed to remove"),
            Some(bytes) => fs::write(&base, bytes).expect("failed to write"),
        }
        let answer = owned.service.get(&alt).await;
        assert!(answer.status == 500 || !answer.whole, "{}: {}", answer.status, answer.text());
        let found = findings(&owned.service).await;
        assert!(found.iter().any(|finding| finding.contains(&name(&base))), "{found:?}");
        // A file that cannot be opened without its base counts as damaged, unless no version needs it.
        let is_opened = !found.iter().any(|finding| finding.contains(&name(&alternate)));
        let of = |path: &Path, start: &str| {
            found.iter().filter(|finding| finding.contains(&name(path)) && finding.starts_with(start)).count()
        };
        let needed = of(&alternate, "Damaged");
        let unneeded = of(&replaced, "Unneeded");
        assert_eq!((needed, unneeded), if is_opened { (0, 0) } else { (1, 1) }, "{found:?}");
        assert_eq!(of(&replaced, ""), unneeded, "{found:?}");
        without_base += unneeded;
        let mut scrubbed = Vec::new();
        let maintenance = &owned.service.services.maintenance;
        maintenance.scrub(0, &mut |damaged| scrubbed.push(damaged.path.clone())).await.expect("failed to scrub");
        assert!(scrubbed.iter().any(|path| base.ends_with(path)), "{scrubbed:?}");
        assert!(!scrubbed.iter().any(|path| replaced.ends_with(path)), "{scrubbed:?}");
        let refused = owned.edit(id, &etag, r#"[{"position":1,"remove":true}]"#).await;
        assert!(refused.status >= 500, "{}: {}", refused.status, refused.text());
        fs::write(&base, &whole).expect("failed to restore file");
        assert_eq!(owned.service.get(&alt).await.status, 200, "reads work after the file is restored");
    }
    assert_eq!(without_base, 2, "cannot be opened if the base is missing or truncated");

    // An alternate that is saved as a whole needs no base.
    fs::remove_file(&base).expect("failed to remove");
    assert_eq!(owned.service.get(&alt).await.status, 500);
    parsed(&owned.save(id, 1, r#"[{"id":1}]"#).await);
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/alt/")).await, "{\"id\":1}\n");
    fs::write(&base, &whole).expect("failed to restore file");
    assert_eq!(findings(&owned.service).await, Vec::<String>::new());
}
