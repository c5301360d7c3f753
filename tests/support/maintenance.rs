//! Checks and backups of a service, as the commands `check` and `backup` make them.

use std::path::Path;

use strata_service::{BackedUp, BackupError, BackupFiles, CheckDepth, CheckError, Finding as ServiceFinding, OnDamage};

use crate::service::TestService;

/// How much of the version files a check reads.
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

/// A finding of a check. Text that a kind does not have is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub path: String,
    pub reason: String,
    /// The versions that need the file, as the command prints them.
    pub versions: Vec<String>,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct CheckReport {
    pub files: u64,
    pub damaged: u64,
    pub unnamed: u64,
    pub findings: Vec<Finding>,
}

/// How a backup gets the version files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupKind {
    Copied,
    /// As hard links where that is possible.
    Linked,
}

impl TestService {
    pub async fn check(&self, depth: Depth) -> CheckReport {
        self.try_check(depth).await.expect("checked")
    }

    pub async fn try_check(&self, depth: Depth) -> Result<CheckReport, CheckError> {
        let depth = match depth {
            Depth::Footers => CheckDepth::Footers,
            Depth::Everything => CheckDepth::Everything,
        };
        let mut findings = Vec::new();
        let mut tell = |finding: &ServiceFinding| findings.push(described(finding));
        let checked = self.services.maintenance.check(depth, &mut tell).await?;
        Ok(CheckReport { files: checked.files, damaged: checked.damaged, unnamed: checked.unnamed, findings })
    }

    /// Makes a backup, which ends at the first file that is damaged.
    pub async fn backup(&self, directory: &Path, kind: BackupKind) -> Result<BackedUp, BackupError> {
        self.backup_with_progress(directory, kind, |_| {}).await
    }

    /// Like [`TestService::backup`]. After each file, `tell` gets the number of files so far.
    pub async fn backup_with_progress(
        &self,
        directory: &Path,
        kind: BackupKind,
        mut tell: impl FnMut(u64) + Send,
    ) -> Result<BackedUp, BackupError> {
        let files = match kind {
            BackupKind::Copied => BackupFiles::Copied,
            BackupKind::Linked => BackupFiles::LinkedWherePossible,
        };
        let mut tell = |so_far: &BackedUp| tell(so_far.files);
        self.services.maintenance.backup(directory, files, OnDamage::End, &mut tell).await
    }
}

fn described(finding: &ServiceFinding) -> Finding {
    let (kind, path, reason, versions) = match finding.clone() {
        ServiceFinding::Damaged { path, reason, versions } => {
            let versions = versions.iter().flatten().map(ToString::to_string).collect();
            (FindingKind::Damaged, path, reason, versions)
        }
        ServiceFinding::Store { reason } => (FindingKind::Store, String::new(), reason, Vec::new()),
        ServiceFinding::Catalog { reason } => (FindingKind::Catalog, String::new(), reason, Vec::new()),
        ServiceFinding::Dangling(reference) => {
            (FindingKind::Dangling, String::new(), String::new(), vec![reference.to_string()])
        }
        ServiceFinding::Unneeded { path, reason } => (FindingKind::Unneeded, path, reason, Vec::new()),
        ServiceFinding::Unnamed { path, .. } => (FindingKind::Unnamed, path, String::new(), Vec::new()),
    };
    Finding { kind, path, reason, versions }
}
