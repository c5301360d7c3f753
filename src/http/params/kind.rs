//! The kinds of parameter values, with their names in tables and their JSON values in the OpenAPI document.

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
    /// As in docs/reference/query-semantics.md, Parameters.
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

    /// The JSON value of a decoded value, or of an item of a list. `None` for text that is not a value ("all" for a
    /// number).
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

    /// A regular expression (ECMA-262) that matches exactly the values of this kind.
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
