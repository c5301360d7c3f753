//! The points at which tests end the process. At such a named point it can die as if it were killed. A test then
//! restarts it and checks the state that is left.
//!
//! In a release build a point costs nothing and does nothing. In a debug build the environment variable `CRASH_AT`
//! names a point. The process ends there by SIGKILL: without unwinding, destructors or a last write.

/// Every point, in the order in which a refresh, an alternate and a rollback pass them.
pub const POINTS: [&str; 12] = [
    // A refresh: the dataset is held, and a path is reserved.
    "refresh.leased",
    // All entities are decoded.
    "refresh.spooled",
    // A file, of a version or an alternate, is written in part.
    "file.writing",
    // The file is there, and no record names it.
    "file.written",
    // The version is recorded in a transaction that is still open.
    "publish.uncommitted",
    // The version is committed, and no webhook is sent.
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
        // The signal has not come. This end is as abrupt.
        drop(sent);
        std::process::abort();
    }
}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_name: &'static str) {}
