//! The fixed limits (`model::limits::ALL`), each at its maximum and one past it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures::FutureExt;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};
use strata_testing::pages::ROOT;
use strata_testing::pages::check_table;
use strata_types::limits::{self, Beyond, Limit};

use super::{ORDINARY, World, calling, encoded, nested};

/// Tries a limit.
type Case = for<'w> fn(&'w World, &'static Limit) -> BoxFuture<'w, ()>;

/// The case of every limit.
const CASES: &[(&str, Case)] = &[
    ("QUERY_BYTES", |world, limit| query_bytes(world, limit).boxed()),
    ("ITEMS", |world, limit| items(world, limit).boxed()),
    ("PATH_KEYS", |world, limit| path_keys(world, limit).boxed()),
    ("UNKNOWN_HEADER_BYTES", |world, limit| unknown_header(world, limit).boxed()),
    ("LINK_BYTES", |world, limit| link(world, limit).boxed()),
    ("ENTITY_DEPTH", |world, limit| entity_depth(world, limit).boxed()),
    ("COLUMN_NAME_BYTES", |world, limit| column_names(world, limit).boxed()),
    ("LISTED_DATASETS", |world, limit| listed(world, limit).boxed()),
    ("HISTORY", |world, limit| history(world, limit).boxed()),
    ("USAGE_DAYS", |world, limit| usage_days(world, limit).boxed()),
    ("DATASET_NAME_CHARACTERS", |world, limit| created(world, limit, |most| json!({"name": "é".repeat(most)})).boxed()),
    ("DESCRIPTION_CHARACTERS", |world, limit| {
        let described = |most: usize| json!({"name": format!("Described {most}"), "description": "é".repeat(most)});
        created(world, limit, described).boxed()
    }),
    ("LICENCE_CHARACTERS", |world, limit| {
        let licensed = |most: usize| json!({"name": format!("Licensed {most}"), "licence": "é".repeat(most)});
        created(world, limit, licensed).boxed()
    }),
    ("LISTINGS", |world, limit| listings(world, limit).boxed()),
    ("LISTINGS_QUERY_CHARACTERS", |world, limit| listings_query(world, limit).boxed()),
    ("FORM_BYTES", |world, limit| form_bytes(world, limit).boxed()),
    ("USER_FORM_BYTES", |world, limit| user_form(world, limit).boxed()),
    ("EDITOR_FORM_BYTES", |world, limit| editor_form(world, limit).boxed()),
    ("EDITOR_BYTES", |world, limit| editor_text(world, limit).boxed()),
    ("EDITOR_POSITIONS", |world, limit| editor_positions(world, limit).boxed()),
    ("SUMMARY_ENTITIES", |world, limit| summary_entities(world, limit).boxed()),
    ("PAGE_ENTITIES", |world, limit| page_entities(world, limit).boxed()),
    ("PAGE_BYTES", |world, limit| page_bytes(world, limit).boxed()),
    ("REFRESH_STREAMS", |world, limit| refresh_streams(world, limit).boxed()),
    ("URL_BYTES", |world, limit| url_bytes(world, limit).boxed()),
    ("RECORDS_PATH_BYTES", |world, limit| {
        let path = |most: usize| format!("{}a{}", "a.".repeat((most - 1) / 2), "b".repeat((most - 1) % 2));
        created(world, limit, move |most| json!({"name": format!("Path {most}"), "records_path": path(most)})).boxed()
    }),
    ("SCHEDULE_BYTES", |world, limit| {
        let minutes = |most: usize| format!("{}1{} 2 * * *", "0,".repeat((most - 9) / 2), "0".repeat((most - 9) % 2));
        created(world, limit, move |most| json!({"name": format!("Cron {most}"), "schedule": minutes(most)})).boxed()
    }),
    ("INDEX_PATHS", |world, limit| {
        let paths = |most: usize| (0..most).map(|number| format!("p{number}")).collect::<Vec<_>>();
        let index = move |most| json!({"always": paths(most), "never": ["x"]});
        created(world, limit, move |most| json!({"name": format!("Index {most}"), "index": index(most)})).boxed()
    }),
    ("INDEX_PATH_BYTES", |world, limit| index_path_bytes(world, limit).boxed()),
    ("WEBHOOK_SECRET_BYTES", |world, limit| webhook_secret(world, limit).boxed()),
    ("BODY_VALUES", |world, limit| body_values(world, limit).boxed()),
    ("BRACKET_WITHIN_BYTES", |world, limit| first_bracket(world, limit).boxed()),
    ("LOGIN_BODY_BYTES", |world, limit| login_body(world, limit).boxed()),
    ("PASSWORD_BYTES", |world, limit| password(world, limit).boxed()),
    ("EMAIL_BYTES", |world, limit| email(world, limit).boxed()),
    ("TOKEN_NAME_BYTES", |world, limit| token_name(world, limit).boxed()),
    ("TOKENS", |world, limit| tokens(world, limit).boxed()),
    ("TOKEN_LIFETIME_S", |world, limit| token_lifetime(world, limit).boxed()),
    ("SESSIONS", |world, limit| sessions(world, limit).boxed()),
    ("TOOL_MESSAGE_BYTES", |world, limit| tool_message(world, limit).boxed()),
    ("TOOL_ENTITY_DEPTH", |world, limit| tool_depth(world, limit).boxed()),
    ("TOOL_LISTED_DATASETS", |world, limit| tool_listed(world, limit).boxed()),
    ("TOOL_RESULT_BYTES", |world, limit| tool_result(world, limit).boxed()),
    ("TOOL_PULL_BYTES", |world, limit| tool_pull(world, limit).boxed()),
];

#[test]
fn every_fixed_limit_has_a_case() {
    let cases: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
    let limits: Vec<&str> = limits::ALL.iter().map(|limit| limit.name).collect();
    assert_eq!(cases, limits);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_taken_at_its_maximum_and_refused_beyond() {
    let world = World::new().await;
    for (limit, (_, case)) in limits::ALL.iter().zip(CASES) {
        case(&world, limit).await;
        world.is_well().await;
    }
    world.end();
}

/// Every fixed limit as a row of one Markdown table.
fn markdown_table() -> String {
    let row = |limit: &Limit| {
        let most = match limit.most {
            most if limit.about.starts_with("Bytes") && most % (1 << 20) == 0 => format!("{} MiB", most >> 20),
            most if limit.about.starts_with("Bytes") && most % (1 << 10) == 0 => format!("{} KiB", most >> 10),
            most => most.to_string(),
        };
        let beyond = match limit.beyond {
            Beyond::Status(status) => status.to_string(),
            Beyond::ToolError => "tool error".to_owned(),
            Beyond::Command => "command error".to_owned(),
            Beyond::LeftOut => "omitted".to_owned(),
        };
        format!("| {} | {most} | {beyond} |\n", limit.about)
    };
    let head = ["| Limit | Maximum | If exceeded |\n".to_owned(), "|---|---|---|\n".to_owned()];
    head.into_iter().chain(limits::ALL.iter().map(row)).collect()
}

#[test]
fn the_page_has_the_table_of_fixed_limits() {
    check_table("docs/reference/limits.md", "limits", &markdown_table());
}

/// Constants that are named like limits and bound no request: nothing that a caller sends is refused by them.
const INTERNAL: &[(&str, &str)] = &[
    ("catalog/attempts.rs", "MAX_ERROR_CHARACTERS"),
    ("cli/logging.rs", "MAX_WAITING_LINES"),
    ("cluster/identity.rs", "MAX_BYTES"),
    ("diff/shared.rs", "MAX_IN_MEMORY"),
    ("json/keys.rs", "MAX_COMPARED"),
    ("json/path_tree.rs", "MAX_COMPARED"),
    ("json/shape.rs", "MAX_KEY_BYTES"),
    ("json/shape.rs", "MAX_PLACES"),
    ("encode/compress.rs", "MAX_UNFLUSHED_BYTES"),
    ("encode/flattened.rs", "MAX_NAMES"),
    ("encode/flattened.rs", "MAX_NAME_BYTES"),
    ("encode/parquet/batch.rs", "MAX_SPARE_BYTES"),
    ("encode/parquet/bounds.rs", "MAX_BOUND_BYTES"),
    ("encode/parquet/chunk.rs", "MAX_DICTIONARY_BYTES"),
    ("encode/parquet/chunk.rs", "MAX_DICTIONARY_VALUES"),
    ("encode/parquet/mod.rs", "MAX_ROWS"),
    ("query/cached_answer.rs", "MAX_POSITIONS"),
    ("query/engine.rs", "MAX_MERGE_BYTES"),
    ("query/fetch/documents.rs", "MAX_RESIDENT"),
    ("query/fetch/documents.rs", "MAX_UNSORTED"),
    ("query/fetch/readahead.rs", "MAX_PAGES"),
    ("query/fields/row_group.rs", "MAX_RECENT"),
    ("query/fields/rows.rs", "MAX_HASHES"),
    ("query/plan/pipeline.rs", "MAX"),
    ("query/scan/batches.rs", "MAX_READY_BYTES"),
    ("query/scan/dedup_source.rs", "MAX_CODED_PATHS"),
    ("query/scan/dedup_source.rs", "MAX_DOCUMENT_PATHS"),
    ("query/scan/distinct.rs", "MAX_TABLE_KEYS"),
    ("query/scan/distinct_cache.rs", "MAX_BITMAP_CODES"),
    ("query/scan/hash_index.rs", "MAX_CANDIDATES"),
    ("query/scan/hash_index.rs", "MAX_FILTERS"),
    ("query/scan/keyword_index.rs", "MAX_RESULT_BYTES"),
    ("query/scan/path_codes.rs", "MAX_CODES"),
    ("query/scan/path_codes.rs", "MAX_KEY_BYTES"),
    ("query/scan/prefetch.rs", "MAX_BLOOM_BYTES"),
    ("query/scan/prefetch.rs", "MAX_SPECULATIVE_BYTES"),
    ("query/scan/row_group_scheduler.rs", "MAX_BYTES"),
    ("query/scan/row_group_scheduler.rs", "MAX_ROW_GROUPS"),
    ("query/scan/shapes.rs", "MAX_SCALAR_CONDITIONS"),
    ("query/scan/sort_index.rs", "MAX_SORTED"),
    ("query/scan/sort_index.rs", "MAX_UNEQUAL"),
    ("query/scan/sort_key.rs", "MAX_BATCH_BYTES"),
    ("query/scan/spec.rs", "MAX_CANDIDATES"),
    ("query/scan/verify.rs", "MAX_WALK_COMPARISONS"),
    ("store/disk_cache/folder.rs", "MAX_FOLDERS"),
    ("store/disk_cache/index.rs", "MAX_RANGES"),
    ("store/disk_cache/index.rs", "MAX_SEGMENTS"),
    ("format/keywords/postings.rs", "MAX_ROWS"),
    ("service/admission/bodies.rs", "MAX_SIZE_BODIES"),
    ("service/read/single_flight.rs", "MAX_ENTRIES"),
    ("service/read/stream.rs", "MAX_ENTITIES"),
    ("ingest/compression.rs", "LAYERS_MAX"),
    ("ingest/fetch.rs", "VALIDATOR_BYTES_MAX"),
    ("ingest/parquet/footer.rs", "DEPTH_MAX"),
    ("ingest/parquet/header.rs", "MAX_BYTES"),
    ("ingest/parquet/plan.rs", "BATCH_ROWS_LOG_MAX"),
    ("ingest/parquet/thrift.rs", "DEPTH_MAX"),
    ("format/keywords/segment/grams.rs", "MAX_GRAMS"),
    ("format/keywords/segment/layout.rs", "MAX_RATIO"),
    ("format/keywords/segment/layout.rs", "MAX_TEXT_BYTES"),
    ("format/profile/bins.rs", "MAX_EXPONENT"),
    ("service/account/login_limits.rs", "MAX_ENTRIES"),
    ("service/account/logins.rs", "MAX_WAITING"),
    ("service/account/logins.rs", "MAX_WAIT_S"),
    ("service/maintenance/backup.rs", "MAX_CONCURRENT_PARTS"),
    ("service/maintenance/backup.rs", "MAX_NAMED"),
    ("service/maintenance/check.rs", "MAX_REFERENCES"),
    ("service/maintenance/damage.rs", "MAX_LOGGED"),
    ("service/maintenance/damage.rs", "MAX_NAMED"),
    ("service/maintenance/damage.rs", "MAX_WAITING"),
    ("service/maintenance/scrub.rs", "MAX_ALIKE"),
    ("service/refresh/attempts.rs", "MAX_UNRECORDED"),
    ("service/usage/mod.rs", "MAX_BATCHES"),
    ("service/usage/mod.rs", "MAX_FOUND"),
    ("service/usage/mod.rs", "MAX_NAMED"),
    ("service/usage/mod.rs", "MAX_UNWRITTEN"),
    ("service/webhook/deliveries.rs", "MAX_CONCURRENT"),
    ("service/webhook/send.rs", "MAX_RESPONSE_BYTES"),
];

/// The constants of a source that are named like limits and whose value is no fixed limit.
fn constants_like_limits(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let declared = code.lines().filter_map(|line| line.trim_start().trim_start_matches("pub").split_once("const "));
    let named = declared.filter_map(|(before, rest)| {
        let (name, value) = rest.split_once(": ")?;
        let like = name.split('_').any(|word| matches!(word, "MAX" | "MOST" | "LIMIT" | "LONGEST"));
        let number = ["u", "i"].iter().any(|kind| value.starts_with(kind));
        (before.len() < 24 && like && number && !value.contains("limits::")).then(|| name.to_owned())
    });
    named.collect()
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("sources").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn limits_of_requests_stand_in_the_one_table() {
    assert_eq!(constants_like_limits("const MOST_X: u8 = 1;\npub const Y_LIMIT: usize = limits::Y;\n").len(), 1);
    let root = Path::new(ROOT).join("src");
    for path in sources(&root) {
        let file = path.strip_prefix(&root).expect("below src").to_string_lossy().into_owned();
        for name in constants_like_limits(&std::fs::read_to_string(&path).expect("a source")) {
            assert!(
                INTERNAL.contains(&(file.as_str(), name.as_str())),
                "src/{file}: {name} is named like a limit: if it bounds what a request may hold, it belongs into \
                 src/types/limits.rs; if not, into INTERNAL"
            );
        }
    }
}

/// The status with which a limit refuses.
#[track_caller]
fn status(limit: &Limit) -> u16 {
    match limit.beyond {
        Beyond::Status(status) => status,
        other => panic!("{} does not refuse by a status, but {other:?}", limit.name),
    }
}

/// A dataset created by this body is taken, and by one past the limit refused.
async fn created(world: &World, limit: &Limit, body: impl Fn(usize) -> Value) {
    world.post("/dataset/create", &body(limit.most)).await.is(&[200], limit.name);
    world.post("/dataset/create", &body(limit.most + 1)).await.is(&[status(limit)], limit.name);
}

async fn query_bytes(world: &World, limit: &Limit) {
    let query = |bytes: usize| format!("x={}", "y".repeat(bytes - 2));
    world.read(ORDINARY, &query(limit.most)).await.is(&[200], limit.name);
    world.read(ORDINARY, &query(limit.most + 1)).await.is(&[status(limit)], limit.name);
    let keyword = |bytes: usize| json!({"dataset_id": 1, "keywords": "y".repeat(bytes)});
    assert!(!world.tool("read", &keyword(limit.most)).await.0);
    assert!(world.tool("read", &keyword(limit.most + 1)).await.0);
}

async fn items(world: &World, limit: &Limit) {
    let query = |items: usize| format!("keywords={}", vec!["a"; items].join(","));
    world.read(ORDINARY, &query(limit.most)).await.is(&[200], limit.name);
    world.read(ORDINARY, &query(limit.most + 1)).await.is(&[status(limit)], limit.name);
    let filters = |items: usize| json!({"dataset_id": 1, "filter": vec!["region:europe"; items], "limit": 1});
    for tool in ["read", "explain"] {
        assert!(!world.tool(tool, &filters(limit.most)).await.0, "{tool}");
        assert!(world.tool(tool, &filters(limit.most + 1)).await.0, "{tool}");
    }
    let explain = format!("/dataset/explain?dataset_id=1&{}", vec!["filter=region:europe"; limit.most].join("&"));
    world.call(Method::GET, &explain, "").await.is(&[200], limit.name);
}

async fn path_keys(world: &World, limit: &Limit) {
    for parameter in ["keep_field", "drop_field", "dedup_key"] {
        let query = |keys: usize| format!("dedup=true&{parameter}={}", vec!["a"; keys].join("."));
        world.read("2/deep", &query(limit.most)).await.is(&[200], parameter);
        world.read("2/deep", &query(limit.most + 1)).await.is(&[status(limit)], parameter);
    }
}

async fn unknown_header(world: &World, limit: &Limit) {
    let named = async |bytes: usize| {
        let answer = world.read(ORDINARY, &format!("limit=1&{}=1", "u".repeat(bytes))).await;
        answer.is(&[200], limit.name);
        answer.headers.get("x-unknown-parameters").map_or(0, |names| names.len())
    };
    assert_eq!(named(limit.most).await, limit.most);
    // Names are left out as a whole.
    assert_eq!(named(limit.most + 1).await, 0);
}

async fn link(world: &World, limit: &Limit) {
    let links = async |bytes: usize| {
        let answer = world.read(ORDINARY, &format!("limit=1&offset=1&x={}", "y".repeat(bytes))).await;
        answer.is(&[200], limit.name);
        answer.headers.get("link").map_or(0, |links| links.len())
    };
    // What one link takes besides: that of a page whose `prev` does not fit.
    let besides = links(limit.most / 2).await - limit.most / 2;
    assert_eq!(links(limit.most - besides).await, limit.most);
    assert_eq!(links(limit.most - besides + 1).await, 0);
}

async fn entity_depth(world: &World, limit: &Limit) {
    let id = world.dataset("Depth").await;
    for arrays in [false, true] {
        world.push(id, &format!("[{}]", nested(limit.most, arrays))).await.is(&[200], limit.name);
        world.push(id, &format!("[{}]", nested(limit.most + 1, arrays))).await.is(&[status(limit)], limit.name);
        world.push(id, &format!("[{}]", nested(100_000, arrays))).await.is(&[status(limit)], limit.name);
    }
    // In every form.
    for format in ["json", "jsonl", "csv", "tsv", "xml", "parquet"] {
        for query in ["", "&flatten=true", "&denull=true&keep_field=a&drop_field=b&dedup=true&sort=a"] {
            world.read(&format!("{id}/depth"), &format!("format={format}{query}")).await.is(&[200], query);
        }
    }
    let diff = format!("/dataset/diff?dataset_id={id}&v1=1&v2=2");
    world.call(Method::GET, &diff, "").await.is(&[200], &diff);
    world.get(&format!("/dataset/profile?dataset_id={id}")).await.is(&[200], "a profile");
}

async fn column_names(world: &World, limit: &Limit) {
    // Sixteen names of a MiB together: that of the object, a dot and two digits.
    let entity = |spare: usize| {
        let members: Vec<String> = (10..26).map(|number| format!("\"{number}\":0")).collect();
        let name = "n".repeat(limit.most / 16 - 3);
        format!("[{{\"{name}\":{{{},\"{}\":1}}}}]", members[1..].join(","), "m".repeat(2 + spare))
    };
    let id = world.dataset("Names").await;
    world.push(id, &entity(0)).await.is(&[200], limit.name);
    world.push(id, &entity(1)).await.is(&[200], limit.name);
    for format in ["csv", "parquet"] {
        let query = format!("format={format}");
        let answer = world.get(&format!("/api/{id}/names/v1/?{query}")).await;
        answer.is(&[200], &query);
        assert!(answer.body.len() > if format == "csv" { limit.most } else { 10_000 });
        world.get(&format!("/api/{id}/names/v2/?{query}")).await.is(&[status(limit)], &query);
    }
}

async fn listed(world: &World, limit: &Limit) {
    let page = async |number: usize| {
        let answer = world.call(Method::GET, &format!("/dataset/list?limit={number}"), "").await;
        answer.is(&[200], limit.name);
        answer.json()["datasets"].as_array().expect("datasets").len()
    };
    let catalog = Catalog::of(world).await;
    catalog.fill(limit.most + 1).await;
    assert_eq!((page(limit.most).await, page(limit.most + 1).await), (limit.most, limit.most));
    assert_eq!(page(usize::MAX).await, limit.most);
    // Pages say that there may be more, and count all where it matters.
    let sql = "SELECT COUNT(*) FROM datasets WHERE NOT frozen AND owner_id = \
               (SELECT owner_id FROM datasets WHERE dataset_id = 1)";
    let (active,): (usize,) =
        sqlx::query_as(sql).fetch_one(&catalog.0).await.map(|(active,): (i64,)| (active as usize,)).expect("a number");
    let pages = Pages::of(world).await;
    assert!(pages.get("/").await.contains("1,000 or more in total"));
    let told = format!("<dd>{},{:03} of ", active / 1_000, active % 1_000);
    assert!(active > limit.most && pages.get("/ui/account").await.contains(&told), "{told}");
    catalog.restore().await;
}

async fn history(world: &World, limit: &Limit) {
    let id = world.dataset("History").await;
    let catalog = Catalog::of(world).await;
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
        let most = i64::try_from(limit.most).expect("small");
        let filled = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(most).bind(i64::try_from(id).expect("small"));
        filled.execute(&catalog.0).await.expect("filled");
    }
    for (path, name) in [("/dataset/attempts", "attempts"), ("/webhook/deliveries", "deliveries")] {
        for more in [String::new(), format!("&limit={}", limit.most), format!("&limit={}", limit.most + 1)] {
            let answer = world.call(Method::GET, &format!("{path}?dataset_id={id}{more}"), "").await;
            answer.is(&[200], limit.name);
            assert_eq!(answer.json()[name].as_array().expect("a list").len(), limit.most, "{path}{more}");
        }
    }
    for table in ["webhook_deliveries", "versions", "refresh_attempts"] {
        let sql = format!("DELETE FROM {table} WHERE dataset_id = {id}");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&catalog.0).await.expect("restored");
    }
    catalog.0.close().await;
}

async fn usage_days(world: &World, limit: &Limit) {
    let id = world.dataset("Usage").await;
    let catalog = Catalog::of(world).await;
    let sql = "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < $1)
               INSERT INTO dataset_usage SELECT $2, unixepoch() / 86400 - n, 1, 0, 0, 1 FROM counted";
    let filled = sqlx::query(sql).bind(i64::try_from(limit.most).expect("small"));
    filled.bind(i64::try_from(id).expect("small")).execute(&catalog.0).await.expect("filled");
    for days in [limit.most, limit.most + 1, usize::MAX] {
        let answer = world.call(Method::GET, &format!("/dataset/usage?dataset_id={id}&days={days}"), "").await;
        answer.is(&[200], limit.name);
        assert_eq!(answer.json()["usage"].as_array().expect("days").len(), limit.most, "{days}");
    }
    catalog.0.close().await;
}

async fn listings(world: &World, limit: &Limit) {
    let page = async |number: usize| {
        let answer = world.call(Method::GET, &format!("/datasets?limit={number}"), "").await;
        answer.is(&[200], limit.name);
        answer.json()["datasets"].as_array().expect("datasets").len()
    };
    let catalog = Catalog::of(world).await;
    catalog.fill(limit.most + 1).await;
    catalog.list().await;
    assert_eq!((page(limit.most).await, page(limit.most + 1).await), (limit.most, limit.most));
    assert_eq!(page(usize::MAX).await, limit.most);
    catalog.restore().await;
}

async fn listings_query(world: &World, limit: &Limit) {
    let call = async |characters: usize| {
        let query = "%C3%A9".repeat(characters);
        world.call(Method::GET, &format!("/datasets?q={query}"), "").await
    };
    call(limit.most).await.is(&[200], limit.name);
    call(limit.most + 1).await.is(&[status(limit)], limit.name);
}

/// Datasets that are put into the catalog behind the server's back: many, at once.
struct Catalog(sqlx::SqlitePool);

impl Catalog {
    async fn of(world: &World) -> Catalog {
        let path = world.machine.path("strata-data/catalog.sqlite");
        Catalog(sqlx::SqlitePool::connect(&format!("sqlite://{}", path.display())).await.expect("the catalog"))
    }

    /// As many datasets, all but a few copies of the first.
    async fn fill(&self, datasets: usize) {
        let columns: Vec<(String,)> =
            sqlx::query_as("SELECT name FROM pragma_table_info('datasets')").fetch_all(&self.0).await.expect("columns");
        let own = |column: &str| match column {
            // A copy is not what the checksum was made of.
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
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.0).await.expect("filled");
    }

    /// Lists the copies, with the versions of the first.
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
        sqlx::query(versions).execute(&self.0).await.expect("restored");
        sqlx::query("DELETE FROM datasets WHERE name LIKE 'many-%'").execute(&self.0).await.expect("restored");
        self.0.close().await;
    }
}

async fn url_bytes(world: &World, limit: &Limit) {
    let url = |bytes: usize| {
        let start = "http://127.0.0.1:9/";
        format!("{start}{}", "u".repeat(bytes - start.len()))
    };
    created(world, limit, |most| json!({"name": format!("Url {most}"), "source": url(most)})).await;
    let register = |bytes: usize| json!({"dataset_id": 1, "url": url(bytes)});
    world.post("/webhook/register", &register(limit.most)).await.is(&[200], limit.name);
    world.post("/webhook/register", &register(limit.most + 1)).await.is(&[status(limit)], limit.name);
}

async fn body_values(world: &World, limit: &Limit) {
    // The object, its member's array and what is in there, each counted once for its bracket or comma.
    for (numbers, expected) in [(limit.most - 2, "an array is not valid"), (limit.most - 1, "more than 10000 values")] {
        let answer = world.post("/dataset/update", &json!({"dataset_id": vec![1; numbers]})).await;
        answer.is(&[400], "values of a body");
        assert!(answer.text().contains(expected), "{numbers}: {}", answer.text());
    }
}

async fn first_bracket(world: &World, limit: &Limit) {
    let answer = world.post("/dataset/create", &json!({"name": "Late bracket"})).await;
    let id = answer.json()["dataset"]["dataset_id"].as_u64().expect("an id");
    let push = format!("/dataset/refresh?dataset_id={id}");
    let object = r#"{"entities":[{"a":1}]}"#;
    let at = |place: usize| format!("{}{object}", " ".repeat(place - 1));
    world.call(Method::POST, &push, at(limit.most)).await.is(&[200], limit.name);
    world.call(Method::POST, &push, at(limit.most + 1)).await.is(&[status(limit)], limit.name);
}

async fn index_path_bytes(world: &World, limit: &Limit) {
    // As many names as there may be; versions are written with it, too.
    let path = |bytes: usize| format!("{}a{}", "a.".repeat((bytes - 1) / 2), "b".repeat((bytes - 1) % 2));
    let index = |bytes: usize| json!({"always": [path(bytes)], "never": [format!("{}c", &path(bytes)[..bytes - 1])]});
    created(world, limit, |most| json!({"name": format!("Long index {most}"), "index": index(most)})).await;
    let answer = world.post("/dataset/create", &json!({"name": "Indexed", "index": index(limit.most)})).await;
    let id = answer.json()["dataset"]["dataset_id"].as_u64().expect("an id");
    world.push(id, &format!("[{},{{\"a\":1}}]", nested(128, false))).await.is(&[200], limit.name);
    world.get(&format!("/dataset/profile?dataset_id={id}")).await.is(&[200], "a profile");
}

async fn webhook_secret(world: &World, limit: &Limit) {
    let register = |bytes: usize| json!({"dataset_id": 1, "url": "http://127.0.0.1:9/", "secret": "s".repeat(bytes)});
    world.post("/webhook/register", &register(limit.most)).await.is(&[200], limit.name);
    world.post("/webhook/register", &register(limit.most + 1)).await.is(&[status(limit)], limit.name);
}

async fn form_bytes(world: &World, limit: &Limit) {
    let sent = async |bytes: usize| {
        let form = "email=nobody%40example.test&password=";
        let body = format!("{form}{}", "p".repeat(bytes - form.len()));
        let request = world.client.post(world.url("/ui/sign-in")).body(body);
        world.send(request.header("content-type", "application/x-www-form-urlencoded")).await.status
    };
    assert_eq!((sent(limit.most).await, sent(limit.most + 1).await), (401, status(limit)));
}

/// A browser of the user's.
struct Pages<'w> {
    world: &'w World,
    cookie: String,
}

impl Pages<'_> {
    async fn of(world: &World) -> Pages<'_> {
        let credentials = json!({"email": "ada@example.test", "password": "correct horse"});
        let answer = world.call(Method::POST, "/session/login", credentials.to_string()).await;
        let cookie = answer.headers["set-cookie"].to_str().expect("a cookie");
        Pages { world, cookie: cookie.split(';').next().expect("a pair").to_owned() }
    }

    async fn get(&self, uri: &str) -> String {
        let request = self.world.client.get(self.world.url(uri)).header("cookie", &self.cookie);
        let answer = self.world.send(request).await;
        assert_eq!(answer.status, 200, "{uri}: {}", answer.shown());
        answer.text()
    }

    /// An answer whose body is not read.
    async fn open(&self, uri: &str) -> reqwest::Response {
        let request = self.world.client.get(self.world.url(uri)).header("cookie", &self.cookie);
        request.send().await.expect("an answer")
    }

    /// The fields by which the forms of a page are known.
    async fn hidden(&self, uri: &str) -> String {
        let page = self.get(uri).await;
        let value = |name: &str| {
            let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect(name);
            rest.split('"').next().unwrap_or_default().replace("&#34;", "%22").replace("&quot;", "%22")
        };
        format!("token={}&etag={}", value("token"), value("etag"))
    }

    /// The status of an answer to a form.
    async fn post(&self, uri: &str, form: String) -> u16 {
        let request = self.world.client.post(self.world.url(uri)).header("cookie", &self.cookie);
        self.world.send(request.header("content-type", "application/x-www-form-urlencoded").body(form)).await.status
    }
}

async fn refresh_streams(world: &World, limit: &Limit) {
    let id = world.dataset("Refresh streams").await;
    let (pages, uri) = (Pages::of(world).await, format!("/ui/{id}/refresh-streams/refresh/events"));
    let (mut chunks, body) = mpsc::channel(1);
    chunks.try_send(Ok::<_, std::io::Error>("{\"a\":1}\n")).expect("sent");
    let push = world.client.post(world.url(&format!("/dataset/refresh?dataset_id={id}"))).bearer_auth(&world.token);
    let push = push.header("content-type", "application/x-ndjson").body(reqwest::Body::wrap_stream(body));
    let watched = async {
        let mut streams = Vec::new();
        while streams.len() < limit.most {
            let answer = pages.open(&uri).await;
            match answer.status().as_u16() {
                200 => streams.push(answer),
                other => assert_eq!((other, streams.len()), (204, 0), "the refresh has not begun yet"),
            }
        }
        assert_eq!(pages.open(&uri).await.status(), status(limit));
        chunks.close_channel();
    };
    let (pushed, ()) = tokio::join!(world.send(push), watched);
    pushed.is(&[200], limit.name);
}

async fn user_form(world: &World, limit: &Limit) {
    let pages = Pages::of(world).await;
    let page = pages.get("/ui/account").await;
    let (_, token) = page.split_once("name=\"token\" value=\"").expect("a form");
    let form = format!("token={}&scope=read&days=7&name=", token.split('"').next().unwrap_or_default());
    // A name that is too long is said on the page.
    for (more, expected) in [(0, 400), (1, status(limit))] {
        let form = format!("{form}{}", "x".repeat(limit.most - form.len() + more));
        assert_eq!(pages.post("/ui/account/create-token", form).await, expected, "{more}");
    }
}

async fn editor_form(world: &World, limit: &Limit) {
    let id = world.dataset("Editor form").await;
    world.push(id, "[{\"a\":1}]").await.is(&[200], limit.name);
    let (pages, uri) = (Pages::of(world).await, format!("/ui/{id}/editor-form/v1/alternate/edit"));
    let hidden = pages.hidden(&format!("{uri}?position=0")).await;
    let form = format!("{hidden}&position=0&length=1&do=preview&text=%7B%7D&base=");
    for (more, expected) in [(0, 200), (1, status(limit))] {
        let form = format!("{form}{}", "x".repeat(limit.most - form.len() + more));
        assert_eq!(pages.post(&uri, form).await, expected, "{more}");
    }
}

async fn editor_text(world: &World, limit: &Limit) {
    let id = world.dataset("Editor text").await;
    world.push(id, "[{\"a\":1}]").await.is(&[200], limit.name);
    let (pages, uri) = (Pages::of(world).await, format!("/ui/{id}/editor-text/v1/alternate/edit"));
    let hidden = pages.hidden(&format!("{uri}?position=0")).await;
    let form = format!("{hidden}&position=0&length=1&base=&do=preview&text=");
    for (more, expected) in [(0, 200), (1, status(limit))] {
        let text = format!("%7B%22a%22:%22{}%22%7D", "x".repeat(limit.most - "{\"a\":\"\"}".len() + more));
        assert_eq!(pages.post(&uri, format!("{form}{text}")).await, expected, "{more}");
    }
}

async fn editor_positions(world: &World, limit: &Limit) {
    let id = world.dataset("Editor positions").await;
    let entities = vec!["{\"a\":1}"; limit.most + 1].join(",");
    world.push(id, &format!("[{entities}]")).await.is(&[200], limit.name);
    let (pages, uri) = (Pages::of(world).await, format!("/ui/{id}/editor-positions/v1/alternate/remove"));
    let form = format!("{}&do=preview&positions=0-", pages.hidden(&format!("{uri}?position=0")).await);
    for (last, expected) in [(limit.most - 1, 200), (limit.most, status(limit))] {
        assert_eq!(pages.post(&uri, format!("{form}{last}")).await, expected, "{last}");
    }
}

async fn summary_entities(world: &World, limit: &Limit) {
    let pages = Pages::of(world).await;
    for (more, is_bounded) in [(0, false), (1, true)] {
        let id = world.dataset(&format!("Summary {more}")).await;
        for version in [1, 2] {
            let entity = |n: usize| format!("{{\"n\":{n},\"m\":{n},\"v\":{version}}}");
            let entities: Vec<String> = (0..limit.most + more).map(entity).collect();
            world.push(id, &format!("[{}]", entities.join(","))).await.is(&[200], limit.name);
        }
        let page = pages.get(&format!("/ui/{id}/summary-{more}/diff?v1=1&v2=2")).await;
        assert_eq!(page.contains("This table covers only the first"), is_bounded, "{more}");
    }
}

/// The rows of a page of the dashboard, its head among them.
async fn page_rows(world: &World, uri: &str) -> usize {
    let answer = world.get(uri).await;
    assert_eq!(answer.status, 200, "{uri}: {}", answer.shown());
    answer.text().matches("<tr>").count()
}

async fn page_entities(world: &World, limit: &Limit) {
    for asked in [limit.most, limit.most + 1, usize::MAX] {
        let uri = format!("/ui/{ORDINARY}/active/?keep_field=cca3&limit={asked}");
        assert_eq!(page_rows(world, &uri).await, limit.most + 1, "{asked}");
    }
}

async fn page_bytes(world: &World, limit: &Limit) {
    let id = world.dataset("Pages").await;
    for (more, rows) in [(0, 2), (1, 1)] {
        let long = limit.most - "{\"a\":1}\n{\"a\":\"\"}\n".len() + more;
        world.push(id, &format!("[{{\"a\":1}},{{\"a\":\"{}\"}}]", "x".repeat(long))).await.is(&[200], limit.name);
        assert_eq!(page_rows(world, &format!("/ui/{id}/pages/latest/")).await, rows + 1, "{more}");
    }
}

async fn login_body(world: &World, limit: &Limit) {
    let body = |bytes: usize| {
        let text = json!({"email": "ada@example.test", "password": "correct horse"}).to_string();
        format!("{text}{}", " ".repeat(bytes - text.len()))
    };
    world.call(Method::POST, "/session/login", body(limit.most)).await.is(&[200], limit.name);
    world.call(Method::POST, "/session/login", body(limit.most + 1)).await.is(&[status(limit)], limit.name);
}

async fn password(world: &World, limit: &Limit) {
    let password = "p".repeat(limit.most);
    let add = ["user", "add", "eve@example.test", "--plan", "free"];
    let output = world.machine.run_with_input(&add, &format!("{password}\n"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let longer = ["user", "add", "eva@example.test", "--plan", "free"];
    assert!(!world.machine.run_with_input(&longer, &format!("{password}p\n")).status.success());
    let login = |password: &str| json!({"email": "eve@example.test", "password": password});
    world.post("/session/login", &login(&password)).await.is(&[200], limit.name);
    world.post("/session/login", &login(&format!("{password}p"))).await.is(&[status(limit)], limit.name);
}

async fn email(world: &World, limit: &Limit) {
    assert_eq!(limit.beyond, Beyond::Command);
    for (bytes, taken) in [(limit.most, true), (limit.most + 1, false)] {
        let address = format!("{}@example.test", "e".repeat(bytes - "@example.test".len()));
        let add = ["user", "add", &address, "--plan", "free"];
        let output = world.machine.run_with_input(&add, "correct horse\n");
        assert_eq!(output.status.success(), taken, "{}", String::from_utf8_lossy(&output.stderr));
    }
    let body = json!({"email": "e".repeat(10_000), "password": "x"});
    world.post("/session/login", &body).await.is(&[400, 401], limit.name);
}

async fn token_name(world: &World, limit: &Limit) {
    for (bytes, taken) in [(limit.most, 200), (limit.most + 1, status(limit))] {
        world.post("/token/create", &json!({"name": "t".repeat(bytes)})).await.is(&[taken], limit.name);
    }
    let body = json!({"name": "t".repeat(limit.most)}).to_string();
    world.call(Method::DELETE, "/token/delete", body).await.is(&[200], limit.name);
}

async fn tokens(world: &World, limit: &Limit) {
    // The one that the tests use is among them.
    for number in 1..limit.most {
        world.post("/token/create", &json!({"name": format!("token {number}")})).await.is(&[200], limit.name);
    }
    world.post("/token/create", &json!({"name": "one more"})).await.is(&[status(limit)], limit.name);
}

async fn token_lifetime(world: &World, limit: &Limit) {
    // There is no room for one more, but the lifetime is looked at first.
    for (seconds, status) in [(limit.most, 409), (limit.most + 1, status(limit)), (usize::MAX, status(limit))] {
        let body = json!({"name": "lasting", "expires_in_s": seconds});
        world.post("/token/create", &body).await.is(&[status], limit.name);
    }
}

async fn sessions(world: &World, limit: &Limit) {
    let catalog = Catalog::of(world).await;
    let fill = "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < $1)
                INSERT INTO sessions (session_hash, user_id, data, created_at, expires_at, last_used_at)
                SELECT lower(hex(randomblob(32))), 1, '{}', n, 4000000000000000, n FROM counted";
    sqlx::query(fill).bind(i64::try_from(limit.most).expect("small")).execute(&catalog.0).await.expect("filled");
    let login = json!({"email": "ada@example.test", "password": "correct horse"});
    world.post("/session/login", &login).await.is(&[200], limit.name);
    let sessions: Vec<(i64,)> = sqlx::query_as("SELECT last_used_at FROM sessions WHERE user_id = 1 ORDER BY 1")
        .fetch_all(&catalog.0)
        .await
        .expect("sessions");
    assert_eq!(sessions.len(), limit.most);
    assert!(sessions[0].0 > 1, "the one that was not used the longest has ended");
    sqlx::query("DELETE FROM sessions").execute(&catalog.0).await.expect("restored");
    catalog.0.close().await;
}

async fn tool_message(world: &World, limit: &Limit) {
    let message = |bytes: usize| {
        let plain = calling("list_datasets", "{}");
        let spare = bytes - plain.len() - ",\"pad\":\"\"".len();
        format!("{},\"pad\":\"{}\"}}", &plain[..plain.len() - 1], "x".repeat(spare))
    };
    let taken = world.message(message(limit.most)).await;
    // Past the limit's door; whether a member of this name is known is the protocol's business.
    assert_ne!(taken.status, status(limit), "{}", taken.shown());
    world.message(message(limit.most + 1)).await.is(&[status(limit)], limit.name);
}

async fn tool_depth(world: &World, limit: &Limit) {
    let id = world.dataset("Tool depth").await;
    world.push(id, "[{\"a\":1}]").await.is(&[200], limit.name);
    let pulled = world.post("/agent/pull_for_edit", &json!({"dataset_id": id})).await;
    let etag = pulled.json()["etag"].clone();
    for (levels, taken) in [(limit.most + 1, false), (10_000, false), (limit.most, true)] {
        let entity = nested(levels, false);
        let arguments = format!("{{\"dataset_id\":{id},\"version\":1,\"etag\":{etag},\"entities\":[{entity}]}}");
        let answer = world.message(calling("push_alt_version", &arguments)).await;
        if taken {
            answer.is(&[200], limit.name);
            assert_ne!(answer.json()["result"]["isError"], json!(true), "{}", answer.shown());
        } else {
            answer.is(&[status(limit)], limit.name);
        }
    }
}

async fn tool_listed(world: &World, limit: &Limit) {
    assert_eq!(limit.beyond, Beyond::ToolError);
    let (failed, texts) = world.tool("list_datasets", &json!({"limit": limit.most})).await;
    assert!(!failed, "{texts:?}");
    let (failed, texts) = world.tool("list_datasets", &json!({"limit": limit.most + 1})).await;
    assert!(failed && texts.concat().contains(&format!("1 to {}", limit.most)), "{texts:?}");
}

/// Pushes one entity that takes so many bytes in an array.
async fn of_size(world: &World, name: &str, bytes: usize) -> u64 {
    let id = world.dataset(name).await;
    let text = "x".repeat(bytes - "[{\"a\":\"\"}]".len());
    world.push(id, &format!("[{{\"a\":\"{text}\"}}]")).await.is(&[200], name);
    id
}

async fn tool_result(world: &World, limit: &Limit) {
    for (name, bytes, fails) in [("Exact", limit.most, false), ("Larger", limit.most + 1, true)] {
        let id = of_size(world, &format!("Result {name}"), bytes).await;
        let (failed, texts) = world.tool("read", &json!({"dataset_id": id})).await;
        assert_eq!(failed, fails, "{bytes}: {}", texts.concat().chars().take(200).collect::<String>());
    }
}

async fn tool_pull(world: &World, limit: &Limit) {
    for (name, bytes, fails) in [("Exact", limit.most, false), ("Larger", limit.most + 1, true)] {
        let id = of_size(world, &format!("Pull {name}"), bytes).await;
        let (failed, texts) = world.tool("pull_for_edit", &json!({"dataset_id": id})).await;
        assert_eq!(failed, fails, "{bytes}: {}", texts.concat().chars().take(200).collect::<String>());
    }
    // Names in queries need not be short either.
    world.read(ORDINARY, &format!("sort={}", encoded(&"ä".repeat(5_000)))).await.is(&[200], limit.name);
}
