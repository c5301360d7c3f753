//! `/dataset/…`: the caller's datasets, clones, and the states of their versions.

use axum::Json;
use axum::extract::State;
use axum::routing::on;
use serde::Serialize;
use serde_json::json;
use strata_types::dataset::{DEFAULT_SCHEDULE, DatasetChange, DatasetSource};
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::schedule::{SCHEDULE_FORM, Schedule};
use utoipa::ToSchema;

use super::body::TEXT_FORM;
use super::records::{DATASET, DONE, DatasetAnswer, DatasetRecord, DatasetResult, Done, VersionRecord};
use super::{BaseUrl, Caller, Fields, Identified, JsonResult, fields};
use crate::http::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input, Need};
use crate::http::error::CallError;
use crate::service::{App, OwnedDataset, visibility};

const MOST_LISTED: u32 = limits::LISTED_DATASETS as u32;

/// What a body says of a dataset, but its name.
const SETTINGS: [Field; 11] = [
    Field::optional("description", FieldKind::TextOrNull(limits::DESCRIPTION_CHARACTERS), || {
        json!("The countries of the world, with their capitals and areas.")
    })
    .about("What it holds, for those who look for data; null, as for a new one, says nothing."),
    Field::optional("licence", FieldKind::TextOrNull(limits::LICENCE_CHARACTERS), || json!("CC-BY-4.0"))
        .about("The terms under which its entities may be used; null, as for a new one, says nothing."),
    Field::optional("listed", FieldKind::Boolean, || json!(true)).about(
        "Whether `GET /datasets` shows it to everybody, as long as it is public, is not frozen and has a \
     version; false for a new one.",
    ),
    Field::optional("private", FieldKind::Boolean, || json!(true))
        .about("Whether reading it needs a key; false for a new one."),
    Field::optional("source", FieldKind::Source, || json!("https://example.org/countries.json"))
        .about("Where its entities come from: an http, https, s3 or store URL, or `push`, as for a new one."),
    Field::optional("format", FieldKind::OneOfOrNull(fields::source_formats), || json!("json"))
        .about("The format of the source; null, as for a new one, detects it."),
    Field::optional("records_path", FieldKind::PathOrNull, || json!("data.items")).about(
        "The path to the array of entities within a JSON source; null, as for a new one, is the document itself.",
    ),
    Field::optional("publish_query", FieldKind::Boolean, || json!(false)).about(
        "Whether the `_source` of entities of versions made from then on keeps the query of the source's \
     URL, where keys often stand; false for a new one.",
    ),
    Field::optional("infer_types", FieldKind::Boolean, || json!(true)).about(
        "Whether cells of csv and tsv in versions made from then on become numbers, booleans and nulls \
     where they are exactly that, and not texts; false for a new one.",
    ),
    Field::optional("schedule", FieldKind::ScheduleOrNull, || json!(DEFAULT_SCHEDULE))
        .about("When it is refreshed: a cron expression of five fields in UTC, nightly for a new one; null is never."),
    Field::optional("index", FieldKind::Index, || json!({ "always": ["name"], "never": ["notes"] })).about(
        "Paths that get a shredded column in versions and alternates written from then on, and paths that \
         get none, at most 64 together, none in both; replaced as a whole, null or `{}` clears it. All \
         others are decided by the profile of each version.",
    ),
];

const CREATED: [Field; 12] = with_settings([fields::NAME]);

const UPDATED: [Field; 13] = with_settings([
    fields::DATASET_ID,
    Field { need: Need::Optional, about: "Its name, and with it the slug.", ..fields::NAME },
]);

const fn with_settings<const OWN: usize, const ALL: usize>(own: [Field; OWN]) -> [Field; ALL] {
    let mut all = [own[0]; ALL];
    let mut index = 0;
    while index < ALL {
        all[index] = if index < OWN { own[index] } else { SETTINGS[index - OWN] };
        index += 1;
    }
    all
}

pub(super) static CREATE: Endpoint =
    Endpoint::post("/dataset/create", "createDataset", Group::Datasets, |method| on(method, create))
        .summary("Creates a dataset, without a version yet")
        .input(Input::Body(&CREATED))
        .answer(DATASET)
        .errors(&[409]);

async fn create(Caller(user): Caller, base: BaseUrl, State(app): State<App>, fields: Fields) -> DatasetResult {
    let (name, settings) = (fields.parsed("name")?, settings(&fields)?);
    let created = app.datasets().create(&user, name, settings).await?;
    Ok(Json(DatasetAnswer::new(&created, &base)))
}

pub(super) static CLONE: Endpoint =
    Endpoint::post("/dataset/clone", "cloneDataset", Group::Datasets, |method| on(method, clone))
        .summary("A new dataset whose first version is the latest of a public dataset, or of one of the caller's")
        .input(Input::Body(&[Field { about: "What is cloned.", ..fields::DATASET_ID }, fields::NAME]))
        .answer(DATASET)
        .errors(&[404, 409]);

async fn clone(Caller(user): Caller, base: BaseUrl, State(app): State<App>, fields: Fields) -> DatasetResult {
    let (source, name) = (fields.dataset_id()?, fields.parsed("name")?);
    let cloned = app.datasets().clone_dataset(&user, source, name).await?;
    Ok(Json(DatasetAnswer::new(&cloned, &base)))
}

pub(super) static UPDATE: Endpoint =
    Endpoint::post("/dataset/update", "updateDataset", Group::Datasets, |method| on(method, update))
        .summary("Changes what is given of a dataset, and nothing else")
        .input(Input::Body(&UPDATED))
        .answer(DATASET)
        .errors(&[404, 409]);

async fn update(Caller(user): Caller, base: BaseUrl, State(app): State<App>, fields: Fields) -> DatasetResult {
    let (id, mut settings) = (fields.dataset_id()?, settings(&fields)?);
    settings.name = fields.optional_parsed("name")?;
    let updated = app.datasets().update(&user, id, settings).await?;
    Ok(Json(DatasetAnswer::new(&updated, &base)))
}

/// What a body says of a dataset, but its name.
fn settings(fields: &Fields) -> Result<DatasetChange, CallError> {
    // A wrong type of these is told first, a wrong value in its turn.
    fields.nullable::<String>("format", TEXT_FORM)?;
    fields.nullable::<String>("schedule", SCHEDULE_FORM)?;
    let schedule: Option<Option<Schedule>> = fields.nullable("schedule", SCHEDULE_FORM)?;
    Ok(DatasetChange {
        name: None,
        description: fields.nullable("description", TEXT_FORM)?,
        licence: fields.nullable("licence", TEXT_FORM)?,
        listed: fields.optional_boolean("listed")?,
        visibility: fields.optional_boolean("private")?.map(visibility),
        source: fields.optional_text("source")?.map(DatasetSource::from),
        format: fields.nullable("format", TEXT_FORM)?,
        records_path: fields.nullable("records_path", TEXT_FORM)?,
        publish_query: fields.optional_boolean("publish_query")?,
        infer_types: fields.optional_boolean("infer_types")?,
        schedule: schedule.map(|schedule| schedule.map(|schedule| schedule.to_string())),
        index: fields.index()?,
    })
}

pub(super) static DELETE: Endpoint =
    Endpoint::delete("/dataset/delete", "deleteDataset", Group::Datasets, |method| on(method, delete))
        .summary("Deletes a dataset that has no versions; versions are permanent")
        .input(Input::Body(&[fields::DATASET_ID]))
        .answer(DONE)
        .errors(&[404, 409]);

async fn delete(Caller(user): Caller, State(app): State<App>, fields: Fields) -> JsonResult<Done> {
    app.datasets().delete(&user, fields.dataset_id()?).await?;
    Ok(Json(Done::OK))
}

pub(super) static LIST: Endpoint =
    Endpoint::get("/dataset/list", "listDatasets", Group::Datasets, |method| on(method, list))
        .summary("The caller's datasets, by id")
        .input(Input::Query(&[
            Field::optional("after", FieldKind::Positive, || json!(1)).about("Only those with a greater `dataset_id`."),
            Field::optional("limit", FieldKind::Positive, || json!(100))
                .about("At most so many; 1,000 at most in any case."),
        ]))
        .answer(Answer::record::<DatasetsAnswer>(
            "A page of the datasets. The next one is that after the last `dataset_id`.",
        ));

async fn list(caller: Identified, base: BaseUrl, State(app): State<App>, fields: Fields) -> JsonResult<DatasetsAnswer> {
    let after = fields.optional_positive("after")?.map(DatasetId::new);
    let limit = fields.limit(MOST_LISTED, MOST_LISTED)?;
    let datasets = app.datasets().list(&caller.user, after, limit).await?;
    let record = |dataset| DatasetRecord::new(dataset, &base).seen_with(caller.scope);
    let datasets = datasets.iter().map(record).collect();
    Ok(Json(DatasetsAnswer { ok: true, datasets }))
}

pub(super) static VIEW: Endpoint =
    Endpoint::get("/dataset/view", "viewDataset", Group::Datasets, |method| on(method, view))
        .summary("A dataset with its versions, newest first")
        .input(Input::Query(&[fields::DATASET_ID]))
        .answer(Answer::record::<DatasetViewAnswer>("The dataset with its versions."))
        .errors(&[404]);

async fn view(
    caller: Identified,
    base: BaseUrl,
    State(app): State<App>,
    fields: Fields,
) -> JsonResult<DatasetViewAnswer> {
    let view = app.datasets().view(&caller.user, fields.dataset_id()?).await?;
    let versions = view.versions.iter().map(VersionRecord::from).collect();
    let owned = OwnedDataset { dataset: view.dataset, last_attempts: view.last_attempts };
    let dataset = DatasetViewRecord { dataset: DatasetRecord::new(&owned, &base).seen_with(caller.scope), versions };
    Ok(Json(DatasetViewAnswer { ok: true, dataset }))
}

pub(super) static ROTATE_KEY: Endpoint =
    Endpoint::post("/dataset/rotate_key", "rotateKey", Group::Datasets, |method| on(method, rotate_key))
        .summary("Replaces the key of a private dataset")
        .input(Input::Body(&[fields::DATASET_ID]))
        .answer(DATASET)
        .errors(&[404, 409]);

async fn rotate_key(Caller(user): Caller, base: BaseUrl, State(app): State<App>, fields: Fields) -> DatasetResult {
    let rotated = app.datasets().rotate_key(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&rotated, &base)))
}

pub(super) static ROTATE_PING: Endpoint =
    Endpoint::post("/dataset/rotate_ping", "rotatePing", Group::Datasets, |method| on(method, rotate_ping))
        .summary("Replaces the ping URL of a dataset; the old one finds nothing from then on")
        .input(Input::Body(&[fields::DATASET_ID]))
        .answer(DATASET)
        .errors(&[404]);

async fn rotate_ping(Caller(user): Caller, base: BaseUrl, State(app): State<App>, fields: Fields) -> DatasetResult {
    let rotated = app.datasets().rotate_ping(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&rotated, &base)))
}

pub(super) static ROLLBACK: Endpoint =
    Endpoint::post("/dataset/rollback", "rollBack", Group::Versions, |method| on(method, rollback))
        .summary("Makes a version the active one for good; with `freeze` also freezes the dataset there")
        .input(Input::Body(&[
            fields::DATASET_ID,
            Field { name: "version_number", ..fields::VERSION },
            Field::optional("freeze", FieldKind::Boolean, || json!(false)).about("Whether to freeze the dataset."),
        ]))
        .answer(DATASET)
        .errors(&[404]);

async fn rollback(Caller(user): Caller, base: BaseUrl, State(app): State<App>, fields: Fields) -> DatasetResult {
    let (id, version) = (fields.dataset_id()?, fields.version("version_number")?);
    let freeze = fields.optional_boolean("freeze")?.unwrap_or(false);
    let rolled_back = app.datasets().rollback(&user, id, version, freeze).await?;
    Ok(Json(DatasetAnswer::new(&rolled_back, &base)))
}

pub(super) static UNPIN: Endpoint =
    Endpoint::post("/dataset/unpin", "unpin", Group::Versions, |method| on(method, unpin))
        .summary("Lets the active version follow the newest one again")
        .input(Input::Body(&[fields::DATASET_ID]))
        .answer(DATASET)
        .errors(&[404]);

async fn unpin(Caller(user): Caller, base: BaseUrl, State(app): State<App>, fields: Fields) -> DatasetResult {
    let unpinned = app.datasets().unpin(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&unpinned, &base)))
}

pub(super) static UNFREEZE: Endpoint =
    Endpoint::post("/dataset/unfreeze", "unfreeze", Group::Versions, |method| on(method, unfreeze))
        .summary("Lets a frozen dataset be refreshed and read again; a pin stays")
        .input(Input::Body(&[fields::DATASET_ID]))
        .answer(DATASET)
        .errors(&[404, 409]);

async fn unfreeze(Caller(user): Caller, base: BaseUrl, State(app): State<App>, fields: Fields) -> DatasetResult {
    let unfrozen = app.datasets().unfreeze(&user, fields.dataset_id()?).await?;
    Ok(Json(DatasetAnswer::new(&unfrozen, &base)))
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
