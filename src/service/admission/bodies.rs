//! A memory limit for large bodies of management requests, which principals share fairly until the response is
//! complete. Parsed JSON takes many times the bytes of its text.

use strata_config::Config;
use strata_limits::{FairLimit, LimitName, Permit};

use crate::admission::fair_limit;
use crate::{Overloaded, Principal};

/// Bodies of up to this size are not charged.
const SMALL_BYTES: u64 = 64 << 10;

/// The smallest limit.
const MIN_BYTES: u64 = 16 << 20;

/// How many bodies of the maximum size fit. One caller can have half of them.
const MAX_SIZE_BODIES: u64 = 4;

pub struct LargeBodies {
    gate: FairLimit,
    /// What one body is charged at most, so that the body of another caller always fits.
    max_units: u64,
}

/// The bytes of a large body, until dropped.
pub struct BodyRoom {
    _permit: Permit,
}

impl BodyRoom {
    pub fn is_needed(size_bytes: u64) -> bool {
        size_bytes > SMALL_BYTES
    }
}

impl LargeBodies {
    pub(crate) fn new(config: &Config) -> LargeBodies {
        let units = (MAX_SIZE_BODIES * config.limits.body_bytes).max(MIN_BYTES);
        let name = LimitName { name: "body", what: "large request bodies" };
        let gate = fair_limit(name, units, &config.fair, config.query.heavy_queue, config.query.heavy_wait_s);
        LargeBodies { gate, max_units: units / 2 }
    }

    /// Charges a large body. Waits like a heavy query.
    pub async fn room(&self, principal: Principal, size_bytes: u64) -> Result<BodyRoom, Overloaded> {
        Ok(BodyRoom { _permit: self.gate.acquire(principal, size_bytes.min(self.max_units)).await? })
    }

    pub(crate) fn update_metrics(&self) {
        self.gate.update_metrics();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use strata_types::ids::UserId;
    use strata_types::limits::EDITOR_FORM_BYTES;

    /// A form that was announced, but not sent, had the whole limit.
    #[tokio::test]
    async fn largest_body_leaves_room_for_other_callers() {
        let bodies = LargeBodies::new(&Config::default());
        let user = |number| Principal::User(UserId::new(number));
        let form = bodies.room(user(1), EDITOR_FORM_BYTES as u64).await.expect("room");
        for size_bytes in [SMALL_BYTES + 1, 2 << 20, EDITOR_FORM_BYTES as u64] {
            let other = tokio::time::timeout(Duration::from_secs(5), bodies.room(user(2), size_bytes)).await;
            assert!(other.is_ok_and(|room| room.is_ok()), "{size_bytes}");
        }
        let again = tokio::time::timeout(Duration::from_millis(50), bodies.room(user(1), 2 << 20)).await;
        assert!(again.is_err());
        drop(form);
        bodies.room(user(1), 2 << 20).await.expect("room");
    }
}
