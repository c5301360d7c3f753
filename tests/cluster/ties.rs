//! Entities with equal sort keys on several nodes: such entities stay in the order of the version. The tests compare
//! with the reference implementation, because a local query could have the same bug as a distributed one.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use strata_format::writer::WriteOptions;
use strata_reference::{Value, pipeline};
use strata_testing::reads::cases;
use strata_testing::versions::{all_shredded, nothing_shredded};
use strata_types::read_request::ReadRequest;

use super::{QueryResult, TestNodes, filter, path, sort};

/// Keys of which many are equal: with one spelling, with several spellings, and because all sort last.
const KEYS: [&[&str]; 4] =
    [&["1"], &["1", "1.0", "10e-1"], &["1", "2", r#""a""#, "true"], &["null", "{}", "[1]", "", "7"]];

fn entity(random: &mut StdRng, number: usize, keys: &[&str]) -> Value {
    let key = keys[random.random_range(0..keys.len())];
    let key = if key.is_empty() { String::new() } else { format!(",\"k\":{key}") };
    // Entities are equal except for their number, so that `dedup` leaves few.
    let text = format!("{{\"n\":{number}{key},\"odd\":{}}}", random.random_range(0..2));
    Value::parse_entity(&text).expect("an entity")
}

/// Returns a random sorted request.
fn request(random: &mut StdRng, entities: usize) -> ReadRequest {
    let plain = match random.random_range(0..4) {
        0 => filter("odd", "1"),
        1 => ReadRequest { dedup: true, drop_fields: vec![path("n")], ..ReadRequest::default() },
        _ => ReadRequest::default(),
    };
    ReadRequest {
        sort: sort("k", random.random_bool(0.5)),
        limit: random.random_bool(0.8).then(|| random.random_range(0..=entities as u64)),
        offset: if random.random_bool(0.5) { 0 } else { random.random_range(0..=entities as u64 / 2) },
        ..plain
    }
}

#[test]
fn equal_keys_keep_their_order_on_any_node() {
    let nodes = TestNodes::new(3);
    let mut distributed = 0;
    for seed in 0..u64::from(cases(24).max(24)) {
        let random = &mut StdRng::seed_from_u64(seed);
        let keys = KEYS[random.random_range(0..KEYS.len())];
        let count = random.random_range(2..90);
        let entities: Vec<Value> = (0..count).map(|number| entity(random, number, keys)).collect();
        let options = WriteOptions {
            max_row_group_rows: random.random_range(1..40),
            shredding_limits: if random.random_bool(0.5) { all_shredded() } else { nothing_shredded() },
            ..WriteOptions::default()
        };
        let reader = nodes.version(&entities, &options);
        for number in 0..8 {
            let request = request(random, count);
            let expected = QueryResult::Positions(pipeline::selected_positions(&entities, &request));
            let (found, used) = nodes.run_on(number % 3, &reader, &request);
            assert_eq!(found, expected, "seed {seed}: {request:?}");
            assert_eq!(nodes.run_locally(&reader, &request).expect("found"), expected, "seed {seed}: {request:?}");
            if let Some(used) = used {
                assert_eq!(used.fallback, None, "seed {seed}: {request:?}");
                distributed += usize::from(used.nodes.len() > 1);
            }
        }
    }
    assert!(distributed > 100, "only {distributed} queries were distributed");
}
