//! This process, and others of the same binary: what the system says of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;

/// Runs the benchmark again in a process of its own, so that its peak of memory is its own, too; the report that it
/// prints as JSON. Panics when it fails.
pub fn run_self<T: DeserializeOwned>(arguments: &[&OsStr]) -> T {
    let output = Command::new(std::env::current_exe().expect("the benchmark knows its binary"))
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .expect("the benchmark can run itself");
    assert!(output.status.success(), "{arguments:?} failed");
    serde_json::from_slice(&output.stdout).expect("it prints its report")
}

/// Processor time that this process has had, in user mode and in the kernel, as Linux tells it.
pub fn cpu_seconds() -> Option<f64> {
    /// Fixed for programs on every common architecture, whatever the kernel's own.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in brackets that may hold anything; user and kernel time are the 14th and 15th.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some(seconds()? + seconds()?)
}

/// Processor time that each thread of a process has had, in user mode and in the kernel, as Linux tells it. Of a thread
/// that runs, the time since the last tick of the system's clock is missing: to be asked while the process waits.
pub struct ThreadTimes(BTreeMap<String, u64>);

impl ThreadTimes {
    /// Those of the threads that there are.
    pub fn of(process: u32) -> Option<ThreadTimes> {
        let mut nanoseconds = BTreeMap::new();
        for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
            let thread = thread.ok()?;
            // A thread may end meanwhile.
            let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let time = text.split_ascii_whitespace().next()?.parse().ok()?;
            nanoseconds.insert(thread.file_name().to_string_lossy().into_owned(), time);
        }
        Some(ThreadTimes(nanoseconds))
    }

    /// What the threads have had since. Those that have ended meanwhile are not counted: the pools of the server end
    /// threads that have had nothing to do for seconds.
    pub fn since(&self, earlier: &ThreadTimes) -> Duration {
        let times = self.0.iter().map(|(thread, time)| time.saturating_sub(*earlier.0.get(thread).unwrap_or(&0)));
        Duration::from_nanos(times.sum())
    }
}

/// A size of this process that the system tells, in bytes.
pub fn status(key: &str) -> Option<u64> {
    status_of("self", key)
}

/// A size of a process that the system tells, in bytes, such as `VmRSS:`.
pub fn status_of(process: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Bytes of all files in a directory and those below it.
pub fn directory_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("the store is a directory");
    entries
        .map(|entry| {
            let entry = entry.expect("a directory's entry");
            let metadata = entry.metadata().expect("a file");
            if metadata.is_dir() { directory_bytes(&entry.path()) } else { metadata.len() }
        })
        .sum()
}
