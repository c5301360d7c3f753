//! Answers as they are sent.
//!
//! - Compressed on the engine's threads: whole ones at once, streamed ones part by part, in order, no further ahead of
//!   the reader than a few parts.
//! - Equal requests in flight run once, as long as the answer is small. Only errors and streams are each caller's own.
//! - Small compressed answers are kept: making them costs more than everything else. So are plain ones of hardly any
//!   bytes, for a count may have cost a whole scan. Plain pages are kept from the second time on: making one from warm
//!   documents costs little more than sending it, and most are asked for once.
//! - Parquet exports come from the cache on disk ([`crate::export_cache`]) and are never compressed: they are
//!   already.
//!
//! A private dataset's answers are kept as others are: nobody gets here who may not read them.

use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use datafusion::execution::memory_pool::MemoryReservation;
use futures::FutureExt;
use futures::stream::{BoxStream, TryStreamExt};
use moka::future::Cache;
use strata_encode::{self as encode, Compressor, ContentCoding, LEAST_COMPRESSED_BYTES};
use strata_query::QueryError;

use crate::admission::capacity::Capacity;
use crate::admission::{Account, WHOLE_BYTES, accounted};
use crate::read::body::encoded;
use crate::read::single_flight::{SingleFlight, Work};
use crate::read::source::sent_by_task;
use crate::read::{Answer, AnswerBody};
use crate::{CacheKey, ReadError, locked};

const COMPRESSED_PARTS: usize = 2;

/// Bytes that are compressed before other work has its permit.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes of a plain page that may be kept: usual ones have 100 entities.
const PAGE_BYTES: usize = 256 << 10;

/// Bytes of an answer in the cache besides its body.
const OVERHEAD_BYTES: usize = 256;

type Key = (CacheKey, ContentCoding);

/// Where an answer goes that only one can have.
type Own = Arc<Mutex<Option<Answer>>>;

/// The cache of small answers. What was used least goes when it is full. Clones share everything.
#[derive(Clone)]
pub(crate) struct Responses {
    kept: Cache<Key, Kept, foldhash::fast::RandomState>,
    single_flight: Arc<SingleFlight<Key, Result<Kept, ReadError>>>,
    capacity_bytes: u64,
}

#[derive(Clone)]
enum Kept {
    Small(Small),
    /// That it is streamed, or large and plain, so that waiting for another caller's is of no use.
    Streamed,
    /// That it is a plain page, and was made once.
    Once,
}

#[derive(Clone)]
struct Small {
    total: u64,
    matches: Option<u64>,
    content_type: &'static str,
    coding: ContentCoding,
    bytes: Bytes,
    /// What they are accounted to while they are sent, once for all readers.
    sent: Arc<Mutex<Weak<Account>>>,
}

impl Small {
    /// The cached answer. Large ones are accounted until the last reader has them, also after their eviction.
    fn sent(self, account: impl Fn(u64) -> Result<Arc<Account>, QueryError>) -> Result<Answer, ReadError> {
        let size_bytes = self.bytes.len() as u64;
        if size_bytes <= WHOLE_BYTES {
            return Ok(self.into());
        }
        let mut sent = locked(&self.sent);
        let account = match sent.upgrade() {
            Some(account) => account,
            None => account(size_bytes)?,
        };
        *sent = Arc::downgrade(&account);
        drop(sent);
        let bytes = accounted(self.bytes.clone(), account);
        Ok(Small { bytes, ..self }.into())
    }

    /// Whether making it costs much more than sending it.
    fn is_worth_it(&self) -> bool {
        self.coding != ContentCoding::Identity || self.bytes.len() < LEAST_COMPRESSED_BYTES
    }

    fn is_page(&self) -> bool {
        self.bytes.len() <= PAGE_BYTES
    }

    /// For the cache, which accounts for its bytes itself.
    fn to_keep(&self) -> Small {
        let is_accounted = self.bytes.len() as u64 > WHOLE_BYTES;
        let bytes = if is_accounted { Bytes::copy_from_slice(&self.bytes) } else { self.bytes.clone() };
        Small { bytes, sent: Arc::default(), ..self.clone() }
    }
}

impl Kept {
    fn memory_bytes(&self) -> usize {
        match self {
            Kept::Small(small) => OVERHEAD_BYTES + small.bytes.len(),
            Kept::Streamed | Kept::Once => OVERHEAD_BYTES,
        }
    }

    /// What another request is cheaper with than without, if anything is.
    fn to_keep(&self, was_made: bool) -> Option<Kept> {
        match self {
            Kept::Small(small) if small.is_worth_it() || (was_made && small.is_page()) => {
                Some(Kept::Small(small.to_keep()))
            }
            Kept::Small(small) => small.is_page().then_some(Kept::Once),
            Kept::Streamed | Kept::Once => Some(self.clone()),
        }
    }
}

impl From<Small> for Answer {
    fn from(small: Small) -> Answer {
        let Small { total, matches, content_type, coding, bytes, sent: _ } = small;
        Answer { total, matches, content_type, coding, body: AnswerBody::Whole(bytes) }
    }
}

impl Responses {
    /// A cache of at most `capacity_bytes`; none keeps nothing.
    pub(crate) fn new(capacity_bytes: u64) -> Responses {
        let kept = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_, kept: &Kept| u32::try_from(kept.memory_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        Responses { kept, single_flight: Arc::default(), capacity_bytes }
    }

    /// The answer of this key in this coding, made by `make` unless it is there or being made.
    pub(crate) async fn get<M: Future<Output = Result<Answer, ReadError>> + Send + 'static>(
        &self,
        key: CacheKey,
        coding: ContentCoding,
        account: impl Fn(u64) -> Result<Arc<Account>, QueryError>,
        make: impl Fn() -> M,
    ) -> Result<Answer, ReadError> {
        let entry = (key, coding);
        match self.kept.get(&entry).await {
            Some(Kept::Small(small)) => small.sent(account),
            Some(Kept::Streamed) => make().await,
            // In a box of its own: the answer that is there is the more frequent case.
            Some(Kept::Once) => Box::pin(self.make_once(entry, true, make)).await,
            None => Box::pin(self.make_once(entry, false, make)).await,
        }
    }

    /// The answer of this key, made by `make` unless it is being made.
    async fn make_once<M: Future<Output = Result<Answer, ReadError>> + Send + 'static>(
        &self,
        entry: Key,
        was_made: bool,
        make: impl Fn() -> M,
    ) -> Result<Answer, ReadError> {
        let (making, own) = self.making(entry, &make);
        let since = Instant::now();
        let made = making.await;
        let Some(own) = own else {
            return match made {
                Ok(Kept::Small(small)) => Ok(small.into()),
                Ok(Kept::Streamed | Kept::Once) => make().await,
                // One who has begun it, and may have asked for much, was refused: that says nothing of others.
                Err(error) if error.is_anothers(since) => make().await,
                Err(error) => Err(error),
            };
        };
        let made = made?;
        self.single_flight.ended(&entry);
        if self.capacity_bytes > 0
            && let Some(kept) = made.to_keep(was_made)
        {
            self.kept.insert(entry, kept).await;
        }
        let own = locked(&own).take();
        match (made, own) {
            (_, Some(own)) => Ok(own),
            (Kept::Small(small), None) => Ok(small.into()),
            (Kept::Streamed | Kept::Once, None) => make().await,
        }
    }

    /// The count that the answer of this key is, if it is kept.
    pub(crate) async fn kept_count(&self, key: Option<CacheKey>) -> Option<u64> {
        match self.kept.get(&(key?, ContentCoding::Identity)).await {
            Some(Kept::Small(small)) => Some(small.total),
            Some(Kept::Streamed | Kept::Once) | None => None,
        }
    }

    pub(crate) async fn keep_count(&self, key: Option<CacheKey>, answer: Answer) {
        let Answer { total, matches, content_type, coding, body } = answer;
        if let (Some(key), AnswerBody::Whole(bytes), true) = (key, body, self.capacity_bytes > 0) {
            let small = Small { total, matches, content_type, coding, bytes, sent: Arc::default() };
            self.kept.insert((key, ContentCoding::Identity), Kept::Small(small)).await;
        }
    }

    pub(crate) async fn kept(&self, key: CacheKey) -> Vec<ContentCoding> {
        let mut codings = Vec::new();
        for coding in ContentCoding::ALL {
            // Asked first, since it does not count as a use.
            let entry = (key, coding);
            if self.kept.contains_key(&entry) && matches!(self.kept.get(&entry).await, Some(Kept::Small(_))) {
                codings.push(coding);
            }
        }
        codings
    }

    /// Joins the making of an answer, or begins it: then also returns where a streamed answer goes.
    fn making<M: Future<Output = Result<Answer, ReadError>> + Send + 'static>(
        &self,
        key: Key,
        make: impl Fn() -> M,
    ) -> (Work<Result<Kept, ReadError>>, Option<Own>) {
        let own = Own::default();
        let begin = || {
            let (streamed, made) = (own.clone(), make());
            let making = async move {
                let answer = made.await?;
                Ok(match answer.body {
                    AnswerBody::Whole(bytes) => {
                        let Answer { total, matches, content_type, coding, .. } = answer;
                        // What is kept must not count as waiting to be sent.
                        let few = bytes.len() < LEAST_COMPRESSED_BYTES;
                        let bytes = if few { Bytes::copy_from_slice(&bytes) } else { bytes };
                        Kept::Small(Small { total, matches, content_type, coding, bytes, sent: Arc::default() })
                    }
                    AnswerBody::Stream(_) | AnswerBody::Export(_) => {
                        *locked(&streamed) = Some(answer);
                        Kept::Streamed
                    }
                })
            };
            making.boxed()
        };
        let (making, begun) = self.single_flight.join(key, begin);
        (making, begun.then_some(own))
    }
}

/// An answer in a coding, unless it is too small for that, or streamed while there is no memory for another compressor.
pub(crate) async fn coded(capacity: &Capacity, answer: Answer, coding: ContentCoding) -> Result<Answer, ReadError> {
    if coding == ContentCoding::Identity {
        return Ok(answer);
    }
    let body = match answer.body {
        AnswerBody::Whole(bytes) if bytes.len() < LEAST_COMPRESSED_BYTES => {
            return Ok(Answer { body: AnswerBody::Whole(bytes), ..answer });
        }
        AnswerBody::Whole(bytes) => {
            let size_bytes = bytes.len() as u64;
            let compressing = async move { encode::compress(coding, &bytes) };
            let bytes = encoded(capacity, size_bytes, compressing).await?.map_err(failed)?;
            AnswerBody::Whole(capacity.whole_body(bytes, None)?)
        }
        AnswerBody::Stream(parts) => match capacity.engine.reserve("compressor", coding.memory_bytes()) {
            Ok(memory) => AnswerBody::Stream(compressed(capacity, parts, coding, memory)?),
            Err(_) => return Ok(Answer { body: AnswerBody::Stream(parts), ..answer }),
        },
        AnswerBody::Export(export) => return Ok(Answer { body: AnswerBody::Export(export), ..answer }),
    };
    Ok(Answer { coding, body, ..answer })
}

/// The body compressed by a task of its own, which keeps the compressor's memory. An error ends it.
fn compressed(
    capacity: &Capacity,
    mut parts: BoxStream<'static, Result<Bytes, ReadError>>,
    coding: ContentCoding,
    memory: MemoryReservation,
) -> Result<BoxStream<'static, Result<Bytes, ReadError>>, ReadError> {
    let mut compressor = Compressor::try_new(coding).map_err(failed)?;
    let account = {
        let capacity = capacity.clone();
        move |bytes| capacity.part(bytes)
    };
    Ok(sent_by_task(&capacity.engine, COMPRESSED_PARTS, async move |compressed| {
        let _memory = memory;
        while let Some(part) = parts.try_next().await? {
            let mut bytes = BytesMut::new();
            // A part may be a large entity: other work takes turns with it.
            for piece in part.chunks(PIECE_BYTES) {
                bytes.extend_from_slice(&compressor.write(piece).map_err(failed)?);
                tokio::task::yield_now().await;
            }
            let bytes = bytes.freeze();
            drop(part);
            // The reader is gone: so is the reason to compress.
            if !bytes.is_empty() && compressed.send(account(bytes)?).await.is_err() {
                return Ok(());
            }
        }
        let bytes = compressor.finish().map_err(failed)?;
        // As above.
        let _ = compressed.send(account(bytes)?).await;
        Ok(())
    }))
}

fn failed(error: std::io::Error) -> ReadError {
    ReadError::Unreadable(Arc::new(error))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use futures::stream::{self, StreamExt};
    use tokio::sync::Semaphore;

    use super::*;

    fn whole(bytes: usize, coding: ContentCoding) -> Answer {
        let body = AnswerBody::Whole(vec![7; bytes].into());
        Answer { total: 3, matches: Some(9), content_type: "text/plain", coding, body }
    }

    fn streamed() -> Answer {
        let body = AnswerBody::Stream(stream::iter([Ok(Bytes::from_static(b"part"))]).boxed());
        Answer { total: 3, matches: Some(9), content_type: "text/plain", coding: ContentCoding::Zstd, body }
    }

    struct Maker {
        made: Arc<AtomicUsize>,
        answer: Arc<dyn Fn() -> Result<Answer, ReadError> + Send + Sync>,
        permits: Arc<Semaphore>,
    }

    impl Maker {
        fn new(answer: impl Fn() -> Result<Answer, ReadError> + Send + Sync + 'static) -> Maker {
            Maker { made: Arc::default(), answer: Arc::new(answer), permits: Arc::new(Semaphore::new(1_000)) }
        }

        async fn get(&self, responses: &Responses, number: usize, coding: ContentCoding) -> Result<Answer, ReadError> {
            let make = || {
                let (made, permits, answer) = (self.made.clone(), self.permits.clone(), self.answer.clone());
                async move {
                    made.fetch_add(1, Ordering::SeqCst);
                    // So that others come meanwhile.
                    tokio::task::yield_now().await;
                    permits.acquire().await.expect("open").forget();
                    answer()
                }
            };
            let account = |_| Err(QueryError::OutOfMemory(String::new()));
            responses.get(CacheKey::numbered(number), coding, account, make).await
        }

        fn made(&self) -> usize {
            self.made.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn small_compressed_answers_are_made_once_for_each_coding() {
        let responses = Responses::new(1 << 20);
        let maker = Maker::new(|| Ok(whole(2_000, ContentCoding::Zstd)));
        for _ in 0..3 {
            for coding in [ContentCoding::Zstd, ContentCoding::Gzip] {
                let answer = maker.get(&responses, 1, coding).await.expect("an answer");
                assert_eq!((answer.total, answer.matches), (3, Some(9)));
                assert_eq!((answer.content_type, answer.coding), ("text/plain", ContentCoding::Zstd));
                assert!(matches!(answer.body, AnswerBody::Whole(bytes) if bytes == vec![7; 2_000]));
            }
        }
        assert_eq!(maker.made(), 2);
        maker.get(&responses, 2, ContentCoding::Zstd).await.expect("an answer");
        assert_eq!(maker.made(), 3);
    }

    #[tokio::test]
    async fn plain_answers_are_kept_when_they_are_tiny_or_are_asked_for_again() {
        let responses = Responses::new(1 << 20);
        let sizes = [(LEAST_COMPRESSED_BYTES - 1, 1), (LEAST_COMPRESSED_BYTES, 2), (60_000, 2), (PAGE_BYTES + 1, 4)];
        for (bytes, made) in sizes {
            let maker = Maker::new(move || Ok(whole(bytes, ContentCoding::Identity)));
            for _ in 0..4 {
                let answer = maker.get(&responses, bytes, ContentCoding::Identity).await.expect("an answer");
                assert!(matches!(answer.body, AnswerBody::Whole(found) if found == vec![7; bytes]));
            }
            assert_eq!(maker.made(), made, "{bytes} bytes");
        }
    }

    #[tokio::test]
    async fn equal_requests_in_flight_run_once_even_where_nothing_is_kept() {
        let responses = Responses::new(0);
        let maker = Maker::new(|| Ok(whole(2_000, ContentCoding::Zstd)));
        let answers = join_all((0..20).map(|_| maker.get(&responses, 1, ContentCoding::Zstd))).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(maker.made(), 1);
        maker.get(&responses, 1, ContentCoding::Zstd).await.expect("an answer");
        assert_eq!(maker.made(), 2);
    }

    #[tokio::test]
    async fn a_caller_that_leaves_breaks_nobody_elses_answer() {
        let responses = Responses::new(1 << 20);
        let mut maker = Maker::new(|| Ok(whole(2_000, ContentCoding::Zstd)));
        maker.permits = Arc::new(Semaphore::new(0));
        let mut leaver = Box::pin(maker.get(&responses, 1, ContentCoding::Zstd));
        assert!(futures::poll!(&mut leaver).is_pending());
        let mut others: Vec<_> = (0..3).map(|_| Box::pin(maker.get(&responses, 1, ContentCoding::Zstd))).collect();
        for other in &mut others {
            assert!(futures::poll!(other).is_pending());
        }
        assert_eq!(maker.made(), 1);
        drop(leaver);
        maker.permits.add_permits(1_000);
        assert!(join_all(others).await.iter().all(Result::is_ok));
        assert_eq!(maker.made(), 1);
        // It was kept although who began it has left, or is made once more at most.
        maker.get(&responses, 1, ContentCoding::Zstd).await.expect("an answer");
        assert!(maker.made() <= 2);
        assert!(responses.single_flight.is_idle());
    }

    #[tokio::test]
    async fn an_error_goes_to_all_who_wait_and_is_not_kept() {
        let responses = Responses::new(1 << 20);
        let fails = Arc::new(Mutex::new(true));
        let failing = fails.clone();
        let maker = Maker::new(move || match *failing.lock().expect("not poisoned") {
            true => Err(ReadError::Timeout { seconds: 9 }),
            false => Ok(whole(2_000, ContentCoding::Zstd)),
        });
        let answers = join_all((0..5).map(|_| maker.get(&responses, 1, ContentCoding::Zstd))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(ReadError::Timeout { seconds: 9 }))));
        assert_eq!(maker.made(), 1);
        *fails.lock().expect("not poisoned") = false;
        maker.get(&responses, 1, ContentCoding::Zstd).await.expect("an answer");
        assert_eq!(maker.made(), 2);
    }

    #[tokio::test]
    async fn streams_are_each_callers_own_and_nobody_waits_for_them_twice() {
        let responses = Responses::new(1 << 20);
        let mut maker = Maker::new(|| Ok(streamed()));
        let answers = join_all((0..4).map(|_| maker.get(&responses, 1, ContentCoding::Zstd))).await;
        for answer in answers {
            let AnswerBody::Stream(parts) = answer.expect("an answer").body else { panic!("a stream") };
            let parts: Vec<_> = parts.map(|part| part.expect("a part")).collect().await;
            assert_eq!(parts, ["part"]);
        }
        assert_eq!(maker.made(), 4);
        maker.permits = Arc::new(Semaphore::new(0));
        let mut both: Vec<_> = (0..2).map(|_| Box::pin(maker.get(&responses, 1, ContentCoding::Zstd))).collect();
        for one in &mut both {
            assert!(futures::poll!(one).is_pending());
        }
        assert_eq!(maker.made(), 6);
    }

    #[tokio::test]
    async fn the_cache_is_bounded_in_bytes() {
        let responses = Responses::new(100_000);
        let maker = Maker::new(|| Ok(whole(9_000, ContentCoding::Zstd)));
        for number in 0..100 {
            maker.get(&responses, number, ContentCoding::Zstd).await.expect("an answer");
        }
        responses.kept.run_pending_tasks().await;
        let held = responses.kept.weighted_size();
        assert!((9_000..=100_000).contains(&held), "{held}");
    }
}
