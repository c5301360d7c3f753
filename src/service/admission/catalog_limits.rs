//! Limits for writes to the metadata database and for credential lookups.
//!
//! SQLite runs one write at a time, and reads with a few connections. So the changes by owners and the lookups that
//! authenticate a request have limits, which users and client networks share: a client that sends a thousand requests
//! at once delays only itself. Leases, publishing and probes have no limit, because the service depends on them.

use strata_config::{Config, FairShareConfig};
use strata_limits::{FairLimit, LimitName, Permit};
use strata_types::ids::UserId;

use crate::admission::fair_limit;
use crate::{ClientNetwork, Overloaded, Principal};

pub(crate) struct CatalogLimits {
    writes: FairLimit,
    lookups: FairLimit,
}

impl CatalogLimits {
    pub(crate) fn new(config: &Config) -> CatalogLimits {
        let catalog = &config.catalog;
        let writes = LimitName { name: "catalog_write", requests: "writes (catalog.writes, catalog.queue)" };
        let lookups = "credential lookups (catalog.look_ups, catalog.queue)";
        let lookups = LimitName { name: "catalog_look_up", requests: lookups };
        // Before the lookup of a credential, the user is unknown, so nothing can be reserved for users.
        let unreserved = FairShareConfig { user_percent: 0, ..config.fair };
        CatalogLimits {
            writes: fair_limit(writes, catalog.writes, &config.fair, catalog.queue, catalog.wait_s),
            lookups: fair_limit(lookups, catalog.look_ups, &unreserved, catalog.queue, catalog.wait_s),
        }
    }

    pub(crate) async fn acquire_write(&self, owner: UserId) -> Result<Permit, Overloaded> {
        self.writes.acquire(Principal::User(owner), 1).await
    }

    pub(crate) async fn acquire_lookup(&self, client: ClientNetwork) -> Result<Permit, Overloaded> {
        self.lookups.acquire(Principal::Anonymous(client), 1).await
    }

    pub(crate) fn update_metrics(&self) {
        self.writes.update_metrics();
        self.lookups.update_metrics();
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, poll};

    use super::*;

    fn ready_permits(calls: &mut [impl Future<Output = Result<Permit, Overloaded>> + Unpin]) -> Vec<Permit> {
        calls.iter_mut().filter_map(FutureExt::now_or_never).map(|permit| permit.expect("not refused")).collect()
    }

    #[tokio::test]
    async fn client_with_many_calls_delays_only_itself() {
        let mut config = Config::default();
        config.catalog.wait_s = 60;
        let limits = CatalogLimits::new(&config);
        let [hostile, honest] = [1, 2].map(UserId::new);
        let mut calls: Vec<_> = (0..500).map(|_| Box::pin(limits.acquire_write(hostile))).collect();
        let permits = ready_permits(&mut calls);
        assert_eq!(permits.len() as u64, config.catalog.writes / 2);
        let mut honest = Box::pin(limits.acquire_write(honest));
        assert!(poll!(&mut honest).is_ready(), "the honest user does not wait for the hostile one");

        let [hostile, honest] = [ClientNetwork::V4([192, 0, 2, 1]), ClientNetwork::V4([192, 0, 2, 2])];
        let mut calls: Vec<_> = (0..500).map(|_| Box::pin(limits.acquire_lookup(hostile))).collect();
        let permits = ready_permits(&mut calls);
        assert_eq!(permits.len() as u64, config.catalog.look_ups / 2);
        let mut honest = Box::pin(limits.acquire_lookup(honest));
        assert!(poll!(&mut honest).is_ready());
    }
}
