//! The meaning of a database error: whether it is temporary, and what an operator should look at.

use std::io;

use super::link::Replaced;

/// Why the catalog cannot be used at the moment. It works again without a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailability {
    /// Another transaction, perhaps of another process, has held a lock for too long, or too many calls wait.
    #[error("its database is locked, or too busy")]
    Locked,
    #[error("its disk is full")]
    Full,
    /// The database server cannot be reached, does not answer, or does not take this process's connections.
    #[error("its database server cannot be reached, or does not answer")]
    Unreachable,
    /// The server has no such database, or the database has not the catalog's tables: it was dropped, or replaced.
    #[error("its database, or a table of it, is missing")]
    Missing,
    /// The database takes no writes: its disk is mounted for reading, or the server is a standby.
    #[error("its database is read-only")]
    ReadOnly,
    #[error("there is no memory or file descriptor left for it")]
    Exhausted,
    /// Ends when the same file has its name again, or with a restart.
    #[error("its file was removed or replaced")]
    Replaced,
    #[error("it is closed, because the process ends")]
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

/// What an error of the database means, if it means one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Unavailable(Unavailability),
    Damaged,
}

impl Failure {
    /// `None` for all others.
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

    /// Whether a server is away, and nothing of this process is missing.
    pub(super) fn is_connection(error: &io::Error) -> bool {
        of_connection(error) == Unavailability::Unreachable
    }
}

fn of_connection(error: &io::Error) -> Unavailability {
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
            // READONLY.
            8 => Unavailability::ReadOnly,
            // FULL.
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
        // disk_full.
        "53100" => Unavailability::Full,
        // too_many_connections, cannot_connect_now, and the ends of sessions.
        "53300" | "57P01" | "57P02" | "57P03" | "57P05" => Unavailability::Unreachable,
        // undefined_table, invalid_catalog_name, invalid_schema_name.
        "42P01" | "3D000" | "3F000" => Unavailability::Missing,
        // read_only_sql_transaction.
        "25006" => Unavailability::ReadOnly,
        // out_of_memory.
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
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        for (code, expected) in [
            (5, Some(Failure::Unavailable(Unavailability::Locked))),
            // BUSY_SNAPSHOT.
            (517, Some(Failure::Unavailable(Unavailability::Locked))),
            (13, Some(Failure::Unavailable(Unavailability::Full))),
            (8, Some(Failure::Unavailable(Unavailability::ReadOnly))),
            // CORRUPT_INDEX.
            (779, Some(Failure::Damaged)),
            (26, Some(Failure::Damaged)),
            // IOERR_FSYNC, CONSTRAINT_UNIQUE.
            (1_034, None),
            (2_067, None),
        ] {
            assert_eq!(of_sqlite(code, || false), expected, "{code}");
        }
        // IOERR_WRITE, without and with a limit for the size of files.
        assert_eq!(of_sqlite(778, || false), None);
        assert_eq!(of_sqlite(778, || true), Some(Failure::Unavailable(Unavailability::Full)));
        // It was told as a database server that does not answer, also of an SQLite file.
        let closed = Failure::of(&sqlx::Error::PoolClosed);
        assert_eq!(closed, Some(Failure::Unavailable(Unavailability::Closed)));
        for (code, expected) in [
            ("55P03", Some(Failure::Unavailable(Unavailability::Locked))),
            ("08006", Some(Failure::Unavailable(Unavailability::Unreachable))),
            ("42P01", Some(Failure::Unavailable(Unavailability::Missing))),
            ("3D000", Some(Failure::Unavailable(Unavailability::Missing))),
            ("XX001", Some(Failure::Damaged)),
            ("23505", None),
            ("42601", None),
        ] {
            assert_eq!(of_sqlstate(code), expected, "{code}");
        }
    }
}
