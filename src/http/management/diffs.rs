//! `GET /dataset/diff`: the differences between two versions.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use axum::routing::get;
use serde_json::json;
use strata_diff::{ChangeType, DiffPage};
use strata_service::{DiffError, DiffFormat, DiffSides, ResponseBody, Services, VersionDiff};
use strata_types::ids::DatasetId;
use strata_types::read_request::ResponseFormat;
use strata_types::user::User;
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type};

use super::{CallFields, UserCall, fields};
use crate::endpoint::{Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec, NamedSchema};
use crate::error::{CallError, Result};
use crate::headers::content_encoding;
use crate::large_responses::BodyAlreadyCharged;
use crate::openapi_components::schema_of_type;
use crate::streamed_body::stream_body;

const DIFF_FORMATS: [ResponseFormat; 2] = [ResponseFormat::Json, ResponseFormat::Jsonl];

pub(super) static DIFF_ENDPOINT: Endpoint =
    Endpoint::get("/dataset/diff", "diffVersions", EndpointGroup::Versions, || get(diff_versions))
        .summary("Compares two versions of a dataset")
        .description(
            "strata matches entities by `_source` and by content, so it does not report an entity that only moved. To \
         get a page of the records, set `change_type`, `offset`, or `limit`. The counts always include all \
         records, not only those on the page.",
        )
        .input(EndpointInput::Query(&[
            fields::DATASET_ID_FIELD,
            FieldSpec::required("v1", FieldKind::VersionSelector, || json!("1"))
                .description("The version to compare from."),
            FieldSpec::required("v2", FieldKind::VersionSelector, || json!("2"))
                .description("The version to compare to."),
            FieldSpec::optional(
                "change_type",
                FieldKind::OneOf(|| ChangeType::ALL.map(ChangeType::name).to_vec()),
                || json!("modified"),
            )
            .description("Returns only records of this type."),
            FieldSpec::optional("alt", FieldKind::Boolean, || json!(false))
                .description("Whether to compare the alternate of v2 instead of v2 itself."),
            FieldSpec::optional("offset", FieldKind::WholeNumber, || json!(0))
                .description("The number of records to skip."),
            FieldSpec::optional("limit", FieldKind::WholeNumber, || json!(100))
                .description("The maximum number of records to return."),
            FieldSpec::optional("format", FieldKind::OneOf(|| DIFF_FORMATS.map(ResponseFormat::name).to_vec()), || {
                json!("json")
            })
            .description("The format of the response. `jsonl` returns only the records, one per line."),
        ]))
        .response(EndpointResponse {
            schemas: diff_schemas,
            headers: &[&["Vary", "Content-Encoding"]],
            ..EndpointResponse::new(
                "The total numbers of added, subtracted, and modified entities, and a page of the records.",
                &["application/x-ndjson"],
            )
        })
        .errors(&[404, 503]);

pub struct DiffCall {
    dataset: DatasetId,
    sides: DiffSides,
    pub page: DiffPage,
    format: DiffFormat,
}

impl DiffCall {
    pub fn parse(parameters: Vec<(String, String)>) -> Result<DiffCall> {
        Ok(DiffCall::from_query(&CallFields::from_parameters(parameters, &DIFF_ENDPOINT)?)?)
    }

    pub fn parameter_names() -> impl Iterator<Item = &'static str> {
        DIFF_ENDPOINT.query_fields().iter().map(|field| field.name)
    }

    fn from_query(fields: &CallFields) -> Result<DiffCall, CallError> {
        let call = DiffCall::from_fields(fields)?;
        let format = match fields.optional_one_of("format", DIFF_FORMATS, ResponseFormat::name)? {
            Some(ResponseFormat::Jsonl) => DiffFormat::Jsonl,
            _ => DiffFormat::Json,
        };
        Ok(DiffCall { format, ..call })
    }

    /// Parses the fields that the HTTP endpoint and the tool for agents share: all fields except `format`.
    pub(crate) fn from_fields(fields: &CallFields) -> Result<DiffCall, CallError> {
        let dataset = fields.dataset_id()?;
        let sides = DiffSides {
            v1: fields.version_selector("v1")?,
            v2: fields.version_selector("v2")?,
            alt: fields.optional_boolean("alt")?.unwrap_or(false),
        };
        let page = DiffPage {
            change_type: fields.optional_one_of("change_type", ChangeType::ALL, ChangeType::name)?,
            offset: fields.optional_whole_number("offset")?.unwrap_or(0),
            limit: fields.optional_whole_number("limit")?,
        };
        Ok(DiffCall { dataset, sides, page, format: DiffFormat::Json })
    }

    pub async fn compare(&self, services: &Services, user: &User) -> Result<VersionDiff> {
        Ok(services.diffs.compare(Some(user), self.dataset, self.sides).await?)
    }
}

async fn diff_versions(headers: HeaderMap, UserCall { user, services, fields, .. }: UserCall) -> Result<Response> {
    let call = DiffCall::from_query(&fields)?;
    let diff = call.compare(&services, &user).await?;
    let coding = content_encoding::negotiate(&headers);
    let page = diff.page_response(&call.page, call.format, coding).await.map_err(DiffError::from)?;
    let mut response = Response::new(match page.body {
        ResponseBody::Whole(bytes) => Body::from(bytes),
        body => stream_body(body.into_stream()).await?,
    });
    response.extensions_mut().insert(BodyAlreadyCharged);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    content_encoding::set_encoding_headers(page.coding, headers);
    Ok(response)
}

/// The schemas of a diff and of its records (docs/reference/diffs.md, Diffs).
fn diff_schemas() -> Vec<NamedSchema> {
    let number = |text: &str| schema_of_type(Type::Integer).minimum(Some(0_usize)).description(Some(text)).into();
    let text = |description: &str| schema_of_type(Type::String).description(Some(description)).into();
    let any = |description: &str| {
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(description)).into()
    };
    let list = |schema: &str, description: &str| {
        ArrayBuilder::new().items(Ref::from_schema_name(schema)).description(Some(description)).into()
    };
    let change_type = schema_of_type(Type::String)
        .enum_values(Some(ChangeType::ALL.map(ChangeType::name)))
        .description(Some("The type of change. `v1` is null for `added`, and `v2` is null for `subtracted`."));
    let result = [
        ("added", number("The number of entities in v2 but not in v1.")),
        ("subtracted", number("The number of entities in v1 but not in v2.")),
        ("modified", number("The number of entities that are in both versions but differ in at least one field.")),
        ("total_v1", number("The number of entities in v1.")),
        ("total_v2", number("The number of entities in v2.")),
        (
            "records",
            list(
                "DiffRecord",
                "The modified and subtracted entities in the order of v1, followed by the added entities in the order \
                 of v2.",
            ),
        ),
    ];
    let record = [
        (
            "id",
            text("`m`, `s`, or `a`, followed by the zero-based positions in v1 and v2. Examples: `m3-4`, `s5`, `a6`."),
        ),
        ("change_type", change_type.into()),
        ("source", text("The text of `_source`, or an empty string if there is none.")),
        ("v1", entity_or_null_schema("The entity in v1.")),
        ("v2", entity_or_null_schema("The entity in v2.")),
        (
            "field_diffs",
            list(
                "FieldDiff",
                "The changed fields of a modified entity in the order of v1, followed by the new fields.",
            ),
        ),
    ];
    let field = [
        ("field", text("The name of a top-level field.")),
        ("v1", any("The value in v1, or null if the field is missing.")),
        ("v2", any("The value in v2, or null if the field is missing.")),
    ];
    vec![
        ("DiffResult".to_owned(), object_schema("The differences between two versions.", result)),
        ("DiffRecord".to_owned(), object_schema("An entity that differs between the versions.", record)),
        ("FieldDiff".to_owned(), object_schema("A field that differs between the versions.", field)),
    ]
}

fn entity_or_null_schema(description: &str) -> RefOr<Schema> {
    let null = schema_of_type(Type::Null);
    let either = OneOfBuilder::new().item(Ref::from_schema_name("Entity")).item(null).description(Some(description));
    Schema::OneOf(either.build()).into()
}

fn object_schema<const N: usize>(description: &str, properties: [(&str, RefOr<Schema>); N]) -> RefOr<Schema> {
    let object = schema_of_type(Type::Object).description(Some(description));
    let with =
        |object: ObjectBuilder, (name, schema): (&str, RefOr<Schema>)| object.property(name, schema).required(name);
    properties.into_iter().fold(object, with).into()
}
