//! Fail points at which tests kill the process. A test then restarts the process and checks the remaining state.
//!
//! In a debug build, the environment variable `CRASH_AT` names the fail point at which the process receives SIGKILL:
//! without unwinding, destructors, or further writes. In a release build, fail points do nothing.

/// All fail points, in the order of a refresh, an alternate, and a rollback.
pub const FAILPOINTS: [&str; 12] = [
    // A refresh has acquired the lease of its dataset and reserved a path.
    "refresh.leased",
    "refresh.spooled",
    // A file of a version or an alternate is partially written.
    "file.writing",
    // The file is complete, but no record refers to it.
    "file.written",
    // The version is recorded in an open transaction.
    "publish.uncommitted",
    // The version is committed, but no webhook is sent.
    "publish.committed",
    // The webhook is claimed, but not sent.
    "delivery.claimed",
    // The webhook is sent, but its outcome is not recorded.
    "delivery.sent",
    // An alternate or a rollback, before and after its commit.
    "alternate.uncommitted",
    "alternate.committed",
    "rollback.uncommitted",
    "rollback.committed",
];

/// Kills the process if `CRASH_AT` names this fail point.
#[cfg(debug_assertions)]
pub fn trigger_failpoint(name: &'static str) {
    use std::sync::LazyLock;

    static CRASH_AT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("CRASH_AT").ok());

    debug_assert!(FAILPOINTS.contains(&name), "{name} is not listed");
    if CRASH_AT.as_deref() == Some(name) {
        // Without `unsafe`, only another process can send SIGKILL: a shell, to its parent.
        let sent = std::process::Command::new("sh").args(["-c", "kill -KILL $PPID"]).status();
        // The signal did not arrive. Aborting is equally abrupt.
        drop(sent);
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn trigger_failpoint(_name: &'static str) {}
