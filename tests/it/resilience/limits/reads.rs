//! The parameters of reads: each with the largest values of its kind, with one more, and all in combinations.

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use strata_testing::openapi::{Document, ParameterKind, ReadParameter, Repetition};
use strata_types::limits;

use super::{DATASETS, ORDINARY, World, encoded};

/// What a value may hold beside itself, in the longest query strings.
const SPARE_BYTES: usize = 64;

/// The parameters of reads, as the server describes them.
async fn parameters(world: &World) -> Vec<ReadParameter> {
    Document(world.get("/openapi.json").await.json()).read_parameters()
}

/// One parameter as often as given.
fn given(parameter: &ReadParameter, values: impl IntoIterator<Item = String>) -> String {
    let pairs: Vec<String> =
        values.into_iter().map(|value| format!("{}={}", parameter.name, encoded(&value))).collect();
    pairs.join("&")
}

/// A path of so many names.
fn path(names: usize) -> String {
    vec!["a"; names].join(".")
}

/// A value that makes the query string as long as it may be, within `rest` bytes.
fn filling(parameter: &ReadParameter, head: &str) -> String {
    let bytes = limits::QUERY_BYTES - parameter.name.len() - 1 - encoded(head).len();
    format!("{head}{}", "x".repeat(bytes))
}

/// Query strings of this parameter alone that are at a limit: each is taken.
fn at_most(parameter: &ReadParameter) -> Vec<String> {
    let one = |value: &str| given(parameter, [value.to_owned()]);
    let items = |item: fn(usize) -> String| match parameter.repetition {
        Repetition::Single => unreachable!("{} is given once", parameter.name),
        Repetition::Repeat => given(parameter, (0..limits::ITEMS).map(item)),
        Repetition::List => given(parameter, [(0..limits::ITEMS).map(item).collect::<Vec<_>>().join(",")]),
    };
    match &parameter.kind {
        ParameterKind::Boolean => ["true", "FALSE", "1", "0"].map(one).into(),
        ParameterKind::WholeNumber => vec![one("0"), one(&u64::MAX.to_string()), one(&format!("{:0>5000}", 7))],
        ParameterKind::OneOf(names) => names.iter().map(|name| one(name)).collect(),
        ParameterKind::Paths => vec![
            items(|number| format!("f{number}")),
            items(|_| path(3)),
            one(&vec![path(limits::PATH_KEYS); 100].join(",")),
            one(&filling(parameter, "")),
        ],
        ParameterKind::Keywords => vec![items(|number| format!("w{number}")), one(&filling(parameter, ""))],
        ParameterKind::PathValue => vec![
            items(|number| format!("f{number}:x")),
            items(|_| "a.a.a:x".to_owned()),
            given(parameter, vec![format!("{}:x", path(limits::PATH_KEYS)); 100]),
            one(&filling(parameter, "region:")),
            one(&filling(parameter, &format!("{}:", path(limits::PATH_KEYS)))),
        ],
        ParameterKind::Sort => vec![one("region:desc"), one(&filling(parameter, ""))],
    }
}

/// Query strings that are one past a limit, with the status and a word of the refusal.
fn beyond(parameter: &ReadParameter) -> Vec<(String, u16, &'static str)> {
    let one = |value: &str| given(parameter, [value.to_owned()]);
    let many = |item: &str| match parameter.repetition {
        Repetition::Single => unreachable!("{} is given once", parameter.name),
        Repetition::Repeat => given(parameter, vec![item.to_owned(); limits::ITEMS + 1]),
        Repetition::List => given(parameter, [vec![item; limits::ITEMS + 1].join(",")]),
    };
    let mut all = vec![
        (format!("{}x", given(parameter, [filling(parameter, "")])), 414, "at most 32768 bytes"),
        (format!("{}=%FF", parameter.name), 400, "UTF-8"),
    ];
    if parameter.repetition == Repetition::Single {
        all.push((format!("{0}&{0}", one(parameter.example.as_deref().unwrap_or("1"))), 400, "valid"));
    }
    all.extend(match &parameter.kind {
        ParameterKind::Boolean => vec![(one("2"), 400, "true, false, 1, or 0")],
        ParameterKind::WholeNumber => vec![
            (one("18446744073709551616"), 400, "too large"),
            (one(&"9".repeat(30_000)), 400, "too large"),
            (one("-1"), 400, "decimal digits"),
        ],
        ParameterKind::OneOf(_) => vec![(one("none"), 400, "valid"), (one(&"x".repeat(30_000)), 400, "valid")],
        ParameterKind::Paths => {
            vec![(many("f"), 400, "at most 1000"), (one(&path(limits::PATH_KEYS + 1)), 400, "128 keys")]
        }
        ParameterKind::Keywords => vec![(many("w"), 400, "at most 1000")],
        ParameterKind::PathValue => vec![
            (many("a:x"), 400, "at most 1000"),
            (one(&format!("{}:x", path(limits::PATH_KEYS + 1))), 400, "128 keys"),
            (one(&path(16_000)), 400, "colon"),
        ],
        ParameterKind::Sort => vec![(one(""), 400, "valid"), (one(":desc"), 400, "valid")],
    });
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_parameter_is_taken_at_its_limits_and_refused_beyond() {
    let world = World::new().await;
    for parameter in &parameters(&world).await {
        for query in at_most(parameter) {
            // A seed is one of a sample.
            let query = if parameter.name == "seed" { format!("{query}&sample=1") } else { query };
            assert!(query.len() <= limits::QUERY_BYTES, "{} bytes", query.len());
            for dataset in DATASETS {
                // There are no alternates.
                let statuses: &[u16] = if matches!(query.as_str(), "alt=true" | "alt=1") { &[404] } else { &[200] };
                world.read(dataset, &query).await.is(statuses, &query);
            }
        }
        for (query, status, word) in beyond(parameter) {
            let answer = world.read(ORDINARY, &query).await;
            answer.is(&[status], &query);
            assert!(answer.text().contains(word), "{} for {word}", answer.shown());
        }
        world.is_well().await;
    }
    world.end();
}

/// Some parameters at once, each with some of what it may have, no more together than a request may.
fn combination(parameters: &[ReadParameter], random: &mut StdRng) -> String {
    let (mut pairs, mut bytes, mut items) = (Vec::<String>::new(), 0, 0);
    for parameter in parameters {
        // A seed is one of a sample, which comes before it.
        let is_without = parameter.name == "seed" && !pairs.iter().any(|pair| pair.starts_with("sample="));
        if parameter.name == "alt" || is_without || random.random_bool(0.5) {
            continue;
        }
        let all = at_most(parameter);
        let mut pair = all.choose(random).expect("a value").clone();
        let plain =
            matches!(parameter.kind, ParameterKind::Boolean | ParameterKind::WholeNumber | ParameterKind::OneOf(_));
        if !plain {
            // As many items as fit, and as much of the query string.
            let few = random.random_range(1..=(limits::ITEMS - items).clamp(1, 400));
            let item = |number: usize| match &parameter.kind {
                ParameterKind::PathValue => {
                    ["region:Europe", "a.a:x", "c7:7", "name.common:", "cca3:f"][number % 5].to_owned()
                }
                ParameterKind::Keywords => ["a", "europe", "x", "7"][number % 4].to_owned(),
                _ => ["region", "name.common", "a.a.a", "c7", "cca3", "_source"][number % 6].to_owned(),
            };
            pair = match parameter.repetition {
                Repetition::Single => given(parameter, [item(few)]),
                Repetition::Repeat => given(parameter, (0..few).map(item)),
                Repetition::List => given(parameter, [(0..few).map(item).collect::<Vec<_>>().join(",")]),
            };
            items += if parameter.repetition == Repetition::Single { 0 } else { few };
        }
        if items > limits::ITEMS || bytes + pair.len() + SPARE_BYTES > limits::QUERY_BYTES {
            break;
        }
        bytes += pair.len() + 1;
        pairs.push(pair);
    }
    pairs.join("&")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn combinations_of_them_are_answered_several_at_once() {
    let rounds = std::env::var("STRATA_LIMIT_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10);
    let random = &mut StdRng::seed_from_u64(11);
    let world = World::new().await;
    let parameters = parameters(&world).await;
    for _ in 0..rounds {
        let queries: Vec<(&str, String)> =
            (0..6).map(|_| (*DATASETS.choose(random).expect("a dataset"), combination(&parameters, random))).collect();
        let reads = queries.iter().map(async |(dataset, query)| (query, world.read(dataset, query).await));
        for (query, answer) in join_all(reads).await {
            answer.is(&[200, 400, 503], query);
            // Nothing in them is wrong; a table may be too wide, fields may be absent, and there may be too little
            // memory or time for all at once.
            let refusals = [
                "strict=true does not allow unknown fields",
                "more than 10000 columns",
                "in this format",
                "more memory",
                "bytes of memory, the limit per client",
                "from this client or in total",
                "was stopped after",
            ];
            let text = answer.text();
            assert!(answer.status == 200 || refusals.iter().any(|known| text.contains(known)), "{}", answer.shown());
        }
        world.is_well().await;
    }
    world.end();
}
