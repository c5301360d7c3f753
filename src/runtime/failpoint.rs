//! Fail points at which tests kill the process. A test then restarts the process and checks the remaining state.
//!
//! In a debug build, the environment variable `CRASH_AT` names the fail point at which the process receives SIGKILL:
//! without unwinding, destructors, or further writes. In a release build, fail points do nothing.
//!
//! For example, with `CRASH_AT=publish.committed`, a refresh commits a version and the process ends before it sends a
//! webhook.

/// All fail points, in the order in which a refresh, a save of an alternate (edited copy), a rollback, and a compaction
/// reach them.
pub const FAILPOINTS: [&str; 14] = [
    // A refresh has acquired the lease of its dataset and reserved a path.
    "refresh.leased",
    "refresh.spooled",
    // The file of a version or of an alternate (edited copy) is partially written.
    "file.writing",
    // A version file is complete, but no record refers to it.
    "file.written",
    // A version is recorded in an open transaction.
    "publish.uncommitted",
    // A version is committed, but its webhook is not sent.
    "publish.committed",
    // A webhook is claimed, but not sent.
    "delivery.claimed",
    // A webhook is sent, but its outcome is not recorded.
    "delivery.sent",
    // The points before and after the commit of a saved alternate (edited copy of a version) or of a rollback.
    "alternate.uncommitted",
    "alternate.committed",
    "rollback.uncommitted",
    "rollback.committed",
    // The points before and after the commit of a compaction, which replaces the file of a version.
    "compact.uncommitted",
    "compact.committed",
];

/// Kills the process if `CRASH_AT` names this fail point.
#[cfg(debug_assertions)]
pub fn trigger_failpoint(name: &'static str) {
    use std::sync::LazyLock;

    static CRASH_AT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("CRASH_AT").ok());

    debug_assert!(FAILPOINTS.contains(&name), "{name} is not listed");
    if CRASH_AT.as_deref() == Some(name) {
        // Without `unsafe`, only another process can send SIGKILL, so a shell sends it to its parent.
        let sent = std::process::Command::new("sh").args(["-c", "kill -KILL $PPID"]).status();
        // If SIGKILL did not arrive, the process aborts, which is equally abrupt.
        drop(sent);
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn trigger_failpoint(_name: &'static str) {}
