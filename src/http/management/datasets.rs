//! `/dataset/…`: the caller's datasets, clones, and the states of their versions.

use axum::Json;
use axum::extract::State;
use axum::routing::{self, get, post};
use serde::Serialize;
use serde_json::json;
use strata_service::{OwnedDataset, visibility};
use strata_types::dataset::{DEFAULT_SCHEDULE, DatasetChange, DatasetSource};
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::schedule::{SCHEDULE_FORM, Schedule};
use utoipa::ToSchema;

use super::body::TEXT_FORM;
use super::records::{DATASET, DONE, DatasetAnswer, DatasetRecord, DatasetResult, Done, VersionRecord, answers};
use super::{BaseUrl, Caller, Fields, Identified, JsonResult, fields};
use crate::AppState;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input, Need};
use crate::error::CallError;

pub(super) const ENDPOINTS: &[&Endpoint] =
    &[&CREATE, &UPDATE, &DELETE, &LIST, &VIEW, &ROTATE_KEY, &ROTATE_PING, &ROLLBACK, &UNPIN, &UNFREEZE, &CLONE];

const MAX_LISTED: u32 = limits::LISTED_DATASETS as u32;

/// What a body says of a dataset, but its name.
const SETTINGS: [Field; 11] = [
    Field::optional("description", FieldKind::TextOrNull(limits::DESCRIPTION_CHARACTERS), || {
        json!("The countries of the world, with their capitals and areas.")
    })
    .about("A description for people who search for data. The default is null (no description)."),
    Field::optional("licence", FieldKind::TextOrNull(limits::LICENCE_CHARACTERS), || json!("CC-BY-4.0"))
        .about("The license of the entities. The default is null (unspecified)."),
    Field::optional("listed", FieldKind::Boolean, || json!(true)).about(
        "Whether `GET /datasets` lists the dataset. strata lists a dataset only while it is public, is not frozen, and \
         has at least one version. The default is false.",
    ),
    Field::optional("private", FieldKind::Boolean, || json!(true))
        .about("Whether queries of the dataset require its private key. The default is false."),
    Field::optional("source", FieldKind::Source, || json!("https://example.org/countries.json"))
        .about("The source of the entities: `push`, or an http, https, s3, or store URL. The default is `push`."),
    Field::optional("format", FieldKind::OneOfOrNull(fields::source_formats), || json!("json"))
        .about("The format of the source. By default (null), strata detects the format."),
    Field::optional("records_path", FieldKind::PathOrNull, || json!("data.items")).about(
        "The path to the array of entities in a JSON source. The default is null: the document itself is the array.",
    ),
    Field::optional("publish_query", FieldKind::Boolean, || json!(false)).about(
        "Whether `_source` includes the query string of the source URL. Query strings often contain keys. A change \
         applies only to new versions. The default is false.",
    ),
    Field::optional("infer_types", FieldKind::Boolean, || json!(true)).about(
        "Whether strata converts the type of csv and tsv cells whose text is exactly a number, boolean, or null. A \
         change applies only to new versions. The default is false.",
    ),
    Field::optional("schedule", FieldKind::ScheduleOrNull, || json!(DEFAULT_SCHEDULE)).about(
        "The refresh schedule: a cron expression with five fields, in UTC. By default, strata refreshes the dataset \
         every night. Null disables scheduled refreshes.",
    ),
    Field::optional("index", FieldKind::Index, || json!({ "always": ["name"], "never": ["notes"] })).about(
        "Two lists of paths: `always` for paths that always get an indexed column, and `never` for paths that never \
         get one. Each list can contain up to 64 paths, and a path cannot be in both lists. For all other paths, \
         strata decides based on the profile of each version. A change replaces both lists, and applies only to new \
         versions and alternates. Null or `{}` clears both lists.",
    ),
];

const CREATED: [Field; 12] = with_settings([fields::NAME]);

const UPDATED: [Field; 13] = with_settings([
    fields::DATASET_ID,
    Field { need: Need::Optional, about: "The name of the dataset, which also determines its slug.", ..fields::NAME },
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

static CREATE: Endpoint = Endpoint::post("/dataset/create", "createDataset", Group::Datasets, || post(create))
    .summary("Creates a dataset without versions")
    .description(
        "To send the entities yourself, set `source` to `push`. Otherwise, set `source` to a URL, which strata \
         fetches at each refresh. To create the first version, call `POST /dataset/refresh`.",
    )
    .input(Input::Body(&CREATED))
    .answer(DATASET)
    .errors(&[409]);

async fn create(
    Caller(user): Caller,
    base: BaseUrl,
    State(services): State<AppState>,
    fields: Fields,
) -> DatasetResult {
    let created = services.datasets.create(&user, fields.parsed("name")?, settings(&fields)?).await?;
    Ok(Json(DatasetAnswer::from_owned(&created, &base)))
}

static CLONE: Endpoint = Endpoint::post("/dataset/clone", "cloneDataset", Group::Datasets, || post(clone))
    .summary("Clones the latest version of a public dataset or of one of your datasets into a new dataset")
    .description(
        "The clone starts with a copy of the latest version and of its alternate, if there is one. From then on, \
             the clone has its own history. Its source is `push` until you change it.",
    )
    .input(Input::Body(&[Field { about: "The dataset to clone.", ..fields::DATASET_ID }, fields::NAME]))
    .answer(DATASET)
    .errors(&[404, 409]);

async fn clone(Caller(user): Caller, base: BaseUrl, State(services): State<AppState>, fields: Fields) -> DatasetResult {
    let cloned = services.datasets.clone_dataset(&user, fields.dataset_id()?, fields.parsed("name")?).await?;
    Ok(Json(DatasetAnswer::from_owned(&cloned, &base)))
}

static UPDATE: Endpoint = Endpoint::post("/dataset/update", "updateDataset", Group::Datasets, || post(update))
    .summary("Changes individual settings of a dataset")
    .description(
        "Omitted fields keep their values. A null field also keeps its value, unless null is valid for the field. \
         If you change the name, the slug in the URLs also changes. Changes to the source, format, or index apply \
         to the next version.",
    )
    .input(Input::Body(&UPDATED))
    .answer(DATASET)
    .errors(&[404, 409]);

async fn update(
    Caller(user): Caller,
    base: BaseUrl,
    State(services): State<AppState>,
    fields: Fields,
) -> DatasetResult {
    let id = fields.dataset_id()?;
    let mut settings = settings(&fields)?;
    settings.name = fields.optional_parsed("name")?;
    Ok(Json(DatasetAnswer::from_owned(&services.datasets.update(&user, id, settings).await?, &base)))
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

static DELETE: Endpoint =
    Endpoint::delete("/dataset/delete", "deleteDataset", Group::Datasets, || routing::delete(delete))
        .summary("Deletes a dataset that has no versions")
        .description(
            "Versions are permanent, so you cannot delete a dataset that has any. You can freeze it instead. After you \
             delete a dataset, you can reuse its name, but strata never reuses its ID.",
        )
        .input(Input::Body(&[fields::DATASET_ID]))
        .answer(DONE)
        .errors(&[404, 409]);

async fn delete(Caller(user): Caller, State(services): State<AppState>, fields: Fields) -> JsonResult<Done> {
    services.datasets.delete(&user, fields.dataset_id()?).await?;
    Ok(Json(Done::OK))
}

static LIST: Endpoint = Endpoint::get("/dataset/list", "listDatasets", Group::Datasets, || get(list))
    .summary("Lists your datasets, ordered by ID")
    .description("The list includes frozen datasets and datasets without versions.")
    .input(Input::Query(&[
        Field::optional("after", FieldKind::Positive, || json!(1))
            .about("Returns only datasets with a greater `dataset_id`."),
        Field::optional("limit", FieldKind::Positive, || json!(100))
            .about("The maximum number of datasets to return. The default and the maximum are both 1,000."),
    ]))
    .answer(Answer::record::<DatasetsAnswer>(
        "A page of datasets. To get the next page, pass the last `dataset_id` as `after`.",
    ));

async fn list(
    caller: Identified,
    base: BaseUrl,
    State(services): State<AppState>,
    fields: Fields,
) -> JsonResult<DatasetsAnswer> {
    let after = fields.optional_positive("after")?.map(DatasetId::new);
    let limit = fields.limit(MAX_LISTED, MAX_LISTED)?;
    let datasets = services.datasets.list(&caller.user, after, limit).await?;
    let record = |dataset| DatasetRecord::new(dataset, &base).seen_with(caller.scope);
    let datasets = datasets.iter().map(record).collect();
    Ok(Json(DatasetsAnswer::new(datasets)))
}

static VIEW: Endpoint = Endpoint::get("/dataset/view", "viewDataset", Group::Datasets, || get(view))
    .summary("Returns a dataset with its versions, newest first")
    .description(
        "Use this operation to find out which version is active, when each version was created, and whether \
             recent refreshes failed.",
    )
    .input(Input::Query(&[fields::DATASET_ID]))
    .answer(Answer::record::<DatasetViewAnswer>("The dataset and its versions."))
    .errors(&[404]);

async fn view(
    caller: Identified,
    base: BaseUrl,
    State(services): State<AppState>,
    fields: Fields,
) -> JsonResult<DatasetViewAnswer> {
    let view = services.datasets.view(&caller.user, fields.dataset_id()?).await?;
    let versions = view.versions.iter().map(VersionRecord::from).collect();
    let owned = OwnedDataset { dataset: view.dataset, last_attempts: view.last_attempts };
    let dataset = DatasetViewRecord { dataset: DatasetRecord::new(&owned, &base).seen_with(caller.scope), versions };
    Ok(Json(DatasetViewAnswer::new(dataset)))
}

static ROTATE_KEY: Endpoint = Endpoint::post("/dataset/rotate_key", "rotateKey", Group::Datasets, || post(rotate_key))
    .summary("Replaces the private key of a private dataset")
    .description(
        "The old key stops working immediately, so you must send the new key to everyone who queries the dataset.",
    )
    .input(Input::Body(&[fields::DATASET_ID]))
    .answer(DATASET)
    .errors(&[404, 409]);

static ROTATE_PING: Endpoint =
    Endpoint::post("/dataset/rotate_ping", "rotatePing", Group::Datasets, || post(rotate_ping))
        .summary("Replaces the ping URL of a dataset; the old URL stops working")
        .description("Use this operation if someone else might know the old URL.")
        .input(Input::Body(&[fields::DATASET_ID]))
        .answer(DATASET)
        .errors(&[404]);

static ROLLBACK: Endpoint = Endpoint::post("/dataset/rollback", "rollBack", Group::Versions, || post(rollback))
    .summary("Pins a version as the active version; with `freeze`, also freezes the dataset")
    .description(
        "While a version is pinned, `active` always means this version, even if a refresh creates a newer one. \
         If you also freeze the dataset, all queries and refreshes return an error until you unfreeze it.",
    )
    .input(Input::Body(&[
        fields::DATASET_ID,
        Field { name: "version_number", ..fields::VERSION },
        Field::optional("freeze", FieldKind::Boolean, || json!(false)).about("Whether to freeze the dataset as well."),
    ]))
    .answer(DATASET)
    .errors(&[404]);

async fn rollback(
    Caller(user): Caller,
    base: BaseUrl,
    State(services): State<AppState>,
    fields: Fields,
) -> DatasetResult {
    let id = fields.dataset_id()?;
    let version = fields.version("version_number")?;
    let freeze = fields.optional_boolean("freeze")?.unwrap_or(false);
    Ok(Json(DatasetAnswer::from_owned(&services.datasets.rollback(&user, id, version, freeze).await?, &base)))
}

static UNPIN: Endpoint = Endpoint::post("/dataset/unpin", "unpin", Group::Versions, || post(unpin))
    .summary("Unpins the active version, so that `active` means the newest version again")
    .description("If no version is pinned, the operation has no effect.")
    .input(Input::Body(&[fields::DATASET_ID]))
    .answer(DATASET)
    .errors(&[404]);

static UNFREEZE: Endpoint = Endpoint::post("/dataset/unfreeze", "unfreeze", Group::Versions, || post(unfreeze))
    .summary("Unfreezes a dataset so that you can query and refresh it again; a pinned version stays pinned")
    .description(
        "If the dataset is not frozen, strata returns 409. If your plan does not allow another active dataset, \
         strata returns 403.",
    )
    .input(Input::Body(&[fields::DATASET_ID]))
    .answer(DATASET)
    .errors(&[404, 409]);

/// Makes handlers of operations that take nothing but a dataset, which they return.
macro_rules! dataset_handlers {
    ($($operation:ident),+) => { $(
        async fn $operation(
            Caller(user): Caller,
            base: BaseUrl,
            State(services): State<AppState>,
            fields: Fields,
        ) -> DatasetResult {
            let dataset = services.datasets.$operation(&user, fields.dataset_id()?).await?;
            Ok(Json(DatasetAnswer::from_owned(&dataset, &base)))
        }
    )+ };
}

dataset_handlers!(rotate_key, rotate_ping, unpin, unfreeze);

/// A dataset and its versions.
#[derive(Serialize, ToSchema)]
struct DatasetViewRecord {
    /// The dataset.
    #[serde(flatten)]
    dataset: DatasetRecord,
    /// The versions of the dataset, newest first.
    versions: Vec<VersionRecord>,
}

answers! {
    /// A response that contains your datasets, ordered by ID.
    DatasetsAnswer {
        /// The datasets.
        datasets: Vec<DatasetRecord>,
    }

    /// A response that contains a dataset and its versions.
    DatasetViewAnswer {
        /// The dataset.
        dataset: DatasetViewRecord,
    }
}
