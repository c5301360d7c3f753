//! Layers around the steps of a read ([`crate::read::pipeline`]): a cache with single flight
//! ([`ResponseCache::get_or_run`]), and compression ([`compress`]).
//!
//! - Equal requests in flight run once if the response is small. Each caller gets its own stream.
//! - The cache stores compressed responses, because compression costs more than all other steps, and tiny plain
//!   responses, because a count can cost a scan. A plain page is stored at the second request: if the documents are in
//!   memory, building a page costs little more than sending it, and most pages are requested only once.
//! - Compression runs on the engine's threads, for a stream chunk by chunk and a few chunks ahead of the reader.
//!
//! Responses of private datasets are cached like others, because the cache is used only after authorization.

use parking_lot::Mutex;

use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use datafusion::execution::memory_pool::MemoryReservation;
use futures::FutureExt;
use futures::stream::{BoxStream, TryStreamExt};
use moka::future::Cache;
use strata_encode::{self as encode, BodyCompressor, ContentCoding, MIN_COMPRESSED_BODY_BYTES};
use strata_query::QueryError;

use crate::admission::resource_context::ResourceContext;
use crate::admission::{BufferCharge, MAX_UNCHARGED_BYTES, bytes_with_charge};
use crate::lookup::error::Result;
use crate::read::entity_source::stream_from_task;
use crate::read::single_flight::SingleFlight;
use crate::read::text_body::spawn_encoding;
use crate::read::{ReadResponse, ResponseBody};
use crate::{CacheKey, ReadError};

const MAX_COMPRESSED_CHUNKS: usize = 2;
const COMPRESS_YIELD_BYTES: usize = 256 << 10;

/// Size limit of an uncompressed page in the response cache. Typical pages have 100 entities.
const MAX_CACHED_PAGE_BYTES: usize = 256 << 10;
const ENTRY_OVERHEAD_BYTES: usize = 256;

type ResponseKey = (CacheKey, ContentCoding);

#[derive(Clone)]
pub(crate) struct ResponseCache {
    cache: Cache<ResponseKey, CachedResponse, foldhash::fast::RandomState>,
    single_flight: Arc<SingleFlight<ResponseKey, CachedResponse>>,
    capacity_bytes: u64,
}

#[derive(Clone)]
enum CachedResponse {
    Small(SmallResponse),
    Streamed,
    /// The response is an uncompressed page that was requested only once, so its bytes are not cached.
    SeenOnce,
}

#[derive(Clone)]
struct SmallResponse {
    total: u64,
    matches: Option<u64>,
    content_type: &'static str,
    coding: ContentCoding,
    bytes: Bytes,
    send_charge: Arc<Mutex<Weak<BufferCharge>>>,
}

impl SmallResponse {
    /// Charges the memory of large cached bytes until the last reader has received them, even after their eviction.
    fn into_response(self, charge: impl Fn(u64) -> Result<Arc<BufferCharge>, QueryError>) -> Result<ReadResponse> {
        let size_bytes = self.bytes.len() as u64;
        if size_bytes <= MAX_UNCHARGED_BYTES {
            return Ok(self.into());
        }
        let mut send_charge = self.send_charge.lock();
        let charge = match send_charge.upgrade() {
            Some(charge) => charge,
            None => charge(size_bytes)?,
        };
        *send_charge = Arc::downgrade(&charge);
        drop(send_charge);
        let bytes = bytes_with_charge(self.bytes.clone(), charge);
        Ok(SmallResponse { bytes, ..self }.into())
    }

    fn is_always_cacheable(&self) -> bool {
        self.coding != ContentCoding::Identity || self.bytes.len() < MIN_COMPRESSED_BODY_BYTES
    }

    fn is_cacheable_page(&self) -> bool {
        self.bytes.len() <= MAX_CACHED_PAGE_BYTES
    }

    fn to_cache_copy(&self) -> SmallResponse {
        let is_charged = self.bytes.len() as u64 > MAX_UNCHARGED_BYTES;
        let bytes = if is_charged { Bytes::copy_from_slice(&self.bytes) } else { self.bytes.clone() };
        SmallResponse { bytes, send_charge: Arc::default(), ..self.clone() }
    }
}

impl CachedResponse {
    fn small_or_streamed(response: ReadResponse, unshared: &Mutex<Option<ReadResponse>>) -> CachedResponse {
        let ResponseBody::Whole(bytes) = &response.body else {
            *unshared.lock() = Some(response);
            return CachedResponse::Streamed;
        };
        // Bytes in the cache must not count as bytes that wait to be sent.
        let is_small = bytes.len() < MIN_COMPRESSED_BODY_BYTES;
        let bytes = if is_small { Bytes::copy_from_slice(bytes) } else { bytes.clone() };
        let ReadResponse { total, matches, content_type, coding, .. } = response;
        let send_charge = Arc::default();
        CachedResponse::Small(SmallResponse { total, matches, content_type, coding, bytes, send_charge })
    }

    fn memory_bytes(&self) -> usize {
        match self {
            CachedResponse::Small(small) => ENTRY_OVERHEAD_BYTES + small.bytes.len(),
            CachedResponse::Streamed | CachedResponse::SeenOnce => ENTRY_OVERHEAD_BYTES,
        }
    }

    fn to_cache_entry(&self, was_seen: bool) -> Option<CachedResponse> {
        match self {
            CachedResponse::Small(small) if small.is_always_cacheable() || (was_seen && small.is_cacheable_page()) => {
                Some(CachedResponse::Small(small.to_cache_copy()))
            }
            CachedResponse::Small(small) => small.is_cacheable_page().then_some(CachedResponse::SeenOnce),
            CachedResponse::Streamed | CachedResponse::SeenOnce => Some(self.clone()),
        }
    }
}

impl From<SmallResponse> for ReadResponse {
    fn from(small: SmallResponse) -> ReadResponse {
        let SmallResponse { total, matches, content_type, coding, bytes, send_charge: _ } = small;
        ReadResponse { total, matches, content_type, coding, body: ResponseBody::Whole(bytes) }
    }
}

impl ResponseCache {
    pub(crate) fn new(capacity_bytes: u64) -> ResponseCache {
        let cache = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_, cached: &CachedResponse| u32::try_from(cached.memory_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        ResponseCache { cache, single_flight: Arc::default(), capacity_bytes }
    }

    pub(crate) async fn get_or_run<M: Future<Output = Result<ReadResponse>> + Send + 'static>(
        &self,
        key: CacheKey,
        coding: ContentCoding,
        charge: impl Fn(u64) -> Result<Arc<BufferCharge>, QueryError>,
        run: impl Fn() -> M,
    ) -> Result<ReadResponse> {
        let entry = (key, coding);
        let was_seen = match self.cache.get(&entry).await {
            Some(CachedResponse::Small(small)) => return small.into_response(charge),
            Some(CachedResponse::Streamed) => return run().await,
            Some(CachedResponse::SeenOnce) => true,
            None => false,
        };
        let unshared: Arc<Mutex<Option<ReadResponse>>> = Arc::default();
        let start = || {
            let unshared = unshared.clone();
            let response = run();
            async move { Ok::<_, ReadError>(CachedResponse::small_or_streamed(response.await?, &unshared)) }.boxed()
        };
        // The work of a cache miss is boxed, so that the future of the frequent case, a cached response, stays small.
        let fetch = Box::pin(self.single_flight.run(entry, start)).await?;
        if fetch.is_leader
            && self.capacity_bytes > 0
            && let Some(cached) = fetch.value.to_cache_entry(was_seen)
        {
            self.cache.insert(entry, cached).await;
        }
        let unshared = unshared.lock().take();
        match (unshared, fetch.value) {
            (Some(response), _) => Ok(response),
            (None, CachedResponse::Small(small)) => Ok(small.into()),
            (None, CachedResponse::Streamed | CachedResponse::SeenOnce) => run().await,
        }
    }

    pub(crate) async fn cached_count(&self, key: Option<CacheKey>) -> Option<u64> {
        match self.cache.get(&(key?, ContentCoding::Identity)).await {
            Some(CachedResponse::Small(small)) => Some(small.total),
            Some(CachedResponse::Streamed | CachedResponse::SeenOnce) | None => None,
        }
    }

    pub(crate) async fn cache_count(&self, key: Option<CacheKey>, count: ReadResponse) {
        if let (Some(key), true) = (key, self.capacity_bytes > 0) {
            let cached = CachedResponse::small_or_streamed(count, &Mutex::default());
            self.cache.insert((key, ContentCoding::Identity), cached).await;
        }
    }

    pub(crate) async fn cached_codings(&self, key: CacheKey) -> Vec<ContentCoding> {
        let mut codings = Vec::new();
        for coding in ContentCoding::ALL {
            // Unlike `get`, `contains_key` does not count as a use of a key in the cache.
            let entry = (key, coding);
            if self.cache.contains_key(&entry) && matches!(self.cache.get(&entry).await, Some(CachedResponse::Small(_)))
            {
                codings.push(coding);
            }
        }
        codings
    }
}

/// Compresses a response. Small responses, and streams without memory for another compressor, remain uncompressed.
pub(crate) async fn compress(
    resources: &ResourceContext,
    response: ReadResponse,
    coding: ContentCoding,
) -> Result<ReadResponse> {
    if coding == ContentCoding::Identity {
        return Ok(response);
    }
    let body = match response.body {
        ResponseBody::Whole(bytes) if bytes.len() < MIN_COMPRESSED_BODY_BYTES => {
            return Ok(ReadResponse { body: ResponseBody::Whole(bytes), ..response });
        }
        ResponseBody::Whole(bytes) => {
            let size_bytes = bytes.len() as u64;
            let work = async move { encode::compress_body(coding, &bytes) };
            let bytes = spawn_encoding(resources, size_bytes, work).await?.map_err(ReadError::unreadable)?;
            ResponseBody::Whole(resources.charge_whole_body(bytes, None)?)
        }
        ResponseBody::Stream(parts) => match resources.engine.try_reserve("compressor", coding.memory_bytes()) {
            Ok(memory) => ResponseBody::Stream(compress_stream(resources, parts, coding, memory)?),
            Err(_) => return Ok(ReadResponse { body: ResponseBody::Stream(parts), ..response }),
        },
        ResponseBody::Export(export) => return Ok(ReadResponse { body: ResponseBody::Export(export), ..response }),
    };
    Ok(ReadResponse { coding, body, ..response })
}

fn compress_stream(
    resources: &ResourceContext,
    mut parts: BoxStream<'static, Result<Bytes>>,
    coding: ContentCoding,
    memory: MemoryReservation,
) -> Result<BoxStream<'static, Result<Bytes>>> {
    let mut compressor = BodyCompressor::try_new(coding).map_err(ReadError::unreadable)?;
    let charge = {
        let resources = resources.clone();
        move |bytes| resources.charge_chunk(bytes)
    };
    Ok(stream_from_task(&resources.engine, MAX_COMPRESSED_CHUNKS, async move |sender| {
        let _memory = memory;
        while let Some(part) = parts.try_next().await? {
            let mut bytes = BytesMut::new();
            // A chunk can contain a large entity, so the compression yields to other work.
            for slice in part.chunks(COMPRESS_YIELD_BYTES) {
                bytes.extend_from_slice(&compressor.write(slice).map_err(ReadError::unreadable)?);
                tokio::task::yield_now().await;
            }
            let bytes = bytes.freeze();
            drop(part);
            if !bytes.is_empty() && sender.send(charge(bytes)?).await.is_err() {
                return Ok(());
            }
        }
        let bytes = compressor.finish().map_err(ReadError::unreadable)?;
        let _ = sender.send(charge(bytes)?).await;
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use futures::stream::{self, StreamExt};
    use tokio::sync::Semaphore;

    use super::*;

    fn whole_response(size_bytes: usize, coding: ContentCoding) -> ReadResponse {
        let body = ResponseBody::Whole(vec![7; size_bytes].into());
        ReadResponse { total: 3, matches: Some(9), content_type: "text/plain", coding, body }
    }

    fn streamed_response() -> ReadResponse {
        let body = ResponseBody::Stream(stream::iter([Ok(Bytes::from_static(b"part"))]).boxed());
        ReadResponse { total: 3, matches: Some(9), content_type: "text/plain", coding: ContentCoding::Zstd, body }
    }

    struct CountingResponder {
        response_count: Arc<AtomicUsize>,
        answer: Arc<dyn Fn() -> Result<ReadResponse, ReadError> + Send + Sync>,
        permits: Arc<Semaphore>,
    }

    impl CountingResponder {
        fn new(answer: impl Fn() -> Result<ReadResponse, ReadError> + Send + Sync + 'static) -> CountingResponder {
            CountingResponder {
                response_count: Arc::default(),
                answer: Arc::new(answer),
                permits: Arc::new(Semaphore::new(1_000)),
            }
        }

        async fn get(
            &self,
            cache: &ResponseCache,
            number: usize,
            coding: ContentCoding,
        ) -> Result<ReadResponse, ReadError> {
            let respond = || {
                let response_count = self.response_count.clone();
                let permits = self.permits.clone();
                let answer = self.answer.clone();
                async move {
                    response_count.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    permits.acquire().await.expect("open").forget();
                    answer()
                }
            };
            let charge = |_| Err(QueryError::OutOfMemory(String::new()));
            cache.get_or_run(CacheKey::from_test_number(number), coding, charge, respond).await
        }

        fn response_count(&self) -> usize {
            self.response_count.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn small_compressed_response_is_built_once() {
        let cache = ResponseCache::new(1 << 20);
        let responder = CountingResponder::new(|| Ok(whole_response(2_000, ContentCoding::Zstd)));
        for _ in 0..3 {
            for coding in [ContentCoding::Zstd, ContentCoding::Gzip] {
                let response = responder.get(&cache, 1, coding).await.expect("a response");
                assert_eq!((response.total, response.matches), (3, Some(9)));
                assert_eq!((response.content_type, response.coding), ("text/plain", ContentCoding::Zstd));
                assert!(matches!(response.body, ResponseBody::Whole(bytes) if bytes == vec![7; 2_000]));
            }
        }
        assert_eq!(responder.response_count(), 2);
        responder.get(&cache, 2, ContentCoding::Zstd).await.expect("a response");
        assert_eq!(responder.response_count(), 3);
    }

    #[tokio::test]
    async fn plain_page_is_cached_at_second_request() {
        let cache = ResponseCache::new(1 << 20);
        let sizes = [
            (MIN_COMPRESSED_BODY_BYTES - 1, 1),
            (MIN_COMPRESSED_BODY_BYTES, 2),
            (60_000, 2),
            (MAX_CACHED_PAGE_BYTES + 1, 4),
        ];
        for (size_bytes, expected) in sizes {
            let responder = CountingResponder::new(move || Ok(whole_response(size_bytes, ContentCoding::Identity)));
            for _ in 0..4 {
                let response = responder.get(&cache, size_bytes, ContentCoding::Identity).await.expect("a response");
                assert!(matches!(response.body, ResponseBody::Whole(bytes) if bytes == vec![7; size_bytes]));
            }
            assert_eq!(responder.response_count(), expected, "{size_bytes} bytes");
        }
    }

    #[tokio::test]
    async fn equal_requests_in_flight_run_once() {
        let cache = ResponseCache::new(0);
        let responder = CountingResponder::new(|| Ok(whole_response(2_000, ContentCoding::Zstd)));
        let results = join_all((0..20).map(|_| responder.get(&cache, 1, ContentCoding::Zstd))).await;
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(responder.response_count(), 1);
        responder.get(&cache, 1, ContentCoding::Zstd).await.expect("a response");
        assert_eq!(responder.response_count(), 2);
    }

    #[tokio::test]
    async fn dropped_caller_does_not_stop_other_callers() {
        let cache = ResponseCache::new(1 << 20);
        let mut responder = CountingResponder::new(|| Ok(whole_response(2_000, ContentCoding::Zstd)));
        responder.permits = Arc::new(Semaphore::new(0));
        let mut first = Box::pin(responder.get(&cache, 1, ContentCoding::Zstd));
        assert!(futures::poll!(&mut first).is_pending());
        let mut others: Vec<_> = (0..3).map(|_| Box::pin(responder.get(&cache, 1, ContentCoding::Zstd))).collect();
        for other in &mut others {
            assert!(futures::poll!(other).is_pending());
        }
        assert_eq!(responder.response_count(), 1);
        drop(first);
        responder.permits.add_permits(1_000);
        assert!(join_all(others).await.iter().all(Result::is_ok));
        assert_eq!(responder.response_count(), 1);
        // After its first caller was dropped, a response is cached, or is built at most once more.
        responder.get(&cache, 1, ContentCoding::Zstd).await.expect("a response");
        assert!(responder.response_count() <= 2);
        assert!(cache.single_flight.is_idle());
    }

    #[tokio::test]
    async fn error_goes_to_all_callers_and_is_not_cached() {
        let cache = ResponseCache::new(1 << 20);
        let fails = Arc::new(Mutex::new(true));
        let failing = fails.clone();
        let responder = CountingResponder::new(move || match *failing.lock() {
            true => Err(ReadError::Timeout { seconds: 9 }),
            false => Ok(whole_response(2_000, ContentCoding::Zstd)),
        });
        let results = join_all((0..5).map(|_| responder.get(&cache, 1, ContentCoding::Zstd))).await;
        assert!(results.iter().all(|result| matches!(result, Err(ReadError::Timeout { seconds: 9 }))));
        assert_eq!(responder.response_count(), 1);
        *fails.lock() = false;
        responder.get(&cache, 1, ContentCoding::Zstd).await.expect("a response");
        assert_eq!(responder.response_count(), 2);
    }

    #[tokio::test]
    async fn each_caller_has_its_own_stream() {
        let cache = ResponseCache::new(1 << 20);
        let mut responder = CountingResponder::new(|| Ok(streamed_response()));
        let results = join_all((0..4).map(|_| responder.get(&cache, 1, ContentCoding::Zstd))).await;
        for result in results {
            let ResponseBody::Stream(parts) = result.expect("a response").body else { panic!("a stream") };
            let parts: Vec<_> = parts.map(|part| part.expect("a part")).collect().await;
            assert_eq!(parts, ["part"]);
        }
        assert_eq!(responder.response_count(), 4);
        responder.permits = Arc::new(Semaphore::new(0));
        let mut both: Vec<_> = (0..2).map(|_| Box::pin(responder.get(&cache, 1, ContentCoding::Zstd))).collect();
        for request in &mut both {
            assert!(futures::poll!(request).is_pending());
        }
        assert_eq!(responder.response_count(), 6);
    }

    #[tokio::test]
    async fn cache_size_is_limited() {
        let cache = ResponseCache::new(100_000);
        let responder = CountingResponder::new(|| Ok(whole_response(9_000, ContentCoding::Zstd)));
        for number in 0..100 {
            responder.get(&cache, number, ContentCoding::Zstd).await.expect("a response");
        }
        cache.cache.run_pending_tasks().await;
        let cached_bytes = cache.cache.weighted_size();
        assert!((9_000..=100_000).contains(&cached_bytes), "{cached_bytes}");
    }
}
