//! The binary: parses the command line and runs it. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use strata::cli::{CommandLine, run};

/// Imports and queries allocate on many threads at once, where the system's allocator is slow and keeps what
/// it freed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run(CommandLine::parse())
}
