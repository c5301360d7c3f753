//! Checks and backups of a service, with the results of the commands `check` and `backup`.

use std::path::Path;

use strata_service::{
    BackupCopyMode, BackupError, BackupSummary, CheckDepth, CheckError, CheckFinding as ServiceFinding, OnDamage,
};

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
pub struct CheckFinding {
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
    pub findings: Vec<CheckFinding>,
}

/// The way in which a backup copies version files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupKind {
    Copied,
    /// Hard links if possible.
    Linked,
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
        let mut tell = |finding: &ServiceFinding| findings.push(described(finding));
        let checked = self.services.maintenance.check_integrity(depth, &mut tell).await?;
        Ok(CheckReport { files: checked.files, damaged: checked.damaged, unnamed: checked.unrecorded, findings })
    }

    /// Creates a backup, which fails at the first damaged file.
    pub async fn backup(&self, directory: &Path, kind: BackupKind) -> Result<BackupSummary, BackupError> {
        self.backup_with_progress(directory, kind, |_| {}).await
    }

    /// Like [`TestService::backup`], but calls `tell` with the number of files after each file.
    pub async fn backup_with_progress(
        &self,
        directory: &Path,
        kind: BackupKind,
        mut tell: impl FnMut(u64) + Send,
    ) -> Result<BackupSummary, BackupError> {
        let files = match kind {
            BackupKind::Copied => BackupCopyMode::AlwaysCopy,
            BackupKind::Linked => BackupCopyMode::LinkIfPossible,
        };
        let mut tell = |so_far: &BackupSummary| tell(so_far.files);
        self.services.maintenance.backup(directory, files, OnDamage::Fail, &mut tell).await
    }
}

fn described(finding: &ServiceFinding) -> CheckFinding {
    let (kind, path, reason, versions) = match finding.clone() {
        ServiceFinding::Damaged { path, reason, versions } => {
            let versions = versions.iter().flatten().map(ToString::to_string).collect();
            (FindingKind::Damaged, path, reason, versions)
        }
        ServiceFinding::UnidentifiedStore { reason } => (FindingKind::Store, String::new(), reason, Vec::new()),
        ServiceFinding::DamagedCatalog { reason } => (FindingKind::Catalog, String::new(), reason, Vec::new()),
        ServiceFinding::DanglingReference(reference) => {
            (FindingKind::Dangling, String::new(), String::new(), vec![reference.to_string()])
        }
        ServiceFinding::Unneeded { path, reason } => (FindingKind::Unneeded, path, reason, Vec::new()),
        ServiceFinding::UnrecordedFile { path, .. } => (FindingKind::Unnamed, path, String::new(), Vec::new()),
    };
    CheckFinding { kind, path, reason, versions }
}
