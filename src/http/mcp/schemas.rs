//! The JSON Schemas of arguments, based on the registry for parameters of reads. They are short, because a client sends
//! all of them to its model before the first call.

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::tool::Tool;
use crate::description::parameters;
use crate::params::{Parameter, ParameterKind};

/// The arguments of a tool as an object. It has other properties only if the tool accepts the arguments of another
/// tool.
pub(super) fn object(tool: &Tool) -> JsonObject {
    let properties = (tool.arguments)().into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let others = match tool.like {
        Some((other, _)) => json!({"description": format!("An argument of `{other}`")}),
        None => json!(false),
    };
    Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), Value::Object(properties)),
        ("required".to_owned(), json!(tool.required)),
        ("additionalProperties".to_owned(), others),
    ])
}

pub(super) fn positive(about: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "description": about})
}

pub(super) fn at_most(most: u32, default: u32, about: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": most, "default": default, "description": about})
}

pub(super) fn whole_number(default: u64, about: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "default": default, "description": about})
}

/// A boolean with the default false.
pub(super) fn flag(about: &str) -> Value {
    json!({"type": "boolean", "description": about})
}

pub(super) fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

/// A version with the default `active`.
pub(super) fn selector() -> Value {
    let mut schema = version("The version");
    schema["default"] = json!("active");
    schema
}

/// A required version.
pub(super) fn version(about: &str) -> Value {
    json!({
        "type": ["string", "integer"],
        "description": format!("{about}: active, latest, or a number"),
    })
}

/// A shorter schema of a read parameter, with these members instead of its own.
pub(super) fn parameter(parameter: &Parameter, instead: Value) -> Value {
    let mut schema = serde_json::to_value(parameters::schema(parameter)).unwrap_or_else(|_| json!({}));
    shorten(&mut schema);
    shorten(&mut schema["items"]);
    if let Some(schema) = schema.as_object_mut() {
        schema.retain(|name, value| name != "items" || !value.is_null());
    }
    // The first sentence says what it does.
    let about = parameter.documentation.split_once(". ").map_or(parameter.documentation, |(first, _)| first);
    let about = about.trim_end_matches('.');
    schema["description"] = match parameter.kind {
        kind @ (ParameterKind::PathValue | ParameterKind::Sort) => json!(format!("{}: {about}", kind.text())),
        _ => json!(about),
    };
    if let (Some(schema), Value::Object(instead)) = (schema.as_object_mut(), instead) {
        schema.extend(instead);
    }
    schema
}

/// Removes members that do not help a model: limits of integer types, patterns, and the default false.
fn shorten(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    for name in ["format", "maximum", "pattern"] {
        schema.remove(name);
    }
    if schema.get("default") == Some(&json!(false)) {
        schema.remove("default");
    }
}
