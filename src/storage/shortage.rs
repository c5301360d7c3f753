//! What an error of a disk or a store means when the fault is not in the data: something is used up or gone, and the
//! same call works again when it is back.

use std::error::Error;
use std::fmt;
use std::io;

use super::StoreGone;

/// What is missing at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// A disk, or a quota on it, is full.
    DiskFull,
    /// The process, or the machine, has no file descriptors left.
    Descriptors,
    /// The system refuses memory.
    Memory,
    /// The system starts no further thread.
    Threads,
    /// The disk takes no writes, or does not let this process read.
    Denied,
    /// The store does not answer, or answers that it cannot.
    Unreachable,
    /// The store's directory is not there.
    Gone,
}

/// `ENFILE` and `EMFILE`; the library has no kind for them.
const NO_DESCRIPTORS: [i32; 2] = [23, 24];

impl Shortage {
    /// What an error and its causes mean, if they mean one of these.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Shortage> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(shortage) = of_one(error) {
                return Some(shortage);
            }
            next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                // `source` of an I/O error passes over what it wraps.
                Some(wrapped) => Some(wrapped),
                None => error.source(),
            };
        }
        None
    }

    /// Seconds after which it is worth another try.
    pub fn retry_after_s(self) -> u64 {
        match self {
            Shortage::Descriptors | Shortage::Memory | Shortage::Threads | Shortage::Unreachable | Shortage::Gone => 5,
            Shortage::DiskFull | Shortage::Denied => 30,
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Shortage::DiskFull => "a disk is full",
            Shortage::Descriptors => "there are no file descriptors left",
            Shortage::Memory => "the system has no memory left",
            Shortage::Threads => "the system starts no further thread: there is no memory, or there are too many",
            Shortage::Denied => "the disk refuses access",
            Shortage::Unreachable => "the store of the version files does not answer",
            Shortage::Gone => "the store of the version files is missing",
        })
    }
}

fn of_one(error: &(dyn Error + 'static)) -> Option<Shortage> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return of_io(error);
    }
    if error.is::<StoreGone>() {
        return Some(Shortage::Gone);
    }
    match error.downcast_ref::<object_store::Error>()? {
        // A server's answers that say what is wrong have variants of their own. The rest is a connection that fails, an
        // answer that does not come, or a server that cannot (5xx), after all retries.
        object_store::Error::Generic { store: "S3", .. } => Some(Shortage::Unreachable),
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            Some(Shortage::Denied)
        }
        _ => None,
    }
}

fn of_io(error: &io::Error) -> Option<Shortage> {
    if error.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code)) {
        return Some(Shortage::Descriptors);
    }
    match error.kind() {
        // Files as large as they may be: the process has a limit of them (RLIMIT_FSIZE).
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Some(Shortage::DiskFull)
        }
        io::ErrorKind::OutOfMemory => Some(Shortage::Memory),
        // `EAGAIN`: of what waits for files none says so, only the start of a thread.
        io::ErrorKind::WouldBlock => Some(Shortage::Threads),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Some(Shortage::Denied),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::StorageError;

    #[test]
    fn a_shortage_is_found_however_deep_it_lies() {
        let full = || io::Error::from_raw_os_error(28);
        for (error, expected) in [
            (StorageError::Io(full()), Some(Shortage::DiskFull)),
            (StorageError::Io(io::Error::other(StorageError::Io(full()))), Some(Shortage::DiskFull)),
            (StorageError::Io(io::Error::from_raw_os_error(24)), Some(Shortage::Descriptors)),
            (StorageError::Io(io::Error::from_raw_os_error(5)), None),
            (StorageError::Io(io::Error::from_raw_os_error(11)), Some(Shortage::Threads)),
            (
                StorageError::Store(object_store::Error::Generic { store: "LocalFileSystem", source: full().into() }),
                Some(Shortage::DiskFull),
            ),
            (
                StorageError::Store(object_store::Error::Generic { store: "S3", source: "refused".into() }),
                Some(Shortage::Unreachable),
            ),
            (StorageError::Shared(std::sync::Arc::new(StorageError::Io(full()))), Some(Shortage::DiskFull)),
            (StorageError::gone("another"), Some(Shortage::Gone)),
            (StorageError::Shared(std::sync::Arc::new(StorageError::gone("another"))), Some(Shortage::Gone)),
            (StorageError::Worker, None),
        ] {
            assert_eq!(Shortage::of(&error), expected, "{error:?}");
        }
    }
}
