//! The binary: parses the command line and runs it. Everything else is in the library.

mod cli;

use std::ffi::{c_int, c_long};
use std::process::ExitCode;
use std::time::Duration;

use cli::{CommandLine, run};

/// Imports and queries allocate on many threads at once. There the system's allocator is slow, and keeps freed memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    create_private_files();
    outlive_large_files();
    give_memory_back();
    run(CommandLine::of_process)
}

unsafe extern "C" {
    /// Of mimalloc: gives what is free back to the system.
    safe fn mi_collect(force: bool);

    /// Of mimalloc: sets an option that the environment does not set.
    safe fn mi_option_set_default(option: c_int, value: c_long);
}

/// The number of mimalloc's option for the milliseconds after which free memory goes back to the system, and its value.
/// In the second that mimalloc would take, busy threads free hundreds of MiB while others ask for as many.
const PURGE_DELAY: (c_int, c_long) = (15, 10);

/// How often what is left of it goes back.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(10);

/// Gives free memory back to the system now and then. The allocator does so only when somebody allocates, a part at a
/// time: a service that has become idle would keep most of what its busiest moment took.
fn give_memory_back() {
    let (option, value) = PURGE_DELAY;
    mi_option_set_default(option, value);
    let giving = || {
        loop {
            std::thread::sleep(GIVE_BACK_EVERY);
            mi_collect(true);
        }
    };
    // Without it, the process is larger, and otherwise the same.
    let _ = std::thread::Builder::new().name("strata-memory".to_owned()).stack_size(256 << 10).spawn(giving);
}

/// Only the process's own user may read what it creates, with any library: directories 0700, files 0600. The catalog
/// holds keys.
#[cfg(unix)]
fn create_private_files() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
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
