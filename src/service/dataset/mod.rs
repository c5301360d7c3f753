//! The datasets of owners: creates and changes them, and the states of their versions.

pub(crate) mod agent_edits;
pub(crate) mod alternate_edits;
pub(crate) mod alternates;
pub(crate) mod clones;
pub(crate) mod diffs;
pub(crate) mod profile;

use std::sync::Arc;

use strata_catalog::{Attempt, Catalog, CatalogError, DatasetView, Listing};
use strata_query::Engine;
use strata_types::dataset::{
    About, DEFAULT_SCHEDULE, Dataset, DatasetChange, DatasetName, DatasetSource, NewDataset, Visibility,
};
use strata_types::ids::{AttemptId, DatasetId};
use strata_types::limits::{LISTINGS_QUERY_CHARACTERS, RECORDS_PATH_BYTES, URL_BYTES};
use strata_types::path::Path as FieldPath;
use strata_types::secret::Secret;
use strata_types::user::User;
use strata_types::version::VersionNumber;

use crate::manage::{ManageError, OwnerWrites};
use crate::{Client, Refreshes};

const SHOWN_ATTEMPTS: u32 = 10;

#[derive(Clone, Debug)]
pub struct OwnedDataset {
    pub dataset: Dataset,
    pub last_attempts: Vec<Attempt>,
}

/// The visibility, with a key in case the dataset was public.
pub fn visibility(private: bool) -> Visibility {
    match private {
        true => Visibility::Private { new_key: Secret::private_key(rand::random()) },
        false => Visibility::Public,
    }
}

fn is_owner(user: Option<&User>, dataset: &Dataset) -> bool {
    user.is_some_and(|user| user.id == dataset.owner)
}

pub struct Datasets {
    pub(crate) catalog: Catalog,
    pub(crate) writes: Arc<OwnerWrites>,
    pub(crate) refreshes: Arc<Refreshes>,
    pub(crate) engine: Engine,
}

impl Datasets {
    /// The datasets of all owners with ids greater than `after`, by id, at most `limit`, for the operator.
    pub async fn all(&self, after: Option<DatasetId>, limit: u32) -> Result<Vec<Dataset>, ManageError> {
        Ok(self.catalog.datasets(after, limit).await?)
    }

    /// The size of the active version's file; `None` if there is no active version, or its record is damaged.
    pub async fn active_file_bytes(&self, dataset: &Dataset) -> Result<Option<u64>, ManageError> {
        let Some(number) = dataset.active_version() else { return Ok(None) };
        match self.catalog.version(dataset.id, number).await {
            Ok(record) => Ok(Some(record.version.file.size_bytes)),
            // The rest of the list helps to find the damage.
            Err(CatalogError::Unverified { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a dataset. By default it is public, pushed by its owner, and on the nightly schedule.
    pub async fn create(
        &self,
        owner: &User,
        name: DatasetName,
        settings: DatasetChange,
    ) -> Result<OwnedDataset, ManageError> {
        self.check_settings(owner, &settings).await?;
        let new = NewDataset {
            owner: owner.id,
            name,
            about: About {
                description: settings.description.flatten(),
                licence: settings.licence.flatten(),
                listed: settings.listed.unwrap_or(false),
            },
            private_key: match settings.visibility {
                Some(Visibility::Private { new_key }) => Some(new_key),
                Some(Visibility::Public) | None => None,
            },
            source: settings.source.unwrap_or(DatasetSource::Push),
            format: settings.format.flatten(),
            records_path: settings.records_path.flatten(),
            publish_query: settings.publish_query.unwrap_or(false),
            infer_types: settings.infer_types.unwrap_or(false),
            schedule: settings.schedule.unwrap_or_else(|| Some(DEFAULT_SCHEDULE.to_owned())),
            index: settings.index.unwrap_or_default(),
            ping_token: Secret::ping_token(rand::random()),
        };
        let limit = self.refreshes.ingest.config.plans.active_datasets(owner.plan);
        let dataset = self.writes.run(owner.id, self.catalog.create_dataset(&new, limit)).await?;
        Ok(OwnedDataset { dataset, last_attempts: Vec::new() })
    }

    pub async fn update(
        &self,
        owner: &User,
        id: DatasetId,
        change: DatasetChange,
    ) -> Result<OwnedDataset, ManageError> {
        self.check_settings(owner, &change).await?;
        self.change(owner, id, self.catalog.update_dataset(id, &change)).await
    }

    pub async fn delete(&self, owner: &User, id: DatasetId) -> Result<(), ManageError> {
        self.catalog.owned_dataset(owner.id, id).await?;
        self.writes.run(owner.id, self.catalog.delete_dataset(id)).await
    }

    /// The owner's datasets with ids greater than `after`, by id, at most `limit`. A look-up for each of them.
    pub async fn list(
        &self,
        owner: &User,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<OwnedDataset>, ManageError> {
        let mut datasets = Vec::new();
        for dataset in self.list_bare(owner, after, limit).await? {
            datasets.push(self.with_attempts(dataset).await?);
        }
        Ok(datasets)
    }

    /// The same without their attempts. One look-up.
    pub async fn list_bare(
        &self,
        owner: &User,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<Dataset>, ManageError> {
        Ok(self.catalog.datasets_of(owner.id, after, limit).await?)
    }

    /// How many datasets a user has, and how many of them are not frozen. One look-up.
    pub async fn count(&self, owner: &User) -> Result<(u64, u64), ManageError> {
        Ok(self.catalog.count_datasets(owner.id).await?)
    }

    /// A dataset of a user, without its versions. One look-up.
    pub async fn owned(&self, owner: &User, id: DatasetId) -> Result<Dataset, ManageError> {
        Ok(self.catalog.owned_dataset(owner.id, id).await?)
    }

    /// A dataset with its versions and its last attempts, as of one moment.
    pub async fn view(&self, owner: &User, id: DatasetId) -> Result<DatasetView, ManageError> {
        // First, because the time of the query would show others that the dataset exists.
        self.catalog.owned_dataset(owner.id, id).await?;
        self.catalog.dataset_view(id).await?.ok_or(ManageError::DatasetNotFound)
    }

    /// A dataset that is public, frozen or not, or the user's, with one look-up in the client's turn.
    pub async fn visible(
        &self,
        user: Option<&User>,
        client: Client,
        id: DatasetId,
    ) -> Result<Option<Dataset>, ManageError> {
        let _permit = self.writes.gates.look_up(client).await?;
        let dataset = self.catalog.dataset(id).await?;
        Ok(dataset.filter(|dataset| is_owner(user, dataset) || !dataset.is_private()))
    }

    /// A dataset with its versions, and for its owner with the attempts; `None` if it is no longer visible.
    pub async fn with_versions(
        &self,
        user: Option<&User>,
        client: Client,
        dataset: &Dataset,
    ) -> Result<Option<DatasetView>, ManageError> {
        let _permit = self.writes.gates.look_up(client).await?;
        let Some(mut view) = self.catalog.dataset_view(dataset.id).await? else { return Ok(None) };
        if is_owner(user, &view.dataset) {
            return Ok(Some(view));
        }
        view.last_attempts.clear();
        Ok((!view.dataset.is_private()).then_some(view))
    }

    /// The newest attempts to refresh a dataset that are older than `before`, at most `limit`.
    pub async fn attempts(
        &self,
        owner: &User,
        id: DatasetId,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<Attempt>, ManageError> {
        self.catalog.owned_dataset(owner.id, id).await?;
        Ok(self.catalog.attempts(id, before, limit).await?)
    }

    /// Replaces the key of a private dataset. The old key stops working immediately.
    pub async fn rotate_key(&self, owner: &User, id: DatasetId) -> Result<OwnedDataset, ManageError> {
        let new_key = Secret::private_key(rand::random());
        let rotated = self.change(owner, id, self.catalog.rotate_key(id, &new_key)).await;
        rotated.map_err(|error| match error {
            ManageError::Stale => ManageError::Public,
            other => other,
        })
    }

    /// Replaces the token of the ping URL. The old URL stops working immediately.
    pub async fn rotate_ping(&self, owner: &User, id: DatasetId) -> Result<OwnedDataset, ManageError> {
        let new_token = Secret::ping_token(rand::random());
        self.change(owner, id, self.catalog.rotate_ping_token(id, &new_token)).await
    }

    /// Pins the active version, and freezes the dataset if `freeze`.
    pub async fn rollback(
        &self,
        owner: &User,
        id: DatasetId,
        version: VersionNumber,
        freeze: bool,
    ) -> Result<OwnedDataset, ManageError> {
        let latest = self.catalog.owned_dataset(owner.id, id).await?.latest_version;
        let rolled_back = self.writes.run(owner.id, self.catalog.rollback(id, version, freeze)).await;
        let dataset = rolled_back.map_err(|error| error.naming(version, latest))?;
        self.with_attempts(dataset).await
    }

    /// Makes the active version follow the newest version again.
    pub async fn unpin(&self, owner: &User, id: DatasetId) -> Result<OwnedDataset, ManageError> {
        self.change(owner, id, self.catalog.unpin(id)).await
    }

    /// Allows refreshes and reads of the dataset again. A pin stays.
    pub async fn unfreeze(&self, owner: &User, id: DatasetId) -> Result<OwnedDataset, ManageError> {
        let limit = self.refreshes.ingest.config.plans.active_datasets(owner.plan);
        self.change(owner, id, self.catalog.unfreeze(id, limit)).await
    }

    pub fn check_listing_query(query: Option<&str>) -> Result<(), ManageError> {
        let invalid = |problem| Err(ManageError::Invalid { field: "q", problem });
        match query {
            Some(query) if query.chars().nth(LISTINGS_QUERY_CHARACTERS).is_some() => {
                invalid(format!("it is longer than {LISTINGS_QUERY_CHARACTERS} characters"))
            }
            // No name contains one, and PostgreSQL rejects it.
            Some(query) if query.contains('\0') => invalid("it must not contain the character U+0000".to_owned()),
            _ => Ok(()),
        }
    }

    /// The listed datasets with ids greater than `after`, by id, at most `limit`; with `query` those whose name or
    /// description holds it, case-insensitively. One statement, in the client's turn.
    pub async fn listed(
        &self,
        client: Client,
        query: Option<&str>,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<Listing>, ManageError> {
        Datasets::check_listing_query(query)?;
        let _permit = self.writes.gates.look_up(client).await?;
        Ok(self.catalog.listings(query, after, limit).await?)
    }

    async fn change(
        &self,
        owner: &User,
        id: DatasetId,
        change: impl Future<Output = Result<Dataset, CatalogError>>,
    ) -> Result<OwnedDataset, ManageError> {
        self.catalog.owned_dataset(owner.id, id).await?;
        let dataset = self.writes.run(owner.id, change).await?;
        self.with_attempts(dataset).await
    }

    async fn with_attempts(&self, dataset: Dataset) -> Result<OwnedDataset, ManageError> {
        let last_attempts = self.catalog.attempts(dataset.id, None, SHOWN_ATTEMPTS).await?;
        Ok(OwnedDataset { dataset, last_attempts })
    }

    /// Checks settings independently of the dataset, and looks up the host name of the source.
    async fn check_settings(&self, owner: &User, settings: &DatasetChange) -> Result<(), ManageError> {
        let invalid = |field, problem: String| Err(ManageError::Invalid { field, problem });
        let description = settings.description.as_ref().and_then(Option::as_deref);
        let licence = settings.licence.as_ref().and_then(Option::as_deref);
        if let Some((field, problem)) = About::problem(description, licence) {
            return invalid(field, problem);
        }
        if let Some(Some(path)) = &settings.records_path {
            if path.len() > RECORDS_PATH_BYTES {
                return invalid("records_path", format!("it is longer than {RECORDS_PATH_BYTES} bytes"));
            }
            if let Err(error) = FieldPath::parse(path) {
                return invalid("records_path", error.to_string());
            }
        }
        let Some(DatasetSource::Url(url)) = &settings.source else { return Ok(()) };
        if url.len() > URL_BYTES {
            return invalid("source", format!("it is longer than {URL_BYTES} bytes"));
        }
        match self.refreshes.ingest.source_client(owner.id).check(url).await {
            Ok(()) => Ok(()),
            Err(error) => invalid("source", format!("{error}; to send the entities yourself, use push")),
        }
    }
}
