//! The parameters that list fields by their paths.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const KEEP_FIELD: Parameter = Parameter {
    name: "keep_field",
    kind: ParameterKind::Paths,
    default_text: "none",
    summary: "Keeps only the listed fields; `a.b` keeps only `b` in `a`",
    documentation: "Keeps only the listed fields, in their original order. `a.b` keeps `a` with only its field `b`, \
         and `a,a.b` keeps all of `a`. If a path leads through an array, strata applies the path to every object in \
         the array, at any depth, and removes scalars from the array. `_source` is kept only if you list it. Later \
         steps (`filter`, `keywords`, `sort`, `dedup`) can find only the fields that you keep. To write a literal dot, \
         comma, or backslash in a path, use `\\.`, `\\,`, or `\\\\`. strata ignores empty items, and spaces or tabs \
         around a path. An empty list has no effect.",
    example: Some("name,region,area"),
    repetition: Repetition::List,
    apply: |value, request| value::paths(value).map(|value| request.keep.extend(value)),
};

pub(super) const DROP_FIELD: Parameter = Parameter {
    name: "drop_field",
    summary: "Removes the listed fields; `a.b` removes `b` from the object `a`, or from each object in the array `a`",
    documentation: "Removes the listed fields from every entity. `a.b` removes `b` from the object `a`. If `a` is an \
         array, `a.b` removes `b` from each element. A parent that becomes empty remains. This step runs after \
         `keep_field` and before `filter`, `keywords`, `sort`, and `dedup`, so these steps cannot find the removed \
         fields. To write a literal dot, comma, or backslash in a path, use `\\.`, `\\,`, or `\\\\`. strata ignores \
         empty items, and spaces or tabs around a path. An empty list has no effect.",
    example: Some("name.native"),
    apply: |value, request| value::paths(value).map(|value| request.drop.extend(value)),
    ..KEEP_FIELD
};

pub(super) const DEDUP_KEY: Parameter = Parameter {
    name: "dedup_key",
    summary: "With `dedup=true`, compares only these fields",
    documentation: "With `dedup=true`, strata compares only the values at these paths, which can include `_source`. A \
         missing field equals only another missing field, and an array is compared as a whole. Without `dedup=true`, \
         this parameter has no effect. To write a literal dot, comma, or backslash in a path, use `\\.`, `\\,`, or \
         `\\\\`. strata ignores empty items, and spaces or tabs around a path. An empty list has no effect.",
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
