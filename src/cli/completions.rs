//! `strata completions`: prints the script with which a shell completes command lines.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::error::CliError;
use super::{CommandLine, print};

/// Print the completions of command lines for a shell
///
/// For example: strata completions bash > /etc/bash_completion.d/strata
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "strata", &mut script);
    print(&String::from_utf8_lossy(&script))
}
