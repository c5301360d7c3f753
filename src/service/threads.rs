//! Threads of their own for what decodes and writes, so that it takes none of those that everybody's blocking calls share,
//! and gives way to whoever has less to do.

use tokio::sync::oneshot;

use super::RefreshError;
use crate::storage::StorageError;

/// Runs work that blocks on a thread of its own, and waits for it. Dropping it does not end the work.
///
/// # Errors
/// [`RefreshError::Worker`] when the work panics; [`RefreshError::Storage`] when there can be no further thread.
pub(super) fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, RefreshError>> + Send + 'static {
    let (tell, told) = oneshot::channel();
    let span = tracing::Span::current();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _entered = span.enter();
        // Whoever waited may have left.
        let _ = tell.send(work());
    });
    async move {
        started.map_err(|error| RefreshError::Storage(StorageError::Io(error)))?;
        told.await.map_err(|_| RefreshError::Worker)
    }
}

/// Work that is done before a thread gives way, in bytes of documents: a few tens of milliseconds.
const SHORT_BYTES: u64 = 4 << 20;

/// What the calling thread has done.
#[derive(Default)]
pub(super) struct Work {
    bytes: u64,
    gives_way: bool,
}

impl Work {
    /// So much more. Past what is done in a short time the thread gives way.
    pub fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > SHORT_BYTES && !std::mem::replace(&mut self.gives_way, true) {
            give_way();
        }
    }
}

/// Has the calling thread, and those that it starts, give way to all others where processors are scarce: for the rest of work
/// that takes long, so that refreshes of much are not what reads and refreshes of little wait for. It gets a tenth of what another
/// one gets, and all that is left. Such a thread ends with its work, for it cannot be raised again.
#[cfg(target_os = "linux")]
fn give_way() {
    const NICE: libc::c_int = 10;
    // SAFETY: it takes and gives numbers. On Linux a thread has a priority of its own, and 0 is the calling one.
    // One that cannot be lowered stays as it is.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}

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
