//! Response records that several endpoint modules share (docs/reference/records.md, Records). Times are RFC 3339 in
//! UTC. A field without a value is null.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use strata_catalog::{AttemptOutcome, RefreshAttempt, VersionStatus as CatalogVersion};
use strata_ingest::egress::{UrlQuery, strip_credentials};
use strata_service::{DatasetWithAttempts, alternate_etag};
use strata_types::field_path::FieldPath;
use strata_types::index_settings::IndexSettings;
use strata_types::token_scope::TokenScope;
use utoipa::ToSchema;

use super::{BaseUrl, JsonResult};
use crate::endpoint::EndpointResponse;

/// Defines the types of responses that have the member `ok` (always true) and the listed members.
macro_rules! response_types {
    ($($(#[$about:meta])* $vis:vis $name:ident { $($(#[$attribute:meta])* $member:ident: $type:ty),+ $(,)? })+) => { $(
        $(#[$about])*
        #[derive(serde::Serialize, utoipa::ToSchema)]
        $vis struct $name {
            /// Always true.
            ok: bool,
            $( $(#[$attribute])* $member: $type, )+
        }

        impl $name {
            $vis fn new($($member: $type),+) -> Self {
                Self { ok: true, $($member),+ }
            }
        }
    )+ };
}

pub(super) use response_types;

pub(crate) fn format_time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

pub(super) const SUCCESS_RESPONSE: EndpointResponse =
    EndpointResponse::for_record::<SuccessResponse>("The operation succeeded.");
pub(super) const DATASET_RESPONSE: EndpointResponse =
    EndpointResponse::for_record::<DatasetResponse>("The dataset with its settings and state.");

/// The response to a successful operation.
#[derive(Serialize, ToSchema)]
pub struct SuccessResponse {
    /// Always true.
    pub ok: bool,
}

impl SuccessResponse {
    pub const OK: SuccessResponse = SuccessResponse { ok: true };
}

/// One attempt to refresh a dataset.
#[derive(Serialize, ToSchema)]
pub struct AttemptRecord {
    /// When the attempt began.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// When the attempt ended, or null while it is running.
    #[schema(format = DateTime)]
    pub finished_at: Option<String>,
    /// What triggered the attempt: `schedule`, `ping`, `manual`, or `import`.
    pub trigger: &'static str,
    /// Whether the attempt created a version, or null while it is running.
    pub ok: Option<bool>,
    /// The version that the attempt created, or null if there is none.
    pub version: Option<u64>,
    /// Why the attempt failed, or null if it has not failed.
    pub error: Option<String>,
    /// Possible mistakes in the new version, as sentences for humans. Omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl From<&RefreshAttempt> for AttemptRecord {
    fn from(attempt: &RefreshAttempt) -> Self {
        let (ok, version, error) = match &attempt.outcome {
            None => (None, None, None),
            Some(AttemptOutcome::Published(number)) => (Some(true), Some(number.get()), None),
            Some(AttemptOutcome::Failed { error }) => (Some(false), None, Some(error.clone())),
        };
        AttemptRecord {
            started_at: format_time(attempt.started_at),
            finished_at: attempt.finished_at.map(format_time),
            trigger: attempt.trigger.name(),
            ok,
            version,
            error,
            warnings: attempt.warnings.clone(),
        }
    }
}

/// Index settings. The paths are in their escaped form. For paths in neither list, strata decides based on the profile
/// of each version.
#[derive(Serialize, ToSchema)]
pub struct IndexLists {
    /// The paths that always get an indexed column.
    pub always: Vec<String>,
    /// The paths that never get an indexed column.
    pub never: Vec<String>,
}

impl From<&IndexSettings> for IndexLists {
    fn from(index: &IndexSettings) -> Self {
        let texts = |paths: &[FieldPath]| paths.iter().map(FieldPath::to_string).collect();
        IndexLists { always: texts(index.always_indexed()), never: texts(index.never_indexed()) }
    }
}

/// A dataset, as its owner can see it.
#[derive(Serialize, ToSchema)]
pub struct DatasetRecord {
    /// The ID of the dataset.
    pub dataset_id: u64,
    /// The name of the dataset.
    pub name: String,
    /// The name of the dataset in URLs.
    pub name_slug: String,
    /// The description of the dataset, or null if there is none.
    pub description: Option<String>,
    /// The license of the entities, or null if it is unspecified.
    pub licence: Option<String>,
    /// Whether `GET /datasets` lists the dataset. strata lists a dataset only while it is public, is not frozen, and
    /// has at least one version.
    pub listed: bool,
    /// Whether queries of the dataset require its private key.
    pub private: bool,
    /// The private key, or null if the dataset is public or the token has the scope `read`.
    pub private_key: Option<String>,
    /// `push`, or the URL from which strata fetches the entities. For a token with the scope `read`, strata omits the
    /// user name and password. It also omits the query string, unless `publish_query` is true.
    pub source: String,
    /// The format of the source, or null if strata detects it.
    pub format: Option<&'static str>,
    /// The path to the array of entities in a JSON source, or null if the document itself is the array.
    pub records_path: Option<String>,
    /// Whether `_source` includes the query string of the source URL.
    pub publish_query: bool,
    /// Whether strata converts csv and tsv cells to numbers, booleans, and nulls.
    pub infer_types: bool,
    /// The refresh schedule as a cron expression in UTC, or null if there is none.
    pub schedule: Option<String>,
    /// The paths that always or never get an indexed column in new versions.
    pub index: IndexLists,
    /// The checks that the entities of a refresh must pass, or null if there are none.
    #[schema(value_type = Option<Object>)]
    pub checks: Option<Value>,
    /// The URL with which anyone can refresh the dataset, or null for a token with the scope `read`.
    pub ping_url: Option<String>,
    /// The number of the active version, or null if there are no versions.
    pub active_version: Option<u64>,
    /// The highest version number, or null if there are no versions.
    pub latest_version: Option<u64>,
    /// Whether the active version is pinned.
    pub pinned: bool,
    /// Whether the dataset is frozen.
    pub frozen: bool,
    /// When the dataset was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// The last 10 refresh attempts, newest first.
    pub last_attempts: Vec<AttemptRecord>,
}

impl DatasetRecord {
    pub(crate) fn new(owned: &DatasetWithAttempts, base: &BaseUrl) -> DatasetRecord {
        let dataset = &owned.dataset;
        DatasetRecord {
            dataset_id: dataset.id.get(),
            name: dataset.name.as_str().to_owned(),
            name_slug: dataset.name.slug().to_owned(),
            description: dataset.metadata.description.clone(),
            licence: dataset.metadata.license.clone(),
            listed: dataset.metadata.listed,
            private: dataset.is_private(),
            private_key: dataset.private_key.as_ref().map(|key| key.expose().to_owned()),
            source: dataset.source.to_string(),
            format: dataset.format.map(|format| format.name()),
            records_path: dataset.records_path.clone(),
            publish_query: dataset.publish_query,
            infer_types: dataset.infer_types,
            schedule: dataset.schedule.clone(),
            index: IndexLists::from(&dataset.index),
            checks: owned.checks.as_deref().and_then(|checks| serde_json::from_str(checks).ok()),
            ping_url: Some(base.absolute_url(&format!("/ping/{}", dataset.ping_token.expose()))),
            active_version: dataset.active_version().map(|version| version.get()),
            latest_version: dataset.latest_version.map(|version| version.get()),
            pinned: dataset.pinned_version.is_some(),
            frozen: dataset.frozen,
            created_at: format_time(dataset.created_at),
            last_attempts: owned.last_attempts.iter().map(AttemptRecord::from).collect(),
        }
    }

    /// Removes keys and URLs with credentials if the caller has a read-only token.
    pub(crate) fn redact_for_scope(self, scope: TokenScope) -> DatasetRecord {
        match scope {
            TokenScope::Read => {
                let source = strip_credentials(&self.source, UrlQuery::from_publish_query(self.publish_query));
                DatasetRecord { private_key: None, ping_url: None, source, ..self }
            }
            TokenScope::Write => self,
        }
    }
}

response_types! {
    /// A response that contains a dataset.
    pub(super) DatasetResponse {
        /// The dataset.
        dataset: DatasetRecord,
    }

    /// A response that contains a version.
    pub(super) VersionResponse {
        /// The version.
        version: VersionSummary,
    }
}

pub(super) type DatasetResult = JsonResult<DatasetResponse>;

impl DatasetResponse {
    pub(super) fn from_owned(owned: &DatasetWithAttempts, base: &BaseUrl) -> DatasetResponse {
        DatasetResponse::new(DatasetRecord::new(owned, base))
    }
}

/// A version of a dataset, without the path of its file.
#[derive(Serialize, ToSchema)]
pub struct VersionSummary {
    /// The version number. Numbers start at 1 and increase by 1 with each successful refresh.
    pub version_number: u64,
    /// The internal path of the alternate's file, or null if there is no alternate.
    pub alt_file_path: Option<String>,
    /// The number of entities in the version.
    pub entity_count: u64,
    /// The size of the version's file in bytes.
    pub file_size_bytes: u64,
    /// The SHA-256 of the version as JSON Lines, in lowercase hexadecimal.
    pub content_sha256: String,
    /// Whether this version is the active version.
    pub is_active: bool,
    /// When the version was created.
    #[schema(format = DateTime)]
    pub created_at: String,
}

impl From<&CatalogVersion> for VersionSummary {
    fn from(record: &CatalogVersion) -> Self {
        let version = &record.version;
        VersionSummary {
            version_number: version.number.get(),
            alt_file_path: version.alternate.as_ref().map(|alt| alt.path.clone()),
            entity_count: version.file.entity_count,
            file_size_bytes: version.file.size_bytes,
            content_sha256: version.file.content_hash.clone(),
            is_active: record.is_active,
            created_at: format_time(version.created_at),
        }
    }
}

impl From<&CatalogVersion> for VersionResponse {
    fn from(record: &CatalogVersion) -> Self {
        VersionResponse::new(record.into())
    }
}

response_types! {
    /// The response after an alternate is pushed or edited.
    pub(crate) PushResponse {
        /// The version.
        version: VersionSummary,
        /// The number of entities in the alternate. `version.entity_count` does not change, because it counts the
        /// entities of the version itself.
        alt_entity_count: u64,
        /// The etag for the next push.
        etag: String,
    }
}

pub(super) fn alt_entity_count(saved: &CatalogVersion) -> u64 {
    saved.version.alternate.as_ref().map_or(0, |alt| alt.entity_count)
}

impl From<&CatalogVersion> for PushResponse {
    fn from(saved: &CatalogVersion) -> Self {
        PushResponse::new(saved.into(), alt_entity_count(saved), alternate_etag(&saved.version))
    }
}
