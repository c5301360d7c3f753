//! Caches the catalog's records of the targets of reads, for less than a second.
//!
//! A look-up costs more than the rest of a small warm read, most of it the way to the database's thread or server and
//! back. Kept answers must not hide changes (docs/reference/api/index.md, Caching):
//! - A change made by another process shows within [`FRESH`], counted from before the catalog was asked, and at once
//!   where the catalog tells of it.
//! - One made by this process shows at once: every write is followed by [`CatalogCache::changed`], after which keys are
//!   others. So an answer that was under way meanwhile is kept under a key that nobody asks for any more.
//!
//! Look-ups of the same target at the same time ask the catalog once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moka::future::Cache;
use strata_catalog::{CatalogError, Resolved};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use crate::lookup::error::ReadError;

/// How old an answer may be. Half of what may pass until a change shows, so that the rest is left for a slow read.
pub(super) const FRESH: Duration = Duration::from_millis(500);

/// Targets that are kept: about 10 MB. What is asked for often stays, however many others come.
const TARGETS: u64 = 10_000;

pub(crate) struct CatalogCache {
    kept: Cache<Key, Kept>,
    fresh: Duration,
    changes: AtomicU64,
}

type Key = (u64, DatasetId, VersionSelector);

#[derive(Clone)]
struct Kept {
    asked: Instant,
    resolved: Option<Arc<Resolved>>,
}

impl CatalogCache {
    pub(crate) fn new(fresh: Duration) -> CatalogCache {
        let kept = Cache::builder().max_capacity(TARGETS).time_to_live(fresh).build();
        CatalogCache { kept, fresh, changes: AtomicU64::new(0) }
    }

    /// Forgets everything: to be called after every write to the catalog, before anybody is told of it.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// What `ask` says of a target ([`Catalog::resolve_read`]), or what is kept of it if that is fresh.
    ///
    /// [`Catalog::resolve_read`]: strata_catalog::Catalog::resolve_read
    pub(super) async fn resolve<F>(
        &self,
        id: DatasetId,
        selector: VersionSelector,
        ask: impl Fn() -> F,
    ) -> Result<Option<Arc<Resolved>>, ReadError>
    where
        F: Future<Output = Result<Option<Resolved>, CatalogError>>,
    {
        let key = (self.changes.load(Ordering::SeqCst), id, selector);
        if let Some(kept) = self.kept.get(&key).await
            && kept.asked.elapsed() <= FRESH
        {
            return Ok(kept.resolved);
        }
        let load = async {
            let asked = Instant::now();
            Ok(Kept { asked, resolved: ask().await?.map(Arc::new) })
        };
        // In a box: a cached answer is more frequent.
        let kept = Box::pin(self.kept.try_get_with(key, load)).await;
        let kept = kept.map_err(|error: Arc<CatalogError>| ReadError::from(error))?;
        if kept.asked.elapsed() <= self.fresh {
            return Ok(kept.resolved);
        }
        // The catalog took long, and it may be another request's question that it answered.
        Ok(Box::pin(ask()).await?.map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Semaphore;

    use super::*;

    fn target() -> (DatasetId, VersionSelector) {
        (DatasetId::new(1), VersionSelector::Active)
    }

    /// A catalog that counts its questions, and answers when it is let.
    struct Asked {
        questions: AtomicUsize,
        answers: Semaphore,
    }

    impl Asked {
        fn new(answers: usize) -> Asked {
            Asked { questions: AtomicUsize::new(0), answers: Semaphore::new(answers) }
        }

        async fn answer(&self) -> Result<Option<Resolved>, CatalogError> {
            self.questions.fetch_add(1, Ordering::SeqCst);
            self.answers.acquire().await.expect("open").forget();
            Ok(None)
        }

        async fn resolve(&self, lookups: &CatalogCache) {
            let (id, selector) = target();
            let resolved = lookups.resolve(id, selector, || self.answer()).await.expect("an answer");
            assert!(resolved.is_none());
        }

        fn questions(&self) -> usize {
            self.questions.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn look_ups_at_the_same_time_ask_once() {
        let (lookups, asked) = (CatalogCache::new(FRESH), Asked::new(0));
        let answer = async {
            tokio::task::yield_now().await;
            asked.answers.add_permits(1);
        };
        tokio::join!(asked.resolve(&lookups), asked.resolve(&lookups), asked.resolve(&lookups), answer);
        assert_eq!(asked.questions(), 1);
    }

    #[tokio::test]
    async fn after_a_change_nothing_that_was_asked_before_is_used() {
        let (lookups, asked) = (CatalogCache::new(FRESH), Asked::new(0));
        let changed = async {
            tokio::task::yield_now().await;
            assert_eq!(asked.questions(), 1);
            // While the first is under way: the second must not wait for its answer, nor find it later.
            lookups.changed();
            asked.answers.add_permits(2);
            asked.resolve(&lookups).await;
        };
        tokio::join!(asked.resolve(&lookups), changed);
        assert_eq!(asked.questions(), 2);
    }

    #[tokio::test]
    async fn an_answer_that_is_no_longer_fresh_is_not_used() {
        let (lookups, asked) = (CatalogCache::new(FRESH), Asked::new(9));
        let (id, selector) = target();
        let asked_at = Instant::now().checked_sub(FRESH + Duration::from_millis(1)).expect("a running machine");
        lookups.kept.insert((0, id, selector), Kept { asked: asked_at, resolved: None }).await;
        asked.resolve(&lookups).await;
        assert_eq!(asked.questions(), 1);
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let lookups = CatalogCache::new(FRESH);
        let (id, selector) = target();
        let failed = lookups.resolve(id, selector, async || Err(CatalogError::NotFound)).await;
        assert!(matches!(failed, Err(ReadError::Unreadable(_))), "{failed:?}");
        Asked::new(1).resolve(&lookups).await;
    }
}
