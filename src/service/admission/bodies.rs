//! Room for large bodies of management calls. The values that JSON is parsed into take many times its bytes, so callers
//! share what there is: users, and clients, a part each, until their calls have been answered.

use strata_config::Config;

use crate::admission::holder::Holder;
use crate::admission::semaphore::{Bounds, FairSemaphore, Gate, Permit, Refused};

/// Bodies that are not larger need no room.
const SMALL_BYTES: u64 = 64 << 10;

/// Bytes of large bodies at the same time, at least.
const LEAST_BYTES: u64 = 16 << 20;

/// How many of the largest bodies there is room for, at least: one caller may have as many as half of them.
const LARGEST: u64 = 4;

pub struct LargeBodies {
    gate: FairSemaphore,
    /// What one body takes at most, so that there is always room for that of another caller.
    most_units: u64,
}

/// The room of a large body, until dropped.
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
        let units = (LARGEST * config.limits.body_bytes).max(LEAST_BYTES);
        let bounds = Bounds::new(units, &config.fair, config.query.heavy_queue, config.query.heavy_wait_s);
        let gate = FairSemaphore::new(Gate { name: "body", what: "large request bodies" }, bounds);
        LargeBodies { gate, most_units: units / 2 }
    }

    /// Room for a large body. Waits for that of others, as heavy queries do.
    pub async fn room(&self, holder: Holder, size_bytes: u64) -> Result<BodyRoom, Refused> {
        Ok(BodyRoom { _permit: self.gate.acquire(holder, size_bytes.min(self.most_units)).await? })
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

    /// A form that was announced, and of which nothing came, held all room that there was.
    #[tokio::test]
    async fn the_largest_body_leaves_room_for_that_of_another_caller() {
        let bodies = LargeBodies::new(&Config::default());
        let user = |number| Holder::User(UserId::new(number));
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
