//! What goes out, within the configuration: the fetching of sources.

use super::App;
use crate::net::{AddressPolicy, Outgoing};
use crate::refresh::{FetchLimits, ObjectSources, SourceClient};

impl App {
    /// The way out, by the operator's `net.allow`.
    pub(super) fn outgoing(&self) -> Outgoing {
        Outgoing::new(AddressPolicy::new(self.config().net.allow.as_slice().iter().copied()))
    }

    /// Checks and opens sources.
    pub(super) fn source_client(&self) -> SourceClient {
        let sources = &self.config().sources;
        let objects = ObjectSources {
            store: self.store().objects().clone(),
            store_url: self.config().store_url(),
            prefix: sources.prefix.as_ref().map(|prefix| prefix.as_str().to_owned()),
        };
        SourceClient::new(self.outgoing(), FetchLimits::from(sources), Some(objects))
    }
}
