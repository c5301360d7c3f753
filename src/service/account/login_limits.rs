//! Limits how often passwords can be guessed.
//!
//! Three counts, each with its own limit, make guessing slow without locking an owner out:
//!
//! 1. Wrong passwords of one client for one email address: some in a row are free, then each costs a pause that is
//!    twice the previous one. A client that guesses waits; the owner, at another client, does not.
//! 2. Logins of one client in a minute, for all email addresses: [`CLIENT_FACTOR`] times as many.
//! 3. Wrong passwords for one email address in an hour, by all clients that have never logged in to it. The limit does
//!    not apply to a client that has.
//!
//! An attempt counts as wrong from its beginning, so that concurrent attempts cannot exceed a limit. It is no longer
//! counted after the password was right, or was not checked. Memory is bounded: the least recently used entries go
//! first.
//!
//! This module counts in the process, `shared_logins` counts the same in Redis.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::{Cache, CacheBuilder};

use crate::Client;

/// Logins that a client can try in a minute, as a multiple of those that are free for one email address.
pub(crate) const CLIENT_FACTOR: u64 = 3;

pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(900);

/// The time after the last wrong password after which the pause is reset.
pub(crate) const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// The length of the window of an email address.
pub(crate) const WINDOW: Duration = Duration::from_secs(3_600);

/// The maximum number of entries of each cache. An entry takes about 100 bytes.
const MAX_ENTRIES: u64 = 50_000;

/// A keyed hash of a client and an email address.
type Pair = u64;

/// The counts and their limits. 0 disables a limit.
pub(crate) struct LoginLimits {
    free: u64,
    per_account_hour: u64,
    hasher: RandomState,
    pairs: Cache<Pair, Failures>,
    accounts: Cache<u64, Window>,
    known: Cache<Pair, ()>,
}

#[derive(Clone, Copy, Default)]
struct Failures {
    count: u64,
    last: Duration,
}

#[derive(Clone, Copy)]
struct Window {
    end: Duration,
    counted: u64,
}

/// A running login, which counts as wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pair: Pair,
    account: u64,
}

impl LoginLimits {
    pub(crate) fn new(free: u64, per_account_hour: u64) -> LoginLimits {
        LoginLimits {
            free,
            per_account_hour,
            hasher: RandomState::new(),
            pairs: bounded().time_to_idle(FORGOTTEN).build(),
            accounts: bounded().time_to_idle(WINDOW).build(),
            known: bounded().build(),
        }
    }

    /// Begins an attempt at `now`, a monotonic time. The error is the time to wait before the next attempt.
    pub(crate) fn begin(&self, client: Client, email_key: &str, now: Duration) -> Result<Attempt, Duration> {
        let account = self.hasher.hash_one(email_key);
        let pair = self.hasher.hash_one((client, email_key));
        let attempt = Attempt { pair, account };
        let mut wait = None;
        if self.free > 0 {
            self.pairs.entry(pair).and_upsert_with(|entry| {
                let failures = entry.map(moka::Entry::into_value).unwrap_or_default();
                let next = failures.last + self.pause(failures.count);
                if now < next {
                    wait = Some(next - now);
                    return failures;
                }
                Failures { count: failures.count.saturating_add(1), last: now }
            });
        }
        if let Some(wait) = wait {
            return Err(wait);
        }
        if self.is_account_limited(pair) {
            self.accounts.entry(account).and_upsert_with(|entry| {
                let window = entry.map(moka::Entry::into_value).filter(|window| now < window.end);
                let window = window.unwrap_or(Window { end: now + WINDOW, counted: 0 });
                if window.counted >= self.per_account_hour {
                    wait = Some(window.end - now);
                    return window;
                }
                Window { counted: window.counted + 1, ..window }
            });
        }
        let Some(wait) = wait else { return Ok(attempt) };
        self.uncount_for_pair(attempt);
        Err(wait)
    }

    /// The password was right: resets the pair, which is known from now on.
    pub(crate) fn succeeded(&self, attempt: Attempt) {
        self.pairs.invalidate(&attempt.pair);
        self.uncount_for_account(attempt);
        self.known.insert(attempt.pair, ());
    }

    /// The password was not checked.
    pub(crate) fn not_tried(&self, attempt: Attempt) {
        self.uncount_for_pair(attempt);
        self.uncount_for_account(attempt);
    }

    fn is_account_limited(&self, pair: Pair) -> bool {
        self.per_account_hour > 0 && !self.known.contains_key(&pair)
    }

    fn uncount_for_pair(&self, attempt: Attempt) {
        self.pairs.entry(attempt.pair).and_upsert_with(|entry| {
            let failures = entry.map(moka::Entry::into_value).unwrap_or_default();
            Failures { count: failures.count.saturating_sub(1), ..failures }
        });
    }

    fn uncount_for_account(&self, attempt: Attempt) {
        if self.is_account_limited(attempt.pair) {
            self.accounts.entry(attempt.account).and_upsert_with(|entry| {
                let window = entry.map_or(Window { end: Duration::ZERO, counted: 0 }, moka::Entry::into_value);
                Window { counted: window.counted.saturating_sub(1), ..window }
            });
        }
    }

    /// The pause after this many wrong passwords in a row: 1 s, 2 s, 4 s and so on after the free ones.
    fn pause(&self, count: u64) -> Duration {
        count.checked_sub(self.free).map_or(Duration::ZERO, |beyond| {
            let seconds = 2_u64.saturating_pow(u32::try_from(beyond).unwrap_or(u32::MAX));
            Duration::from_secs(seconds).min(MAX_PAUSE)
        })
    }
}

fn bounded<V: Clone + Send + Sync + 'static>() -> CacheBuilder<u64, V, Cache<u64, V>> {
    // The default policy can refuse a new entry, which would then count nothing.
    Cache::builder().max_capacity(MAX_ENTRIES).eviction_policy(EvictionPolicy::lru())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> Client {
        Client::V4([192, 0, 2, number])
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pause_doubles_up_to_its_maximum_until_success() {
        let limits = LoginLimits::new(3, 0);
        let begin = |now| limits.begin(client(1), "a@b.test", s(now));
        assert!((0..3).all(|_| begin(100).is_ok()));
        let mut now = 100;
        let mut waits = Vec::new();
        for _ in 0..100 {
            // An attempt during the pause does not extend it.
            assert!(begin(now).is_err());
            let wait = begin(now).expect_err("a pause").as_secs();
            waits.push(wait);
            now += wait;
            assert!(begin(now).is_ok());
        }
        assert_eq!(waits[..4], [1, 2, 4, 8]);
        assert_eq!((waits[9], waits[10], waits[99]), (512, 900, 900));
        limits.succeeded(begin(now + 900).expect("the pause is over"));
        assert!((0..3).all(|_| begin(now + 900).is_ok()) && begin(now + 900).is_err());
    }

    #[test]
    fn account_limit_ends_with_its_window() {
        let limits = LoginLimits::new(10, 100);
        let known = limits.begin(client(0), "a@b.test", s(0)).expect("free");
        limits.succeeded(known);
        let guesses = (1..=255).flat_map(|number| (0..20).map(move |_| number));
        let checked = guesses.filter(|number| limits.begin(client(*number), "a@b.test", s(10)).is_ok()).count();
        assert_eq!(checked, 100);
        assert!(limits.begin(client(0), "a@b.test", s(10)).is_ok());
        assert!(limits.begin(client(9), "c@d.test", s(10)).is_ok());
        assert!(limits.begin(client(9), "a@b.test", s(3_700)).is_ok());
    }

    #[test]
    fn unchecked_passwords_do_not_count() {
        let limits = LoginLimits::new(1, 2);
        for _ in 0..10 {
            let attempt = limits.begin(client(1), "a@b.test", s(5)).expect("free");
            limits.not_tried(attempt);
        }
        // Attempts that an exhausted account refuses do not count, either.
        for number in [2, 3] {
            assert!(limits.begin(client(number), "a@b.test", s(5)).is_ok());
        }
        for _ in 0..5 {
            assert_eq!(limits.begin(client(4), "a@b.test", s(5)).err(), Some(s(3_600)));
        }
    }

    #[test]
    fn entries_are_bounded() {
        let limits = LoginLimits::new(1, 1);
        for number in 0..MAX_ENTRIES + 20_000 {
            let _ = limits.begin(client(1), &number.to_string(), s(0));
        }
        limits.pairs.run_pending_tasks();
        limits.accounts.run_pending_tasks();
        assert!(limits.pairs.entry_count() <= MAX_ENTRIES && limits.accounts.entry_count() <= MAX_ENTRIES);
    }
}
