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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::Priority;

    /// Makes the system call fail with EPERM on the calling thread, as the filter of a systemd unit does.
    fn deny_system_call(number: libc::c_long) {
        let statement = |code: u32, jump_true, jump_false, value| libc::sock_filter {
            code: u16::try_from(code).expect("a code"),
            jt: jump_true,
            jf: jump_false,
            k: value,
        };
        let mut program = [
            // The number of the system call is the first field of the data.
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::try_from(number).expect("a number")),
            statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
            statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
        // SAFETY: both calls change only the calling thread; the filter outlives the second one, which copies it.
        let results = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
            ]
        };
        assert_eq!(results, [0, 0], "{}", io::Error::last_os_error());
    }

    /// The log of a thread, as bytes.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("a log").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn denied_setpriority_logs_one_warning() {
        let log = Log::default();
        let writer = log.clone();
        let thread = std::thread::spawn(move || {
            let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
            deny_system_call(libc::SYS_setpriority);
            tracing::subscriber::with_default(subscriber, || {
                Priority::Medium.take();
                Priority::Long.take();
            });
        });
        thread.join().expect("the thread ends");
        let text = String::from_utf8(log.0.lock().expect("a log").clone()).expect("UTF-8");
        assert_eq!(text.matches("failed to lower the priority").count(), 1, "{text}");
        assert!(text.contains("WARN") && text.contains("os error 1"), "{text}");
    }

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
        // A process that was started with a low priority itself must not raise it.
        assert_eq!(there.join().expect("it ends"), (before + 10).min(19));
        assert_eq!(nice(), before);
    }
}
