//! The fixtures, loaded for a demo owner.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use strata_catalog::CatalogError;
use strata_types::dataset::{About, Dataset, DatasetName};
use strata_types::ids::DatasetId;
use strata_types::path::Path as FieldPath;
use strata_types::scope::Scope;
use strata_types::secret::Secret;
use strata_types::user::Plan;
use strata_types::version::VersionNumber;

use crate::{AccountError, Accounts, ImportError, ImportProgress, ImportRequest, Imported, ManageError, Refreshes};

/// The owner of the demo's datasets. [`Demo::credentials`] creates a password that is shown.
pub const DEMO_OWNER: &str = "demo@strata.test";

#[derive(Clone, Copy, Debug)]
pub struct DemoExample {
    pub answers: &'static str,
    /// The query string, with the question mark. Spaces are written `+`, so it is one word.
    pub query: &'static str,
}

/// Example queries for the demo's dataset with this slug; none for another dataset.
pub fn demo_examples(slug: &str) -> &'static [DemoExample] {
    static EXAMPLES: LazyLock<HashMap<String, Vec<DemoExample>>> = LazyLock::new(|| {
        let manifest: Manifest = toml::from_str(include_str!("../../data-fixtures/manifest.toml")).unwrap_or_default();
        let examples = manifest.dataset.into_iter().filter_map(|Entry { name, examples, .. }| {
            let name: DatasetName = name.parse().ok()?;
            // The process needs the texts until its end.
            let leaked =
                |example: ExampleEntry| DemoExample { answers: example.answers.leak(), query: example.query.leak() };
            Some((name.slug().to_owned(), examples.into_iter().map(leaked).collect()))
        });
        examples.collect()
    });
    EXAMPLES.get(slug).map_or(&[], Vec::as_slice)
}

const DEMO_TOKEN: &str = "demo";

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
struct Manifest {
    dataset: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
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
    examples: Vec<ExampleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExampleEntry {
    answers: String,
    query: String,
}

pub struct Demo {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) refreshes: Arc<Refreshes>,
}

impl Demo {
    /// The example queries for demo datasets among these, with their indexes in the list. One look-up at most.
    pub async fn examples(&self, datasets: &[&Dataset]) -> Result<Vec<(usize, &'static [DemoExample])>, ManageError> {
        let named = datasets.iter().map(|dataset| demo_examples(dataset.name.slug())).enumerate();
        let named: Vec<_> = named.filter(|(_, examples)| !examples.is_empty()).collect();
        if named.is_empty() {
            return Ok(named);
        }
        let owner = self.accounts.catalog.user_by_email(DEMO_OWNER).await?.map(|owner| owner.id);
        Ok(named.into_iter().filter(|(at, _)| Some(datasets[*at].owner) == owner).collect())
    }

    /// Fails if there are datasets, and the demo was not loaded before.
    pub async fn check(&self) -> Result<(), DemoError> {
        if self.accounts.catalog.user_by_email(DEMO_OWNER).await?.is_none()
            && self.accounts.catalog.has_datasets().await?
        {
            return Err(DemoError::Occupied);
        }
        Ok(())
    }

    /// Loads the datasets of `fixtures/manifest.toml` in their order. Existing datasets stay as they are.
    pub async fn load(&self, fixtures: &Path) -> Result<Vec<DemoDataset>, DemoError> {
        let manifest = fixtures.join("manifest.toml");
        let wrong =
            |source: Box<dyn std::error::Error + Send + Sync>| DemoError::Manifest { path: manifest.clone(), source };
        let text = tokio::fs::read_to_string(&manifest).await.map_err(|error| wrong(error.into()))?;
        let entries: Manifest = toml::from_str(&text).map_err(|error| wrong(error.into()))?;
        if self.accounts.catalog.user_by_email(DEMO_OWNER).await?.is_none() {
            let password = hex::encode(rand::random::<[u8; 32]>());
            self.accounts.add_user(DEMO_OWNER, &password, Plan::Scale, None).await?;
        }
        let mut loaded = Vec::new();
        for entry in entries.dataset {
            let request = request(fixtures, entry).map_err(wrong)?;
            loaded.push(self.load_entry(request).await?);
        }
        Ok(loaded)
    }

    /// Gives the demo's owner, who must exist, another password and another API token.
    pub async fn credentials(&self) -> Result<DemoCredentials, DemoError> {
        let password = hex::encode(rand::random::<[u8; 12]>());
        self.accounts.set_password(DEMO_OWNER, &password).await?;
        let missing = || AccountError::NoUser(DEMO_OWNER.to_owned());
        let owner = self.accounts.catalog.user_by_email(DEMO_OWNER).await?.ok_or_else(missing)?;
        match self.accounts.delete_token(&owner, DEMO_TOKEN).await {
            Ok(()) | Err(ManageError::TokenNotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let (token, _) = self.accounts.create_token(&owner, DEMO_TOKEN, Scope::Write, None).await?;
        Ok(DemoCredentials { password: Secret::from_stored(password), token })
    }

    async fn load_entry(&self, request: ImportRequest) -> Result<DemoDataset, DemoError> {
        let name = request.name.clone();
        let failed = |source: ImportError| DemoError::Import { name: name.clone(), source };
        let parsed: DatasetName = name.parse().map_err(|error| failed(ImportError::Name(error)))?;
        if let Some(owner) = self.accounts.catalog.user_by_email(DEMO_OWNER).await?
            && let Some(dataset) = self.accounts.catalog.dataset_by_name(owner.id, &parsed).await?
            && let Some(version) = dataset.latest_version
        {
            let name_slug = dataset.name.slug().to_owned();
            return Ok(DemoDataset { dataset_id: dataset.id, name_slug, version, private_key: dataset.private_key });
        }
        let imported = self.refreshes.import(request, Arc::new(ImportProgress::default())).await.map_err(failed)?;
        let Imported { dataset_id, name_slug, version, private_key, .. } = imported;
        Ok(DemoDataset { dataset_id, name_slug, version, private_key })
    }
}

fn request(fixtures: &Path, entry: Entry) -> Result<ImportRequest, Box<dyn std::error::Error + Send + Sync>> {
    let _: DatasetName = entry.name.parse()?;
    Ok(ImportRequest {
        source: fixtures.join(&entry.file).to_string_lossy().into_owned(),
        name: entry.name,
        about: About { description: entry.description, licence: entry.licence, listed: entry.listed },
        owner_email: DEMO_OWNER.to_owned(),
        private: entry.private,
        format: entry.format.as_deref().map(str::parse).transpose()?,
        records_path: entry.records_path.as_deref().map(FieldPath::parse).transpose()?,
        publish_query: false,
        infer_types: false,
    })
}
