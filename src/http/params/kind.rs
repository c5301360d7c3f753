//! The kinds of values that parameters take: one word for each in tables, and the JSON values that stand for them in
//! the OpenAPI document.

use std::borrow::Cow;

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// `true`, `false`, `1` or `0`, in any case.
    Boolean,
    /// Decimal digits, up to the largest `u64`.
    WholeNumber,
    OneOf(&'static [&'static str]),
    Paths,
    Keywords,
    PathValue,
    Sort,
}

impl ParameterKind {
    /// The words for tables, those of docs/reference/query-semantics.md, Parameters.
    pub fn text(self) -> Cow<'static, str> {
        match self {
            ParameterKind::Boolean => "boolean".into(),
            ParameterKind::WholeNumber => "integer".into(),
            ParameterKind::OneOf(names) => names.join(", ").into(),
            ParameterKind::Paths => "comma-separated paths".into(),
            ParameterKind::Keywords => "comma-separated strings".into(),
            ParameterKind::PathValue => "path:value".into(),
            ParameterKind::Sort => "field:asc or field:desc".into(),
        }
    }

    /// A value, decoded as from a URL, as the JSON value that stands for it; of a list, for one of its items. `None`
    /// for words that are no value of this kind ("all", for a number).
    pub fn json(self, text: &str) -> Option<Value> {
        match self {
            ParameterKind::Boolean => text.parse().ok().map(Value::Bool),
            ParameterKind::WholeNumber => text.parse::<u64>().ok().map(Value::from),
            ParameterKind::OneOf(names) => names.contains(&text).then(|| text.into()),
            ParameterKind::Paths | ParameterKind::Keywords | ParameterKind::PathValue | ParameterKind::Sort => {
                Some(text.into())
            }
        }
    }

    /// A regular expression (ECMA-262) that the values of this kind match and others do not, if there is one.
    pub fn pattern(self) -> Option<&'static str> {
        match self {
            ParameterKind::Boolean
            | ParameterKind::WholeNumber
            | ParameterKind::OneOf(_)
            | ParameterKind::Paths
            | ParameterKind::Keywords => None,
            // A path that is not empty, up to the first colon that no backslash escapes.
            ParameterKind::PathValue => Some(r"^([^:\\]|\\[\s\S])+:"),
            ParameterKind::Sort => Some(r"^([\s\S]+:(asc|desc)|[^:]+)$"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_stand_for_json_values() {
        assert_eq!(ParameterKind::Boolean.json("true"), Some(json!(true)));
        assert_eq!(ParameterKind::WholeNumber.json("18446744073709551615"), Some(json!(u64::MAX)));
        assert_eq!(ParameterKind::WholeNumber.json("all"), None);
        assert_eq!(ParameterKind::OneOf(&["or", "and"]).json("and"), Some(json!("and")));
        assert_eq!(ParameterKind::OneOf(&["or", "and"]).json("none"), None);
        assert_eq!(ParameterKind::PathValue.json("a:b,c"), Some(json!("a:b,c")));
    }
}
