//! JSON Schemas of tool arguments, derived from the registry of query parameters. The schemas are short, because a
//! client sends all of them to its model before the first call.

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::tool::ToolSpec;
use crate::openapi_components::read_parameters;
use crate::params::{ParameterKind, QueryParameter};

/// Schema of a tool's arguments. Additional properties are allowed only if the tool accepts another tool's arguments.
pub(super) fn arguments_schema(tool: &ToolSpec) -> JsonObject {
    let properties = (tool.arguments)().into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let additional = match tool.inherited_arguments {
        Some((other, _)) => json!({"description": format!("An argument of `{other}`")}),
        None => json!(false),
    };
    Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), Value::Object(properties)),
        ("required".to_owned(), json!(tool.required)),
        ("additionalProperties".to_owned(), additional),
    ])
}

pub(super) fn positive_schema(description: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "description": description})
}

pub(super) fn limit_schema(max: u32, default: u32, description: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": max, "default": default, "description": description})
}

pub(super) fn whole_number_schema(default: u64, description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "default": default, "description": description})
}

pub(super) fn flag_schema(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

pub(super) fn text_schema(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub(super) fn version_selector_schema() -> Value {
    let mut schema = version_schema("The version");
    schema["default"] = json!("active");
    schema
}

pub(super) fn version_schema(description: &str) -> Value {
    json!({
        "type": ["string", "integer"],
        "description": format!("{description}: active, latest, or a number"),
    })
}

/// Returns a shortened schema of a query parameter. `overrides` replaces members of the schema.
pub(super) fn parameter_schema(parameter: &QueryParameter, overrides: Value) -> Value {
    let mut schema = serde_json::to_value(read_parameters::parameter_schema(parameter)).unwrap_or_else(|_| json!({}));
    remove_redundant_members(&mut schema);
    remove_redundant_members(&mut schema["items"]);
    if let Some(schema) = schema.as_object_mut() {
        schema.retain(|name, value| name != "items" || !value.is_null());
    }
    // The first sentence of a parameter's documentation is a summary.
    let summary = parameter.documentation.split_once(". ").map_or(parameter.documentation, |(first, _)| first);
    let summary = summary.trim_end_matches('.');
    schema["description"] = match parameter.kind {
        kind @ (ParameterKind::PathValue | ParameterKind::Sort) => json!(format!("{}: {summary}", kind.label())),
        _ => json!(summary),
    };
    if let (Some(schema), Value::Object(overrides)) = (schema.as_object_mut(), overrides) {
        schema.extend(overrides);
    }
    schema
}

/// Removes members that do not help a model: limits of integer types, patterns, and defaults that are false.
fn remove_redundant_members(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    for name in ["format", "maximum", "pattern"] {
        schema.remove(name);
    }
    if schema.get("default") == Some(&json!(false)) {
        schema.remove("default");
    }
}
