//! What former builds have left (`tests/former`): this one serves it as they did, goes on with it, and leaves the
//! tables such that they go on, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};
use strata::catalog::Catalog;
use tempfile::TempDir;

use crate::support::TestService;

/// A copy of what a build has left.
struct Former {
    directory: TempDir,
    expected: Value,
}

impl Former {
    fn all() -> Vec<Former> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/former");
        let entries = std::fs::read_dir(root).expect("the folder").map(|entry| entry.expect("an entry").path());
        let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
        folders.sort();
        assert!(!folders.is_empty());
        folders.iter().map(|folder| Former::copy(folder)).collect()
    }

    fn copy(folder: &Path) -> Former {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = directory.path().join("store");
        std::fs::create_dir_all(store.join("versions")).expect("made");
        let packed = std::fs::read(folder.join("catalog.sqlite.zst")).expect("a catalog");
        let catalog = zstd::decode_all(&*packed).expect("unpacked");
        std::fs::write(directory.path().join("catalog.sqlite"), catalog).expect("written");
        std::fs::copy(folder.join("strata.id"), store.join("strata.id")).expect("copied");
        for entry in std::fs::read_dir(folder.join("versions")).expect("version files") {
            let path = entry.expect("an entry").path();
            std::fs::copy(&path, store.join("versions").join(path.file_name().expect("a name"))).expect("copied");
        }
        let expected = std::fs::read(folder.join("expected.json")).expect("what is expected");
        Former { directory, expected: serde_json::from_slice(&expected).expect("JSON") }
    }

    async fn service(&self) -> TestService {
        let directory = self.directory.path().to_owned();
        TestService::configured(|config| config.data.directory = directory).await
    }

    fn text(&self, name: &str) -> &str {
        self.expected[name].as_str().expect(name)
    }

    /// These reads have the answers that the former build gave.
    async fn check_reads(&self, service: &TestService, are_meant: impl Fn(&str) -> bool) {
        let key = format!("Bearer {}", self.text("private_key"));
        let reads = self.expected["reads"].as_array().expect("reads");
        let reads = reads.iter().map(|read| (read, read["read"].as_str().expect("a URL")));
        for (read, uri) in reads.filter(|(_, uri)| are_meant(uri)) {
            let headers = if uri.starts_with("/api/2/") { vec![("authorization", &*key)] } else { Vec::new() };
            let answer = service.get_with(uri, &headers).await;
            assert_eq!(answer.status, 200, "{uri}: {}", answer.text());
            assert_eq!(answer.header("x-total-count"), read["total"].as_str(), "{uri}");
            assert_eq!(hex::encode(Sha256::digest(&answer.body)), read["sha256"], "{uri}: {}", answer.text());
        }
    }

    /// Whether one of its version files is an edited one.
    fn has_edited_file(&self) -> bool {
        let entries = std::fs::read_dir(self.directory.path().join("store/versions")).expect("version files");
        let files = entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a file"));
        let layout = memchr::memmem::Finder::new("{\"format_version\":2,");
        files.into_iter().any(|file| layout.find(&file).is_some())
    }

    /// The catalog, past the service.
    async fn raw(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.directory.path().join("catalog.sqlite"));
        options.connect().await.expect("the catalog opens")
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.directory.path().join("catalog.sqlite").display())
    }
}

#[tokio::test]
async fn what_former_builds_have_left_is_served_as_they_did() {
    let mut edited = 0;
    for former in Former::all() {
        let service = former.service().await;
        former.check_reads(&service, |_| true).await;
        // Owners go on.
        let token = format!("Bearer {}", former.text("token"));
        let post = async |path: &str, body: Value| {
            let request =
                Request::post(path).header("authorization", &token).header("content-type", "application/json");
            let answer = service.call(request.body(Body::from(body.to_string())).expect("a request")).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            answer
        };
        post("/dataset/unpin", json!({"dataset_id": 1})).await;
        post("/dataset/refresh", json!({"dataset_id": 1, "entities": [{"Species": "Gentoo"}]})).await;
        let newest = service.get("/api/1/penguins/active/?format=jsonl").await;
        assert_eq!((newest.status, newest.text()), (200, "{\"Species\":\"Gentoo\"}\n"));
        let cloned = post("/dataset/clone", json!({"dataset_id": 1, "name": "Copied"})).await;
        assert!(cloned.text().contains("\"copied\""), "{}", cloned.text());
        // A diff of a former version with one of this build; a profile.
        let diff = service.get_with("/dataset/diff?dataset_id=1&v1=2&v2=3", &[("authorization", &token)]).await;
        assert_eq!(diff.status, 200, "{}", diff.text());
        let swept = service.app.maintenance().sweep(Duration::from_secs(86_400), &mut |_| ()).await.expect("swept");
        assert_eq!((swept.removed, swept.failed), (0, 0));
        former.check_reads(&service, |uri| uri.contains("/v1/") || uri.contains("/v2/")).await;
        if !former.has_edited_file() {
            continue;
        }
        // An edited alternate is edited once more.
        edited += 1;
        let pull = json!({"dataset_id": 3, "version": 1, "alt": true, "limit": 1});
        let pulled = post("/agent/pull_for_edit", pull).await;
        let etag = &serde_json::from_str::<Value>(pulled.text()).expect("JSON")["etag"];
        let edits = json!([{"position": 1, "set": {"id": "new"}}]);
        post("/dataset/alternate/edit", json!({"dataset_id": 3, "version": 1, "etag": etag, "edits": edits})).await;
        let alternate = service.get("/api/3/words/v1/alt/?format=jsonl&keep_field=id&limit=3").await;
        assert_eq!(alternate.text(), "{\"id\":1}\n{\"id\":\"new\"}\n{\"id\":3}\n");
    }
    assert!(edited > 0, "no former build has left an edited file");
}

/// A column, as SQLite tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    kind: String,
    is_required: bool,
    default: Option<String>,
    key: i64,
}

type Tables = BTreeMap<String, BTreeMap<String, Column>>;

async fn tables(connection: &mut SqliteConnection) -> Tables {
    let sql = "SELECT m.name, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk
               FROM sqlite_master m, pragma_table_info(m.name) c
               WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut tables = Tables::new();
    for row in sqlx::query(sql).fetch_all(&mut *connection).await.expect("columns") {
        let column =
            Column { kind: row.get(2), is_required: row.get::<i64, _>(3) != 0, default: row.get(4), key: row.get(5) };
        tables.entry(row.get(0)).or_default().insert(row.get(1), column);
    }
    tables
}

#[tokio::test]
async fn former_builds_go_on_with_the_tables_of_this_one() {
    for former in Former::all() {
        let mut raw = former.raw().await;
        let before = tables(&mut raw).await;
        raw.close().await.expect("closed");
        let original = std::fs::read(former.directory.path().join("catalog.sqlite")).expect("read");
        Catalog::open(&former.url()).await.expect("brought up to date").close().await;

        let mut raw = former.raw().await;
        let after = tables(&mut raw).await;
        for (table, columns) in &before {
            let now = after.get(table).unwrap_or_else(|| panic!("{table} is gone"));
            for (name, column) in columns {
                assert_eq!(now.get(name), Some(column), "{table}.{name}");
            }
            for (name, column) in now.iter().filter(|(name, _)| !columns.contains_key(*name)) {
                assert!(!column.is_required || column.default.is_some(), "{table}.{name} must be written");
            }
        }
        // Every record that the former build wrote can be written again as it does, naming its columns.
        let copy = former.directory.path().join("former.sqlite");
        std::fs::write(&copy, original).expect("written");
        let attached = format!("ATTACH DATABASE '{}' AS former", copy.display());
        sqlx::raw_sql(AssertSqlSafe(attached)).execute(&mut raw).await.expect("attached");
        let mut statements = String::from("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE;");
        for table in before.keys().filter(|table| !table.starts_with("_sqlx")) {
            statements.push_str(&format!("DELETE FROM main.{table};"));
        }
        for (table, columns) in before.iter().filter(|(table, _)| !table.starts_with("_sqlx")) {
            let columns = columns.keys().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
            statements.push_str(&format!("INSERT INTO main.{table} ({columns}) SELECT {columns} FROM former.{table};"));
        }
        statements.push_str("COMMIT; PRAGMA foreign_keys = ON;");
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut raw).await.expect("written as before");
        let violations = sqlx::query("PRAGMA main.foreign_key_check").fetch_all(&mut raw).await.expect("checked");
        assert!(violations.is_empty());
        sqlx::raw_sql("DETACH DATABASE former").execute(&mut raw).await.expect("detached");
        raw.close().await.expect("closed");
        former.check_reads(&former.service().await, |_| true).await;
    }
}
