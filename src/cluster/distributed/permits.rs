//! How many tasks of other nodes run at once on this one, and how many of them for one tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::query::Tenant;

#[derive(Clone, Debug)]
pub(super) struct TaskPermits {
    all: Arc<Semaphore>,
    each: usize,
    wait: Duration,
    tenants: Arc<Mutex<HashMap<Option<Tenant>, Arc<Semaphore>>>>,
}

#[derive(Debug)]
pub(super) struct TaskPermit {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl TaskPermits {
    /// So many tasks at once. One tenant may have half of them, and at least one. A task waits for so long.
    pub(super) fn new(tasks: usize, wait: Duration) -> TaskPermits {
        let tasks = tasks.clamp(1, Semaphore::MAX_PERMITS);
        TaskPermits { all: Arc::new(Semaphore::new(tasks)), each: tasks.div_ceil(2), wait, tenants: Arc::default() }
    }

    pub(super) async fn acquire(&self, tenant: Option<Tenant>) -> Option<TaskPermit> {
        let of_tenant = self.of(tenant);
        let acquired = async {
            // A tenant that has its share waits for itself, and holds nobody up.
            let of_tenant = of_tenant.acquire_owned().await.ok()?;
            let of_all = self.all.clone().acquire_owned().await.ok()?;
            Some(TaskPermit { _of_tenant: of_tenant, _of_all: of_all })
        };
        tokio::time::timeout(self.wait, acquired).await.ok()?
    }

    fn of(&self, tenant: Option<Tenant>) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tenants.entry(tenant).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone();
        // Nobody else holds or waits for those of tenants that have none.
        tenants.retain(|other, permits| *other == tenant || Arc::strong_count(permits) > 1);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(10);

    fn tenant(key: u64) -> Option<Tenant> {
        Some(Tenant { key, anonymous: false })
    }

    #[tokio::test]
    async fn one_tenant_leaves_room_for_others() {
        let permits = TaskPermits::new(4, WAIT);
        let held = [permits.acquire(tenant(1)).await, permits.acquire(tenant(1)).await];
        assert!(held.iter().all(Option::is_some));
        assert!(permits.acquire(tenant(1)).await.is_none(), "it has its share");
        let other = permits.acquire(tenant(2)).await;
        assert!(other.is_some());
        drop(held);
        assert!(permits.acquire(tenant(1)).await.is_some());
    }

    #[tokio::test]
    async fn no_more_run_than_may() {
        let permits = TaskPermits::new(3, WAIT);
        let mut held = Vec::new();
        for key in 0..3 {
            held.push(permits.acquire(tenant(key)).await.expect("a permit"));
        }
        assert!(permits.acquire(tenant(3)).await.is_none());
        held.pop();
        assert!(permits.acquire(tenant(3)).await.is_some());
        assert!(permits.tenants.lock().expect("unpoisoned").len() <= 3, "those that have none are forgotten");
    }
}
