//! Limits password guessing without locking owners out. Three limits apply:
//!
//! 1. Consecutive wrong passwords of a client for an email address: the first few are free, then the delay before the
//!    next attempt doubles each time. The owner, on another client, is not delayed.
//! 2. Logins of a client per minute, for all email addresses: [`CLIENT_LIMIT_FACTOR`] times the free ones.
//! 3. Wrong passwords for an email address per hour. The limit does not apply to clients that have logged in before.
//!
//! An attempt counts as wrong from its start, so that concurrent attempts cannot exceed a limit; a right or unchecked
//! password is subtracted again. Memory is bounded by evicting the least recently used entries.
//!
//! This module counts in the process; `redis_login_limits` counts the same in Redis.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::{Cache, CacheBuilder};

use crate::ClientNetwork;

/// The logins per minute of a client, as a multiple of the free attempts for an email address.
pub(crate) const CLIENT_LIMIT_FACTOR: u64 = 3;

pub(crate) const MAX_LOGIN_DELAY: Duration = Duration::from_secs(900);

/// Time since the last wrong password after which the delay before the next login attempt is reset.
pub(crate) const DELAY_RESET_AFTER: Duration = Duration::from_secs(3_600);

pub(crate) const ACCOUNT_WINDOW: Duration = Duration::from_secs(3_600);

/// Maximum number of entries of each cache of login counts. An entry takes about 100 bytes.
const MAX_CACHE_ENTRIES: u64 = 50_000;

/// A keyed hash of a client and an email address.
type ClientEmailHash = u64;

/// The counts of wrong passwords in this process, and their limits. A limit of 0 is disabled.
pub(crate) struct LoginLimits {
    free_failures: u64,
    max_per_account_hour: u64,
    hasher: RandomState,
    failures_by_pair: Cache<ClientEmailHash, LoginFailures>,
    windows_by_account: Cache<u64, AccountWindow>,
    known_pairs: Cache<ClientEmailHash, ()>,
}

#[derive(Clone, Copy, Default)]
struct LoginFailures {
    count: u64,
    last_at: Duration,
}

#[derive(Clone, Copy)]
struct AccountWindow {
    end: Duration,
    attempts: u64,
}

/// A running login attempt, which counts as a wrong password until it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalLoginAttempt {
    pair: ClientEmailHash,
    account: u64,
}

impl LoginLimits {
    pub(crate) fn new(free_failures: u64, max_per_account_hour: u64) -> LoginLimits {
        LoginLimits {
            free_failures,
            max_per_account_hour,
            hasher: RandomState::new(),
            failures_by_pair: bounded_cache_builder().time_to_idle(DELAY_RESET_AFTER).build(),
            windows_by_account: bounded_cache_builder().time_to_idle(ACCOUNT_WINDOW).build(),
            known_pairs: bounded_cache_builder().build(),
        }
    }

    /// Begins a login attempt at the monotonic time `now`. The error is the time to wait before the next attempt.
    pub(crate) fn begin_attempt(
        &self,
        client: ClientNetwork,
        email_key: &str,
        now: Duration,
    ) -> Result<LocalLoginAttempt, Duration> {
        let account = self.hasher.hash_one(email_key);
        let pair = self.hasher.hash_one((client, email_key));
        let attempt = LocalLoginAttempt { pair, account };
        let mut wait = None;
        if self.free_failures > 0 {
            self.failures_by_pair.entry(pair).and_upsert_with(|entry| {
                let failures = entry.map(moka::Entry::into_value).unwrap_or_default();
                let next = failures.last_at + self.delay_after_failures(failures.count);
                if now < next {
                    wait = Some(next - now);
                    return failures;
                }
                LoginFailures { count: failures.count.saturating_add(1), last_at: now }
            });
        }
        if let Some(wait) = wait {
            return Err(wait);
        }
        if self.is_subject_to_account_limit(pair) {
            self.windows_by_account.entry(account).and_upsert_with(|entry| {
                let window = entry.map(moka::Entry::into_value).filter(|window| now < window.end);
                let window = window.unwrap_or(AccountWindow { end: now + ACCOUNT_WINDOW, attempts: 0 });
                if window.attempts >= self.max_per_account_hour {
                    wait = Some(window.end - now);
                    return window;
                }
                AccountWindow { attempts: window.attempts + 1, ..window }
            });
        }
        let Some(wait) = wait else { return Ok(attempt) };
        self.decrement_failures(attempt);
        Err(wait)
    }

    /// Ends a login attempt with the right password: resets the delay, and exempts the client from the hourly limit.
    pub(crate) fn record_success(&self, attempt: LocalLoginAttempt) {
        self.failures_by_pair.invalidate(&attempt.pair);
        self.decrement_account_window(attempt);
        self.known_pairs.insert(attempt.pair, ());
    }

    /// Ends a login attempt whose password was not checked.
    pub(crate) fn cancel_attempt(&self, attempt: LocalLoginAttempt) {
        self.decrement_failures(attempt);
        self.decrement_account_window(attempt);
    }

    fn is_subject_to_account_limit(&self, pair: ClientEmailHash) -> bool {
        self.max_per_account_hour > 0 && !self.known_pairs.contains_key(&pair)
    }

    fn decrement_failures(&self, attempt: LocalLoginAttempt) {
        self.failures_by_pair.entry(attempt.pair).and_upsert_with(|entry| {
            let failures = entry.map(moka::Entry::into_value).unwrap_or_default();
            LoginFailures { count: failures.count.saturating_sub(1), ..failures }
        });
    }

    fn decrement_account_window(&self, attempt: LocalLoginAttempt) {
        if self.is_subject_to_account_limit(attempt.pair) {
            self.windows_by_account.entry(attempt.account).and_upsert_with(|entry| {
                let window = entry.map_or(AccountWindow { end: Duration::ZERO, attempts: 0 }, moka::Entry::into_value);
                AccountWindow { attempts: window.attempts.saturating_sub(1), ..window }
            });
        }
    }

    /// Returns the delay after `count` consecutive wrong passwords: 0 if they are free, then 1 s, 2 s, 4 s and so on.
    fn delay_after_failures(&self, count: u64) -> Duration {
        count.checked_sub(self.free_failures).map_or(Duration::ZERO, |excess| {
            let seconds = 2_u64.saturating_pow(u32::try_from(excess).unwrap_or(u32::MAX));
            Duration::from_secs(seconds).min(MAX_LOGIN_DELAY)
        })
    }
}

fn bounded_cache_builder<V: Clone + Send + Sync + 'static>() -> CacheBuilder<u64, V, Cache<u64, V>> {
    // The default eviction policy can reject new entries, whose login attempts would then not be counted.
    Cache::builder().max_capacity(MAX_CACHE_ENTRIES).eviction_policy(EvictionPolicy::lru())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> ClientNetwork {
        ClientNetwork::V4([192, 0, 2, number])
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delay_doubles_up_to_maximum_until_success() {
        let limits = LoginLimits::new(3, 0);
        let begin = |now| limits.begin_attempt(client(1), "a@b.test", seconds(now));
        assert!((0..3).all(|_| begin(100).is_ok()));
        let mut now = 100;
        let mut waits = Vec::new();
        for _ in 0..100 {
            // A login attempt during the delay does not extend the delay.
            assert!(begin(now).is_err());
            let wait = begin(now).expect_err("no delay").as_secs();
            waits.push(wait);
            now += wait;
            assert!(begin(now).is_ok());
        }
        assert_eq!(waits[..4], [1, 2, 4, 8]);
        assert_eq!((waits[9], waits[10], waits[99]), (512, 900, 900));
        limits.record_success(begin(now + 900).expect("failed to begin attempt after delay"));
        assert!((0..3).all(|_| begin(now + 900).is_ok()) && begin(now + 900).is_err());
    }

    #[test]
    fn account_limit_ends_with_its_window() {
        let limits = LoginLimits::new(10, 100);
        let known = limits.begin_attempt(client(0), "a@b.test", seconds(0)).expect("failed to begin attempt");
        limits.record_success(known);
        let guesses = (1..=255).flat_map(|number| (0..20).map(move |_| number));
        let checked =
            guesses.filter(|number| limits.begin_attempt(client(*number), "a@b.test", seconds(10)).is_ok()).count();
        assert_eq!(checked, 100);
        assert!(limits.begin_attempt(client(0), "a@b.test", seconds(10)).is_ok());
        assert!(limits.begin_attempt(client(9), "c@d.test", seconds(10)).is_ok());
        assert!(limits.begin_attempt(client(9), "a@b.test", seconds(3_700)).is_ok());
    }

    #[test]
    fn unchecked_passwords_do_not_count() {
        let limits = LoginLimits::new(1, 2);
        for _ in 0..10 {
            let attempt = limits.begin_attempt(client(1), "a@b.test", seconds(5)).expect("failed to begin attempt");
            limits.cancel_attempt(attempt);
        }
        // Login attempts that the account limit rejects do not count, either.
        for number in [2, 3] {
            assert!(limits.begin_attempt(client(number), "a@b.test", seconds(5)).is_ok());
        }
        for _ in 0..5 {
            assert_eq!(limits.begin_attempt(client(4), "a@b.test", seconds(5)).err(), Some(seconds(3_600)));
        }
    }

    #[test]
    fn entries_are_bounded() {
        let limits = LoginLimits::new(1, 1);
        for number in 0..MAX_CACHE_ENTRIES + 20_000 {
            let _ = limits.begin_attempt(client(1), &number.to_string(), seconds(0));
        }
        limits.failures_by_pair.run_pending_tasks();
        limits.windows_by_account.run_pending_tasks();
        assert!(
            limits.failures_by_pair.entry_count() <= MAX_CACHE_ENTRIES
                && limits.windows_by_account.entry_count() <= MAX_CACHE_ENTRIES
        );
    }
}
