//! The JSON Schemas of arguments and results. Those of the read parameters are the registry's, those of records are
//! the types' own, as the OpenAPI document has them.

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};
use utoipa::{PartialSchema, ToSchema};

use crate::http::description::parameters;
use crate::http::params::Parameter;

/// An object with these properties and no others, of which some must be there.
pub(super) fn object(properties: impl IntoIterator<Item = (&'static str, Value)>, required: &[&str]) -> JsonObject {
    let properties: Map<String, Value> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut object = Map::new();
    object.insert("type".to_owned(), json!("object"));
    object.insert("properties".to_owned(), Value::Object(properties));
    object.insert("required".to_owned(), json!(required));
    object.insert("additionalProperties".to_owned(), json!(false));
    object
}

/// A positive integer.
pub(super) fn positive(about: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "description": about})
}

/// A positive integer up to `most`.
pub(super) fn at_most(most: u32, default: u32, about: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": most, "default": default, "description": about})
}

/// A whole number.
pub(super) fn whole_number(default: u64, about: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "default": default, "description": about})
}

/// A boolean that is false unless given.
pub(super) fn flag(about: &str) -> Value {
    json!({"type": "boolean", "default": false, "description": about})
}

/// A text.
pub(super) fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

/// Which version; the active one unless given.
pub(super) fn selector() -> Value {
    let mut schema = version("Which version");
    schema["default"] = json!("active");
    schema
}

/// A version, which must be given.
pub(super) fn version(about: &str) -> Value {
    json!({
        "type": ["string", "integer"],
        "pattern": "^(active|latest|v?[1-9][0-9]*|v0)$",
        "minimum": 1,
        "description": format!("{about}: `active` (what readers get), `latest` (the newest) or a number, such as 3 or `v3`."),
    })
}

/// A read parameter, as the registry has it, with these members in place of its own.
pub(super) fn parameter(parameter: &Parameter, instead: Value) -> Value {
    // Plain data, which always has a JSON form.
    let mut schema = serde_json::to_value(parameters::schema(parameter)).unwrap_or_else(|_| json!({}));
    schema["description"] = json!(parameter.documentation);
    if let Some(example) = parameters::example(parameter) {
        schema["examples"] = json!([example]);
    }
    if let (Some(schema), Value::Object(instead)) = (schema.as_object_mut(), instead) {
        schema.extend(instead);
    }
    schema
}

/// A record, with the records in it.
pub(super) fn record<T: ToSchema + PartialSchema>() -> JsonObject {
    let mut inner = Vec::new();
    T::schemas(&mut inner);
    let value = |schema| serde_json::to_value(schema).unwrap_or_else(|_| json!({}));
    let mut root = value(T::schema());
    if !inner.is_empty() {
        root["$defs"] = inner.into_iter().map(|(name, schema)| (name, value(schema))).collect::<Map<_, _>>().into();
    }
    refer_to_definitions(&mut root);
    root["type"] = json!("object");
    match root {
        Value::Object(root) => root,
        _ => JsonObject::new(),
    }
}

/// References within an OpenAPI document become references within the schema.
fn refer_to_definitions(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(reference) if name == "$ref" => {
                        *reference = reference.replace("#/components/schemas/", "#/$defs/");
                    }
                    other => refer_to_definitions(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(refer_to_definitions),
        _ => {}
    }
}
