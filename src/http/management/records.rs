//! Envelopes and records that endpoints of several modules answer with (docs/reference/records.md, Records); the others
//! stand beside their endpoints. Times are RFC 3339 in UTC; a field that does not apply is null.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use strata_types::index::IndexSettings;
use strata_types::path::Path;
use strata_types::scope::Scope;
use utoipa::ToSchema;

use super::{BaseUrl, JsonResult};
use crate::catalog::{Attempt, AttemptOutcome, VersionRecord as CatalogVersion};
use crate::http::endpoint::Answer;
use crate::net::without_credentials;
use crate::service::OwnedDataset;

/// A time as records show it.
pub(in crate::http) fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

pub(super) const DONE: Answer = Answer::record::<Done>("It is done.");
pub(super) const DATASET: Answer = Answer::record::<DatasetAnswer>("The dataset as it is now.");

/// That it was done.
#[derive(Serialize, ToSchema)]
pub struct Done {
    /// Always true.
    pub ok: bool,
}

impl Done {
    pub const OK: Done = Done { ok: true };
}

/// One attempt to refresh a dataset.
#[derive(Serialize, ToSchema)]
pub struct AttemptRecord {
    /// When it began.
    pub started_at: String,
    /// When it ended; null while it runs.
    pub finished_at: Option<String>,
    /// `schedule`, `ping`, `manual` or `import`.
    pub trigger: &'static str,
    /// Whether it made a version; null while it runs.
    pub ok: Option<bool>,
    /// The version that it made.
    pub version: Option<u64>,
    /// Why it made none.
    pub error: Option<String>,
    /// What is perhaps a mistake in the version that it made, sentences for people; left out where there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl From<&Attempt> for AttemptRecord {
    fn from(attempt: &Attempt) -> Self {
        let (ok, version, error) = match &attempt.outcome {
            None => (None, None, None),
            Some(AttemptOutcome::Published(number)) => (Some(true), Some(number.get()), None),
            Some(AttemptOutcome::Failed { error }) => (Some(false), None, Some(error.clone())),
        };
        AttemptRecord {
            started_at: time(attempt.started_at),
            finished_at: attempt.finished_at.map(time),
            trigger: attempt.trigger.name(),
            ok,
            version,
            error,
            warnings: attempt.warnings.clone(),
        }
    }
}

/// Paths in their escaped form. All others are decided by the profile of each version.
#[derive(Serialize, ToSchema)]
pub struct IndexLists {
    /// Those that get a shredded column.
    pub always: Vec<String>,
    /// Those that get none.
    pub never: Vec<String>,
}

impl From<&IndexSettings> for IndexLists {
    fn from(index: &IndexSettings) -> Self {
        let texts = |paths: &[Path]| paths.iter().map(Path::to_string).collect();
        IndexLists { always: texts(index.always()), never: texts(index.never()) }
    }
}

/// A dataset, for its owner.
#[derive(Serialize, ToSchema)]
pub struct DatasetRecord {
    /// Its id.
    pub dataset_id: u64,
    /// Its name.
    pub name: String,
    /// Its name in URLs.
    pub name_slug: String,
    /// What it holds; null where its owner does not say.
    pub description: Option<String>,
    /// The terms under which its entities may be used; null where its owner does not say.
    pub licence: Option<String>,
    /// Whether `GET /datasets` shows it, as long as it is public, is not frozen and has a version.
    pub listed: bool,
    /// Whether reading it needs its key.
    pub private: bool,
    /// The key; null while it is public, and for a token of the scope `read`.
    pub private_key: Option<String>,
    /// `push`, or the URL that its entities are fetched from; for a token of the scope `read` without user name and
    /// password, and without its query unless `publish_query` is true.
    pub source: String,
    /// The format of the source; null detects it.
    pub format: Option<&'static str>,
    /// The path to the array of entities in a JSON source.
    pub records_path: Option<String>,
    /// Whether the `_source` of its entities keeps the query of the source's URL.
    pub publish_query: bool,
    /// Whether cells of csv and tsv become numbers, booleans and nulls.
    pub infer_types: bool,
    /// When it is refreshed, as a cron expression in UTC.
    pub schedule: Option<String>,
    /// Which paths of its next versions get a shredded column, and which get none.
    pub index: IndexLists,
    /// Whoever knows this URL can have it refreshed; null for a token of the scope `read`.
    pub ping_url: Option<String>,
    /// The version that `active` means.
    pub active_version: Option<u64>,
    /// The highest version number.
    pub latest_version: Option<u64>,
    /// Whether a rollback pinned the active version.
    pub pinned: bool,
    /// Whether it is frozen.
    pub frozen: bool,
    /// When it was created.
    pub created_at: String,
    /// The newest attempts to refresh it, newest first, at most 10.
    pub last_attempts: Vec<AttemptRecord>,
}

impl DatasetRecord {
    pub(in crate::http) fn new(owned: &OwnedDataset, base: &BaseUrl) -> DatasetRecord {
        let dataset = &owned.dataset;
        DatasetRecord {
            dataset_id: dataset.id.get(),
            name: dataset.name.as_str().to_owned(),
            name_slug: dataset.name.slug().to_owned(),
            description: dataset.about.description.clone(),
            licence: dataset.about.licence.clone(),
            listed: dataset.about.listed,
            private: dataset.is_private(),
            private_key: dataset.private_key.as_ref().map(|key| key.expose().to_owned()),
            source: dataset.source.to_string(),
            format: dataset.format.map(|format| format.name()),
            records_path: dataset.records_path.clone(),
            publish_query: dataset.publish_query,
            infer_types: dataset.infer_types,
            schedule: dataset.schedule.clone(),
            index: IndexLists::from(&dataset.index),
            ping_url: Some(base.url(&format!("/ping/{}", dataset.ping_token.expose()))),
            active_version: dataset.active_version().map(|version| version.get()),
            latest_version: dataset.latest_version.map(|version| version.get()),
            pinned: dataset.pinned_version.is_some(),
            frozen: dataset.frozen,
            created_at: time(dataset.created_at),
            last_attempts: owned.last_attempts.iter().map(AttemptRecord::from).collect(),
        }
    }

    /// The record without what the scope does not let its caller see.
    pub(in crate::http) fn seen_with(self, scope: Scope) -> DatasetRecord {
        match scope {
            Scope::Read => {
                let source = without_credentials(&self.source, self.publish_query);
                DatasetRecord { private_key: None, ping_url: None, source, ..self }
            }
            Scope::Write => self,
        }
    }
}

/// The envelope of a dataset.
#[derive(Serialize, ToSchema)]
pub struct DatasetAnswer {
    /// Always true.
    pub ok: bool,
    /// The dataset.
    pub dataset: DatasetRecord,
}

pub(super) type DatasetResult = JsonResult<DatasetAnswer>;

impl DatasetAnswer {
    pub(in crate::http) fn new(owned: &OwnedDataset, base: &BaseUrl) -> DatasetAnswer {
        DatasetAnswer { ok: true, dataset: DatasetRecord::new(owned, base) }
    }
}

/// A version, without the path of its file.
#[derive(Serialize, ToSchema)]
pub struct VersionRecord {
    /// From 1, one more for every refresh that succeeds.
    pub version_number: u64,
    /// The internal path of the alternate; null when there is none.
    pub alt_file_path: Option<String>,
    /// Its entities.
    pub entity_count: u64,
    /// Bytes of its file.
    pub file_size_bytes: u64,
    /// Whether `active` means it.
    pub is_active: bool,
    /// When it was made.
    pub created_at: String,
}

impl From<&CatalogVersion> for VersionRecord {
    fn from(record: &CatalogVersion) -> Self {
        let version = &record.version;
        VersionRecord {
            version_number: version.number.get(),
            alt_file_path: version.alt.as_ref().map(|alt| alt.path.clone()),
            entity_count: version.file.entity_count,
            file_size_bytes: version.file.size_bytes,
            is_active: record.is_active,
            created_at: time(version.created_at),
        }
    }
}

/// The envelope of a version.
#[derive(Serialize, ToSchema)]
pub struct VersionAnswer {
    /// Always true.
    pub ok: bool,
    /// The version.
    pub version: VersionRecord,
}

impl From<&CatalogVersion> for VersionAnswer {
    fn from(record: &CatalogVersion) -> Self {
        VersionAnswer { ok: true, version: record.into() }
    }
}
