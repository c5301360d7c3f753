//! The profile of a version: comparison with the naive reference, limits, access control, and damage.

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
    MAX_EXACT_DISTINCT, MAX_PROFILE_PATH_BYTES, MAX_PROFILE_PATHS, PROFILE_KEY, ProfileLocation, ShreddingLimits,
    StoredProfile,
};
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::verify::verify_and_hash;
use strata_format::writer::{WriteOptions, WrittenVersionFile};
use strata_reference::{Value, formats, hostile};
use strata_service::CheckDepth;
use strata_store::StorageError;
use strata_testing::databases::on_both_databases;
use strata_testing::openapi::Document;
use strata_testing::owned::{Owned, add_user, call, parsed};
use strata_testing::versions::{Files, all_shredded, nothing_shredded, path_record};
use strata_testing::{Answer, FIXTURE_FILES, fixture, seal};

/// Opens a copy of the file with changed bytes.
fn changed(
    files: &Files,
    (path, written): &(ObjectPath, WrittenVersionFile),
    change: impl FnOnce(&mut Vec<u8>),
) -> VersionReader {
    let other = ObjectPath::from(format!("{path}.changed"));
    files.bench.runtime.block_on(async {
        let bytes = files.store.object_store().get(path).await.expect("failed to get object").bytes().await;
        let mut bytes = bytes.expect("failed to get bytes").to_vec();
        change(&mut bytes);
        files.store.object_store().put(&other, bytes.into()).await.expect("failed to put object");
    });
    files.open(&(other, written.clone()))
}

/// Returns the error of opening a copy of the file with changed bytes.
fn open_error(
    files: &Files,
    (path, _): &(ObjectPath, WrittenVersionFile),
    change: impl FnOnce(&mut Vec<u8>),
) -> StorageError {
    let other = ObjectPath::from(format!("{path}.refused"));
    files.bench.runtime.block_on(async {
        let bytes = files.store.object_store().get(path).await.expect("failed to get object").bytes().await;
        let mut bytes = bytes.expect("failed to get bytes").to_vec();
        change(&mut bytes);
        let size_bytes = bytes.len() as u64;
        files.store.object_store().put(&other, bytes.into()).await.expect("failed to put object");
        let opened = VersionReader::open(&files.store, &other, size_bytes, &PartCache::new(0)).await;
        opened.expect_err("opened a damaged file")
    })
}

// ---- content ----

#[test]
fn profile_matches_the_reference() {
    let files = Files::new();
    // Some entities occur repeatedly, so that values repeat.
    let entities = proptest::collection::vec(hostile::entity(), 0..10);
    let again = proptest::collection::vec(any::<prop::sample::Index>(), 0..12);
    let limits = prop_oneof![Just(ShreddingLimits::default()), Just(all_shredded()), Just(nothing_shredded())];
    let mut runner = TestRunner::new(PropertyConfig { cases: 64, ..PropertyConfig::default() });
    let result = runner.run(&(entities, again, limits), |(mut entities, again, shredding_limits)| {
        if !entities.is_empty() {
            entities.extend(again.iter().map(|index| index.get(&entities).clone()).collect::<Vec<_>>());
        }
        check(&files, &entities, &WriteOptions { shredding_limits, ..WriteOptions::default() });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn profile_of_fixtures_matches_the_reference() {
    let files = Files::new();
    for (_, file, records) in FIXTURE_FILES {
        check(&files, &fixture(file, records)[..200], &WriteOptions::default());
    }
}

fn check(files: &Files, entities: &[Value], options: &WriteOptions) {
    let texts: Vec<String> = entities.iter().map(Value::write).collect();
    let written = files.write(&texts, options);
    let reader = files.open(&written);
    let profile = files.bench.runtime.block_on(reader.profile()).expect("failed to read profile");
    assert_eq!(profile, files.profile(&texts, options), "equal entities have different profiles");
    assert_eq!((profile.entities, profile.document_bytes), (texts.len() as u64, reader.layout().document_bytes));
    assert!(!profile.paths_left_out);
    let expected = crate::profile_reference::paths(entities);
    assert_eq!(profile.paths.len(), expected.len(), "{}", texts.join("\n"));
    for (record, path) in profile.paths.iter().zip(&expected) {
        path.check(record);
        assert_eq!(record.shredded, reader.layout().find_shredded(&path.keys).is_some(), "{}", record.path);
    }
    let paths = files.bench.runtime.block_on(reader.profile_paths()).expect("failed to read paths");
    let columns = paths.columns().expect("failed to find columns");
    assert_eq!(columns.names(), formats::columns(entities), "{}", texts.join("\n"));
    files.bench.runtime.block_on(verify_and_hash(&reader, &mut NoReadThrottle)).expect("failed to verify file");
}

/// The walk must detect all entities with new columns: a new array element, a first scalar in an array of objects, or a
/// scalar in place of an object.
#[test]
fn profile_contains_all_table_columns() {
    let files = Files::new();
    let entity = |text: &str| Value::parse(text).expect("failed to parse entity");
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
    // An array that exceeds the structure limit, and more arrays than the total limit.
    let long = |length: usize| format!(r#"{{"a":[{}{{"last":{length}}}]}}"#, r#"{"x":1},"#.repeat(length));
    let texts: Vec<String> = [600, 601, 600, 601, 599].map(long).into_iter().chain((1..400).map(long)).collect();
    let entities: Vec<Value> = texts.iter().map(|text| entity(text)).collect();
    check(&files, &entities, &WriteOptions::default());
    // Too many columns for a profile.
    let wide: Vec<String> = (0..20)
        .map(|row| {
            let fields: Vec<String> = (0..600).map(|column| format!("\"k{}\":1", row * 600 + column)).collect();
            format!("{{{}}}", fields.join(","))
        })
        .collect();
    let reader = files.open(&files.write(&wide, &WriteOptions::default()));
    let paths = files.bench.runtime.block_on(reader.profile_paths()).expect("failed to read paths");
    assert!(paths.columns().is_none());
}

#[test]
fn many_values_have_estimated_counts_and_exact_bounds() {
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
                number % MAX_EXACT_DISTINCT as u64,
            )
        })
        .collect();
    let files = Files::new();
    let profile = files.profile(&entities, &WriteOptions::default());
    let check_near = |actual: u64, expected: u64, share: f64| {
        assert!(actual.abs_diff(expected) as f64 <= expected as f64 * share, "{actual} for {expected}");
    };
    let id = path_record(&profile, "id");
    assert!(id.distinct.estimated && id.top.is_empty() && id.top_estimated, "{id:?}");
    check_near(id.distinct.count, COUNT, 0.08);
    let texts = (0..COUNT).map(|number| format!("{:x}", scrambled(number)));
    assert_eq!(id.string_min.as_ref().map(|value| &value.value), texts.clone().min().map(Json::from).as_ref());
    assert_eq!(id.string_max.as_ref().map(|value| &value.value), texts.max().map(Json::from).as_ref());

    let hot = path_record(&profile, "hot");
    check_near(hot.distinct.count, 48_001, 0.08);
    assert_eq!((&hot.top[0].value, hot.top.len(), hot.top_estimated), (&json!("hot"), 1, true));
    check_near(hot.top[0].count, COUNT / 5, 0.1);

    let few = path_record(&profile, "few");
    assert_eq!((few.distinct.count, few.distinct.estimated, few.top_estimated), (7, false, false));
    let top: Vec<_> = few.top.iter().map(|top| (top.value.to_string(), top.count)).collect();
    assert_eq!(top[..2], [("0".to_owned(), 8_572), ("1".to_owned(), 8_572)]);
    assert_eq!(top.iter().map(|(_, count)| count).sum::<u64>(), COUNT);

    let price = path_record(&profile, "price");
    let values = (0..COUNT).map(|number| scrambled(number) % 1_000_000);
    let text = |value: u64| format!("{}.{:03}", value / 1_000, value % 1_000);
    let shown = |value: &Option<strata_format::profile::ValueRecord>| {
        value.as_ref().expect("failed to find bound").value.to_string()
    };
    assert_eq!(shown(&price.number_min), text(values.clone().min().expect("failed to find minimum")));
    assert_eq!(shown(&price.number_max), text(values.max().expect("failed to find maximum")));

    let list = path_record(&profile, "list");
    assert_eq!((list.types.number, list.types.array, list.fans_out), (3 * COUNT, COUNT, true));
    // Two of the three values are equally frequent, as far as a sample shows.
    let mut frequent: Vec<_> = list.top.iter().map(|top| top.value.to_string()).collect();
    frequent[..2].sort_unstable();
    assert_eq!(frequent, ["0", "1", "2"]);
    check_near(list.top[0].count, COUNT / 3 + COUNT / 2, 0.1);

    // The max number of exactly counted values, and one more.
    let exactly = path_record(&profile, "exactly");
    assert_eq!((exactly.distinct.count, exactly.distinct.estimated), (MAX_EXACT_DISTINCT as u64, false));
    let beyond: Vec<String> = (0..=MAX_EXACT_DISTINCT).map(|number| format!(r#"{{"more":{number}}}"#)).collect();
    let beyond = files.profile(&beyond, &WriteOptions::default());
    assert!(beyond.paths[0].distinct.estimated);
    check_near(beyond.paths[0].distinct.count, MAX_EXACT_DISTINCT as u64 + 1, 0.08);
    assert!(beyond.paths[0].distinct.count > MAX_EXACT_DISTINCT as u64, "the estimate is below the exact minimum");
}

// ---- limits ----

#[test]
fn profile_is_limited_for_any_entities() {
    let files = Files::new();
    let many: Vec<String> =
        (0..MAX_PROFILE_PATHS as u64 + 2_000).map(|number| format!(r#"{{"k":1,"p{number}":{number}}}"#)).collect();
    let profile = files.profile(&many, &WriteOptions::default());
    assert!(profile.paths_left_out);
    assert_eq!(profile.paths.len(), MAX_PROFILE_PATHS - 1, "all nodes but the root");
    assert_eq!(path_record(&profile, "k").entities, many.len() as u64);

    // 10,000 of these paths would have 10 MB, so the rarest are omitted.
    let name = |number: usize| format!("{number}{}", "n".repeat(1_000));
    let long: Vec<String> = (0..9_000)
        .map(|number| format!(r#"{{"{}":"x","{}":"y"}}"#, name(number), if number % 2 == 0 { "even" } else { "odd" }))
        .chain((8_000..9_000).map(|number| format!(r#"{{"{}":"x"}}"#, name(number))))
        .collect();
    let written = files.write(&long, &WriteOptions::default());
    let reader = files.open(&written);
    let profile = files.bench.runtime.block_on(reader.profile()).expect("failed to read profile");
    assert!(profile.paths_left_out && (1_000..8_000).contains(&profile.paths.len()), "{}", profile.paths.len());
    for path in ["even", "odd", &name(8_000), &name(8_999)] {
        path_record(&profile, path);
    }
    let order: Vec<u64> =
        profile.paths.iter().filter_map(|record| record.path.trim_end_matches('n').parse().ok()).collect();
    assert!(order.is_sorted(), "the paths are not in the order of first appearance");

    // A path repeats the keys of its ancestors: these paths would have 50 MB, although the entity has 10 kB.
    let parent = "k".repeat(MAX_PROFILE_PATH_BYTES);
    let children: Vec<String> = (0..MAX_PROFILE_PATHS / 2).map(|number| format!(r#""{number}":1"#)).collect();
    let deep = format!(r#"{{"short":{{"a":1}},"{parent}":{{{}}},"{}":1}}"#, children.join(","), &parent[1..]);
    let profile = files.profile(&[deep], &WriteOptions::default());
    let paths: Vec<(&str, bool)> = profile.paths.iter().map(|record| (record.path.as_str(), record.shredded)).collect();
    assert_eq!(paths, [("short", false), ("short.a", true), (&parent[1..], true)]);
    assert!(profile.paths_left_out);

    let huge = format!(
        r#"{{"text":"{}","number":{},"raw":"{}"}}"#,
        "ä".repeat(1 << 20),
        "7".repeat(1 << 20),
        "\\n".repeat(1 << 20)
    );
    let profile = files.profile(&[huge.clone(), huge], &WriteOptions::default());
    let text = path_record(&profile, "text");
    assert_eq!(
        text.string_max.as_ref().map(|value| (value.value.clone(), value.cut)),
        Some((json!("ä".repeat(40)), true))
    );
    assert_eq!((text.top[0].count, text.top[0].cut, &text.top[0].value), (2, true, &json!("ä".repeat(40))));
    assert_eq!(
        path_record(&profile, "number").number_min.as_ref().map(|value| (value.value.clone(), value.cut)),
        Some((json!("7".repeat(80)), true))
    );
    assert_eq!(
        path_record(&profile, "raw").string_min.as_ref().map(|value| value.value.clone()),
        Some(json!("\n".repeat(80)))
    );
    assert!(serde_json::to_string(&profile).expect("failed to serialize profile").len() < 4_000);
}

// ---- files ----

/// Returns the location of the profile, read with a standard Parquet reader.
fn location(bytes: &[u8]) -> ProfileLocation {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(bytes)).expect("failed to open Parquet file");
    let pairs = reader.metadata().file_metadata().key_value_metadata().expect("failed to find metadata");
    let pair = pairs.iter().find(|pair| pair.key == PROFILE_KEY).expect("failed to find profile");
    serde_json::from_str(pair.value.as_deref().expect("failed to find value")).expect("failed to parse location")
}

/// Removes the location of the profile from the footer.
fn remove_profile_location(bytes: &mut [u8]) {
    let key = PROFILE_KEY.as_bytes();
    let offset = bytes.windows(key.len()).rposition(|window| window == key).expect("failed to find key");
    bytes[offset..offset + key.len()].copy_from_slice(b"strata.another");
    seal(bytes);
}

fn some_entities() -> Vec<String> {
    (0..100).map(|number| format!(r#"{{"n":{number},"name":"Name {}"}}"#, number % 10)).collect()
}

#[test]
fn missing_or_damaged_profile_is_detected() {
    let files = Files::new();
    let written = files.write(&some_entities(), &WriteOptions::default());
    let error = open_error(&files, &written, |bytes| remove_profile_location(bytes));
    assert!(error.to_string().contains("its profile is misplaced"), "{error}");
    let profile = |reader: &VersionReader| files.bench.runtime.block_on(reader.profile());

    for part in 0..4 {
        let damaged = changed(&files, &written, |bytes| {
            let ProfileLocation { offset, length, .. } = location(bytes);
            bytes[(offset + part * (length - 1) / 3) as usize] ^= 0x10;
        });
        for error in [
            profile(&damaged).map(drop),
            files.bench.runtime.block_on(verify_and_hash(&damaged, &mut NoReadThrottle)).map(drop),
        ] {
            let message = error.expect_err("accepted a damaged profile").to_string();
            assert!(message.contains("is damaged: the profile: it does not match its checksum"), "{message}");
        }
        assert_eq!(damaged.entity_count(), 100, "the other parts are not readable");
    }
    // Invalid profiles, and one that decompresses to too many bytes.
    assert!(StoredProfile::decode(b"x").is_err());
    assert!(StoredProfile::decode(&zstd::bulk::compress(b"{}", 1).expect("failed to compress")).is_err());
    let bomb = zstd::bulk::compress(&vec![b' '; 64 << 20], 1).expect("failed to compress");
    assert!(StoredProfile::decode(&bomb).is_err());
}

#[test]
fn other_programs_read_a_file_with_a_profile() {
    const SCRIPT: &str = "
import sys, duckdb, pyarrow.parquet
path = sys.argv[1]
table = pyarrow.parquet.read_table(path, columns=['document'])
print(table.num_rows, duckdb.sql(f\"SELECT count(*), max(length(document)) FROM '{path}'\").fetchone())
";
    let files = Files::new();
    let (path, _) = files.write(&some_entities(), &WriteOptions::default());
    let get = async { files.store.object_store().get(&path).await?.bytes().await };
    let bytes = files.bench.runtime.block_on(get).expect("failed to read object");
    assert!(location(&bytes).length > 100);
    let file = files.bench.directory().join("version.parquet");
    std::fs::write(&file, &bytes).expect("failed to write file");
    let python = strata_testing::binary::target_directory().join("python-tools").join("bin/python");
    assert!(python.exists(), "{} is missing; ./tests/run installs it", python.display());
    let output = Command::new(python).arg("-c").arg(SCRIPT).arg(&file).output().expect("failed to run script");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.trim(), "100 (100, 24)", "{}", String::from_utf8_lossy(&output.stderr));
}

// ---- over HTTP ----

on_both_databases! {
    Owned:
    profile_is_public_if_the_dataset_is
    invalid_parameters_are_named
}

/// Calls the API, and checks that the OpenAPI document describes the response.
async fn get(owned: &Owned, token: Option<&str>, query: &str) -> Answer {
    let document = Document::fetch(&owned.service).await;
    let uri = format!("/dataset/profile?{query}");
    let response = match token {
        Some(token) => call(&owned.service, token, "GET", &uri, "").await,
        None => owned.service.get(&uri).await,
    };
    document.describes_call("GET", "/dataset/profile", &response);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    response
}

async fn profile_is_public_if_the_dataset_is(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1},{"a":2.50}]"#, r#"[{"b":{"c":null}}]"#]).await;
    let hidden = owned.dataset("Hidden", json!({"private": true}), &[r#"[{"a":1}]"#]).await;
    let (_, other) = add_user(&owned.service, "other@strata.test", strata_types::user::UserPlan::Free).await;
    let get_as_owner = async |query: &str| owned.call("GET", &format!("/dataset/profile?{query}"), "").await;

    let response = get_as_owner(&format!("dataset_id={id}&version=1")).await;
    assert!(response.header("x-ratelimit-limit").is_none(), "calls of the owner count toward the limit");
    let profile = parsed(&response)["profile"].clone();
    let names: Vec<&String> = profile.as_object().expect("failed to find record").keys().collect();
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
        let profile = parsed(&get_as_owner(&format!("dataset_id={id}{query}")).await)["profile"].clone();
        assert_eq!((&profile["version"], &profile["paths"][1]["path"]), (&json!(2), &json!("b.c")), "{query}");
        assert_eq!(profile["paths"][0]["why_not_shredded"], json!("no_scalar"));
    }
    parsed(&owned.save(id, 2, r#"[{"edited":true}]"#).await);
    let alt = parsed(&get_as_owner(&format!("dataset_id={id}&alt=true")).await)["profile"].clone();
    assert_eq!(
        (&alt["alt"], &alt["paths"][0]["path"], alt["paths"][0]["types"]["boolean"].as_u64()),
        (&json!(true), &json!("edited"), Some(1))
    );

    // All users get the same response for a public dataset.
    let public = format!("dataset_id={id}&version=1");
    for token in [None, Some(other.as_str())] {
        let response = get(&owned, token, &public).await;
        assert_eq!(parsed(&response)["profile"], profile);
        // Anonymous responses are readable by scripts of any origin.
        let origin = token.is_none().then_some("*");
        assert_eq!(response.header("access-control-allow-origin"), origin);
        let exposed = response.header("access-control-expose-headers");
        assert_eq!(exposed.is_some_and(|exposed| exposed.contains("X-RateLimit-Remaining")), token.is_none());
    }
    for wrong in ["dataset_id=x", "dataset_id=1000000", &format!("dataset_id={id}&version=9")] {
        let response = get(&owned, None, wrong).await;
        assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{wrong}: {}", response.status);
    }
    // The responses for private and missing datasets are equal.
    parsed(&get_as_owner(&format!("dataset_id={hidden}")).await);
    let anonymous = get(&owned, None, &format!("dataset_id={hidden}")).await;
    let missing = get(&owned, None, "dataset_id=1000000").await;
    anonymous.is_error(401);
    assert_eq!(
        (anonymous.status, anonymous.text(), anonymous.header("www-authenticate")),
        (401, missing.text(), Some("Bearer"))
    );
    assert_eq!(missing.status, 401);
    let private = get(&owned, Some(&other), &format!("dataset_id={hidden}")).await;
    let missing = get(&owned, Some(&other), "dataset_id=1000000").await;
    private.is_error(404);
    assert_eq!((missing.status, missing.text()), (404, private.text()));
    // An invalid token is not treated as an anonymous call.
    get(&owned, Some("strata_00"), &public).await.is_error(401);
    // A frozen dataset is available only to its owner.
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    get(&owned, None, &public).await.is_error(410);
    get(&owned, Some(&other), &public).await.is_error(410);
    assert_eq!(parsed(&get_as_owner(&format!("dataset_id={id}")).await)["profile"]["version"], json!(1));
}

async fn invalid_parameters_are_named(owned: Owned) {
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
        let response = owned.call("GET", &format!("/dataset/profile?{query}"), "").await;
        response.is_error(status);
        assert!(response.text().contains(word), "{query}: {}", response.text());
        let anonymous = get(&owned, None, &query).await;
        assert_eq!((anonymous.status, anonymous.text()), (status, response.text()), "{query}");
    }
    let posted = owned.call("POST", "/dataset/profile", "{}").await;
    posted.is_error(405);
    assert_eq!(posted.header("allow"), Some("GET,HEAD"));
    assert_eq!(parsed(&get(&owned, None, &format!("dataset_id={id}")).await)["profile"]["paths"], json!([]));
}

#[tokio::test]
async fn integrity_check_detects_damaged_profile() {
    let owned = Owned::sqlite().await;
    owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let [file]: [PathBuf; 1] = owned.service.version_files().try_into().expect("failed to find single file");
    let mut bytes = std::fs::read(&file).expect("failed to read file");
    let ProfileLocation { offset, length, .. } = location(&bytes);
    bytes[(offset + length / 2) as usize] ^= 1;
    std::fs::write(&file, bytes).expect("failed to write file");
    let mut findings = Vec::new();
    let mut add_finding = |finding: &strata_service::CheckFinding| findings.push(format!("{finding:?}"));
    let check = owned.service.services.maintenance.check_integrity(CheckDepth::Everything, &mut add_finding);
    let summary = check.await.expect("failed to check integrity");
    assert_eq!((summary.damaged, findings.len()), (1, 1), "{findings:?}");
    assert!(findings[0].contains("it cannot be read: the profile: "), "{findings:?}");
    let response = owned.service.open_instance(|_| {}).await.get("/dataset/profile?dataset_id=1").await;
    response.is_error(500);
}

#[tokio::test]
async fn anonymous_calls_count_as_public_reads() {
    let owned = Owned::configured(|config| config.limits.public_per_minute = 3, None).await;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let query = format!("dataset_id={id}");
    // A call with invalid parameters does not count, but a call for a missing dataset does.
    for (query, status, remaining) in [("", 400, None), (&query, 200, Some("2")), ("dataset_id=99", 401, Some("1"))] {
        let response = get(&owned, None, query).await;
        assert_eq!((response.status, response.header("x-ratelimit-remaining")), (status, remaining), "{query}");
    }
    assert_eq!(owned.service.get(&format!("/api/{id}/things/v1/")).await.status, 200);
    let response = get(&owned, None, &query).await;
    response.is_error(429);
    assert!(response.header("retry-after").is_some());
    parsed(&owned.call("GET", &format!("/dataset/profile?{query}"), "").await);
}

/// Regression: a token allowed unlimited reads of profiles.
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
    // The public limit is independent.
    assert_eq!(get(&owned, None, &format!("dataset_id={id}")).await.status, 200);
}
