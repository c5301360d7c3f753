//! Random sequences of operations, compared with a naive model of the metadata database in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use strata_catalog::{Catalog, CatalogError, VersionContent};
use strata_types::dataset::{DatasetChange, DatasetVisibility, NewDatasetClone, RefreshTrigger, RollbackMode};
use strata_types::ids::{DatasetId, UserId};
use strata_types::secret::Secret;
use strata_types::user::UserPlan;
use tokio::runtime::Runtime;

use super::{Database, LEASE, clock, delta_file, name, new_dataset, v};

/// The maximum number of datasets per owner that are not frozen.
const LIMIT: u64 = 3;

/// The numbers of datasets, owners, names, and versions may refer to missing ones. `base` is the position of a recorded
/// file, modulo their number.
#[derive(Clone, Copy, Debug)]
enum CatalogOperation {
    Create { owner: usize, name: usize },
    Hide { dataset: usize, private: bool },
    Refresh { dataset: usize, shared: bool, base: Option<usize> },
    FailRefresh { dataset: usize },
    Crash { dataset: usize },
    Rollback { dataset: usize, version: u64, freeze: bool },
    Unpin { dataset: usize },
    Unfreeze { dataset: usize },
    SaveAlternate { dataset: usize, version: u64, base: Option<usize> },
    DeleteAlternate { dataset: usize, version: u64 },
    ReplaceFile { dataset: usize, version: u64, base: Option<usize> },
    Clone { dataset: usize, owner: usize, name: usize },
    Register { dataset: usize },
    DeleteWebhook { dataset: usize },
    Claim,
    Sweep,
}

fn operation() -> impl Strategy<Value = CatalogOperation> {
    let dataset = || 0..5_usize;
    let version = || 0..4_u64;
    let base = || prop::option::of(0..100_usize);
    prop_oneof![
        2 => (0..2_usize, 0..3_usize).prop_map(|(owner, name)| CatalogOperation::Create { owner, name }),
        1 => (dataset(), any::<bool>()).prop_map(|(dataset, private)| CatalogOperation::Hide { dataset, private }),
        6 => (dataset(), any::<bool>(), base())
            .prop_map(|(dataset, shared, base)| CatalogOperation::Refresh { dataset, shared, base }),
        1 => dataset().prop_map(|dataset| CatalogOperation::FailRefresh { dataset }),
        1 => dataset().prop_map(|dataset| CatalogOperation::Crash { dataset }),
        2 => (dataset(), version(), prop::bool::weighted(0.3))
            .prop_map(|(dataset, version, freeze)| CatalogOperation::Rollback { dataset, version, freeze }),
        1 => dataset().prop_map(|dataset| CatalogOperation::Unpin { dataset }),
        1 => dataset().prop_map(|dataset| CatalogOperation::Unfreeze { dataset }),
        4 => (dataset(), version(), base())
            .prop_map(|(dataset, version, base)| CatalogOperation::SaveAlternate { dataset, version, base }),
        2 => (dataset(), version(), base())
            .prop_map(|(dataset, version, base)| CatalogOperation::ReplaceFile { dataset, version, base }),
        3 => (dataset(), version())
            .prop_map(|(dataset, version)| CatalogOperation::DeleteAlternate { dataset, version }),
        3 => (dataset(), 0..2_usize, 0..6_usize)
            .prop_map(|(dataset, owner, name)| CatalogOperation::Clone { dataset, owner, name }),
        2 => dataset().prop_map(|dataset| CatalogOperation::Register { dataset }),
        1 => dataset().prop_map(|dataset| CatalogOperation::DeleteWebhook { dataset }),
        2 => Just(CatalogOperation::Claim),
        2 => Just(CatalogOperation::Sweep),
    ]
}

#[derive(Default)]
struct CatalogModel {
    datasets: Vec<ModelDataset>,
    /// The due deliveries, oldest first: dataset and version.
    due: Vec<(usize, u64)>,
    /// The recorded files, and whether each has a reference.
    files: BTreeMap<String, bool>,
    /// The recorded files that have a base.
    bases: BTreeMap<String, String>,
}

struct ModelDataset {
    owner: usize,
    name: usize,
    private: bool,
    /// The paths of each version's file and alternate.
    versions: Vec<(String, Option<String>)>,
    pinned: Option<u64>,
    frozen: bool,
    webhook: Option<usize>,
    attempts: Vec<&'static str>,
}

type ModelOutcome = Result<(), &'static str>;

impl CatalogModel {
    /// Applies `operation`. A new file is named after `step`.
    fn apply(&mut self, operation: CatalogOperation, step: usize) -> ModelOutcome {
        let path = format!("file {step}");
        match operation {
            CatalogOperation::Create { owner, name } => self.create(owner, name, false, Vec::new())?,
            CatalogOperation::Hide { dataset, private } => self.dataset(dataset)?.private = private,
            CatalogOperation::Refresh { dataset: index, shared, base } => {
                let base = self.base(base);
                let dataset = self.dataset(index)?;
                if dataset.frozen {
                    return Err("Frozen");
                }
                let file = match dataset.versions.last() {
                    Some((file, _)) if shared => file.clone(),
                    _ => path,
                };
                dataset.versions.push((file.clone(), None));
                dataset.attempts.push("published");
                let number = dataset.versions.len() as u64;
                let has_webhook = dataset.webhook.is_some();
                if self.files.insert(file.clone(), true).is_none() {
                    self.bases.extend(base.map(|base| (file, base)));
                }
                self.mark();
                if has_webhook {
                    self.due.push((index, number));
                }
            }
            CatalogOperation::FailRefresh { dataset } | CatalogOperation::Crash { dataset } => {
                let dataset = self.dataset(dataset)?;
                if dataset.frozen {
                    return Err("Frozen");
                }
                dataset.attempts.push("failed");
            }
            CatalogOperation::Rollback { dataset, version, freeze } => {
                self.version(dataset, version)?;
                let dataset = self.dataset(dataset)?;
                dataset.pinned = Some(version);
                dataset.frozen |= freeze;
            }
            CatalogOperation::Unpin { dataset } => self.dataset(dataset)?.pinned = None,
            CatalogOperation::Unfreeze { dataset } => {
                let target = self.dataset(dataset)?;
                if !target.frozen {
                    return Err("NotFrozen");
                }
                let owner = target.owner;
                self.check_limit(owner)?;
                self.dataset(dataset)?.frozen = false;
            }
            CatalogOperation::SaveAlternate { dataset, version, base } => {
                let base = self.base(base);
                self.version(dataset, version)?.1 = Some(path.clone());
                self.bases.extend(base.map(|base| (path.clone(), base)));
                self.files.insert(path, true);
                self.mark();
            }
            CatalogOperation::ReplaceFile { dataset, version, base } => {
                let base = self.base(base);
                self.version(dataset, version)?.0 = path.clone();
                self.bases.extend(base.map(|base| (path.clone(), base)));
                self.files.insert(path, true);
                self.mark();
            }
            CatalogOperation::DeleteAlternate { dataset, version } => {
                self.version(dataset, version)?.1.take().ok_or("NoAlternate")?;
                self.mark();
            }
            CatalogOperation::Clone { dataset, owner, name } => {
                let source = self.dataset(dataset)?;
                if source.private && source.owner != owner {
                    return Err("NotFound");
                }
                if source.frozen {
                    return Err("Frozen");
                }
                let latest = source.versions.last().cloned().ok_or("NoVersion")?;
                let private = source.private;
                self.create(owner, name, private, vec![latest])?;
            }
            CatalogOperation::Register { dataset } => self.dataset(dataset)?.webhook = Some(step),
            CatalogOperation::DeleteWebhook { dataset: index } => {
                self.dataset(index)?.webhook.take().ok_or("NoWebhook")?;
                self.due.retain(|(dataset, _)| *dataset != index);
            }
            // `Subject::apply` compares the claim.
            CatalogOperation::Claim => {}
            CatalogOperation::Sweep => {
                self.files.retain(|_, referenced| *referenced);
                let CatalogModel { files, bases, .. } = self;
                bases.retain(|file, _| files.contains_key(file));
                self.mark();
            }
        }
        Ok(())
    }

    fn create(
        &mut self,
        owner: usize,
        name: usize,
        private: bool,
        versions: Vec<(String, Option<String>)>,
    ) -> ModelOutcome {
        if self.datasets.iter().any(|dataset| dataset.owner == owner && dataset.name == name) {
            return Err("NameTaken");
        }
        self.check_limit(owner)?;
        self.datasets.push(ModelDataset {
            owner,
            name,
            private,
            versions,
            pinned: None,
            frozen: false,
            webhook: None,
            attempts: Vec::new(),
        });
        Ok(())
    }

    fn check_limit(&self, owner: usize) -> ModelOutcome {
        let active = self.datasets.iter().filter(|dataset| dataset.owner == owner && !dataset.frozen).count();
        if active as u64 >= LIMIT { Err("TooManyDatasets") } else { Ok(()) }
    }

    fn dataset(&mut self, index: usize) -> Result<&mut ModelDataset, &'static str> {
        self.datasets.get_mut(index).ok_or("NotFound")
    }

    fn version(&mut self, index: usize, number: u64) -> Result<&mut (String, Option<String>), &'static str> {
        let position = usize::try_from(number).unwrap().checked_sub(1);
        let versions = &mut self.dataset(index)?.versions;
        position.and_then(|position| versions.get_mut(position)).ok_or("NoVersion")
    }

    /// Returns the recorded file at a position, modulo their number.
    fn base(&self, position: Option<usize>) -> Option<String> {
        position.and_then(|position| self.files.keys().nth(position % self.files.len().max(1)).cloned())
    }

    /// Updates the marks of all files with a search through all versions and recorded files.
    fn mark(&mut self) {
        for (path, referenced) in &mut self.files {
            let mut versions = self.datasets.iter().flat_map(|dataset| &dataset.versions);
            *referenced = versions.any(|(file, alt)| file == path || alt.as_ref().is_some_and(|alt| alt == path))
                || self.bases.values().any(|base| base == path);
        }
    }
}

/// The metadata database under test, and the IDs of the model's owners and datasets.
struct Subject {
    catalog: Catalog,
    clock: strata_catalog::CatalogClock,
    owners: Vec<UserId>,
    datasets: Vec<DatasetId>,
}

impl Subject {
    fn id(&self, index: usize) -> DatasetId {
        self.datasets.get(index).copied().unwrap_or(DatasetId::new(1_000_000))
    }

    async fn apply(
        &mut self,
        operation: CatalogOperation,
        step: usize,
        model: &mut CatalogModel,
    ) -> Result<(), CatalogError> {
        let catalog = self.catalog.clone();
        let path = format!("file {step}");
        // Each operation has a different time, so that the due deliveries have an order.
        self.clock.advance(Duration::from_micros(1));
        match operation {
            CatalogOperation::Create { owner, name } => {
                let new = new_dataset(self.owners[owner], &format!("name {name}"));
                self.datasets.push(catalog.create_dataset(&new, LIMIT).await?.id);
            }
            CatalogOperation::Hide { dataset, private } => {
                let visibility = match private {
                    true => DatasetVisibility::Private { new_private_key: Secret::new_private_key(rand::random()) },
                    false => DatasetVisibility::Public,
                };
                let change = DatasetChange { visibility: Some(visibility), ..Default::default() };
                catalog.update_dataset(self.id(dataset), &change).await?;
            }
            CatalogOperation::Refresh { dataset, shared, base } => {
                let lease = catalog.acquire_refresh(self.id(dataset), RefreshTrigger::Manual, &path, LEASE).await?;
                let latest = match lease.dataset.latest_version {
                    Some(number) if shared => Some(catalog.version(lease.dataset.id, number).await?.version.file),
                    _ => None,
                };
                let new = delta_file(&path, model.base(base).as_deref().as_slice());
                let content = match &latest {
                    Some(file) => VersionContent::Shared { file: file.id, content_hash: &file.content_hash },
                    None => VersionContent::New(&new),
                };
                catalog.publish_version(lease.dataset.id, content, None, lease.attempt).await?;
            }
            CatalogOperation::FailRefresh { dataset } => {
                let lease = catalog.acquire_refresh(self.id(dataset), RefreshTrigger::Ping, &path, LEASE).await?;
                catalog.fail_refresh(lease.attempt, "no").await?;
            }
            CatalogOperation::Crash { dataset } => {
                catalog.acquire_refresh(self.id(dataset), RefreshTrigger::Schedule, &path, LEASE).await?;
                self.clock.advance(LEASE);
                assert_eq!(catalog.end_expired_refreshes().await?, 1);
            }
            CatalogOperation::Rollback { dataset, version, freeze } => {
                catalog.rollback(self.id(dataset), v(version), RollbackMode::from_freeze(freeze)).await?;
            }
            CatalogOperation::Unpin { dataset } => drop(catalog.unpin(self.id(dataset)).await?),
            CatalogOperation::Unfreeze { dataset } => drop(catalog.unfreeze(self.id(dataset), LIMIT).await?),
            CatalogOperation::SaveAlternate { dataset, version, base } => {
                catalog.reserve_file(&path, LEASE).await?;
                let new = delta_file(&path, model.base(base).as_deref().as_slice());
                let saved = catalog.save_alternate(self.id(dataset), v(version), &new, None).await;
                catalog.release_file_reservation(&path).await?;
                saved?;
            }
            CatalogOperation::ReplaceFile { dataset, version, base } => {
                // A missing dataset or version is reported before the expected file is compared.
                let old = catalog.version(self.id(dataset), v(version)).await?.version.file;
                catalog.reserve_file(&path, LEASE).await?;
                let new = delta_file(&path, model.base(base).as_deref().as_slice());
                catalog.replace_version_file(self.id(dataset), v(version), old.id, &new).await?;
            }
            CatalogOperation::DeleteAlternate { dataset, version } => {
                catalog.delete_alternate(self.id(dataset), v(version)).await?;
            }
            CatalogOperation::Clone { dataset, owner, name: number } => {
                let clone = NewDatasetClone {
                    source: self.id(dataset),
                    owner: self.owners[owner],
                    name: name(&format!("name {number}")),
                    private_key: Secret::new_private_key(rand::random()),
                    schedule: None,
                    ping_token: Secret::new_ping_token(rand::random()),
                };
                self.datasets.push(catalog.clone_dataset(&clone, LIMIT, None).await?.0.id);
            }
            CatalogOperation::Register { dataset } => {
                catalog.register_webhook(self.id(dataset), &format!("https://{step}.test/"), None).await?;
            }
            CatalogOperation::DeleteWebhook { dataset } => catalog.delete_webhook(self.id(dataset)).await?,
            CatalogOperation::Claim => {
                let expected = (!model.due.is_empty()).then(|| model.due.remove(0));
                let claimed = catalog.claim_webhook_delivery().await?;
                let actual = claimed.as_ref().map(|delivery| (delivery.dataset, delivery.version.get()));
                assert_eq!(actual, expected.map(|(dataset, number)| (self.id(dataset), number)));
                if let (Some(delivery), Some((dataset, _))) = (claimed, expected) {
                    let webhook = model.datasets[dataset].webhook.expect("a due delivery without a webhook");
                    assert_eq!(delivery.url, format!("https://{webhook}.test/"));
                }
            }
            CatalogOperation::Sweep => {
                self.clock.advance(Duration::from_micros(1));
                let files = catalog.unreferenced_files(Duration::ZERO, 1_000).await?;
                let ids: Vec<_> = files.iter().map(|file| file.id).collect();
                assert_eq!(catalog.remove_file_records(&ids, Duration::ZERO).await?, files);
            }
        }
        Ok(())
    }

    async fn compare(&self, model: &CatalogModel) {
        assert_eq!(self.datasets.len(), model.datasets.len());
        for (id, expected) in self.datasets.iter().zip(&model.datasets) {
            let view = self.catalog.dataset_view(*id).await.unwrap().unwrap();
            let active = expected.pinned.unwrap_or(expected.versions.len() as u64);
            let versions: Vec<_> = view
                .versions
                .iter()
                .rev()
                .map(|listed| {
                    let alt = listed.version.alternate.as_ref().map(|alt| alt.path.clone());
                    (listed.version.file.path.clone(), alt)
                })
                .collect();
            assert_eq!(versions, expected.versions);
            for listed in &view.versions {
                assert_eq!(listed.is_active, listed.version.number == v(active));
            }
            assert_eq!(view.dataset.pinned_version, expected.pinned.map(v));
            assert_eq!(view.dataset.frozen, expected.frozen);
            assert_eq!(view.dataset.is_private(), expected.private);
            assert_eq!(view.dataset.owner, self.owners[expected.owner]);
            let webhook = self.catalog.webhook(*id).await.unwrap().map(|webhook| webhook.url);
            assert_eq!(webhook, expected.webhook.map(|step| format!("https://{step}.test/")));
            let attempts: Vec<&str> = view.last_attempts.iter().rev().map(outcome_name).collect();
            let expected = &expected.attempts[expected.attempts.len().saturating_sub(10)..];
            assert_eq!(attempts, expected);
        }
        let files: BTreeMap<String, bool> = self
            .catalog
            .files(None, 1_000)
            .await
            .unwrap()
            .into_iter()
            .map(|recorded| (recorded.file.path, recorded.unreferenced_since.is_none()))
            .collect();
        assert_eq!(files, model.files);
        for path in model.files.keys() {
            let file = self.catalog.file_by_path(path).await.unwrap().unwrap();
            let bases = self.catalog.bases_of_file(file.id).await.unwrap();
            assert_eq!(bases.first().map(|base| &base.path), model.bases.get(path));
        }
    }
}

fn outcome_name(attempt: &strata_catalog::RefreshAttempt) -> &'static str {
    match attempt.outcome {
        None => "running",
        Some(strata_catalog::AttemptOutcome::Published(_)) => "published",
        Some(strata_catalog::AttemptOutcome::Failed { .. }) => "failed",
    }
}

async fn run(database: Database, operations: &[CatalogOperation]) {
    let clock = clock();
    let catalog = database.open().await.with_clock(clock.clone());
    let mut owners = Vec::new();
    for email in ["a@example.test", "b@example.test"] {
        owners.push(catalog.add_user(email, "h", UserPlan::Free).await.unwrap());
    }
    let mut subject = Subject { catalog, clock, owners, datasets: Vec::new() };
    let mut model = CatalogModel::default();
    for (step, operation) in operations.iter().enumerate() {
        let outcome = subject.apply(*operation, step, &mut model).await.map_err(|error| match error {
            CatalogError::TooManyDatasets { limit: LIMIT } => "TooManyDatasets".to_owned(),
            other => format!("{other:?}"),
        });
        let expected = model.apply(*operation, step).map_err(str::to_owned);
        assert_eq!(outcome, expected, "step {step}: {operation:?}");
        subject.compare(&model).await;
    }
}

fn check(cases: u32, database: impl AsyncFn() -> Database) {
    let runtime = Runtime::new().unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&prop::collection::vec(operation(), 1..60), |operations| {
        runtime.block_on(async { run(database().await, &operations).await });
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn sqlite_matches_model() {
    check(16, Database::sqlite);
}

#[test]
fn postgresql_matches_model() {
    // The guard keeps the shared server running.
    let _server = strata_testing::postgres::Postgres::shared();
    check(16, Database::postgres);
}
