//! The error type of this crate, and the classification of database errors: temporary failure, damage, or other.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;
use sqlx::migrate::MigrateError;

use super::connection_pool::FileReplacedError;

/// Errors of the metadata database. Unless a variant's comment says otherwise, the call has changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    #[error("cannot open the metadata database {url:?}: {reason}")]
    InvalidUrl { url: String, reason: String },
    #[error("cannot create the parent directory of {path:?}")]
    CreateDirectory { path: String, source: io::Error },
    #[error("cannot open the metadata database {path:?} for reading and writing{}", permission_hint(source))]
    OpenFile { path: String, source: io::Error },
    #[error("{path:?} is another program's database: it has tables, but none of strata's; choose another path")]
    ForeignDatabase { path: String },
    #[error("cannot write a copy of the metadata database to {}", path.display())]
    WriteCopy { path: PathBuf, source: io::Error },
    #[error("the metadata database is not empty; restore the backup into a database without users, datasets, or files")]
    NotEmpty,
    #[error("the owner already has a dataset with this name")]
    NameTaken,
    #[error("a user with this email address already exists")]
    EmailTaken,
    #[error("the user already has a token with this name")]
    TokenNameTaken,
    #[error("the user already has {limit} tokens")]
    TooManyTokens { limit: usize },
    #[error("the plan allows at most {limit} active datasets")]
    TooManyDatasets { limit: u64 },
    #[error("the dataset is frozen")]
    Frozen,
    #[error("the dataset is not frozen")]
    NotFrozen,
    #[error("the dataset has versions")]
    HasVersions,
    #[error("the user has {count} datasets")]
    HasDatasets { count: u64 },
    #[error("the record does not exist")]
    NotFound,
    #[error("the dataset has no such version")]
    NoVersion,
    #[error("the version has no alternate")]
    NoAlternate,
    #[error("the dataset has no webhook")]
    NoWebhook,
    #[error("another refresh of the dataset is running")]
    RefreshRunning,
    /// The refresh attempt has ended, or its lease on the dataset has expired and another attempt has taken over.
    #[error("the refresh has lost its lease on the dataset")]
    LeaseLost,
    /// The path of a new file was not reserved, or its reservation expired and a sweep might have removed the file.
    #[error("the file is not reserved, or its reservation has expired")]
    ReservationLost,
    #[error("the record has changed, or its state does not allow this change")]
    Conflict,
    #[error("{field} is too large: {value}")]
    OutOfRange { field: &'static str, value: u64 },
    #[error("{field} must not contain the character U+0000")]
    NulCharacter { field: &'static str },
    #[error("the metadata database contains an invalid value in {column}: {value:?}")]
    InvalidColumnValue { column: &'static str, value: String },
    /// A record differs from its checksum or is missing. The operator must restore it from a backup.
    #[error("the metadata database is damaged: the record for {record} is missing or does not match its checksum")]
    DamagedRecord { record: String },
    /// A migration failed, for example because a newer version of strata has changed the tables.
    #[error("cannot migrate the metadata database")]
    Migration(#[source] MigrateError),
    /// The metadata database is temporarily unavailable. If a commit failed, the change might still have been made.
    #[error("the metadata database is unavailable: {reason}")]
    Unavailable { reason: UnavailableReason, source: sqlx::Error },
    #[error("the metadata database is damaged{}", damage_hint(file.as_deref()))]
    DamagedDatabase {
        /// The path of the SQLite file if the error occurred while opening it.
        file: Option<String>,
        source: sqlx::Error,
    },
    /// Any other database error. If a commit failed, the change might still have been made.
    #[error("the metadata database returned an error")]
    Database(#[source] sqlx::Error),
}

/// Returns the reason why the process cannot access `file` or its directory. SQLite itself does not report the reason.
fn find_access_error(file: &Path) -> Option<io::Error> {
    let access = |path: &Path| rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).err();
    let is_refusal = |error: &Errno| matches!(*error, Errno::ACCESS | Errno::PERM | Errno::ROFS);
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let failures = [access(file), directory.and_then(access)];
    failures.into_iter().flatten().find(is_refusal).map(Into::into)
}

fn damage_hint(file: Option<&str>) -> String {
    match file {
        Some(file) => format!(" and cannot be opened ({file}); restore it from a backup"),
        None => "; to find the damage, run `strata check`".to_owned(),
    }
}

fn permission_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (strata also needs access to the directory; run strata as the user that owns the file and the directory)"
        }
        _ => "",
    }
}

impl From<sqlx::Error> for CatalogError {
    fn from(source: sqlx::Error) -> CatalogError {
        match DatabaseFailure::classify(&source) {
            Some(DatabaseFailure::Unavailable(reason)) => CatalogError::Unavailable { reason, source },
            Some(DatabaseFailure::Damaged) => CatalogError::DamagedDatabase { file: None, source },
            None => CatalogError::Database(source),
        }
    }
}

impl From<MigrateError> for CatalogError {
    fn from(error: MigrateError) -> CatalogError {
        match error {
            MigrateError::Execute(source) if DatabaseFailure::classify(&source).is_some() => source.into(),
            other => CatalogError::Migration(other),
        }
    }
}

impl CatalogError {
    pub(super) fn invalid_value(column: &'static str, value: impl ToString) -> CatalogError {
        CatalogError::InvalidColumnValue { column, value: value.to_string() }
    }

    pub fn unavailability(&self) -> Option<UnavailableReason> {
        match self {
            CatalogError::Unavailable { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// Returns whether a record, or the page that contains it, is damaged. Such an error is permanent.
    pub fn is_corruption(&self) -> bool {
        matches!(
            self,
            CatalogError::InvalidColumnValue { .. }
                | CatalogError::DamagedRecord { .. }
                | CatalogError::DamagedDatabase { .. }
                | CatalogError::Database(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
        )
    }

    pub(super) fn with_file_context(self, path: &str, file: &Path) -> CatalogError {
        match self {
            CatalogError::Unavailable { reason: UnavailableReason::ResourcesExhausted, .. }
            | CatalogError::Unavailable { reason: UnavailableReason::ReadOnly, .. } => match find_access_error(file) {
                Some(source) => CatalogError::OpenFile { path: path.to_owned(), source },
                None => self,
            },
            CatalogError::DamagedDatabase { source, .. } => {
                CatalogError::DamagedDatabase { file: Some(path.to_owned()), source }
            }
            other => other,
        }
    }
}

/// The reason why the metadata database is temporarily unavailable. Recovery does not need a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnavailableReason {
    /// Another transaction has held a lock for too long, or too many calls are waiting for a connection.
    #[error("it is locked or too busy")]
    Locked,
    #[error("its disk is full")]
    DiskFull,
    #[error("the database server is unreachable or not responding")]
    Unreachable,
    #[error("the database or one of its tables is missing")]
    DatabaseMissing,
    /// The database rejects writes, because its file system is read-only or the server is a standby.
    #[error("it is read-only")]
    ReadOnly,
    #[error("strata is out of memory or file descriptors")]
    ResourcesExhausted,
    /// The SQLite file was deleted or replaced. Calls succeed again when the original file is back, or after a restart.
    #[error("its file was deleted or replaced")]
    FileReplaced,
    #[error("strata is shutting down")]
    ShuttingDown,
}

impl UnavailableReason {
    pub fn retry_after_s(self) -> u64 {
        match self {
            UnavailableReason::Locked => 1,
            UnavailableReason::Unreachable
            | UnavailableReason::ResourcesExhausted
            | UnavailableReason::ShuttingDown => 5,
            UnavailableReason::DiskFull
            | UnavailableReason::ReadOnly
            | UnavailableReason::FileReplaced
            | UnavailableReason::DatabaseMissing => 30,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseFailure {
    Unavailable(UnavailableReason),
    Damaged,
}

impl DatabaseFailure {
    pub(super) fn classify(error: &sqlx::Error) -> Option<DatabaseFailure> {
        use UnavailableReason::{Locked, ShuttingDown, Unreachable};
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code()?;
                // SQLite error codes are integers; PostgreSQL SQLSTATE codes have five characters.
                match code.parse::<i32>() {
                    Ok(code) if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() => {
                        classify_sqlite_code(code, has_file_size_limit)
                    }
                    _ => classify_sqlstate(&code),
                }
            }
            sqlx::Error::PoolTimedOut => Some(DatabaseFailure::Unavailable(Locked)),
            sqlx::Error::PoolClosed => Some(DatabaseFailure::Unavailable(ShuttingDown)),
            sqlx::Error::Tls(_) => Some(DatabaseFailure::Unavailable(Unreachable)),
            sqlx::Error::Io(error) => Some(DatabaseFailure::Unavailable(classify_io_error(error))),
            _ => None,
        }
    }
}

pub(super) fn classify_io_error(error: &io::Error) -> UnavailableReason {
    if error.get_ref().is_some_and(|cause| cause.is::<FileReplacedError>()) {
        return UnavailableReason::FileReplaced;
    }
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    let is_exhausted = matches!(error.raw_os_error(), Some(EMFILE | ENFILE));
    if is_exhausted { UnavailableReason::ResourcesExhausted } else { UnavailableReason::Unreachable }
}

/// Returns whether the operating system limits the size of this process's files (`ulimit -f`).
fn has_file_size_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// Classifies an extended SQLite result code (<https://www.sqlite.org/rescode.html>).
fn classify_sqlite_code(code: i32, has_file_limit: impl Fn() -> bool) -> Option<DatabaseFailure> {
    const IOERR_SHMSIZE: i32 = 4_874;
    const IOERR_NOMEM: i32 = 3_082;
    const IOERR_WRITE: i32 = 778;
    let unavailable = match code {
        // IOERR_SHMSIZE: the shared-memory file of SQLite's write-ahead log cannot grow.
        IOERR_SHMSIZE => UnavailableReason::DiskFull,
        // A full disk is FULL. At the process's file size limit, SQLite reports IOERR_WRITE, as for a failing disk.
        IOERR_WRITE if has_file_limit() => UnavailableReason::DiskFull,
        IOERR_NOMEM => UnavailableReason::ResourcesExhausted,
        _ => match code & 0xff {
            // SQLite's BUSY, LOCKED, PROTOCOL.
            5 | 6 | 15 => UnavailableReason::Locked,
            // SQLite's NOMEM, CANTOPEN.
            7 | 14 => UnavailableReason::ResourcesExhausted,
            8 => UnavailableReason::ReadOnly,
            13 => UnavailableReason::DiskFull,
            // SQLite's CORRUPT, NOTADB.
            11 | 26 => return Some(DatabaseFailure::Damaged),
            _ => return None,
        },
    };
    Some(DatabaseFailure::Unavailable(unavailable))
}

/// Classifies an SQLSTATE code (PostgreSQL manual, appendix "PostgreSQL Error Codes").
fn classify_sqlstate(code: &str) -> Option<DatabaseFailure> {
    let unavailable = match code {
        // PostgreSQL's lock_not_available, deadlock_detected, serialization_failure, query_canceled.
        "55P03" | "40P01" | "40001" | "57014" => UnavailableReason::Locked,
        "53100" => UnavailableReason::DiskFull,
        // PostgreSQL's too_many_connections, cannot_connect_now, and terminated sessions.
        "53300" | "57P01" | "57P02" | "57P03" | "57P05" => UnavailableReason::Unreachable,
        // PostgreSQL's undefined_table, invalid_catalog_name, invalid_schema_name.
        "42P01" | "3D000" | "3F000" => UnavailableReason::DatabaseMissing,
        "25006" => UnavailableReason::ReadOnly,
        "53200" => UnavailableReason::ResourcesExhausted,
        // PostgreSQL's data_corrupted, index_corrupted.
        "XX001" | "XX002" => return Some(DatabaseFailure::Damaged),
        _ if code.starts_with("08") => UnavailableReason::Unreachable,
        _ => return None,
    };
    Some(DatabaseFailure::Unavailable(unavailable))
}

#[cfg(test)]
mod tests {
    use super::UnavailableReason::{DatabaseMissing, DiskFull, Locked, ReadOnly, ShuttingDown, Unreachable};
    use super::*;

    #[test]
    fn error_codes_are_classified() {
        let temporary = |reason| Some(DatabaseFailure::Unavailable(reason));
        // SQLite's BUSY, BUSY_SNAPSHOT, FULL, READONLY, CORRUPT_INDEX, NOTADB, IOERR_FSYNC, CONSTRAINT_UNIQUE,
        // IOERR_WRITE.
        let codes = [5, 517, 13, 8, 779, 26, 1_034, 2_067, 778];
        let expected = [Locked, Locked, DiskFull, ReadOnly].map(temporary);
        let actual = codes.map(|code| classify_sqlite_code(code, || false));
        assert_eq!(actual[..4], expected);
        assert_eq!(actual[4..], [Some(DatabaseFailure::Damaged), Some(DatabaseFailure::Damaged), None, None, None]);
        // If the process has a file size limit, IOERR_WRITE means that the file has reached it.
        assert_eq!(classify_sqlite_code(778, || true), temporary(DiskFull));
        assert_eq!(DatabaseFailure::classify(&sqlx::Error::PoolClosed), temporary(ShuttingDown));
        for (code, expected) in [
            ("55P03", temporary(Locked)),
            ("08006", temporary(Unreachable)),
            ("42P01", temporary(DatabaseMissing)),
            ("3D000", temporary(DatabaseMissing)),
            ("XX001", Some(DatabaseFailure::Damaged)),
            ("23505", None),
            ("42601", None),
        ] {
            assert_eq!(classify_sqlstate(code), expected, "{code}");
        }
    }
}
