//! Loads the datasets of `data-fixtures` for a demo user.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use strata_catalog::CatalogError;
use strata_types::dataset::{Dataset, DatasetMetadata, DatasetName};
use strata_types::field_path::FieldPath;
use strata_types::ids::DatasetId;
use strata_types::secret::Secret;
use strata_types::token_scope::TokenScope;
use strata_types::user::UserPlan;
use strata_types::version::VersionNumber;

use crate::{
    AccountError, AccountService, ImportError, ImportRequest, ImportedVersion, ManageError, RefreshCounters,
    RefreshService,
};

/// The owner of the demo's datasets. [`DemoService::reset_credentials`] sets a random password.
pub const DEMO_OWNER_EMAIL: &str = "demo@strata.test";

#[derive(Clone, Copy, Debug)]
pub struct DemoExample {
    pub answers: &'static str,
    /// The query string of the example, including the question mark. Spaces are written as `+`.
    pub query: &'static str,
}

/// Returns example queries for a demo dataset; no queries if `slug` belongs to another dataset.
pub fn demo_examples(slug: &str) -> &'static [DemoExample] {
    static EXAMPLES: LazyLock<HashMap<String, Vec<DemoExample>>> = LazyLock::new(|| {
        let manifest: DemoManifest =
            toml::from_str(include_str!("../../data-fixtures/manifest.toml")).unwrap_or_default();
        let examples = manifest.dataset.into_iter().filter_map(|ManifestDataset { name, examples, .. }| {
            let name: DatasetName = name.parse().ok()?;
            // The texts of the examples are leaked, because the process needs them until it exits.
            let leaked =
                |example: ManifestExample| DemoExample { answers: example.answers.leak(), query: example.query.leak() };
            Some((name.slug().to_owned(), examples.into_iter().map(leaked).collect()))
        });
        examples.collect()
    });
    EXAMPLES.get(slug).map_or(&[], Vec::as_slice)
}

const DEMO_TOKEN_NAME: &str = "demo";

#[derive(Clone, Debug)]
pub struct DemoCredentials {
    pub password: Secret,
    pub token: Secret,
}

#[derive(Clone, Debug)]
pub struct DemoDataset {
    pub dataset_id: DatasetId,
    pub name_slug: String,
    pub version: VersionNumber,
    pub private_key: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("{}", path.display())]
    Manifest { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the metadata database has datasets other than the demo's; omit --demo, or set another --data directory")]
    Occupied,
    #[error("failed to set up the demo user")]
    Owner(#[from] AccountError),
    #[error("failed to import the dataset {name}")]
    Import { name: String, source: ImportError },
    #[error("failed to create the demo user's token")]
    Token(#[from] ManageError),
    #[error("{0}")]
    Catalog(#[from] CatalogError),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DemoManifest {
    dataset: Vec<ManifestDataset>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestDataset {
    name: String,
    file: PathBuf,
    format: Option<String>,
    records_path: Option<String>,
    #[serde(default)]
    private: bool,
    description: Option<String>,
    licence: Option<String>,
    #[serde(default)]
    listed: bool,
    #[serde(default)]
    examples: Vec<ManifestExample>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestExample {
    answers: String,
    query: String,
}

pub struct DemoService {
    pub(crate) accounts: Arc<AccountService>,
    pub(crate) refreshes: Arc<RefreshService>,
}

impl DemoService {
    /// Returns the example queries of the demo datasets in `datasets`, with their indexes in `datasets`.
    pub async fn find_examples(
        &self,
        datasets: &[&Dataset],
    ) -> Result<Vec<(usize, &'static [DemoExample])>, ManageError> {
        let by_name = datasets.iter().map(|dataset| demo_examples(dataset.name.slug())).enumerate();
        let by_name: Vec<_> = by_name.filter(|(_, examples)| !examples.is_empty()).collect();
        if by_name.is_empty() {
            return Ok(by_name);
        }
        let owner = self.accounts.catalog.user_by_email(DEMO_OWNER_EMAIL).await?.map(|owner| owner.id);
        Ok(by_name.into_iter().filter(|(index, _)| Some(datasets[*index].owner) == owner).collect())
    }

    /// Fails if the catalog contains datasets but not the demo user.
    pub async fn check_can_load_demo(&self) -> Result<(), DemoError> {
        if self.accounts.catalog.user_by_email(DEMO_OWNER_EMAIL).await?.is_none()
            && self.accounts.catalog.has_datasets().await?
        {
            return Err(DemoError::Occupied);
        }
        Ok(())
    }

    /// Loads the datasets of `manifest.toml` in the directory `fixtures`, in order. Existing datasets are not changed.
    pub async fn load(&self, fixtures: &Path) -> Result<Vec<DemoDataset>, DemoError> {
        let manifest = fixtures.join("manifest.toml");
        let invalid =
            |source: Box<dyn std::error::Error + Send + Sync>| DemoError::Manifest { path: manifest.clone(), source };
        let text = tokio::fs::read_to_string(&manifest).await.map_err(|error| invalid(error.into()))?;
        let entries: DemoManifest = toml::from_str(&text).map_err(|error| invalid(error.into()))?;
        if self.accounts.catalog.user_by_email(DEMO_OWNER_EMAIL).await?.is_none() {
            let password = hex::encode(rand::random::<[u8; 32]>());
            self.accounts.add_user(DEMO_OWNER_EMAIL, &password, UserPlan::Scale, None).await?;
        }
        let mut loaded = Vec::new();
        for entry in entries.dataset {
            let request = import_request(fixtures, entry).map_err(invalid)?;
            loaded.push(self.import_if_missing(request).await?);
        }
        Ok(loaded)
    }

    /// Replaces the password and the API token of the demo user, who must exist.
    pub async fn reset_credentials(&self) -> Result<DemoCredentials, DemoError> {
        let password = hex::encode(rand::random::<[u8; 12]>());
        self.accounts.set_password(DEMO_OWNER_EMAIL, &password).await?;
        let missing = || AccountError::UserNotFound(DEMO_OWNER_EMAIL.to_owned());
        let owner = self.accounts.catalog.user_by_email(DEMO_OWNER_EMAIL).await?.ok_or_else(missing)?;
        match self.accounts.delete_token(&owner, DEMO_TOKEN_NAME).await {
            Ok(()) | Err(ManageError::TokenNotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let (token, _) = self.accounts.create_token(&owner, DEMO_TOKEN_NAME, TokenScope::Write, None).await?;
        Ok(DemoCredentials { password: Secret::from_stored(password), token })
    }

    async fn import_if_missing(&self, request: ImportRequest) -> Result<DemoDataset, DemoError> {
        let name = request.name.clone();
        let failed = |source: ImportError| DemoError::Import { name: name.clone(), source };
        let parsed: DatasetName = name.parse().map_err(|error| failed(ImportError::InvalidName(error)))?;
        if let Some(owner) = self.accounts.catalog.user_by_email(DEMO_OWNER_EMAIL).await?
            && let Some(dataset) = self.accounts.catalog.dataset_by_name(owner.id, &parsed).await?
            && let Some(version) = dataset.latest_version
        {
            let name_slug = dataset.name.slug().to_owned();
            return Ok(DemoDataset { dataset_id: dataset.id, name_slug, version, private_key: dataset.private_key });
        }
        let imported = self.refreshes.import(request, Arc::new(RefreshCounters::default())).await.map_err(failed)?;
        let ImportedVersion { dataset_id, name_slug, version, private_key, .. } = imported;
        Ok(DemoDataset { dataset_id, name_slug, version, private_key })
    }
}

fn import_request(
    fixtures: &Path,
    entry: ManifestDataset,
) -> Result<ImportRequest, Box<dyn std::error::Error + Send + Sync>> {
    let _: DatasetName = entry.name.parse()?;
    Ok(ImportRequest {
        source: fixtures.join(&entry.file).to_string_lossy().into_owned(),
        name: entry.name,
        about: DatasetMetadata { description: entry.description, license: entry.licence, listed: entry.listed },
        owner_email: DEMO_OWNER_EMAIL.to_owned(),
        private: entry.private,
        format: entry.format.as_deref().map(str::parse).transpose()?,
        records_path: entry.records_path.as_deref().map(FieldPath::parse).transpose()?,
        publish_query: false,
        infer_types: false,
    })
}
