//! The kinds of parameter values, with their labels in tables and their JSON values in the OpenAPI document.

use std::borrow::Cow;

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A boolean: `true`, `false`, `1`, or `0`, ignoring case.
    Boolean,
    WholeNumber,
    OneOf(&'static [&'static str]),
    Paths,
    Keywords,
    PathValue,
    Sort,
}

impl ParameterKind {
    /// The label of the kind in docs/reference/query-semantics.md, Parameters.
    pub fn label(self) -> Cow<'static, str> {
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

    /// Converts a decoded value or list item to JSON; `None` for text that is no value, such as the default "all".
    pub fn to_json(self, text: &str) -> Option<Value> {
        match self {
            ParameterKind::Boolean => text.parse().ok().map(Value::Bool),
            ParameterKind::WholeNumber => text.parse::<u64>().ok().map(Value::from),
            ParameterKind::OneOf(names) => names.contains(&text).then(|| text.into()),
            _ => Some(text.into()),
        }
    }

    /// Returns a regular expression (ECMA-262) that matches exactly the valid values of the kind.
    pub fn pattern(self) -> Option<&'static str> {
        match self {
            // In `path:value`, the path is not empty and ends at the first unescaped colon.
            ParameterKind::PathValue => Some(r"^([^:\\]|\\[\s\S])+:"),
            ParameterKind::Sort => Some(r"^([\s\S]+:(asc|desc)|[^:]+)$"),
            _ => None,
        }
    }
}
