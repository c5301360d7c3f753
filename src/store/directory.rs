//! Requests to a directory, which may never be answered: for version files, and for exports.
//!
//! The read of a file takes a thread, and nothing ends it: at a network file system that hangs, or at a pipe in place
//! of a file, it keeps the thread for ever. So whoever asks is told after a while. The file is asked again when that
//! read has ended, or after a pause that becomes longer each time, so that it keeps few threads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use strata_runtime::priority::{Priority, processors};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::{Result, StorageError, StoreSilent};

/// How long a file is waited for: less than a query may take (`query.timeout_s`), so that the cause is told.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How long a file that did not answer is not asked, at first; twice as long each time.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// Requests of the threads of one priority that a directory answers at a time, at least; two for each processor, if
/// that is more. Each takes a thread, and an allocator keeps some MiB for each thread.
const REQUESTS: usize = 16;

/// Waits until a directory may be asked, and holds the place. Threads of lower priority have places of their own, so
/// that nobody waits for them.
pub async fn place() -> Option<SemaphorePermit<'static>> {
    static PLACES: LazyLock<[Semaphore; 4]> =
        LazyLock::new(|| Priority::ALL.map(|_| Semaphore::new(REQUESTS.max(2 * processors()))));
    // They are never closed.
    PLACES[Priority::current() as usize].acquire().await.ok()
}

/// What a request for a file gives, which goes on by itself if nobody waits for it any more.
///
/// # Errors
/// [`StorageError::Silent`] after 20 s, or at once while the file is not asked, since it did not answer.
pub async fn ask<T: Send + 'static>(file: PathBuf, asked: BoxFuture<'static, T>) -> Result<T> {
    ask_within(TIMEOUT, file, asked).await
}

/// As [`ask`], with another patience.
async fn ask_within<T: Send + 'static>(patience: Duration, file: PathBuf, asked: BoxFuture<'static, T>) -> Result<T> {
    let silent = || Err(StorageError::Silent(StoreSilent));
    if SilentFiles::locked().is_left_alone(&file) {
        return silent();
    }
    let place = place().await;
    // Those before may have learned meanwhile that it does not.
    if !SilentFiles::locked().may_be_asked(&file) {
        return silent();
    }
    let mut request = Request { file, asked: Some(asked), place, until: Instant::now() + patience };
    match timeout_at(request.until, request.asked.as_mut().expect("not taken yet")).await {
        Ok(answer) => {
            request.asked = None;
            SilentFiles::locked().answers(&request.file);
            Ok(answer)
        }
        Err(_) => silent(),
    }
}

/// A request, which keeps its thread until it is answered.
struct Request<T: Send + 'static> {
    file: PathBuf,
    asked: Option<BoxFuture<'static, T>>,
    place: Option<SemaphorePermit<'static>>,
    until: Instant,
}

impl<T: Send + 'static> Drop for Request<T> {
    /// What nobody waits for keeps its place like others, and gives it back when it has kept it for too long.
    fn drop(&mut self) {
        let (Some(mut asked), Ok(runtime)) = (self.asked.take(), Handle::try_current()) else { return };
        let file = std::mem::take(&mut self.file);
        let place = self.place.take();
        let until = self.until;
        runtime.spawn(async move {
            if timeout_at(until, &mut asked).await.is_err() {
                SilentFiles::locked().is_silent(&file);
                drop(place);
                asked.await;
            }
            SilentFiles::locked().answers(&file);
        });
    }
}

/// The files that have not answered for too long.
#[derive(Default)]
struct SilentFiles(HashMap<PathBuf, Silence>);

struct Silence {
    next: Instant,
    pause: Duration,
}

impl SilentFiles {
    fn locked() -> MutexGuard<'static, SilentFiles> {
        static FILES: LazyLock<Mutex<SilentFiles>> = LazyLock::new(Mutex::default);
        FILES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_left_alone(&self, file: &Path) -> bool {
        self.0.get(file).is_some_and(|silence| Instant::now() < silence.next)
    }

    /// Whether a file may be asked. After its pause one request may, and then none for twice as long.
    fn may_be_asked(&mut self, file: &Path) -> bool {
        if self.is_left_alone(file) {
            return false;
        }
        let Some(silence) = self.0.get_mut(file) else { return true };
        silence.pause *= 2;
        silence.next = Instant::now() + silence.pause;
        true
    }

    fn is_silent(&mut self, file: &Path) {
        let silence = Silence { next: Instant::now() + RETRY_DELAY, pause: RETRY_DELAY };
        self.0.entry(file.to_owned()).or_insert(silence);
    }

    fn answers(&mut self, file: &Path) {
        self.0.remove(file);
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
    async fn a_file_that_does_not_answer_keeps_nobody_waiting() {
        let file = PathBuf::from("/store/silent");
        let (answers, answer) = oneshot::channel::<u8>();
        let told = ask_within(Duration::from_millis(20), file.clone(), answer.boxed()).await;
        assert!(matches!(told, Err(StorageError::Silent(_))), "{told:?}");
        while !SilentFiles::locked().0.contains_key(&file) {
            sleep(Duration::from_millis(1)).await;
        }
        // Which is not even asked.
        let again = ask(file.clone(), ready(7).boxed()).await;
        assert!(matches!(again, Err(StorageError::Silent(_))), "{again:?}");
        assert_eq!(ask(PathBuf::from("/store/another"), ready(7).boxed()).await.expect("another file answers"), 7);
        answers.send(7).expect("its request goes on");
        while SilentFiles::locked().0.contains_key(&file) {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ask(file, ready(8).boxed()).await.expect("it answers again"), 8);
    }

    /// Who waits at a pipe that has been removed waits for ever, and the file that is back must be read.
    #[test]
    fn a_silent_file_is_asked_once_after_each_pause() {
        let file = Path::new("/store/again");
        let moment = Duration::from_millis(1);
        let mut files = SilentFiles::default();
        assert!(files.may_be_asked(file) && files.may_be_asked(file));
        files.is_silent(file);
        assert!(files.is_left_alone(file) && !files.may_be_asked(file));
        let silence = files.0.get_mut(file).expect("it is silent");
        assert_eq!(silence.pause, RETRY_DELAY);
        silence.next = Instant::now() - moment;
        assert!(!files.is_left_alone(file));
        assert!(files.may_be_asked(file) && !files.may_be_asked(file));
        // The one that was asked was not answered, either.
        files.is_silent(file);
        assert_eq!(files.0[file].pause, 2 * RETRY_DELAY);
        files.answers(file);
        assert!(files.may_be_asked(file) && files.may_be_asked(file));
    }

    #[tokio::test]
    async fn abandoned_requests_keep_their_places_for_a_while() {
        let file = PathBuf::from("/store/left");
        let moment = Duration::from_millis(1);
        // All at once, however many processors there are.
        let left = join_all((0..REQUESTS.max(2 * processors())).map(|_| {
            let left = ask_within(Duration::from_secs(2), file.clone(), pending::<()>().boxed());
            timeout(Duration::from_millis(50), left)
        }));
        assert!(left.await.iter().all(Result::is_err));
        let waits = || ask(PathBuf::from("/store/waits"), ready(7).boxed());
        assert!(timeout(moment, waits()).await.is_err(), "all threads are taken");
        assert_eq!(waits().await.expect("it answers"), 7);
        assert!(matches!(ask(file, ready(()).boxed()).await, Err(StorageError::Silent(_))));
    }
}
