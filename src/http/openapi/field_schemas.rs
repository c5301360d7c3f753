//! JSON Schemas of fields and request bodies.

use serde_json::Value;
use strata_types::dataset::DatasetName;
use strata_types::index_settings::MAX_INDEX_PATHS;
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{AdditionalProperties, AnyOfBuilder, OneOfBuilder, SchemaFormat, SchemaType};
use utoipa::openapi::{ArrayBuilder, ContentBuilder, ObjectBuilder, Ref, RefOr, Required, Schema, Type};

use super::examples::OperationExample;
use crate::endpoint::{FieldKind, FieldRequirement, FieldSpec};
use crate::openapi_components::{JSON_CONTENT_TYPE, binary_content, schema_of_type};
/// A string that can be stored: the metadata database does not accept NUL.
const NO_NUL_PATTERN: &str = r"^[^\u0000]*$";

/// A dataset name must contain a letter or digit. The pattern excludes only ASCII spaces, punctuation, and control
/// characters, because not all tools support patterns for Unicode letters and digits.
const DATASET_NAME_PATTERN: &str = r"^[^\u0000]*[^\u0000-/:-@\[-`{-\u00a9][^\u0000]*$";

/// Five cron fields. Nicknames such as `@daily` are not supported.
const SCHEDULE_PATTERN: &str = r"^\s*[^\s@]+(\s+[^\s@]+){4}\s*$";

pub(super) fn json_body(fields: &[FieldSpec], example: Option<&OperationExample>) -> RequestBody {
    json_body_builder(fields, example).required(Some(Required::True)).build()
}

pub(super) fn json_or_document_body(fields: &[FieldSpec], example: Option<&OperationExample>) -> RequestBody {
    // Pushed documents are declared only as bytes, because client generators do not know types such as `text/csv`.
    json_body_builder(fields, example)
        .description(Some(
            "JSON, or a compressed or uncompressed document in any source format. Send a document as \
             `application/octet-stream`, or with the content type of its format.",
        ))
        .content("application/octet-stream", binary_content())
        .required(Some(Required::False))
        .build()
}

fn json_body_builder(fields: &[FieldSpec], example: Option<&OperationExample>) -> RequestBodyBuilder {
    let mut object = schema_of_type(Type::Object).additional_properties(Some(AdditionalProperties::FreeForm(false)));
    for field in fields {
        let schema = with_example(field_schema(field.kind, Some(field.description)), (field.example)());
        object = match field.requirement {
            FieldRequirement::Required => object.property(field.name, schema).required(field.name),
            FieldRequirement::Optional => object.property(field.name, nullable_schema(schema)),
        };
    }
    let example = example.and_then(|example| example.body.clone());
    let json = ContentBuilder::new().schema(Some(object.build())).example(example).build();
    RequestBodyBuilder::new().content(JSON_CONTENT_TYPE, json)
}

/// Changes a schema so that it allows null, which a caller can send instead of omitting a member.
fn nullable_schema(schema: RefOr<Schema>) -> RefOr<Schema> {
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
        Schema::AnyOf(schema) => schema.items.push(schema_of_type(Type::Null).build().into()),
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

const VERSION_PATTERN: &str = "^(active|latest|v0|v?[1-9][0-9]*)$";

pub(super) fn field_schema(kind: FieldKind, description: Option<&str>) -> RefOr<Schema> {
    let object = || ObjectBuilder::new().description(description);
    let text = || object().schema_type(Type::String);
    let nullable = || object().schema_type(SchemaType::from_iter([Type::String, Type::Null]));
    let format = |format: &str| Some(SchemaFormat::Custom(format.to_owned()));
    let schema = match kind {
        FieldKind::Id => object().schema_type(Type::Integer).minimum(Some(1_usize)).maximum(Some(i64::MAX)),
        FieldKind::PositiveIntegerOrNull(max) => object()
            .schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
            .minimum(Some(1_usize))
            .maximum(Some(max)),
        FieldKind::PositiveInteger => object().schema_type(Type::Integer).minimum(Some(1_usize)),
        FieldKind::Text => text().min_length(Some(1)).pattern(Some(NO_NUL_PATTERN)),
        FieldKind::BoundedText(max) => text().max_length(Some(max)).pattern(Some(NO_NUL_PATTERN)),
        FieldKind::BoundedTextOrNull(max) => nullable().max_length(Some(max)).pattern(Some(NO_NUL_PATTERN)),
        FieldKind::DatasetName => text()
            .min_length(Some(1))
            .max_length(Some(DatasetName::MAX_CHARACTERS))
            .pattern(Some(DATASET_NAME_PATTERN))
            .format(format("dataset-name")),
        FieldKind::Url => text().format(format("uri")),
        FieldKind::Source => {
            let push = schema_of_type(Type::String).enum_values(Some(["push"]));
            let url = schema_of_type(Type::String).format(format("uri"));
            return Schema::AnyOf(AnyOfBuilder::new().item(push).item(url).description(description).build()).into();
        }
        FieldKind::OneOf(names) => text().enum_values(Some(names())),
        FieldKind::OneOfOrNull(names) => {
            // The schema is a `oneOf`, because client generators create several types for an enum that contains null.
            let name = schema_of_type(Type::String).enum_values(Some(names()));
            let null = schema_of_type(Type::Null);
            return Schema::OneOf(OneOfBuilder::new().item(name).item(null).description(description).build()).into();
        }
        FieldKind::PathOrNull => nullable().min_length(Some(1)).format(format("field-path")),
        FieldKind::ScheduleOrNull => nullable().pattern(Some(SCHEDULE_PATTERN)).format(format("cron")),
        FieldKind::Boolean => object().schema_type(Type::Boolean),
        FieldKind::VersionSelector => text().pattern(Some(VERSION_PATTERN)),
        FieldKind::VersionSelectorOrNumber => object()
            .schema_type(SchemaType::from_iter([Type::String, Type::Integer]))
            .pattern(Some(VERSION_PATTERN))
            .minimum(Some(1_usize))
            .maximum(Some(i64::MAX)),
        FieldKind::IndexSettings => {
            let path = || schema_of_type(Type::String).min_length(Some(1)).format(format("field-path"));
            let paths = || ArrayBuilder::new().items(path()).max_items(Some(MAX_INDEX_PATHS));
            object()
                .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
                .property("always", paths())
                .property("never", paths())
                .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        }
        FieldKind::Checks => return checks_schema(description),
        FieldKind::WholeNumber => {
            object().schema_type(Type::Integer).minimum(Some(0_usize)).maximum(Some(u64::MAX as usize))
        }
        FieldKind::Edits => {
            let entity = || Ref::from_schema_name("Entity");
            let edit = ObjectBuilder::new()
                .property("position", schema_of_type(Type::Integer).minimum(Some(0_usize)))
                .required("position")
                .property("set", entity())
                .property("remove", schema_of_type(Type::Boolean).enum_values(Some([true])))
                .property("insert", ArrayBuilder::new().items(entity()))
                // An edit has a position and exactly one action.
                .min_properties(Some(2))
                .max_properties(Some(2))
                .additional_properties(Some(AdditionalProperties::FreeForm(false)));
            return ArrayBuilder::new().items(edit).min_items(Some(1)).description(description).build().into();
        }
        FieldKind::Entities => {
            return ArrayBuilder::new().items(Ref::from_schema_name("Entity")).description(description).build().into();
        }
    };
    schema.build().into()
}

fn checks_schema(description: Option<&str>) -> RefOr<Schema> {
    let count = || schema_of_type(Type::Integer).minimum(Some(0_usize)).maximum(Some(u64::MAX as usize));
    let format = SchemaFormat::Custom("field-path".to_owned());
    let path = || schema_of_type(Type::String).min_length(Some(1)).format(Some(format.clone()));
    // The maximum number of paths applies to all lists together, which a schema cannot express.
    let paths = || ArrayBuilder::new().items(path());
    let names = ["null", "boolean", "number", "string", "object", "array"];
    let types = ArrayBuilder::new().items(schema_of_type(Type::String).enum_values(Some(names))).min_items(Some(1));
    ObjectBuilder::new()
        .description(description)
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .property("min_entities", count())
        .property("max_entities", count())
        .property("max_drop_percent", schema_of_type(Type::Number).minimum(Some(0_usize)).maximum(Some(100_usize)))
        .property("required", paths())
        .property("unique", ArrayBuilder::new().items(paths().min_items(Some(1))))
        .property("types", schema_of_type(Type::Object).additional_properties(Some(Schema::from(types.build()))))
        .property("json_schema", ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::Object, Type::Boolean])))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .build()
        .into()
}
