//! `/dataset/…`: the caller's datasets, clones, and the states of their versions.

use axum::Json;
use axum::routing::{self, get, post};
use serde::Serialize;
use serde_json::json;
use strata_catalog::DatasetView;
use strata_service::{DatasetWithAttempts, new_private_visibility};
use strata_types::dataset::{DEFAULT_CRON_SCHEDULE, DatasetChange, DatasetSource, DatasetVisibility, RollbackMode};
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::schedule::{RefreshSchedule, SCHEDULE_SYNTAX};
use strata_types::token_scope::TokenScope;
use utoipa::ToSchema;

use super::records::{
    DATASET_RESPONSE, DatasetRecord, DatasetResponse, DatasetResult, SUCCESS_RESPONSE, SuccessResponse, VersionSummary,
    response_types,
};
use super::request_body::TEXT_OR_NULL_FORM;
use super::{BaseUrl, CallFields, JsonResult, UserCall, fields};
use crate::endpoint::{
    Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldRequirement, FieldSpec,
};
use crate::error::CallError;

pub(super) const ENDPOINTS: &[&Endpoint] = &[
    &CREATE_DATASET_ENDPOINT,
    &UPDATE_DATASET_ENDPOINT,
    &DELETE_DATASET_ENDPOINT,
    &LIST_DATASETS_ENDPOINT,
    &VIEW_DATASET_ENDPOINT,
    &ROTATE_KEY_ENDPOINT,
    &ROTATE_PING_ENDPOINT,
    &ROLLBACK_ENDPOINT,
    &UNPIN_ENDPOINT,
    &UNFREEZE_ENDPOINT,
    &CLONE_DATASET_ENDPOINT,
];

const MAX_LISTED_DATASETS: u32 = limits::MAX_OWNED_DATASETS_PER_PAGE as u32;

const SETTINGS_FIELDS: [FieldSpec; 12] = [
    FieldSpec::optional("description", FieldKind::BoundedTextOrNull(limits::MAX_DESCRIPTION_CHARACTERS), || {
        json!("The countries of the world, with their capitals and areas.")
    })
    .description("A description for people who search for data. The default is null (no description)."),
    FieldSpec::optional("licence", FieldKind::BoundedTextOrNull(limits::MAX_LICENSE_CHARACTERS), || json!("CC-BY-4.0"))
        .description("The license of the entities. The default is null (unspecified)."),
    FieldSpec::optional("listed", FieldKind::Boolean, || json!(true)).description(
        "Whether `GET /datasets` lists the dataset. strata lists a dataset only while it is public, is not frozen, and \
         has at least one version. The default is false.",
    ),
    FieldSpec::optional("private", FieldKind::Boolean, || json!(true))
        .description("Whether queries of the dataset require its private key. The default is false."),
    FieldSpec::optional("source", FieldKind::Source, || json!("https://example.org/countries.json"))
        .description("The source of the entities: `push`, or an http, https, s3, or store URL. The default is `push`."),
    FieldSpec::optional("format", FieldKind::OneOfOrNull(fields::source_format_names), || json!("json"))
        .description("The format of the source. By default (null), strata detects the format."),
    FieldSpec::optional("records_path", FieldKind::PathOrNull, || json!("data.items")).description(
        "The path to the array of entities in a JSON source. The default is null: the document itself is the array.",
    ),
    FieldSpec::optional("publish_query", FieldKind::Boolean, || json!(false)).description(
        "Whether `_source` includes the query string of the source URL. Query strings often contain keys. A change \
         applies only to new versions. The default is false.",
    ),
    FieldSpec::optional("infer_types", FieldKind::Boolean, || json!(true)).description(
        "Whether strata converts the type of csv and tsv cells whose text is exactly a number, boolean, or null. A \
         change applies only to new versions. The default is false.",
    ),
    FieldSpec::optional("schedule", FieldKind::ScheduleOrNull, || json!(DEFAULT_CRON_SCHEDULE)).description(
        "The refresh schedule: a cron expression with five fields, in UTC. By default, strata refreshes the dataset \
         every night. Null disables scheduled refreshes.",
    ),
    FieldSpec::optional("index", FieldKind::IndexSettings, || {
        json!({ "always": ["name"], "never": ["notes"] })
    })
    .description(
        "Two lists of paths: `always` for paths that always get an indexed column, and `never` for paths that never \
         get one. Each list can contain up to 64 paths, and a path cannot be in both lists. For all other paths, \
         strata decides based on the profile of each version. A change replaces both lists, and applies only to new \
         versions and alternates. Null or `{}` clears both lists.",
    ),
    fields::CHECKS_FIELD,
];

const CREATE_FIELDS: [FieldSpec; 13] = with_settings_fields([fields::NAME_FIELD]);

const UPDATE_FIELDS: [FieldSpec; 14] = with_settings_fields([
    fields::DATASET_ID_FIELD,
    FieldSpec {
        requirement: FieldRequirement::Optional,
        description: "The name of the dataset, which also determines its slug.",
        ..fields::NAME_FIELD
    },
]);

const fn with_settings_fields<const FIRST: usize, const ALL: usize>(first: [FieldSpec; FIRST]) -> [FieldSpec; ALL] {
    let mut all = [first[0]; ALL];
    let mut index = 0;
    while index < ALL {
        all[index] = if index < FIRST { first[index] } else { SETTINGS_FIELDS[index - FIRST] };
        index += 1;
    }
    all
}

static CREATE_DATASET_ENDPOINT: Endpoint =
    Endpoint::post("/dataset/create", "createDataset", EndpointGroup::Datasets, || post(create_dataset))
        .summary("Creates a dataset without versions")
        .description(
            "To send the entities yourself, set `source` to `push`. Otherwise, set `source` to a URL, which strata \
         fetches at each refresh. To create the first version, call `POST /dataset/refresh`.",
        )
        .input(EndpointInput::Body(&CREATE_FIELDS))
        .response(DATASET_RESPONSE)
        .errors(&[409]);

async fn create_dataset(base: BaseUrl, UserCall { user, services, fields, .. }: UserCall) -> DatasetResult {
    let created = services.datasets.create(&user, fields.parse_text("name")?, parse_dataset_change(&fields)?).await?;
    Ok(Json(DatasetResponse::from_owned(&created, &base)))
}

static CLONE_DATASET_ENDPOINT: Endpoint =
    Endpoint::post("/dataset/clone", "cloneDataset", EndpointGroup::Datasets, || post(clone_dataset))
        .summary("Clones the latest version of a public dataset or of one of your datasets into a new dataset")
        .description(
            "The clone starts with a copy of the latest version and of its alternate, if there is one. From then on, \
             the clone has its own history. Its source is `push` until you change it.",
        )
        .input(EndpointInput::Body(&[
            FieldSpec { description: "The dataset to clone.", ..fields::DATASET_ID_FIELD },
            fields::NAME_FIELD,
        ]))
        .response(DATASET_RESPONSE)
        .errors(&[404, 409]);

async fn clone_dataset(base: BaseUrl, UserCall { user, services, fields, .. }: UserCall) -> DatasetResult {
    let cloned = services.datasets.clone_dataset(&user, fields.dataset_id()?, fields.parse_text("name")?).await?;
    Ok(Json(DatasetResponse::from_owned(&cloned, &base)))
}

static UPDATE_DATASET_ENDPOINT: Endpoint =
    Endpoint::post("/dataset/update", "updateDataset", EndpointGroup::Datasets, || post(update_dataset))
        .summary("Changes individual settings of a dataset")
        .description(
            "Omitted fields keep their values. A null field also keeps its value, unless null is valid for the field. \
         If you change the name, the slug in the URLs also changes. Changes to the source, format, index, or \
         checks apply to the next version.",
        )
        .input(EndpointInput::Body(&UPDATE_FIELDS))
        .response(DATASET_RESPONSE)
        .errors(&[404, 409]);

async fn update_dataset(base: BaseUrl, UserCall { user, services, fields, .. }: UserCall) -> DatasetResult {
    let id = fields.dataset_id()?;
    let mut settings = parse_dataset_change(&fields)?;
    settings.name = fields.parse_optional_text("name")?;
    Ok(Json(DatasetResponse::from_owned(&services.datasets.update(&user, id, settings).await?, &base)))
}

fn parse_dataset_change(fields: &CallFields) -> Result<DatasetChange, CallError> {
    // A wrong type of `format` or `schedule` is reported before any mistake in the other settings.
    fields.parse_nullable_text::<String>("format", TEXT_OR_NULL_FORM)?;
    fields.parse_nullable_text::<String>("schedule", SCHEDULE_SYNTAX)?;
    let schedule: Option<Option<RefreshSchedule>> = fields.parse_nullable_text("schedule", SCHEDULE_SYNTAX)?;
    Ok(DatasetChange {
        name: None,
        description: fields.parse_nullable_text("description", TEXT_OR_NULL_FORM)?,
        licence: fields.parse_nullable_text("licence", TEXT_OR_NULL_FORM)?,
        listed: fields.optional_boolean("listed")?,
        visibility: fields.optional_boolean("private")?.map(|private| match private {
            true => new_private_visibility(),
            false => DatasetVisibility::Public,
        }),
        source: fields.optional_text("source")?.map(DatasetSource::from),
        format: fields.parse_nullable_text("format", TEXT_OR_NULL_FORM)?,
        records_path: fields.parse_nullable_text("records_path", TEXT_OR_NULL_FORM)?,
        publish_query: fields.optional_boolean("publish_query")?,
        infer_types: fields.optional_boolean("infer_types")?,
        schedule: schedule.map(|schedule| schedule.map(|schedule| schedule.to_string())),
        index: fields.index_settings()?,
        checks: fields.checks()?,
    })
}

static DELETE_DATASET_ENDPOINT: Endpoint =
    Endpoint::delete("/dataset/delete", "deleteDataset", EndpointGroup::Datasets, || routing::delete(delete_dataset))
        .summary("Deletes a dataset that has no versions")
        .description(
            "Versions are permanent, so you cannot delete a dataset that has any. You can freeze it instead. After you \
             delete a dataset, you can reuse its name, but strata never reuses its ID.",
        )
        .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD]))
        .response(SUCCESS_RESPONSE)
        .errors(&[404, 409]);

async fn delete_dataset(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<SuccessResponse> {
    services.datasets.delete(&user, fields.dataset_id()?).await?;
    Ok(Json(SuccessResponse::OK))
}

static LIST_DATASETS_ENDPOINT: Endpoint =
    Endpoint::get("/dataset/list", "listDatasets", EndpointGroup::Datasets, || get(list_own_datasets))
        .summary("Lists your datasets, ordered by ID")
        .description("The list includes frozen datasets and datasets without versions.")
        .input(EndpointInput::Query(&[
            FieldSpec::optional("after", FieldKind::PositiveInteger, || json!(1))
                .description("Returns only datasets with a greater `dataset_id`."),
            FieldSpec::optional("limit", FieldKind::PositiveInteger, || json!(100))
                .description("The maximum number of datasets to return. The default and the maximum are both 1,000."),
        ]))
        .response(EndpointResponse::for_record::<DatasetsResponse>(
            "A page of datasets. To get the next page, pass the last `dataset_id` as `after`.",
        ));

async fn list_own_datasets(base: BaseUrl, call: UserCall) -> JsonResult<DatasetsResponse> {
    let after = call.fields.optional_positive_integer("after")?.map(DatasetId::new);
    let limit = call.fields.page_limit(MAX_LISTED_DATASETS, MAX_LISTED_DATASETS)?;
    let datasets = call.services.datasets.list_with_attempts(&call.user, after, limit).await?;
    let record = |dataset| DatasetRecord::new(dataset, &base).redact_for_scope(call.scope);
    Ok(Json(DatasetsResponse::new(datasets.iter().map(record).collect())))
}

static VIEW_DATASET_ENDPOINT: Endpoint =
    Endpoint::get("/dataset/view", "viewDataset", EndpointGroup::Datasets, || get(view_dataset))
        .summary("Returns a dataset with its versions, newest first")
        .description(
            "Use this operation to find out which version is active, when each version was created, and whether \
             recent refreshes failed.",
        )
        .input(EndpointInput::Query(&[fields::DATASET_ID_FIELD]))
        .response(EndpointResponse::for_record::<DatasetViewResponse>("The dataset and its versions."))
        .errors(&[404]);

async fn view_dataset(base: BaseUrl, call: UserCall) -> JsonResult<DatasetViewResponse> {
    let view = call.services.datasets.find_owned_view(&call.user, call.fields.dataset_id()?).await?;
    Ok(Json(DatasetViewResponse::new(DatasetViewRecord::new(view, &base, call.scope))))
}

static ROTATE_KEY_ENDPOINT: Endpoint =
    Endpoint::post("/dataset/rotate_key", "rotateKey", EndpointGroup::Datasets, || post(rotate_private_key))
        .summary("Replaces the private key of a private dataset")
        .description(
            "The old key stops working immediately, so you must send the new key to everyone who queries the dataset.",
        )
        .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD]))
        .response(DATASET_RESPONSE)
        .errors(&[404, 409]);

static ROTATE_PING_ENDPOINT: Endpoint =
    Endpoint::post("/dataset/rotate_ping", "rotatePing", EndpointGroup::Datasets, || post(rotate_ping_token))
        .summary("Replaces the ping URL of a dataset; the old URL stops working")
        .description("Use this operation if someone else might know the old URL.")
        .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD]))
        .response(DATASET_RESPONSE)
        .errors(&[404]);

static ROLLBACK_ENDPOINT: Endpoint =
    Endpoint::post("/dataset/rollback", "rollBack", EndpointGroup::Versions, || post(rollback))
        .summary("Pins a version as the active version; with `freeze`, also freezes the dataset")
        .description(
            "While a version is pinned, `active` always means this version, even if a refresh creates a newer one. \
         If you also freeze the dataset, all queries and refreshes return an error until you unfreeze it.",
        )
        .input(EndpointInput::Body(&[
            fields::DATASET_ID_FIELD,
            FieldSpec { name: "version_number", ..fields::VERSION_FIELD },
            FieldSpec::optional("freeze", FieldKind::Boolean, || json!(false))
                .description("Whether to freeze the dataset as well."),
        ]))
        .response(DATASET_RESPONSE)
        .errors(&[404]);

async fn rollback(base: BaseUrl, UserCall { user, services, fields, .. }: UserCall) -> DatasetResult {
    let id = fields.dataset_id()?;
    let version = fields.version_number("version_number")?;
    let mode = RollbackMode::from_freeze(fields.optional_boolean("freeze")?.unwrap_or(false));
    let dataset = services.datasets.rollback(&user, id, version, mode).await?;
    Ok(Json(DatasetResponse::from_owned(&dataset, &base)))
}

static UNPIN_ENDPOINT: Endpoint = Endpoint::post("/dataset/unpin", "unpin", EndpointGroup::Versions, || post(unpin))
    .summary("Unpins the active version, so that `active` means the newest version again")
    .description("If no version is pinned, the operation has no effect.")
    .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD]))
    .response(DATASET_RESPONSE)
    .errors(&[404]);

static UNFREEZE_ENDPOINT: Endpoint =
    Endpoint::post("/dataset/unfreeze", "unfreeze", EndpointGroup::Versions, || post(unfreeze))
        .summary("Unfreezes a dataset so that you can query and refresh it again; a pinned version stays pinned")
        .description(
            "If the dataset is not frozen, strata returns 409. If your plan does not allow another active dataset, \
         strata returns 403.",
        )
        .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD]))
        .response(DATASET_RESPONSE)
        .errors(&[404, 409]);

/// Defines the handlers of operations whose only input is a dataset, and which return the dataset.
macro_rules! dataset_handlers {
    ($($operation:ident),+) => { $(
        async fn $operation(base: BaseUrl, UserCall { user, services, fields, .. }: UserCall) -> DatasetResult {
            let dataset = services.datasets.$operation(&user, fields.dataset_id()?).await?;
            Ok(Json(DatasetResponse::from_owned(&dataset, &base)))
        }
    )+ };
}

dataset_handlers!(rotate_private_key, rotate_ping_token, unpin, unfreeze);

/// A dataset and its versions.
#[derive(Serialize, ToSchema)]
struct DatasetViewRecord {
    /// The dataset.
    #[serde(flatten)]
    dataset: DatasetRecord,
    /// The versions of the dataset, newest first.
    versions: Vec<VersionSummary>,
}

impl DatasetViewRecord {
    fn new(view: DatasetView, base: &BaseUrl, scope: TokenScope) -> DatasetViewRecord {
        let versions = view.versions.iter().map(VersionSummary::from).collect();
        let owned =
            DatasetWithAttempts { dataset: view.dataset, last_attempts: view.last_attempts, checks: view.checks };
        DatasetViewRecord { dataset: DatasetRecord::new(&owned, base).redact_for_scope(scope), versions }
    }
}

response_types! {
    /// A response that contains your datasets, ordered by ID.
    DatasetsResponse {
        /// The datasets.
        datasets: Vec<DatasetRecord>,
    }

    /// A response that contains a dataset and its versions.
    DatasetViewResponse {
        /// The dataset.
        dataset: DatasetViewRecord,
    }
}
