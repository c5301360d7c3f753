//! The examples of reads (`tests/cases/examples.jsonl`), over HTTP.
//!
//! A line with `entities` is a dataset, which is imported into its own service as dataset 1, version 1. Any other line
//! is a read. A line with a parameter or format that does not exist yet is skipped until it exists.

use std::collections::BTreeMap;

use serde::Deserialize;
use strata_testing::TestService;
use strata_testing::openapi::Document;
use strata_types::read_request::ResponseFormat;

const EXAMPLES: &str = include_str!("../../cases/examples.jsonl");

/// The formats of docs/reference/formats.md, Formats.
const FORMATS: [&str; 6] = ["json", "jsonl", "csv", "tsv", "xml", "parquet"];

/// A line of the file: a dataset, or a read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    set: Option<String>,
    #[serde(default)]
    entities: String,
    #[serde(default)]
    what: String,
    #[serde(default)]
    on: String,
    #[serde(default)]
    query: String,
    #[serde(default)]
    status: u16,
    body: Option<String>,
    /// Text that the error must contain.
    body_names: Option<String>,
}

/// The first parameter or format of a query that does not exist yet.
fn missing(parameters: &[&str], query: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes()).find_map(|(name, value)| {
        let known = parameters.contains(&&*name);
        let format = name == "format" && FORMATS.contains(&&*value);
        let known_format = ResponseFormat::ALL.iter().any(|format| format.name() == value);
        (!known || format && !known_format).then(|| format!("{name}={value}"))
    })
}

#[tokio::test]
async fn examples_return_expected_response() {
    let parameters = Document::fetch(&TestService::start().await).await.read_parameters();
    let parameters: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    let mut services = BTreeMap::new();
    let mut ran = 0;
    let mut left_out = Vec::new();
    let mut wrong = Vec::new();
    for line in EXAMPLES.lines() {
        let line: Line = serde_json::from_str(line).expect(line);
        if let Some(set) = line.set {
            let service = TestService::start().await;
            let imported = service.import(&set, &line.entities).await;
            assert_eq!((imported.dataset_id.get(), imported.version.get()), (1, 1));
            services.insert(set, service);
            continue;
        }
        let Line { what, on, query, status, body, body_names, .. } = line;
        if let Some(missing) = missing(&parameters, &query) {
            left_out.push((what, missing));
            continue;
        }
        ran += 1;
        let answer = services[&on].get(&format!("/api/1/{on}/v1/?{query}")).await;
        let right = answer.status == status
            && answer.whole
            && (body.is_some() || body_names.is_some())
            && body.as_deref().is_none_or(|body| answer.text() == body)
            && body_names.as_deref().is_none_or(|name| answer.text().contains(name));
        if !right {
            let expected = body.or(body_names).unwrap_or_default();
            let found = answer.status;
            let text = answer.text();
            wrong.push(format!("{what}: {query}\n  found {found} {text}\n  expected {status} {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {ran} examples fail:\n{}", wrong.len(), wrong.join("\n"));

    // Skipped lines contain something unknown, and no line is lost.
    for (what, missing) in &left_out {
        let name = missing.split('=').next().unwrap_or_default();
        let unknown = !parameters.contains(&name);
        assert!(unknown || name == "format", "`{what}` was left out for {missing}");
    }
    assert_eq!((services.len(), ran + left_out.len()), (4, 73));
    // The number at the time of the first parameters. It can only grow.
    assert!(ran >= 11, "{ran} ran; left out: {left_out:?}");
}
