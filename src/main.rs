//! The binary: parses the command line and runs it. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use strata::cli::{CommandLine, run};

/// Imports and queries allocate on many threads at once. There the system's allocator is slow, and keeps freed memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    create_private_files();
    outlive_large_files();
    run(CommandLine::parse)
}

/// Only the process's own user may read what it creates, with any library: directories 0700, files 0600. The catalog
/// holds keys.
#[cfg(unix)]
fn create_private_files() {
    // SAFETY: it takes and gives a number, cannot fail, and no other thread runs yet.
    unsafe { libc::umask(0o077) };
}

#[cfg(not(unix))]
fn create_private_files() {}

/// A write past the process's limit for the size of files (RLIMIT_FSIZE) is then an error, as on a full disk. It does
/// not end the process.
#[cfg(unix)]
fn outlive_large_files() {
    // SAFETY: it installs no handler, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

#[cfg(not(unix))]
fn outlive_large_files() {}
