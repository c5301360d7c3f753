//! OpenAPI components that several endpoints use.

pub(crate) mod error_responses;
pub(crate) mod read_parameters;
pub(crate) mod response_headers;

use serde_json::Value;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::{Content, ContentBuilder, ObjectBuilder, RefOr, Required, Schema, SchemaFormat, Type};

pub(crate) const JSON_CONTENT_TYPE: &str = "application/json";
pub(crate) const TEXT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";

pub(crate) fn text_content(example: &str) -> Content {
    ContentBuilder::new().schema(Some(schema_of_type(Type::String).build())).example(Some(example.into())).build()
}

pub(crate) fn binary_content() -> Content {
    let format = SchemaFormat::Custom("binary".to_owned());
    ContentBuilder::new().schema(Some(schema_of_type(Type::String).format(Some(format)).build())).build()
}

pub(crate) fn schema_of_type(value_type: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(value_type)
}

/// Returns a parameter that is required in a path and optional elsewhere.
pub(crate) fn parameter_builder(
    name: &str,
    location: ParameterIn,
    description: &str,
    schema: impl Into<RefOr<Schema>>,
    example: Option<Value>,
) -> ParameterBuilder {
    let required = if location == ParameterIn::Path { Required::True } else { Required::False };
    let parameter = ParameterBuilder::new().name(name).parameter_in(location).required(required);
    parameter.description(Some(description)).schema(Some(schema)).example(example)
}
