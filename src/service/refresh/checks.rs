//! Runs the checks of a dataset on a new list of entities, before it becomes a version, and on the active version.
//!
//! The checks of a refresh run while the entities are decoded. They run later if the dataset is known only after
//! decoding, or if the source has not changed, because the checks may have changed since the last refresh. The keys of
//! `unique` are sorted at the end, on a thread of their own.

use std::ops::ControlFlow;

use strata_catalog::RefreshLease;
use strata_checks::{ActiveVersion, CheckReport, CheckRun, CheckSettings, InvalidChecks};
use strata_format::reader::VersionReader;
use strata_format::spool::FinishedSpool;
use strata_query::fetch::selected_documents::{for_each_document, selection_chunks};
use strata_query::fetch::selection::SelectedPositions;
use strata_runtime::blocking::run_blocking;
use strata_runtime::priority::ThreadWork;
use strata_store::StorageError;
use strata_types::dataset::Dataset;
use strata_types::ids::UserId;
use strata_types::version::VersionFile;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::refresh::RefreshService;
use crate::refresh::error::{RefreshError, Result};
use crate::refresh::ingest::{DecodedEntities, IngestService, RefreshPermit};
use crate::refresh::tasks::run_on_thread;

/// Parses checks on a blocking thread, because a JSON Schema can take long to compile.
pub(crate) async fn parse_checks(json: String) -> Result<Result<CheckSettings, InvalidChecks>, StorageError> {
    Ok(run_blocking(move || CheckSettings::parse_text(&json)).await?)
}

/// The checks of a refresh that has not decoded its entities yet.
pub(super) struct PendingChecks {
    pub run: CheckRun,
    pub active: Option<ActiveVersion>,
}

/// Checks that have examined all entities, or none of them yet.
pub(crate) enum EntityChecks {
    Unstarted(CheckRun),
    Examined(CheckRun),
}

impl IngestService {
    pub(crate) fn new_check_run(&self, user: UserId, settings: CheckSettings) -> CheckRun {
        CheckRun::new(settings, self.temp_dir.ensured_path(), self.spool_quota.reservation_for_user(user))
    }
}

impl RefreshService {
    /// Returns the checks of a dataset, ready to examine entities.
    pub(super) async fn load_checks(&self, dataset: &Dataset) -> Result<Option<PendingChecks>> {
        let Some(json) = self.catalog.dataset_checks(dataset.id).await? else { return Ok(None) };
        let settings = parse_checks(json).await?.map_err(RefreshError::InvalidChecks)?;
        let active = if settings.needs_active_version() { self.find_active_version(dataset).await? } else { None };
        Ok(Some(PendingChecks { run: self.ingest.new_check_run(dataset.owner, settings), active }))
    }

    async fn find_active_version(&self, dataset: &Dataset) -> Result<Option<ActiveVersion>> {
        let Some(number) = dataset.active_version() else { return Ok(None) };
        let entity_count = self.catalog.version(dataset.id, number).await?.version.file.entity_count;
        Ok(Some(ActiveVersion { number, entity_count }))
    }

    /// Ends the checks of decoded entities, if there are any, and returns the entities if they pass.
    pub(super) async fn finish_checks(
        &self,
        lease: &RefreshLease,
        mut decoded: DecodedEntities,
        active: Option<ActiveVersion>,
        permit: &RefreshPermit,
    ) -> Result<DecodedEntities> {
        let Some(checks) = decoded.checks.take() else { return Ok(decoded) };
        let permit = permit.clone();
        let cancellation = CancellationToken::new();
        let is_cancelled = cancellation.clone();
        let work = move || -> Result<(DecodedEntities, CheckReport)> {
            let _permit = permit;
            let run = match checks {
                EntityChecks::Examined(run) => run,
                EntityChecks::Unstarted(run) => examine_spool(run, &mut decoded.spooled, &is_cancelled)?,
            };
            let sorted = run.sort_keys()?;
            let entities = read_spooled(&mut decoded.spooled, sorted.positions())?;
            Ok((decoded, sorted.into_report(active, &entities)))
        };
        let _guard = cancellation.drop_guard();
        let (decoded, report) = run_on_thread("check", work).await??;
        self.record_checks(lease, report).await?;
        Ok(decoded)
    }

    /// Runs the checks on the file of the previous version, whose source has not changed.
    pub(super) async fn check_unchanged(
        &self,
        lease: &RefreshLease,
        file: &VersionFile,
        PendingChecks { run, active }: PendingChecks,
    ) -> Result<()> {
        let permit = self.ingest.acquire_permit(lease.dataset.owner).await?;
        let reader = self.files.open(file).await?;
        let report = check_version(reader, run, active, permit).await?;
        self.record_checks(lease, report).await
    }

    async fn record_checks(&self, lease: &RefreshLease, report: CheckReport) -> Result<()> {
        let json = (!report.has_passed()).then(|| serde_json::to_string(&report).unwrap_or_default());
        self.catalog.record_check_results(lease.attempt, report.results.len() as u64, json.as_deref()).await?;
        if report.has_passed() { Ok(()) } else { Err(RefreshError::ChecksFailed(report)) }
    }
}

fn examine_spool(mut run: CheckRun, spool: &mut FinishedSpool, cancellation: &CancellationToken) -> Result<CheckRun> {
    let mut work = ThreadWork::default();
    spool.for_each_document(|document| {
        work.record_and_lower_priority(document.len() as u64);
        if cancellation.is_cancelled() {
            return Err(RefreshError::Stopping);
        }
        Ok(run.add_entity(document)?)
    })?;
    Ok(run)
}

/// Reads the entities at `positions`, which are in ascending order.
fn read_spooled(spool: &mut FinishedSpool, positions: &[u64]) -> Result<Vec<Vec<u8>>> {
    let mut entities = Vec::new();
    if positions.is_empty() {
        return Ok(entities);
    }
    let mut position = 0;
    spool.for_each_document(|document| {
        if positions.get(entities.len()) == Some(&position) {
            entities.push(document.to_vec());
        }
        position += 1;
        Ok::<_, RefreshError>(())
    })?;
    Ok(entities)
}

/// Runs checks on a version, on a thread that ends soon after the future is dropped.
pub(crate) async fn check_version(
    reader: VersionReader,
    run: CheckRun,
    active: Option<ActiveVersion>,
    permit: RefreshPermit,
) -> Result<CheckReport> {
    let cancellation = CancellationToken::new();
    let token = cancellation.clone();
    let runtime = Handle::current();
    let work = move || {
        let _permit = permit;
        let checking = examine_version(&reader, run, active);
        runtime.block_on(token.run_until_cancelled(checking)).unwrap_or(Err(RefreshError::Stopping))
    };
    let _guard = cancellation.drop_guard();
    run_on_thread("check", work).await?
}

async fn examine_version(
    reader: &VersionReader,
    mut run: CheckRun,
    active: Option<ActiveVersion>,
) -> Result<CheckReport> {
    let entity_count = reader.entity_count();
    let all = SelectedPositions::Range(0..entity_count);
    let mut work = ThreadWork::default();
    for chunk in selection_chunks(reader, entity_count) {
        let mut outcome = Ok(());
        for_each_document(reader, &all, &chunk, |document| {
            work.record_and_lower_priority(document.len() as u64);
            outcome = run.add_entity(document);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .await?;
        outcome?;
        // The cached documents of a chunk need no wait, during which the work could be cancelled.
        tokio::task::yield_now().await;
    }
    let sorted = run.sort_keys()?;
    let positions = SelectedPositions::List(sorted.positions().to_vec());
    let mut entities = Vec::new();
    for chunk in selection_chunks(reader, sorted.positions().len() as u64) {
        let collect = |document: &[u8]| {
            entities.push(document.to_vec());
            ControlFlow::Continue(())
        };
        for_each_document(reader, &positions, &chunk, collect).await?;
    }
    Ok(sorted.into_report(active, &entities))
}
