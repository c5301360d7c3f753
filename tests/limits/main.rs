//! Permits and quotas, as other crates use them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{FutureExt, poll};
use proptest::prelude::*;
use strata_limits::{
    BeyondShare, ClientNetwork, FairLimit, FairShares, HashedPrincipal, LimitName, Overloaded, Permit, Principal,
    UnitsOfOthers,
};
use strata_types::ids::UserId;

const ANONYMOUS: Principal = Principal::Anonymous(ClientNetwork::Unspecified);

const NAME: LimitName = LimitName { name: "test", requests: "tests" };

fn fair_limit(units: u64, queue: usize, max_wait: Duration) -> FairLimit {
    FairLimit::new(NAME, FairShares { max_waiters: queue, ..FairShares::new(units, 50, 25) }, max_wait)
}

fn user(number: u64) -> Principal {
    Principal::User(UserId::new(number))
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Starts a request that has to wait.
fn start_waiting(
    limit: &FairLimit,
    principal: Principal,
    units: u64,
) -> Pin<Box<impl Future<Output = Result<Permit, Overloaded>>>> {
    let mut request = Box::pin(limit.acquire(principal, units));
    assert!((&mut request).now_or_never().is_none());
    request
}

#[tokio::test]
async fn released_permit_goes_to_next_in_line() {
    let limit = fair_limit(2, 10, HOUR);
    let first = limit.acquire(user(1), 1).await.expect("failed to acquire unit");
    let second = limit.acquire(user(2), 1).await.expect("failed to acquire unit");
    let mut again = start_waiting(&limit, user(1), 1);
    let third = start_waiting(&limit, user(3), 1);
    assert_eq!((limit.used_units(), limit.waiter_count()), (2, 2));
    drop(second);
    // Another principal gets it, because the first one has its share.
    assert!(poll!(&mut again).is_pending());
    let third = third.await.expect("failed to acquire unit");
    drop((first, third));
    drop(again.await.expect("failed to acquire unit"));
    assert_eq!((limit.used_units(), limit.waiter_count()), (0, 0));
}

#[tokio::test]
async fn full_queue_and_timeout_are_refused() {
    let limit = fair_limit(1, 1, Duration::ZERO);
    let held = limit.acquire(user(1), 1).await.expect("failed to acquire unit");
    let late = limit.acquire(user(2), 1).await.err();
    assert_eq!(late, Some(Overloaded { limit: NAME, waited: Some(Duration::ZERO) }));
    assert_eq!((limit.used_units(), limit.waiter_count()), (1, 0));

    let patient = fair_limit(1, 1, HOUR);
    let also = patient.acquire(user(1), 1).await.expect("failed to acquire unit");
    let waiting = start_waiting(&patient, user(2), 1);
    let full = patient.acquire(user(2), 1).await.err();
    assert_eq!(full, Some(Overloaded { limit: NAME, waited: None }));
    drop((held, also));
    assert!(waiting.await.is_ok());
}

#[tokio::test]
async fn evicted_waiter_is_refused_at_once() {
    let limit = fair_limit(1, 2, HOUR);
    let held = limit.acquire(user(1), 1).await.expect("failed to acquire unit");
    let mut hostile: Vec<_> = (0..2).map(|_| start_waiting(&limit, user(2), 1)).collect();
    let other = start_waiting(&limit, Principal::Anonymous(ClientNetwork::V4([192, 0, 2, 1])), 1);
    let evicted = hostile.pop().expect("failed to get waiter").await.err();
    assert_eq!(evicted, Some(Overloaded { limit: NAME, waited: None }));
    drop((held, hostile));
    assert!(other.await.is_ok());
}

#[tokio::test]
async fn dropped_waiter_releases_its_units() {
    let limit = fair_limit(1, 10, HOUR);
    let held = limit.acquire(user(1), 1).await.expect("failed to acquire unit");
    let [cancelled, granted, stays] = [2, 3, 4].map(|number| start_waiting(&limit, user(number), 1));
    drop(cancelled);
    assert_eq!(limit.waiter_count(), 2);
    drop(held);
    // `granted` has received its unit, and is dropped before it is polled.
    assert_eq!((limit.used_units(), limit.waiter_count()), (1, 1));
    drop(granted);
    assert!(stays.await.is_ok());
    assert_eq!((limit.used_units(), limit.waiter_count()), (0, 0));
}

#[tokio::test]
async fn waiter_at_its_share_does_not_block_try_acquire() {
    let limit = fair_limit(4, 10, HOUR);
    let held = [limit.acquire(user(1), 1).await, limit.acquire(user(1), 1).await];
    let own = start_waiting(&limit, user(1), 1);
    let tried = limit.try_acquire(user(2), 1);
    assert!(tried.is_ok(), "two units are free, and the waiter has reached its share");
    // Both principals have reached their shares, and no waiter remains.
    assert!(limit.try_acquire(user(1), 1).is_err() && limit.try_acquire(user(2), 1).is_err());
    assert_eq!((limit.used_units(), limit.waiter_count()), (3, 1));
    // A waiter that blocks others is not overtaken.
    let large = start_waiting(&limit, user(3), 4);
    assert!(limit.try_acquire(user(4), 1).is_err());
    drop((held, tried));
    assert!(own.await.is_ok() && large.await.is_ok());
}

#[tokio::test]
async fn unbounded_waiter_keeps_its_place() {
    let limit = fair_limit(1, 10, Duration::from_millis(100));
    let held = limit.acquire(user(1), 1).await;
    let patient = tokio::spawn({
        let limit = limit.clone();
        async move { limit.acquire_without_timeout(user(2), 1).await }
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    // A later request of the same user, which cannot be refused, regardless of the speed of the machine.
    let mut later = Box::pin(limit.acquire_without_timeout(user(2), 1));
    assert!(poll!(&mut later).is_pending());
    drop(held);
    let first = patient.await.expect("failed to join task");
    assert!(poll!(&mut later).is_pending(), "the later request overtook the first one");
    drop(first);
    drop(later.await);
}

#[tokio::test]
async fn oversized_permit_takes_all_and_can_shrink() {
    let limit = fair_limit(100, 10, HOUR);
    let mut all = limit.acquire(user(1), 1_000).await.expect("failed to acquire units");
    assert_eq!((all.units(), limit.used_units()), (100, 100));
    let mut next = start_waiting(&limit, user(2), 10);
    all.shrink_to(91);
    assert!(poll!(&mut next).is_pending());
    all.shrink_to(90);
    drop(next.await.expect("failed to acquire units"));
    assert!(limit.try_acquire(user(3), 11).is_err());
    assert!(limit.try_acquire(user(3), 10).is_ok());
    drop(all);
    assert_eq!(limit.used_units(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limit_holds_and_all_are_served_under_load() {
    const UNITS: u64 = 7;
    let limit = fair_limit(UNITS, 10_000, HOUR);
    let at_once = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..400_u64)
        .map(|number| {
            let limit = limit.clone();
            let at_once = at_once.clone();
            tokio::spawn(async move {
                let principal = match number % 9 {
                    number @ 0..4 => user(number),
                    number => Principal::Anonymous(ClientNetwork::V4([192, 0, 2, number as u8])),
                };
                let units = number % 5 + 1;
                for round in 0..20_u64 {
                    if (number + round) % 3 == 0 {
                        // The request is dropped at some time, perhaps after its units are granted.
                        let mut cancelled = Box::pin(limit.acquire(principal, units));
                        let _ = poll!(&mut cancelled);
                        tokio::task::yield_now().await;
                        continue;
                    }
                    let permit = limit.acquire(principal, units).await.expect("failed to acquire units");
                    let now = at_once.fetch_add(permit.units(), Ordering::SeqCst) + permit.units();
                    assert!(now <= UNITS, "{now} units are in use");
                    tokio::task::yield_now().await;
                    at_once.fetch_sub(permit.units(), Ordering::SeqCst);
                }
            })
        })
        .collect();
    let all = futures::future::join_all(tasks);
    let all = tokio::time::timeout(Duration::from_secs(300), all).await.expect("failed to wake waiter");
    assert!(all.into_iter().all(|task| task.is_ok()));
    assert_eq!((limit.used_units(), limit.waiter_count()), (0, 0));
}

/// A quota in which anonymous principals can have three quarters, and each principal half of the rest.
fn quota(units: u64, sole_units: u64) -> FairLimit {
    FairLimit::new_quota(FairShares {
        beyond_share: BeyondShare::SolePrincipal(sole_units),
        ..FairShares::new(units, 50, 25)
    })
}

fn hashed(key: u64, anonymous: bool) -> Principal {
    Principal::Hashed(HashedPrincipal { key, is_anonymous: anonymous })
}

/// Returns the maximum for the principal in total, if it is less than the requested units.
fn max_units(quota: &FairLimit, principal: Principal, units: u64) -> Result<(), u64> {
    quota.try_reserve(principal, units).map_err(|denied| denied.max_units)
}

#[test]
fn quota_leaves_shares_and_reserve_for_users() {
    let quota = quota(1_000, 0);
    let [one, other, user] = [hashed(1, true), hashed(2, true), hashed(3, false)];
    let reserve = |principal, units| max_units(&quota, principal, units);
    assert_eq!(reserve(one, 376), Err(375));
    assert_eq!(reserve(one, 375), Ok(()));
    assert_eq!(reserve(one, 1), Err(375));
    assert_eq!(reserve(other, 188), Err(187));
    assert_eq!(reserve(other, 187), Ok(()));
    assert_eq!(reserve(user, 220), Err(219));
    assert_eq!(reserve(user, 219), Ok(()));
    quota.release(one, 375);
    assert_eq!(reserve(user, 188), Err(406));
    assert_eq!(reserve(user, 187), Ok(()));
    for (principal, units) in [(other, 187), (user, 406)] {
        quota.release(principal, units);
    }
    assert_eq!(quota.principal_count(), 0);
    assert_eq!(quota.used_units(), 0);
    assert_eq!(reserve(one, 375), Ok(()), "all other units are released");
}

#[test]
fn lone_principal_can_exceed_its_share() {
    let quota = quota(100, 90);
    let [one, other] = [hashed(1, true), hashed(2, true)];
    assert_eq!(quota.max_sole_units(one), 90);
    assert_eq!(max_units(&quota, one, 91), Err(90));
    assert_eq!(max_units(&quota, one, 60), Ok(()));
    assert_eq!(max_units(&quota, other, 8), Err(7));
    assert_eq!(max_units(&quota, other, 7), Ok(()));
    assert_eq!(max_units(&quota, one, 1), Err(34));
}

#[test]
fn reserve_exceeds_quota() {
    let quota = quota(100, 0);
    quota.reserve(hashed(1, false), 150);
    assert_eq!(quota.used_units(), 150);
    assert_eq!(max_units(&quota, hashed(2, false), 1), Err(0));
    quota.release(hashed(1, false), 150);
    assert_eq!(max_units(&quota, hashed(2, false), 50), Ok(()));
}

proptest! {
    #[test]
    fn quota_holds_and_counts(events in proptest::collection::vec((0..6_u64, 0..400_u64, 0..3_u8), 0..200)) {
        let quota = quota(1_000, 0);
        let mut own = [0_u64; 6];
        for (key, units, event) in events {
            let principal = hashed(key, key >= 2);
            let held = &mut own[key as usize];
            match event {
                0 => {
                    let released = units.min(*held);
                    quota.release(principal, released);
                    *held -= released;
                }
                _ if quota.try_reserve(principal, units).is_ok() => *held += units,
                _ => {}
            }
            prop_assert!(own.iter().sum::<u64>() <= 1_000);
            prop_assert!(own[2..].iter().sum::<u64>() <= 750);
            prop_assert!(own.iter().all(|one| *one <= 500));
            prop_assert_eq!(quota.used_units(), own.iter().sum::<u64>());
            prop_assert_eq!(quota.principal_count(), own.iter().filter(|one| **one > 0).count());
        }
    }
}

fn floor_percent(units: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(units) * u128::from(percent) / 100).expect("failed to convert percentage")
}

proptest! {
    #[test]
    fn share_leaves_room_and_is_monotonic(
        units in prop_oneof![0..1_000_u64, Just(u64::MAX), any::<u64>()],
        share_percent in 1..=100_u64,
        user_percent in 0..=100_u64,
        used in 0..=100_u64,
        anonymous_used in 0..=100_u64,
    ) {
        let shares = FairShares::new(units, share_percent, user_percent);
        let user = Principal::User(UserId::new(1));
        let all = floor_percent(units, used);
        let others = UnitsOfOthers { total_units: all, anonymous_units: floor_percent(all, anonymous_used) };
        let more = UnitsOfOthers { total_units: all.saturating_add(1), anonymous_units: others.anonymous_units.saturating_add(1) };
        for principal in [user, ANONYMOUS] {
            let share = shares.principal_share(principal, others);
            let class_others = if principal.is_anonymous() { others.anonymous_units } else { others.total_units };
            let remaining = (units - all).min(shares.max_class_units(principal).saturating_sub(class_others));
            // The share is the largest integer whose hundredfold is within the percentage of the remaining units.
            prop_assert!(u128::from(share) * 100 <= u128::from(remaining) * u128::from(share_percent));
            prop_assert!((u128::from(share) + 1) * 100 > u128::from(remaining) * u128::from(share_percent));
            prop_assert!(shares.principal_share(principal, more) <= share);
            for (sole_units, is_more) in [(0, false), (units / 2, all == 0 && units / 2 > share)] {
                let quota = FairLimit::new_quota(FairShares { beyond_share: BeyondShare::SolePrincipal(sole_units), ..shares });
                quota.reserve(hashed(1, true), others.anonymous_units);
                quota.reserve(hashed(2, false), others.total_units - others.anonymous_units);
                if let Err(denied) = quota.try_reserve(principal, u64::MAX) {
                    prop_assert_eq!(denied.max_units > share, is_more);
                    prop_assert!(denied.max_units == share || is_more);
                }
            }
        }
        prop_assert!(shares.principal_share(ANONYMOUS, others) <= shares.principal_share(user, others));
        // The reserve for users is rounded up, but anonymous principals can always have one unit.
        let reserved = u128::from(units - shares.max_anonymous_units()) * 100;
        let wanted = u128::from(units) * u128::from(user_percent);
        prop_assert!(reserved >= wanted || shares.max_anonymous_units() <= 1);
        prop_assert!(reserved < wanted + 100);
    }
}
