//! `strata check`: verifies that the catalog is intact, and that every recorded file exists and is unchanged.

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::error::CliError;
use super::progress::FilesDisplay;
use super::signals::or_interrupted;
use super::{closing, json_line, print};
use crate::catalog::FileReference;
use crate::config::Config;
use crate::service::{App, CheckDepth, Checked, Finding, OnDamage};

/// Verify the catalog and every recorded file
///
/// Runs the check of the catalog's database, reads each of its records, reads all files whole and compares them with
/// the catalog. Prints a line for each finding, and a last line with the sum. Exits with 1 when something is wrong.
/// Files that the catalog does not know are listed, but are no error: they are being written, or the next sweep removes
/// them. So are files that no version names and that are missing, or were edited and have lost their base.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Check only sizes and footers of files, and do not compare the catalog's indexes with its tables
    #[arg(long)]
    quick: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// The line about a finding, in JSON.
#[derive(Default, Serialize)]
struct FindingLine<'a> {
    finding: &'static str,
    path: Option<&'a str>,
    reason: Option<&'a str>,
    size_bytes: Option<u64>,
    versions: Vec<VersionLine<'a>>,
}

/// A version that needs a file.
#[derive(Serialize)]
pub(super) struct VersionLine<'a> {
    dataset_id: u64,
    name: &'a str,
    version: u64,
    alt: bool,
}

impl<'a> From<&'a FileReference> for VersionLine<'a> {
    fn from(reference: &'a FileReference) -> Self {
        VersionLine {
            dataset_id: reference.dataset.get(),
            name: &reference.dataset_name,
            version: reference.version.get(),
            alt: reference.alt,
        }
    }
}

/// Checks once. If there is damage, the command fails after it has checked everything.
pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let app = App::open_existing(&config).await?;
    closing(&app, check(&app, &arguments)).await
}

async fn check(app: &App, arguments: &Arguments) -> Result<(), CliError> {
    let depth = if arguments.quick { CheckDepth::Footers } else { CheckDepth::Everything };
    let mut printed = Ok(());
    let mut tell = |finding: &Finding| {
        if printed.is_ok() {
            printed = line(finding, arguments.json).and_then(|line| print(&line));
        }
    };
    let checked = or_interrupted(app.maintenance().check(depth, &mut tell)).await??;
    printed?;
    let Checked { files, bytes, damaged, unnamed } = checked;
    print(&match arguments.json {
        true => json_line(&json!({ "files": files, "bytes": bytes, "damaged": damaged, "unnamed": unnamed }))?,
        false => format!("{files} files checked, {bytes} bytes: {damaged} damaged; {unnamed} unnamed\n"),
    })?;
    match damaged {
        0 => Ok(()),
        damaged => Err(CliError::Damaged { damaged }),
    }
}

/// Runs work on the files of a backup with a bar, until a signal ends it. If it keeps going on damage, it prints a line
/// for each finding beside the bar, until one cannot be printed.
pub(super) async fn with_findings<T>(
    doing: &str,
    keep_going: bool,
    json: bool,
    work: impl AsyncFnOnce(&FilesDisplay, OnDamage<'_>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let display = FilesDisplay::new(doing);
    let mut printed = Ok(());
    let mut tell = |finding: &Finding| {
        if printed.is_ok() {
            printed = line(finding, json).and_then(|line| display.print(&line));
        }
    };
    let damaged = if keep_going { OnDamage::GoOn(&mut tell) } else { OnDamage::End };
    let outcome = or_interrupted(work(&display, damaged)).await??;
    drop(display);
    printed?;
    Ok(outcome)
}

fn line(finding: &Finding, json: bool) -> Result<String, CliError> {
    if json {
        return json_line(&match finding {
            Finding::Damaged { path, reason, versions } => FindingLine {
                finding: "damaged",
                path: Some(path),
                reason: Some(reason),
                versions: versions.iter().flatten().map(VersionLine::from).collect(),
                ..FindingLine::default()
            },
            Finding::Store { reason } => {
                FindingLine { finding: "store", reason: Some(reason), ..FindingLine::default() }
            }
            Finding::Catalog { reason } => {
                FindingLine { finding: "catalog", reason: Some(reason), ..FindingLine::default() }
            }
            Finding::Dangling(reference) => FindingLine {
                finding: "dangling",
                reason: Some("there is no record of its file"),
                versions: vec![reference.into()],
                ..FindingLine::default()
            },
            Finding::Unneeded { path, reason } => {
                FindingLine { finding: "unneeded", path: Some(path), reason: Some(reason), ..FindingLine::default() }
            }
            Finding::Unnamed { path, size_bytes } => FindingLine {
                finding: "unnamed",
                path: Some(path),
                size_bytes: Some(*size_bytes),
                ..FindingLine::default()
            },
        });
    }
    Ok(match finding {
        Finding::Damaged { path, reason, versions } => {
            format!("damaged {path}: {reason} ({})\n", needed_by(versions.as_deref()))
        }
        Finding::Store { reason } => format!("damaged store: {reason}\n"),
        Finding::Catalog { reason } => format!("damaged catalog: {reason}\n"),
        Finding::Dangling(reference) => format!("damaged {reference}: there is no record of its file\n"),
        Finding::Unneeded { path, reason } => {
            format!("unneeded {path}: {reason}; no version names it, and a sweep removes what is left of it\n")
        }
        Finding::Unnamed { path, size_bytes } => {
            format!("unnamed {path} ({size_bytes} bytes; a sweep removes it when it is old enough)\n")
        }
    })
}

/// What the sum of a command says of files besides that are damaged: nothing if there are none.
pub(super) fn more_damaged(files: u64) -> String {
    match files {
        0 => String::new(),
        files => format!(", {files} more damaged"),
    }
}

/// The versions that need a damaged file, for people.
pub(super) fn needed_by(versions: Option<&[FileReference]>) -> String {
    match versions {
        None => "which versions name it cannot be read".to_owned(),
        Some([]) => "no version names it; it waits for the sweep".to_owned(),
        Some(versions) => versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
