//! The kinds of values that parameters take: one word for each in tables, and the JSON values that stand for them in
//! the OpenAPI document.

use std::borrow::Cow;

use serde_json::Value;

/// What a parameter's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `false`, `1` or `0`, in any case.
    Boolean,
    /// Decimal digits, up to the largest `u64`.
    WholeNumber,
    /// One of these names, exactly.
    OneOf(&'static [&'static str]),
    /// Paths, separated by commas.
    Paths,
    /// Texts, separated by commas.
    Keywords,
    /// A path and a text, with a colon between them.
    PathValue,
    /// A field's name, with a direction or without.
    Sort,
}

impl Kind {
    /// The words for tables, those of docs/read.md, Parameters.
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Kind::Boolean => "boolean".into(),
            Kind::WholeNumber => "integer".into(),
            Kind::OneOf(names) => names.join(", ").into(),
            Kind::Paths => "comma-separated paths".into(),
            Kind::Keywords => "comma-separated strings".into(),
            Kind::PathValue => "path:value".into(),
            Kind::Sort => "field:asc or field:desc".into(),
        }
    }

    /// A value, decoded as from a URL, as the JSON value that stands for it; of a list, for one of its items. `None`
    /// for words that are no value of this kind ("all", for a number).
    pub fn json(self, text: &str) -> Option<Value> {
        match self {
            Kind::Boolean => text.parse().ok().map(Value::Bool),
            Kind::WholeNumber => text.parse::<u64>().ok().map(Value::from),
            Kind::OneOf(names) => names.contains(&text).then(|| text.into()),
            Kind::Paths | Kind::Keywords | Kind::PathValue | Kind::Sort => Some(text.into()),
        }
    }

    /// A regular expression (ECMA-262) that the values of this kind match and others do not, where there is one to
    /// tell.
    pub fn pattern(self) -> Option<&'static str> {
        match self {
            Kind::Boolean | Kind::WholeNumber | Kind::OneOf(_) | Kind::Paths | Kind::Keywords => None,
            // A path that is not empty, up to the first colon that no backslash escapes.
            Kind::PathValue => Some(r"^([^:\\]|\\[\s\S])+:"),
            Kind::Sort => Some(r"^([\s\S]+:(asc|desc)|[^:]+)$"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_stand_for_json_values() {
        assert_eq!(Kind::Boolean.json("true"), Some(json!(true)));
        assert_eq!(Kind::WholeNumber.json("18446744073709551615"), Some(json!(u64::MAX)));
        assert_eq!(Kind::WholeNumber.json("all"), None);
        assert_eq!(Kind::OneOf(&["or", "and"]).json("and"), Some(json!("and")));
        assert_eq!(Kind::OneOf(&["or", "and"]).json("none"), None);
        assert_eq!(Kind::PathValue.json("a:b,c"), Some(json!("a:b,c")));
    }
}
