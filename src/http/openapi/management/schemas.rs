//! The schemas of fields, bodies and records.

use serde_json::{Map, Value};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{AdditionalProperties, AnyOfBuilder, SchemaFormat, SchemaType};
use utoipa::openapi::{
    AllOfBuilder, ArrayBuilder, Content, ContentBuilder, ObjectBuilder, Ref, RefOr, Required, Schema, Type,
};
use utoipa::{PartialSchema, ToSchema};

use super::operations::{Field, Kind, Need};
use crate::diff::ChangeType;
use crate::http::management::records;
use crate::model::dataset::DatasetName;
use crate::model::index::INDEX_PATHS;
use crate::model::source::SourceFormat;
use crate::service::Explanation;

/// Texts that are stored, as a pattern.
const NO_NUL: &str = r"^[^\u0000]*$";

/// Names of datasets, as a pattern: with a character that is not one of ASCII's blanks, punctuation and controls. Some
/// of the other characters are no letters or digits, either; a pattern that every tool understands cannot say which.
const NAME: &str = r"^[^\u0000]*[^\u0000-/:-@\[-`{-\u00a9][^\u0000]*$";

/// Five fields, and no nickname such as `@daily`.
const SCHEDULE: &str = r"^\s*[^\s@]+(\s+[^\s@]+){4}\s*$";

pub(super) fn body(fields: &[Field], or_document: bool) -> RequestBody {
    let mut object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(AdditionalProperties::FreeForm(false)));
    let mut shown = Map::new();
    for Field(name, need, kind, about, example) in fields {
        object = object.property(*name, schema(*kind, Some(about)));
        if *need == Need::Required {
            object = object.required(*name);
        }
        shown.insert((*name).to_owned(), example());
    }
    let json = ContentBuilder::new().schema(Some(object.build())).example(Some(Value::Object(shown))).build();
    let body = RequestBodyBuilder::new().content("application/json", json);
    match or_document {
        false => body.required(Some(Required::True)).build(),
        true => {
            let documents =
                ["application/x-ndjson", "text/csv", "text/tab-separated-values", "application/octet-stream"];
            let body = body.required(Some(Required::False));
            documents.into_iter().fold(body, |body, media_type| body.content(media_type, Content::default())).build()
        }
    }
}

/// How a version is named outside of URLs of reads.
const VERSION: &str = "^(active|latest|v0|v?[1-9][0-9]*)$";

pub(super) fn schema(kind: Kind, about: Option<&str>) -> RefOr<Schema> {
    let object = || ObjectBuilder::new().description(about);
    let text = || object().schema_type(Type::String);
    let nullable = || object().schema_type(SchemaType::from_iter([Type::String, Type::Null]));
    let format = |format: &str| Some(SchemaFormat::Custom(format.to_owned()));
    let schema = match kind {
        Kind::Id => object().schema_type(Type::Integer).minimum(Some(1_usize)).maximum(Some(i64::MAX)),
        Kind::Positive => object().schema_type(Type::Integer).minimum(Some(1_usize)),
        Kind::Text => text().min_length(Some(1)).pattern(Some(NO_NUL)),
        Kind::Name => text()
            .min_length(Some(1))
            .max_length(Some(DatasetName::MAX_CHARACTERS))
            .pattern(Some(NAME))
            .format(format("dataset-name")),
        Kind::Url => text().format(format("uri")),
        Kind::Source => {
            let push = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["push"]));
            let url = ObjectBuilder::new().schema_type(Type::String).format(format("uri"));
            return Schema::AnyOf(AnyOfBuilder::new().item(push).item(url).description(about).build()).into();
        }
        Kind::Format => text().enum_values(Some(SourceFormat::ALL.map(SourceFormat::name))),
        Kind::NullableFormat => {
            let names = SourceFormat::ALL.map(|format| Value::from(format.name()));
            nullable().enum_values(Some(names.into_iter().chain([Value::Null])))
        }
        Kind::NullablePath => nullable().min_length(Some(1)).format(format("field-path")),
        Kind::NullableSchedule => nullable().pattern(Some(SCHEDULE)).format(format("cron")),
        Kind::Boolean => object().schema_type(Type::Boolean),
        Kind::Version => text().pattern(Some(VERSION)),
        Kind::VersionOrNumber => object()
            .schema_type(SchemaType::from_iter([Type::String, Type::Integer]))
            .pattern(Some(VERSION))
            .minimum(Some(1_usize))
            .maximum(Some(i64::MAX)),
        Kind::Index => {
            let path =
                || ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).format(format("field-path"));
            let paths = || ArrayBuilder::new().items(path()).max_items(Some(INDEX_PATHS));
            object()
                .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
                .property("always", paths())
                .property("never", paths())
                .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        }
        Kind::Form => text().enum_values(Some(["text", "json"])),
        Kind::Count => object().schema_type(Type::Integer).minimum(Some(0_usize)),
        Kind::ChangeType => text().enum_values(Some(ChangeType::ALL.map(ChangeType::name))),
        Kind::DiffFormat => text().enum_values(Some(["json", "jsonl"])),
        Kind::Entities => {
            return ArrayBuilder::new().items(Ref::from_schema_name("Entity")).description(about).build().into();
        }
    };
    schema.build().into()
}

/// Every record, under its name.
pub(super) fn record_schemas() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = Vec::new();
    add::<records::Done>(&mut schemas);
    add::<records::UserAnswer>(&mut schemas);
    add::<records::TokenAnswer>(&mut schemas);
    add::<records::TokensAnswer>(&mut schemas);
    add::<records::DatasetAnswer>(&mut schemas);
    add::<records::DatasetsAnswer>(&mut schemas);
    add::<records::DatasetViewAnswer>(&mut schemas);
    add::<records::VersionAnswer>(&mut schemas);
    schemas.push(("PullAnswer".to_owned(), pull_answer()));
    add::<records::PushAnswer>(&mut schemas);
    add::<records::ProfileAnswer>(&mut schemas);
    add::<records::WebhookAnswer>(&mut schemas);
    add::<Explanation>(&mut schemas);
    schemas
}

/// The record of a pull with the entities after it.
fn pull_answer() -> RefOr<Schema> {
    let entities = schema(Kind::Entities, Some("The entities, exactly as they are stored."));
    let entities = ObjectBuilder::new().schema_type(Type::Object).property("entities", entities).required("entities");
    RefOr::T(Schema::AllOf(AllOfBuilder::new().item(records::PulledRecord::schema()).item(entities).build()))
}

fn add<T: ToSchema + PartialSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}
