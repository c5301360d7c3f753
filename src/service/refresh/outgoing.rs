//! Outgoing requests, within the configuration: the fetching of sources.

use std::time::Duration;

use crate::config::Config;
use crate::model::ids::UserId;
use crate::net::{AddressPolicy, LookUpLimits, Outgoing, Resolver};
use crate::service::refresh::ingest::Ingest;
use crate::source::{FetchLimits, ObjectSources, SourceClient};

/// The way out, by the operator's `net.*`.
pub(crate) fn outgoing(config: &Config) -> Outgoing {
    let net = &config.net;
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let limits = LookUpLimits {
        at_once: number(net.look_ups),
        at_once_for_one: number(net.user_look_ups),
        timeout: Duration::from_secs(net.look_up_timeout_s),
    };
    let policy = AddressPolicy::new(net.allow.as_slice().iter().copied());
    Outgoing::with_look_up(policy, Resolver::new(net.name_servers.as_slice())).with_limits(limits)
}

impl Ingest {
    /// Checks and opens sources on behalf of a user.
    pub(crate) fn source_client(&self, user: UserId) -> SourceClient {
        let sources = &self.config.sources;
        let objects = ObjectSources {
            store: self.store.objects().clone(),
            store_url: self.config.store_url(),
            prefix: sources.prefix.as_ref().map(|prefix| prefix.as_str().to_owned()),
        };
        SourceClient::new(self.outgoing.for_user(user.get()), FetchLimits::from(sources), Some(objects))
    }
}
