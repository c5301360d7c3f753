//! Connections to other nodes. They are kept, and looked after: a node that hangs answers no ping, and its requests
//! fail then.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use datafusion::common::{exec_datafusion_err, internal_datafusion_err};
use datafusion::error::{DataFusionError, Result};
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{ChannelResolver, WorkerChannel};
use http::HeaderValue;
use tokio::runtime::Handle;
use tonic::transport::Endpoint;
use tower::ServiceExt;
use url::Url;

use super::VERSION;
use super::token::{NodeSecret, TOKEN_HEADER};

/// How long a node may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(1);

/// How often a node is pinged that has work, and how long it may take to answer.
pub(super) const PING_EVERY: Duration = Duration::from_secs(2);

/// See [`PING_EVERY`].
pub(super) const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// Connections that are kept. There are fewer nodes.
const KEPT: usize = 1_000;

/// The connections. Clones share them.
#[derive(Clone)]
pub(super) struct Channels {
    secret: NodeSecret,
    /// Whose threads answer pings: those that queries do not keep busy.
    runtime: Handle,
    open: Arc<Mutex<HashMap<Url, BoxCloneSyncChannel>>>,
}

impl fmt::Debug for Channels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Channels").finish_non_exhaustive()
    }
}

impl Channels {
    /// None is open yet.
    pub(super) fn new(secret: NodeSecret, runtime: Handle) -> Channels {
        Channels { secret, runtime, open: Arc::default() }
    }

    /// The connection to a node. It is made with the first request, and made again after it was lost.
    fn channel(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(url) {
            return Ok(channel.clone());
        }
        if open.len() >= KEPT {
            open.clear();
        }
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|error| internal_datafusion_err!("{url} is no address of a node: {error}"))?
            .connect_timeout(CONNECTING)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWERED_WITHIN)
            .keep_alive_while_idle(true);
        let channel = {
            let _threads = self.runtime.enter();
            endpoint.connect_lazy()
        };
        let secret = self.secret.clone();
        let signed = channel.map_request(move |mut request: http::Request<tonic::body::Body>| {
            let token = secret.token(VERSION, unix_seconds());
            // A token is plain ASCII.
            if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
                request.headers_mut().insert(TOKEN_HEADER, token);
            }
            request
        });
        let channel = BoxCloneSyncChannel::new(signed);
        open.insert(url.clone(), channel.clone());
        Ok(channel)
    }
}

/// The time, in seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let channel = self.channel(url)?;
        // The library takes a channel that is ready, and its errors name no node.
        let ready = channel.ready_oneshot().await.map_err(|error| exec_datafusion_err!("{url}: {error}"))?;
        Ok(create_worker_client(ready))
    }
}
