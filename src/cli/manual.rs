//! `strata manual`: the manual pages.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::CommandLine;
use super::error::CliError;

/// Write the manual pages, one for each command
///
/// For example: strata manual /usr/local/share/man/man1
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A directory, made if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes them.
pub(super) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(CommandLine::command(), directory))
        .map_err(|source| CliError::Manual { directory: directory.clone(), source })
}
