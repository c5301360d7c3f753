//! What an error of a disk or a store means when the fault is not in the data: something is used up or gone, and the
//! same call works again when it is back.

use std::error::Error;
use std::io;

use super::{DirectoryGone, NoTemporaryFiles, StorageError, StoreGone, StoreSilent};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    #[error("a disk is full")]
    DiskFull,
    #[error("no file descriptors are left")]
    Descriptors,
    #[error("the system is out of memory")]
    Memory,
    #[error("the system cannot start another thread: it has run out of memory or reached its thread limit")]
    Threads,
    /// The disk takes no writes, or does not let this process read.
    #[error("access to the disk is denied")]
    Denied,
    /// An S3 store refuses a request, for which the credentials lack this permission, where that is known.
    #[error("the S3 version file store denied access: the credentials lack {}", lacked(*.0))]
    Forbidden(Option<&'static str>),
    #[error("the S3 version file store rejected the credentials")]
    Credentials,
    /// The store does not answer, or answers that it cannot.
    #[error("the version file store is not responding")]
    Unreachable,
    #[error("the version file store is missing")]
    Gone,
    #[error("the data directory is missing")]
    NoDirectory,
    /// The directory of temporary files cannot be used, for another reason than those above.
    #[error("the directory for temporary files cannot be used{}", unusable(*.0))]
    NoTemporaryFiles(io::ErrorKind),
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

    pub fn retry_after_s(self) -> u64 {
        match self {
            Shortage::Descriptors
            | Shortage::Memory
            | Shortage::Threads
            | Shortage::Unreachable
            | Shortage::Gone
            | Shortage::NoDirectory => 5,
            Shortage::DiskFull
            | Shortage::Denied
            | Shortage::Forbidden(_)
            | Shortage::Credentials
            | Shortage::NoTemporaryFiles(_) => 30,
        }
    }
}

fn unusable(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => ": its path is not a directory",
        io::ErrorKind::PermissionDenied => ": access to the disk is denied",
        io::ErrorKind::ReadOnlyFilesystem => ": the disk is read-only",
        // The log tells the cause.
        _ => "",
    }
}

fn lacked(permission: Option<&str>) -> String {
    permission.map_or_else(|| "a permission".to_owned(), |permission| format!("the permission {permission}"))
}

impl StorageError {
    /// Whether it is the file's fault: bytes are not those that were written, or the store never gives them. What other
    /// parts of the file tell, too, can be done without then.
    pub fn is_damage(&self) -> bool {
        match self {
            StorageError::Damaged { .. } => true,
            StorageError::Unreadable { .. } => Shortage::of(self).is_none(),
            StorageError::Shared(error) => error.is_damage(),
            _ => false,
        }
    }
}

fn of_one(error: &(dyn Error + 'static)) -> Option<Shortage> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return of_io(error);
    }
    if error.is::<StoreGone>() {
        return Some(Shortage::Gone);
    }
    if error.is::<StoreSilent>() {
        return Some(Shortage::Unreachable);
    }
    if error.is::<DirectoryGone>() {
        return Some(Shortage::NoDirectory);
    }
    if let Some(NoTemporaryFiles { cause, .. }) = error.downcast_ref::<NoTemporaryFiles>() {
        return Some(of_temporary_files(cause));
    }
    match error.downcast_ref::<object_store::Error>()? {
        // A server's answers that say what is wrong have variants of their own. The rest is a connection that fails, an
        // answer that does not come, or a server that cannot (5xx), after all retries.
        object_store::Error::Generic { store: "S3", .. } => Some(Shortage::Unreachable),
        object_store::Error::PermissionDenied { source, .. } => Some(of_refusal(&source.to_string())),
        object_store::Error::Unauthenticated { .. } => Some(Shortage::Credentials),
        _ => None,
    }
}

/// What it means that the directory of temporary files takes none: any error of it passes when it is put right.
fn of_temporary_files(cause: &io::Error) -> Shortage {
    match Shortage::of(cause) {
        Some(shortage) if shortage != Shortage::Denied => shortage,
        _ => Shortage::NoTemporaryFiles(cause.kind()),
    }
}

const FAILED_REQUEST: &str = "Error performing ";

/// What an S3 server means that refuses a request with 403. The client's text is all that can be asked: method, URL,
/// and the server's answer.
fn of_refusal(text: &str) -> Shortage {
    const CREDENTIALS: [&str; 5] = [
        "<Code>InvalidAccessKeyId</Code>",
        "<Code>SignatureDoesNotMatch</Code>",
        "<Code>RequestTimeTooSkewed</Code>",
        "<Code>InvalidToken</Code>",
        "<Code>ExpiredToken</Code>",
    ];
    if CREDENTIALS.iter().any(|code| text.contains(code)) {
        return Shortage::Credentials;
    }
    let mut words = text.strip_prefix(FAILED_REQUEST).unwrap_or_default().split(' ');
    let method = words.next().unwrap_or_default();
    let url = words.next().unwrap_or_default();
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let asks = |parameter: &str| query.split('&').any(|asked| asked.split('=').next() == Some(parameter));
    Shortage::Forbidden(match method {
        "GET" if asks("list-type") => Some("s3:ListBucket"),
        "GET" | "HEAD" => Some("s3:GetObject"),
        "DELETE" if asks("uploadId") => Some("s3:AbortMultipartUpload"),
        "DELETE" => Some("s3:DeleteObject"),
        "POST" if asks("delete") => Some("s3:DeleteObject"),
        "PUT" | "POST" => Some("s3:PutObject"),
        _ => None,
    })
}

/// What the runtime's files say where no thread could be started for them.
const TASK_NOT_STARTED: &str = "background task failed";

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
        io::ErrorKind::Other if error.get_ref().is_some_and(|inner| inner.to_string() == TASK_NOT_STARTED) => {
            Some(Shortage::Threads)
        }
        // The client of S3 may tell of its requests in this form, too.
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            let text = error.get_ref().map(ToString::to_string).filter(|text| text.starts_with(FAILED_REQUEST));
            Some(text.map_or(Shortage::Denied, |text| of_refusal(&text)))
        }
        _ => None,
    }
}
