//! Limits for writes to the metadata database and for credential lookups.
//!
//! SQLite writes one change after the other, and reads with a few connections. So the changes by owners and the lookups
//! that authenticate a request have limits, which users and client networks share: a client that sends a thousand
//! requests at once waits for itself. Leases, publishing and probes have no limit, because the service depends on them.

use strata_config::{Config, Fair};
use strata_limits::{FairLimit, LimitName, Permit};
use strata_types::ids::UserId;

use crate::admission::fair_limit;
use crate::{Client, Overloaded, Principal};

pub(crate) struct CatalogGates {
    writes: FairLimit,
    look_ups: FairLimit,
}

impl CatalogGates {
    pub(crate) fn new(config: &Config) -> CatalogGates {
        let catalog = &config.catalog;
        let writes = LimitName { name: "catalog_write", what: "writes (catalog.writes, catalog.queue)" };
        let look_ups = "credential lookups (catalog.look_ups, catalog.queue)";
        let look_ups = LimitName { name: "catalog_look_up", what: look_ups };
        // A lookup finds out who the user is, so that nothing can be reserved for users.
        let unreserved = Fair { user_percent: 0, ..config.fair };
        CatalogGates {
            writes: fair_limit(writes, catalog.writes, &config.fair, catalog.queue, catalog.wait_s),
            look_ups: fair_limit(look_ups, catalog.look_ups, &unreserved, catalog.queue, catalog.wait_s),
        }
    }

    pub(crate) async fn write(&self, owner: UserId) -> Result<Permit, Overloaded> {
        self.writes.acquire(Principal::User(owner), 1).await
    }

    pub(crate) async fn look_up(&self, client: Client) -> Result<Permit, Overloaded> {
        self.look_ups.acquire(Principal::Anonymous(client), 1).await
    }

    pub(crate) fn update_metrics(&self) {
        self.writes.update_metrics();
        self.look_ups.update_metrics();
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, poll};

    use super::*;

    /// The permits of the calls that get one without waiting.
    fn entered(calls: &mut [impl Future<Output = Result<Permit, Overloaded>> + Unpin]) -> Vec<Permit> {
        calls.iter_mut().filter_map(FutureExt::now_or_never).map(|permit| permit.expect("not refused")).collect()
    }

    #[tokio::test]
    async fn client_with_many_calls_waits_for_itself() {
        let mut config = Config::default();
        config.catalog.wait_s = 60;
        let gates = CatalogGates::new(&config);
        let [hostile, honest] = [1, 2].map(UserId::new);
        let mut calls: Vec<_> = (0..500).map(|_| Box::pin(gates.write(hostile))).collect();
        let entered = entered(&mut calls);
        assert_eq!(entered.len() as u64, config.catalog.writes / 2);
        let mut honest = Box::pin(gates.write(honest));
        assert!(poll!(&mut honest).is_ready(), "it does not wait for the hostile one");

        let [hostile, honest] = [Client::V4([192, 0, 2, 1]), Client::V4([192, 0, 2, 2])];
        let mut calls: Vec<_> = (0..500).map(|_| Box::pin(gates.look_up(hostile))).collect();
        let entered = self::entered(&mut calls);
        assert_eq!(entered.len() as u64, config.catalog.look_ups / 2);
        let mut honest = Box::pin(gates.look_up(honest));
        assert!(poll!(&mut honest).is_ready());
    }
}
