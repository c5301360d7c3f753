//! The binary: prepares the process, and runs the command line.

mod cli;

use std::ffi::{c_int, c_long};
use std::process::ExitCode;
use std::time::Duration;

use cli::{CommandLine, run_command_line};

/// mimalloc replaces the system allocator, which is slow on many threads (imports, queries) and retains freed memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    restrict_file_permissions();
    ignore_file_size_signal();
    start_memory_purging();
    run_command_line(CommandLine::parse_or_exit)
}

unsafe extern "C" {
    /// Returns free memory of mimalloc to the system.
    safe fn mi_collect(force: bool);

    /// Sets an option of mimalloc, unless the environment sets it.
    safe fn mi_option_set_default(option: c_int, value: c_long);
}

/// mimalloc's option for the milliseconds after which free memory is returned to the system, and its value. With the
/// default of one second, busy threads free hundreds of MiB while others allocate as much.
const PURGE_DELAY_OPTION: (c_int, c_long) = (15, 10);

const PURGE_INTERVAL: Duration = Duration::from_secs(10);

/// Returns free memory to the system regularly, because mimalloc does so only during allocations.
fn start_memory_purging() {
    let (option, value) = PURGE_DELAY_OPTION;
    mi_option_set_default(option, value);
    let purge = || {
        loop {
            std::thread::sleep(PURGE_INTERVAL);
            mi_collect(true);
        }
    };
    // The error is ignored: without the thread, the process runs, but needs more memory.
    let _ = std::thread::Builder::new().name("strata-memory".to_owned()).stack_size(256 << 10).spawn(purge);
}

/// Restricts created files to the process's user, because the metadata database contains keys.
#[cfg(unix)]
fn restrict_file_permissions() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

#[cfg(not(unix))]
fn restrict_file_permissions() {}

/// Turns writes beyond RLIMIT_FSIZE into errors, as on a full disk, instead of ending the process.
#[cfg(unix)]
fn ignore_file_size_signal() {
    // SAFETY: the call installs no signal handler, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

#[cfg(not(unix))]
fn ignore_file_size_signal() {}
