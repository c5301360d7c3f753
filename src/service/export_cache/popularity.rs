//! The exports of `active` and `latest` that clients request often, and will therefore request for the next version.
//!
//! An export is popular if its last [`MIN_POPULAR_REQUESTS`] requests were within [`POPULARITY_WINDOW`]. The list in
//! memory is limited. A new export replaces the one with the fewest requests; if several have the fewest, the one whose
//! last request is the oldest. A principal with many exports replaces only exports that it was the last to request.

use parking_lot::Mutex;

use std::sync::Arc;
use std::time::{Duration, Instant};

use strata_types::ids::DatasetId;
use strata_types::read_request::ReadRequest;
use strata_types::version::{VersionSelector, VersionVariant};

use crate::{CacheKey, Principal};

const MIN_POPULAR_REQUESTS: usize = 3;

/// Requests of an export count for a few nights, because many datasets are refreshed every night.
const POPULARITY_WINDOW: Duration = Duration::from_secs(3 * 24 * 3_600);
const MAX_EXPORTS_PER_PRINCIPAL: usize = 16;
const MAX_PREWARM_ATTEMPTS: u32 = 10;

#[derive(Clone, Debug)]
pub(crate) struct RequestedExport {
    pub dataset: DatasetId,
    pub version: VersionSelector,
    pub variant: VersionVariant,
    pub request: Arc<ReadRequest>,
    pub principal: Principal,
    /// Cache key of the last export that was requested, or for which the attempts to build it in advance have ended.
    pub key: CacheKey,
}

impl RequestedExport {
    fn is_same_export(&self, other: &RequestedExport) -> bool {
        (self.dataset, self.version, self.variant) == (other.dataset, other.version, other.variant)
            && self.request == other.request
    }
}

pub(crate) struct ExportPopularity {
    max_exports: usize,
    tracked: Mutex<Vec<TrackedExport>>,
}

struct TrackedExport {
    export: RequestedExport,
    request_times: Vec<Instant>,
    yielded_attempts: u32,
}

impl TrackedExport {
    fn recent_requests(&self, now: Instant) -> usize {
        self.request_times.iter().filter(|time| now.saturating_duration_since(**time) < POPULARITY_WINDOW).count()
    }
}

impl ExportPopularity {
    pub(crate) fn new(max_exports: usize) -> ExportPopularity {
        ExportPopularity { max_exports, tracked: Mutex::default() }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.max_exports > 0
    }

    pub(crate) fn record_request(&self, export: RequestedExport, now: Instant) {
        let mut tracked = self.tracked.lock();
        if let Some(same) = tracked.iter_mut().find(|other| other.export.is_same_export(&export)) {
            if same.request_times.len() >= MIN_POPULAR_REQUESTS {
                same.request_times.remove(0);
            }
            same.request_times.push(now);
            same.export = export;
            same.yielded_attempts = 0;
            return;
        }
        tracked.retain(|other| other.recent_requests(now) > 0);
        let is_own = |other: &TrackedExport| other.export.principal == export.principal;
        let has_many = tracked.iter().filter(|other| is_own(other)).count() >= MAX_EXPORTS_PER_PRINCIPAL;
        if has_many || tracked.len() >= self.max_exports {
            let candidates = (0..tracked.len()).filter(|index| !has_many || is_own(&tracked[*index]));
            let weakest = candidates.min_by_key(|index| {
                (tracked[*index].recent_requests(now), tracked[*index].request_times.last().copied())
            });
            if let Some(index) = weakest {
                tracked.remove(index);
            }
        }
        if tracked.len() < self.max_exports {
            tracked.push(TrackedExport { export, request_times: vec![now], yielded_attempts: 0 });
        }
    }

    pub(crate) fn popular_exports(&self, now: Instant) -> Vec<RequestedExport> {
        let tracked = self.tracked.lock();
        let popular = tracked.iter().filter(|export| export.recent_requests(now) >= MIN_POPULAR_REQUESTS);
        popular.map(|popular| popular.export.clone()).collect()
    }

    pub(crate) fn mark_prewarm_done(&self, export: &RequestedExport, key: CacheKey) {
        if let Some(known) = self.tracked.lock().iter_mut().find(|known| known.export.is_same_export(export)) {
            known.export.key = key;
            known.yielded_attempts = 0;
        }
    }

    pub(crate) fn record_prewarm_yield(&self, export: &RequestedExport, key: CacheKey) {
        if let Some(known) = self.tracked.lock().iter_mut().find(|known| known.export.is_same_export(export)) {
            known.yielded_attempts += 1;
            if known.yielded_attempts >= MAX_PREWARM_ATTEMPTS {
                known.export.key = key;
                known.yielded_attempts = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit::ClientNetwork;

    fn export(limit: u64, client: u8) -> RequestedExport {
        RequestedExport {
            dataset: DatasetId::new(1),
            version: VersionSelector::Active,
            variant: VersionVariant::Original,
            request: Arc::new(ReadRequest { limit: Some(limit), ..ReadRequest::default() }),
            principal: Principal::Anonymous(ClientNetwork::V4([192, 0, 2, client])),
            key: CacheKey::from_test_number(0),
        }
    }

    fn popular_limits(popularity: &ExportPopularity, now: Instant) -> Vec<u64> {
        popularity.popular_exports(now).iter().filter_map(|export| export.request.limit).collect()
    }

    #[test]
    fn three_requests_in_three_days_are_popular() {
        let popularity = ExportPopularity::new(10);
        let day = Duration::from_secs(24 * 3_600);
        let begin = Instant::now();
        for (number, limit) in [1, 2, 1, 2, 2].into_iter().enumerate() {
            popularity.record_request(export(limit, 1), begin + day / 2 * u32::try_from(number).expect("small"));
        }
        assert_eq!(popular_limits(&popularity, begin + 2 * day), [2]);
        popularity.record_request(export(1, 2), begin + 2 * day);
        assert_eq!(popular_limits(&popularity, begin + 2 * day), [1, 2]);
        // The first request for export 1 is too old to count.
        assert_eq!(popular_limits(&popularity, begin + 3 * day), [2]);
        assert!(popular_limits(&popularity, begin + 9 * day).is_empty());
        let popularity = ExportPopularity::new(10);
        for _ in 0..2 {
            popularity.record_request(RequestedExport { version: VersionSelector::Latest, ..export(3, 1) }, begin);
            let alternate = RequestedExport { variant: VersionVariant::Alternate, ..export(3, 1) };
            popularity.record_request(alternate, begin);
            popularity.record_request(export(3, 1), begin);
        }
        assert!(popular_limits(&popularity, begin).is_empty());
    }

    #[test]
    fn list_is_limited_and_popular_export_stays() {
        let popularity = ExportPopularity::new(20);
        let now = Instant::now();
        for _ in 0..3 {
            popularity.record_request(export(1_000, 1), now);
        }
        for limit in 0..100 {
            popularity.record_request(export(limit, 2), now);
        }
        assert_eq!(popularity.tracked.lock().len(), 1 + MAX_EXPORTS_PER_PRINCIPAL);
        for limit in 100..200 {
            popularity.record_request(export(limit, u8::try_from(limit).expect("small")), now);
        }
        assert_eq!(popular_limits(&popularity, now), [1_000]);
        assert_eq!(popularity.tracked.lock().len(), 20);
        popularity.record_request(export(1, 1), now + 2 * POPULARITY_WINDOW);
        assert_eq!(popularity.tracked.lock().len(), 1);

        let none = ExportPopularity::new(0);
        none.record_request(export(1, 1), now);
        assert!(!none.is_enabled() && none.tracked.lock().is_empty());
    }

    #[test]
    fn attempts_are_limited() {
        let popularity = ExportPopularity::new(10);
        let now = Instant::now();
        let requested = export(1, 1);
        for _ in 0..3 {
            popularity.record_request(requested.clone(), now);
        }
        let key = || popularity.popular_exports(now)[0].key;
        for _ in 0..MAX_PREWARM_ATTEMPTS - 1 {
            popularity.record_prewarm_yield(&requested, CacheKey::from_test_number(7));
            assert_eq!(key(), CacheKey::from_test_number(0));
        }
        popularity.record_prewarm_yield(&requested, CacheKey::from_test_number(7));
        assert_eq!(key(), CacheKey::from_test_number(7));
        popularity.mark_prewarm_done(&requested, CacheKey::from_test_number(8));
        assert_eq!(key(), CacheKey::from_test_number(8));
    }
}
