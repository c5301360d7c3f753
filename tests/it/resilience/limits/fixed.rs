//! Tests of the fixed limits (`limits::FIXED_LIMITS`): each limit accepts its maximum and rejects or truncates one
//! more.

use futures::FutureExt;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};
use strata_testing::pages::check_table;
use strata_types::limits::{self, FixedLimit, OverLimit};

use super::{LimitFixture, ORDINARY, nested_entity, percent_encoded, tool_call_message};

/// Tests one limit.
type FixedLimitCase = for<'w> fn(&'w LimitFixture, &'static FixedLimit) -> BoxFuture<'w, ()>;

/// One test case for each fixed limit, in the order of `limits::FIXED_LIMITS`.
const CASES: &[(&str, FixedLimitCase)] = &[
    ("MAX_QUERY_STRING_BYTES", |fixture, limit| query_bytes(fixture, limit).boxed()),
    ("MAX_QUERY_ITEMS", |fixture, limit| items(fixture, limit).boxed()),
    ("MAX_PATH_KEYS", |fixture, limit| path_keys(fixture, limit).boxed()),
    ("MAX_UNKNOWN_NAMES_HEADER_BYTES", |fixture, limit| unknown_header(fixture, limit).boxed()),
    ("MAX_LINK_HEADER_BYTES", |fixture, limit| link(fixture, limit).boxed()),
    ("MAX_ENTITY_DEPTH", |fixture, limit| entity_depth(fixture, limit).boxed()),
    ("MAX_COLUMN_NAMES_BYTES", |fixture, limit| column_names(fixture, limit).boxed()),
    ("MAX_OWNED_DATASETS_PER_PAGE", |fixture, limit| listed(fixture, limit).boxed()),
    ("MAX_HISTORY_ENTRIES", |fixture, limit| history(fixture, limit).boxed()),
    ("MAX_USAGE_DAYS", |fixture, limit| usage_days(fixture, limit).boxed()),
    ("MAX_DATASET_NAME_CHARACTERS", |fixture, limit| {
        check_creation(fixture, limit, |most| json!({"name": "é".repeat(most)})).boxed()
    }),
    ("MAX_DESCRIPTION_CHARACTERS", |fixture, limit| {
        let described = |most: usize| json!({"name": format!("Described {most}"), "description": "é".repeat(most)});
        check_creation(fixture, limit, described).boxed()
    }),
    ("MAX_LICENSE_CHARACTERS", |fixture, limit| {
        let licensed = |most: usize| json!({"name": format!("Licensed {most}"), "licence": "é".repeat(most)});
        check_creation(fixture, limit, licensed).boxed()
    }),
    ("MAX_LISTED_DATASETS_PER_PAGE", |fixture, limit| listings(fixture, limit).boxed()),
    ("MAX_DATASET_SEARCH_CHARACTERS", |fixture, limit| listings_query(fixture, limit).boxed()),
    ("MAX_SMALL_FORM_BYTES", |fixture, limit| form_bytes(fixture, limit).boxed()),
    ("MAX_USER_FORM_BYTES", |fixture, limit| user_form(fixture, limit).boxed()),
    ("MAX_EDITOR_FORM_BYTES", |fixture, limit| editor_form(fixture, limit).boxed()),
    ("MAX_EDITOR_TEXT_BYTES", |fixture, limit| editor_text(fixture, limit).boxed()),
    ("MAX_REMOVED_ENTITIES", |fixture, limit| editor_positions(fixture, limit).boxed()),
    ("MAX_DIFF_SUMMARY_ENTITIES", |fixture, limit| summary_entities(fixture, limit).boxed()),
    ("MAX_PAGE_ENTITIES", |fixture, limit| page_entities(fixture, limit).boxed()),
    ("MAX_PAGE_ENTITY_BYTES", |fixture, limit| page_bytes(fixture, limit).boxed()),
    ("MAX_USER_REFRESH_STREAMS", |fixture, limit| refresh_streams(fixture, limit).boxed()),
    ("MAX_URL_BYTES", |fixture, limit| url_bytes(fixture, limit).boxed()),
    ("MAX_RECORDS_PATH_BYTES", |fixture, limit| {
        let path = |most: usize| format!("{}a{}", "a.".repeat((most - 1) / 2), "b".repeat((most - 1) % 2));
        check_creation(fixture, limit, move |most| json!({"name": format!("Path {most}"), "records_path": path(most)}))
            .boxed()
    }),
    ("MAX_SCHEDULE_BYTES", |fixture, limit| {
        let minutes = |most: usize| format!("{}1{} 2 * * *", "0,".repeat((most - 9) / 2), "0".repeat((most - 9) % 2));
        check_creation(fixture, limit, move |most| json!({"name": format!("Cron {most}"), "schedule": minutes(most)}))
            .boxed()
    }),
    ("MAX_INDEX_PATHS", |fixture, limit| {
        let paths = |most: usize| (0..most).map(|number| format!("p{number}")).collect::<Vec<_>>();
        let index = move |most| json!({"always": paths(most), "never": ["x"]});
        check_creation(fixture, limit, move |most| json!({"name": format!("Index {most}"), "index": index(most)}))
            .boxed()
    }),
    ("MAX_INDEX_PATH_BYTES", |fixture, limit| index_path_bytes(fixture, limit).boxed()),
    ("MAX_CHECK_PATHS", |fixture, limit| {
        let paths = |most: usize| (0..most).map(|number| format!("p{number}")).collect::<Vec<_>>();
        let checks = move |most| json!({"required": paths(most - 2), "unique": [["x"]], "types": {"y": ["null"]}});
        check_creation(fixture, limit, move |most| json!({"name": format!("Checks {most}"), "checks": checks(most)}))
            .boxed()
    }),
    ("MAX_CHECK_PATH_BYTES", |fixture, limit| {
        let checks = |most| json!({"required": ["a".repeat(most)]});
        check_creation(fixture, limit, move |most| json!({"name": format!("Long {most}"), "checks": checks(most)}))
            .boxed()
    }),
    ("MAX_CHECK_SCHEMA_BYTES", |fixture, limit| {
        let checks = |most| json!({"json_schema": {"title": "a".repeat(most - r#"{"title":""}"#.len())}});
        check_creation(fixture, limit, move |most| json!({"name": format!("Schema {most}"), "checks": checks(most)}))
            .boxed()
    }),
    ("MAX_SCHEMA_PATTERNS", |fixture, limit| {
        let checks = |most| json!({"json_schema": {"allOf": vec![json!({"pattern": "a{1000}"}); most]}});
        check_creation(fixture, limit, move |most| json!({"name": format!("Patterns {most}"), "checks": checks(most)}))
            .boxed()
    }),
    ("MAX_SCHEMA_EVALUATIONS", |fixture, limit| schema_evaluations(fixture, limit).boxed()),
    ("MAX_WEBHOOK_SECRET_BYTES", |fixture, limit| webhook_secret(fixture, limit).boxed()),
    ("MAX_BODY_JSON_VALUES", |fixture, limit| body_values(fixture, limit).boxed()),
    ("MAX_BYTES_BEFORE_BRACE", |fixture, limit| first_bracket(fixture, limit).boxed()),
    ("MAX_LOGIN_BODY_BYTES", |fixture, limit| login_body(fixture, limit).boxed()),
    ("MAX_PASSWORD_BYTES", |fixture, limit| password(fixture, limit).boxed()),
    ("MAX_EMAIL_BYTES", |fixture, limit| email(fixture, limit).boxed()),
    ("MAX_TOKEN_NAME_BYTES", |fixture, limit| token_name(fixture, limit).boxed()),
    ("MAX_USER_TOKENS", |fixture, limit| tokens(fixture, limit).boxed()),
    ("MAX_TOKEN_LIFETIME_S", |fixture, limit| token_lifetime(fixture, limit).boxed()),
    ("MAX_USER_SESSIONS", |fixture, limit| sessions(fixture, limit).boxed()),
    ("MAX_TOOL_MESSAGE_BYTES", |fixture, limit| tool_message(fixture, limit).boxed()),
    ("MAX_TOOL_ENTITY_DEPTH", |fixture, limit| tool_depth(fixture, limit).boxed()),
    ("MAX_TOOL_DATASETS_PER_PAGE", |fixture, limit| tool_listed(fixture, limit).boxed()),
    ("MAX_TOOL_RESULT_BYTES", |fixture, limit| tool_result(fixture, limit).boxed()),
    ("MAX_TOOL_PULLED_BYTES", |fixture, limit| tool_pull(fixture, limit).boxed()),
];

#[test]
fn every_fixed_limit_has_a_case() {
    let cases: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
    let limits: Vec<&str> = limits::FIXED_LIMITS.iter().map(|limit| limit.name).collect();
    assert_eq!(cases, limits);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fixed_limits_apply_at_exact_value() {
    let fixture = LimitFixture::new().await;
    for (limit, (_, case)) in limits::FIXED_LIMITS.iter().zip(CASES) {
        case(&fixture, limit).await;
        fixture.assert_healthy().await;
    }
    fixture.stop();
}

/// Returns the fixed limits as rows of a Markdown table, as the reference page shows them.
fn markdown_table() -> String {
    let row = |limit: &FixedLimit| {
        let max = match limit.max {
            max if limit.description.starts_with("Bytes") && max % (1 << 20) == 0 => format!("{} MiB", max >> 20),
            max if limit.description.starts_with("Bytes") && max % (1 << 10) == 0 => format!("{} KiB", max >> 10),
            max => max.to_string(),
        };
        let over_limit = match limit.over_limit {
            OverLimit::Status(status) => status.to_string(),
            OverLimit::ToolError => "tool error".to_owned(),
            OverLimit::CommandError => "command error".to_owned(),
            OverLimit::Truncate => "omitted".to_owned(),
        };
        format!("| {} | {max} | {over_limit} |\n", limit.description)
    };
    let head = ["| Limit | Maximum | If exceeded |\n".to_owned(), "|---|---|---|\n".to_owned()];
    head.into_iter().chain(limits::FIXED_LIMITS.iter().map(row)).collect()
}

#[test]
fn reference_page_has_table_of_fixed_limits() {
    check_table("docs/reference/limits.md", "limits", &markdown_table());
}

/// Returns the HTTP status with which the service rejects a request over the limit.
#[track_caller]
fn status(limit: &FixedLimit) -> u16 {
    match limit.over_limit {
        OverLimit::Status(status) => status,
        other => panic!("{} has no status, but {other:?}", limit.name),
    }
}

/// Checks that a dataset can be created from `body(limit.max)` and not from `body(limit.max + 1)`.
async fn check_creation(fixture: &LimitFixture, limit: &FixedLimit, body: impl Fn(usize) -> Value) {
    fixture.post("/dataset/create", &body(limit.max)).await.assert_status(&[200], limit.name);
    fixture.post("/dataset/create", &body(limit.max + 1)).await.assert_status(&[status(limit)], limit.name);
}

async fn query_bytes(fixture: &LimitFixture, limit: &FixedLimit) {
    let query = |bytes: usize| format!("x={}", "y".repeat(bytes - 2));
    fixture.read(ORDINARY, &query(limit.max)).await.assert_status(&[200], limit.name);
    fixture.read(ORDINARY, &query(limit.max + 1)).await.assert_status(&[status(limit)], limit.name);
    let keyword = |bytes: usize| json!({"dataset_id": 1, "keywords": "y".repeat(bytes)});
    assert!(!fixture.call_tool("read", &keyword(limit.max)).await.0);
    assert!(fixture.call_tool("read", &keyword(limit.max + 1)).await.0);
}

async fn items(fixture: &LimitFixture, limit: &FixedLimit) {
    let query = |items: usize| format!("keywords={}", vec!["a"; items].join(","));
    fixture.read(ORDINARY, &query(limit.max)).await.assert_status(&[200], limit.name);
    fixture.read(ORDINARY, &query(limit.max + 1)).await.assert_status(&[status(limit)], limit.name);
    let filters = |items: usize| json!({"dataset_id": 1, "filter": vec!["region:europe"; items], "limit": 1});
    for tool in ["read", "explain"] {
        assert!(!fixture.call_tool(tool, &filters(limit.max)).await.0, "{tool}");
        assert!(fixture.call_tool(tool, &filters(limit.max + 1)).await.0, "{tool}");
    }
    let explain = format!("/dataset/explain?dataset_id=1&{}", vec!["filter=region:europe"; limit.max].join("&"));
    fixture.call(Method::GET, &explain, "").await.assert_status(&[200], limit.name);
}

async fn path_keys(fixture: &LimitFixture, limit: &FixedLimit) {
    for parameter in ["keep_field", "drop_field", "dedup_key"] {
        let query = |keys: usize| format!("dedup=true&{parameter}={}", vec!["a"; keys].join("."));
        fixture.read("2/deep", &query(limit.max)).await.assert_status(&[200], parameter);
        fixture.read("2/deep", &query(limit.max + 1)).await.assert_status(&[status(limit)], parameter);
    }
}

async fn unknown_header(fixture: &LimitFixture, limit: &FixedLimit) {
    let named = async |bytes: usize| {
        let answer = fixture.read(ORDINARY, &format!("limit=1&{}=1", "u".repeat(bytes))).await;
        answer.assert_status(&[200], limit.name);
        answer.headers.get("x-unknown-parameters").map_or(0, |names| names.len())
    };
    assert_eq!(named(limit.max).await, limit.max);
    // The header contains only complete names: a name that does not fit is omitted.
    assert_eq!(named(limit.max + 1).await, 0);
}

async fn link(fixture: &LimitFixture, limit: &FixedLimit) {
    let links = async |bytes: usize| {
        let answer = fixture.read(ORDINARY, &format!("limit=1&offset=1&x={}", "y".repeat(bytes))).await;
        answer.assert_status(&[200], limit.name);
        answer.headers.get("link").map_or(0, |links| links.len())
    };
    // The other bytes of one link, measured on a page whose `prev` link does not fit.
    let besides = links(limit.max / 2).await - limit.max / 2;
    assert_eq!(links(limit.max - besides).await, limit.max);
    assert_eq!(links(limit.max - besides + 1).await, 0);
}

async fn entity_depth(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("Depth").await;
    for arrays in [false, true] {
        fixture.push(id, &format!("[{}]", nested_entity(limit.max, arrays))).await.assert_status(&[200], limit.name);
        fixture
            .push(id, &format!("[{}]", nested_entity(limit.max + 1, arrays)))
            .await
            .assert_status(&[status(limit)], limit.name);
        fixture
            .push(id, &format!("[{}]", nested_entity(100_000, arrays)))
            .await
            .assert_status(&[status(limit)], limit.name);
    }
    // Entities of the maximum depth can be written in every format.
    for format in ["json", "jsonl", "csv", "tsv", "xml", "parquet"] {
        for query in ["", "&flatten=true", "&denull=true&keep_field=a&drop_field=b&dedup=true&sort=a"] {
            fixture.read(&format!("{id}/depth"), &format!("format={format}{query}")).await.assert_status(&[200], query);
        }
    }
    let diff = format!("/dataset/diff?dataset_id={id}&v1=1&v2=2");
    fixture.call(Method::GET, &diff, "").await.assert_status(&[200], &diff);
    fixture.get(&format!("/dataset/profile?dataset_id={id}")).await.assert_status(&[200], "a profile");
}

async fn column_names(fixture: &LimitFixture, limit: &FixedLimit) {
    // Sixteen column names of one MiB in total. Each name consists of the object's key, a dot, and a key of two digits.
    let entity = |padding: usize| {
        let members: Vec<String> = (10..26).map(|number| format!("\"{number}\":0")).collect();
        let name = "n".repeat(limit.max / 16 - 3);
        format!("[{{\"{name}\":{{{},\"{}\":1}}}}]", members[1..].join(","), "m".repeat(2 + padding))
    };
    let id = fixture.create_dataset("Names").await;
    fixture.push(id, &entity(0)).await.assert_status(&[200], limit.name);
    fixture.push(id, &entity(1)).await.assert_status(&[200], limit.name);
    for format in ["csv", "parquet"] {
        let query = format!("format={format}");
        let answer = fixture.get(&format!("/api/{id}/names/v1/?{query}")).await;
        answer.assert_status(&[200], &query);
        assert!(answer.body.len() > if format == "csv" { limit.max } else { 10_000 });
        fixture.get(&format!("/api/{id}/names/v2/?{query}")).await.assert_status(&[status(limit)], &query);
    }
}

async fn listed(fixture: &LimitFixture, limit: &FixedLimit) {
    let page = async |number: usize| {
        let answer = fixture.call(Method::GET, &format!("/dataset/list?limit={number}"), "").await;
        answer.assert_status(&[200], limit.name);
        answer.json()["datasets"].as_array().expect("datasets").len()
    };
    let catalog = DatasetTable::open(fixture).await;
    catalog.fill(limit.max + 1).await;
    assert_eq!((page(limit.max).await, page(limit.max + 1).await), (limit.max, limit.max));
    assert_eq!(page(usize::MAX).await, limit.max);
    // Pages show that there may be more datasets. The account page counts all of them.
    let sql = "SELECT COUNT(*) FROM datasets WHERE NOT frozen AND owner_id = \
               (SELECT owner_id FROM datasets WHERE dataset_id = 1)";
    let (active,): (usize,) = sqlx::query_as(sql)
        .fetch_one(&catalog.0)
        .await
        .map(|(active,): (i64,)| (active as usize,))
        .expect("failed to parse the number");
    let pages = BrowserSession::open(fixture).await;
    assert!(pages.get("/").await.contains("1,000 or more in total"));
    let count_text = format!("<dd>{},{:03} of ", active / 1_000, active % 1_000);
    assert!(active > limit.max && pages.get("/ui/account").await.contains(&count_text), "{count_text}");
    catalog.restore().await;
}

async fn history(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("History").await;
    let catalog = DatasetTable::open(fixture).await;
    let counted = "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n <= $1)";
    for (table, rows) in [
        (
            "refresh_attempts (dataset_id, trigger_name, started_at, finished_at, ok, error)",
            "$2, 'manual', 1, 1, 0, 'no'",
        ),
        ("versions (dataset_id, version_number, file_id, created_at)", "$2, n, 1, 1"),
        (
            "webhook_deliveries (dataset_id, version_number, due_at, claimed_at, url)",
            "$2, n, 1, 1, 'http://127.0.0.1:9/'",
        ),
    ] {
        let sql = format!("{counted} INSERT INTO {table} SELECT {rows} FROM counted");
        let max = i64::try_from(limit.max).expect("small");
        let filled = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(max).bind(i64::try_from(id).expect("small"));
        filled.execute(&catalog.0).await.expect("failed to insert rows");
    }
    for (path, name) in [("/dataset/attempts", "attempts"), ("/webhook/deliveries", "deliveries")] {
        for more in [String::new(), format!("&limit={}", limit.max), format!("&limit={}", limit.max + 1)] {
            let answer = fixture.call(Method::GET, &format!("{path}?dataset_id={id}{more}"), "").await;
            answer.assert_status(&[200], limit.name);
            assert_eq!(answer.json()[name].as_array().expect("a list").len(), limit.max, "{path}{more}");
        }
    }
    for table in ["webhook_deliveries", "versions", "refresh_attempts"] {
        let sql = format!("DELETE FROM {table} WHERE dataset_id = {id}");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&catalog.0).await.expect("failed to restore the file");
    }
    catalog.0.close().await;
}

async fn usage_days(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("Usage").await;
    let catalog = DatasetTable::open(fixture).await;
    let sql = "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < $1)
               INSERT INTO dataset_usage SELECT $2, unixepoch() / 86400 - n, 1, 0, 0, 1 FROM counted";
    let filled = sqlx::query(sql).bind(i64::try_from(limit.max).expect("small"));
    filled.bind(i64::try_from(id).expect("small")).execute(&catalog.0).await.expect("failed to insert rows");
    for days in [limit.max, limit.max + 1, usize::MAX] {
        let answer = fixture.call(Method::GET, &format!("/dataset/usage?dataset_id={id}&days={days}"), "").await;
        answer.assert_status(&[200], limit.name);
        assert_eq!(answer.json()["usage"].as_array().expect("days").len(), limit.max, "{days}");
    }
    catalog.0.close().await;
}

async fn listings(fixture: &LimitFixture, limit: &FixedLimit) {
    let page = async |number: usize| {
        let answer = fixture.call(Method::GET, &format!("/datasets?limit={number}"), "").await;
        answer.assert_status(&[200], limit.name);
        answer.json()["datasets"].as_array().expect("datasets").len()
    };
    let catalog = DatasetTable::open(fixture).await;
    catalog.fill(limit.max + 1).await;
    catalog.list().await;
    assert_eq!((page(limit.max).await, page(limit.max + 1).await), (limit.max, limit.max));
    assert_eq!(page(usize::MAX).await, limit.max);
    catalog.restore().await;
}

async fn listings_query(fixture: &LimitFixture, limit: &FixedLimit) {
    let call = async |characters: usize| {
        let query = "%C3%A9".repeat(characters);
        fixture.call(Method::GET, &format!("/datasets?q={query}"), "").await
    };
    call(limit.max).await.assert_status(&[200], limit.name);
    call(limit.max + 1).await.assert_status(&[status(limit)], limit.name);
}

/// A connection to the metadata database, for inserting many datasets at once without the server.
struct DatasetTable(sqlx::SqlitePool);

impl DatasetTable {
    async fn open(fixture: &LimitFixture) -> DatasetTable {
        let path = fixture.machine.path("strata-data/catalog.sqlite");
        DatasetTable(
            sqlx::SqlitePool::connect(&format!("sqlite://{}", path.display()))
                .await
                .expect("failed to open the catalog"),
        )
    }

    /// Inserts copies of the first dataset until there are `datasets` datasets.
    async fn fill(&self, datasets: usize) {
        let columns: Vec<(String,)> =
            sqlx::query_as("SELECT name FROM pragma_table_info('datasets')").fetch_all(&self.0).await.expect("columns");
        let own = |column: &str| match column {
            // A copied checksum would not match the changed record.
            "dataset_id" | "record_checksum" | "validators_checksum" => "NULL".to_owned(),
            "name" | "name_key" | "name_slug" => "'many-' || counted.n".to_owned(),
            "ping_token" | "ping_token_hash" => "lower(hex(randomblob(32)))".to_owned(),
            other => format!("datasets.{other}"),
        };
        let names: Vec<&str> = columns.iter().map(|(name,)| name.as_str()).collect();
        let values: Vec<String> = names.iter().map(|name| own(name)).collect();
        let sql = format!(
            "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {datasets}) \
             INSERT INTO datasets ({}) SELECT {} FROM counted, datasets WHERE datasets.dataset_id = 1",
            names.join(", "),
            values.join(", ")
        );
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.0).await.expect("failed to insert rows");
    }

    /// Adds the copies to the dataset list and gives them the versions of the first dataset.
    async fn list(&self) {
        for sql in [
            "UPDATE datasets SET listed = 1 WHERE name LIKE 'many-%'",
            "INSERT INTO versions (dataset_id, version_number, file_id, created_at)
             SELECT copies.dataset_id, versions.version_number, versions.file_id, versions.created_at
             FROM datasets copies, versions WHERE versions.dataset_id = 1 AND copies.name LIKE 'many-%'",
        ] {
            sqlx::query(sql).execute(&self.0).await.expect("listed");
        }
    }

    async fn restore(self) {
        let versions = "DELETE FROM versions
                        WHERE dataset_id IN (SELECT dataset_id FROM datasets WHERE name LIKE 'many-%')";
        sqlx::query(versions).execute(&self.0).await.expect("failed to restore the file");
        sqlx::query("DELETE FROM datasets WHERE name LIKE 'many-%'")
            .execute(&self.0)
            .await
            .expect("failed to restore the file");
        self.0.close().await;
    }
}

async fn url_bytes(fixture: &LimitFixture, limit: &FixedLimit) {
    let url = |bytes: usize| {
        let start = "http://127.0.0.1:9/";
        format!("{start}{}", "u".repeat(bytes - start.len()))
    };
    check_creation(fixture, limit, |most| json!({"name": format!("Url {most}"), "source": url(most)})).await;
    let register = |bytes: usize| json!({"dataset_id": 1, "url": url(bytes)});
    fixture.post("/webhook/register", &register(limit.max)).await.assert_status(&[200], limit.name);
    fixture.post("/webhook/register", &register(limit.max + 1)).await.assert_status(&[status(limit)], limit.name);
}

async fn body_values(fixture: &LimitFixture, limit: &FixedLimit) {
    // The object, the array of its member, and each number count as one value.
    for (numbers, expected) in [(limit.max - 2, "an array is not valid"), (limit.max - 1, "more than 10000 values")] {
        let answer = fixture.post("/dataset/update", &json!({"dataset_id": vec![1; numbers]})).await;
        answer.assert_status(&[400], "values of a body");
        assert!(answer.text().contains(expected), "{numbers}: {}", answer.text());
    }
}

async fn first_bracket(fixture: &LimitFixture, limit: &FixedLimit) {
    let answer = fixture.post("/dataset/create", &json!({"name": "Late bracket"})).await;
    let id = answer.json()["dataset"]["dataset_id"].as_u64().expect("failed to find the ID");
    let push = format!("/dataset/refresh?dataset_id={id}");
    let object = r#"{"entities":[{"a":1}]}"#;
    let at = |place: usize| format!("{}{object}", " ".repeat(place - 1));
    fixture.call(Method::POST, &push, at(limit.max)).await.assert_status(&[200], limit.name);
    fixture.call(Method::POST, &push, at(limit.max + 1)).await.assert_status(&[status(limit)], limit.name);
}

async fn index_path_bytes(fixture: &LimitFixture, limit: &FixedLimit) {
    // Paths with as many keys as their length allows. The version that the service creates uses these paths, too.
    let path = |bytes: usize| format!("{}a{}", "a.".repeat((bytes - 1) / 2), "b".repeat((bytes - 1) % 2));
    let index = |bytes: usize| json!({"always": [path(bytes)], "never": [format!("{}c", &path(bytes)[..bytes - 1])]});
    check_creation(fixture, limit, |most| json!({"name": format!("Long index {most}"), "index": index(most)})).await;
    let answer = fixture.post("/dataset/create", &json!({"name": "Indexed", "index": index(limit.max)})).await;
    let id = answer.json()["dataset"]["dataset_id"].as_u64().expect("failed to find the ID");
    fixture.push(id, &format!("[{},{{\"a\":1}}]", nested_entity(128, false))).await.assert_status(&[200], limit.name);
    fixture.get(&format!("/dataset/profile?dataset_id={id}")).await.assert_status(&[200], "a profile");
}

async fn schema_evaluations(fixture: &LimitFixture, limit: &FixedLimit) {
    // With the root, 1,000 subschemas apply to a value.
    let checks = json!({"json_schema": {"allOf": vec![json!({}); 999]}});
    let answer = fixture.post("/dataset/create", &json!({"name": "Evaluations", "checks": checks})).await;
    let id = answer.json()["dataset"]["dataset_id"].as_u64().expect("failed to find the ID");
    // The entity and its array count twice.
    let entities = |values: usize| format!("[{{\"a\":[{}]}}]", vec!["1"; values - 4].join(","));
    fixture.push(id, &entities(limit.max / 1_000)).await.assert_status(&[200], limit.name);
    fixture.push(id, &entities(limit.max / 1_000 + 1)).await.assert_status(&[status(limit)], limit.name);
}

async fn webhook_secret(fixture: &LimitFixture, limit: &FixedLimit) {
    let register = |bytes: usize| json!({"dataset_id": 1, "url": "http://127.0.0.1:9/", "secret": "s".repeat(bytes)});
    fixture.post("/webhook/register", &register(limit.max)).await.assert_status(&[200], limit.name);
    fixture.post("/webhook/register", &register(limit.max + 1)).await.assert_status(&[status(limit)], limit.name);
}

async fn form_bytes(fixture: &LimitFixture, limit: &FixedLimit) {
    let sent = async |bytes: usize| {
        let form = "email=nobody%40example.test&password=";
        let body = format!("{form}{}", "p".repeat(bytes - form.len()));
        let request = fixture.client.post(fixture.url("/ui/sign-in")).body(body);
        fixture.send(request.header("content-type", "application/x-www-form-urlencoded")).await.status
    };
    assert_eq!((sent(limit.max).await, sent(limit.max + 1).await), (401, status(limit)));
}

/// A browser session of the user.
struct BrowserSession<'w> {
    fixture: &'w LimitFixture,
    cookie: String,
}

impl BrowserSession<'_> {
    async fn open(fixture: &LimitFixture) -> BrowserSession<'_> {
        let credentials = json!({"email": "ada@example.test", "password": "correct horse"});
        let answer = fixture.call(Method::POST, "/session/login", credentials.to_string()).await;
        let cookie = answer.headers["set-cookie"].to_str().expect("failed to find the cookie");
        BrowserSession { fixture, cookie: cookie.split(';').next().expect("a pair").to_owned() }
    }

    async fn get(&self, uri: &str) -> String {
        let request = self.fixture.client.get(self.fixture.url(uri)).header("cookie", &self.cookie);
        let answer = self.fixture.send(request).await;
        assert_eq!(answer.status, 200, "{uri}: {}", answer.summary());
        answer.text()
    }

    /// Returns a response without reading its body.
    async fn get_unread(&self, uri: &str) -> reqwest::Response {
        let request = self.fixture.client.get(self.fixture.url(uri)).header("cookie", &self.cookie);
        request.send().await.expect("failed to get a response")
    }

    /// Returns the hidden fields (such as the CSRF token) of the forms on a page.
    async fn hidden(&self, uri: &str) -> String {
        let page = self.get(uri).await;
        let value = |name: &str| {
            let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect(name);
            rest.split('"').next().unwrap_or_default().replace("&#34;", "%22").replace("&quot;", "%22")
        };
        format!("token={}&etag={}", value("token"), value("etag"))
    }

    /// Posts a form and returns the status of the response.
    async fn post(&self, uri: &str, form: String) -> u16 {
        let request = self.fixture.client.post(self.fixture.url(uri)).header("cookie", &self.cookie);
        self.fixture.send(request.header("content-type", "application/x-www-form-urlencoded").body(form)).await.status
    }
}

async fn refresh_streams(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("Refresh streams").await;
    let pages = BrowserSession::open(fixture).await;
    let uri = format!("/ui/{id}/refresh-streams/refresh/events");
    let (mut chunks, body) = mpsc::channel(1);
    chunks.try_send(Ok::<_, std::io::Error>("{\"a\":1}\n")).expect("failed to send");
    let url = fixture.url(&format!("/dataset/refresh?dataset_id={id}"));
    let push = fixture.client.post(url).bearer_auth(&fixture.token);
    let push = push.header("content-type", "application/x-ndjson").body(reqwest::Body::wrap_stream(body));
    let watched = async {
        let mut streams = Vec::new();
        while streams.len() < limit.max {
            let answer = pages.get_unread(&uri).await;
            match answer.status().as_u16() {
                200 => streams.push(answer),
                other => assert_eq!((other, streams.len()), (204, 0), "the refresh has started"),
            }
        }
        assert_eq!(pages.get_unread(&uri).await.status(), status(limit));
        chunks.close_channel();
    };
    let (pushed, ()) = tokio::join!(fixture.send(push), watched);
    pushed.assert_status(&[200], limit.name);
}

async fn user_form(fixture: &LimitFixture, limit: &FixedLimit) {
    let pages = BrowserSession::open(fixture).await;
    let page = pages.get("/ui/account").await;
    let (_, token) = page.split_once("name=\"token\" value=\"").expect("a form");
    let form = format!("token={}&scope=read&days=7&name=", token.split('"').next().unwrap_or_default());
    // The page itself reports that the name is too long.
    for (more, expected) in [(0, 400), (1, status(limit))] {
        let form = format!("{form}{}", "x".repeat(limit.max - form.len() + more));
        assert_eq!(pages.post("/ui/account/create-token", form).await, expected, "{more}");
    }
}

async fn editor_form(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("Editor form").await;
    fixture.push(id, "[{\"a\":1}]").await.assert_status(&[200], limit.name);
    let pages = BrowserSession::open(fixture).await;
    let uri = format!("/ui/{id}/editor-form/v1/alternate/edit");
    let hidden = pages.hidden(&format!("{uri}?position=0")).await;
    let form = format!("{hidden}&position=0&length=1&do=preview&text=%7B%7D&base=");
    for (more, expected) in [(0, 200), (1, status(limit))] {
        let form = format!("{form}{}", "x".repeat(limit.max - form.len() + more));
        assert_eq!(pages.post(&uri, form).await, expected, "{more}");
    }
}

async fn editor_text(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("Editor text").await;
    fixture.push(id, "[{\"a\":1}]").await.assert_status(&[200], limit.name);
    let pages = BrowserSession::open(fixture).await;
    let uri = format!("/ui/{id}/editor-text/v1/alternate/edit");
    let hidden = pages.hidden(&format!("{uri}?position=0")).await;
    let form = format!("{hidden}&position=0&length=1&base=&do=preview&text=");
    for (more, expected) in [(0, 200), (1, status(limit))] {
        let text = format!("%7B%22a%22:%22{}%22%7D", "x".repeat(limit.max - "{\"a\":\"\"}".len() + more));
        assert_eq!(pages.post(&uri, format!("{form}{text}")).await, expected, "{more}");
    }
}

async fn editor_positions(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("Editor positions").await;
    let entities = vec!["{\"a\":1}"; limit.max + 1].join(",");
    fixture.push(id, &format!("[{entities}]")).await.assert_status(&[200], limit.name);
    let pages = BrowserSession::open(fixture).await;
    let uri = format!("/ui/{id}/editor-positions/v1/alternate/remove");
    let form = format!("{}&do=preview&positions=0-", pages.hidden(&format!("{uri}?position=0")).await);
    for (last, expected) in [(limit.max - 1, 200), (limit.max, status(limit))] {
        assert_eq!(pages.post(&uri, format!("{form}{last}")).await, expected, "{last}");
    }
}

async fn summary_entities(fixture: &LimitFixture, limit: &FixedLimit) {
    let pages = BrowserSession::open(fixture).await;
    for (more, is_bounded) in [(0, false), (1, true)] {
        let id = fixture.create_dataset(&format!("Summary {more}")).await;
        for version in [1, 2] {
            let entity = |n: usize| format!("{{\"n\":{n},\"m\":{n},\"v\":{version}}}");
            let entities: Vec<String> = (0..limit.max + more).map(entity).collect();
            fixture.push(id, &format!("[{}]", entities.join(","))).await.assert_status(&[200], limit.name);
        }
        let page = pages.get(&format!("/ui/{id}/summary-{more}/diff?v1=1&v2=2")).await;
        assert_eq!(page.contains("This table covers only the first"), is_bounded, "{more}");
    }
}

/// Returns the number of table rows on a page of the dashboard, including the header row.
async fn page_rows(fixture: &LimitFixture, uri: &str) -> usize {
    let answer = fixture.get(uri).await;
    assert_eq!(answer.status, 200, "{uri}: {}", answer.summary());
    answer.text().matches("<tr>").count()
}

async fn page_entities(fixture: &LimitFixture, limit: &FixedLimit) {
    for requested in [limit.max, limit.max + 1, usize::MAX] {
        let uri = format!("/ui/{ORDINARY}/active/?keep_field=cca3&limit={requested}");
        assert_eq!(page_rows(fixture, &uri).await, limit.max + 1, "{requested}");
    }
}

async fn page_bytes(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("Pages").await;
    for (more, rows) in [(0, 2), (1, 1)] {
        let long = limit.max - "{\"a\":1}\n{\"a\":\"\"}\n".len() + more;
        fixture
            .push(id, &format!("[{{\"a\":1}},{{\"a\":\"{}\"}}]", "x".repeat(long)))
            .await
            .assert_status(&[200], limit.name);
        assert_eq!(page_rows(fixture, &format!("/ui/{id}/pages/latest/")).await, rows + 1, "{more}");
    }
}

async fn login_body(fixture: &LimitFixture, limit: &FixedLimit) {
    let body = |bytes: usize| {
        let text = json!({"email": "ada@example.test", "password": "correct horse"}).to_string();
        format!("{text}{}", " ".repeat(bytes - text.len()))
    };
    fixture.call(Method::POST, "/session/login", body(limit.max)).await.assert_status(&[200], limit.name);
    fixture.call(Method::POST, "/session/login", body(limit.max + 1)).await.assert_status(&[status(limit)], limit.name);
}

async fn password(fixture: &LimitFixture, limit: &FixedLimit) {
    let password = "p".repeat(limit.max);
    let add = ["user", "add", "eve@example.test", "--plan", "free"];
    let output = fixture.machine.run_with_input(&add, &format!("{password}\n"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let longer = ["user", "add", "eva@example.test", "--plan", "free"];
    assert!(!fixture.machine.run_with_input(&longer, &format!("{password}p\n")).status.success());
    let login = |password: &str| json!({"email": "eve@example.test", "password": password});
    fixture.post("/session/login", &login(&password)).await.assert_status(&[200], limit.name);
    fixture.post("/session/login", &login(&format!("{password}p"))).await.assert_status(&[status(limit)], limit.name);
}

async fn email(fixture: &LimitFixture, limit: &FixedLimit) {
    assert_eq!(limit.over_limit, OverLimit::CommandError);
    for (bytes, taken) in [(limit.max, true), (limit.max + 1, false)] {
        let address = format!("{}@example.test", "e".repeat(bytes - "@example.test".len()));
        let add = ["user", "add", &address, "--plan", "free"];
        let output = fixture.machine.run_with_input(&add, "correct horse\n");
        assert_eq!(output.status.success(), taken, "{}", String::from_utf8_lossy(&output.stderr));
    }
    let body = json!({"email": "e".repeat(10_000), "password": "x"});
    fixture.post("/session/login", &body).await.assert_status(&[400, 401], limit.name);
}

async fn token_name(fixture: &LimitFixture, limit: &FixedLimit) {
    for (bytes, taken) in [(limit.max, 200), (limit.max + 1, status(limit))] {
        fixture.post("/token/create", &json!({"name": "t".repeat(bytes)})).await.assert_status(&[taken], limit.name);
    }
    let body = json!({"name": "t".repeat(limit.max)}).to_string();
    fixture.call(Method::DELETE, "/token/delete", body).await.assert_status(&[200], limit.name);
}

async fn tokens(fixture: &LimitFixture, limit: &FixedLimit) {
    // The loop starts at 1, because the token of these tests counts, too.
    for number in 1..limit.max {
        fixture
            .post("/token/create", &json!({"name": format!("token {number}")}))
            .await
            .assert_status(&[200], limit.name);
    }
    fixture.post("/token/create", &json!({"name": "one more"})).await.assert_status(&[status(limit)], limit.name);
}

async fn token_lifetime(fixture: &LimitFixture, limit: &FixedLimit) {
    // No further token is possible, but the service checks the lifetime first.
    for (seconds, status) in [(limit.max, 409), (limit.max + 1, status(limit)), (usize::MAX, status(limit))] {
        let body = json!({"name": "lasting", "expires_in_s": seconds});
        fixture.post("/token/create", &body).await.assert_status(&[status], limit.name);
    }
}

async fn sessions(fixture: &LimitFixture, limit: &FixedLimit) {
    let catalog = DatasetTable::open(fixture).await;
    let fill = "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < $1)
                INSERT INTO sessions (session_hash, user_id, data, created_at, expires_at, last_used_at)
                SELECT lower(hex(randomblob(32))), 1, '{}', n, 4000000000000000, n FROM counted";
    sqlx::query(fill)
        .bind(i64::try_from(limit.max).expect("small"))
        .execute(&catalog.0)
        .await
        .expect("failed to insert rows");
    let login = json!({"email": "ada@example.test", "password": "correct horse"});
    fixture.post("/session/login", &login).await.assert_status(&[200], limit.name);
    let sessions: Vec<(i64,)> = sqlx::query_as("SELECT last_used_at FROM sessions WHERE user_id = 1 ORDER BY 1")
        .fetch_all(&catalog.0)
        .await
        .expect("sessions");
    assert_eq!(sessions.len(), limit.max);
    assert!(sessions[0].0 > 1, "the least recently used session is still active");
    sqlx::query("DELETE FROM sessions").execute(&catalog.0).await.expect("failed to restore the file");
    catalog.0.close().await;
}

async fn tool_message(fixture: &LimitFixture, limit: &FixedLimit) {
    let message = |bytes: usize| {
        let plain = tool_call_message("list_datasets", "{}");
        let padding = bytes - plain.len() - ",\"pad\":\"\"".len();
        format!("{},\"pad\":\"{}\"}}", &plain[..plain.len() - 1], "x".repeat(padding))
    };
    let taken = fixture.message(message(limit.max)).await;
    // The size check accepts the message. The protocol decides whether it allows the unknown member.
    assert_ne!(taken.status, status(limit), "{}", taken.summary());
    fixture.message(message(limit.max + 1)).await.assert_status(&[status(limit)], limit.name);
}

async fn tool_depth(fixture: &LimitFixture, limit: &FixedLimit) {
    let id = fixture.create_dataset("Tool depth").await;
    fixture.push(id, "[{\"a\":1}]").await.assert_status(&[200], limit.name);
    let pulled = fixture.post("/agent/pull_for_edit", &json!({"dataset_id": id})).await;
    let etag = pulled.json()["etag"].clone();
    for (levels, taken) in [(limit.max + 1, false), (10_000, false), (limit.max, true)] {
        let entity = nested_entity(levels, false);
        let arguments = format!("{{\"dataset_id\":{id},\"version\":1,\"etag\":{etag},\"entities\":[{entity}]}}");
        let answer = fixture.message(tool_call_message("push_alt_version", &arguments)).await;
        if taken {
            answer.assert_status(&[200], limit.name);
            assert_ne!(answer.json()["result"]["isError"], json!(true), "{}", answer.summary());
        } else {
            answer.assert_status(&[status(limit)], limit.name);
        }
    }
}

async fn tool_listed(fixture: &LimitFixture, limit: &FixedLimit) {
    assert_eq!(limit.over_limit, OverLimit::ToolError);
    let (failed, texts) = fixture.call_tool("list_datasets", &json!({"limit": limit.max})).await;
    assert!(!failed, "{texts:?}");
    let (failed, texts) = fixture.call_tool("list_datasets", &json!({"limit": limit.max + 1})).await;
    assert!(failed && texts.concat().contains(&format!("1 to {}", limit.max)), "{texts:?}");
}

/// Pushes one entity whose response is `bytes` bytes long, as an array of one entity.
async fn push_entity_of_size(fixture: &LimitFixture, name: &str, bytes: usize) -> u64 {
    let id = fixture.create_dataset(name).await;
    let text = "x".repeat(bytes - "[{\"a\":\"\"}]".len());
    fixture.push(id, &format!("[{{\"a\":\"{text}\"}}]")).await.assert_status(&[200], name);
    id
}

async fn tool_result(fixture: &LimitFixture, limit: &FixedLimit) {
    for (name, bytes, fails) in [("Exact", limit.max, false), ("Larger", limit.max + 1, true)] {
        let id = push_entity_of_size(fixture, &format!("Result {name}"), bytes).await;
        let (failed, texts) = fixture.call_tool("read", &json!({"dataset_id": id})).await;
        assert_eq!(failed, fails, "{bytes}: {}", texts.concat().chars().take(200).collect::<String>());
    }
}

async fn tool_pull(fixture: &LimitFixture, limit: &FixedLimit) {
    for (name, bytes, fails) in [("Exact", limit.max, false), ("Larger", limit.max + 1, true)] {
        let id = push_entity_of_size(fixture, &format!("Pull {name}"), bytes).await;
        let (failed, texts) = fixture.call_tool("pull_for_edit", &json!({"dataset_id": id})).await;
        assert_eq!(failed, fails, "{bytes}: {}", texts.concat().chars().take(200).collect::<String>());
    }
    // The names in a query may also be long.
    fixture
        .read(ORDINARY, &format!("sort={}", percent_encoded(&"ä".repeat(5_000))))
        .await
        .assert_status(&[200], limit.name);
}
