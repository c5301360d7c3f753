//! The measured reads, as data, with their expected responses.

use crate::support::entities::{self, Generator, QueryProbes};
use crate::support::requests::{CheckedRequest, Expected};
use crate::support::source::{PAGE, Source};

/// The baseline of a measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// No baseline, because the response is small and finding it is the work.
    Nothing,
    /// Copying the bytes of the response.
    Memcpy,
    /// A static handler; the request uses HTTP.
    StaticHandler,
}

/// The bytes to which a rate in bytes per second refers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// A rate has no meaning for this case.
    None,
    Response,
    /// The bytes of JSON in the version, because the query scans all of them.
    Version,
}

/// A measured case: similar requests, of which each run makes the next one.
pub struct ReadCase {
    pub name: String,
    pub requests: Vec<CheckedRequest>,
    pub against: Against,
    pub rate: Rate,
}

/// Returns all cases in the order in which they run and are shown.
pub fn cases(source: &Source) -> Vec<ReadCase> {
    let probes = QueryProbes::new(&Generator::new());
    let query_of = |probe: &str| {
        let probe = probes.0.iter().find(|other| other.name == probe);
        probe.map(|probe| probe.query.clone()).expect("a case uses an unknown query")
    };
    let page = |offset: u64, pretty: bool| {
        let positions = (offset..source.entities.min(offset + PAGE as u64)).collect();
        CheckedRequest {
            query: format!("limit={PAGE}&offset={offset}&pretty={pretty}"),
            expected: if pretty { Expected::Pretty(positions) } else { Expected::Compact(positions) },
        }
    };
    let found = |probe: &str| CheckedRequest {
        query: format!("{}&limit={PAGE}&pretty=false", query_of(probe)),
        expected: Expected::Compact(source.matches(probe).first.clone()),
    };
    let counted = |probe: &str| CheckedRequest {
        query: format!("{}&count=true", query_of(probe)),
        expected: Expected::Count(source.matches(probe).count),
    };
    let unique = |position: u64| CheckedRequest {
        query: format!("filter=id:{}&pretty=false", entities::id(position)),
        expected: Expected::Compact(vec![position]),
    };
    // Positions that are spread over the version, in random order.
    let places = |count: u64| (0..count).map(move |number| (number * 7_919 % count) * source.entities / count);
    let middle = source.entities / 2;

    let mut cases = Vec::new();
    let mut add = |name: &str, against, rate, requests: Vec<CheckedRequest>| {
        cases.push(ReadCase { name: name.to_owned(), requests, against, rate });
    };
    let nothing = Against::Nothing;
    let http = Against::StaticHandler;
    add("page of 100, offset 0, compact", Against::Memcpy, Rate::None, vec![page(0, false)]);
    add("page of 100, offset 0, pretty", Against::Memcpy, Rate::None, vec![page(0, true)]);
    add("page of 100, offset n/2, compact", Against::Memcpy, Rate::None, vec![page(middle, false)]);
    add("page of 100, offset n/2, pretty", Against::Memcpy, Rate::None, vec![page(middle, true)]);
    add(
        "page of 100, 211 offsets, compact",
        Against::Memcpy,
        Rate::None,
        places(211).map(|at| page(at, false)).collect(),
    );
    add("HTTP page of 100, offset 0, compact", http, Rate::None, vec![page(0, false)]);
    add("HTTP page of 100, offset 0, pretty", http, Rate::None, vec![page(0, true)]);
    add("HTTP page of 100, offset n/2, compact", http, Rate::None, vec![page(middle, false)]);
    add("HTTP page of 100, offset n/2, pretty", http, Rate::None, vec![page(middle, true)]);
    add("filter category, frequent, limit 100", nothing, Rate::None, vec![found("category")]);
    add("filter category, frequent, count", nothing, Rate::None, vec![counted("category")]);
    add("filter category, no match", nothing, Rate::None, vec![found("category missing")]);
    add("filter id, unique, 211 ids", nothing, Rate::None, places(211).map(unique).collect());
    add("filter id, no match", nothing, Rate::None, vec![found("id missing")]);
    add("filter price, number, count", nothing, Rate::None, vec![counted("price")]);
    add("filter_gte and filter_lt price, limit 100", nothing, Rate::None, vec![found("price between")]);
    add("filter_gte and filter_lt price, count", nothing, Rate::None, vec![counted("price between")]);
    add("filter_lt created_at, text, count", nothing, Rate::None, vec![counted("created before")]);
    add("filter_gt promotion.percent, rare, count", nothing, Rate::None, vec![counted("promotion above")]);
    for (ranges, _) in entities::RANGES {
        let name = format!("not shredded: {ranges} of texts of description, count");
        add(&name, nothing, Rate::Version, vec![counted(ranges)]);
    }
    let name = "not shredded: 4 ranges of texts of description and reviews.text, count";
    add(name, nothing, Rate::Version, vec![counted("4 ranges of 2 paths")]);
    add("filter tags, fans out, limit 100", nothing, Rate::None, vec![found("tags")]);
    add("filter tags, fans out, count", nothing, Rate::None, vec![counted("tags")]);
    add("filter variants.color, limit 100", nothing, Rate::None, vec![found("variants.color")]);
    add("filter variants.color, count", nothing, Rate::None, vec![counted("variants.color")]);
    add("filter category and tags, count", nothing, Rate::None, vec![counted("category and tags")]);
    add("not shredded: filter description, no match", nothing, Rate::Version, vec![found("description missing")]);
    add("filter promotion.code, rare, limit 100", nothing, Rate::None, vec![found("promotion.code")]);
    add("filter promotion.code, rare, count", nothing, Rate::None, vec![counted("promotion.code")]);
    add("filter promotion.percent, rare, count", nothing, Rate::None, vec![counted("promotion.percent")]);
    add("contains name, count", nothing, Rate::None, vec![counted("name has")]);
    for (kind, probe) in [
        ("rare", "description has rare"),
        ("frequent", "description has frequent"),
        ("no match", "description has missing"),
    ] {
        add(&format!("contains description, {kind}, count"), nothing, Rate::Version, vec![counted(probe)]);
    }
    for (kind, probe) in [
        ("one, rare", "keyword rare"),
        ("one, frequent", "keyword frequent"),
        ("two, or", "keywords or"),
        ("two, and", "keywords and"),
        ("no match", "keyword missing"),
        ("a field's name", "keyword field name"),
        ("two words with a blank", "keyword phrase"),
        ("two letters", "keyword letters"),
        ("digits", "keyword digits"),
    ] {
        add(&format!("keyword, {kind}, count"), nothing, Rate::Version, vec![counted(probe)]);
    }
    add("keyword, frequent, limit 100", nothing, Rate::None, vec![found("keyword frequent")]);
    add("keyword, rare, limit 100", nothing, Rate::None, vec![found("keyword rare")]);
    add("sort by number, asc, limit 100", nothing, Rate::None, vec![found("sort price")]);
    add("sort by number, desc, limit 100", nothing, Rate::None, vec![found("sort rating")]);
    add("sort by text, desc, limit 100", nothing, Rate::None, vec![found("sort name")]);
    add("dedup, limit 100", nothing, Rate::None, vec![found("dedup")]);
    add("dedup, count", nothing, Rate::None, vec![counted("dedup")]);
    add("dedup by two fields, limit 100", nothing, Rate::None, vec![found("dedup pair")]);
    add("dedup by two fields, count", nothing, Rate::None, vec![counted("dedup pair")]);
    for (kind, request) in exports() {
        add(&format!("export everything, {kind}"), Against::Memcpy, Rate::Response, vec![request]);
    }
    cases
}

/// Returns the responses that contain all entities.
pub fn exports() -> Vec<(&'static str, CheckedRequest)> {
    let export = |query: &str, expected| CheckedRequest { query: query.to_owned(), expected };
    vec![
        ("jsonl", export("format=jsonl", Expected::Source)),
        ("json compact", export("pretty=false", Expected::All(800))),
        ("json pretty", export("", Expected::All(1_000))),
        ("csv", export("format=csv", Expected::All(600))),
        ("tsv", export("format=tsv", Expected::All(600))),
        ("xml", export("format=xml", Expected::All(1_000))),
        ("parquet", export("format=parquet", Expected::All(100))),
        ("jsonl, sorted by text", export("format=jsonl&sort=name:desc", Expected::All(800))),
    ]
}

/// Returns the requests for a version that does not fit in the cache. Each runs in its own process.
pub fn large() -> Vec<(&'static str, CheckedRequest)> {
    let mut requests = exports();
    let all = |query: &str| CheckedRequest { query: query.to_owned(), expected: Expected::All(0) };
    requests.push(("csv, sorted by text", all("format=csv&sort=name:desc")));
    requests.push(("jsonl, dedup", all("format=jsonl&dedup=true")));
    requests.push(("jsonl, sorted by text, dedup", all("format=jsonl&sort=name:desc&dedup=true")));
    requests.push(("page of 100, sorted by text", all("sort=name:desc&limit=100")));
    requests.push(("page of 100, dedup", all("dedup=true&limit=100")));
    requests
}
