//! The parameters that list fields by their paths.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const KEEP_FIELD: Parameter = Parameter {
    name: "keep_field",
    kind: ParameterKind::Paths,
    default_text: "none",
    summary: "Keeps only the listed fields; `a.b` keeps only `b` in `a`",
    documentation: "Keeps only the listed fields, in the order in which the entity has them. `a.b` keeps the parent \
         `a` with only its field `b`. In arrays, including nested ones, every object is reduced in the same way, and \
         scalars are removed. `a,a.b` keeps all of `a`. `_source` is kept only if you list it. Later steps (`filter`, \
         `keywords`, `sort`, `dedup`) can find only the fields that are kept. For a literal dot, comma, or backslash \
         in a path, write `\\.`, `\\,`, or `\\\\`. strata ignores empty items and spaces or tabs around a path. A list \
         without items has the same effect as no parameter.",
    example: Some("name,region,area"),
    repetition: Repetition::List,
    apply: |value, request| value::paths(value).map(|value| request.keep.extend(value)),
};

pub(super) const DROP_FIELD: Parameter = Parameter {
    name: "drop_field",
    summary: "Removes the listed fields; `a.b` reaches into objects and arrays of objects",
    documentation: "Removes the listed fields from every entity. `a.b` reaches into objects and, through arrays, into \
         every element. A parent that becomes empty stays. This step runs after `keep_field` and before `filter`, \
         `keywords`, `sort`, and `dedup`, so these steps cannot find the removed fields. For a literal dot, comma, or \
         backslash in a path, write `\\.`, `\\,`, or `\\\\`. strata ignores empty items and spaces or tabs around a \
         path. A list without items has the same effect as no parameter.",
    example: Some("name.native"),
    apply: |value, request| value::paths(value).map(|value| request.drop.extend(value)),
    ..KEEP_FIELD
};

pub(super) const DEDUP_KEY: Parameter = Parameter {
    name: "dedup_key",
    summary: "With `dedup=true`, compares only these fields",
    documentation: "With `dedup=true`, entities are duplicates if their values at these paths are equal. You can list \
         `_source`. A missing field counts as a distinct value, and an array is compared as a whole. This parameter \
         has no effect without `dedup=true`. For a literal dot, comma, or backslash in a path, write `\\.`, `\\,`, or \
         `\\\\`. strata ignores empty items and spaces or tabs around a path. A list without items has the same effect \
         as no parameter.",
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
