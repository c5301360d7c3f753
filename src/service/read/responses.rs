//! Layers around the steps of a read ([`crate::read::pipeline`]): a cache with single flight ([`Responses::get`]), and
//! compression ([`compress`]).
//!
//! - Equal requests in flight run once if the response is small. Each caller has its own stream.
//! - The cache keeps small compressed responses, because compression costs more than all other steps, and tiny plain
//!   ones, because a count can cost a scan. It keeps a plain page from the second request on: if the documents are in
//!   memory, building a page costs little more than sending it, and most pages are requested once.
//! - Compression runs on the engine's threads, for a stream chunk by chunk and a few chunks ahead of the reader.
//!
//! Responses of private datasets are cached like others, because only authorized reads get here.

use std::sync::{Arc, Mutex, Weak};

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
use crate::read::single_flight::SingleFlight;
use crate::read::source::sent_by_task;
use crate::read::{Answer, AnswerBody};
use crate::{CacheKey, ReadError, locked};

const COMPRESSED_PARTS: usize = 2;

/// Bytes that are compressed before other work has its permit.
const PIECE_BYTES: usize = 256 << 10;

/// Size limit of a plain page in the cache. Usual pages have 100 entities.
const PAGE_BYTES: usize = 256 << 10;

/// Bytes of a cached response in addition to its body.
const OVERHEAD_BYTES: usize = 256;

type Key = (CacheKey, ContentCoding);

/// The cache of small responses. It evicts the least used ones. Clones share everything.
#[derive(Clone)]
pub(crate) struct Responses {
    cache: Cache<Key, CachedResponse, foldhash::fast::RandomState>,
    single_flight: Arc<SingleFlight<Key, CachedResponse>>,
    capacity_bytes: u64,
}

#[derive(Clone)]
enum CachedResponse {
    Small(SmallResponse),
    /// The response is a stream, which callers cannot share.
    Streamed,
    /// The response is a plain page, and was built once.
    SeenOnce,
}

#[derive(Clone)]
struct SmallResponse {
    total: u64,
    matches: Option<u64>,
    content_type: &'static str,
    coding: ContentCoding,
    bytes: Bytes,
    /// Accounts for the bytes while they are sent, once for all readers.
    sent: Arc<Mutex<Weak<Account>>>,
}

impl SmallResponse {
    /// Accounts for large bytes until the last reader has them, also after their eviction.
    fn into_answer(self, account: impl Fn(u64) -> Result<Arc<Account>, QueryError>) -> Result<Answer, ReadError> {
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
        Ok(SmallResponse { bytes, ..self }.into())
    }

    /// Whether building it costs much more than sending it.
    fn is_expensive(&self) -> bool {
        self.coding != ContentCoding::Identity || self.bytes.len() < LEAST_COMPRESSED_BYTES
    }

    fn is_page(&self) -> bool {
        self.bytes.len() <= PAGE_BYTES
    }

    /// For the cache, which accounts for its bytes itself.
    fn to_cache(&self) -> SmallResponse {
        let is_accounted = self.bytes.len() as u64 > WHOLE_BYTES;
        let bytes = if is_accounted { Bytes::copy_from_slice(&self.bytes) } else { self.bytes.clone() };
        SmallResponse { bytes, sent: Arc::default(), ..self.clone() }
    }
}

impl CachedResponse {
    /// What equal requests can share of a response. A stream is put into `own` instead.
    fn new(answer: Answer, own: &Mutex<Option<Answer>>) -> CachedResponse {
        let AnswerBody::Whole(bytes) = &answer.body else {
            *locked(own) = Some(answer);
            return CachedResponse::Streamed;
        };
        // Cached bytes must not count as waiting to be sent.
        let is_small = bytes.len() < LEAST_COMPRESSED_BYTES;
        let bytes = if is_small { Bytes::copy_from_slice(bytes) } else { bytes.clone() };
        let Answer { total, matches, content_type, coding, .. } = answer;
        CachedResponse::Small(SmallResponse { total, matches, content_type, coding, bytes, sent: Arc::default() })
    }

    fn memory_bytes(&self) -> usize {
        match self {
            CachedResponse::Small(small) => OVERHEAD_BYTES + small.bytes.len(),
            CachedResponse::Streamed | CachedResponse::SeenOnce => OVERHEAD_BYTES,
        }
    }

    /// The entry that makes the next request cheaper, if any does.
    fn to_cache(&self, was_seen: bool) -> Option<CachedResponse> {
        match self {
            CachedResponse::Small(small) if small.is_expensive() || (was_seen && small.is_page()) => {
                Some(CachedResponse::Small(small.to_cache()))
            }
            CachedResponse::Small(small) => small.is_page().then_some(CachedResponse::SeenOnce),
            CachedResponse::Streamed | CachedResponse::SeenOnce => Some(self.clone()),
        }
    }
}

impl From<SmallResponse> for Answer {
    fn from(small: SmallResponse) -> Answer {
        let SmallResponse { total, matches, content_type, coding, bytes, sent: _ } = small;
        Answer { total, matches, content_type, coding, body: AnswerBody::Whole(bytes) }
    }
}

impl Responses {
    /// With a capacity of 0 it caches nothing.
    pub(crate) fn new(capacity_bytes: u64) -> Responses {
        let cache = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_, cached: &CachedResponse| u32::try_from(cached.memory_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        Responses { cache, single_flight: Arc::default(), capacity_bytes }
    }

    /// The response of this key in this coding: from the cache, from an equal request in flight, or from `run`.
    pub(crate) async fn get<M: Future<Output = Result<Answer, ReadError>> + Send + 'static>(
        &self,
        key: CacheKey,
        coding: ContentCoding,
        account: impl Fn(u64) -> Result<Arc<Account>, QueryError>,
        run: impl Fn() -> M,
    ) -> Result<Answer, ReadError> {
        let entry = (key, coding);
        let was_seen = match self.cache.get(&entry).await {
            Some(CachedResponse::Small(small)) => return small.into_answer(account),
            Some(CachedResponse::Streamed) => return run().await,
            Some(CachedResponse::SeenOnce) => true,
            None => false,
        };
        // A stream goes to the caller who started it.
        let own: Arc<Mutex<Option<Answer>>> = Arc::default();
        let start = || {
            let own = own.clone();
            let running = run();
            async move { Ok::<_, ReadError>(CachedResponse::new(running.await?, &own)) }.boxed()
        };
        // In a box: cached responses are more frequent.
        let flight = Box::pin(self.single_flight.run(entry, start)).await?;
        if flight.is_leader
            && self.capacity_bytes > 0
            && let Some(cached) = flight.value.to_cache(was_seen)
        {
            self.cache.insert(entry, cached).await;
        }
        let own = locked(&own).take();
        match (own, flight.value) {
            (Some(answer), _) => Ok(answer),
            (None, CachedResponse::Small(small)) => Ok(small.into()),
            (None, CachedResponse::Streamed | CachedResponse::SeenOnce) => run().await,
        }
    }

    /// The cached count of this key.
    pub(crate) async fn cached_count(&self, key: Option<CacheKey>) -> Option<u64> {
        match self.cache.get(&(key?, ContentCoding::Identity)).await {
            Some(CachedResponse::Small(small)) => Some(small.total),
            Some(CachedResponse::Streamed | CachedResponse::SeenOnce) | None => None,
        }
    }

    pub(crate) async fn cache_count(&self, key: Option<CacheKey>, count: Answer) {
        if let (Some(key), true) = (key, self.capacity_bytes > 0) {
            let cached = CachedResponse::new(count, &Mutex::default());
            self.cache.insert((key, ContentCoding::Identity), cached).await;
        }
    }

    pub(crate) async fn cached_codings(&self, key: CacheKey) -> Vec<ContentCoding> {
        let mut codings = Vec::new();
        for coding in ContentCoding::ALL {
            // Asked first, since it does not count as a use.
            let entry = (key, coding);
            if self.cache.contains_key(&entry) && matches!(self.cache.get(&entry).await, Some(CachedResponse::Small(_)))
            {
                codings.push(coding);
            }
        }
        codings
    }
}

/// Compresses a response, unless it is too small, or streamed while there is no memory for another compressor.
pub(crate) async fn compress(capacity: &Capacity, answer: Answer, coding: ContentCoding) -> Result<Answer, ReadError> {
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
            Ok(memory) => AnswerBody::Stream(compress_stream(capacity, parts, coding, memory)?),
            Err(_) => return Ok(Answer { body: AnswerBody::Stream(parts), ..answer }),
        },
        AnswerBody::Export(export) => return Ok(Answer { body: AnswerBody::Export(export), ..answer }),
    };
    Ok(Answer { coding, body, ..answer })
}

/// The body compressed by a task of its own, which keeps the compressor's memory. An error ends it.
fn compress_stream(
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
                let made = self.made.clone();
                let permits = self.permits.clone();
                let answer = self.answer.clone();
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
    async fn small_compressed_response_is_built_once() {
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
    async fn plain_page_is_cached_at_second_request() {
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
    async fn equal_requests_in_flight_run_once() {
        let responses = Responses::new(0);
        let maker = Maker::new(|| Ok(whole(2_000, ContentCoding::Zstd)));
        let answers = join_all((0..20).map(|_| maker.get(&responses, 1, ContentCoding::Zstd))).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(maker.made(), 1);
        maker.get(&responses, 1, ContentCoding::Zstd).await.expect("an answer");
        assert_eq!(maker.made(), 2);
    }

    #[tokio::test]
    async fn leaving_caller_breaks_no_other_response() {
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
    async fn error_goes_to_all_callers_and_is_not_cached() {
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
    async fn each_caller_has_its_own_stream() {
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
    async fn cache_size_is_limited() {
        let responses = Responses::new(100_000);
        let maker = Maker::new(|| Ok(whole(9_000, ContentCoding::Zstd)));
        for number in 0..100 {
            maker.get(&responses, number, ContentCoding::Zstd).await.expect("an answer");
        }
        responses.cache.run_pending_tasks().await;
        let held = responses.cache.weighted_size();
        assert!((9_000..=100_000).contains(&held), "{held}");
    }
}
