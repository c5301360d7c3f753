//! Checks that examine one entity after another: `required` and `types`.

use std::ops::ControlFlow;

use strata_json::{JsonCursor, JsonType, visit_values_at};
use strata_types::field_path::FieldPath;

use crate::excerpt::{quote_path, quote_value};

const TYPES: [(&str, JsonType); 6] = [
    ("null", JsonType::Null),
    ("boolean", JsonType::Bool),
    ("number", JsonType::Number),
    ("string", JsonType::String),
    ("object", JsonType::Object),
    ("array", JsonType::Array),
];

/// A set of JSON types by the names that JSON Schema also has. An integer is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JsonTypeSet(u8);

impl JsonTypeSet {
    /// Adds a type. Returns false if no type has this name.
    pub(crate) fn insert_name(&mut self, name: &str) -> bool {
        let index = TYPES.iter().position(|(known, _)| *known == name);
        self.0 |= index.map_or(0, |index| 1 << index);
        index.is_some()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, json_type: JsonType) -> bool {
        TYPES.iter().enumerate().any(|(index, (_, known))| *known == json_type && self.0 & (1 << index) != 0)
    }

    pub(crate) fn intersection(self, other: JsonTypeSet) -> JsonTypeSet {
        JsonTypeSet(self.0 & other.0)
    }

    fn names(self) -> String {
        let contained = TYPES.iter().filter(|(_, json_type)| self.contains(*json_type));
        contained.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

fn type_name(json_type: JsonType) -> &'static str {
    TYPES.iter().find(|(_, known)| *known == json_type).map_or("value", |(name, _)| *name)
}

/// Returns whether the path reaches a value other than null.
pub(crate) fn reaches_value(entity: &[u8], path: &FieldPath) -> bool {
    let mut is_reached = false;
    visit_values_at(entity, path, |value| {
        is_reached = value != b"null";
        if is_reached { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    is_reached
}

/// Describes why `path` reaches no value other than null.
pub(crate) fn describe_missing(entity: &[u8], path: &FieldPath) -> String {
    let mut is_null = false;
    visit_values_at(entity, path, |_| {
        is_null = true;
        ControlFlow::Break(())
    });
    format!("{} is {}", quote_path(path), if is_null { "null" } else { "missing" })
}

/// Returns the first value at `path` of a type that is not in `types`.
pub(crate) fn find_other_type<'a>(
    entity: &'a [u8],
    path: &FieldPath,
    types: JsonTypeSet,
) -> Option<(&'a [u8], JsonType)> {
    let mut found = None;
    visit_values_at(entity, path, |value| match JsonCursor::new(value).peek_type() {
        Some(json_type) if !types.contains(json_type) => {
            found = Some((value, json_type));
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found
}

pub(crate) fn describe_other_type(path: &FieldPath, types: JsonTypeSet, value: &[u8], json_type: JsonType) -> String {
    let article = if matches!(json_type, JsonType::Object | JsonType::Array) { "an" } else { "a" };
    let kind = match json_type {
        JsonType::Null => String::new(),
        other => format!(" ({article} {})", type_name(other)),
    };
    format!("{} is {}{kind}; valid: {}", quote_path(path), quote_value(value), types.names())
}
