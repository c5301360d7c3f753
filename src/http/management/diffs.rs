//! `GET /dataset/diff`: what two versions differ in.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use axum::routing::get;
use serde_json::json;
use strata_diff::{ChangeType, DiffPage};
use strata_service::{AnswerBody, DiffError, DiffForm, DiffSides, Services, VersionDiff};
use strata_types::ids::DatasetId;
use strata_types::request::Format;
use strata_types::user::User;
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type};

use super::{Caller, Fields, fields};
use crate::AppState;
use crate::body::streamed;
use crate::description::typed;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input, NamedSchema};
use crate::error::{CallError, HttpError};
use crate::headers::content_encoding;
use crate::large_responses::Charged;

const FORMATS: [Format; 2] = [Format::Json, Format::Jsonl];

pub(super) static DIFF: Endpoint = Endpoint::get("/dataset/diff", "diffVersions", Group::Versions, || get(diff))
    .summary("Compares two versions of a dataset")
    .description(
        "strata matches entities by `_source` and by content, so it does not report an entity that only moved. To \
         get a page of the records, set `change_type`, `offset`, or `limit`. The counts always include all \
         records, not only those on the page.",
    )
    .input(Input::Query(&[
        fields::DATASET_ID,
        Field::required("v1", FieldKind::Version, || json!("1")).about("The version to compare from."),
        Field::required("v2", FieldKind::Version, || json!("2")).about("The version to compare to."),
        Field::optional("change_type", FieldKind::OneOf(|| ChangeType::ALL.map(ChangeType::name).to_vec()), || {
            json!("modified")
        })
        .about("Returns only records of this type."),
        Field::optional("alt", FieldKind::Boolean, || json!(false))
            .about("Whether to compare the alternate of v2 instead of v2 itself."),
        Field::optional("offset", FieldKind::WholeNumber, || json!(0)).about("The number of records to skip."),
        Field::optional("limit", FieldKind::WholeNumber, || json!(100))
            .about("The maximum number of records to return."),
        Field::optional("format", FieldKind::OneOf(|| FORMATS.map(Format::name).to_vec()), || json!("json"))
            .about("The format of the response. `jsonl` returns only the records, one per line."),
    ]))
    .answer(Answer {
        schemas,
        headers: &[&["Vary", "Content-Encoding"]],
        ..Answer::new(
            "The total numbers of added, subtracted, and modified entities, and a page of the records.",
            &["application/x-ndjson"],
        )
    })
    .errors(&[404, 503]);

pub struct DiffCall {
    dataset: DatasetId,
    sides: DiffSides,
    pub page: DiffPage,
    form: DiffForm,
}

impl DiffCall {
    pub fn parse(parameters: Vec<(String, String)>) -> Result<DiffCall, HttpError> {
        Ok(DiffCall::from_query(&Fields::from_parameters(parameters, &DIFF)?)?)
    }

    pub fn parameters() -> impl Iterator<Item = &'static str> {
        DIFF.parameters().iter().map(|field| field.name)
    }

    fn from_query(fields: &Fields) -> Result<DiffCall, CallError> {
        let call = DiffCall::from_fields(fields)?;
        let form = match fields.optional_one_of("format", FORMATS, Format::name)? {
            Some(Format::Jsonl) => DiffForm::Lines,
            _ => DiffForm::Result,
        };
        Ok(DiffCall { form, ..call })
    }

    /// The call with the fields that HTTP and the tool have in common: all but `format`.
    pub(crate) fn from_fields(fields: &Fields) -> Result<DiffCall, CallError> {
        let dataset = fields.dataset_id()?;
        let sides = DiffSides {
            v1: fields.selector("v1")?,
            v2: fields.selector("v2")?,
            alt: fields.optional_boolean("alt")?.unwrap_or(false),
        };
        let page = DiffPage {
            change_type: fields.optional_one_of("change_type", ChangeType::ALL, ChangeType::name)?,
            offset: fields.optional_whole_number("offset")?.unwrap_or(0),
            limit: fields.optional_whole_number("limit")?,
        };
        Ok(DiffCall { dataset, sides, page, form: DiffForm::Result })
    }

    pub async fn compare(&self, services: &Services, user: &User) -> Result<VersionDiff, HttpError> {
        Ok(services.diffs.compare(Some(user), self.dataset, self.sides).await?)
    }
}

async fn diff(
    Caller(user): Caller,
    State(services): State<AppState>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, HttpError> {
    let call = DiffCall::from_query(&fields)?;
    let diff = call.compare(&services, &user).await?;
    let coding = content_encoding::negotiate(&headers);
    let answer = diff.answer(&call.page, call.form, coding).await.map_err(DiffError::from)?;
    let mut response = Response::new(match answer.body {
        AnswerBody::Whole(bytes) => Body::from(bytes),
        AnswerBody::Stream(parts) => streamed(parts).await?,
        AnswerBody::Export(export) => streamed(export.whole()).await?,
    });
    response.extensions_mut().insert(Charged);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    content_encoding::describe(answer.coding, headers);
    Ok(response)
}

/// The Diff result and its records (docs/reference/diffs.md, Diffs).
fn schemas() -> Vec<NamedSchema> {
    let number = |description: &str| typed(Type::Integer).minimum(Some(0_usize)).description(Some(description)).into();
    let text = |description: &str| typed(Type::String).description(Some(description)).into();
    let any = |description: &str| {
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(description)).into()
    };
    let list = |of: &str, description: &str| {
        ArrayBuilder::new().items(Ref::from_schema_name(of)).description(Some(description)).into()
    };
    let change_type = typed(Type::String)
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
        ("v1", entity_or_null("The entity in v1.")),
        ("v2", entity_or_null("The entity in v2.")),
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
        ("DiffResult".to_owned(), object("The differences between two versions.", result)),
        ("DiffRecord".to_owned(), object("An entity that differs between the versions.", record)),
        ("FieldDiff".to_owned(), object("A field that differs between the versions.", field)),
    ]
}

fn entity_or_null(description: &str) -> RefOr<Schema> {
    let null = typed(Type::Null);
    let either = OneOfBuilder::new().item(Ref::from_schema_name("Entity")).item(null).description(Some(description));
    Schema::OneOf(either.build()).into()
}

fn object<const N: usize>(description: &str, properties: [(&str, RefOr<Schema>); N]) -> RefOr<Schema> {
    let object = typed(Type::Object).description(Some(description));
    let with =
        |object: ObjectBuilder, (name, schema): (&str, RefOr<Schema>)| object.property(name, schema).required(name);
    properties.into_iter().fold(object, with).into()
}
