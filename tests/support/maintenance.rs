//! Checks and backups of a service, with the results of the commands `check` and `backup`.

use std::path::Path;

use strata_service::{BackupCopyMode, BackupError, BackupSummary, CheckDepth, CheckError, CheckFinding, OnDamage};

use crate::service::TestService;

/// The part of the version files that a check reads.
#[derive(Clone, Copy, Debug)]
pub enum Depth {
    Footers,
    Everything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    Damaged,
    Store,
    Catalog,
    Dangling,
    Unneeded,
    Unnamed,
}

/// A finding of a check. Fields that do not apply are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingRecord {
    pub kind: FindingKind,
    pub path: String,
    pub reason: String,
    /// The versions that need the file, as the command prints them.
    pub versions: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct CheckReport {
    pub files: u64,
    pub damaged: u64,
    pub unnamed: u64,
    pub findings: Vec<FindingRecord>,
}

impl TestService {
    pub async fn check(&self, depth: Depth) -> CheckReport {
        self.try_check(depth).await.expect("failed to check")
    }

    pub async fn try_check(&self, depth: Depth) -> Result<CheckReport, CheckError> {
        let depth = match depth {
            Depth::Footers => CheckDepth::Footers,
            Depth::Everything => CheckDepth::Everything,
        };
        let mut findings = Vec::new();
        let mut tell = |finding: &CheckFinding| findings.push(described(finding));
        let checked = self.services.maintenance.check_integrity(depth, &mut tell).await?;
        Ok(CheckReport { files: checked.files, damaged: checked.damaged, unnamed: checked.unrecorded, findings })
    }

    /// Creates a backup, which fails at the first damaged file.
    pub async fn backup(&self, directory: &Path, copy_mode: BackupCopyMode) -> Result<BackupSummary, BackupError> {
        self.backup_with_progress(directory, copy_mode, |_| {}).await
    }

    /// Like [`TestService::backup`], but calls `tell` with the number of files after each file.
    pub async fn backup_with_progress(
        &self,
        directory: &Path,
        copy_mode: BackupCopyMode,
        mut tell: impl FnMut(u64) + Send,
    ) -> Result<BackupSummary, BackupError> {
        let mut tell = |so_far: &BackupSummary| tell(so_far.files);
        self.services.maintenance.backup(directory, copy_mode, OnDamage::Fail, &mut tell).await
    }
}

fn described(finding: &CheckFinding) -> FindingRecord {
    let (kind, path, reason, versions) = match finding.clone() {
        CheckFinding::Damaged { path, reason, versions } => {
            let versions = versions.iter().flatten().map(ToString::to_string).collect();
            (FindingKind::Damaged, path, reason, versions)
        }
        CheckFinding::UnidentifiedStore { reason } => (FindingKind::Store, String::new(), reason, Vec::new()),
        CheckFinding::DamagedCatalog { reason } => (FindingKind::Catalog, String::new(), reason, Vec::new()),
        CheckFinding::DanglingReference(reference) => {
            (FindingKind::Dangling, String::new(), String::new(), vec![reference.to_string()])
        }
        CheckFinding::Unneeded { path, reason } => (FindingKind::Unneeded, path, reason, Vec::new()),
        CheckFinding::UnrecordedFile { path, .. } => (FindingKind::Unnamed, path, String::new(), Vec::new()),
    };
    FindingRecord { kind, path, reason, versions }
}
