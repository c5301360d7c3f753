//! Where tests end the process: named points in the code at which it can die as if it were killed, so that a test can
//! restart it and look at what is left.
//!
//! A point costs nothing, and does nothing, in a release build. In a debug build the process ends at the point that the
//! environment variable `CRASH_AT` names, by SIGKILL: without unwinding, destructors or a last write.

/// Every point, in the order in which a refresh, an alternate and a rollback pass them.
pub const POINTS: [&str; 12] = [
    // A refresh: the dataset is held, and a path reserved.
    "refresh.leased",
    // All entities are decoded.
    "refresh.spooled",
    // A file, of a version or an alternate, is written in part.
    "file.writing",
    // The file is there, and no record names it.
    "file.written",
    // The version is recorded in a transaction that is still open.
    "publish.uncommitted",
    // The version is there, and nobody has been told.
    "publish.committed",
    // The webhook is claimed and not sent.
    "delivery.claimed",
    // The webhook is sent, and its outcome is not recorded.
    "delivery.sent",
    // An alternate or a rollback, before and after its commit.
    "alternate.uncommitted",
    "alternate.committed",
    "rollback.uncommitted",
    "rollback.committed",
];

/// Ends the process here if it was started to end at this point.
#[cfg(debug_assertions)]
pub fn point(name: &'static str) {
    use std::sync::LazyLock;

    static CRASH_AT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("CRASH_AT").ok());

    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    if CRASH_AT.as_deref() == Some(name) {
        // Without `unsafe` only another process can send SIGKILL: a shell, to its parent.
        let sent = std::process::Command::new("sh").args(["-c", "kill -KILL $PPID"]).status();
        // It has not come: this end leaves no more behind.
        drop(sent);
        std::process::abort();
    }
}

/// Nothing, in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_name: &'static str) {}
