//! `strata check`: verifies the metadata database and every recorded file.

use clap::Args;
use serde_json::{Value, json};
use strata_catalog::FileReference;
use strata_service::{CheckDepth, CheckFinding, CheckSummary, OnDamage, Services};
use strata_types::dataset::Dataset;
use strata_types::version::{DatasetVersion, VersionNumber};

use super::error::CliError;
use super::progress::ProgressDisplay;
use super::signals::run_until_signal;
use super::table::PAGE_ROWS;
use super::{format_bytes, format_size, print_stdout, print_summary, print_unless_failed, to_json_line};

/// Verify the metadata database and every recorded file
///
/// Runs the database's integrity check, reads every record and every file in full, and compares the files with their
/// records. Prints one line for each finding, and then a summary. Exits with status 1 if anything is damaged.
///
/// Files without a record are listed but do not count as damage, because they are either still being written or will be
/// removed by a sweep. If no version needs a file, the file does not count as damage when it is missing, or when it is
/// a delta file with a damaged base.
#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// Check only file sizes and footers, and do not compare the database's indexes with its tables
    #[arg(long)]
    quick: bool,
    /// If nothing is damaged, also print the content_sha256 of each version: the SHA-256 of its entities as JSON Lines
    #[arg(long)]
    digests: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) fn file_reference_json(reference: &FileReference) -> Value {
    json!({
        "dataset_id": reference.dataset.get(),
        "name": reference.dataset_name,
        "version": reference.version.get(),
        "alt": reference.alt,
    })
}

pub(super) async fn run(
    services: &Services,
    CheckArguments { quick, digests, json }: CheckArguments,
) -> Result<(), CliError> {
    let depth = if quick { CheckDepth::Footers } else { CheckDepth::Everything };
    let mut printed = Ok(());
    let mut report =
        |finding: &CheckFinding| print_unless_failed(&mut printed, || print_stdout(&format_finding(finding, json)?));
    let checked = run_until_signal(services.maintenance.check_integrity(depth, &mut report)).await??;
    printed?;
    let CheckSummary { files, bytes, damaged, unrecorded } = checked;
    if digests && damaged == 0 {
        print_digests(services, json).await?;
    }
    let sum = json!({ "files": files, "bytes": bytes, "damaged": damaged, "unnamed": unrecorded });
    let size = format_size(files, bytes);
    print_summary(json, &sum, format!("checked {size}: {damaged} damaged, {unrecorded} unnamed\n"))?;
    if damaged == 0 { Ok(()) } else { Err(CliError::Damaged { damaged }) }
}

/// Prints one line for each version, in the order of datasets and versions.
async fn print_digests(services: &Services, json: bool) -> Result<(), CliError> {
    let mut after = None;
    loop {
        let datasets = services.datasets.list_all(after, PAGE_ROWS).await?;
        for dataset in &datasets {
            let mut next = 1;
            loop {
                let versions = services.datasets.list_versions(dataset.id, VersionNumber::new(next), PAGE_ROWS).await?;
                for version in &versions {
                    print_stdout(&format_digest(dataset, version, json)?)?;
                }
                let Some(last) = versions.last() else { break };
                next = last.number.get() + 1;
            }
        }
        let Some(last) = datasets.last() else { return Ok(()) };
        after = Some(last.id);
    }
}

fn format_digest(dataset: &Dataset, version: &DatasetVersion, json: bool) -> Result<String, CliError> {
    let digest = &version.file.content_hash;
    let number = version.number;
    if json {
        return to_json_line(&json!({
            "dataset_id": dataset.id.get(), "name": dataset.name.to_string(), "version": number.get(),
            "content_sha256": digest,
        }));
    }
    Ok(format!("{digest}  {}/{}/v{number}\n", dataset.id, dataset.name.slug()))
}

/// Runs work with a progress bar, until a signal arrives. With `keep_going`, damaged files do not end the work.
pub(super) async fn run_and_print_findings<T>(
    doing: &str,
    keep_going: bool,
    json: bool,
    work: impl AsyncFnOnce(&ProgressDisplay, OnDamage<'_>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let display = ProgressDisplay::for_files(doing);
    let mut printed = Ok(());
    let mut report =
        |finding: &CheckFinding| print_unless_failed(&mut printed, || display.print(&format_finding(finding, json)?));
    let damaged = if keep_going { OnDamage::Continue(&mut report) } else { OnDamage::Fail };
    let outcome = run_until_signal(work(&display, damaged)).await??;
    drop(display);
    printed?;
    Ok(outcome)
}

fn format_finding(finding: &CheckFinding, json: bool) -> Result<String, CliError> {
    if json {
        let (kind, path, reason, size_bytes) = match finding {
            CheckFinding::Damaged { path, reason, .. } => ("damaged", Some(path), Some(reason.as_str()), None),
            CheckFinding::UnidentifiedStore { reason } => ("store", None, Some(reason.as_str()), None),
            CheckFinding::DamagedCatalog { reason } => ("catalog", None, Some(reason.as_str()), None),
            CheckFinding::DanglingReference(_) => ("dangling", None, Some("there is no record of its file"), None),
            CheckFinding::Unneeded { path, reason } => ("unneeded", Some(path), Some(reason.as_str()), None),
            CheckFinding::UnrecordedFile { path, size_bytes } => ("unnamed", Some(path), None, Some(*size_bytes)),
        };
        let versions = match finding {
            CheckFinding::Damaged { versions, .. } => versions.as_deref().unwrap_or_default(),
            CheckFinding::DanglingReference(reference) => std::slice::from_ref(reference),
            _ => &[],
        };
        let versions: Vec<Value> = versions.iter().map(file_reference_json).collect();
        return to_json_line(&json!({
            "finding": kind, "path": path, "reason": reason, "size_bytes": size_bytes, "versions": versions,
        }));
    }
    Ok(match finding {
        CheckFinding::Damaged { path, reason, versions } => {
            format!("damaged {path}: {reason} ({})\n", describe_dependent_versions(versions.as_deref()))
        }
        CheckFinding::UnidentifiedStore { reason } => format!("damaged store: {reason}\n"),
        CheckFinding::DamagedCatalog { reason } => format!("damaged metadata database: {reason}\n"),
        CheckFinding::DanglingReference(reference) => format!("damaged {reference}: there is no record of its file\n"),
        CheckFinding::Unneeded { path, reason } => {
            format!("unneeded {path}: {reason}; no version needs this file, and a sweep will clean up\n")
        }
        CheckFinding::UnrecordedFile { path, size_bytes } => {
            let size = format_bytes(*size_bytes);
            format!("unnamed {path} ({size}; a sweep will remove it when it is old enough)\n")
        }
    })
}

pub(super) fn describe_dependent_versions(versions: Option<&[FileReference]>) -> String {
    match versions {
        None => "the versions that need it are unknown".to_owned(),
        Some([]) => "no version needs it, and a sweep will remove it".to_owned(),
        Some(versions) => versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
