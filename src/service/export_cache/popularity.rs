//! The exports of `active` and `latest` that clients request often, and will therefore request of the next version.
//!
//! An export is popular if its last [`POPULAR_REQUESTS`] requests were within [`POPULAR_WITHIN`]. The list is in memory
//! and limited. A new export replaces the one with the fewest requests, and of those the one whose last request is the
//! oldest. A principal with many exports replaces only exports that it was the last to request.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use strata_types::ids::DatasetId;
use strata_types::request::ReadRequest;
use strata_types::version::VersionSelector;

use crate::{CacheKey, Principal, locked};

/// Requests that make an export popular.
const POPULAR_REQUESTS: usize = 3;

/// How long a request counts: a few nights, because many datasets are refreshed every night.
const POPULAR_WITHIN: Duration = Duration::from_secs(3 * 24 * 3_600);

/// Exports that one principal was the last to request.
const EXPORTS_PER_PRINCIPAL: usize = 16;

/// How often strata tries to build an export in advance.
const ATTEMPTS: u32 = 10;

/// An export of a version that a selector names at the time.
#[derive(Clone, Debug)]
pub(crate) struct AskedExport {
    pub dataset: DatasetId,
    pub version: VersionSelector,
    pub alt: bool,
    /// In canonical form.
    pub request: Arc<ReadRequest>,
    pub holder: Principal,
    /// The export that was requested last, or built in advance.
    pub key: CacheKey,
}

impl AskedExport {
    fn is(&self, other: &AskedExport) -> bool {
        (self.dataset, self.version, self.alt) == (other.dataset, other.version, other.alt)
            && self.request == other.request
    }
}

pub(crate) struct AskedExports {
    most: usize,
    known: Mutex<Vec<Known>>,
}

struct Known {
    export: AskedExport,
    asks: Vec<Instant>,
    /// How often the export of the next version was not finished.
    tries: u32,
}

impl Known {
    fn recent(&self, now: Instant) -> usize {
        self.asks.iter().filter(|ask| now.saturating_duration_since(**ask) < POPULAR_WITHIN).count()
    }
}

impl AskedExports {
    pub(crate) fn new(most: usize) -> AskedExports {
        AskedExports { most, known: Mutex::default() }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.most > 0
    }

    pub(crate) fn ask(&self, export: AskedExport, now: Instant) {
        let mut known = locked(&self.known);
        if let Some(same) = known.iter_mut().find(|other| other.export.is(&export)) {
            if same.asks.len() >= POPULAR_REQUESTS {
                same.asks.remove(0);
            }
            same.asks.push(now);
            (same.export, same.tries) = (export, 0);
            return;
        }
        known.retain(|other| other.recent(now) > 0);
        let is_own = |other: &Known| other.export.holder == export.holder;
        let has_many = known.iter().filter(|other| is_own(other)).count() >= EXPORTS_PER_PRINCIPAL;
        if has_many || known.len() >= self.most {
            let places = (0..known.len()).filter(|place| !has_many || is_own(&known[*place]));
            let weakest = places.min_by_key(|place| (known[*place].recent(now), known[*place].asks.last().copied()));
            if let Some(place) = weakest {
                known.remove(place);
            }
        }
        if known.len() < self.most {
            known.push(Known { export, asks: vec![now], tries: 0 });
        }
    }

    pub(crate) fn often(&self, now: Instant) -> Vec<AskedExport> {
        let known = locked(&self.known);
        let often = known.iter().filter(|known| known.recent(now) >= POPULAR_REQUESTS);
        often.map(|known| known.export.clone()).collect()
    }

    /// Records that the export of this key needs no further attempts.
    pub(crate) fn settle(&self, export: &AskedExport, key: CacheKey) {
        if let Some(known) = locked(&self.known).iter_mut().find(|known| known.export.is(export)) {
            (known.export.key, known.tries) = (key, 0);
        }
    }

    /// Records an attempt that yielded to other work. The last one settles the export.
    pub(crate) fn gave_way(&self, export: &AskedExport, key: CacheKey) {
        if let Some(known) = locked(&self.known).iter_mut().find(|known| known.export.is(export)) {
            known.tries += 1;
            if known.tries >= ATTEMPTS {
                (known.export.key, known.tries) = (key, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit::Client;

    fn export(limit: u64, holder: u8) -> AskedExport {
        AskedExport {
            dataset: DatasetId::new(1),
            version: VersionSelector::Active,
            alt: false,
            request: Arc::new(ReadRequest { limit: Some(limit), ..ReadRequest::default() }),
            holder: Principal::Anonymous(Client::V4([192, 0, 2, holder])),
            key: CacheKey::numbered(0),
        }
    }

    fn often(asked: &AskedExports, now: Instant) -> Vec<u64> {
        asked.often(now).iter().filter_map(|export| export.request.limit).collect()
    }

    #[test]
    fn three_requests_in_three_days_are_popular() {
        let asked = AskedExports::new(10);
        let day = Duration::from_secs(24 * 3_600);
        let begin = Instant::now();
        for (number, limit) in [1, 2, 1, 2, 2].into_iter().enumerate() {
            asked.ask(export(limit, 1), begin + day / 2 * u32::try_from(number).expect("small"));
        }
        assert_eq!(often(&asked, begin + 2 * day), [2]);
        asked.ask(export(1, 2), begin + 2 * day);
        assert_eq!(often(&asked, begin + 2 * day), [1, 2]);
        // The first ask of the first one is too long ago.
        assert_eq!(often(&asked, begin + 3 * day), [2]);
        assert!(often(&asked, begin + 9 * day).is_empty());
        // Another version, and an alternate, are other exports.
        let asked = AskedExports::new(10);
        for _ in 0..2 {
            asked.ask(AskedExport { version: VersionSelector::Latest, ..export(3, 1) }, begin);
            asked.ask(AskedExport { alt: true, ..export(3, 1) }, begin);
            asked.ask(export(3, 1), begin);
        }
        assert!(often(&asked, begin).is_empty());
    }

    #[test]
    fn list_is_limited_and_popular_export_stays() {
        let asked = AskedExports::new(20);
        let now = Instant::now();
        for _ in 0..3 {
            asked.ask(export(1_000, 1), now);
        }
        for limit in 0..100 {
            asked.ask(export(limit, 2), now);
        }
        // One who asks for many has so many.
        assert_eq!(locked(&asked.known).len(), 1 + EXPORTS_PER_PRINCIPAL);
        for limit in 100..200 {
            asked.ask(export(limit, u8::try_from(limit).expect("small")), now);
        }
        assert_eq!(often(&asked, now), [1_000]);
        assert_eq!(locked(&asked.known).len(), 20);
        // Days later they all make room.
        asked.ask(export(1, 1), now + 2 * POPULAR_WITHIN);
        assert_eq!(locked(&asked.known).len(), 1);

        let none = AskedExports::new(0);
        none.ask(export(1, 1), now);
        assert!(!none.is_wanted() && locked(&none.known).is_empty());
    }

    #[test]
    fn attempts_are_limited() {
        let asked = AskedExports::new(10);
        let now = Instant::now();
        let one = export(1, 1);
        for _ in 0..3 {
            asked.ask(one.clone(), now);
        }
        let key = || asked.often(now)[0].key;
        for _ in 0..ATTEMPTS - 1 {
            asked.gave_way(&one, CacheKey::numbered(7));
            assert_eq!(key(), CacheKey::numbered(0));
        }
        asked.gave_way(&one, CacheKey::numbered(7));
        assert_eq!(key(), CacheKey::numbered(7));
        asked.settle(&one, CacheKey::numbered(8));
        assert_eq!(key(), CacheKey::numbered(8));
    }
}
