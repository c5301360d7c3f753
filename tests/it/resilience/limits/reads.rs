//! Tests of the parameters of reads: each with the largest values of its type, with one more, and in random
//! combinations.

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use strata_testing::openapi::{Document, ReadParameter, ReadParameterKind, Repetition};
use strata_types::limits;

use super::{DATASETS, LimitFixture, ORDINARY, percent_encoded};

/// Reserved bytes in the longest query strings, for parameters that a value requires.
const RESERVED_BYTES: usize = 64;

/// Returns the parameters of reads from `/openapi.json`.
async fn parameters(fixture: &LimitFixture) -> Vec<ReadParameter> {
    Document(fixture.get("/openapi.json").await.json()).read_parameters()
}

/// Returns a query string that repeats the parameter, once for each value.
fn repeated(parameter: &ReadParameter, values: impl IntoIterator<Item = String>) -> String {
    let pairs: Vec<String> =
        values.into_iter().map(|value| format!("{}={}", parameter.name, percent_encoded(&value))).collect();
    pairs.join("&")
}

/// Returns a path with `names` keys.
fn path_of_keys(names: usize) -> String {
    vec!["a"; names].join(".")
}

/// Returns a value that starts with `head` and makes the query string as long as allowed.
fn longest_value(parameter: &ReadParameter, head: &str) -> String {
    let bytes = limits::MAX_QUERY_STRING_BYTES - parameter.name.len() - 1 - percent_encoded(head).len();
    format!("{head}{}", "x".repeat(bytes))
}

/// Returns query strings that contain only this parameter and reach one of its limits. The service accepts each of
/// them.
fn queries_at_limits(parameter: &ReadParameter) -> Vec<String> {
    let one = |value: &str| repeated(parameter, [value.to_owned()]);
    let items = |item: fn(usize) -> String| match parameter.repetition {
        Repetition::Single => unreachable!("{} is given once", parameter.name),
        Repetition::Repeat => repeated(parameter, (0..limits::MAX_QUERY_ITEMS).map(item)),
        Repetition::List => repeated(parameter, [(0..limits::MAX_QUERY_ITEMS).map(item).collect::<Vec<_>>().join(",")]),
    };
    match &parameter.kind {
        ReadParameterKind::Boolean => ["true", "FALSE", "1", "0"].map(one).into(),
        ReadParameterKind::WholeNumber => vec![one("0"), one(&u64::MAX.to_string()), one(&format!("{:0>5000}", 7))],
        ReadParameterKind::OneOf(names) => names.iter().map(|name| one(name)).collect(),
        ReadParameterKind::Paths => vec![
            items(|number| format!("f{number}")),
            items(|_| path_of_keys(3)),
            one(&vec![path_of_keys(limits::MAX_PATH_KEYS); 100].join(",")),
            one(&longest_value(parameter, "")),
        ],
        ReadParameterKind::Keywords => vec![items(|number| format!("w{number}")), one(&longest_value(parameter, ""))],
        ReadParameterKind::PathValue => vec![
            items(|number| format!("f{number}:x")),
            items(|_| "a.a.a:x".to_owned()),
            repeated(parameter, vec![format!("{}:x", path_of_keys(limits::MAX_PATH_KEYS)); 100]),
            one(&longest_value(parameter, "region:")),
            one(&longest_value(parameter, &format!("{}:", path_of_keys(limits::MAX_PATH_KEYS)))),
        ],
        ReadParameterKind::Sort => vec![one("region:desc"), one(&longest_value(parameter, ""))],
    }
}

/// Returns query strings that exceed a limit by one, with the status of the error and a phrase of its text.
fn queries_over_limits(parameter: &ReadParameter) -> Vec<(String, u16, &'static str)> {
    let one = |value: &str| repeated(parameter, [value.to_owned()]);
    let many = |item: &str| match parameter.repetition {
        Repetition::Single => unreachable!("{} is given once", parameter.name),
        Repetition::Repeat => repeated(parameter, vec![item.to_owned(); limits::MAX_QUERY_ITEMS + 1]),
        Repetition::List => repeated(parameter, [vec![item; limits::MAX_QUERY_ITEMS + 1].join(",")]),
    };
    let mut all = vec![
        (format!("{}x", repeated(parameter, [longest_value(parameter, "")])), 414, "at most 32768 bytes"),
        (format!("{}=%FF", parameter.name), 400, "UTF-8"),
    ];
    if parameter.repetition == Repetition::Single {
        all.push((format!("{0}&{0}", one(parameter.example.as_deref().unwrap_or("1"))), 400, "valid"));
    }
    all.extend(match &parameter.kind {
        ReadParameterKind::Boolean => vec![(one("2"), 400, "true, false, 1, or 0")],
        ReadParameterKind::WholeNumber => vec![
            (one("18446744073709551616"), 400, "too large"),
            (one(&"9".repeat(30_000)), 400, "too large"),
            (one("-1"), 400, "decimal digits"),
        ],
        ReadParameterKind::OneOf(_) => vec![(one("none"), 400, "valid"), (one(&"x".repeat(30_000)), 400, "valid")],
        ReadParameterKind::Paths => {
            vec![(many("f"), 400, "at most 1000"), (one(&path_of_keys(limits::MAX_PATH_KEYS + 1)), 400, "128 keys")]
        }
        ReadParameterKind::Keywords => vec![(many("w"), 400, "at most 1000")],
        ReadParameterKind::PathValue => vec![
            (many("a:x"), 400, "at most 1000"),
            (one(&format!("{}:x", path_of_keys(limits::MAX_PATH_KEYS + 1))), 400, "128 keys"),
            (one(&path_of_keys(16_000)), 400, "colon"),
        ],
        ReadParameterKind::Sort => vec![(one(""), 400, "valid"), (one(":desc"), 400, "valid")],
    });
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_at_and_over_limits_have_right_status() {
    let fixture = LimitFixture::new().await;
    for parameter in &parameters(&fixture).await {
        for query in queries_at_limits(parameter) {
            // `seed` requires `sample`.
            let query = if parameter.name == "seed" { format!("{query}&sample=1") } else { query };
            assert!(query.len() <= limits::MAX_QUERY_STRING_BYTES, "{} bytes", query.len());
            for dataset in DATASETS {
                // These datasets have no alternates.
                let statuses: &[u16] = if matches!(query.as_str(), "alt=true" | "alt=1") { &[404] } else { &[200] };
                fixture.read(dataset, &query).await.assert_status(statuses, &query);
            }
        }
        for (query, status, word) in queries_over_limits(parameter) {
            let answer = fixture.read(ORDINARY, &query).await;
            answer.assert_status(&[status], &query);
            assert!(answer.text().contains(word), "{} for {word}", answer.summary());
        }
        fixture.assert_healthy().await;
    }
    fixture.stop();
}

/// Returns a random combination of parameters that stays within the limits of one request.
fn combination(parameters: &[ReadParameter], random: &mut StdRng) -> String {
    let mut pairs = Vec::<String>::new();
    let mut bytes = 0;
    let mut items = 0;
    for parameter in parameters {
        // `seed` requires `sample`, which precedes it in the list.
        let is_without = parameter.name == "seed" && !pairs.iter().any(|pair| pair.starts_with("sample="));
        if parameter.name == "alt" || is_without || random.random_bool(0.5) {
            continue;
        }
        let all = queries_at_limits(parameter);
        let mut pair = all.choose(random).expect("a value").clone();
        let plain = matches!(
            parameter.kind,
            ReadParameterKind::Boolean | ReadParameterKind::WholeNumber | ReadParameterKind::OneOf(_)
        );
        if !plain {
            // Up to 400 items, as far as the limits on items and bytes allow.
            let item_count = random.random_range(1..=(limits::MAX_QUERY_ITEMS - items).clamp(1, 400));
            let item = |number: usize| match &parameter.kind {
                ReadParameterKind::PathValue => {
                    ["region:Europe", "a.a:x", "c7:7", "name.common:", "cca3:f"][number % 5].to_owned()
                }
                ReadParameterKind::Keywords => ["a", "europe", "x", "7"][number % 4].to_owned(),
                _ => ["region", "name.common", "a.a.a", "c7", "cca3", "_source"][number % 6].to_owned(),
            };
            pair = match parameter.repetition {
                Repetition::Single => repeated(parameter, [item(item_count)]),
                Repetition::Repeat => repeated(parameter, (0..item_count).map(item)),
                Repetition::List => repeated(parameter, [(0..item_count).map(item).collect::<Vec<_>>().join(",")]),
            };
            items += if parameter.repetition == Repetition::Single { 0 } else { item_count };
        }
        if items > limits::MAX_QUERY_ITEMS || bytes + pair.len() + RESERVED_BYTES > limits::MAX_QUERY_STRING_BYTES {
            break;
        }
        bytes += pair.len() + 1;
        pairs.push(pair);
    }
    pairs.join("&")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_parameter_combinations_are_answered() {
    let rounds = std::env::var("STRATA_LIMIT_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10);
    let random = &mut StdRng::seed_from_u64(11);
    let fixture = LimitFixture::new().await;
    let parameters = parameters(&fixture).await;
    for _ in 0..rounds {
        let queries: Vec<(&str, String)> =
            (0..6).map(|_| (*DATASETS.choose(random).expect("a dataset"), combination(&parameters, random))).collect();
        let reads = queries.iter().map(async |(dataset, query)| (query, fixture.read(dataset, query).await));
        for (query, answer) in join_all(reads).await {
            answer.assert_status(&[200, 400, 503], query);
            // The queries are valid. But a table can have too many columns, fields can be unknown, and the memory or
            // the time may not suffice for all queries at once.
            let expected_refusals = [
                "strict=true does not allow unknown fields",
                "more than 10000 columns",
                "in this format",
                "more memory",
                "bytes of memory, the limit per client",
                "from this client or in total",
                "was stopped after",
            ];
            let text = answer.text();
            assert!(
                answer.status == 200 || expected_refusals.iter().any(|known| text.contains(known)),
                "{}",
                answer.summary()
            );
        }
        fixture.assert_healthy().await;
    }
    fixture.stop();
}
