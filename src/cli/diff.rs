//! `strata diff`: compares two versions of a dataset, or a version and an alternate (an edited copy of a version).

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ColorChoice};
use futures::TryStreamExt;
use strata_diff::{ChangeType, DiffPage};
use strata_service::{DiffError, DiffFormat, DiffSides, Services, VersionDiff};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use super::diff_text::{DiffPalette, DiffTextFormatter, TruncationLengths};
use super::error::CliError;
use super::signals::run_until_signal;
use super::{output_error, parse_dataset_id};

const DEFAULT_RECORD_LIMIT: u64 = 20;

/// Compare two versions of a dataset
///
/// Prints both versions, the numbers of added, subtracted, and modified entities, and one record for each of these
/// entities. For a modified entity, the record shows each changed field with its old and new values. For an added or
/// subtracted entity, the record shows the entity itself.
#[derive(Debug, Args)]
pub(super) struct DiffArguments {
    /// Dataset ID
    #[arg(value_name = "DATASET_ID", value_parser = parse_dataset_id)]
    dataset: DatasetId,
    /// Old version: active, latest, or a number
    #[arg(value_name = "V1", value_parser = VersionSelector::parse_with_bare_number)]
    v1: VersionSelector,
    /// New version: active, latest, or a number
    #[arg(value_name = "V2", value_parser = VersionSelector::parse_with_bare_number)]
    v2: VersionSelector,
    /// Compare V1 with the alternate of V2 instead of with V2 itself
    #[arg(long)]
    alt: bool,
    /// List only records of this type
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = PossibleValuesParser::new(ChangeType::ALL.map(ChangeType::name)).try_map(parse_change_type)
    )]
    change_type: Option<ChangeType>,
    /// Skip the first N records
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// Maximum number of records to list, or `all` for no limit [default: 20; with --json: all]
    #[arg(long, value_name = "N|all", value_parser = parse_record_limit)]
    limit: Option<RecordLimit>,
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

impl DiffArguments {
    fn diff_error(&self, error: impl Into<DiffError>) -> CliError {
        CliError::Diff { dataset: self.dataset, v1: self.v1, v2: self.v2, source: Box::new(error.into()) }
    }
}

#[derive(Clone, Copy, Debug)]
struct RecordLimit(Option<u64>);

fn parse_record_limit(text: &str) -> Result<RecordLimit, String> {
    if text == "all" {
        return Ok(RecordLimit(None));
    }
    text.parse().map(|limit| RecordLimit(Some(limit))).map_err(|_| "expected a whole number, or `all`".to_owned())
}

fn parse_change_type(name: String) -> Result<ChangeType, &'static str> {
    let matching = ChangeType::ALL.into_iter().find(|change_type| change_type.name() == name);
    matching.ok_or("unknown change type")
}

/// Compares two versions. It is not an error if the reader of the output stops.
pub(super) async fn run(services: &Services, arguments: DiffArguments) -> Result<(), CliError> {
    match run_until_signal(Box::pin(print_diff(services, &arguments))).await? {
        Err(CliError::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

async fn print_diff(services: &Services, arguments: &DiffArguments) -> Result<(), CliError> {
    let DiffArguments { dataset, v1, v2, alt, change_type, offset, limit, .. } = *arguments;
    let compared = services.diffs.compare(None, dataset, DiffSides { v1, v2, alt }).await;
    let diff = compared.map_err(|error| arguments.diff_error(error))?;
    let listed = if arguments.json { RecordLimit(None) } else { RecordLimit(Some(DEFAULT_RECORD_LIMIT)) };
    let page = DiffPage { change_type, offset, limit: limit.unwrap_or(listed).0 };
    let mut output = BufWriter::new(io::stdout().lock());
    match arguments.json {
        true => print_json(&diff, &page, arguments, &mut output).await?,
        false => print_text(&diff, &page, arguments, &mut output).await?,
    }
    output.flush().map_err(output_error)
}

async fn print_json(
    diff: &VersionDiff,
    page: &DiffPage,
    arguments: &DiffArguments,
    output: &mut impl Write,
) -> Result<(), CliError> {
    let mut parts = diff.stream_page(page, DiffFormat::Json);
    while let Some(part) = parts.try_next().await.map_err(|error| arguments.diff_error(error))? {
        write_output(output, &part)?;
    }
    write_output(output, b"\n")
}

async fn print_text(
    diff: &VersionDiff,
    page: &DiffPage,
    arguments: &DiffArguments,
    output: &mut impl Write,
) -> Result<(), CliError> {
    let palette = if has_colors(arguments.color) { DiffPalette::with_colors() } else { DiffPalette::default() };
    let lengths = if arguments.full { TruncationLengths::UNLIMITED } else { TruncationLengths::TRUNCATED };
    let report = DiffTextFormatter { palette, lengths };
    write_output(output, report.format_heading(diff).as_bytes())?;
    let mut lines = Vec::new();
    let mut parts = diff.stream_page(page, DiffFormat::Jsonl);
    while let Some(part) = parts.try_next().await.map_err(|error| arguments.diff_error(error))? {
        lines.extend_from_slice(&part);
        let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in lines[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            write_output(output, report.format_record(line).as_bytes())?;
        }
        lines.drain(..whole);
    }
    write_output(output, report.format_remaining(diff, page).as_bytes())
}

fn has_colors(choice: ColorChoice) -> bool {
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

fn write_output(output: &mut impl Write, bytes: &[u8]) -> Result<(), CliError> {
    output.write_all(bytes).map_err(output_error)
}
