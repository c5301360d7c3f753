//! Priorities of threads, so that short work does not wait for long work.
//!
//! Small pages run on threads of their own, at the priority of the process. Medium and heavy queries run on others, of
//! lower priority, each weight on its own. So a few milliseconds of work never wait behind a second of work. Long work
//! of any client (an import, the rest of a large export) comes last. The system then runs short work first, and gives
//! the rest of the time to long work.

use std::cell::Cell;
use std::sync::OnceLock;

/// How many threads can work at the same time, 1 if nobody knows. Asked once, since the answer is read from files.
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Work that is done before a thread gives way, in bytes of documents: a few tens of milliseconds.
pub const SHORT_BYTES: u64 = 4 << 20;

/// The work that the calling thread has done.
#[derive(Default)]
pub struct Work {
    bytes: u64,
    gives_way: bool,
}

impl Work {
    /// Adds this much work. The thread gives way once it has done more than short work.
    pub fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > SHORT_BYTES && !std::mem::replace(&mut self.gives_way, true) {
            Priority::Long.take();
        }
    }
}

/// The share of scarce processors that work gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Little work, such as a page or the beginning of an answer.
    Short,
    /// Queries of more work: a third of what short work gets.
    Medium,
    /// Heavy queries: as much as medium ones, on other threads.
    Heavy,
    /// Long work of any kind: a tenth.
    Long,
}

thread_local! {
    /// What the calling thread has taken.
    static CURRENT: Cell<Priority> = const { Cell::new(Priority::Short) };
}

impl Priority {
    pub const ALL: [Priority; 4] = [Priority::Short, Priority::Medium, Priority::Heavy, Priority::Long];

    pub fn thread_name(self) -> &'static str {
        match self {
            Priority::Short => "strata-short",
            Priority::Medium => "strata-medium",
            Priority::Heavy => "strata-heavy",
            Priority::Long => "strata-long",
        }
    }

    /// Gives the calling thread, and those that it starts, this priority. It cannot be raised again, so do not call
    /// this on a thread that later does other work.
    ///
    /// A thread of low priority must hold nothing that others wait for. So it has permits of its own, and begins no
    /// thread of the main runtime. The exception are parts of files that it loads into the cache, which are small.
    pub fn take(self) {
        CURRENT.set(self);
        self.tell_the_system();
    }

    pub fn current() -> Priority {
        CURRENT.get()
    }

    #[cfg(target_os = "linux")]
    fn tell_the_system(self) {
        use rustix::process;

        let below = match self {
            Priority::Short => return,
            Priority::Medium | Priority::Heavy => 5,
            Priority::Long => 10,
        };
        // On Linux a thread has a priority of its own. That of the process's number is the first thread's, which takes
        // none: what the process was started with. No number means the calling thread. If the priority cannot be
        // lowered, it stays.
        let started = process::getpriority_process(Some(process::getpid()));
        let lowered = started.and_then(|started| process::setpriority_process(None, (started + below).min(19)));
        if let Err(error) = lowered {
            warn_once(&error.into());
        }
    }

    /// Elsewhere all threads are equal.
    #[cfg(not(target_os = "linux"))]
    fn tell_the_system(self) {}
}

/// Logs the first failure only, because every thread of low priority fails in the same way.
#[cfg(target_os = "linux")]
fn warn_once(error: &std::io::Error) {
    static WARNED: std::sync::Once = std::sync::Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            %error,
            "failed to lower the priority of a thread: small requests slow down next to long work. Allow the system \
             call setpriority, for example in SystemCallFilter= of the systemd unit"
        );
    });
}
