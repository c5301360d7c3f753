//! The command line. Each command has a file with its arguments and a function that runs it.
//!
//! A failed command prints one line on standard error, `strata: …`, which ends with the cause. The exit code is 1, or 2
//! if the command line cannot be parsed.

mod backup;
mod check;
mod demo;
mod diff;
mod diff_text;
mod duration;
mod error;
mod explain;
mod file_owner;
mod generated;
mod import;
mod list;
mod logging;
mod nodes;
mod progress;
mod scrub;
mod serve;
mod signals;
mod sweep;
mod sync;
mod table;
mod user;
mod verify;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand};
use strata_config::{Config, ConfigFile, ConfigSources};
use strata_service::{ProcessPurpose, Services};
use strata_types::error_chain::ErrorChain;
use strata_types::ids::DatasetId;
use strata_types::suggest;

use error::CliError;

/// Serve versioned datasets of JSON entities.
#[derive(Debug, Parser)]
#[command(name = "strata", version, max_term_width = 100)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    shared: SharedArguments,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Args)]
struct SharedArguments {
    /// Data directory (data.directory) [default: ./strata-data]
    #[arg(long, value_name = "DIR", global = true, display_order = 100)]
    data: Option<String>,
    /// Configuration file [default: ./strata.toml, if it exists]
    #[arg(long, value_name = "FILE", global = true, display_order = 101)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Serve(serve::ServeArguments),
    User(user::UserArguments),
    List(list::ListArguments),
    Nodes(nodes::NodesArguments),
    Import(import::ImportArguments),
    Explain(explain::ExplainArguments),
    Diff(diff::DiffArguments),
    Sync(sync::SyncArguments),
    Sweep(sweep::SweepArguments),
    Check(check::CheckArguments),
    Scrub(scrub::ScrubArguments),
    Verify(verify::VerifyArguments),
    Backup(backup::BackupArguments),
    Restore(backup::RestoreArguments),
    Completions(generated::CompletionsArguments),
    Manual(generated::ManualArguments),
}

impl CommandLine {
    pub(crate) fn parse_or_exit() -> CommandLine {
        CommandLine::try_parse().unwrap_or_else(|error| keep_nearest_suggestion(error).exit())
    }
}

/// Replaces the suggested commands by the nearest one, because the parser lists less similar ones first.
fn keep_nearest_suggestion(mut error: clap::Error) -> clap::Error {
    let known = CommandLine::command();
    let nearest = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => {
            suggest::find_similar_name(name, known.get_subcommands().map(clap::Command::get_name))
        }
        _ => None,
    };
    if let Some(nearest) = nearest {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![nearest.to_owned()]));
    }
    error
}

/// Runs the command on a separate thread, because the system limits the stack of the first thread (`ulimit -s`).
pub(crate) fn run_command_line(parse: fn() -> CommandLine) -> ExitCode {
    let thread = std::thread::Builder::new().name("strata".to_owned()).stack_size(MAIN_STACK_BYTES);
    let ended = thread.spawn(move || run_command(parse())).map(JoinHandle::join);
    logging::flush_and_stop_logging();
    let outcome = match ended {
        Ok(Ok(outcome)) => outcome,
        // The panic hook has already printed the reason of the panic.
        Ok(Err(_panic)) => return ExitCode::from(101),
        Err(source) => Err(CliError::Io { what: "failed to start threads", source }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The write error is ignored: if standard error is closed, no one can read the message.
            let _ = writeln!(io::stderr(), "strata: {}", ErrorChain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run_command(command_line: CommandLine) -> Result<(), CliError> {
    use ProcessPurpose::{Maintain, MaintainRecords};

    let CommandLine { shared, command } = command_line;
    let flags = match &command {
        CliCommand::Serve(arguments) => vec![
            ("server.listen", "--listen", arguments.listen.clone()),
            ("server.background", "--no-background", arguments.no_background.then(|| false.to_string())),
        ],
        // These commands need no configuration.
        CliCommand::Completions(arguments) => return generated::print_completions(arguments),
        CliCommand::Manual(arguments) => return generated::write_manual(arguments),
        CliCommand::Verify(arguments) => return block_on(verify::run(arguments)),
        CliCommand::Sync(arguments) => return block_on(sync::run(arguments)),
        _ => Vec::new(),
    };
    let config = Config::load(&config_sources(shared, flags))?;
    file_owner::set_new_file_owner_from(&config.data.directory)
        .map_err(|source| CliError::Io { what: "failed to switch to the user that owns the data directory", source })?;
    let level = if matches!(command, CliCommand::Serve(_)) { "info" } else { "warn" };
    logging::start_logging(&config.log, level)?;
    match command {
        CliCommand::Serve(arguments) => block_on(serve::run(arguments, config)),
        CliCommand::User(arguments) => block_on(arguments.run(config)),
        CliCommand::List(arguments) => run_with_services(&config, MaintainRecords, list::run, arguments),
        CliCommand::Nodes(arguments) => run_with_services(&config, MaintainRecords, nodes::run, arguments),
        CliCommand::Import(arguments) => block_on(import::run(arguments, config)),
        CliCommand::Explain(arguments) => block_on(explain::run(arguments, config)),
        CliCommand::Diff(arguments) => run_with_services(&config, Maintain, diff::run, arguments),
        CliCommand::Sweep(arguments) => block_on(sweep::run(arguments, config)),
        CliCommand::Check(arguments) => run_with_services(&config, Maintain, check::run, arguments),
        CliCommand::Scrub(arguments) => run_with_services(&config, Maintain, scrub::run, arguments),
        CliCommand::Backup(arguments) => run_with_services(&config, Maintain, backup::back_up, arguments),
        CliCommand::Restore(arguments) => block_on(backup::restore(arguments, config)),
        CliCommand::Completions(_) | CliCommand::Manual(_) | CliCommand::Sync(_) | CliCommand::Verify(_) => Ok(()),
    }
}

fn config_sources(shared: SharedArguments, flags: Vec<(&'static str, &'static str, Option<String>)>) -> ConfigSources {
    let file = match shared.config {
        Some(path) => ConfigFile::Required(path),
        None => ConfigFile::IfPresent(PathBuf::from("strata.toml")),
    };
    let flags = std::iter::once(("data.directory", "--data", shared.data)).chain(flags);
    let flags = flags.filter_map(|(key, flag, value)| Some((key, flag, value?)));
    ConfigSources { file, environment: std::env::vars_os().collect(), flags: flags.collect() }
}

const MAIN_STACK_BYTES: usize = 8 << 20;

/// The stack size of all threads except for query threads. Unused stack occupies only address space.
const THREAD_STACK_BYTES: usize = 4 << 20;

fn block_on(command: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(THREAD_STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|source| CliError::Io { what: "failed to start threads", source })?;
    let outcome = runtime.block_on(command);
    // Tasks that a signal or an error interrupted need a moment to remove temporary files.
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

fn run_with_services<A>(
    config: &Config,
    purpose: ProcessPurpose,
    command: impl AsyncFnOnce(&Services, A) -> Result<(), CliError>,
    arguments: A,
) -> Result<(), CliError> {
    block_on(async {
        let services = Services::open(config, purpose).await?;
        run_and_close(&services, Box::pin(command(&services, arguments))).await
    })
}

/// Closes the services even after an error. A closed SQLite file can be copied or replaced.
async fn run_and_close(services: &Services, work: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let outcome = work.await;
    services.close().await;
    outcome
}

fn parse_dataset_id(text: &str) -> Result<DatasetId, String> {
    text.parse().map_err(|_| {
        "a dataset ID must be a positive integer; you can find it in the output of `strata list` or `strata import`, \
         or after /api/ in a query URL"
            .to_owned()
    })
}

fn to_json_line(value: &impl serde::Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::Io { what: "failed to print the result", source: error.into() })?;
    Ok(text + "\n")
}

fn format_count(number: u64, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

fn format_files(number: u64) -> String {
    format_count(number, "file", "files")
}

fn format_bytes(number: u64) -> String {
    format_count(number, "byte", "bytes")
}

fn format_size(files: u64, bytes: u64) -> String {
    format!("{} ({})", format_files(files), format_bytes(bytes))
}

fn print_summary(json: bool, summary: &serde_json::Value, text: String) -> Result<(), CliError> {
    print_stdout(&if json { to_json_line(summary)? } else { text })
}

/// Prints a line, unless an earlier line failed, so that the command continues if its output is closed.
fn print_unless_failed(printed: &mut Result<(), CliError>, print: impl FnOnce() -> Result<(), CliError>) {
    if printed.is_ok() {
        *printed = print();
    }
}

fn print_stdout(text: &str) -> Result<(), CliError> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(output_error)
}

fn output_error(source: io::Error) -> CliError {
    CliError::Io { what: "failed to write to standard output", source }
}
