//! Paths, projections, and predicates on one entity. The input consists of lines with `keep_field`, `drop_field`, a
//! path, and the value of a filter, followed by an entity.

use std::ops::ControlFlow;

use strata_json::{ContainsPredicate, EqualsPredicate, FieldProjection, RangePredicate, SourceField};
use strata_reference::{Value, rules};
use strata_types::field_path::FieldPath;
use strata_types::read_request::RangeBound;

use crate::harness::{line, text};

pub fn check(bytes: &[u8]) {
    let (keep, rest) = line(text(bytes));
    let (drop, rest) = line(rest);
    let (path, rest) = line(rest);
    let (needle, entity) = line(rest);
    let Ok(entity) = Value::parse_entity(entity) else { return };
    let document = entity.write();
    let document = document.as_bytes();

    let keep = FieldPath::parse_list(keep);
    let drop = FieldPath::parse_list(drop);
    if keep.iter().chain(&drop).all(|path| path.keys().len() <= 128) {
        check_projections(document, &entity, &keep, &drop);
    }
    if let Ok(path) = FieldPath::parse(path) {
        check_path(document, &entity, &path);
    }
    check_predicates(document, &entity, needle);
    check_canonical_forms(&entity);
}

/// Checks that two values have the same canonical form if and only if they are equal.
fn check_canonical_forms(entity: &Value) {
    let Value::Object(members) = entity else { unreachable!("an entity") };
    let form = |value: &Value| {
        let mut out = Vec::new();
        strata_json::CanonicalFormWriter::default().write(value.write().as_bytes(), &mut out);
        out
    };
    let values: Vec<(&Value, Vec<u8>)> = members.iter().take(6).map(|(_, value)| (value, form(value))).collect();
    for (one, left) in &values {
        for (other, right) in &values {
            assert_eq!(left == right, rules::equal(one, other), "{} and {}", one.write(), other.write());
        }
    }
}

fn check_projections(document: &[u8], entity: &Value, keep: &[FieldPath], drop: &[FieldPath]) {
    let keys = |paths: &[FieldPath]| -> Vec<Vec<String>> { paths.iter().map(|path| path.keys().to_vec()).collect() };
    for source_field in [SourceField::Include, SourceField::Remove] {
        let mut expected = match source_field {
            SourceField::Include => entity.clone(),
            SourceField::Remove => rules::strip_source(entity),
        };
        if !keep.is_empty() {
            expected = rules::keep(&expected, &keys(keep));
        }
        expected = rules::drop(&expected, &keys(drop));
        let mut out = Vec::new();
        FieldProjection::new(source_field, keep, drop).apply(document, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected.write());
    }
}

fn check_path(document: &[u8], entity: &Value, path: &FieldPath) {
    let mut found = Vec::new();
    strata_json::visit_scalars_at(document, path, |scalar| {
        found.push(Value::from_scalar(scalar));
        ControlFlow::Continue(())
    });
    assert_eq!(found.iter().collect::<Vec<_>>(), rules::reach(entity, path.keys()));

    let mut found = Vec::new();
    strata_json::visit_values_at(document, path, |value| {
        found.push(String::from_utf8_lossy(value).into_owned());
        ControlFlow::Continue(())
    });
    let expected: Vec<String> = rules::reach_values(entity, path.keys()).into_iter().map(Value::write).collect();
    assert_eq!(found, expected);

    let member = strata_json::find_member(document, &path.keys()[0]).map(String::from_utf8_lossy);
    assert_eq!(member.as_deref(), entity.get(&path.keys()[0]).map(Value::write).as_deref());
}

fn check_predicates(document: &[u8], entity: &Value, needle: &str) {
    let equal = EqualsPredicate::new(needle);
    let contains = ContainsPredicate::new(needle);
    let ranges = RangeBound::ALL.map(|bound| RangePredicate::new(bound, needle));
    let mut found = Vec::new();
    strata_json::visit_all_scalars(document, |scalar| {
        let in_ranges = ranges.each_ref().map(|range| strata_json::matches_range(scalar, range));
        let texts = (strata_json::matches_equal(scalar, &equal), strata_json::matches_contains(scalar, &contains));
        let matches = (texts, in_ranges);
        found.push((Value::from_scalar(scalar), matches));
        ControlFlow::Continue(())
    });
    let expected_matches = |scalar: &Value| {
        let in_ranges = RangeBound::ALL.map(|bound| rules::matches_range(scalar, bound, needle));
        ((rules::matches_equal(scalar, needle), rules::matches_contains(scalar, needle)), in_ranges)
    };
    let expected: Vec<_> =
        rules::scalars(entity).into_iter().map(|scalar| (scalar.clone(), expected_matches(scalar))).collect();
    assert_eq!(found, expected);
    assert_eq!(strata_json::fold_case(needle), rules::fold(needle));
}
