//! Imports a source as a new version of a dataset.
//!
//! An existing dataset is refreshed (`refresh`). For a new one, the version file is written first, and then one
//! transaction records dataset and version. A failed import leaves no version, no dataset and no file.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use strata_catalog::{CatalogError, FirstAttempt};
use strata_ingest::{InferTypes, Opened, SourceError, SourceInput};
use strata_types::dataset::{
    About, DEFAULT_SCHEDULE, Dataset, DatasetChange, DatasetName, DatasetSource, InvalidDatasetName, NewDataset,
    RefreshTrigger,
};
use strata_types::ids::{DatasetId, UserId};
use strata_types::index::IndexSettings;
use strata_types::path::Path as FieldPath;
use strata_types::secret::Secret;
use strata_types::source::SourceFormat;
use strata_types::user::User;
use strata_types::version::{Version, VersionNumber};

use crate::refresh::decoding::ImportProgress;
use crate::refresh::error::RefreshError;
use crate::refresh::ingest::{Decoded, Document, Ingest};
use crate::refresh::version_file::WrittenFile;
use crate::refresh::{Entities, Refreshed, Refreshes, log_warnings, not_asked};

#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// A path of a local file, `-` for standard input, or the URL of a source: http, https, s3 or store.
    pub source: String,
    /// The name of the dataset, which is created unless the owner has it.
    pub name: String,
    pub owner_email: String,
    /// The description of a new or existing dataset. Missing values change nothing.
    pub about: About,
    pub private: bool,
    /// The source's format; `None` detects it.
    pub format: Option<SourceFormat>,
    /// The path of the array of entities in a JSON document.
    pub records_path: Option<FieldPath>,
    /// Whether the `_source` of entities includes the URL's query string. Also the setting of a new dataset. If
    /// `false`, the setting of an existing dataset decides.
    pub publish_query: bool,
    /// Whether csv and tsv cells become numbers, booleans and nulls; other formats are refused then. Also the setting
    /// of a new dataset. If `false`, the setting of an existing dataset decides.
    pub infer_types: bool,
}

#[derive(Clone, Debug)]
pub struct Imported {
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
    NoOwner(String),
    #[error("--name: {0}")]
    Name(#[from] InvalidDatasetName),
    #[error("the dataset already exists and is public; --private applies only to new datasets")]
    NotPrivate,
    #[error("--{field}: {problem}")]
    About { field: &'static str, problem: String },
    #[error("the owner's plan allows at most {limit} active datasets")]
    PlanLimit { limit: u64 },
    #[error(transparent)]
    Refresh(#[from] RefreshError),
}

impl From<CatalogError> for ImportError {
    fn from(error: CatalogError) -> ImportError {
        match error {
            CatalogError::PlanLimit { limit } => ImportError::PlanLimit { limit },
            other => ImportError::Refresh(other.into()),
        }
    }
}

impl From<SourceError> for ImportError {
    fn from(error: SourceError) -> ImportError {
        ImportError::Refresh(error.into())
    }
}

impl Refreshes {
    /// Creates a version of the owner's dataset with this name, and the dataset if it does not exist. Only
    /// [`Refreshes::finish`] cancels it. A failed refresh of an existing dataset is recorded with its reason.
    pub async fn import(
        self: &Arc<Self>,
        request: ImportRequest,
        progress: Arc<ImportProgress>,
    ) -> Result<Imported, ImportError> {
        let refreshes = self.clone();
        self.tasks.run(async move { Ok(refreshes.import_now(&request, &progress).await) }).await?
    }

    async fn import_now(
        &self,
        request: &ImportRequest,
        progress: &Arc<ImportProgress>,
    ) -> Result<Imported, ImportError> {
        let owner = self.catalog.user_by_email(&request.owner_email).await?;
        let owner = owner.ok_or_else(|| ImportError::NoOwner(request.owner_email.clone()))?;
        let name: DatasetName = request.name.parse()?;
        let About { description, licence, .. } = &request.about;
        if let Some((field, problem)) = About::problem(description.as_deref(), licence.as_deref()) {
            return Err(ImportError::About { field, problem });
        }
        let started_at = self.catalog.now();
        let Some(dataset) = self.catalog.dataset_by_name(owner.id, &name).await? else {
            let created = tokio::select! {
                written = self.new_file(owner.id, request, progress) => {
                    let (file, warnings) = written?;
                    self.publish_new(&owner, name, request, file, warnings, started_at).await
                }
                () = self.tasks.stopped() => Err(RefreshError::Stopping.into()),
            };
            self.attempts.lookups.catalog_changed();
            return created;
        };
        if request.private && !dataset.is_private() {
            return Err(ImportError::NotPrivate);
        }
        if dataset.frozen {
            return Err(RefreshError::Frozen.into());
        }
        let entities = Entities::Imported(Box::new(request.clone()));
        let Refreshed { record, mut warnings } =
            self.make_version(dataset.id, RefreshTrigger::Import, entities, progress).await?;
        let About { description, licence, listed } = &request.about;
        let change = DatasetChange {
            description: description.clone().map(Some),
            licence: licence.clone().map(Some),
            listed: listed.then_some(true),
            ..DatasetChange::default()
        };
        if request.about != About::default() {
            self.catalog.update_dataset(dataset.id, &change).await?;
            self.attempts.lookups.catalog_changed();
        }
        warnings.extend(source_kept(&dataset.source, &request.source));
        Ok(imported(dataset, &record.version, warnings))
    }

    async fn new_file(
        &self,
        owner: UserId,
        request: &ImportRequest,
        progress: &Arc<ImportProgress>,
    ) -> Result<(WrittenFile, Vec<String>), RefreshError> {
        let permit = self.ingest.permit(owner).await?;
        let document = self.ingest.open_import(owner, request, InferTypes::No).await?;
        let Decoded { spooled, warnings, .. } = self.ingest.decode(document, &permit, progress).await?;
        let file = self.files.reserve().await?.write(spooled, IndexSettings::default(), &permit, progress).await?;
        Ok((file, warnings))
    }

    async fn publish_new(
        &self,
        owner: &User,
        name: DatasetName,
        request: &ImportRequest,
        file: WrittenFile,
        warnings: Vec<String>,
        started_at: DateTime<Utc>,
    ) -> Result<Imported, ImportError> {
        let url = is_url(&request.source);
        let new = NewDataset {
            owner: owner.id,
            name,
            about: request.about.clone(),
            private_key: request.private.then(|| Secret::private_key(rand::random())),
            source: if url { DatasetSource::Url(request.source.clone()) } else { DatasetSource::Push },
            format: request.format,
            records_path: request.records_path.as_ref().map(ToString::to_string),
            publish_query: request.publish_query,
            infer_types: request.infer_types,
            // A schedule cannot fetch a file again.
            schedule: url.then(|| DEFAULT_SCHEDULE.to_owned()),
            index: IndexSettings::default(),
            ping_token: Secret::ping_token(rand::random()),
        };
        let limit = self.ingest.config.plans.active_datasets(owner.plan);
        let new_file = file.new.clone();
        let attempt = FirstAttempt { trigger: RefreshTrigger::Import, started_at, warnings: &warnings };
        let creating = self.catalog.create_dataset_with_version(&new, limit, attempt, &new_file);
        let (dataset, published) = file.record(creating).await?;
        log_warnings(dataset.id, &warnings);
        Ok(imported(dataset, &published.version, warnings))
    }
}

impl Ingest {
    /// Opens the source. `of_dataset` is the setting of the dataset, for requests without one.
    pub(crate) async fn open_import(
        &self,
        owner: UserId,
        request: &ImportRequest,
        of_dataset: InferTypes,
    ) -> Result<Document, RefreshError> {
        let (input, fetched_from) = match local_path(&request.source) {
            Some(path) => (SourceInput::open_file(&path)?, None),
            None => match self.source_client(owner).open(&request.source, None).await? {
                Opened::Document(fetched) => {
                    let url = fetched.published_url(request.publish_query);
                    (fetched.input, Some(url))
                }
                Opened::NotModified(_) => return Err(not_asked().into()),
            },
        };
        Ok(Document {
            format: request.format,
            records_path: request.records_path.clone(),
            infer_types: if request.infer_types { InferTypes::TablesOnly } else { of_dataset },
            fetched_from,
            charge: self.budget.charge(owner.get()),
            ..Document::new(input)
        })
    }
}

const STANDARD_INPUT: &str = "-";

/// The file of a local source: a path, a `file:` URL, or `-` for standard input.
pub fn local_path(source: &str) -> Option<PathBuf> {
    if source == STANDARD_INPUT {
        return Some(PathBuf::from("/dev/stdin"));
    }
    let from_url = url::Url::parse(source).ok().filter(|url| url.scheme() == "file");
    match from_url.and_then(|url| url.to_file_path().ok()) {
        None => (!is_url(source)).then(|| PathBuf::from(source)),
        path => path,
    }
}

/// The warning if the dataset keeps another source than the imported one.
fn source_kept(kept: &DatasetSource, imported: &str) -> Option<String> {
    let kept = match kept {
        DatasetSource::Url(url) if url == imported => return None,
        DatasetSource::Push if !is_url(imported) => return None,
        DatasetSource::Url(_) => "another URL, which the next refresh will fetch",
        DatasetSource::Push => "push, so strata does not fetch this URL again",
    };
    Some(format!("The dataset keeps its source: {kept}. To change the source, use POST /dataset/update."))
}

fn is_url(source: &str) -> bool {
    let scheme = source.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https" | "s3" | "store"))
}

fn imported(dataset: Dataset, version: &Version, warnings: Vec<String>) -> Imported {
    Imported {
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
        for (kept, imported, told) in [
            (url("https://a.test/x"), "https://a.test/x", None),
            (url("https://a.test/x"), "https://a.test/y", Some("another URL")),
            (url("https://a.test/x"), "file.json", Some("another URL")),
            (DatasetSource::Push, "file.json", None),
            (DatasetSource::Push, "https://a.test/x", Some("push")),
        ] {
            let sentence = source_kept(&kept, imported);
            assert_eq!(sentence.is_some(), told.is_some(), "{imported}");
            assert!(sentence.unwrap_or_default().contains(told.unwrap_or_default()), "{imported}");
        }
    }
}
