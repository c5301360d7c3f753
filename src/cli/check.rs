//! `strata check`: verifies that the catalog is intact, and that every recorded file exists and is unchanged.

use clap::Args;
use serde::Serialize;

use super::error::CliError;
use super::progress::FilesDisplay;
use super::signals::Signals;
use super::{closing, json_line, print};
use crate::catalog::FileReference;
use crate::config::Config;
use crate::service::{App, CheckDepth, Checked, Finding};

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
#[derive(Serialize)]
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

/// The last line.
#[derive(Serialize)]
struct SumLine {
    files: u64,
    bytes: u64,
    damaged: u64,
    unnamed: u64,
}

/// Checks once. If there is damage, the command fails after it has checked everything.
pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let app = App::open_existing(&config).await?;
    closing(&app, check(&app, &arguments)).await
}

async fn check(app: &App, arguments: &Arguments) -> Result<(), CliError> {
    let mut signals = Signals::listen()?;
    let depth = if arguments.quick { CheckDepth::Footers } else { CheckDepth::Everything };
    let mut printed = Ok(());
    let mut tell = |finding: &Finding| {
        if printed.is_ok() {
            printed = line(finding, arguments.json).and_then(|line| print(&line));
        }
    };
    let checked = tokio::select! {
        checked = app.maintenance().check(depth, &mut tell) => checked?,
        _ = signals.next() => return Err(CliError::Interrupted),
    };
    printed?;
    print(&sum(&checked, arguments.json)?)?;
    match checked.damaged {
        0 => Ok(()),
        damaged => Err(CliError::Damaged { damaged }),
    }
}

/// Prints the lines about findings, beside the bar of their command, until one cannot be printed.
pub(super) fn findings<'a>(
    display: &'a FilesDisplay,
    json: bool,
    printed: &'a mut Result<(), CliError>,
) -> impl FnMut(&Finding) + Send + 'a {
    move |finding| {
        if printed.is_ok() {
            *printed = line(finding, json).and_then(|line| display.print(&line));
        }
    }
}

/// The line about a finding.
fn line(finding: &Finding, json: bool) -> Result<String, CliError> {
    if json {
        return json_line(&match finding {
            Finding::Damaged { path, reason, versions } => FindingLine {
                finding: "damaged",
                path: Some(path),
                reason: Some(reason),
                size_bytes: None,
                versions: versions.iter().flatten().map(VersionLine::from).collect(),
            },
            Finding::Store { reason } => FindingLine {
                finding: "store",
                path: None,
                reason: Some(reason),
                size_bytes: None,
                versions: Vec::new(),
            },
            Finding::Catalog { reason } => FindingLine {
                finding: "catalog",
                path: None,
                reason: Some(reason),
                size_bytes: None,
                versions: Vec::new(),
            },
            Finding::Dangling(reference) => FindingLine {
                finding: "dangling",
                path: None,
                reason: Some("there is no record of its file"),
                size_bytes: None,
                versions: vec![reference.into()],
            },
            Finding::Unneeded { path, reason } => FindingLine {
                finding: "unneeded",
                path: Some(path),
                reason: Some(reason),
                size_bytes: None,
                versions: Vec::new(),
            },
            Finding::Unnamed { path, size_bytes } => FindingLine {
                finding: "unnamed",
                path: Some(path),
                reason: None,
                size_bytes: Some(*size_bytes),
                versions: Vec::new(),
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

fn sum(checked: &Checked, json: bool) -> Result<String, CliError> {
    let Checked { files, bytes, damaged, unnamed } = *checked;
    match json {
        true => json_line(&SumLine { files, bytes, damaged, unnamed }),
        false => Ok(format!("{files} files checked, {bytes} bytes: {damaged} damaged; {unnamed} unnamed\n")),
    }
}
