//! Timeouts for directories of version files and exports that may never respond.
//!
//! Problem: a read of a file occupies a thread, and nothing can cancel the read. On a network file system that hangs,
//! or on a pipe in place of a file, the read occupies the thread forever. Therefore, a reader gets an error after 20 s.
//! The next request for the file starts after the hanging read has ended, or after a delay that doubles each time, so
//! that one file occupies few threads. For example, if a file never responds:
//!
//! ```text
//!   0 s  a read starts
//!  20 s  its reader gets an error; until 50 s, each request for the file fails at once
//!  50 s  one request can start; until 110 s, each other request fails at once
//!  70 s  the second reader gets an error
//! 110 s  one request can start; until 230 s, each other request fails at once
//! ```
//!
//! If one of these reads ends, the file counts as responsive again, and all requests can start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use strata_runtime::priority::{ThreadPriority, processor_count};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::{Result, StorageError, StoreUnresponsiveError};

/// First delay before an unresponsive file is requested again. The delay doubles with each further request.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Lower limit of [`max_concurrent_requests`], for machines with few processors.
const MIN_CONCURRENT_REQUESTS: usize = 16;

/// Waits for a permit to read from a directory. Each thread priority has its own permits. The result is never `None`,
/// because the semaphores are never closed.
pub async fn acquire_directory_permit() -> Option<SemaphorePermit<'static>> {
    static PERMITS: LazyLock<[Semaphore; 4]> =
        LazyLock::new(|| ThreadPriority::ALL.map(|_| Semaphore::new(max_concurrent_requests())));
    PERMITS[ThreadPriority::current() as usize].acquire().await.ok()
}

/// Runs a request for a file after it has acquired a permit. Fails with [`StorageError::StoreUnresponsive`] after 20 s,
/// not counting the wait for the permit, or at once while the file is in backoff. The request continues in the
/// background if the caller is dropped.
pub async fn with_timeout<T: Send + 'static>(file: PathBuf, request: BoxFuture<'static, T>) -> Result<T> {
    with_explicit_timeout(StoreUnresponsiveError::TIMEOUT, file, request).await
}

/// Concurrent requests to directories by threads of one priority. Each request occupies a thread, and an allocator
/// caches some MiB for each thread.
fn max_concurrent_requests() -> usize {
    MIN_CONCURRENT_REQUESTS.max(2 * processor_count())
}

async fn with_explicit_timeout<T: Send + 'static>(
    timeout: Duration,
    file: PathBuf,
    future: BoxFuture<'static, T>,
) -> Result<T> {
    let unresponsive = || Err(StorageError::StoreUnresponsive(StoreUnresponsiveError));
    if UnresponsiveFiles::lock().is_in_backoff(&file) {
        return unresponsive();
    }
    let permit = acquire_directory_permit().await;
    // While this request waited for its permit, other requests may have marked the file as unresponsive.
    if !UnresponsiveFiles::lock().try_start_request(&file) {
        return unresponsive();
    }
    let mut request = FileRequest { file, future: Some(future), permit, deadline: Instant::now() + timeout };
    match timeout_at(request.deadline, request.future.as_mut().expect("failed to borrow future")).await {
        Ok(response) => {
            request.future = None;
            UnresponsiveFiles::lock().mark_responsive(&request.file);
            Ok(response)
        }
        Err(_) => unresponsive(),
    }
}

struct FileRequest<T: Send + 'static> {
    file: PathBuf,
    future: Option<BoxFuture<'static, T>>,
    permit: Option<SemaphorePermit<'static>>,
    deadline: Instant,
}

impl<T: Send + 'static> Drop for FileRequest<T> {
    /// Runs an unfinished request for a file to its end in the background. Its permit is released at the deadline.
    fn drop(&mut self) {
        let (Some(mut future), Ok(runtime)) = (self.future.take(), Handle::try_current()) else { return };
        let file = std::mem::take(&mut self.file);
        let permit = self.permit.take();
        let deadline = self.deadline;
        runtime.spawn(async move {
            if timeout_at(deadline, &mut future).await.is_err() {
                UnresponsiveFiles::lock().mark_unresponsive(&file);
                drop(permit);
                future.await;
            }
            UnresponsiveFiles::lock().mark_responsive(&file);
        });
    }
}

/// Files with a request that exceeded its timeout and has not ended.
#[derive(Default)]
struct UnresponsiveFiles {
    backoffs: HashMap<PathBuf, RetryBackoff>,
}

struct RetryBackoff {
    retry_at: Instant,
    /// Delay before the next request of the file, which ends at `retry_at`.
    delay: Duration,
}

impl RetryBackoff {
    fn new(delay: Duration) -> RetryBackoff {
        RetryBackoff { retry_at: Instant::now() + delay, delay }
    }
}

impl UnresponsiveFiles {
    fn lock() -> MutexGuard<'static, UnresponsiveFiles> {
        static UNRESPONSIVE_FILES: LazyLock<Mutex<UnresponsiveFiles>> = LazyLock::new(Mutex::default);
        UNRESPONSIVE_FILES.lock()
    }

    fn is_in_backoff(&self, file: &Path) -> bool {
        self.backoffs.get(file).is_some_and(|backoff| Instant::now() < backoff.retry_at)
    }

    /// Returns whether a request for a file may start. After each delay, one request may start, and the delay doubles.
    fn try_start_request(&mut self, file: &Path) -> bool {
        if self.is_in_backoff(file) {
            return false;
        }
        let Some(backoff) = self.backoffs.get_mut(file) else { return true };
        *backoff = RetryBackoff::new(2 * backoff.delay);
        true
    }

    fn mark_unresponsive(&mut self, file: &Path) {
        self.backoffs.entry(file.to_owned()).or_insert_with(|| RetryBackoff::new(FIRST_RETRY_DELAY));
    }

    fn mark_responsive(&mut self, file: &Path) {
        self.backoffs.remove(file);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::{join_all, pending, ready};
    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn hanging_file_times_out_until_it_responds() {
        let file = PathBuf::from("/store/silent");
        let (sender, response) = oneshot::channel::<u8>();
        let result = with_explicit_timeout(Duration::from_millis(20), file.clone(), response.boxed()).await;
        assert!(matches!(result, Err(StorageError::StoreUnresponsive(_))), "{result:?}");
        while !UnresponsiveFiles::lock().backoffs.contains_key(&file) {
            sleep(Duration::from_millis(1)).await;
        }
        // After the timeout, the next request for the file is rejected without a read.
        let again = with_timeout(file.clone(), ready(7).boxed()).await;
        assert!(matches!(again, Err(StorageError::StoreUnresponsive(_))), "{again:?}");
        assert_eq!(
            with_timeout(PathBuf::from("/store/another"), ready(7).boxed()).await.expect("failed to read another file"),
            7
        );
        sender.send(7).expect("failed to complete first request");
        while UnresponsiveFiles::lock().backoffs.contains_key(&file) {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(with_timeout(file, ready(8).boxed()).await.expect("failed to read file again"), 8);
    }

    /// Regression: a read of a pipe that was deleted never ended, and the restored file could not be read.
    #[test]
    fn unresponsive_file_gets_one_request_per_delay() {
        let file = Path::new("/store/again");
        let one_millisecond = Duration::from_millis(1);
        let mut files = UnresponsiveFiles::default();
        assert!(files.try_start_request(file) && files.try_start_request(file));
        files.mark_unresponsive(file);
        assert!(files.is_in_backoff(file) && !files.try_start_request(file));
        let backoff = files.backoffs.get_mut(file).expect("failed to find backoff of file");
        assert_eq!(backoff.delay, FIRST_RETRY_DELAY);
        backoff.retry_at = Instant::now() - one_millisecond;
        assert!(!files.is_in_backoff(file));
        assert!(files.try_start_request(file) && !files.try_start_request(file));
        // A second timeout does not reset the delay before the next request.
        files.mark_unresponsive(file);
        assert_eq!(files.backoffs[file].delay, 2 * FIRST_RETRY_DELAY);
        files.mark_responsive(file);
        assert!(files.try_start_request(file) && files.try_start_request(file));
    }

    #[tokio::test]
    async fn abandoned_requests_hold_permits_until_deadline() {
        let file = PathBuf::from("/store/left");
        let one_millisecond = Duration::from_millis(1);
        // The requests take all permits, regardless of the number of processors.
        let abandoned = join_all((0..max_concurrent_requests()).map(|_| {
            let request = with_explicit_timeout(Duration::from_secs(2), file.clone(), pending::<()>().boxed());
            timeout(Duration::from_millis(50), request)
        }));
        assert!(abandoned.await.iter().all(Result::is_err));
        let read = || with_timeout(PathBuf::from("/store/read"), ready(7).boxed());
        assert!(timeout(one_millisecond, read()).await.is_err(), "a permit is free");
        assert_eq!(read().await.expect("failed to read after deadline"), 7);
        assert!(matches!(with_timeout(file, ready(()).boxed()).await, Err(StorageError::StoreUnresponsive(_))));
    }
}
