//! Threads that give way: long work is not what short work waits for.
//!
//! Small pages run on threads of their own, at the priority of the process. Queries of more work run on others, of
//! lower priority, medium and heavy ones apart, so that a few milliseconds never wait behind a second. What takes long
//! whoever asks for it (an import, the rest of a large export) comes last. The system then runs whoever has little to
//! do first, and gives all that is left to those that have much.

use std::sync::OnceLock;

/// How many threads can work at the same time, 1 if nobody knows. Asked once, since the answer is read from files.
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Work that is done before a thread gives way, in bytes of documents: a few tens of milliseconds.
pub const SHORT_BYTES: u64 = 4 << 20;

/// What the calling thread has done.
#[derive(Default)]
pub struct Work {
    bytes: u64,
    gives_way: bool,
}

impl Work {
    /// So much more. Past what is done in a short time the thread gives way.
    pub fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > SHORT_BYTES && !std::mem::replace(&mut self.gives_way, true) {
            Priority::Long.take();
        }
    }
}

/// How much of scarce processors work gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Little work, such as a page or the beginning of an answer.
    Short,
    /// Queries of more work: a third of what short work gets.
    Medium,
    /// Heavy queries: as much as medium ones, on other threads.
    Heavy,
    /// What takes long whatever it is: a tenth.
    Long,
}

impl Priority {
    /// All of them.
    pub const ALL: [Priority; 4] = [Priority::Short, Priority::Medium, Priority::Heavy, Priority::Long];

    /// The name of threads that do such work.
    pub fn thread_name(self) -> &'static str {
        match self {
            Priority::Short => "strata-short",
            Priority::Medium => "strata-medium",
            Priority::Heavy => "strata-heavy",
            Priority::Long => "strata-long",
        }
    }

    /// Gives the calling thread, and those that it starts, this priority. It cannot be raised again: a thread that does
    /// other work later must not be the one.
    ///
    /// What others wait for is not for a thread of low priority to hold: it has permits of its own, and begins no
    /// thread of the main runtime. Parts of files that it loads into the cache are the exception; they are small.
    #[cfg(target_os = "linux")]
    pub fn take(self) {
        let nice = match self {
            Priority::Short => return,
            Priority::Medium | Priority::Heavy => 5,
            Priority::Long => 10,
        };
        // SAFETY: it takes and gives numbers. On Linux a thread has a priority of its own, and 0 is the calling one.
        // One that cannot be lowered stays as it is.
        let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    }

    /// Elsewhere all threads are equal.
    #[cfg(not(target_os = "linux"))]
    pub fn take(self) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    /// The 19th field of the calling thread's state, counted after its name.
    fn nice() -> i64 {
        let state = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux tells");
        let mut fields = state.rsplit_once(')').expect("a name").1.split_whitespace();
        fields.nth(16).expect("a field").parse().expect("a number")
    }

    #[test]
    fn a_thread_that_gives_way_is_the_only_one() {
        let before = nice();
        let there = std::thread::spawn(move || {
            let mut work = super::Work::default();
            work.add(super::SHORT_BYTES);
            assert_eq!(nice(), before, "not yet");
            work.add(1);
            nice()
        });
        assert_eq!(there.join().expect("it ends"), 10.max(before));
        assert_eq!(nice(), before);
    }
}
