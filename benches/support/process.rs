//! Child processes of the same binary, and the resource usage of processes as the system reports it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;

/// Runs the benchmark again in a child process, so that its peak memory can be measured separately. Returns the report
/// that the child prints as JSON. Panics if the child fails.
pub fn run_self<T: DeserializeOwned>(arguments: &[&OsStr]) -> T {
    let output = Command::new(std::env::current_exe().expect("failed to find the binary"))
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .expect("failed to run the benchmark");
    assert!(output.status.success(), "{arguments:?} failed");
    serde_json::from_slice(&output.stdout).expect("failed to read the report")
}

/// Returns the user and kernel time of this process in seconds, as Linux reports it.
pub fn cpu_seconds() -> Option<f64> {
    /// The unit of these times, which is the same on every common architecture.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in parentheses that can contain any character. User and kernel time are fields 14 and
    // 15.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some(seconds()? + seconds()?)
}

/// The user and kernel time of each thread of a process, as Linux reports it. The time of a running thread does not
/// include the time since the last clock tick, so read the times while the process waits.
pub struct ThreadTimes(BTreeMap<String, u64>);

impl ThreadTimes {
    /// Reads the times of all current threads of a process.
    pub fn read(process: u32) -> Option<ThreadTimes> {
        let mut nanoseconds = BTreeMap::new();
        for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
            let thread = thread.ok()?;
            // The thread can end at any moment.
            let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let time = text.split_ascii_whitespace().next()?.parse().ok()?;
            nanoseconds.insert(thread.file_name().to_string_lossy().into_owned(), time);
        }
        Some(ThreadTimes(nanoseconds))
    }

    /// Returns the time that the threads have used since `earlier`. Threads that have ended are not counted: the thread
    /// pools of the server stop threads that were idle for several seconds.
    pub fn since(&self, earlier: &ThreadTimes) -> Duration {
        let times = self.0.iter().map(|(thread, time)| time.saturating_sub(*earlier.0.get(thread).unwrap_or(&0)));
        Duration::from_nanos(times.sum())
    }
}

/// Returns a value in bytes from the `/proc` status of this process.
pub fn status(key: &str) -> Option<u64> {
    status_of("self", key)
}

/// Returns a value in bytes from the `/proc` status of a process, such as `VmRSS:`.
pub fn status_of(process: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns the total size of all files in a directory and its subdirectories.
pub fn directory_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("the store is a directory");
    entries
        .map(|entry| {
            let entry = entry.expect("a directory's entry");
            let metadata = entry.metadata().expect("failed to open the file");
            if metadata.is_dir() { directory_bytes(&entry.path()) } else { metadata.len() }
        })
        .sum()
}
