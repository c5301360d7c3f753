//! Classification of errors that are not caused by the data: a resource is exhausted or unavailable, and the same call
//! succeeds when the resource is available again.
//!
//! Problem: a full disk arrives as an [`io::Error`] that libraries have wrapped several times, and callers must not
//! report it as a damaged file or as an error in the request. [`ResourceUnavailable::from_error`] searches the chain of
//! causes:
//!
//! ```
//! # use std::io;
//! # use strata_store::StorageError;
//! # use strata_store::unavailable::ResourceUnavailable;
//! let full = StorageError::Io(io::ErrorKind::StorageFull.into());
//! assert_eq!(ResourceUnavailable::from_error(&full), Some(ResourceUnavailable::DiskFull));
//! let damaged = StorageError::InvalidFile("it cannot be decoded".to_owned());
//! assert_eq!(ResourceUnavailable::from_error(&damaged), None);
//! ```

use std::error::Error;
use std::io;

use super::{DataDirectoryMissingError, StorageError, StoreMissingError, StoreUnresponsiveError, TempDirUnusableError};

/// Cause of an error that is not in the data. The text is for users: it names no path and no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceUnavailable {
    #[error("a disk is full")]
    DiskFull,
    #[error("no file descriptors are left")]
    FileDescriptors,
    #[error("the system is out of memory")]
    Memory,
    #[error("the system cannot start another thread: it has run out of memory or reached its thread limit")]
    Threads,
    #[error("access to the disk is denied")]
    DiskAccessDenied,
    /// An S3 store rejected a request because the credentials lack the permission; `None` if the permission is unknown.
    #[error("the S3 version file store denied access: the credentials lack {}", describe_missing_permission(*.0))]
    StorePermissionDenied(Option<&'static str>),
    #[error("the S3 version file store rejected the credentials")]
    StoreCredentialsRejected,
    #[error("the version file store is not responding")]
    StoreUnreachable,
    #[error("the version file store is missing")]
    StoreMissing,
    #[error("the data directory is missing")]
    DataDirectoryMissing,
    #[error("the directory for temporary files cannot be used{}", temp_dir_problem(*.0))]
    TempDirUnusable(io::ErrorKind),
}

/// The numbers of `ENFILE` and `EMFILE` (too many open files), which have no `io::ErrorKind`.
const DESCRIPTOR_LIMIT_ERRNOS: [i32; 2] = [23, 24];

impl ResourceUnavailable {
    /// Returns the classification of an error: of the first error in its chain of causes that can be classified.
    pub fn from_error(error: &(dyn Error + 'static)) -> Option<ResourceUnavailable> {
        classify_error(error).or_else(|| {
            // `io::Error::source` skips the error that an `io::Error` wraps.
            match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(wrapped) => ResourceUnavailable::from_error(wrapped),
                None => ResourceUnavailable::from_error(error.source()?),
            }
        })
    }

    /// Seconds until a client should repeat its request, for the response header `Retry-After`.
    pub fn retry_after_s(self) -> u64 {
        match self {
            ResourceUnavailable::DiskFull
            | ResourceUnavailable::DiskAccessDenied
            | ResourceUnavailable::StorePermissionDenied(_)
            | ResourceUnavailable::StoreCredentialsRejected
            | ResourceUnavailable::TempDirUnusable(_) => 30,
            _ => 5,
        }
    }
}

impl StorageError {
    /// Returns whether the file itself is damaged or unreadable. Readers then use redundant parts of the file, if any.
    pub fn is_file_damage(&self) -> bool {
        match self {
            StorageError::Damaged { .. } => true,
            StorageError::Unreadable { .. } => ResourceUnavailable::from_error(self).is_none(),
            StorageError::Shared(error) => error.is_file_damage(),
            _ => false,
        }
    }
}

fn classify_error(error: &(dyn Error + 'static)) -> Option<ResourceUnavailable> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return classify_io_error(error);
    }
    if error.is::<StoreMissingError>() {
        return Some(ResourceUnavailable::StoreMissing);
    }
    if error.is::<StoreUnresponsiveError>() {
        return Some(ResourceUnavailable::StoreUnreachable);
    }
    if error.is::<DataDirectoryMissingError>() {
        return Some(ResourceUnavailable::DataDirectoryMissing);
    }
    if let Some(TempDirUnusableError { cause, .. }) = error.downcast_ref::<TempDirUnusableError>() {
        return Some(classify_temp_dir_error(cause));
    }
    match error.downcast_ref::<object_store::Error>()? {
        // S3 errors that the client caused have other variants. A generic error is a connection failure, a timeout, or
        // a server error.
        object_store::Error::Generic { store: "S3", .. } => Some(ResourceUnavailable::StoreUnreachable),
        object_store::Error::PermissionDenied { source, .. } => Some(classify_s3_denial(&source.to_string())),
        object_store::Error::Unauthenticated { .. } => Some(ResourceUnavailable::StoreCredentialsRejected),
        _ => None,
    }
}

fn classify_temp_dir_error(cause: &io::Error) -> ResourceUnavailable {
    match ResourceUnavailable::from_error(cause) {
        Some(unavailable) if unavailable != ResourceUnavailable::DiskAccessDenied => unavailable,
        _ => ResourceUnavailable::TempDirUnusable(cause.kind()),
    }
}

const S3_ERROR_PREFIX: &str = "Error performing ";

/// Classifies a 403 response of an S3 server. Only the error text of the client library is available: method, URL, and
/// response body.
fn classify_s3_denial(text: &str) -> ResourceUnavailable {
    const CREDENTIAL_ERROR_CODES: [&str; 5] = [
        "<Code>InvalidAccessKeyId</Code>",
        "<Code>SignatureDoesNotMatch</Code>",
        "<Code>RequestTimeTooSkewed</Code>",
        "<Code>InvalidToken</Code>",
        "<Code>ExpiredToken</Code>",
    ];
    if CREDENTIAL_ERROR_CODES.iter().any(|code| text.contains(code)) {
        return ResourceUnavailable::StoreCredentialsRejected;
    }
    let mut words = text.strip_prefix(S3_ERROR_PREFIX).unwrap_or_default().split(' ');
    let method = words.next().unwrap_or_default();
    let url = words.next().unwrap_or_default();
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let has_parameter = |parameter: &str| query.split('&').any(|pair| pair.split('=').next() == Some(parameter));
    ResourceUnavailable::StorePermissionDenied(match method {
        "GET" if has_parameter("list-type") => Some("s3:ListBucket"),
        "GET" | "HEAD" => Some("s3:GetObject"),
        "DELETE" if has_parameter("uploadId") => Some("s3:AbortMultipartUpload"),
        "DELETE" => Some("s3:DeleteObject"),
        "POST" if has_parameter("delete") => Some("s3:DeleteObject"),
        "PUT" | "POST" => Some("s3:PutObject"),
        _ => None,
    })
}

/// The message of a `tokio::fs` error if no thread could be started.
const TASK_FAILED_MESSAGE: &str = "background task failed";

fn classify_io_error(error: &io::Error) -> Option<ResourceUnavailable> {
    if error.raw_os_error().is_some_and(|code| DESCRIPTOR_LIMIT_ERRNOS.contains(&code)) {
        return Some(ResourceUnavailable::FileDescriptors);
    }
    match error.kind() {
        // `FileTooLarge` means that the file reached the limit of the process (RLIMIT_FSIZE).
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Some(ResourceUnavailable::DiskFull)
        }
        io::ErrorKind::OutOfMemory => Some(ResourceUnavailable::Memory),
        // `EAGAIN` means that a thread could not be started: all files are in blocking mode.
        io::ErrorKind::WouldBlock => Some(ResourceUnavailable::Threads),
        io::ErrorKind::Other if error.get_ref().is_some_and(|inner| inner.to_string() == TASK_FAILED_MESSAGE) => {
            Some(ResourceUnavailable::Threads)
        }
        // The S3 client can report a failed request as such an I/O error, too.
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            let text = error.get_ref().map(ToString::to_string).filter(|text| text.starts_with(S3_ERROR_PREFIX));
            Some(text.map_or(ResourceUnavailable::DiskAccessDenied, |text| classify_s3_denial(&text)))
        }
        _ => None,
    }
}

fn temp_dir_problem(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => ": its path is not a directory",
        io::ErrorKind::PermissionDenied => ": access to the disk is denied",
        io::ErrorKind::ReadOnlyFilesystem => ": the disk is read-only",
        _ => "",
    }
}

fn describe_missing_permission(permission: Option<&str>) -> String {
    permission.map_or_else(|| "a permission".to_owned(), |permission| format!("the permission {permission}"))
}
