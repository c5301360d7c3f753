//! Room for large bodies of management calls. The values that JSON is parsed into take many times its bytes, so callers
//! share what there is: users, and clients, a part each, until their calls have been answered.

use crate::config::Config;
use crate::service::App;
use crate::service::admission::semaphore::{Bounds, FairSemaphore, Gate, Holder, Permit, Refused};

/// Bodies that are not larger need no room.
const SMALL_BYTES: u64 = 64 << 10;

/// Bytes of large bodies at the same time, at least.
const LEAST_BYTES: u64 = 16 << 20;

/// How many of the largest bodies there is room for, at least: one caller may have as many as half of them.
const LARGEST: u64 = 4;

/// The room of a large body, until dropped.
pub struct BodyRoom {
    _permit: Permit,
}

impl App {
    /// Whether a body of so many bytes needs room.
    pub fn is_large_body(size_bytes: u64) -> bool {
        size_bytes > SMALL_BYTES
    }

    /// Room for a large body. Waits for that of others, as heavy queries do.
    ///
    /// # Errors
    /// [`Refused`], at once or after waiting.
    pub async fn body_room(&self, holder: Holder, size_bytes: u64) -> Result<BodyRoom, Refused> {
        Ok(BodyRoom { _permit: self.bodies().acquire(holder, size_bytes).await? })
    }
}

/// The gate before large bodies.
pub(in crate::service) fn gate(config: &Config) -> FairSemaphore {
    let units = (LARGEST * config.limits.body_bytes).max(LEAST_BYTES);
    let bounds = Bounds::new(units, &config.fair, config.query.heavy_queue, config.query.heavy_wait_s);
    FairSemaphore::new(Gate { name: "body", what: "bytes of large request bodies" }, &bounds)
}
