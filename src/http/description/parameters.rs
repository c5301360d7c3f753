//! A parameter of the registry as an OpenAPI parameter.

use serde_json::Value;
use utoipa::openapi::path::{Parameter as Described, ParameterIn, ParameterStyle};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, RefOr, Schema, SchemaFormat, Type};

use crate::params::{Parameter, ParameterKind, Repetition};

pub(crate) fn described(parameter: &Parameter) -> Described {
    let Parameter { name, documentation, .. } = *parameter;
    let described = super::parameter(name, ParameterIn::Query, documentation, schema(parameter), example(parameter));
    match parameter.repetition {
        Repetition::Single => described,
        repetition @ (Repetition::Repeat | Repetition::List) => {
            described.style(Some(ParameterStyle::Form)).explode(Some(repetition == Repetition::Repeat))
        }
    }
    .build()
}

/// A parameter that can be repeated is an array: repeated for each item (`explode`), or a comma-separated list.
pub(crate) fn schema(parameter: &Parameter) -> RefOr<Schema> {
    let Parameter { kind, default_text, .. } = parameter;
    match parameter.repetition {
        Repetition::Single => value_schema(kind, default(kind, default_text)),
        Repetition::Repeat | Repetition::List => ArrayBuilder::new().items(value_schema(kind, None)).build().into(),
    }
}

pub(crate) fn example(parameter: &Parameter) -> Option<Value> {
    let text = parameter.example?;
    match parameter.repetition {
        Repetition::Single => parameter.kind.json(text),
        Repetition::Repeat => Some(parameter.kind.json(text).into_iter().collect()),
        Repetition::List => Some(text.split(',').filter_map(|item| parameter.kind.json(item)).collect()),
    }
}

/// The default as a value, unless the default means that the parameter is not set.
fn default(kind: &ParameterKind, text: &str) -> Option<Value> {
    match kind {
        ParameterKind::Boolean | ParameterKind::WholeNumber | ParameterKind::OneOf(_) => kind.json(text),
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
        ParameterKind::Paths | ParameterKind::Keywords | ParameterKind::PathValue | ParameterKind::Sort => {
            schema.schema_type(Type::String).pattern(kind.pattern())
        }
    };
    schema.build().into()
}
