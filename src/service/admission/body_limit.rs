//! A memory limit for large bodies of management requests, because parsed JSON takes many times the bytes of its text.
//!
//! Principals share the limit fairly. A body is charged until the response is complete.

use strata_config::Config;
use strata_limits::{FairLimit, LimitName, Permit};

use crate::admission::fair_limit;
use crate::{Overloaded, Principal};

const MAX_UNCHARGED_BODY_BYTES: u64 = 64 << 10;
const MIN_BODY_LIMIT_BYTES: u64 = 16 << 20;
const MAX_SIZE_BODY_COUNT: u64 = 4;

pub struct BodyLimit {
    pub(crate) limit: FairLimit,
    /// Maximum charge for one request body: half of the limit, so that a body of another principal always fits.
    max_bytes_per_request_body: u64,
}

pub struct BodyReservation {
    _request_memory_permit: Permit,
}

impl BodyReservation {
    pub fn is_reservation_needed(size_bytes: u64) -> bool {
        size_bytes > MAX_UNCHARGED_BODY_BYTES
    }
}

impl BodyLimit {
    pub(crate) fn new(config: &Config) -> BodyLimit {
        let units = (MAX_SIZE_BODY_COUNT * config.limits.body_bytes).max(MIN_BODY_LIMIT_BYTES);
        let name = LimitName { name: "body", requests: "large request bodies" };
        let limit = fair_limit(name, units, &config.fair, config.query.heavy_queue, config.query.heavy_wait_s);
        BodyLimit { limit, max_bytes_per_request_body: units / 2 }
    }

    /// Charges a large request body. Waits for at most `query.heavy_wait_s`, like a heavy query.
    pub async fn acquire(&self, principal: Principal, size_bytes: u64) -> Result<BodyReservation, Overloaded> {
        let size_bytes = size_bytes.min(self.max_bytes_per_request_body);
        Ok(BodyReservation { _request_memory_permit: self.limit.acquire(principal, size_bytes).await? })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use strata_types::ids::UserId;
    use strata_types::limits::MAX_EDITOR_FORM_BYTES;

    /// Regression: a form that a client announced, but did not send, used the whole limit.
    #[tokio::test]
    async fn largest_body_leaves_space_for_other_principals() {
        let bodies = BodyLimit::new(&Config::default());
        let user = |number| Principal::User(UserId::new(number));
        let form = bodies.acquire(user(1), MAX_EDITOR_FORM_BYTES as u64).await.expect("form is admitted");
        for size_bytes in [MAX_UNCHARGED_BODY_BYTES + 1, 2 << 20, MAX_EDITOR_FORM_BYTES as u64] {
            let other = tokio::time::timeout(Duration::from_secs(5), bodies.acquire(user(2), size_bytes)).await;
            assert!(other.is_ok_and(|reservation| reservation.is_ok()), "{size_bytes}");
        }
        let again = tokio::time::timeout(Duration::from_millis(50), bodies.acquire(user(1), 2 << 20)).await;
        assert!(again.is_err());
        drop(form);
        bodies.acquire(user(1), 2 << 20).await.expect("body is admitted");
    }
}
