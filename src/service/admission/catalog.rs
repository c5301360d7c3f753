//! Who may ask the catalog for what costs it something, when many ask at once.
//!
//! SQLite writes one change after the other, and reads with a few connections. So the changes that owners make, and the
//! look-ups that find out who calls, have gates of their own, which users and networks of clients share: one that sends
//! a thousand calls at once waits for itself. What keeps the service going passes neither: leases, publishing, probes.

use strata_config::Config;
use strata_types::ids::UserId;

use crate::admission::holder::Holder;
use crate::admission::semaphore::{Bounds, FairSemaphore, Gate, Permit, Refused};
use crate::rate_limit::Client;

pub(crate) struct CatalogGates {
    writes: FairSemaphore,
    look_ups: FairSemaphore,
}

impl CatalogGates {
    pub(crate) fn new(config: &Config) -> CatalogGates {
        let catalog = &config.catalog;
        let bounds = |units| Bounds::new(units, &config.fair, catalog.queue, catalog.wait_s);
        let writes = Gate { name: "catalog_write", what: "writes (catalog.writes, catalog.queue)" };
        let look_ups = Gate { name: "catalog_look_up", what: "credential lookups (catalog.look_ups, catalog.queue)" };
        CatalogGates {
            writes: FairSemaphore::new(writes, bounds(catalog.writes)),
            // Nobody is known yet who is looked up.
            look_ups: FairSemaphore::new(look_ups, bounds(catalog.look_ups).unreserved()),
        }
    }

    pub(crate) async fn write(&self, owner: UserId) -> Result<Permit, Refused> {
        self.writes.acquire(Holder::User(owner), 1).await
    }

    pub(crate) async fn look_up(&self, client: Client) -> Result<Permit, Refused> {
        self.look_ups.acquire(Holder::Anonymous(client), 1).await
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

    /// The permits of the calls that have one at once.
    fn entered(calls: &mut [impl Future<Output = Result<Permit, Refused>> + Unpin]) -> Vec<Permit> {
        calls.iter_mut().filter_map(FutureExt::now_or_never).map(|permit| permit.expect("not refused")).collect()
    }

    #[tokio::test]
    async fn one_with_a_thousand_calls_waits_for_itself() {
        let mut config = Config::default();
        config.catalog.wait_s = 60;
        let gates = CatalogGates::new(&config);
        let (hostile, honest) = (UserId::new(1), UserId::new(2));
        let mut calls: Vec<_> = (0..500).map(|_| Box::pin(gates.write(hostile))).collect();
        let entered = entered(&mut calls);
        assert_eq!(entered.len() as u64, config.catalog.writes / 2);
        let mut honest = Box::pin(gates.write(honest));
        assert!(poll!(&mut honest).is_ready(), "it waits for nobody else's");

        let [hostile, honest] = [Client::V4([192, 0, 2, 1]), Client::V4([192, 0, 2, 2])];
        let mut calls: Vec<_> = (0..500).map(|_| Box::pin(gates.look_up(hostile))).collect();
        let entered = self::entered(&mut calls);
        assert_eq!(entered.len() as u64, config.catalog.look_ups / 2);
        let mut honest = Box::pin(gates.look_up(honest));
        assert!(poll!(&mut honest).is_ready());
    }
}
