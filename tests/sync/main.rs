//! Local copies of a dataset follow its versions, and stay unchanged if a sync fails.

#![allow(clippy::large_futures, reason = "a test polls few futures")]

use std::fs;
use std::path::PathBuf;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use strata_sync::{SyncError, SyncOutcome, SyncRequest, sync};
use strata_testing::loopback_server::{LoopbackServer, Reply, with_status};
use strata_testing::owned::{Owned, parsed};
use strata_testing::service::ListeningService;
use strata_types::version::VersionNumber;
use tempfile::TempDir;

/// A service with a dataset, and a directory for the local copy.
struct SyncLab {
    owned: Owned,
    server: ListeningService,
    directory: TempDir,
    key: Option<String>,
}

impl SyncLab {
    async fn new(versions: &[&str]) -> SyncLab {
        let owned = Owned::start(|config| config.limits.public_per_minute = 0).await;
        owned.dataset("Some", json!({}), versions).await;
        let server = owned.service.listen().await;
        SyncLab { owned, server, directory: tempfile::tempdir().expect("failed to create directory"), key: None }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("some.jsonl")
    }

    fn version_file(&self) -> PathBuf {
        self.directory.path().join("some.jsonl.version")
    }

    async fn sync_version(&self, version: &str) -> Result<SyncOutcome, SyncError> {
        let url = format!("http://{}/files/1/some/{version}.jsonl", self.server.address);
        sync_url(&url, self.file(), self.key.clone()).await
    }

    async fn sync(&self) -> Result<SyncOutcome, SyncError> {
        self.sync_version("active").await
    }

    /// Checks that the files are a version, and that there are no other files.
    async fn check(&self, version: u64) {
        let lines = self.owned.lines(&format!("/api/1/some/v{version}")).await;
        assert_eq!(fs::read_to_string(self.file()).expect("missing file"), lines);
        assert_eq!(fs::read_to_string(self.version_file()).expect("missing file"), format!("v{version}\n"));
        assert_eq!(fs::read_dir(self.directory.path()).expect("missing directory").count(), 2);
    }
}

async fn sync_url(url: &str, file: PathBuf, key: Option<String>) -> Result<SyncOutcome, SyncError> {
    sync(&SyncRequest { url: url.parse().expect("invalid URL"), file, key }).await
}

fn downloaded(version: u64) -> SyncOutcome {
    SyncOutcome::Downloaded { version: VersionNumber::new(version) }
}

fn updated(since: u64, version: u64, edits: u64) -> SyncOutcome {
    SyncOutcome::Updated { since: VersionNumber::new(since), version: VersionNumber::new(version), edits }
}

#[tokio::test]
async fn copy_follows_versions() {
    let lab = SyncLab::new(&["[{\"a\":1},{\"b\":2}]"]).await;
    assert_eq!(lab.sync().await.expect("failed to sync"), downloaded(1));
    lab.check(1).await;
    assert_eq!(lab.sync().await.expect("failed to sync"), SyncOutcome::Unchanged { version: VersionNumber::new(1) });
    lab.owned.push(1, "[{\"a\":1},{\"c\":\"\\n]}\"},{\"b\":2},{\"d\":4}]").await;
    assert_eq!(lab.sync().await.expect("failed to sync"), updated(1, 2, 2));
    lab.check(2).await;
    // Equal versions have no edits, but different numbers.
    lab.owned.push(1, "[{\"a\":1},{\"c\":\"\\n]}\"},{\"b\":2},{\"d\":4}]").await;
    assert_eq!(lab.sync().await.expect("failed to sync"), updated(2, 3, 0));
    lab.check(3).await;
    lab.owned.push(1, "[]").await;
    assert_eq!(lab.sync().await.expect("failed to sync"), updated(3, 4, 4));
    lab.check(4).await;
    let rollback = json!({"dataset_id": 1, "version_number": 1}).to_string();
    parsed(&lab.owned.call("POST", "/dataset/rollback", &rollback).await);
    assert_eq!(lab.sync().await.expect("failed to sync"), updated(4, 1, 1));
    lab.check(1).await;
    assert_eq!(lab.sync_version("latest").await.expect("failed to sync"), updated(1, 4, 2));
    assert_eq!(lab.sync_version("v2").await.expect("failed to sync"), updated(4, 2, 1));
    lab.check(2).await;
}

#[tokio::test]
async fn changed_copy_is_downloaded_again() {
    let lab = SyncLab::new(&["[{\"a\":1},{\"b\":2},{\"c\":3}]", "[{\"a\":1},{\"b\":2},{\"c\":3},{\"d\":4}]"]).await;
    let text = "{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n";
    for (content, version) in [
        (Some("{\"a\":1}\n{\"b\":20}\n{\"c\":3}\n"), Some("v1\n")),
        (Some("{\"a\":1}\n{\"b\":2}\n"), Some("v1")),
        (Some("{\"a\":1}\n{\"b\":2}\n{\"c\":3}"), Some("v1")),
        (Some(""), Some("v1")),
        (Some(text), None),
        (Some(text), Some("")),
        (Some(text), Some("1\n")),
        (Some(text), Some("active")),
        (Some(text), Some("v9\n")),
        (None, Some("v1\n")),
        (None, None),
    ] {
        for (path, content) in [(lab.file(), content), (lab.version_file(), version)] {
            match content {
                Some(content) => fs::write(path, content).expect("failed to write"),
                None => drop(fs::remove_file(path)),
            }
        }
        assert_eq!(lab.sync().await.expect("failed to sync"), downloaded(2), "{content:?} {version:?}");
        lab.check(2).await;
    }
    fs::write(lab.file(), text).expect("failed to write");
    fs::write(lab.version_file(), "v1").expect("failed to write");
    assert_eq!(lab.sync().await.expect("failed to sync"), updated(1, 2, 1));
}

#[tokio::test]
async fn long_versions_are_synced() {
    let list = |range: std::ops::Range<usize>, text: &str| {
        let entities: Vec<String> = range.map(|id| format!(r#"{{"id":{id},"text":"{}"}}"#, text.repeat(9))).collect();
        format!("[{}]", entities.join(","))
    };
    let lab = SyncLab::new(&[&list(0..20_000, "some")]).await;
    assert_eq!(lab.sync().await.expect("failed to sync"), downloaded(1));
    lab.owned
        .push(1, &format!("{},{}", list(100..20_000, "some").trim_end_matches(']'), &list(0..9_000, "new")[1..]))
        .await;
    assert_eq!(lab.sync().await.expect("failed to sync"), updated(1, 2, 109));
    lab.check(2).await;
}

/// Edits a list in one of the ways in which sources change.
fn change_list(list: &mut Vec<String>, next_id: u64, random: &mut StdRng) {
    let entity = format!("{{\"id\":{next_id},\"text\":\"]}}\\\"{}\"}}", "\u{e4}".repeat(random.random_range(0..9)));
    let at = random.random_range(0..=list.len());
    match random.random_range(0..20) {
        0 => list.clear(),
        1 => *list = (0..30).map(|id| format!("{{\"id\":{id}}}")).collect(),
        2 => list.reverse(),
        3..6 => list.rotate_left(at),
        6..10 => list.insert(at, entity),
        10..12 => list.extend_from_within(..at.min(5)),
        _ if at == list.len() => list.push(entity),
        12..16 => list[at] = entity,
        _ => drop(list.remove(at)),
    }
}

#[tokio::test]
async fn copy_follows_100_random_versions() {
    let lab = SyncLab::new(&["[]"]).await;
    assert_eq!(lab.sync().await.expect("failed to sync"), downloaded(1));
    let random = &mut StdRng::seed_from_u64(5);
    let mut list = Vec::new();
    let mut since = 1;
    for latest in 2..=101 {
        for change in 0..random.random_range(1..5) {
            change_list(&mut list, latest * 10 + change, random);
        }
        lab.owned.push(1, &format!("[{}]", list.join(","))).await;
        // Sometimes an older version, and sometimes none.
        let version = match random.random_range(0..4) {
            0 => continue,
            1 => random.random_range(1..=latest),
            _ => latest,
        };
        // The copy was not downloaded again, so the edits led to the digest in the last line.
        match lab.sync_version(&format!("v{version}")).await.expect("failed to sync") {
            SyncOutcome::Downloaded { .. } => panic!("downloaded version {version} again after {since}"),
            SyncOutcome::Updated { since: old, version: new, .. } => {
                assert_eq!([old, new], [since, version].map(VersionNumber::new));
            }
            SyncOutcome::Unchanged { .. } => assert_eq!(since, version),
        }
        lab.check(version).await;
        since = version;
    }
}

#[tokio::test]
async fn private_dataset_needs_key() {
    let mut lab = SyncLab::new(&["[{\"a\":1}]"]).await;
    let private = json!({"dataset_id": 1, "private": true}).to_string();
    let record = parsed(&lab.owned.call("POST", "/dataset/update", &private).await);
    let error = lab.sync().await.expect_err("no key");
    assert!(matches!(error, SyncError::Status { status: 401, .. }), "{error}");
    lab.key = Some("wrong".to_owned());
    let error = lab.sync().await.expect_err("wrong key");
    assert!(matches!(error, SyncError::Status { status: 403, .. }), "{error}");
    lab.key = Some("a\nb".to_owned());
    assert!(matches!(lab.sync().await.expect_err("invalid key"), SyncError::InvalidKey));
    assert_eq!(fs::read_dir(lab.directory.path()).expect("missing directory").count(), 0);
    lab.key = Some(record["dataset"]["private_key"].as_str().expect("missing key").to_owned());
    assert_eq!(lab.sync().await.expect("failed to sync"), downloaded(1));
    lab.owned.push(1, "[]").await;
    assert_eq!(lab.sync().await.expect("failed to sync"), updated(1, 2, 1));
}

#[tokio::test]
async fn frozen_dataset_leaves_files_unchanged() {
    let lab = SyncLab::new(&["[{\"a\":1}]", "[]"]).await;
    assert_eq!(lab.sync_version("v1").await.expect("failed to sync"), downloaded(1));
    let freeze = json!({"dataset_id": 1, "version_number": 2, "freeze": true}).to_string();
    parsed(&lab.owned.call("POST", "/dataset/rollback", &freeze).await);
    let error = lab.sync().await.expect_err("frozen");
    assert!(matches!(error, SyncError::Status { status: 410, .. }), "{error}");
    assert_eq!(fs::read_to_string(lab.file()).expect("missing file"), "{\"a\":1}\n");
    assert_eq!(fs::read_to_string(lab.version_file()).expect("missing file"), "v1\n");
}

const SUMMARY: &str = "{\"version\":2,\"since\":1,\"entity_count\":1,\"content_sha256\":\"00\"}\n";

/// Syncs with a server that responds to requests for changes and for the file with these responses.
async fn check_failure(changes: Vec<u8>, file: Vec<u8>, expected: &str) {
    let server = LoopbackServer::start(move |request| {
        let is_file = request.target.starts_with("/files/");
        Reply::Bytes(if is_file { file.clone() } else { changes.clone() })
    });
    let directory = tempfile::tempdir().expect("failed to create directory");
    let path = directory.path().join("x");
    fs::write(&path, "{}\n").expect("failed to write");
    fs::write(directory.path().join("x.version"), "v1\n").expect("failed to write");
    let url = server.url("/files/1/some/active.jsonl");
    let error = sync_url(&url, path.clone(), None).await.expect_err("the server fails");
    assert!(error.to_string().contains(expected), "{error} does not contain {expected}");
    assert_eq!(fs::read_to_string(&path).expect("missing file"), "{}\n");
    assert_eq!(fs::read_to_string(directory.path().join("x.version")).expect("missing file"), "v1\n");
    assert_eq!(fs::read_dir(directory.path()).expect("missing directory").count(), 2, "a temporary file remains");
}

#[tokio::test]
async fn failed_responses_leave_files_unchanged() {
    let no_file = || with_status("404 Not Found", "", b"No such dataset.");
    let status = |status: &str, text: &str| with_status(status, "", text.as_bytes());
    let ok = |headers: &str, body: &[u8]| with_status("200 OK", headers, body);
    let redirect = with_status("302 Found", "Location: https://a.test/\r\n", b"");
    check_failure(status("500 Internal Server Error", "Failed."), no_file(), "the server returned 500: Failed.").await;
    check_failure(status("429 Too Many Requests", "Wait.\nx"), no_file(), "the server returned 429: Wait.").await;
    check_failure(status("404 Not Found", ""), no_file(), "the server returned 404: No such dataset.").await;
    check_failure(redirect, no_file(), "redirects to https://a.test/").await;
    check_failure(ok("", b"<html></html>\n"), no_file(), "line 1 is neither an edit nor the last line").await;
    // A complete response without the last line, and a response that ends before its length.
    check_failure(ok("", b"{\"position\":0,\"remove\":true}\n"), no_file(), "ended before its last line").await;
    let mut truncated = ok("", SUMMARY.as_bytes());
    truncated.truncate(truncated.len() - 9);
    check_failure(truncated, no_file(), "the response was interrupted").await;
    let entity = b"{}\n";
    check_failure(ok("", SUMMARY.as_bytes()), ok("", entity), "no header X-Dataset-Version").await;
    check_failure(ok("", SUMMARY.as_bytes()), ok("X-Dataset-Version: v2\r\n", entity), "no header Repr-Digest").await;
    let digest = "X-Dataset-Version: v2\r\nRepr-Digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:\r\n";
    check_failure(ok("", SUMMARY.as_bytes()), ok(digest, entity), "do not have the digest").await;
}

/// A proxy can end a response after any byte without an error of the connection.
#[tokio::test]
async fn response_truncated_anywhere_is_rejected() {
    let owned = Owned::start(|config| config.limits.public_per_minute = 0).await;
    owned.dataset("Some", json!({}), &["[{}]", "[{\"a\":[\"]}\"]},{\"b\":2}]"]).await;
    let changes = owned.service.get("/changes/1/some/v2?since=v1").await;
    assert_eq!(changes.text().lines().count(), 3, "{}", changes.text());
    for length in 0..changes.body.len() {
        let truncated = with_status("200 OK", "", &changes.body[..length]);
        check_failure(truncated, with_status("404 Not Found", "", b""), "the response ended before its last line")
            .await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_regular_files_are_replaced() {
    use std::os::unix::{fs::symlink, net::UnixListener};
    let lab = SyncLab::new(&["[]"]).await;
    let path = |name: &str| lab.directory.path().join(name);
    fs::write(path("target"), "{}\n").expect("failed to write");
    symlink(path("target"), path("link")).expect("failed to create link");
    symlink(path("missing"), path("new.version")).expect("failed to create link");
    let _socket = UnixListener::bind(path("socket")).expect("failed to bind");
    let url = format!("http://{}/files/1/some/active.jsonl", lab.server.address);
    for (name, rejected) in [("link", "link"), ("socket", "socket"), ("", ""), ("new", "new.version")] {
        let error = sync_url(&url, path(name), None).await.expect_err("not a regular file");
        let expected = format!("{} is not a regular file; valid: a new path", path(rejected).display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    assert_eq!(fs::read_to_string(path("target")).expect("missing file"), "{}\n");
    assert_eq!(fs::read_dir(lab.directory.path()).expect("missing directory").count(), 4);
}

#[tokio::test]
async fn unreachable_server_leaves_files_unchanged() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let url = "http://127.0.0.1:1/files/1/some/active.jsonl";
    let error = sync_url(url, directory.path().join("x"), None).await.expect_err("no server");
    assert_eq!(error.to_string(), "failed to connect to the server: 127.0.0.1:1 refused the connection");
    let missing = directory.path().join("missing/x");
    let lab = SyncLab::new(&["[]"]).await;
    let url = format!("http://{}/files/1/some/active.jsonl", lab.server.address);
    let error = sync_url(&url, missing, None).await.expect_err("no directory");
    assert!(error.to_string().starts_with("failed to create a temporary file in "), "{error}");
}
