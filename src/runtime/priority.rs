//! Priorities of threads, so that short work does not wait for long work.
//!
//! Problem: an import can keep all processors busy for a long time, and a small page that shared them equally would
//! become as slow as the import. Therefore, the priority of a thread depends on the length of its work
//! ([`ThreadPriority`]). If the length is known only afterwards, a [`ThreadWork`] counts the bytes.

use std::cell::Cell;
use std::sync::OnceLock;

/// The share of busy processors that a thread gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPriority {
    /// The priority of short work, such as a page or the start of a response.
    Short,
    /// The priority of medium queries, whose threads get a third of the processor share of short work.
    Medium,
    /// The priority of heavy queries, which get the processor share of medium queries, on separate threads.
    Heavy,
    /// The priority of long work of any kind, whose threads get a tenth of the processor share of short work.
    Long,
}

thread_local! {
    static CURRENT_PRIORITY: Cell<ThreadPriority> = const { Cell::new(ThreadPriority::Short) };
}

impl ThreadPriority {
    pub const ALL: [ThreadPriority; 4] =
        [ThreadPriority::Short, ThreadPriority::Medium, ThreadPriority::Heavy, ThreadPriority::Long];

    pub fn thread_name(self) -> &'static str {
        match self {
            ThreadPriority::Short => "strata-short",
            ThreadPriority::Medium => "strata-medium",
            ThreadPriority::Heavy => "strata-heavy",
            ThreadPriority::Long => "strata-long",
        }
    }

    /// Sets the priority of the calling thread, and of threads that it starts. The priority cannot be raised again, so
    /// the thread must not do other work later.
    ///
    /// A thread with a low priority must not hold resources that others wait for. It therefore has its own permits, and
    /// starts no tasks on the main runtime, except to load small parts of files into the cache.
    pub fn apply_to_current_thread(self) {
        CURRENT_PRIORITY.set(self);
        self.set_os_priority();
    }

    /// Returns the priority of the calling thread, which is [`ThreadPriority::Short`] at first.
    pub fn current() -> ThreadPriority {
        CURRENT_PRIORITY.get()
    }

    #[cfg(target_os = "linux")]
    fn set_os_priority(self) {
        use rustix::process;

        let below = match self {
            ThreadPriority::Short => return,
            ThreadPriority::Medium | ThreadPriority::Heavy => 5,
            ThreadPriority::Long => 10,
        };
        // On Linux, each thread has a priority. The first thread never changes its priority, so the priority of the
        // process ID is the one with which the process was started. `None` means the calling thread.
        let started = process::getpriority_process(Some(process::getpid()));
        let lowered = started.and_then(|started| process::setpriority_process(None, (started + below).min(19)));
        if let Err(error) = lowered {
            log_priority_failure_once(&error.into());
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn set_os_priority(self) {}
}

/// Work in bytes of documents after which a thread lowers its priority: a few tens of milliseconds.
pub const MAX_SHORT_WORK_BYTES: u64 = 4 << 20;

/// The work of the calling thread so far, if its length is not known in advance.
#[derive(Default)]
pub struct ThreadWork {
    bytes: u64,
    is_lowered: bool,
}

impl ThreadWork {
    /// Adds work. Lowers the priority of the thread if the work exceeds [`MAX_SHORT_WORK_BYTES`].
    pub fn record_and_lower_priority(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_SHORT_WORK_BYTES && !std::mem::replace(&mut self.is_lowered, true) {
            ThreadPriority::Long.apply_to_current_thread();
        }
    }
}

/// Returns the number of threads that can run in parallel. The result is cached, because it is read from files.
pub fn processor_count() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Logs only the first failure, because all threads fail in the same way.
#[cfg(target_os = "linux")]
fn log_priority_failure_once(error: &std::io::Error) {
    static WARNED: std::sync::Once = std::sync::Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            %error,
            "failed to lower the priority of a thread: small requests slow down next to long work. Allow the system \
             call setpriority, for example in SystemCallFilter= of the systemd unit"
        );
    });
}
