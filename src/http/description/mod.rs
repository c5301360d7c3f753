//! What the descriptions of endpoints share, in the terms of OpenAPI.
//!
//! | Module | Holds |
//! |---|---|
//! | `headers`, `responses` | the headers and the errors that answers of several operations have |
//! | `parameters` | a parameter of the registry as a parameter of the document |

pub(crate) mod headers;
pub(crate) mod parameters;
pub(crate) mod responses;

use serde_json::Value;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::{Content, ContentBuilder, ObjectBuilder, RefOr, Required, Schema, Type};

/// The content type of texts: of every error, too.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// A body that is any text, perhaps with an example.
pub(crate) fn text(example: Option<&str>) -> Content {
    ContentBuilder::new().schema(Some(typed(Type::String).build())).example(example.map(Into::into)).build()
}

pub(crate) fn typed(value_type: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(value_type)
}

/// A parameter, which is required in a path and optional elsewhere.
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
