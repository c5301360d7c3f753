//! The profile of a version: its content against the naive reference, its limits, its access rules, and damage.

use std::path::PathBuf;
use std::process::Command;

use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use serde_json::{Value as Json, json};
use strata_format::cache::PartCache;
use strata_format::profile::{
    DISTINCT, PATH_BYTES, PATHS, PROFILE_KEY, ProfileLocation, ShreddingBounds, StoredProfile,
};
use strata_format::reader::{Unbounded, VersionReader};
use strata_format::verify::verify;
use strata_format::writer::{WriteOptions, Written};
use strata_reference::{Value, formats, hostile};
use strata_service::CheckDepth;
use strata_store::StorageError;
use strata_testing::databases::on_both_databases;
use strata_testing::openapi::Document;
use strata_testing::owned::{Owned, add_user, call, parsed};
use strata_testing::versions::{Files, all_shredded, nothing_shredded, of};
use strata_testing::{Answer, FIXTURE_FILES, fixture, seal};

/// The file with its bytes changed.
fn changed(files: &Files, (path, written): &(ObjectPath, Written), change: impl FnOnce(&mut Vec<u8>)) -> VersionReader {
    let other = ObjectPath::from(format!("{path}.changed"));
    files.bench.runtime.block_on(async {
        let mut bytes = files.store.objects().get(path).await.expect("there").bytes().await.expect("read").to_vec();
        change(&mut bytes);
        files.store.objects().put(&other, bytes.into()).await.expect("put");
    });
    files.open(&(other, written.clone()))
}

/// The error of opening the file with its bytes changed.
fn refused(files: &Files, (path, _): &(ObjectPath, Written), change: impl FnOnce(&mut Vec<u8>)) -> StorageError {
    let other = ObjectPath::from(format!("{path}.refused"));
    files.bench.runtime.block_on(async {
        let mut bytes = files.store.objects().get(path).await.expect("there").bytes().await.expect("read").to_vec();
        change(&mut bytes);
        let size_bytes = bytes.len() as u64;
        files.store.objects().put(&other, bytes.into()).await.expect("put");
        VersionReader::open(&files.store, &other, size_bytes, &PartCache::new(0)).await.expect_err("refused")
    })
}

// ---- what it says ----

#[test]
fn a_profile_says_what_the_reference_says() {
    let files = Files::new();
    // Some entities again, so that values repeat.
    let entities = proptest::collection::vec(hostile::entity(), 0..10);
    let again = proptest::collection::vec(any::<prop::sample::Index>(), 0..12);
    let bounds = prop_oneof![Just(ShreddingBounds::default()), Just(all_shredded()), Just(nothing_shredded())];
    let mut runner = TestRunner::new(PropertyConfig { cases: 64, ..PropertyConfig::default() });
    let result = runner.run(&(entities, again, bounds), |(mut entities, again, shredding)| {
        if !entities.is_empty() {
            entities.extend(again.iter().map(|index| index.get(&entities).clone()).collect::<Vec<_>>());
        }
        check(&files, &entities, &WriteOptions { shredding, ..WriteOptions::default() });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn fixtures_have_the_profile_of_the_reference() {
    let files = Files::new();
    for (_, file, records) in FIXTURE_FILES {
        check(&files, &fixture(file, records)[..200], &WriteOptions::default());
    }
}

fn check(files: &Files, entities: &[Value], options: &WriteOptions) {
    let texts: Vec<String> = entities.iter().map(Value::write).collect();
    let written = files.write(&texts, options);
    let reader = files.open(&written);
    let found = files.bench.runtime.block_on(reader.profile()).expect("undamaged");
    assert_eq!(found, files.profile(&texts, options), "the same entities have the same profile");
    assert_eq!((found.entities, found.document_bytes), (texts.len() as u64, reader.layout().document_bytes));
    assert!(!found.paths_left_out);
    let expected = crate::profile_reference::paths(entities);
    assert_eq!(found.paths.len(), expected.len(), "{}", texts.join("\n"));
    for (record, path) in found.paths.iter().zip(&expected) {
        path.check(record);
        assert_eq!(record.shredded, reader.layout().shredded(&path.keys).is_some(), "{}", record.path);
    }
    let paths = files.bench.runtime.block_on(reader.paths()).expect("undamaged");
    let columns = paths.columns().expect("they are few");
    assert_eq!(columns.names(), formats::columns(entities), "{}", texts.join("\n"));
    files.bench.runtime.block_on(verify(&reader, &mut Unbounded)).expect("undamaged");
}

/// Of what is new in an entity, the walk must see all: an element of an array that none had before, an array that held
/// objects only, a scalar where objects were.
#[test]
fn a_profile_has_the_columns_of_a_table() {
    let files = Files::new();
    let entity = |text: &str| Value::parse(text).expect("JSON");
    for texts in [
        &["{}", r#"{"a":{}}"#][..],
        &[r#"{"a":{"x":1}}"#, r#"{"b":2,"a":3}"#, r#"{"c":null,"a":[]}"#],
        &[r#"{"a":[{"x":1}]}"#, r#"{"a":[{"x":1},{"x":2}]}"#, r#"{"z":1,"a":[{},{},{"y":1}]}"#],
        &[r#"{"a":[{"x":1}]}"#, r#"{"b":1,"a":[1]}"#, r#"{"c":1,"a":[1,{"x":1}]}"#, r#"{"d":1,"a":[{"w":[{"v":1}]}]}"#],
        &[r#"{"a":[[{"x":1}]]}"#, r#"{"a":[{"x":[[]]}]}"#],
        &[r#"{"a":{"b":1},"a.b":2,"a_0_b":3}"#, r#"{"a":[{"b":1}],"_source":"s"}"#],
        &[r#"{"a":[{"x":1},{"y":1}]}"#, r#"{"a":[{"x":2},{"y":2}]}"#, r#"{"a":[{"y":1},{"x":1}],"b":[1,1]}"#],
        &[r#"{"a":[{"x":1,"y":1},{}]}"#, r#"{"a":[{"x":1},{"y":1}]}"#, r#"{"b":[1],"a":[{},{"x":1,"y":1}]}"#],
        &[r#"{"a":[{"b":[{"x":1}]},{}]}"#, r#"{"a":[{"b":[{"x":1},{}]}]}"#, r#"{"a":[{"b":[{}]},{"x":1}]}"#],
        &[r#"{"a":[{"b":[{"x":1}]}],"c":[{"x":1}]}"#, r#"{"a":[{"b":[{}]},{"b":[{"x":1}]}],"c":[1,{"x":1}]}"#],
        &[r#"{"a":[[{"x":1}],{}]}"#, r#"{"a":[[{"x":1},{}]]}"#, r#"{"a":[{"x":1},[{}]]}"#, r#"{"a":[{"x":1},{}]}"#],
        &[r#"{"a":[{"x":{"y":1}}]}"#, r#"{"a":[{"x":{}},{"x":{"y":[]}}]}"#, r#"{"a":[{"x":[{"y":1}]}]}"#],
    ] {
        let entities: Vec<Value> = texts.iter().map(|text| entity(text)).collect();
        check(&files, &entities, &WriteOptions::default());
    }
    // Longer than what is remembered of an array, and more arrays than are.
    let long = |length: usize| format!(r#"{{"a":[{}{{"last":{length}}}]}}"#, r#"{"x":1},"#.repeat(length));
    let texts: Vec<String> = [600, 601, 600, 601, 599].map(long).into_iter().chain((1..400).map(long)).collect();
    let entities: Vec<Value> = texts.iter().map(|text| entity(text)).collect();
    check(&files, &entities, &WriteOptions::default());
    // More than are kept: a table finds them by itself.
    let wide: Vec<String> = (0..20)
        .map(|row| {
            let fields: Vec<String> = (0..600).map(|column| format!("\"k{}\":1", row * 600 + column)).collect();
            format!("{{{}}}", fields.join(","))
        })
        .collect();
    let reader = files.open(&files.write(&wide, &WriteOptions::default()));
    let paths = files.bench.runtime.block_on(reader.paths()).expect("undamaged");
    assert!(paths.columns().is_none());
}

#[test]
fn many_values_have_estimated_counts_and_exact_ends() {
    const COUNT: u64 = 60_000;
    let scrambled = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let entities: Vec<String> = (0..COUNT)
        .map(|number| {
            let hot = if number % 5 == 0 { "\"hot\"".to_owned() } else { format!("\"cold {number}\"") };
            let decimal = scrambled(number) % 1_000_000;
            format!(
                r#"{{"id":"{:x}","hot":{hot},"few":{},"price":{}.{:03},"list":[{},{},{}],"exactly":{}}}"#,
                scrambled(number),
                number % 7,
                decimal / 1_000,
                decimal % 1_000,
                number,
                number % 3,
                number % 2,
                number % DISTINCT as u64,
            )
        })
        .collect();
    let files = Files::new();
    let found = files.profile(&entities, &WriteOptions::default());
    let near = |found: u64, expected: u64, share: f64| {
        assert!(found.abs_diff(expected) as f64 <= expected as f64 * share, "{found} for {expected}");
    };
    let id = of(&found, "id");
    assert!(id.distinct.estimated && id.top.is_empty() && id.top_estimated, "{id:?}");
    near(id.distinct.count, COUNT, 0.08);
    let texts = (0..COUNT).map(|number| format!("{:x}", scrambled(number)));
    assert_eq!(id.string_min.as_ref().map(|value| &value.value), texts.clone().min().map(Json::from).as_ref());
    assert_eq!(id.string_max.as_ref().map(|value| &value.value), texts.max().map(Json::from).as_ref());

    let hot = of(&found, "hot");
    near(hot.distinct.count, 48_001, 0.08);
    assert_eq!((&hot.top[0].value, hot.top.len(), hot.top_estimated), (&json!("hot"), 1, true));
    near(hot.top[0].count, COUNT / 5, 0.1);

    let few = of(&found, "few");
    assert_eq!((few.distinct.count, few.distinct.estimated, few.top_estimated), (7, false, false));
    let top: Vec<_> = few.top.iter().map(|top| (top.value.to_string(), top.count)).collect();
    assert_eq!(top[..2], [("0".to_owned(), 8_572), ("1".to_owned(), 8_572)]);
    assert_eq!(top.iter().map(|(_, count)| count).sum::<u64>(), COUNT);

    let price = of(&found, "price");
    let values = (0..COUNT).map(|number| scrambled(number) % 1_000_000);
    let text = |value: u64| format!("{}.{:03}", value / 1_000, value % 1_000);
    let shown =
        |value: &Option<strata_format::profile::ValueRecord>| value.as_ref().expect("numbers").value.to_string();
    assert_eq!(shown(&price.number_min), text(values.clone().min().expect("a number")));
    assert_eq!(shown(&price.number_max), text(values.max().expect("a number")));

    let list = of(&found, "list");
    assert_eq!((list.types.number, list.types.array, list.fans_out), (3 * COUNT, COUNT, true));
    // Two of the three are as frequent, for all that a sample tells.
    let mut frequent: Vec<_> = list.top.iter().map(|top| top.value.to_string()).collect();
    frequent[..2].sort_unstable();
    assert_eq!(frequent, ["0", "1", "2"]);
    near(list.top[0].count, COUNT / 3 + COUNT / 2, 0.1);

    // As many as are counted one by one, and one more.
    let exactly = of(&found, "exactly");
    assert_eq!((exactly.distinct.count, exactly.distinct.estimated), (DISTINCT as u64, false));
    let more: Vec<String> = (0..=DISTINCT).map(|number| format!(r#"{{"more":{number}}}"#)).collect();
    let more = files.profile(&more, &WriteOptions::default());
    assert!(more.paths[0].distinct.estimated);
    near(more.paths[0].distinct.count, DISTINCT as u64 + 1, 0.08);
    assert!(more.paths[0].distinct.count > DISTINCT as u64, "as many as were counted");
}

// ---- bounds ----

#[test]
fn a_profile_is_bounded_whatever_the_entities_are() {
    let files = Files::new();
    let many: Vec<String> =
        (0..PATHS as u64 + 2_000).map(|number| format!(r#"{{"k":1,"p{number}":{number}}}"#)).collect();
    let found = files.profile(&many, &WriteOptions::default());
    assert!(found.paths_left_out);
    assert_eq!(found.paths.len(), PATHS - 1, "all but the entity itself");
    assert_eq!(of(&found, "k").entities, many.len() as u64);

    // Names of which 10,000 would be 10 MB: the rarest are left out.
    let name = |number: usize| format!("{number}{}", "n".repeat(1_000));
    let long: Vec<String> = (0..9_000)
        .map(|number| format!(r#"{{"{}":"x","{}":"y"}}"#, name(number), if number % 2 == 0 { "even" } else { "odd" }))
        .chain((8_000..9_000).map(|number| format!(r#"{{"{}":"x"}}"#, name(number))))
        .collect();
    let written = files.write(&long, &WriteOptions::default());
    let reader = files.open(&written);
    let found = files.bench.runtime.block_on(reader.profile()).expect("undamaged");
    assert!(found.paths_left_out && (1_000..8_000).contains(&found.paths.len()), "{}", found.paths.len());
    for path in ["even", "odd", &name(8_000), &name(8_999)] {
        of(&found, path);
    }
    let order: Vec<u64> =
        found.paths.iter().filter_map(|record| record.path.trim_end_matches('n').parse().ok()).collect();
    assert!(order.is_sorted(), "in the order of first appearance");

    // A path repeats the keys above it: these would have 50 MB of paths, of 10 kB of entities.
    let above = "k".repeat(PATH_BYTES);
    let below: Vec<String> = (0..PATHS / 2).map(|number| format!(r#""{number}":1"#)).collect();
    let deep = format!(r#"{{"short":{{"a":1}},"{above}":{{{}}},"{}":1}}"#, below.join(","), &above[1..]);
    let found = files.profile(&[deep], &WriteOptions::default());
    let listed: Vec<(&str, bool)> = found.paths.iter().map(|record| (record.path.as_str(), record.shredded)).collect();
    assert_eq!(listed, [("short", false), ("short.a", true), (&above[1..], true)]);
    assert!(found.paths_left_out);

    let huge = format!(
        r#"{{"text":"{}","number":{},"raw":"{}"}}"#,
        "ä".repeat(1 << 20),
        "7".repeat(1 << 20),
        "\\n".repeat(1 << 20)
    );
    let found = files.profile(&[huge.clone(), huge], &WriteOptions::default());
    let text = of(&found, "text");
    assert_eq!(
        text.string_max.as_ref().map(|value| (value.value.clone(), value.cut)),
        Some((json!("ä".repeat(40)), true))
    );
    assert_eq!((text.top[0].count, text.top[0].cut, &text.top[0].value), (2, true, &json!("ä".repeat(40))));
    assert_eq!(
        of(&found, "number").number_min.as_ref().map(|value| (value.value.clone(), value.cut)),
        Some((json!("7".repeat(80)), true))
    );
    assert_eq!(of(&found, "raw").string_min.as_ref().map(|value| value.value.clone()), Some(json!("\n".repeat(80))));
    assert!(serde_json::to_string(&found).expect("JSON").len() < 4_000);
}

// ---- files ----

/// Where the profile lies, as any Parquet reader sees it.
fn location(bytes: &[u8]) -> ProfileLocation {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(bytes)).expect("Parquet");
    let pairs = reader.metadata().file_metadata().key_value_metadata().expect("pairs");
    let pair = pairs.iter().find(|pair| pair.key == PROFILE_KEY).expect("a profile");
    serde_json::from_str(pair.value.as_deref().expect("a value")).expect("a place")
}

/// Takes the location of the profile out of the footer.
fn forget_profile(bytes: &mut [u8]) {
    let key = PROFILE_KEY.as_bytes();
    let at = bytes.windows(key.len()).rposition(|window| window == key).expect("the key");
    bytes[at..at + key.len()].copy_from_slice(b"strata.another");
    seal(bytes);
}

fn some_entities() -> Vec<String> {
    (0..100).map(|number| format!(r#"{{"n":{number},"name":"Name {}"}}"#, number % 10)).collect()
}

#[test]
fn missing_or_damaged_profile_is_noticed() {
    let files = Files::new();
    let written = files.write(&some_entities(), &WriteOptions::default());
    let error = refused(&files, &written, |bytes| forget_profile(bytes));
    assert!(error.to_string().contains("its profile is misplaced"), "{error}");
    let profile = |reader: &VersionReader| files.bench.runtime.block_on(reader.profile());

    for part in 0..4 {
        let damaged = changed(&files, &written, |bytes| {
            let place = location(bytes);
            bytes[(place.offset + part * (place.length - 1) / 3) as usize] ^= 0x10;
        });
        for error in
            [profile(&damaged).map(drop), files.bench.runtime.block_on(verify(&damaged, &mut Unbounded)).map(drop)]
        {
            let told = error.expect_err("damaged").to_string();
            assert!(told.contains("is damaged: the profile: it does not match its checksum"), "{told}");
        }
        assert_eq!(damaged.entity_count(), 100, "what reads need is there");
    }
    // Another version's profile in the place of this one's.
    assert!(StoredProfile::decode(b"x").is_err());
    assert!(StoredProfile::decode(&zstd::bulk::compress(b"{}", 1).expect("compressed")).is_err());
    let bomb = zstd::bulk::compress(&vec![b' '; 64 << 20], 1).expect("compressed");
    assert!(StoredProfile::decode(&bomb).is_err());
}

#[test]
fn other_readers_open_a_file_with_a_profile() {
    const SCRIPT: &str = "
import sys, duckdb, pyarrow.parquet
path = sys.argv[1]
table = pyarrow.parquet.read_table(path, columns=['document'])
print(table.num_rows, duckdb.sql(f\"SELECT count(*), max(length(document)) FROM '{path}'\").fetchone())
";
    let files = Files::new();
    let (path, _) = files.write(&some_entities(), &WriteOptions::default());
    let bytes = files
        .bench
        .runtime
        .block_on(async { files.store.objects().get(&path).await.expect("there").bytes().await.expect("read") });
    assert!(location(&bytes).length > 100);
    let file = files.bench.directory().join("version.parquet");
    std::fs::write(&file, &bytes).expect("written");
    let python = strata_testing::binary::target_directory().join("python-tools").join("bin/python");
    assert!(python.exists(), "{} is missing; ./tests/run installs it", python.display());
    let output = Command::new(python).arg("-c").arg(SCRIPT).arg(&file).output().expect("the script runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.trim(), "100 (100, 24)", "{}", String::from_utf8_lossy(&output.stderr));
}

// ---- over HTTP ----

on_both_databases! {
    Owned:
    profile_is_public_if_the_dataset_is
    what_is_asked_wrongly_is_named
}

/// A call of somebody, whose answer the OpenAPI document must describe.
async fn get(owned: &Owned, token: Option<&str>, query: &str) -> Answer {
    let document = Document::of(&owned.service).await;
    let uri = format!("/dataset/profile?{query}");
    let answer = match token {
        Some(token) => call(&owned.service, token, "GET", &uri, "").await,
        None => owned.service.get(&uri).await,
    };
    document.describes_call("GET", "/dataset/profile", &answer);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    answer
}

async fn profile_is_public_if_the_dataset_is(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1},{"a":2.50}]"#, r#"[{"b":{"c":null}}]"#]).await;
    let hidden = owned.dataset("Hidden", json!({"private": true}), &[r#"[{"a":1}]"#]).await;
    let (_, other) = add_user(&owned.service, "other@strata.test", strata_types::user::Plan::Free).await;
    let own = async |query: &str| owned.call("GET", &format!("/dataset/profile?{query}"), "").await;

    let answer = own(&format!("dataset_id={id}&version=1")).await;
    assert!(answer.header("x-ratelimit-limit").is_none(), "a user's calls do not count");
    let profile = parsed(&answer)["profile"].clone();
    let names: Vec<&String> = profile.as_object().expect("a record").keys().collect();
    let expected = [
        "dataset_id",
        "version",
        "alt",
        "file_size_bytes",
        "entities",
        "document_bytes",
        "paths_left_out",
        "index",
        "paths",
    ];
    assert_eq!(names, expected);
    assert_eq!((&profile["dataset_id"], &profile["version"], &profile["alt"]), (&json!(id), &json!(1), &json!(false)));
    assert_eq!(profile["file_size_bytes"], owned.versions(id).await[1]["file_size_bytes"]);
    assert_eq!((&profile["entities"], &profile["document_bytes"]), (&json!(2), &json!(17)));
    let record = r#"[{"path":"a","entities":2,"types":{"null":0,"boolean":0,"number":2,"string":0,"object":0,"array":0},"fans_out":false,"text_bytes":5,"distinct":{"count":2,"estimated":false},"number_min":{"value":1,"cut":false},"number_max":{"value":2.50,"cut":false},"string_min":null,"string_max":null,"top":[],"top_estimated":false,"shredded":true,"why_not_shredded":null}]"#;
    assert_eq!(profile["paths"].to_string(), record);

    for query in ["", "&version=active", "&version=latest", "&version=v2", "&version=2", "&alt=false"] {
        let profile = parsed(&own(&format!("dataset_id={id}{query}")).await)["profile"].clone();
        assert_eq!((&profile["version"], &profile["paths"][1]["path"]), (&json!(2), &json!("b.c")), "{query}");
        assert_eq!(profile["paths"][0]["why_not_shredded"], json!("no_scalar"));
    }
    parsed(&owned.save(id, 2, r#"[{"edited":true}]"#).await);
    let alt = parsed(&own(&format!("dataset_id={id}&alt=true")).await)["profile"].clone();
    assert_eq!(
        (&alt["alt"], &alt["paths"][0]["path"], alt["paths"][0]["types"]["boolean"].as_u64()),
        (&json!(true), &json!("edited"), Some(1))
    );

    // Everybody sees the same of what is public.
    let public = format!("dataset_id={id}&version=1");
    for token in [None, Some(other.as_str())] {
        let answer = get(&owned, token, &public).await;
        assert_eq!(parsed(&answer)["profile"], profile);
        // Scripts of any origin may read what nobody in particular asks for.
        let origin = token.is_none().then_some("*");
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        let exposed = answer.header("access-control-expose-headers");
        assert_eq!(exposed.is_some_and(|exposed| exposed.contains("X-RateLimit-Remaining")), token.is_none());
    }
    for wrong in ["dataset_id=x", "dataset_id=1000000", &format!("dataset_id={id}&version=9")] {
        let answer = get(&owned, None, wrong).await;
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{wrong}: {}", answer.status);
    }
    // And nobody learns which private ones there are.
    parsed(&own(&format!("dataset_id={hidden}")).await);
    let (nobody, missing) =
        (get(&owned, None, &format!("dataset_id={hidden}")).await, get(&owned, None, "dataset_id=1000000").await);
    nobody.is_error(401);
    assert_eq!(
        (nobody.status, nobody.text(), nobody.header("www-authenticate")),
        (401, missing.text(), Some("Bearer"))
    );
    assert_eq!(missing.status, 401);
    let (theirs, missing) = (
        get(&owned, Some(&other), &format!("dataset_id={hidden}")).await,
        get(&owned, Some(&other), "dataset_id=1000000").await,
    );
    theirs.is_error(404);
    assert_eq!((missing.status, missing.text()), (404, theirs.text()));
    // A token that is none is not nobody.
    get(&owned, Some("strata_00"), &public).await.is_error(401);

    // Frozen: the owner's alone.
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    get(&owned, None, &public).await.is_error(410);
    get(&owned, Some(&other), &public).await.is_error(410);
    assert_eq!(parsed(&own(&format!("dataset_id={id}")).await)["profile"]["version"], json!(1));
}

async fn what_is_asked_wrongly_is_named(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let empty = owned.dataset("Empty", json!({}), &[]).await;
    for (query, status, word) in [
        (String::new(), 400, "dataset_id"),
        ("dataset_id=x".to_owned(), 400, "dataset_id"),
        ("dataset_id=1&dataset_id=1".to_owned(), 400, "dataset_id"),
        (format!("dataset_id={id}&version=V1"), 400, "version"),
        (format!("dataset_id={id}&version="), 400, "version"),
        (format!("dataset_id={id}&version=01"), 400, "version"),
        (format!("dataset_id={id}&version=1&version=1"), 400, "version"),
        (format!("dataset_id={id}&alt=yes"), 400, "alt"),
        (format!("dataset_id={id}&version=2"), 404, "no version 2"),
        (format!("dataset_id={id}&version=99999999999999999999"), 404, "no version"),
        (format!("dataset_id={id}&alt=1"), 404, "no alternate"),
        (format!("dataset_id={empty}"), 404, "no active version"),
        (format!("dataset_id={empty}&version=latest"), 404, "no versions yet"),
    ] {
        let answer = owned.call("GET", &format!("/dataset/profile?{query}"), "").await;
        answer.is_error(status);
        assert!(answer.text().contains(word), "{query}: {}", answer.text());
        let nobody = get(&owned, None, &query).await;
        assert_eq!((nobody.status, nobody.text()), (status, answer.text()), "{query}");
    }
    let posted = owned.call("POST", "/dataset/profile", "{}").await;
    posted.is_error(405);
    assert_eq!(posted.header("allow"), Some("GET,HEAD"));
    assert_eq!(parsed(&get(&owned, None, &format!("dataset_id={id}")).await)["profile"]["paths"], json!([]));
}

#[tokio::test]
async fn a_check_notices_a_damaged_profile() {
    let owned = Owned::sqlite().await;
    owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let [file]: [PathBuf; 1] = owned.service.version_files().try_into().expect("one file");
    let mut bytes = std::fs::read(&file).expect("read");
    let place = location(&bytes);
    bytes[(place.offset + place.length / 2) as usize] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let mut told = Vec::new();
    let mut tell = |finding: &strata_service::Finding| told.push(format!("{finding:?}"));
    let found = owned.service.services.maintenance.check(CheckDepth::Everything, &mut tell).await.expect("checked");
    assert_eq!((found.damaged, told.len()), (1, 1), "{told:?}");
    assert!(told[0].contains("it cannot be read: the profile: "), "{told:?}");
    let answer = owned.service.beside(|_| {}).await.get("/dataset/profile?dataset_id=1").await;
    answer.is_error(500);
}

#[tokio::test]
async fn calls_of_nobody_count_with_public_reads() {
    let owned = Owned::configured(|config| config.limits.public_per_minute = 3, None).await;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let query = format!("dataset_id={id}");
    // One that is refused for its parameters does not count; one for what is not there does.
    for (query, status, left) in [("", 400, None), (&query, 200, Some("2")), ("dataset_id=99", 401, Some("1"))] {
        let answer = get(&owned, None, query).await;
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (status, left), "{query}");
    }
    assert_eq!(owned.service.get(&format!("/api/{id}/things/v1/")).await.status, 200);
    let answer = get(&owned, None, &query).await;
    answer.is_error(429);
    assert!(answer.header("retry-after").is_some());
    parsed(&owned.call("GET", &format!("/dataset/profile?{query}"), "").await);
}

/// A token could read profiles at any rate.
#[tokio::test]
async fn profile_calls_with_a_token_are_limited() {
    let owned = Owned::configured(|config| config.limits.private_per_minute = 1, None).await;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let uri = format!("/dataset/profile?dataset_id={id}");
    let first = owned.call("GET", &uri, "").await;
    assert_eq!((first.status, first.header("x-ratelimit-remaining")), (200, Some("0")));
    let second = owned.call("GET", &uri, "").await;
    second.is_error(429);
    assert!(second.header("retry-after").is_some());
    // The public limit is another one.
    assert_eq!(get(&owned, None, &format!("dataset_id={id}")).await.status, 200);
}
