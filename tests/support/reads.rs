//! Strategies for read requests, and a service that executes them.

use std::collections::BTreeMap;
use std::time::Duration;

use object_store::path::Path as ObjectPath;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{TestCaseError, TestError};
use strata_catalog::{Catalog, VersionContent};
use strata_config::Config;
use strata_format::writer::{WriteOptions, WrittenVersionFile};
use strata_reference::pipeline::{self, Body};
use strata_reference::{Value, hostile, links, rules, unknown};
use strata_store::store::{self, S3Options, Store};
use strata_types::dataset::RefreshTrigger;
use strata_types::field_path::FieldPath;
use strata_types::limits::{MAX_LINK_HEADER_BYTES, MAX_UNKNOWN_NAMES_HEADER_BYTES};
use strata_types::read_request::{KeywordsMode, PathValue, RangeBound, ReadRequest, ResponseFormat, SortField};
use strata_types::version::NewVersionFile;

use crate::versions::FileWorkbench;
use crate::{Answer, TestService};

/// Longer than the publication of any version takes.
pub const LEASE: Duration = Duration::from_secs(600);

/// Values that are equal as JSON, look equal, or are nearly equal.
pub const SMALL: &[&str] = &[
    "1",
    "1",
    "1.0",
    "10e-1",
    "\"1\"",
    "\"1.0\"",
    "0",
    "-0",
    "-0.0",
    "\"\"",
    "\"\"",
    "null",
    "null",
    "\"null\"",
    "true",
    "false",
    "\"true\"",
    "[]",
    "[1]",
    "[1.0]",
    "[[1]]",
    "[\"\"]",
    "[null,[\"\"]]",
    "[[],{}]",
    "{}",
    "{\"b\":1}",
    "{\"b\":1.0}",
    "{\"b\":\"1\",\"c\":null}",
    "{\"c\":null,\"b\":\"1\"}",
    "{\"b\":{\"c\":\"\"}}",
    "{\"b\":{\"c\":[1,{\"b\":\"x\"}]}}",
    "[{\"b\":1},{\"b\":\"x\"}]",
    "[{\"b\":\"\"},5]",
    "[{\"b\":[]},[{\"b\":null}]]",
    "[{}]",
    "10000000000000000000000000000000000000001",
    "10000000000000000000000000000000000000002",
    "10000000000000000000000000000000000000002.0",
    "1e40",
    "-10000000000000000000000000000000000000001",
    "-10000000000000000000000000000000000000003",
    "9007199254740992",
    "9007199254740993",
    "9007199254740993.0",
    "1e400",
    "1e999",
    "-1e400",
    "1.5",
    "1.50",
    "2",
    "10",
    "x",
    "\"X\"",
    "\"a\"",
    "\"a\\u0000\"",
    "\"a\\u0000\\u0000\"",
    "\"a\\u0000b\"",
    "\"a\\u0001\"",
    "\"ab\"",
    "\"shared prefix\"",
    "\"shared prefix 1\"",
    "\"shared p\"",
    "\"shared \"",
    "\"Shared prefix\"",
    "\"\u{ffff}\"",
    "\"\u{10000}\"",
    "\"\u{e9}\"",
    "\"e\u{301}\"",
    "\"\u{130}\"",
    "\"\u{3a3}\u{3c2}\"",
    "\"a,b\\t\\\"c\\\"\\r\\n\"",
];

pub fn small() -> impl Strategy<Value = Value> {
    select(SMALL).prop_map(|text| Value::parse(text).unwrap_or_else(|_| Value::String(text.to_owned())))
}

/// Entities with few fields and few values, so that values tie, repeat and differ in type.
pub fn alike() -> impl Strategy<Value = Value> {
    const KEYS: &[&str] = &["a", "a", "b", "c", "_source", "a.b", "s"];
    let value = prop_oneof![8 => small(), 1 => hostile::value()];
    vec((select(KEYS), value), 0..5).prop_map(|members| {
        let mut object = Vec::new();
        for (key, value) in members {
            strata_reference::value::set(&mut object, key.to_owned(), value);
        }
        // Parsed again, because a hostile value can repeat keys.
        Value::parse_entity(&Value::Object(object).write()).expect("failed to parse entity")
    })
}

/// The entities of a version, some of which repeat.
pub fn entities() -> impl Strategy<Value = Vec<Value>> {
    let sizes = prop_oneof![1 => Just(0..2_usize), 4 => Just(2..14), 2 => Just(14..50)];
    let list = sizes.prop_flat_map(|size| {
        let entity = prop_oneof![3 => alike().boxed(), 1 => hostile::entity().boxed()];
        vec(entity, size)
    });
    (list, vec(any::<(Index, Index)>(), 0..6)).prop_map(|(mut entities, repeats)| {
        for (from, to) in repeats {
            if !entities.is_empty() {
                let again = from.get(&entities).clone();
                entities.insert(to.index(entities.len()), again);
            }
        }
        entities
    })
}

/// A path that the entities have, or an invented one.
#[derive(Clone, Debug)]
pub struct PathPlan {
    place: Index,
    /// Keys that are appended to the path.
    more: Option<String>,
    own: Option<Vec<String>>,
}

pub fn path_plan() -> impl Strategy<Value = PathPlan> {
    let own = prop_oneof![6 => Just(None), 1 => hostile::path().prop_map(Some)];
    let more = prop_oneof![8 => Just(None), 1 => hostile::key().prop_map(Some)];
    (any::<Index>(), more, own).prop_map(|(place, more, own)| PathPlan { place, more, own })
}

/// A search text that the entities contain, or an invented one.
#[derive(Clone, Debug)]
pub struct TextPlan {
    place: Index,
    change: u8,
    own: Option<String>,
}

pub fn text_plan() -> impl Strategy<Value = TextPlan> {
    let own = prop_oneof![5 => Just(None), 1 => hostile::needle().prop_map(Some)];
    (any::<Index>(), any::<u8>(), own).prop_map(|(place, change, own)| TextPlan { place, change, own })
}

/// The range filter, and true if its value is quoted.
pub type RangePlan = (RangeBound, bool);

pub fn range_plan() -> impl Strategy<Value = RangePlan> {
    (select(&RangeBound::ALL[..]), prop::bool::weighted(0.3))
}

#[derive(Clone, Debug)]
pub struct ReadRequestPlan {
    include_source: bool,
    denull: bool,
    keep: Vec<PathPlan>,
    drop: Vec<PathPlan>,
    filters: Vec<(PathPlan, TextPlan)>,
    contains: Vec<(PathPlan, TextPlan)>,
    ranges: Vec<(RangePlan, PathPlan, TextPlan)>,
    keywords: Vec<TextPlan>,
    all_keywords: bool,
    sort: Option<(PathPlan, bool)>,
    dedup: bool,
    dedup_key: Vec<PathPlan>,
    offset: Option<u64>,
    limit: Option<u64>,
    flatten: bool,
    format: ResponseFormat,
    pretty: bool,
    typed: bool,
    total: bool,
}

pub fn plan() -> impl Strategy<Value = ReadRequestPlan> {
    fn few<S: Strategy + 'static>(none: u32, strategy: impl Fn() -> S) -> BoxedStrategy<Vec<S::Value>>
    where
        S::Value: Clone,
    {
        prop_oneof![none => Just(Vec::new()), 1 => vec(strategy(), 1..2), 1 => vec(strategy(), 1..4)].boxed()
    }
    let number = || {
        let large = prop_oneof![Just(u64::MAX), Just(i64::MAX as u64), Just(u64::MAX / 2 + 1), 60..100_u64];
        prop_oneof![8 => Just(None), 3 => (0..6_u64).prop_map(Some), 1 => large.prop_map(Some)]
    };
    let reshape = (prop::bool::weighted(0.7), any::<bool>(), few(8, path_plan), few(4, path_plan));
    let conditions = (
        few(14, || (path_plan(), text_plan())),
        few(14, || (path_plan(), text_plan())),
        few(14, || (range_plan(), path_plan(), text_plan())),
        few(12, text_plan),
        any::<bool>(),
    );
    // Many paths contain duplicates and prefixes of each other.
    let key = prop_oneof![5 => few(2, path_plan), 1 => vec(path_plan(), 4..40).boxed()];
    let order = (prop::option::of((path_plan(), any::<bool>())), any::<bool>(), key, number(), number());
    let told = (any::<bool>(), any::<bool>());
    let format = (prop::bool::weighted(0.3), select(&ResponseFormat::ALL[..]), any::<bool>(), told);
    (reshape, conditions, order, format).prop_map(
        |(
            (include_source, denull, keep, drop),
            (filters, contains, ranges, keywords, all_keywords),
            (sort, dedup, dedup_key, offset, limit),
            (flatten, format, pretty, (typed, total)),
        )| ReadRequestPlan {
            include_source,
            denull,
            keep,
            drop,
            filters,
            contains,
            ranges,
            keywords,
            all_keywords,
            sort,
            dedup,
            dedup_key,
            offset,
            limit,
            flatten,
            format,
            pretty,
            typed,
            total,
        },
    )
}

/// Collects every path into a value, with the scalar at its end if there is one.
pub fn places<'v>(value: &'v Value, keys: &mut Vec<String>, out: &mut Vec<(Vec<String>, Option<&'v Value>)>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                keys.push(key.clone());
                out.push((keys.clone(), None));
                places(value, keys, out);
                keys.pop();
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| places(element, keys, out)),
        _ => out.push((keys.clone(), Some(value))),
    }
}

pub type Places<'v> = Vec<(Vec<String>, Option<&'v Value>)>;

impl PathPlan {
    /// Returns the keys, and a scalar at the path.
    pub fn resolve<'v>(&self, places: &Places<'v>) -> Option<(FieldPath, Option<&'v Value>)> {
        if let Some(own) = &self.own {
            return Some((FieldPath::from_keys(own.clone()).ok()?, None));
        }
        if places.is_empty() {
            return None;
        }
        let (mut keys, scalar) = self.place.get(places).clone();
        keys.extend(self.more.clone());
        Some((FieldPath::from_keys(keys).ok()?, scalar))
    }
}

impl TextPlan {
    fn resolve(&self, scalar: Option<&Value>, places: &Places<'_>, contains: bool) -> String {
        if let Some(own) = &self.own {
            return own.clone();
        }
        let scalars: Vec<&Value> = places.iter().filter_map(|(_, scalar)| *scalar).collect();
        let scalar = scalar.or_else(|| (!scalars.is_empty()).then(|| *self.place.get(&scalars)));
        let text = scalar.and_then(Value::text).unwrap_or_else(|| "null".to_owned());
        let text = match self.change % 4 {
            0 => text.to_uppercase(),
            1 => text.to_lowercase(),
            _ => text,
        };
        if !contains {
            return text;
        }
        let start = usize::from(self.change / 4) % (text.chars().count() + 1);
        text.chars().skip(start).take(1 + usize::from(self.change % 5)).collect()
    }
}

impl ReadRequestPlan {
    pub fn resolve(&self, entities: &[Value]) -> ReadRequest {
        let mut found = Vec::new();
        entities.iter().for_each(|entity| places(entity, &mut Vec::new(), &mut found));
        let paths = |plans: &[PathPlan]| plans.iter().filter_map(|plan| Some(plan.resolve(&found)?.0)).collect();
        let conditions = |plans: &[(PathPlan, TextPlan)], contains: bool| {
            let one = |(path, text): &(PathPlan, TextPlan)| {
                let (path, scalar) = path.resolve(&found)?;
                Some(PathValue { path, value: text.resolve(scalar, &found, contains) })
            };
            plans.iter().filter_map(one).collect()
        };
        let mut ranges: [Vec<PathValue>; 4] = Default::default();
        for ((bound, is_quoted), path, text) in &self.ranges {
            let Some((path, scalar)) = path.resolve(&found) else { continue };
            let value = text.resolve(scalar, &found, false);
            let value = if *is_quoted { format!("\"{value}\"") } else { value };
            ranges[*bound as usize].push(PathValue { path, value });
        }
        let keywords = self.keywords.iter().map(|text| text.resolve(None, &found, true));
        // In a URL, the values are separated by commas and trimmed.
        let keywords = keywords.map(|word| word.replace(',', "").trim_matches([' ', '\t']).to_owned());
        let sort = self.sort.as_ref().and_then(|(path, descending)| {
            let field = path.resolve(&found)?.0.keys()[0].clone();
            (!field.is_empty()).then_some(SortField { field, descending: *descending })
        });
        ReadRequest {
            include_source: self.include_source,
            denull: self.denull,
            keep_fields: paths(&self.keep),
            drop_fields: paths(&self.drop),
            filters: conditions(&self.filters, false),
            contains_filters: conditions(&self.contains, true),
            range_filters: ranges,
            keywords: keywords.filter(|word| !word.is_empty()).collect(),
            keywords_mode: if self.all_keywords { KeywordsMode::And } else { KeywordsMode::Or },
            sort,
            dedup: self.dedup,
            dedup_key: paths(&self.dedup_key),
            offset: self.offset.unwrap_or_default(),
            limit: self.limit,
            flatten: self.flatten,
            format: self.format,
            pretty: self.pretty,
            typed: self.typed,
            total: self.total,
            ..ReadRequest::default()
        }
    }
}

/// Returns the query string of a request.
pub fn query(request: &ReadRequest) -> String {
    let mut out = form_urlencoded::Serializer::new(String::new());
    let list = |paths: &[FieldPath]| paths.iter().map(FieldPath::to_string).collect::<Vec<_>>().join(",");
    // In the opposite of the processing order, on which the order of parameters must not have an effect.
    for (name, value, default) in [
        ("typed", request.typed, false),
        ("total", request.total, false),
        ("count", request.count, false),
        ("pretty", request.pretty, true),
        ("flatten", request.flatten, false),
        ("dedup", request.dedup, false),
        ("denull", request.denull, false),
        ("include_source", request.include_source, true),
    ] {
        if value != default {
            out.append_pair(name, if value { "true" } else { "false" });
        }
    }
    if request.format != ResponseFormat::Json {
        out.append_pair("format", request.format.name());
    }
    for (name, value) in [("seed", request.seed), ("limit", request.limit), ("sample", request.sample)] {
        if let Some(value) = value {
            out.append_pair(name, &value.to_string());
        }
    }
    if request.offset > 0 {
        out.append_pair("offset", &request.offset.to_string());
    }
    if let Some(sort) = &request.sort {
        out.append_pair("sort", &format!("{}:{}", sort.field, if sort.descending { "desc" } else { "asc" }));
    }
    for (name, paths) in
        [("dedup_key", &request.dedup_key), ("drop_field", &request.drop_fields), ("keep_field", &request.keep_fields)]
    {
        if !paths.is_empty() {
            out.append_pair(name, &list(paths));
        }
    }
    if !request.keywords.is_empty() {
        out.append_pair("keywords", &request.keywords.join(","));
    }
    if request.keywords_mode == KeywordsMode::And {
        out.append_pair("keywords_mode", "and");
    }
    for (bound, PathValue { path, value }) in request.range_filters() {
        out.append_pair(bound.parameter_name(), &format!("{path}:{value}"));
    }
    for (name, conditions) in [("filter_contains", &request.contains_filters), ("filter", &request.filters)] {
        for PathValue { path, value } in conditions {
            out.append_pair(name, &format!("{path}:{value}"));
        }
    }
    out.finish()
}

/// A service to whose catalog tests add versions with any file layout. Dataset 1 is `data`.
pub struct ServiceLab {
    pub bench: FileWorkbench,
    pub service: TestService,
    catalog: Catalog,
    store: Store,
}

impl ServiceLab {
    pub fn new(change: impl FnOnce(&mut Config)) -> ServiceLab {
        let bench = FileWorkbench::new();
        let (service, catalog) = bench.runtime.block_on(async {
            let service = TestService::configured(change).await;
            service.import("data", "[]").await;
            let catalog = Catalog::open(&service.services.config.catalog_url()).await.expect("failed to open catalog");
            (service, catalog)
        });
        let store = store::open_store(&service.services.config.store_url(), &S3Options::default())
            .expect("failed to open store");
        ServiceLab { bench, service, catalog, store }
    }

    /// Starts a service with `threads` threads and a cache so small that parts are evicted while they are used.
    pub fn with_threads(threads: u64) -> ServiceLab {
        ServiceLab::new(|config| {
            config.query.threads = threads;
            config.cache.memory_bytes = Some(1 << 20);
        })
    }

    /// Starts a service without caches, so that sorts spill.
    pub fn without_cache(threads: u64) -> ServiceLab {
        ServiceLab::new(|config| {
            config.query.threads = threads;
            config.cache.memory_bytes = Some(0);
        })
    }

    /// Publishes a version whose file is written with the default options, and returns its number.
    pub fn publish_default(&self, entities: &[Value]) -> u64 {
        self.publish(entities, &WriteOptions::default())
    }

    pub fn publish(&self, entities: &[Value], options: &WriteOptions) -> u64 {
        self.publish_file(&self.write(entities, options))
    }

    /// Writes a file with these entities.
    pub fn write(&self, entities: &[Value], options: &WriteOptions) -> (ObjectPath, WrittenVersionFile) {
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        let written = self.bench.write(&self.store, &texts, options);
        written.unwrap_or_else(|error| panic!("{error:?} for [{}]", texts.join(",")))
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Publishes a file as a new version and returns its number.
    pub fn publish_file(&self, (path, written): &(ObjectPath, WrittenVersionFile)) -> u64 {
        let file = NewVersionFile {
            path: path.to_string(),
            size_bytes: written.size_bytes,
            entity_count: written.entity_count,
            content_hash: written.content_sha256.clone(),
            bases: Vec::new(),
        };
        let dataset = strata_types::ids::DatasetId::new(1);
        self.bench.runtime.block_on(async {
            let lease = self
                .catalog
                .acquire_refresh(dataset, RefreshTrigger::Import, &file.path, LEASE)
                .await
                .expect("failed to acquire lease");
            let published =
                self.catalog.publish_version(dataset, VersionContent::New(&file), None, lease.attempt).await;
            published.expect("failed to publish version").version.number.get()
        })
    }

    pub fn get(&self, version: u64, query: &str) -> Answer {
        self.bench.runtime.block_on(self.service.get(&format!("/api/1/data/v{version}/?{query}")))
    }

    /// Checks a request without `sample`, or with a `seed`, and its count against the reference.
    pub fn check(&self, version: u64, entities: &[Value], request: &ReadRequest) -> Result<(), TestCaseError> {
        let query = query(request);
        let (total, expected) = pipeline::answer(entities, request, 1, version);
        let answer = self.get(version, &query);
        let about = || format!("?{query}\n{request:?}\nover {}", Value::Array(entities.to_vec()).write());
        let matches = request.total.then(|| pipeline::selected(entities, request).len().to_string());
        prop_assert!(answer.status == 200 && answer.whole, "{} {} for {}", answer.status, shown(&answer), about());
        prop_assert_eq!(answer.header("x-total-count").map(str::to_owned), Some(total.to_string()), "{}", about());
        let format = if request.count { ResponseFormat::Json } else { request.format };
        prop_assert_eq!(answer.header("content-type"), Some(format.content_type()), "{}", about());
        let file = format!("attachment; filename=\"data-v{version}.{}\"", format.name());
        let file = format.is_table().then_some(file.as_str());
        prop_assert_eq!(answer.header("content-disposition"), file, "{}", about());
        prop_assert_eq!(answer.header("x-total-matches"), matches.as_deref(), "{}", about());
        let found = Body::decode(&answer.body, request);
        prop_assert_eq!(found, expected, "{}", about());
        check_links(&answer, version, &query, request, total)?;
        self.check_fields(version, entities, request, &answer)?;

        if !request.count {
            let counted = ReadRequest { count: true, ..request.clone() };
            let answer = self.get(version, &self::query(&counted));
            let Body::Text(expected) = pipeline::answer(entities, &counted, 1, version).1 else { unreachable!() };
            prop_assert_eq!(answer.text(), expected, "count of {}", about());
            prop_assert_eq!(
                answer.header("x-total-count").map(str::to_owned),
                Some(total.to_string()),
                "count of {}",
                about()
            );
            prop_assert_eq!(answer.header("x-total-matches"), matches.as_deref(), "count of {}", about());
        }
        Ok(())
    }

    /// Checks the reported unknown fields, and that a strict read is rejected if there are any.
    fn check_fields(
        &self,
        version: u64,
        entities: &[Value],
        request: &ReadRequest,
        answer: &Answer,
    ) -> Result<(), TestCaseError> {
        let query = query(request);
        let about = || format!("?{query}\n{request:?}\nover {}", Value::Array(entities.to_vec()).write());
        let expected = unknown::paths(entities, request);
        let header = answer.header("x-unknown-fields").unwrap_or_default();
        let decoded =
            |path: &str| percent_encoding::percent_decode_str(path).decode_utf8().expect("invalid UTF-8").into_owned();
        let listed: Vec<String> = header.split(',').filter(|path| !path.is_empty()).map(decoded).collect();
        prop_assert!(listed.iter().all(|path| expected.contains(path)), "{listed:?} {expected:?} {}", about());
        // The header omits fields that would make it too long or that the profile cannot determine.
        let encoded: usize = expected.iter().map(|path| 1 + 3 * path.len()).sum();
        if !request.denull && encoded < MAX_UNKNOWN_NAMES_HEADER_BYTES {
            prop_assert_eq!(listed.len(), expected.len(), "{:?} {:?} {}", listed, expected, about());
        }
        let strict = self.get(version, &format!("{query}&strict=true"));
        prop_assert_eq!(strict.status, if expected.is_empty() { 200 } else { 400 }, "{} {}", shown(&strict), about());
        if expected.is_empty() {
            prop_assert_eq!(strict.header("etag"), answer.header("etag"), "{}", about());
        }
        Ok(())
    }

    /// Checks that a request with `sample` returns the right number of possible entities.
    pub fn check_sample(&self, version: u64, entities: &[Value], request: &ReadRequest) -> Result<(), TestCaseError> {
        let query = query(request);
        let about = || format!("?{query}\n{request:?}\nover {}", Value::Array(entities.to_vec()).write());
        let all = pipeline::selected(entities, request);
        let sampled = (all.len() as u64).min(request.sample.unwrap_or(u64::MAX));
        let total = sampled.saturating_sub(request.offset).min(request.limit.unwrap_or(u64::MAX));
        let request = &ReadRequest { typed: false, ..request.clone() };
        let answer = self.get(version, &self::query(request));
        prop_assert!(answer.status == 200 && answer.whole, "{} {} for {}", answer.status, shown(&answer), about());
        prop_assert_eq!(answer.header("x-total-count").map(str::to_owned), Some(total.to_string()), "{}", about());
        let matches = request.total.then(|| all.len().to_string());
        prop_assert_eq!(answer.header("x-total-matches"), matches.as_deref(), "{}", about());
        if request.count {
            let expected = format!("{{\"count\":{total},\"dataset_id\":1,\"version\":{version},\"alt\":false}}");
            let found: String = answer.text().split_whitespace().collect();
            prop_assert_eq!(found, expected, "{}", about());
            return Ok(());
        }
        let flattened = request.flatten || request.format.is_table();
        // Rows without the values that a table cannot distinguish from missing ones.
        let row = |cells: Vec<(String, Option<String>)>| {
            let cells: BTreeMap<String, String> = cells
                .into_iter()
                .filter_map(|(name, cell)| Some((name, cell?)))
                .filter(|(_, cell)| request.format == ResponseFormat::Parquet || !cell.is_empty())
                .collect();
            format!("{cells:?}")
        };
        let table = request.format.is_table();
        let text = |entity: &Value| {
            let entity = if flattened { rules::flatten(entity) } else { entity.clone() };
            match &entity {
                Value::Object(members) if table => {
                    row(members.iter().map(|(name, value)| (name.clone(), value.text())).collect())
                }
                _ => entity.write(),
            }
        };
        let mut possible: BTreeMap<String, usize> = BTreeMap::new();
        all.iter().for_each(|entity| *possible.entry(text(entity)).or_default() += 1);
        let found: Vec<String> = match (request.format, Body::read(&answer.body, request.format)) {
            (ResponseFormat::Json, Body::Text(body)) => match Value::parse_list(&body).expect("failed to parse JSON") {
                Value::Array(elements) => elements.iter().map(Value::write).collect(),
                other => panic!("{other:?}"),
            },
            (ResponseFormat::Jsonl, Body::Text(body)) => body.lines().map(str::to_owned).collect(),
            (ResponseFormat::Csv | ResponseFormat::Tsv, Body::Text(body)) => {
                let delimiter = if request.format == ResponseFormat::Csv { b',' } else { b'\t' };
                let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(body.as_bytes());
                let names = reader.headers().expect("missing header").clone();
                let records = reader.records().map(|record| {
                    let record = record.expect("failed to read record");
                    let cells = names.iter().zip(&record);
                    row(cells.map(|(name, cell)| (name.to_owned(), Some(cell.to_owned()))).collect())
                });
                records.collect()
            }
            (_, Body::Cells(names, rows)) => {
                rows.into_iter().map(|cells| row(names.iter().cloned().zip(cells).collect())).collect()
            }
            (_, Body::Typed(..)) => unreachable!("types are not requested"),
            (_, Body::Text(xml)) => {
                // A complete sample has the same entities in another order.
                if total == all.len() as u64 {
                    let Body::Text(expected) = pipeline::body(entities, &all, request) else { unreachable!() };
                    let sorted = |text: &str| {
                        let mut bytes = text.as_bytes().to_vec();
                        bytes.sort_unstable();
                        bytes
                    };
                    prop_assert!(sorted(&xml) == sorted(&expected), "{}", about());
                }
                return Ok(());
            }
        };
        prop_assert_eq!(found.len() as u64, total, "{}", about());
        for text in found {
            match possible.get_mut(&text) {
                Some(left) if *left > 0 => *left -= 1,
                _ => prop_assert!(false, "{} is there too often, {}", text, about()),
            }
        }
        Ok(())
    }
}

/// Checks the page links of a response.
fn check_links(
    answer: &Answer,
    version: u64,
    query: &str,
    request: &ReadRequest,
    returned: u64,
) -> Result<(), TestCaseError> {
    let header = answer.header("link").unwrap_or_default();
    let mut expected = String::new();
    // Regardless of the address of the service.
    let base = header.strip_prefix('<').and_then(|rest| Some(&rest[..rest.find("/api/")?])).unwrap_or_default();
    for (relation, query) in links::pages(query, request, returned) {
        let separator = if expected.is_empty() { "" } else { ", " };
        let link = format!("{separator}<{base}/api/1/data/v{version}/?{query}>; rel=\"{relation}\"");
        // Links that do not fit are omitted. Without a link, the address is unknown.
        if expected.len() + link.len() + if base.is_empty() { 100 } else { 0 } <= MAX_LINK_HEADER_BYTES {
            expected.push_str(&link);
        }
    }
    prop_assert_eq!(header, expected, "?{}", query);
    Ok(())
}

pub fn shown(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Panics with the difference, because the plans that led to it are less helpful.
pub fn no_failure<T: std::fmt::Debug>(result: Result<(), TestError<T>>) {
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(error) => panic!("{error}"),
    }
}

/// Returns `PROPTEST_CASES`, or else `usual`.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}
