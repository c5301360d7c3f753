//! Imports a source as a new version of an existing or a new dataset.
//!
//! An existing dataset is refreshed. For a new dataset, the version file is written first, then one transaction records
//! the dataset and the version. A failed import leaves no version, no dataset and no file.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use strata_catalog::{CatalogError, FirstAttempt};
use strata_ingest::egress::UrlQuery;
use strata_ingest::{FetchOutcome, SourceError, SourceInput, TypeInference};
use strata_types::dataset::{
    DEFAULT_CRON_SCHEDULE, Dataset, DatasetChange, DatasetMetadata, DatasetName, DatasetSource, InvalidDatasetName,
    NewDataset, RefreshTrigger,
};
use strata_types::field_path::FieldPath;
use strata_types::ids::{DatasetId, UserId};
use strata_types::index_settings::IndexSettings;
use strata_types::secret::Secret;
use strata_types::source::SourceFormat;
use strata_types::user::User;
use strata_types::version::{DatasetVersion, VersionNumber};

use crate::refresh::decoding::RefreshCounters;
use crate::refresh::error::RefreshError;
use crate::refresh::ingest::{DecodedEntities, IngestService, SourceDocument};
use crate::refresh::version_file::WrittenFile;
use crate::refresh::{RefreshInput, RefreshService, RefreshedVersion, log_warnings, unexpected_not_modified};

#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// A local path, `-` for standard input, or a URL with the scheme `http`, `https`, `s3` or `store`.
    pub source: String,
    /// The name of the dataset, which is created if the owner has no such dataset.
    pub name: String,
    pub owner_email: String,
    /// The description of a new or existing dataset. Missing values leave an existing description unchanged.
    pub about: DatasetMetadata,
    pub private: bool,
    /// The format of the source; `None` detects it.
    pub format: Option<SourceFormat>,
    /// The path of the array of entities in a JSON document.
    pub records_path: Option<FieldPath>,
    /// If true, `_source` includes the URL's query string. If false, the setting of an existing dataset applies.
    pub publish_query: bool,
    /// If true, csv and tsv cells get types, and other formats are rejected. If false, the dataset's setting applies.
    pub infer_types: bool,
}

#[derive(Clone, Debug)]
pub struct ImportedVersion {
    pub dataset_id: DatasetId,
    pub name_slug: String,
    pub version: VersionNumber,
    pub entity_count: u64,
    pub private_key: Option<Secret>,
    pub warnings: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("there is no user {0}; to add a user, run `strata user add`")]
    OwnerNotFound(String),
    #[error("--name: {0}")]
    InvalidName(#[from] InvalidDatasetName),
    #[error("the dataset already exists and is public; --private applies only to new datasets")]
    NotPrivate,
    #[error("--{field}: {problem}")]
    InvalidField { field: &'static str, problem: String },
    #[error("the owner's plan allows at most {limit} active datasets")]
    PlanLimit { limit: u64 },
    #[error(transparent)]
    Refresh(#[from] RefreshError),
}

impl From<CatalogError> for ImportError {
    fn from(error: CatalogError) -> ImportError {
        match error {
            CatalogError::TooManyDatasets { limit } => ImportError::PlanLimit { limit },
            other => ImportError::Refresh(other.into()),
        }
    }
}

impl From<SourceError> for ImportError {
    fn from(error: SourceError) -> ImportError {
        ImportError::Refresh(error.into())
    }
}

impl RefreshService {
    /// Imports a source as a version. Creates a missing dataset. The work continues if the future is dropped.
    pub async fn import(
        self: &Arc<Self>,
        request: ImportRequest,
        progress: Arc<RefreshCounters>,
    ) -> Result<ImportedVersion, ImportError> {
        let refreshes = self.clone();
        self.tasks.run(async move { Ok(refreshes.run_import(&request, &progress).await) }).await?
    }

    async fn run_import(
        &self,
        request: &ImportRequest,
        progress: &Arc<RefreshCounters>,
    ) -> Result<ImportedVersion, ImportError> {
        let owner = self.catalog.user_by_email(&request.owner_email).await?;
        let owner = owner.ok_or_else(|| ImportError::OwnerNotFound(request.owner_email.clone()))?;
        let name: DatasetName = request.name.parse()?;
        let DatasetMetadata { description, license, listed } = &request.about;
        if let Some((field, problem)) = DatasetMetadata::invalid_field(description.as_deref(), license.as_deref()) {
            return Err(ImportError::InvalidField { field, problem });
        }
        let started_at = self.catalog.now();
        let Some(dataset) = self.catalog.dataset_by_name(owner.id, &name).await? else {
            let created = tokio::select! {
                written = self.write_new_file(owner.id, request, progress) => {
                    let (file, warnings) = written?;
                    self.publish_new_dataset(&owner, name, request, file, warnings, started_at).await
                }
                () = self.tasks.wait_for_stop() => Err(RefreshError::Stopping.into()),
            };
            self.attempts.lookups.notify_catalog_change();
            return created;
        };
        if request.private && !dataset.is_private() {
            return Err(ImportError::NotPrivate);
        }
        if dataset.frozen {
            return Err(RefreshError::Frozen.into());
        }
        let entities = RefreshInput::Imported(Box::new(request.clone()));
        let RefreshedVersion { record, mut warnings } =
            self.create_version(dataset.id, RefreshTrigger::Import, entities, progress).await?;
        let change = DatasetChange {
            description: description.clone().map(Some),
            licence: license.clone().map(Some),
            listed: listed.then_some(true),
            ..DatasetChange::default()
        };
        if request.about != DatasetMetadata::default() {
            self.catalog.update_dataset(dataset.id, &change).await?;
            self.attempts.lookups.notify_catalog_change();
        }
        warnings.extend(source_mismatch_warning(&dataset.source, &request.source));
        Ok(imported_version(dataset, &record.version, warnings))
    }

    async fn write_new_file(
        &self,
        owner: UserId,
        request: &ImportRequest,
        progress: &Arc<RefreshCounters>,
    ) -> Result<(WrittenFile, Vec<String>), RefreshError> {
        let permit = self.ingest.acquire_permit(owner).await?;
        let document = self.ingest.open_import_source(owner, request, TypeInference::Off).await?;
        let DecodedEntities { spooled, warnings, .. } = self.ingest.decode(document, None, &permit, progress).await?;
        let reserved = self.files.reserve_path().await?;
        let file = reserved.write_version(spooled, None, IndexSettings::default(), &permit, progress).await?;
        Ok((file, warnings))
    }

    async fn publish_new_dataset(
        &self,
        owner: &User,
        name: DatasetName,
        request: &ImportRequest,
        file: WrittenFile,
        warnings: Vec<String>,
        started_at: DateTime<Utc>,
    ) -> Result<ImportedVersion, ImportError> {
        let is_url = is_url(&request.source);
        let new = NewDataset {
            owner: owner.id,
            name,
            metadata: request.about.clone(),
            private_key: request.private.then(|| Secret::new_private_key(rand::random())),
            source: if is_url { DatasetSource::Url(request.source.clone()) } else { DatasetSource::Push },
            format: request.format,
            records_path: request.records_path.as_ref().map(ToString::to_string),
            publish_query: request.publish_query,
            infer_types: request.infer_types,
            // Only a URL gets a schedule, because a schedule cannot fetch a local file again.
            schedule: is_url.then(|| DEFAULT_CRON_SCHEDULE.to_owned()),
            index: IndexSettings::default(),
            checks: None,
            ping_token: Secret::new_ping_token(rand::random()),
        };
        let limit = self.ingest.config.plans.max_active_datasets(owner.plan);
        let new_file = file.new.clone();
        let attempt = FirstAttempt { trigger: RefreshTrigger::Import, started_at, warnings: &warnings };
        let creating = self.catalog.create_dataset_with_version(&new, limit, attempt, &new_file);
        let (dataset, published) = file.record_in_catalog(creating).await?;
        log_warnings(dataset.id, &warnings);
        Ok(imported_version(dataset, &published.version, warnings))
    }
}

impl IngestService {
    /// Opens the source of an import. The dataset's `default_inference` applies if the request does not infer types.
    pub(crate) async fn open_import_source(
        &self,
        owner: UserId,
        request: &ImportRequest,
        default_inference: TypeInference,
    ) -> Result<SourceDocument, RefreshError> {
        let (input, fetched_from) = match local_path(&request.source) {
            Some(path) => (SourceInput::open_file(&path)?, None),
            None => match self.source_client(owner).open(&request.source, None).await? {
                FetchOutcome::Document(fetched) => {
                    let url = fetched.published_url(UrlQuery::from_publish_query(request.publish_query));
                    (fetched.input, Some(url))
                }
                FetchOutcome::NotModified(_) => return Err(unexpected_not_modified().into()),
            },
        };
        Ok(SourceDocument {
            format: request.format,
            records_path: request.records_path.clone(),
            infer_types: if request.infer_types { TypeInference::TablesOnly } else { default_inference },
            fetched_from,
            disk_reservation: self.spool_quota.reservation_for_user(owner),
            ..SourceDocument::new(input)
        })
    }
}

const STDIN_SOURCE: &str = "-";

/// Returns the path of a local source, which is a path, a `file:` URL, or `-` for standard input.
pub fn local_path(source: &str) -> Option<PathBuf> {
    if source == STDIN_SOURCE {
        return Some(PathBuf::from("/dev/stdin"));
    }
    let from_url = url::Url::parse(source).ok().filter(|url| url.scheme() == "file");
    match from_url.and_then(|url| url.to_file_path().ok()) {
        None => (!is_url(source)).then(|| PathBuf::from(source)),
        path => path,
    }
}

/// Returns a warning if the source of the dataset differs from the imported source.
fn source_mismatch_warning(dataset_source: &DatasetSource, imported: &str) -> Option<String> {
    let description = match dataset_source {
        DatasetSource::Url(url) if url == imported => return None,
        DatasetSource::Push if !is_url(imported) => return None,
        DatasetSource::Url(_) => "another URL, which the next refresh will fetch",
        DatasetSource::Push => "push, so strata does not fetch this URL again",
    };
    Some(format!("The dataset keeps its source: {description}. To change the source, use POST /dataset/update."))
}

fn is_url(source: &str) -> bool {
    let scheme = source.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https" | "s3" | "store"))
}

fn imported_version(dataset: Dataset, version: &DatasetVersion, warnings: Vec<String>) -> ImportedVersion {
    ImportedVersion {
        dataset_id: dataset.id,
        name_slug: dataset.name.slug().to_owned(),
        version: version.number,
        entity_count: version.file.entity_count,
        private_key: dataset.private_key,
        warnings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_mentions_other_source() {
        let url = |text: &str| DatasetSource::Url(text.to_owned());
        for (dataset_source, imported, expected) in [
            (url("https://a.test/x"), "https://a.test/x", None),
            (url("https://a.test/x"), "https://a.test/y", Some("another URL")),
            (url("https://a.test/x"), "file.json", Some("another URL")),
            (DatasetSource::Push, "file.json", None),
            (DatasetSource::Push, "https://a.test/x", Some("push")),
        ] {
            let warning = source_mismatch_warning(&dataset_source, imported);
            assert_eq!(warning.is_some(), expected.is_some(), "{imported}");
            assert!(warning.unwrap_or_default().contains(expected.unwrap_or_default()), "{imported}");
        }
    }
}
