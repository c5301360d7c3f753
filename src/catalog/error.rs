//! What can go wrong in the catalog, and the meaning of a database error: whether it is temporary, and what an operator
//! should look at.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;
use sqlx::migrate::MigrateError;

use super::link::Replaced;

/// Why the catalog did not do what was asked. Unless a variant says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    #[error("cannot open the metadata database {url:?}: {reason}")]
    InvalidUrl { url: String, reason: String },
    #[error("cannot create the parent directory of {path:?}")]
    Directory { path: String, source: io::Error },
    #[error("cannot open the metadata database {path:?} for reading and writing{}", whose(source))]
    File { path: String, source: io::Error },
    #[error("{path:?} is another program's database: it has tables, but none of strata's; choose another path")]
    Foreign { path: String },
    #[error("cannot write a copy of the metadata database to {}", path.display())]
    Copy { path: PathBuf, source: io::Error },
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
    PlanLimit { limit: u64 },
    #[error("the dataset is frozen")]
    Frozen,
    #[error("the dataset is not frozen")]
    NotFrozen,
    #[error("the dataset has versions")]
    HasVersions,
    #[error("the user has {count} datasets")]
    HasDatasets { count: u64 },
    /// There is no such user, dataset, token or session.
    #[error("the record does not exist")]
    NotFound,
    #[error("the dataset has no such version")]
    NoVersion,
    #[error("the version has no alternate")]
    NoAlternate,
    #[error("the dataset has no webhook")]
    NoWebhook,
    #[error("another refresh of the dataset is running")]
    Busy,
    /// The refresh no longer holds its dataset. It has ended, or its lease has expired and another refresh took over.
    #[error("the refresh has lost its lease on the dataset")]
    LeaseLost,
    /// The path was never reserved, or the reservation expired and a sweep may have removed the file.
    #[error("the file is not reserved, or its reservation has expired")]
    ReservationLost,
    #[error("the record has changed, or its state does not allow this change")]
    Conflict,
    #[error("{field} is too large: {value}")]
    OutOfRange { field: &'static str, value: u64 },
    #[error("{field} must not contain the character U+0000")]
    Nul { field: &'static str },
    /// A record holds a value that this version of the service does not understand.
    #[error("the metadata database contains an invalid value in {column}: {value:?}")]
    Corrupt { column: &'static str, value: String },
    /// A record is not what was written, or is missing. Restore it from a backup.
    #[error("the metadata database is damaged: the record for {record} is missing or does not match its checksum")]
    Unverified { record: String },
    /// The tables cannot be brought up to date, for instance because a newer version of the service has changed them.
    #[error("cannot migrate the metadata database")]
    Migration(#[source] MigrateError),
    /// The database cannot be used at the moment. After a failed commit the change may have been made.
    #[error("the metadata database is unavailable: {reason}")]
    Unavailable { reason: Unavailability, source: sqlx::Error },
    #[error("the metadata database is damaged{}", damaged(file.as_deref()))]
    Damaged {
        /// The SQLite file, where it does not open.
        file: Option<String>,
        source: sqlx::Error,
    },
    /// The database failed. After a failed commit the change may have been made.
    #[error("the metadata database returned an error")]
    Database(#[source] sqlx::Error),
}

/// Why a file, or its directory, does not allow what SQLite does with them: it tells no reason itself.
fn unusable(file: &Path) -> Option<io::Error> {
    let access = |path: &Path| rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).err();
    let is_refusal = |error: &Errno| matches!(*error, Errno::ACCESS | Errno::PERM | Errno::ROFS);
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let failures = [access(file), directory.and_then(access)];
    failures.into_iter().flatten().find(is_refusal).map(Into::into)
}

/// What to do about a database that is damaged: of one that does not open, no check can say more.
fn damaged(file: Option<&str>) -> String {
    match file {
        Some(file) => format!(" and cannot be opened ({file}); restore it from a backup"),
        None => "; to find the damage, run `strata check`".to_owned(),
    }
}

fn whose(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (strata also needs access to the directory; run strata as the user that owns the file and the directory)"
        }
        _ => "",
    }
}

impl From<sqlx::Error> for CatalogError {
    fn from(source: sqlx::Error) -> CatalogError {
        match Failure::of(&source) {
            Some(Failure::Unavailable(reason)) => CatalogError::Unavailable { reason, source },
            Some(Failure::Damaged) => CatalogError::Damaged { file: None, source },
            None => CatalogError::Database(source),
        }
    }
}

impl From<MigrateError> for CatalogError {
    fn from(error: MigrateError) -> CatalogError {
        match error {
            MigrateError::Execute(source) if Failure::of(&source).is_some() => source.into(),
            other => CatalogError::Migration(other),
        }
    }
}

impl CatalogError {
    /// Why the catalog cannot be used, if the problem is temporary.
    pub fn unavailability(&self) -> Option<Unavailability> {
        match self {
            CatalogError::Unavailable { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// Whether a record, or the pages that hold it, is at fault. Such an error is permanent.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            CatalogError::Corrupt { .. }
                | CatalogError::Unverified { .. }
                | CatalogError::Damaged { .. }
                | CatalogError::Database(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
        )
    }

    /// As an error of opening this SQLite file at `file`.
    pub(super) fn of_file(self, path: &str, file: &Path) -> CatalogError {
        match self {
            CatalogError::Unavailable { reason: Unavailability::Exhausted, .. }
            | CatalogError::Unavailable { reason: Unavailability::ReadOnly, .. } => match unusable(file) {
                Some(source) => CatalogError::File { path: path.to_owned(), source },
                None => self,
            },
            CatalogError::Damaged { source, .. } => CatalogError::Damaged { file: Some(path.to_owned()), source },
            other => other,
        }
    }
}

/// Why the catalog cannot be used at the moment. It works again without a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailability {
    /// Another transaction, perhaps of another process, has held a lock for too long, or too many calls wait.
    #[error("it is locked or too busy")]
    Locked,
    #[error("its disk is full")]
    Full,
    /// The database server cannot be reached, does not answer, or does not take this process's connections.
    #[error("the database server is unreachable or not responding")]
    Unreachable,
    /// The server has no such database, or the database has not the catalog's tables: it was dropped, or replaced.
    #[error("the database or one of its tables is missing")]
    Missing,
    /// The database takes no writes: its disk is mounted for reading, or the server is a standby.
    #[error("it is read-only")]
    ReadOnly,
    #[error("strata is out of memory or file descriptors")]
    Exhausted,
    /// Ends when the same file has its name again, or with a restart.
    #[error("its file was deleted or replaced")]
    Replaced,
    #[error("strata is shutting down")]
    Closed,
}

impl Unavailability {
    /// Seconds after which a caller should try again.
    pub fn retry_after_s(self) -> u64 {
        match self {
            Unavailability::Locked => 1,
            Unavailability::Unreachable | Unavailability::Exhausted | Unavailability::Closed => 5,
            Unavailability::Full | Unavailability::ReadOnly | Unavailability::Replaced | Unavailability::Missing => 30,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Unavailable(Unavailability),
    Damaged,
}

impl Failure {
    pub(super) fn of(error: &sqlx::Error) -> Option<Failure> {
        use Unavailability::{Closed, Locked, Unreachable};
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code()?;
                // The codes of SQLite are numbers, those of PostgreSQL have five characters.
                match code.parse::<i32>() {
                    Ok(code) if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() => {
                        of_sqlite(code, has_file_limit)
                    }
                    _ => of_sqlstate(&code),
                }
            }
            sqlx::Error::PoolTimedOut => Some(Failure::Unavailable(Locked)),
            sqlx::Error::PoolClosed => Some(Failure::Unavailable(Closed)),
            sqlx::Error::Tls(_) => Some(Failure::Unavailable(Unreachable)),
            sqlx::Error::Io(error) => Some(Failure::Unavailable(of_connection(error))),
            _ => None,
        }
    }
}

pub(super) fn of_connection(error: &io::Error) -> Unavailability {
    if error.get_ref().is_some_and(|cause| cause.is::<Replaced>()) {
        return Unavailability::Replaced;
    }
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    let is_exhausted = matches!(error.raw_os_error(), Some(EMFILE | ENFILE));
    if is_exhausted { Unavailability::Exhausted } else { Unavailability::Unreachable }
}

/// Whether the files of this process have a largest size (`ulimit -f`).
fn has_file_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// Of an extended result code (<https://www.sqlite.org/rescode.html>).
fn of_sqlite(code: i32, has_file_limit: impl Fn() -> bool) -> Option<Failure> {
    const IOERR_SHMSIZE: i32 = 4_874;
    const IOERR_NOMEM: i32 = 3_082;
    const IOERR_WRITE: i32 = 778;
    let unavailable = match code {
        // The shared memory beside the log cannot grow.
        IOERR_SHMSIZE => Unavailability::Full,
        // SQLite tells a full disk alone as FULL. A file as large as the process may make them is this, as is a disk
        // that fails.
        IOERR_WRITE if has_file_limit() => Unavailability::Full,
        IOERR_NOMEM => Unavailability::Exhausted,
        _ => match code & 0xff {
            // BUSY, LOCKED, PROTOCOL: the locks of the log.
            5 | 6 | 15 => Unavailability::Locked,
            // NOMEM, CANTOPEN.
            7 | 14 => Unavailability::Exhausted,
            8 => Unavailability::ReadOnly,
            13 => Unavailability::Full,
            // CORRUPT, NOTADB.
            11 | 26 => return Some(Failure::Damaged),
            _ => return None,
        },
    };
    Some(Failure::Unavailable(unavailable))
}

/// Of a code of PostgreSQL (its manual, "PostgreSQL Error Codes").
fn of_sqlstate(code: &str) -> Option<Failure> {
    let unavailable = match code {
        // lock_not_available, deadlock_detected, serialization_failure, query_canceled.
        "55P03" | "40P01" | "40001" | "57014" => Unavailability::Locked,
        "53100" => Unavailability::Full,
        // too_many_connections, cannot_connect_now, and the ends of sessions.
        "53300" | "57P01" | "57P02" | "57P03" | "57P05" => Unavailability::Unreachable,
        // undefined_table, invalid_catalog_name, invalid_schema_name.
        "42P01" | "3D000" | "3F000" => Unavailability::Missing,
        "25006" => Unavailability::ReadOnly,
        "53200" => Unavailability::Exhausted,
        // data_corrupted, index_corrupted.
        "XX001" | "XX002" => return Some(Failure::Damaged),
        _ if code.starts_with("08") => Unavailability::Unreachable,
        _ => return None,
    };
    Some(Failure::Unavailable(unavailable))
}

#[cfg(test)]
mod tests {
    use super::Unavailability::{Closed, Full, Locked, Missing, ReadOnly, Unreachable};
    use super::*;

    #[test]
    fn temporary_errors_differ_from_damage() {
        let temporary = |reason| Some(Failure::Unavailable(reason));
        // BUSY, BUSY_SNAPSHOT, FULL, READONLY, CORRUPT_INDEX, NOTADB, IOERR_FSYNC, CONSTRAINT_UNIQUE, IOERR_WRITE.
        let codes = [5, 517, 13, 8, 779, 26, 1_034, 2_067, 778];
        let expected = [Locked, Locked, Full, ReadOnly].map(temporary);
        let found = codes.map(|code| of_sqlite(code, || false));
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [Some(Failure::Damaged), Some(Failure::Damaged), None, None, None]);
        // With a limit for the size of files.
        assert_eq!(of_sqlite(778, || true), temporary(Full));
        assert_eq!(Failure::of(&sqlx::Error::PoolClosed), temporary(Closed));
        for (code, expected) in [
            ("55P03", temporary(Locked)),
            ("08006", temporary(Unreachable)),
            ("42P01", temporary(Missing)),
            ("3D000", temporary(Missing)),
            ("XX001", Some(Failure::Damaged)),
            ("23505", None),
            ("42601", None),
        ] {
            assert_eq!(of_sqlstate(code), expected, "{code}");
        }
    }
}
