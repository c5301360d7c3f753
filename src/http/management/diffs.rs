//! `GET /dataset/diff`: what two versions differ in.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use axum::routing::on;
use serde_json::json;
use strata_diff::{ChangeType, DiffPage};
use strata_service::{AnswerBody, App, DiffError, DiffForm, DiffSides, VersionDiff};
use strata_types::ids::DatasetId;
use strata_types::request::Format;
use strata_types::user::User;

use super::{Caller, Fields, QueryString, diff_schemas, fields};
use crate::body::streamed;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input};
use crate::error::{CallError, HttpError};
use crate::headers::content_encoding;
use crate::large_responses::Charged;

const FORMATS: [Format; 2] = [Format::Json, Format::Jsonl];

pub(super) static DIFF: Endpoint =
    Endpoint::get("/dataset/diff", "diffVersions", Group::Versions, |method| on(method, diff))
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
            schemas: diff_schemas::schemas,
            headers: &[&["Vary", "Content-Encoding"]],
            ..Answer::of(
                "The total numbers of added, subtracted, and modified entities, and a page of the records.",
                &[("application/x-ndjson", diff_schemas::lines)],
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
        Ok(DiffCall::from_query(QueryString { parameters, not_utf8: None })?)
    }

    pub fn parameters() -> impl Iterator<Item = &'static str> {
        DIFF.parameters().iter().map(|field| field.name)
    }

    fn from_query(query: QueryString) -> Result<DiffCall, CallError> {
        let fields = query.into_fields(&DIFF)?;
        let call = DiffCall::from_fields(&fields)?;
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

    pub async fn compare(&self, app: &App, user: &User) -> Result<VersionDiff, HttpError> {
        Ok(app.diffs().compare(Some(user), self.dataset, self.sides).await?)
    }
}

async fn diff(
    Caller(user): Caller,
    State(app): State<App>,
    headers: HeaderMap,
    query: QueryString,
) -> Result<Response, HttpError> {
    let call = DiffCall::from_query(query)?;
    let diff = call.compare(&app, &user).await?;
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
