//! OpenAPI parameters, derived from the registry of query parameters.

use serde_json::Value;
use utoipa::openapi::path::{Parameter, ParameterIn, ParameterStyle};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, RefOr, Schema, SchemaFormat, Type};

use crate::params::{ParameterKind, ParameterRepetition, QueryParameter};

pub(crate) fn parameter_component(parameter: &QueryParameter) -> Parameter {
    let QueryParameter { name, documentation, repetition, .. } = *parameter;
    let schema = parameter_schema(parameter);
    let example = parameter_example(parameter);
    let builder = super::parameter_builder(name, ParameterIn::Query, documentation, schema, example);
    match repetition {
        ParameterRepetition::Single => builder,
        _ => builder.style(Some(ParameterStyle::Form)).explode(Some(repetition == ParameterRepetition::Repeated)),
    }
    .build()
}

/// A repeatable parameter is an array: one parameter for each item (`explode`), or a comma-separated list.
pub(crate) fn parameter_schema(parameter: &QueryParameter) -> RefOr<Schema> {
    let QueryParameter { kind, default_text, .. } = parameter;
    match parameter.repetition {
        ParameterRepetition::Single => value_schema(kind, default_value(kind, default_text)),
        _ => ArrayBuilder::new().items(value_schema(kind, None)).build().into(),
    }
}

pub(crate) fn parameter_example(parameter: &QueryParameter) -> Option<Value> {
    let text = parameter.example?;
    match parameter.repetition {
        ParameterRepetition::Single => parameter.kind.to_json(text),
        ParameterRepetition::Repeated => Some(parameter.kind.to_json(text).into_iter().collect()),
        ParameterRepetition::List => Some(text.split(',').filter_map(|item| parameter.kind.to_json(item)).collect()),
    }
}

/// Returns the default as a JSON value, or `None` if the default means that the parameter is not set.
fn default_value(kind: &ParameterKind, text: &str) -> Option<Value> {
    match kind {
        ParameterKind::Boolean | ParameterKind::WholeNumber | ParameterKind::OneOf(_) => kind.to_json(text),
        ParameterKind::Paths | ParameterKind::Keywords | ParameterKind::PathValue | ParameterKind::Sort => None,
    }
}

fn value_schema(kind: &ParameterKind, default: Option<Value>) -> RefOr<Schema> {
    let schema = ObjectBuilder::new().default(default);
    let schema = match kind {
        ParameterKind::Boolean => schema.schema_type(Type::Boolean),
        ParameterKind::WholeNumber => schema
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::Custom("uint64".to_owned())))
            .minimum(Some(0_usize))
            .maximum(Some(u64::MAX as usize)),
        ParameterKind::OneOf(names) => schema.schema_type(Type::String).enum_values(Some(names.iter().copied())),
        _ => schema.schema_type(Type::String).pattern(kind.pattern()),
    };
    schema.build().into()
}
