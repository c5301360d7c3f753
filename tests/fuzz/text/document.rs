//! Paths, projections and predicates over one entity. The input: the lines `keep_field`, `drop_field`, a path, the
//! value of a filter, then an entity.

use std::ops::ControlFlow;

use strata_json::{ContainsNeedle, EqualNeedle, Projection, RangeNeedle};
use strata_reference::{Value, rules};
use strata_types::path::Path;
use strata_types::request::RangeBound;

use crate::harness::{line, text};

pub fn check(bytes: &[u8]) {
    let (keep, rest) = line(text(bytes));
    let (drop, rest) = line(rest);
    let (path, rest) = line(rest);
    let (needle, entity) = line(rest);
    let Ok(entity) = Value::parse_entity(entity) else { return };
    let document = entity.write();
    let document = document.as_bytes();

    let (keep, drop) = (Path::parse_list(keep), Path::parse_list(drop));
    if keep.iter().chain(&drop).all(|path| path.keys().len() <= 128) {
        projections(document, &entity, &keep, &drop);
    }
    if let Ok(path) = Path::parse(path) {
        reaches(document, &entity, &path);
    }
    predicates(document, &entity, needle);
    forms(&entity);
}

/// Values have the same canonical form exactly where they are equal.
fn forms(entity: &Value) {
    let Value::Object(members) = entity else { unreachable!("an entity") };
    let form = |value: &Value| {
        let mut out = Vec::new();
        strata_json::CanonicalForm::default().write(value.write().as_bytes(), &mut out);
        out
    };
    let values: Vec<(&Value, Vec<u8>)> = members.iter().take(6).map(|(_, value)| (value, form(value))).collect();
    for (one, left) in &values {
        for (other, right) in &values {
            assert_eq!(left == right, rules::equal(one, other), "{} and {}", one.write(), other.write());
        }
    }
}

fn projections(document: &[u8], entity: &Value, keep: &[Path], drop: &[Path]) {
    let keys = |paths: &[Path]| -> Vec<Vec<String>> { paths.iter().map(|path| path.keys().to_vec()).collect() };
    for include_source in [true, false] {
        let mut expected = if include_source { entity.clone() } else { rules::strip_source(entity) };
        if !keep.is_empty() {
            expected = rules::keep(&expected, &keys(keep));
        }
        expected = rules::drop(&expected, &keys(drop));
        let mut out = Vec::new();
        Projection::new(include_source, keep, drop).apply(document, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected.write());
    }
}

fn reaches(document: &[u8], entity: &Value, path: &Path) {
    let mut found = Vec::new();
    strata_json::reach(document, path, |scalar| {
        found.push(Value::of(scalar));
        ControlFlow::Continue(())
    });
    assert_eq!(found.iter().collect::<Vec<_>>(), rules::reach(entity, path.keys()));

    let mut found = Vec::new();
    strata_json::reach_values(document, path, |value| {
        found.push(String::from_utf8_lossy(value).into_owned());
        ControlFlow::Continue(())
    });
    let expected: Vec<String> = rules::reach_values(entity, path.keys()).into_iter().map(Value::write).collect();
    assert_eq!(found, expected);

    let member = strata_json::member(document, &path.keys()[0]).map(String::from_utf8_lossy);
    assert_eq!(member.as_deref(), entity.get(&path.keys()[0]).map(Value::write).as_deref());
}

fn predicates(document: &[u8], entity: &Value, needle: &str) {
    let (equal, contains) = (EqualNeedle::new(needle), ContainsNeedle::new(needle));
    let ranges = RangeBound::ALL.map(|bound| RangeNeedle::new(bound, needle));
    let mut found = Vec::new();
    strata_json::scalars(document, |scalar| {
        let in_ranges = ranges.each_ref().map(|range| strata_json::matches_range(scalar, range));
        let texts = (strata_json::matches_equal(scalar, &equal), strata_json::matches_contains(scalar, &contains));
        let matches = (texts, in_ranges);
        found.push((Value::of(scalar), matches));
        ControlFlow::Continue(())
    });
    let of = |scalar: &Value| {
        let in_ranges = RangeBound::ALL.map(|bound| rules::matches_range(scalar, bound, needle));
        ((rules::matches_equal(scalar, needle), rules::matches_contains(scalar, needle)), in_ranges)
    };
    let expected: Vec<_> = rules::scalars(entity).into_iter().map(|scalar| (scalar.clone(), of(scalar))).collect();
    assert_eq!(found, expected);
    assert_eq!(strata_json::fold(needle), rules::fold(needle));
}
