//! `strata import`: creates the next version of a dataset from a file or a URL.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use strata_config::Config;
use strata_service::{ImportRequest, ProcessPurpose, RefreshCounters, Services, local_path};
use strata_types::dataset::DatasetMetadata;
use strata_types::error_chain::ErrorChain;
use strata_types::field_path::FieldPath;
use strata_types::source::SourceFormat;

use super::error::CliError;
use super::progress::ProgressDisplay;
use super::signals::ShutdownSignals;
use super::{print_stdout, run_and_close, to_json_line};

/// Create a dataset from a file or URL, or add a new version to it
///
/// Prints one line of JSON with dataset_id, name_slug, version, entity_count, private_key, and any warnings.
#[derive(Debug, Args)]
pub(super) struct ImportArguments {
    /// Source: a file, - for standard input, or an http, https, s3, or store URL. The source can be compressed with
    /// gzip or Zstandard
    #[arg(value_name = "FILE-OR-URL")]
    source: String,
    /// Name of the dataset. If the owner already has a dataset with this name, adds a new version to it
    #[arg(long)]
    name: String,
    /// Owner's email address
    #[arg(long, value_name = "EMAIL")]
    owner: String,
    /// Description of the dataset, shown in the dataset list. If the dataset exists, replaces its description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// License of the entities, shown in the dataset list. If the dataset exists, replaces its license
    #[arg(long, value_name = "TEXT")]
    licence: Option<String>,
    /// Add the dataset to the dataset list, which the dashboard and GET /datasets show. The dataset must be public
    #[arg(long, conflicts_with = "private")]
    listed: bool,
    /// Make a new dataset private, so that queries require its key
    #[arg(long)]
    private: bool,
    /// Format of the source [default: detected]
    #[arg(
        long,
        value_parser = PossibleValuesParser::new(SourceFormat::ALL.map(SourceFormat::name))
            .try_map(|name| name.parse::<SourceFormat>())
    )]
    format: Option<SourceFormat>,
    /// If the source is a JSON object, the path to its array of entities, such as data.items. You must repeat this
    /// option for each import
    #[arg(long, value_name = "PATH", value_parser = FieldPath::parse)]
    records_path: Option<FieldPath>,
    /// Include the URL's query string in the _source of entities. By default, the query string is removed, because it
    /// might contain secret keys
    #[arg(long)]
    publish_query: bool,
    /// Convert csv and tsv cells to numbers, booleans, or null if the text of a cell matches exactly. Without this
    /// option, all cells are strings. Not allowed with other formats
    #[arg(long)]
    infer_types: bool,
}

#[derive(Serialize)]
struct ImportSummary<'a> {
    dataset_id: u64,
    name_slug: &'a str,
    version: u64,
    entity_count: u64,
    private_key: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

/// Imports a source, with a progress bar on a terminal. An import that a signal interrupts changes nothing.
pub(super) async fn run(arguments: ImportArguments, config: Config) -> Result<(), CliError> {
    check_local_source(&arguments.source)?;
    let services = Services::open(&config, ProcessPurpose::Import).await?;
    run_and_close(&services, Box::pin(import(&services, arguments))).await
}

async fn import(services: &Services, arguments: ImportArguments) -> Result<(), CliError> {
    const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

    let progress = Arc::new(RefreshCounters::default());
    let display = io::stderr().is_terminal().then(ProgressDisplay::new);
    let from = arguments.source.clone();
    let request = ImportRequest {
        source: arguments.source,
        name: arguments.name,
        owner_email: arguments.owner,
        about: DatasetMetadata {
            description: arguments.description,
            license: arguments.licence,
            listed: arguments.listed,
        },
        private: arguments.private,
        format: arguments.format,
        records_path: arguments.records_path,
        publish_query: arguments.publish_query,
        infer_types: arguments.infer_types,
    };
    let mut signals = ShutdownSignals::listen()?;
    let mut importing = pin!(services.refreshes.import(request, progress.clone()));
    let mut redraw = tokio::time::interval(REDRAW_INTERVAL);
    let outcome = loop {
        tokio::select! {
            outcome = &mut importing => break outcome,
            _ = signals.next_signal() => {
                // This call records that the import was interrupted, and removes its partial files.
                services.refreshes.finish_or_stop_refreshes(Duration::ZERO).await;
                return Err(CliError::Interrupted);
            }
            _ = redraw.tick(), if display.is_some() => display.iter().for_each(|bar| bar.show_import(&progress)),
        }
    };
    drop(display);
    let imported = outcome.map_err(|error| CliError::Import {
        from,
        problem: replace_fields_with_flags(&ErrorChain(&error).to_string()),
    })?;
    print_stdout(&to_json_line(&ImportSummary {
        dataset_id: imported.dataset_id.get(),
        name_slug: &imported.name_slug,
        version: imported.version.get(),
        entity_count: imported.entity_count,
        private_key: imported.private_key.as_ref().map(|key| key.expose()),
        warnings: &imported.warnings,
    })?)?;
    // A failed webhook does not fail the import, because the new version already exists.
    if let Err(error) = services.deliveries.send_due().await {
        tracing::warn!(error = %ErrorChain(&error), "failed to send due webhooks; another process will send them");
    }
    Ok(())
}

fn check_local_source(source: &str) -> Result<(), CliError> {
    let Some(path) = local_path(source) else { return Ok(()) };
    let problem = match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => {
            "it is a directory; valid: a file, - for standard input, or a URL".to_owned()
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && source.contains("://") => {
            "the URL scheme is not supported, and there is no such file; valid: http://…, https://…, s3://…, a file, or - for \
             standard input"
                .to_owned()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            "there is no such file; valid: a file, - for standard input, or a URL such as https://…".to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(CliError::Import { from: source.to_owned(), problem })
}

fn replace_fields_with_flags(error: &str) -> String {
    const FLAGS: [(&str, &str); 3] =
        [("`records_path`", "`--records-path`"), ("`format`", "`--format`"), ("`infer_types`", "`--infer-types`")];
    FLAGS.into_iter().fold(error.to_owned(), |text, (field, flag)| text.replace(field, flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_contains_flags_instead_of_fields() {
        for (error, expected) in [
            ("set `records_path` to the path", "set `--records-path` to the path"),
            ("it is Parquet; set `format` to parquet", "it is Parquet; set `--format` to parquet"),
            ("`infer_types` applies only to csv", "`--infer-types` applies only to csv"),
            // A field of an entity is not replaced by a flag, even if it has the name of a request field.
            ("item 1 (line 2): records_path, format", "item 1 (line 2): records_path, format"),
        ] {
            assert_eq!(replace_fields_with_flags(error), expected);
        }
    }
}
