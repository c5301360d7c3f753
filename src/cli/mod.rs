//! The command line: one file per command, each a struct of its arguments and a function that runs it.
//!
//! A failed command prints one line on standard error, `strata: …`, which ends with the cause. Its exit code is 1. The
//! exit code of a command line that cannot be parsed is 2.

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
mod table;
mod user;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand};
use strata_config::{Config, ConfigFile, ConfigSources};
use strata_service::{Purpose, Services};
use strata_types::causes::Causes;
use strata_types::ids::DatasetId;
use strata_types::similar;

use error::CliError;

/// Serve versioned datasets of JSON entities.
#[derive(Debug, Parser)]
#[command(name = "strata", version, max_term_width = 100)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    shared: SharedArguments,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
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
enum Command {
    Serve(serve::Arguments),
    User(user::Arguments),
    List(list::Arguments),
    Nodes(nodes::Arguments),
    Import(import::Arguments),
    Explain(explain::Arguments),
    Diff(diff::Arguments),
    Sweep(sweep::Arguments),
    Check(check::Arguments),
    Scrub(scrub::Arguments),
    Backup(backup::BackupArguments),
    Restore(backup::RestoreArguments),
    Completions(generated::CompletionsArguments),
    Manual(generated::ManualArguments),
}

impl CommandLine {
    /// Parses the command line of this process. Ends the process if that fails, or to show help.
    pub(crate) fn of_process() -> CommandLine {
        CommandLine::try_parse().unwrap_or_else(|error| suggesting_one(error).exit())
    }
}

/// The error with only the nearest command as a suggestion. The parser's own list begins with less similar ones.
fn suggesting_one(mut error: clap::Error) -> clap::Error {
    let known = CommandLine::command();
    let nearest = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => {
            similar::nearest(name, known.get_subcommands().map(clap::Command::get_name))
        }
        _ => None,
    };
    if let Some(nearest) = nearest {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![nearest.to_owned()]));
    }
    error
}

/// Parses and runs a command line, on a separate thread because the system sets the stack size of the first thread
/// (`ulimit -s`).
pub(crate) fn run(parse: fn() -> CommandLine) -> ExitCode {
    let thread = std::thread::Builder::new().name("strata".to_owned()).stack_size(MAIN_STACK_BYTES);
    let ended = thread.spawn(move || execute(parse())).map(JoinHandle::join);
    logging::end();
    let outcome = match ended {
        Ok(Ok(outcome)) => outcome,
        // The panic hook has printed the reason.
        Ok(Err(_panic)) => return ExitCode::from(101),
        Err(source) => Err(CliError::Io { what: "failed to start threads", source }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, nobody can read the reason.
            let _ = writeln!(io::stderr(), "strata: {}", Causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn execute(command_line: CommandLine) -> Result<(), CliError> {
    let CommandLine { shared, command } = command_line;
    let flags = match &command {
        Command::Serve(arguments) => vec![
            ("server.listen", "--listen", arguments.listen.clone()),
            ("server.background", "--no-background", arguments.no_background.then(|| false.to_string())),
        ],
        // These commands need no configuration.
        Command::Completions(arguments) => return generated::print_completions(arguments),
        Command::Manual(arguments) => return generated::write_manual(arguments),
        _ => Vec::new(),
    };
    let config = Config::load(&sources(shared, flags))?;
    file_owner::create_files_as_owner_of(&config.data.directory)
        .map_err(|source| CliError::Io { what: "failed to switch to the user that owns the data directory", source })?;
    let level = if matches!(command, Command::Serve(_)) { "info" } else { "warn" };
    logging::start(&config.log, level)?;
    match command {
        Command::Serve(arguments) => block_on(serve::run(arguments, config)),
        Command::User(arguments) => block_on(arguments.run(config)),
        Command::List(arguments) => run_with(&config, Purpose::Records, list::run, arguments),
        Command::Nodes(arguments) => run_with(&config, Purpose::Records, nodes::run, arguments),
        Command::Import(arguments) => block_on(import::run(arguments, config)),
        Command::Explain(arguments) => block_on(explain::run(arguments, config)),
        Command::Diff(arguments) => run_with(&config, Purpose::Maintain, diff::run, arguments),
        Command::Sweep(arguments) => block_on(sweep::run(arguments, config)),
        Command::Check(arguments) => run_with(&config, Purpose::Maintain, check::run, arguments),
        Command::Scrub(arguments) => run_with(&config, Purpose::Maintain, scrub::run, arguments),
        Command::Backup(arguments) => run_with(&config, Purpose::Maintain, backup::back_up, arguments),
        Command::Restore(arguments) => block_on(backup::restore(arguments, config)),
        Command::Completions(_) | Command::Manual(_) => Ok(()),
    }
}

/// The sources of this process's configuration.
fn sources(shared: SharedArguments, flags: Vec<(&'static str, &'static str, Option<String>)>) -> ConfigSources {
    let file = match shared.config {
        Some(path) => ConfigFile::Required(path),
        None => ConfigFile::IfPresent(PathBuf::from("strata.toml")),
    };
    let flags = std::iter::once(("data.directory", "--data", shared.data)).chain(flags);
    let flags = flags.filter_map(|(key, flag, value)| Some((key, flag, value?)));
    ConfigSources { file, environment: std::env::vars_os().collect(), flags: flags.collect() }
}

/// The stack size of the thread that runs the command.
const MAIN_STACK_BYTES: usize = 8 << 20;

/// The stack size of all other threads except for those of queries, regardless of limits of the system or environment.
/// Hundreds of stacks take little address space.
const STACK_BYTES: usize = 4 << 20;

fn block_on(command: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|source| CliError::Io { what: "failed to start threads", source })?;
    let outcome = runtime.block_on(command);
    // Tasks that still run were interrupted by a signal or an error, and need a moment to remove temporary files.
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

/// Opens the services and runs a command with them.
fn run_with<A>(
    config: &Config,
    purpose: Purpose,
    command: impl AsyncFnOnce(&Services, A) -> Result<(), CliError>,
    arguments: A,
) -> Result<(), CliError> {
    block_on(async {
        let services = Services::open(config, purpose).await?;
        closing(&services, Box::pin(command(&services, arguments))).await
    })
}

/// Does the work, and then closes the services, also after an error. A closed SQLite file can be copied or replaced.
async fn closing(services: &Services, work: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let outcome = work.await;
    services.close().await;
    outcome
}

fn dataset_id(text: &str) -> Result<DatasetId, String> {
    text.parse().map_err(|_| {
        "a dataset ID must be a positive integer; you can find it in the output of `strata list` or `strata import`, \
         or after /api/ in a query URL"
            .to_owned()
    })
}

fn json_line(value: &impl serde::Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::Io { what: "failed to print the result", source: error.into() })?;
    Ok(text + "\n")
}

fn counted(number: u64, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

fn format_files(number: u64) -> String {
    counted(number, "file", "files")
}

fn format_bytes(number: u64) -> String {
    counted(number, "byte", "bytes")
}

fn format_size(files: u64, bytes: u64) -> String {
    format!("{} ({})", format_files(files), format_bytes(bytes))
}

/// Prints the summary of a command: as one line of JSON, or as a text.
fn print_summary(json: bool, summary: &serde_json::Value, text: String) -> Result<(), CliError> {
    print(&if json { json_line(summary)? } else { text })
}

/// Prints a line, unless an earlier one failed. The work of the command continues if nobody reads its output.
fn print_unless_failed(printed: &mut Result<(), CliError>, print: impl FnOnce() -> Result<(), CliError>) {
    if printed.is_ok() {
        *printed = print();
    }
}

/// Writes to standard output at once.
fn print(text: &str) -> Result<(), CliError> {
    let mut output = io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|source| CliError::Io { what: "failed to write to standard output", source })
}
