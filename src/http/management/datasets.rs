//! `/dataset/…`: the caller's datasets, and the states of their versions.

use axum::Json;
use axum::extract::State;
use axum::routing::on;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::HttpMethod;

use super::records::{DatasetAnswer, DatasetRecord, Done, VersionRecord};
use super::{BaseUrl, Caller, Fields, Identified, JsonBody, QueryString, body, fields};
use crate::http::endpoint::{Answer, Callers, Endpoint, Field, FieldKind, Group, Input, Need};
use crate::http::error::{CallError, HttpError};
use crate::model::dataset::{DEFAULT_SCHEDULE, DatasetSource};
use crate::model::ids::DatasetId;
use crate::model::limits;
use crate::model::schedule::SCHEDULE_FORM;
use crate::service::{App, DatasetSettings, OwnedDataset};

/// Most datasets in one answer of a list.
const MOST_LISTED: u32 = limits::LISTED_DATASETS as u32;

const DESCRIPTION: Field = Field::optional(
    "description",
    FieldKind::TextOrNull(limits::DESCRIPTION_CHARACTERS),
    "What it holds, for those who look for data; null, as for a new one, says nothing.",
    || json!("The countries of the world, with their capitals and areas."),
);
const LICENCE: Field = Field::optional(
    "licence",
    FieldKind::TextOrNull(limits::LICENCE_CHARACTERS),
    "The terms under which its entities may be used; null, as for a new one, says nothing.",
    || json!("CC-BY-4.0"),
);
const LISTED: Field = Field::optional(
    "listed",
    FieldKind::Boolean,
    "Whether `GET /datasets` shows it to everybody, as long as it is public, is not frozen and has a version; false for a \
     new one.",
    || json!(true),
);
const PRIVATE: Field =
    Field::optional("private", FieldKind::Boolean, "Whether reading it needs a key; false for a new one.", || {
        json!(true)
    });
const SOURCE: Field = Field::optional(
    "source",
    FieldKind::Source,
    "Where its entities come from: an http, https, s3 or store URL, or `push`, as for a new one.",
    || json!("https://example.org/countries.json"),
);
const FORMAT: Field = Field::optional(
    "format",
    FieldKind::OneOfOrNull(fields::source_formats),
    "The format of the source; null, as for a new one, detects it.",
    || json!("json"),
);
const RECORDS_PATH: Field = Field::optional(
    "records_path",
    FieldKind::PathOrNull,
    "The path to the array of entities within a JSON source; null, as for a new one, is the document itself.",
    || json!("data.items"),
);
const PUBLISH_QUERY: Field = Field::optional(
    "publish_query",
    FieldKind::Boolean,
    "Whether the `_source` of entities of versions made from then on keeps the query of the source's URL, where keys often \
     stand; false for a new one.",
    || json!(false),
);
const INFER_TYPES: Field = Field::optional(
    "infer_types",
    FieldKind::Boolean,
    "Whether cells of csv and tsv in versions made from then on become numbers, booleans and nulls where they are exactly \
     that, and not texts; false for a new one.",
    || json!(true),
);
const SCHEDULE: Field = Field::optional(
    "schedule",
    FieldKind::ScheduleOrNull,
    "When it is refreshed: a cron expression of five fields in UTC, nightly for a new one; null is never.",
    || json!(DEFAULT_SCHEDULE),
);
const INDEX: Field = Field::optional(
    "index",
    FieldKind::Index,
    "Paths that get a shredded column in versions and alternates written from then on, and paths that get none, at most 64 together, \
     none in both; replaced as a whole, null or `{}` clears it. All others are decided by the profile of each version.",
    || json!({ "always": ["name"], "never": ["notes"] }),
);

/// The endpoints of this module.
pub(super) static ENDPOINTS: &[&Endpoint] =
    &[&CREATE, &UPDATE, &DELETE, &LIST, &VIEW, &ROTATE_KEY, &ROTATE_PING, &ROLLBACK, &UNPIN, &UNFREEZE];

static CREATE: Endpoint = Endpoint {
    path: "/dataset/create",
    operations: &[(HttpMethod::Post, "createDataset")],
    group: Group::Datasets,
    summary: "Creates a dataset, without a version yet",
    callers: Callers::Users,
    input: Input::Body(&[
        fields::NAME,
        DESCRIPTION,
        LICENCE,
        LISTED,
        PRIVATE,
        SOURCE,
        FORMAT,
        RECORDS_PATH,
        PUBLISH_QUERY,
        INFER_TYPES,
        SCHEDULE,
        INDEX,
    ]),
    answer: Answer::record::<DatasetAnswer>("The dataset as it is now."),
    errors: &[409],
    handler: |method| on(method, create),
};

async fn create(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    body: JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    let fields = body.into_fields(&CREATE)?;
    let (name, settings) = (fields.parsed("name")?, settings(&fields)?);
    let created = app.datasets().create(&user, name, settings, DEFAULT_SCHEDULE).await?;
    Ok(Json(DatasetAnswer::new(&created, &reached)))
}

static UPDATE: Endpoint = Endpoint {
    path: "/dataset/update",
    operations: &[(HttpMethod::Post, "updateDataset")],
    group: Group::Datasets,
    summary: "Changes what is given of a dataset, and nothing else",
    callers: Callers::Users,
    input: Input::Body(&[
        fields::DATASET_ID,
        Field { need: Need::Optional, about: "Its name, and with it the slug.", ..fields::NAME },
        DESCRIPTION,
        LICENCE,
        LISTED,
        PRIVATE,
        SOURCE,
        FORMAT,
        RECORDS_PATH,
        PUBLISH_QUERY,
        INFER_TYPES,
        SCHEDULE,
        INDEX,
    ]),
    answer: Answer::record::<DatasetAnswer>("The dataset as it is now."),
    errors: &[404, 409],
    handler: |method| on(method, update),
};

async fn update(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    body: JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    let fields = body.into_fields(&UPDATE)?;
    let (id, mut settings) = (fields.dataset_id()?, settings(&fields)?);
    settings.name = fields.optional_text("name")?.map(|name| body::parse("name", name)).transpose()?;
    let updated = app.datasets().update(&user, id, settings).await?;
    Ok(Json(DatasetAnswer::new(&updated, &reached)))
}

/// What a body says of a dataset, but its name.
fn settings(fields: &Fields) -> Result<DatasetSettings, CallError> {
    let format = fields.nullable_text("format")?;
    let schedule = fields.nullable_text_of("schedule", SCHEDULE_FORM)?;
    Ok(DatasetSettings {
        name: None,
        description: fields.nullable_text("description")?.map(|text| text.map(str::to_owned)),
        licence: fields.nullable_text("licence")?.map(|text| text.map(str::to_owned)),
        listed: fields.optional_boolean("listed")?,
        private: fields.optional_boolean("private")?,
        source: fields.optional_text("source")?.map(DatasetSource::from),
        format: format.map(|format| format.map(|text| body::parse("format", text)).transpose()).transpose()?,
        records_path: fields.nullable_text("records_path")?.map(|path| path.map(str::to_owned)),
        publish_query: fields.optional_boolean("publish_query")?,
        infer_types: fields.optional_boolean("infer_types")?,
        schedule: schedule
            .map(|schedule| schedule.map(|text| body::parse("schedule", text)).transpose())
            .transpose()?,
        index: fields.index()?,
    })
}

static DELETE: Endpoint = Endpoint {
    path: "/dataset/delete",
    operations: &[(HttpMethod::Delete, "deleteDataset")],
    group: Group::Datasets,
    summary: "Deletes a dataset that has no versions; versions are permanent",
    callers: Callers::Users,
    input: Input::Body(&[fields::DATASET_ID]),
    answer: Answer::record::<Done>("It is done."),
    errors: &[404, 409],
    handler: |method| on(method, delete),
};

async fn delete(Caller(user): Caller, State(app): State<App>, body: JsonBody) -> Result<Json<Done>, HttpError> {
    let fields = body.into_fields(&DELETE)?;
    app.datasets().delete(&user, fields.dataset_id()?).await?;
    Ok(Json(Done::OK))
}

static LIST: Endpoint = Endpoint {
    path: "/dataset/list",
    operations: &[(HttpMethod::Get, "listDatasets")],
    group: Group::Datasets,
    summary: "The caller's datasets, by id",
    callers: Callers::Users,
    input: Input::Query(&[
        Field::optional("after", FieldKind::Positive, "Only those with a greater `dataset_id`.", || json!(1)),
        Field::optional("limit", FieldKind::Positive, "At most so many; 1,000 at most in any case.", || json!(100)),
    ]),
    answer: Answer::record::<DatasetsAnswer>(
        "A page of the datasets. The next one is that after the last `dataset_id`.",
    ),
    errors: &[],
    handler: |method| on(method, list),
};

async fn list(
    caller: Identified,
    reached: BaseUrl,
    State(app): State<App>,
    query: QueryString,
) -> Result<Json<DatasetsAnswer>, HttpError> {
    let query = query.into_fields(&LIST)?;
    let after = query.optional_positive("after")?.map(DatasetId::new);
    let limit = query.optional_positive("limit")?;
    let limit = limit.map_or(MOST_LISTED, |limit| u32::try_from(limit).unwrap_or(MOST_LISTED).min(MOST_LISTED));
    let datasets = app.datasets().list(&caller.user, after, limit).await?;
    let record = |dataset| DatasetRecord::new(dataset, &reached).seen_with(caller.scope());
    let datasets = datasets.iter().map(record).collect();
    Ok(Json(DatasetsAnswer { ok: true, datasets }))
}

static VIEW: Endpoint = Endpoint {
    path: "/dataset/view",
    operations: &[(HttpMethod::Get, "viewDataset")],
    group: Group::Datasets,
    summary: "A dataset with its versions, newest first",
    callers: Callers::Users,
    input: Input::Query(&[fields::DATASET_ID]),
    answer: Answer::record::<DatasetViewAnswer>("The dataset with its versions."),
    errors: &[404],
    handler: |method| on(method, view),
};

async fn view(
    caller: Identified,
    reached: BaseUrl,
    State(app): State<App>,
    query: QueryString,
) -> Result<Json<DatasetViewAnswer>, HttpError> {
    let query = query.into_fields(&VIEW)?;
    let view = app.datasets().view(&caller.user, query.dataset_id()?).await?;
    let versions = view.versions.iter().map(VersionRecord::from).collect();
    let owned = OwnedDataset { dataset: view.dataset, last_attempts: view.last_attempts };
    let dataset =
        DatasetViewRecord { dataset: DatasetRecord::new(&owned, &reached).seen_with(caller.scope()), versions };
    Ok(Json(DatasetViewAnswer { ok: true, dataset }))
}

static ROTATE_KEY: Endpoint = Endpoint {
    path: "/dataset/rotate_key",
    operations: &[(HttpMethod::Post, "rotateKey")],
    group: Group::Datasets,
    summary: "Replaces the key of a private dataset",
    callers: Callers::Users,
    input: Input::Body(&[fields::DATASET_ID]),
    answer: Answer::record::<DatasetAnswer>("The dataset as it is now."),
    errors: &[404, 409],
    handler: |method| on(method, rotate_key),
};

async fn rotate_key(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    body: JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    let fields = body.into_fields(&ROTATE_KEY)?;
    let rotated = app.datasets().rotate_key(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&rotated, &reached)))
}

static ROTATE_PING: Endpoint = Endpoint {
    path: "/dataset/rotate_ping",
    operations: &[(HttpMethod::Post, "rotatePing")],
    group: Group::Datasets,
    summary: "Replaces the ping URL of a dataset; the old one finds nothing from then on",
    callers: Callers::Users,
    input: Input::Body(&[fields::DATASET_ID]),
    answer: Answer::record::<DatasetAnswer>("The dataset as it is now."),
    errors: &[404],
    handler: |method| on(method, rotate_ping),
};

async fn rotate_ping(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    body: JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    let fields = body.into_fields(&ROTATE_PING)?;
    let rotated = app.datasets().rotate_ping(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&rotated, &reached)))
}

static ROLLBACK: Endpoint = Endpoint {
    path: "/dataset/rollback",
    operations: &[(HttpMethod::Post, "rollBack")],
    group: Group::Versions,
    summary: "Makes a version the active one for good; with `freeze` also freezes the dataset there",
    callers: Callers::Users,
    input: Input::Body(&[
        fields::DATASET_ID,
        Field { name: "version_number", ..fields::VERSION },
        Field::optional("freeze", FieldKind::Boolean, "Whether to freeze the dataset.", || json!(false)),
    ]),
    answer: Answer::record::<DatasetAnswer>("The dataset as it is now."),
    errors: &[404],
    handler: |method| on(method, rollback),
};

async fn rollback(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    body: JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    let fields = body.into_fields(&ROLLBACK)?;
    let (id, version) = (fields.dataset_id()?, fields.version("version_number")?);
    let freeze = fields.optional_boolean("freeze")?.unwrap_or(false);
    let rolled_back = app.datasets().rollback(&user, id, version, freeze).await?;
    Ok(Json(DatasetAnswer::new(&rolled_back, &reached)))
}

static UNPIN: Endpoint = Endpoint {
    path: "/dataset/unpin",
    operations: &[(HttpMethod::Post, "unpin")],
    group: Group::Versions,
    summary: "Lets the active version follow the newest one again",
    callers: Callers::Users,
    input: Input::Body(&[fields::DATASET_ID]),
    answer: Answer::record::<DatasetAnswer>("The dataset as it is now."),
    errors: &[404],
    handler: |method| on(method, unpin),
};

async fn unpin(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    body: JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    let fields = body.into_fields(&UNPIN)?;
    let unpinned = app.datasets().unpin(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&unpinned, &reached)))
}

static UNFREEZE: Endpoint = Endpoint {
    path: "/dataset/unfreeze",
    operations: &[(HttpMethod::Post, "unfreeze")],
    group: Group::Versions,
    summary: "Lets a frozen dataset be refreshed and read again; a pin stays",
    callers: Callers::Users,
    input: Input::Body(&[fields::DATASET_ID]),
    answer: Answer::record::<DatasetAnswer>("The dataset as it is now."),
    errors: &[404, 409],
    handler: |method| on(method, unfreeze),
};

async fn unfreeze(
    Caller(user): Caller,
    reached: BaseUrl,
    State(app): State<App>,
    body: JsonBody,
) -> Result<Json<DatasetAnswer>, HttpError> {
    let fields = body.into_fields(&UNFREEZE)?;
    let unfrozen = app.datasets().unfreeze(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&unfrozen, &reached)))
}

/// The envelope of the caller's datasets, by id.
#[derive(Serialize, ToSchema)]
struct DatasetsAnswer {
    /// Always true.
    ok: bool,
    /// The datasets.
    datasets: Vec<DatasetRecord>,
}

/// A dataset with its versions.
#[derive(Serialize, ToSchema)]
struct DatasetViewRecord {
    /// The dataset.
    #[serde(flatten)]
    dataset: DatasetRecord,
    /// Its versions, newest first.
    versions: Vec<VersionRecord>,
}

/// The envelope of a dataset with its versions.
#[derive(Serialize, ToSchema)]
struct DatasetViewAnswer {
    /// Always true.
    ok: bool,
    /// The dataset.
    dataset: DatasetViewRecord,
}
