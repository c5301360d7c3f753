//! OpenAPI components that several endpoints use.

pub(crate) mod headers;
pub(crate) mod parameters;
pub(crate) mod responses;

use serde_json::Value;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::{Content, ContentBuilder, ObjectBuilder, RefOr, Required, Schema, SchemaFormat, Type};

pub(crate) const JSON: &str = "application/json";

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

pub(crate) fn text(example: &str) -> Content {
    ContentBuilder::new().schema(Some(typed(Type::String).build())).example(Some(example.into())).build()
}

pub(crate) fn bytes() -> Content {
    let format = SchemaFormat::Custom("binary".to_owned());
    ContentBuilder::new().schema(Some(typed(Type::String).format(Some(format)).build())).build()
}

pub(crate) fn typed(value_type: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(value_type)
}

/// A parameter that is required in a path and optional otherwise.
pub(crate) fn parameter(
    name: &str,
    place: ParameterIn,
    about: &str,
    schema: impl Into<RefOr<Schema>>,
    example: Option<Value>,
) -> ParameterBuilder {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    let parameter = ParameterBuilder::new().name(name).parameter_in(place).required(required);
    parameter.description(Some(about)).schema(Some(schema)).example(example)
}
