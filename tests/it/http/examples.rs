//! The examples of reads (`tests/cases/examples.jsonl`), over HTTP.
//!
//! Each line with `entities` is a data set, imported into a service of its own as dataset 1, version 1; each other
//! line is a read of one. A line that uses a parameter or format that does not exist yet is left out, and runs by
//! itself as soon as it does.

use std::collections::BTreeMap;

use serde::Deserialize;
use strata_testing::TestService;
use strata_testing::openapi::Document;
use strata_types::request::Format;

const EXAMPLES: &str = include_str!("../../cases/examples.jsonl");

/// The formats of docs/reference/formats.md, Formats; anything else is refused.
const FORMATS: [&str; 6] = ["json", "jsonl", "csv", "tsv", "xml", "parquet"];

/// A line of the file: a data set, or a read.
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
    /// What an error's text must name.
    body_names: Option<String>,
}

/// The first parameter or format of a query that does not exist yet.
fn missing(parameters: &[&str], query: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes()).find_map(|(name, value)| {
        let known = parameters.contains(&&*name);
        let format = name == "format" && FORMATS.contains(&&*value);
        let known_format = Format::ALL.iter().any(|format| format.name() == value);
        (!known || format && !known_format).then(|| format!("{name}={value}"))
    })
}

#[tokio::test]
async fn every_example_is_answered_as_it_says() {
    let parameters = Document::of(&TestService::start().await).await.read_parameters();
    let parameters: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    let mut services = BTreeMap::new();
    let (mut ran, mut left_out) = (0, Vec::new());
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
            let (found, text) = (answer.status, answer.text());
            wrong.push(format!("{what}: {query}\n  found {found} {text}\n  expected {status} {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {ran} examples fail:\n{}", wrong.len(), wrong.join("\n"));

    // Nothing is left out that could run, and nothing is lost.
    for (what, missing) in &left_out {
        let name = missing.split('=').next().unwrap_or_default();
        let unknown = !parameters.contains(&name);
        assert!(unknown || name == "format", "`{what}` was left out for {missing}");
    }
    assert_eq!((services.len(), ran + left_out.len()), (4, 73));
    // As of the first parameters; later ones only add to it.
    assert!(ran >= 11, "{ran} ran; left out: {left_out:?}");
}
