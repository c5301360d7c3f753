//! `strata completions` and `strata manual`, which are generated from the definition of the command line.

use std::path::PathBuf;

use clap::{Arg, Args, Command, CommandFactory};
use clap_complete::Shell;

use super::error::CliError;
use super::{CommandLine, print_stdout};

/// Print a shell completion script
///
/// For example: strata completions bash > /etc/bash_completion.d/strata
#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn print_completions(arguments: &CompletionsArguments) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "strata", &mut script);
    print_stdout(&String::from_utf8_lossy(&script))
}

/// Write a manual page for each command
///
/// For example: strata manual /usr/local/share/man/man1
#[derive(Debug, Args)]
pub(super) struct ManualArguments {
    /// Directory for the manual pages, created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn write_manual(arguments: &ManualArguments) -> Result<(), CliError> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| {
            // `build` adds the full name and the global options to each command.
            let mut command = CommandLine::command().disable_help_subcommand(true);
            command.build();
            clap_mangen::generate_to(with_synopsis(command), directory)
        })
        .map_err(|source| CliError::Manual { directory: directory.clone(), source })
}

/// Adds a synopsis with the values of options to a command and its subcommands, because `clap_mangen` omits values.
fn with_synopsis(command: Command) -> Command {
    let usage = format_synopsis(&command);
    command.override_usage(usage).mut_subcommands(with_synopsis)
}

fn format_synopsis(command: &Command) -> String {
    let mut words = vec![command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned()];
    let shown: Vec<&Arg> = command.get_arguments().filter(|argument| !argument.is_hide_set()).collect();
    let options = shown.iter().filter(|argument| !argument.is_positional());
    let (required, optional): (Vec<&Arg>, Vec<&Arg>) = options.copied().partition(|option| option.is_required_set());
    words.extend(optional.into_iter().map(|option| format!("[{}]", format_option(option))));
    words.extend(required.into_iter().map(format_option));
    words.extend(command.get_positionals().map(|argument| match argument.is_required_set() {
        true => format_value_names(argument),
        false => format!("[{}]", format_value_names(argument)),
    }));
    words.extend(command.has_subcommands().then(|| "COMMAND".to_owned()));
    words.join(" ")
}

/// Formats an option for the synopsis: `-h|--help`, `--data DIR`.
fn format_option(option: &Arg) -> String {
    let short = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long().map(|long| format!("--{long}"));
    let name = short.into_iter().chain(long).collect::<Vec<_>>().join("|");
    if option.get_action().takes_values() { format!("{name} {}", format_value_names(option)) } else { name }
}

fn format_value_names(argument: &Arg) -> String {
    argument.get_value_names().map_or_else(|| argument.get_id().to_string(), |names| names.join(" "))
}
