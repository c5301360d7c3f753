//! Which user owns the files that a command creates.
//!
//! Administrators run commands as root on the data directory of the service's user: `sudo strata user add …`. The
//! service could not open files of root. So a process of root creates files as the owner of the data directory. It
//! keeps its rights to the files of others: it can still import a file from `/root` and write a backup to any place.

use std::io;
use std::path::Path;

/// Lets the calling thread, and the threads that it starts, create files as the owner of `directory`. Changes nothing
/// if the process is not root's, or if there is no such directory: then its files are those of the process's user.
#[cfg(target_os = "linux")]
pub(super) fn create_files_as_owner_of(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;

    let Ok(metadata) = std::fs::metadata(directory) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() || metadata.uid() == 0 {
        return Ok(());
    }
    let capabilities = rustix::thread::capabilities(None)?;
    // SAFETY: both calls take and give numbers, and change only the calling thread.
    unsafe {
        libc::setfsgid(metadata.gid());
        libc::setfsuid(metadata.uid());
    }
    // With the user, Linux removes the right to open the files of others.
    Ok(rustix::thread::set_capabilities(None, capabilities)?)
}

/// Elsewhere a process creates files only as its own user.
#[cfg(not(target_os = "linux"))]
pub(super) fn create_files_as_owner_of(_: &Path) -> io::Result<()> {
    Ok(())
}
