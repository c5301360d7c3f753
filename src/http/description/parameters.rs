//! A query parameter of the registry as a parameter of the document: nothing is said here that the registry does not
//! say.

use serde_json::Value;
use utoipa::openapi::path::{Parameter as Described, ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::{ArrayBuilder, Object, ObjectBuilder, RefOr, Required, Schema, SchemaFormat, Type};

use crate::http::params::{Parameter, ParameterKind, Repetition};

/// The parameter, with its schema, its default, its example and its documentation.
pub(in crate::http) fn described(parameter: &Parameter) -> Described {
    let described = ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(parameter.documentation))
        .schema(Some(schema(parameter)))
        .example(example(parameter));
    match parameter.repetition {
        Repetition::Single => described,
        repetition @ (Repetition::Repeat | Repetition::List) => {
            described.style(Some(ParameterStyle::Form)).explode(Some(repetition == Repetition::Repeat))
        }
    }
    .build()
}

/// What its values are in JSON, with its default.
///
/// What may repeat is an array: one that repeats the parameter for each item (`explode`), or one comma-separated list.
pub(in crate::http) fn schema(parameter: &Parameter) -> RefOr<Schema> {
    let kind = parameter.kind;
    match parameter.repetition {
        Repetition::Single => value_schema(&kind, default(&kind, parameter.default_text)),
        Repetition::Repeat | Repetition::List => {
            RefOr::T(Schema::Array(ArrayBuilder::new().items(value_schema(&kind, None)).build()))
        }
    }
}

/// Its example, valid by its schema.
pub(in crate::http) fn example(parameter: &Parameter) -> Option<Value> {
    let (kind, text) = (parameter.kind, parameter.example?);
    match parameter.repetition {
        Repetition::Single => kind.json(text),
        repetition @ (Repetition::Repeat | Repetition::List) => Some(items(text, repetition, &kind)),
    }
}

/// The default as a value; none where the words for it stand for "not given".
fn default(kind: &ParameterKind, text: &str) -> Option<Value> {
    match kind {
        ParameterKind::Boolean | ParameterKind::WholeNumber | ParameterKind::OneOf(_) => kind.json(text),
        ParameterKind::Paths | ParameterKind::Keywords | ParameterKind::PathValue | ParameterKind::Sort => None,
    }
}

/// The items that one value in a URL stands for.
fn items(text: &str, repetition: Repetition, kind: &ParameterKind) -> Value {
    match repetition {
        Repetition::List => text.split(',').filter_map(|item| kind.json(item)).collect(),
        Repetition::Single | Repetition::Repeat => kind.json(text).into_iter().collect(),
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
    let schema: Object = schema.build();
    RefOr::T(Schema::Object(schema))
}
