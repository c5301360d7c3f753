//! `strata diff`: compares two versions of a dataset, or a version and an alternate.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ColorChoice};
use futures::TryStreamExt;
use strata_diff::{ChangeType, DiffPage};
use strata_service::{DiffError, DiffForm, DiffSides, Services, VersionDiff};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use super::dataset_id;
use super::diff_text::{Lengths, Palette, Report};
use super::error::CliError;
use super::signals::or_interrupted;

/// The default number of listed records.
const LISTED: u64 = 20;

/// Compare two versions of a dataset
///
/// Prints both versions, the numbers of added, subtracted, and modified entities, and one record for each of these
/// entities. For a modified entity, the record shows each changed field with its old and new values. For an added or
/// subtracted entity, the record shows the entity itself.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Dataset ID
    #[arg(value_name = "DATASET_ID", value_parser = dataset_id)]
    dataset: DatasetId,
    /// Old version: active, latest, or a number
    #[arg(value_name = "V1", value_parser = VersionSelector::parse_or_number)]
    v1: VersionSelector,
    /// New version: active, latest, or a number
    #[arg(value_name = "V2", value_parser = VersionSelector::parse_or_number)]
    v2: VersionSelector,
    /// Compare V1 with the alternate of V2 instead of with V2 itself
    #[arg(long)]
    alt: bool,
    /// List only records of this type
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = PossibleValuesParser::new(ChangeType::ALL.map(ChangeType::name)).try_map(change_type)
    )]
    change_type: Option<ChangeType>,
    /// Skip the first N records
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// Maximum number of records to list, or `all` for no limit [default: 20; with --json: all]
    #[arg(long, value_name = "N|all", value_parser = limit)]
    limit: Option<Limit>,
    /// Print long values and entities without truncating them
    #[arg(long)]
    full: bool,
    /// Print the diff as JSON, like GET /dataset/diff
    #[arg(long)]
    json: bool,
    /// When to use colors; auto uses them only on a terminal, and only if NO_COLOR is not set
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

impl Arguments {
    fn failed(&self, error: impl Into<DiffError>) -> CliError {
        CliError::Diff { dataset: self.dataset, v1: self.v1, v2: self.v2, source: Box::new(error.into()) }
    }
}

/// The maximum number of records; `None` means all.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<u64>);

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "all" => Ok(Limit(None)),
        _ => text.parse().map(|limit| Limit(Some(limit))).map_err(|_| "expected a whole number, or `all`".to_owned()),
    }
}

fn change_type(name: String) -> Result<ChangeType, &'static str> {
    let found = ChangeType::ALL.into_iter().find(|change_type| change_type.name() == name);
    found.ok_or("unknown change type")
}

/// Compares two versions, until the reader of the output stops.
pub(super) async fn run(services: &Services, arguments: Arguments) -> Result<(), CliError> {
    match or_interrupted(Box::pin(print(services, &arguments))).await? {
        Err(CliError::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

async fn print(services: &Services, arguments: &Arguments) -> Result<(), CliError> {
    let Arguments { dataset, v1, v2, alt, .. } = *arguments;
    let compared = services.diffs.compare(None, dataset, DiffSides { v1, v2, alt }).await;
    let diff = compared.map_err(|error| arguments.failed(error))?;
    let listed = if arguments.json { Limit(None) } else { Limit(Some(LISTED)) };
    let page = DiffPage {
        change_type: arguments.change_type,
        offset: arguments.offset,
        limit: arguments.limit.unwrap_or(listed).0,
    };
    let mut output = BufWriter::new(io::stdout().lock());
    match arguments.json {
        true => print_json(&diff, &page, arguments, &mut output).await?,
        false => print_text(&diff, &page, arguments, &mut output).await?,
    }
    output.flush().map_err(unwritable)
}

/// Prints the response of `GET /dataset/diff`, and a line break.
async fn print_json(
    diff: &VersionDiff,
    page: &DiffPage,
    arguments: &Arguments,
    output: &mut impl Write,
) -> Result<(), CliError> {
    let mut parts = diff.stream(page, DiffForm::Result);
    while let Some(part) = parts.try_next().await.map_err(|error| arguments.failed(error))? {
        write(output, &part)?;
    }
    write(output, b"\n")
}

async fn print_text(
    diff: &VersionDiff,
    page: &DiffPage,
    arguments: &Arguments,
    output: &mut impl Write,
) -> Result<(), CliError> {
    let palette = if is_coloured(arguments.color) { Palette::coloured() } else { Palette::default() };
    let lengths = if arguments.full { Lengths::WHOLE } else { Lengths::CUT };
    let report = Report { palette, lengths };
    write(output, report.heading(diff).as_bytes())?;
    let mut lines = Vec::new();
    let mut parts = diff.stream(page, DiffForm::Lines);
    while let Some(part) = parts.try_next().await.map_err(|error| arguments.failed(error))? {
        lines.extend_from_slice(&part);
        let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in lines[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            write(output, report.record(line).as_bytes())?;
        }
        lines.drain(..whole);
    }
    write(output, report.rest(diff, page).as_bytes())
}

fn is_coloured(choice: ColorChoice) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
            io::stdout().is_terminal() && !is_set("NO_COLOR") && !dumb
        }
    }
}

fn write(output: &mut impl Write, bytes: &[u8]) -> Result<(), CliError> {
    output.write_all(bytes).map_err(unwritable)
}

fn unwritable(source: io::Error) -> CliError {
    CliError::Io { what: "failed to write to standard output", source }
}
