//! `strata check`: verifies that the catalog is intact, and that every recorded file exists and is unchanged.

use clap::Args;
use serde_json::{Value, json};
use strata_catalog::FileReference;
use strata_service::{CheckDepth, Checked, Finding, OnDamage, Services};

use super::error::CliError;
use super::progress::ProgressDisplay;
use super::signals::or_interrupted;
use super::{format_bytes, format_size, json_line, print, print_summary, print_unless_failed};

/// Verify the metadata database and every recorded file
///
/// Runs the database's integrity check, reads every record and every file in full, and compares the files with their
/// records. Prints one line for each finding, and then a summary. Exits with status 1 if anything is damaged.
///
/// Files without a record are listed but do not count as damage, because they are either still being written or will be
/// removed by a sweep. If no version needs a file, the file does not count as damage when it is missing, or when it is
/// an edited file with a damaged base.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Check only file sizes and footers, and do not compare the database's indexes with its tables
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The JSON of a version that needs a file.
pub(super) fn version(reference: &FileReference) -> Value {
    json!({
        "dataset_id": reference.dataset.get(),
        "name": reference.dataset_name,
        "version": reference.version.get(),
        "alt": reference.alt,
    })
}

/// Checks everything, and fails at the end if there is damage.
pub(super) async fn run(services: &Services, Arguments { quick, json }: Arguments) -> Result<(), CliError> {
    let depth = if quick { CheckDepth::Footers } else { CheckDepth::Everything };
    let mut printed = Ok(());
    let mut tell = |finding: &Finding| print_unless_failed(&mut printed, || print(&line(finding, json)?));
    let checked = or_interrupted(services.maintenance.check(depth, &mut tell)).await??;
    printed?;
    let Checked { files, bytes, damaged, unnamed } = checked;
    let sum = json!({ "files": files, "bytes": bytes, "damaged": damaged, "unnamed": unnamed });
    let size = format_size(files, bytes);
    print_summary(json, &sum, format!("checked {size}: {damaged} damaged, {unnamed} unnamed\n"))?;
    if damaged == 0 { Ok(()) } else { Err(CliError::Damaged { damaged }) }
}

/// Runs work on the files of a backup with a progress bar, until a signal ends it. If `keep_going`, prints a line for
/// each damaged file, and continues.
pub(super) async fn with_findings<T>(
    doing: &str,
    keep_going: bool,
    json: bool,
    work: impl AsyncFnOnce(&ProgressDisplay, OnDamage<'_>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let display = ProgressDisplay::for_files(doing);
    let mut printed = Ok(());
    let mut tell = |finding: &Finding| print_unless_failed(&mut printed, || display.print(&line(finding, json)?));
    let damaged = if keep_going { OnDamage::GoOn(&mut tell) } else { OnDamage::End };
    let outcome = or_interrupted(work(&display, damaged)).await??;
    drop(display);
    printed?;
    Ok(outcome)
}

fn line(finding: &Finding, json: bool) -> Result<String, CliError> {
    if json {
        let (kind, path, reason, size_bytes) = match finding {
            Finding::Damaged { path, reason, .. } => ("damaged", Some(path), Some(reason.as_str()), None),
            Finding::Store { reason } => ("store", None, Some(reason.as_str()), None),
            Finding::Catalog { reason } => ("catalog", None, Some(reason.as_str()), None),
            Finding::Dangling(_) => ("dangling", None, Some("there is no record of its file"), None),
            Finding::Unneeded { path, reason } => ("unneeded", Some(path), Some(reason.as_str()), None),
            Finding::Unnamed { path, size_bytes } => ("unnamed", Some(path), None, Some(*size_bytes)),
        };
        let versions = match finding {
            Finding::Damaged { versions, .. } => versions.as_deref().unwrap_or_default(),
            Finding::Dangling(reference) => std::slice::from_ref(reference),
            _ => &[],
        };
        let versions: Vec<Value> = versions.iter().map(version).collect();
        return json_line(&json!({
            "finding": kind, "path": path, "reason": reason, "size_bytes": size_bytes, "versions": versions,
        }));
    }
    Ok(match finding {
        Finding::Damaged { path, reason, versions } => {
            format!("damaged {path}: {reason} ({})\n", needed_by(versions.as_deref()))
        }
        Finding::Store { reason } => format!("damaged store: {reason}\n"),
        Finding::Catalog { reason } => format!("damaged metadata database: {reason}\n"),
        Finding::Dangling(reference) => format!("damaged {reference}: there is no record of its file\n"),
        Finding::Unneeded { path, reason } => {
            format!("unneeded {path}: {reason}; no version needs this file, and a sweep will clean up\n")
        }
        Finding::Unnamed { path, size_bytes } => {
            let size = format_bytes(*size_bytes);
            format!("unnamed {path} ({size}; a sweep will remove it when it is old enough)\n")
        }
    })
}

/// The text about the versions that need a damaged file.
pub(super) fn needed_by(versions: Option<&[FileReference]>) -> String {
    match versions {
        None => "the versions that need it are unknown".to_owned(),
        Some([]) => "no version needs it, and a sweep will remove it".to_owned(),
        Some(versions) => versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
