//! How often a password may be guessed.
//!
//! Three counts, each with its own bound, so that guessing is slow and nobody can keep another out:
//!
//! 1. A client and an e-mail address together: so many wrong passwords in a row are free, then each costs a pause that
//!    is twice the one before. Whoever guesses waits; the owner, at another address, does not.
//! 2. A client in all, in a minute: [`CLIENT_FACTOR`] times as many, whatever the addresses.
//! 3. An e-mail address, in an hour, by all clients from which nobody has logged in to it: many clients together are no
//!    quicker than that. Where its owner has logged in before, this bound does not count.
//!
//! An attempt counts as wrong from its beginning, so that many at once are no way around, and is taken back when the
//! password was right or was not looked at. What is remembered is bounded; what has not been used the longest goes
//! first.
//!
//! This counts in the process. `shared_logins` counts the same in Redis.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::{Cache, CacheBuilder};

use crate::Client;

/// How many times the log-ins that are free for one e-mail address a client may try in a minute in all.
pub(crate) const CLIENT_FACTOR: u64 = 3;

pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(900);

/// After how long without another one wrong passwords are forgotten.
pub(crate) const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// How long a window of an e-mail address lasts.
pub(crate) const WINDOW: Duration = Duration::from_secs(3_600);

/// Pairs and addresses that are remembered of each kind; about 100 bytes each.
const REMEMBERED: u64 = 50_000;

/// A client and an e-mail address, by a hash that nobody can choose.
type Pair = u64;

/// What is counted, and how much is free. 0 switches a bound off.
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

/// A log-in under way, which counts as wrong.
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
            pairs: remembering().time_to_idle(FORGOTTEN).build(),
            accounts: remembering().time_to_idle(WINDOW).build(),
            known: remembering().build(),
        }
    }

    /// Begins an attempt at `now`, a time that never goes back, or says how long to wait for the next one.
    pub(crate) fn begin(&self, client: Client, email_key: &str, now: Duration) -> Result<Attempt, Duration> {
        let account = self.hasher.hash_one(email_key);
        let pair = self.hasher.hash_one((client, email_key));
        let attempt = Attempt { pair, account };
        let mut refused = None;
        if self.free > 0 {
            self.pairs.entry(pair).and_upsert_with(|entry| {
                let failures = entry.map(moka::Entry::into_value).unwrap_or_default();
                let next = failures.last + self.pause(failures.count);
                if now < next {
                    refused = Some(next - now);
                    return failures;
                }
                Failures { count: failures.count.saturating_add(1), last: now }
            });
        }
        if let Some(wait) = refused {
            return Err(wait);
        }
        if self.per_account_hour > 0 && !self.known.contains_key(&pair) {
            self.accounts.entry(account).and_upsert_with(|entry| {
                let window = entry.map(moka::Entry::into_value).filter(|window| now < window.end);
                let mut window = window.unwrap_or(Window { end: now + WINDOW, counted: 0 });
                if window.counted >= self.per_account_hour {
                    refused = Some(window.end - now);
                } else {
                    window.counted += 1;
                }
                window
            });
        }
        match refused {
            None => Ok(attempt),
            Some(wait) => {
                self.take_back_from_pair(attempt);
                Err(wait)
            }
        }
    }

    /// The password was right: the pair begins anew, and is known from now on.
    pub(crate) fn succeeded(&self, attempt: Attempt) {
        self.pairs.invalidate(&attempt.pair);
        self.take_back_from_account(attempt);
        self.known.insert(attempt.pair, ());
    }

    /// The password was not looked at.
    pub(crate) fn not_tried(&self, attempt: Attempt) {
        self.take_back_from_pair(attempt);
        self.take_back_from_account(attempt);
    }

    fn take_back_from_pair(&self, attempt: Attempt) {
        self.pairs.entry(attempt.pair).and_upsert_with(|entry| {
            let failures = entry.map(moka::Entry::into_value).unwrap_or_default();
            Failures { count: failures.count.saturating_sub(1), ..failures }
        });
    }

    fn take_back_from_account(&self, attempt: Attempt) {
        if self.per_account_hour > 0 && !self.known.contains_key(&attempt.pair) {
            self.accounts.entry(attempt.account).and_upsert_with(|entry| {
                let window = entry.map_or(Window { end: Duration::ZERO, counted: 0 }, moka::Entry::into_value);
                Window { counted: window.counted.saturating_sub(1), ..window }
            });
        }
    }

    /// How long after the last of so many wrong passwords the next one is looked at.
    fn pause(&self, count: u64) -> Duration {
        match count.checked_sub(self.free) {
            None => Duration::ZERO,
            // 1 s, 2 s, 4 s, ...
            Some(beyond) => {
                let doubled = u32::try_from(beyond).ok().and_then(|beyond| 1_u64.checked_shl(beyond));
                doubled.map_or(PAUSE_MAX, Duration::from_secs).min(PAUSE_MAX)
            }
        }
    }
}

fn remembering<V: Clone + Send + Sync + 'static>() -> CacheBuilder<u64, V, Cache<u64, V>> {
    // The default policy may refuse a new entry, which would then count nothing.
    Cache::builder().max_capacity(REMEMBERED).eviction_policy(EvictionPolicy::lru())
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
    fn the_pause_doubles_after_what_is_free_and_ends_with_a_right_password() {
        let limits = LoginLimits::new(3, 0);
        let begin = |now| limits.begin(client(1), "a@b.test", s(now));
        for now in [100, 100, 100] {
            assert!(begin(now).is_ok());
        }
        // Asking too early does not make it longer.
        assert_eq!([begin(100).err(), begin(100).err()], [Some(s(1)); 2]);
        assert!(begin(101).is_ok());
        assert_eq!(begin(101).err(), Some(s(2)));
        assert!(begin(103).is_ok());
        assert_eq!(begin(104).err(), Some(s(3)));
        let right = begin(107).expect("free");
        limits.succeeded(right);
        assert!((0..3).all(|_| begin(107).is_ok()) && begin(107).is_err());
    }

    #[test]
    fn the_pause_has_an_end() {
        let limits = LoginLimits::new(1, 0);
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..100 {
            assert!(limits.begin(client(1), "a@b.test", s(now)).is_ok());
            let wait = limits.begin(client(1), "a@b.test", s(now)).expect_err("a pause").as_secs();
            waits.push(wait);
            now += wait;
        }
        assert_eq!(waits[..4], [1, 2, 4, 8]);
        assert_eq!((waits[9], waits[10], waits[99]), (512, 900, 900));
    }

    #[test]
    fn one_client_cannot_keep_an_owner_out_at_another_address() {
        let limits = LoginLimits::new(10, 100);
        let mut now = 0;
        // A day of guessing as fast as it is let.
        while now < 86_400 {
            if let Err(wait) = limits.begin(client(1), "a@b.test", s(now)) {
                now += wait.as_secs();
            }
            let owner = limits.begin(client(2), "a@b.test", s(now));
            assert!(owner.map(|attempt| limits.succeeded(attempt)).is_ok(), "{now}");
        }
    }

    #[test]
    fn many_clients_together_are_bounded_and_a_known_one_is_let_in() {
        let limits = LoginLimits::new(10, 100);
        let known = limits.begin(client(0), "a@b.test", s(0)).expect("free");
        limits.succeeded(known);
        let guesses = (1..=255).flat_map(|number| (0..20).map(move |_| number));
        let looked_at = guesses.filter(|number| limits.begin(client(*number), "a@b.test", s(10)).is_ok()).count();
        assert_eq!(looked_at, 100);
        assert!(limits.begin(client(0), "a@b.test", s(10)).is_ok());
        let wait = limits.begin(Client::V4([198, 51, 100, 1]), "a@b.test", s(10)).expect_err("bounded");
        // The window runs from its first attempt, which was at 10 or, as the right one's was taken back, at 0.
        assert!((s(3_590)..=s(3_600)).contains(&wait), "{wait:?}");
        // Another account is nobody's business.
        assert!(limits.begin(client(9), "c@d.test", s(10)).is_ok());
        assert!(limits.begin(client(9), "a@b.test", s(3_700)).is_ok());
    }

    #[test]
    fn what_was_not_looked_at_does_not_count() {
        let limits = LoginLimits::new(1, 2);
        for _ in 0..10 {
            let attempt = limits.begin(client(1), "a@b.test", s(5)).expect("free");
            limits.not_tried(attempt);
        }
        // Nor does what an exhausted account refuses.
        for number in [2, 3] {
            assert!(limits.begin(client(number), "a@b.test", s(5)).is_ok());
        }
        for _ in 0..5 {
            assert_eq!(limits.begin(client(4), "a@b.test", s(5)).err(), Some(s(3_600)));
        }
    }

    #[test]
    fn bounds_that_are_switched_off_refuse_nothing() {
        let limits = LoginLimits::new(0, 0);
        assert!((0..1_000).all(|_| limits.begin(client(1), "a@b.test", s(0)).is_ok()));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let limits = LoginLimits::new(1, 1);
        for number in 0..REMEMBERED + 20_000 {
            let _ = limits.begin(client(1), &number.to_string(), s(0));
        }
        limits.pairs.run_pending_tasks();
        limits.accounts.run_pending_tasks();
        assert!(limits.pairs.entry_count() <= REMEMBERED && limits.accounts.entry_count() <= REMEMBERED);
    }
}
