//! The owner of the files that a command creates.
//!
//! Administrators run commands such as `sudo strata user add …` as root, but the service could not open files that
//! belong to root. A root process therefore creates files as the owner of the data directory. It can still access the
//! files of other users, for example to import a file from `/root`.

use std::io;
use std::path::Path;

/// Makes the calling thread, and the threads that it starts, create files as the owner of `directory`. Does nothing if
/// the process does not run as root, or if the directory does not exist.
#[cfg(target_os = "linux")]
pub(super) fn set_new_file_owner_from(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;

    let Ok(metadata) = std::fs::metadata(directory) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() || metadata.uid() == 0 {
        return Ok(());
    }
    let capabilities = rustix::thread::capabilities(None)?;
    // SAFETY: `setfsgid` and `setfsuid` take only numbers, and change only the calling thread.
    unsafe {
        libc::setfsgid(metadata.gid());
        libc::setfsuid(metadata.uid());
    }
    // The change of the user drops the capability to open the files of other users, so it is restored.
    Ok(rustix::thread::set_capabilities(None, capabilities)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn set_new_file_owner_from(_: &Path) -> io::Result<()> {
    Ok(())
}
