//! `sort`: orders the entities by one field.

use strata_types::request::Sort;

use super::{InvalidValue, Parameter, ParameterKind, Repetition};

pub(super) const SORT: Parameter = Parameter {
    name: "sort",
    kind: ParameterKind::Sort,
    default_text: "none",
    summary: "Sorts by one top-level field: numbers, then strings, false, true; null, missing, and nested values come \
              last",
    documentation: "Sorts the entities by one top-level field. The default direction is ascending: numbers by value, \
         then strings by code point, then false, then true. Descending order is the exact reverse. Entities in which \
         the field is null, missing, an object, or an array come last in both directions. The sort is stable. The last \
         colon separates the field name from the direction. The name has no escapes, and a dot is part of the name.",
    example: Some("area:desc"),
    repetition: Repetition::Single,
    apply: |value, request| sort(value).map(|sort| request.sort = Some(sort)),
};

/// `field:asc`, `field:desc` or `field`, split at the last colon.
fn sort(value: &str) -> Result<Sort, InvalidValue> {
    const VALID: &str =
        "field, field:asc, or field:desc, such as price:desc; a name that contains a colon needs a direction";
    let (field, direction) = value.rsplit_once(':').unwrap_or((value, "asc"));
    let descending = match direction {
        "asc" => false,
        "desc" => true,
        _ => return Err(InvalidValue::new("has an unknown direction", VALID)),
    };
    if field.is_empty() {
        return Err(InvalidValue::new("has no field name", VALID));
    }
    Ok(Sort { field: field.to_owned(), descending })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::request::ReadRequest;

    #[test]
    fn takes_a_field_and_a_direction() {
        for (value, field, descending) in [
            ("price", "price", false),
            ("price:asc", "price", false),
            ("price:desc", "price", true),
            ("a.b:desc", "a.b", true),
            (r"a\:b:asc", r"a\:b", false),
            ("a::desc", "a:", true),
            ("::asc", ":", false),
            ("asc", "asc", false),
            (" a :asc", " a ", false),
        ] {
            let mut request = ReadRequest::default();
            assert_eq!((SORT.apply)(value, &mut request), Ok(()), "{value}");
            let sort = Some(Sort { field: field.to_owned(), descending });
            assert_eq!(request, ReadRequest { sort, ..ReadRequest::default() }, "{value}");
        }
    }

    #[test]
    fn refuses_an_empty_field_and_any_other_direction() {
        for value in ["", ":asc", ":desc"] {
            assert_eq!(sort(value).map_err(|refused| refused.problem), Err("has no field name".into()), "{value}");
        }
        for value in ["a:", "a:b", "a:ASC", "a:asc ", "a: asc", "a:asc:", ":", ":up", "url:http://x"] {
            let refused = sort(value).expect_err(value);
            assert_eq!(refused.problem, "has an unknown direction", "{value}");
        }
    }
}
