//! The parameters that list fields by their paths.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const KEEP_FIELD: Parameter = Parameter {
    name: "keep_field",
    kind: ParameterKind::Paths,
    default_text: "none",
    summary: "Keeps only the listed fields; `a.b` keeps only `b` in `a`",
    documentation: "Keeps only the listed fields, in the order in which the entity has them. `a.b` keeps the parent \
         `a` with only its field `b`. In arrays, also nested ones, every object is reduced in the same way. Scalars \
         in arrays are removed. `a,a.b` keeps all of `a`. `_source` is kept only if it is listed. The steps after it \
         (`filter`, `keywords`, `sort`, `dedup`) find only what is kept. `\\.`, `\\,` and `\\\\` stand for the \
         characters themselves. Blanks around a path do not count, and empty items are dropped. A list without items \
         means the same as no parameter.",
    example: Some("name,region,area"),
    repetition: Repetition::List,
    apply: |value, request| value::paths(value).map(|value| request.keep.extend(value)),
};

pub(super) const DROP_FIELD: Parameter = Parameter {
    name: "drop_field",
    summary: "Removes the listed fields; `a.b` reaches into objects and arrays of objects",
    documentation: "Removes the listed fields from every entity, wherever the path reaches: `a.b` reaches into \
         objects and, through arrays, into every element. A parent that becomes empty stays. Applied after \
         `keep_field` and before `filter`, `keywords`, `sort` and `dedup`, which no longer find what is removed. \
         `\\.`, `\\,` and `\\\\` stand for the characters themselves. Blanks around a path do not count, and empty \
         items are dropped. A list without items means the same as no parameter.",
    example: Some("name.native"),
    apply: |value, request| value::paths(value).map(|value| request.drop.extend(value)),
    ..KEEP_FIELD
};

pub(super) const DEDUP_KEY: Parameter = Parameter {
    name: "dedup_key",
    summary: "With `dedup=true`, compares only these fields",
    documentation: "With `dedup=true`, entities are duplicates when the values that these paths reach are equal; \
         `_source` may be named. A missing field is a value of its own, and an array is compared as a whole. Does \
         nothing without `dedup=true`. `\\.`, `\\,` and `\\\\` stand for the characters themselves. Blanks around a \
         path do not count, and empty items are dropped. A list without items means the same as no parameter.",
    example: Some("region,subregion"),
    apply: |value, request| value::paths(value).map(|value| request.dedup_key.extend(value)),
    ..KEEP_FIELD
};

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::path::Path;
    use strata_types::request::ReadRequest;

    fn paths(parameter: &Parameter, lists: &[&str]) -> ReadRequest {
        let mut request = ReadRequest::default();
        for list in lists {
            assert_eq!((parameter.apply)(list, &mut request), Ok(()), "{list:?}");
        }
        request
    }

    #[test]
    fn lists_are_joined_in_order() {
        let lists = ["b.c, a", ",", r"x\,y"];
        let joined = || ["b.c", "a", r"x\,y"].map(|path| Path::parse(path).expect(path)).to_vec();
        let default = ReadRequest::default;
        assert_eq!(paths(&KEEP_FIELD, &lists), ReadRequest { keep: joined(), ..default() });
        assert_eq!(paths(&DROP_FIELD, &lists), ReadRequest { drop: joined(), ..default() });
        assert_eq!(paths(&DEDUP_KEY, &lists), ReadRequest { dedup_key: joined(), ..default() });
    }

    #[test]
    fn nothing_listed_is_nothing_given() {
        for parameter in [KEEP_FIELD, DROP_FIELD, DEDUP_KEY] {
            assert_eq!(paths(&parameter, &["", ",", " ,\t, "]), ReadRequest::default(), "{}", parameter.name);
        }
    }
}
