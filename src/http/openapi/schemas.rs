//! The schemas of fields and bodies.

use serde_json::Value;
use strata_types::dataset::DatasetName;
use strata_types::index::INDEX_PATHS;
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{AdditionalProperties, AnyOfBuilder, OneOfBuilder, SchemaFormat, SchemaType};
use utoipa::openapi::{ArrayBuilder, ContentBuilder, ObjectBuilder, Ref, RefOr, Required, Schema, Type};

use super::examples::Example;
use crate::description::{JSON, bytes, typed};
use crate::endpoint::{Field, FieldKind, Need};

/// Texts that are stored, as a pattern.
const NO_NUL: &str = r"^[^\u0000]*$";

/// Names of datasets, as a pattern: with a character that is not one of ASCII's blanks, punctuation and controls. Some
/// of the other characters are no letters or digits, either; a pattern that every tool understands cannot say which.
const NAME: &str = r"^[^\u0000]*[^\u0000-/:-@\[-`{-\u00a9][^\u0000]*$";

/// Five fields, and no nickname such as `@daily`.
const SCHEDULE: &str = r"^\s*[^\s@]+(\s+[^\s@]+){4}\s*$";

pub(super) fn body(fields: &[Field], or_document: bool, example: Option<&Example>) -> RequestBody {
    let mut object = typed(Type::Object).additional_properties(Some(AdditionalProperties::FreeForm(false)));
    for field in fields {
        let schema = with_example(schema(field.kind, Some(field.about)), (field.example)());
        object = match field.need {
            Need::Required => object.property(field.name, schema).required(field.name),
            Need::Optional => object.property(field.name, nullable(schema)),
        };
    }
    let example = example.and_then(|example| example.body.clone());
    let json = ContentBuilder::new().schema(Some(object.build())).example(example).build();
    let body = RequestBodyBuilder::new().content(JSON, json);
    match or_document {
        false => body.required(Some(Required::True)).build(),
        // Documents as bytes alone: generators of clients know no content type such as `text/csv` for a body.
        true => body
            .description(Some(
                "JSON, or a compressed or uncompressed document in any source format. Send a document as \
                 `application/octet-stream`, or with the content type of its format.",
            ))
            .content("application/octet-stream", bytes())
            .required(Some(Required::False))
            .build(),
    }
}

/// A schema that also allows null, which a caller can send instead of omitting a member.
fn nullable(schema: RefOr<Schema>) -> RefOr<Schema> {
    let or_null = |schema_type: &SchemaType| match schema_type {
        SchemaType::Type(only) => SchemaType::from_iter([only.clone(), Type::Null]),
        other => other.clone(),
    };
    let RefOr::T(mut schema) = schema else { return schema };
    match &mut schema {
        Schema::Object(schema) => {
            schema.schema_type = or_null(&schema.schema_type);
            if let Some(values) = &mut schema.enum_values {
                values.push(Value::Null);
            }
        }
        Schema::Array(schema) => schema.schema_type = or_null(&schema.schema_type),
        Schema::AnyOf(schema) => schema.items.push(typed(Type::Null).build().into()),
        _ => {}
    }
    schema.into()
}

fn with_example(schema: RefOr<Schema>, example: Value) -> RefOr<Schema> {
    let RefOr::T(mut schema) = schema else { return schema };
    let examples = vec![example];
    match &mut schema {
        Schema::Object(schema) => schema.examples = examples,
        Schema::Array(schema) => schema.examples = examples,
        Schema::OneOf(schema) => schema.examples = examples,
        Schema::AnyOf(schema) => schema.examples = examples,
        _ => {}
    }
    schema.into()
}

/// How a version is named outside of URLs of reads.
const VERSION: &str = "^(active|latest|v0|v?[1-9][0-9]*)$";

pub(super) fn schema(kind: FieldKind, about: Option<&str>) -> RefOr<Schema> {
    let object = || ObjectBuilder::new().description(about);
    let text = || object().schema_type(Type::String);
    let nullable = || object().schema_type(SchemaType::from_iter([Type::String, Type::Null]));
    let format = |format: &str| Some(SchemaFormat::Custom(format.to_owned()));
    let schema = match kind {
        FieldKind::Id => object().schema_type(Type::Integer).minimum(Some(1_usize)).maximum(Some(i64::MAX)),
        FieldKind::PositiveOrNull(most) => object()
            .schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
            .minimum(Some(1_usize))
            .maximum(Some(most)),
        FieldKind::Positive => object().schema_type(Type::Integer).minimum(Some(1_usize)),
        FieldKind::Text => text().min_length(Some(1)).pattern(Some(NO_NUL)),
        FieldKind::TextPart(most) => text().max_length(Some(most)).pattern(Some(NO_NUL)),
        FieldKind::TextOrNull(most) => nullable().max_length(Some(most)).pattern(Some(NO_NUL)),
        FieldKind::DatasetName => text()
            .min_length(Some(1))
            .max_length(Some(DatasetName::MAX_CHARACTERS))
            .pattern(Some(NAME))
            .format(format("dataset-name")),
        FieldKind::Url => text().format(format("uri")),
        FieldKind::Source => {
            let push = typed(Type::String).enum_values(Some(["push"]));
            let url = typed(Type::String).format(format("uri"));
            return Schema::AnyOf(AnyOfBuilder::new().item(push).item(url).description(about).build()).into();
        }
        FieldKind::OneOf(names) => text().enum_values(Some(names())),
        FieldKind::OneOfOrNull(names) => {
            // A choice of two: generators of clients make several types of one list of names and null.
            let name = typed(Type::String).enum_values(Some(names()));
            let null = typed(Type::Null);
            return Schema::OneOf(OneOfBuilder::new().item(name).item(null).description(about).build()).into();
        }
        FieldKind::PathOrNull => nullable().min_length(Some(1)).format(format("field-path")),
        FieldKind::ScheduleOrNull => nullable().pattern(Some(SCHEDULE)).format(format("cron")),
        FieldKind::Boolean => object().schema_type(Type::Boolean),
        FieldKind::Version => text().pattern(Some(VERSION)),
        FieldKind::VersionOrNumber => object()
            .schema_type(SchemaType::from_iter([Type::String, Type::Integer]))
            .pattern(Some(VERSION))
            .minimum(Some(1_usize))
            .maximum(Some(i64::MAX)),
        FieldKind::Index => {
            let path = || typed(Type::String).min_length(Some(1)).format(format("field-path"));
            let paths = || ArrayBuilder::new().items(path()).max_items(Some(INDEX_PATHS));
            object()
                .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
                .property("always", paths())
                .property("never", paths())
                .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        }
        FieldKind::WholeNumber => {
            object().schema_type(Type::Integer).minimum(Some(0_usize)).maximum(Some(u64::MAX as usize))
        }
        FieldKind::Edits => {
            let entity = || Ref::from_schema_name("Entity");
            let edit = ObjectBuilder::new()
                .property("position", typed(Type::Integer).minimum(Some(0_usize)))
                .required("position")
                .property("set", entity())
                .property("remove", typed(Type::Boolean).enum_values(Some([true])))
                .property("insert", ArrayBuilder::new().items(entity()))
                // The position, and one of the others.
                .min_properties(Some(2))
                .max_properties(Some(2))
                .additional_properties(Some(AdditionalProperties::FreeForm(false)));
            return ArrayBuilder::new().items(edit).min_items(Some(1)).description(about).build().into();
        }
        FieldKind::Entities => {
            return ArrayBuilder::new().items(Ref::from_schema_name("Entity")).description(about).build().into();
        }
    };
    schema.build().into()
}
