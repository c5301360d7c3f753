//! Cached connections to other nodes. HTTP/2 pings detect a node that hangs, so that requests to the node fail.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::{exec_datafusion_err, internal_datafusion_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{ChannelResolver, WorkerChannel};
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tonic::transport::Endpoint;
use tower::ServiceExt;
use url::Url;

use super::auth::NodeAuth;
use crate::tls::NodeTls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(2);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_CACHED_CHANNELS: usize = 1_000;

#[derive(Clone)]
pub(super) struct NodeChannels {
    auth: NodeAuth,
    tls: Option<Arc<NodeTls>>,
    /// The runtime of connections to other nodes. Its threads run no queries, so it can respond to HTTP/2 pings.
    runtime: Handle,
    /// Connections by name and URL of the node. The key contains the name, because a token is valid for one node.
    open_channels: Arc<Mutex<HashMap<(String, Url), BoxCloneSyncChannel>>>,
}

impl NodeChannels {
    pub(super) fn new(auth: NodeAuth, tls: Option<Arc<NodeTls>>, runtime: Handle) -> NodeChannels {
        NodeChannels { auth, tls, runtime, open_channels: Arc::default() }
    }

    fn get_or_connect(&self, name: &str, url: &Url) -> Result<BoxCloneSyncChannel> {
        let key = (name.to_owned(), url.clone());
        let mut open = self.open_channels.lock();
        if let Some(channel) = open.get(&key) {
            return Ok(channel.clone());
        }
        if open.len() >= MAX_CACHED_CHANNELS {
            open.clear();
        }
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|error| internal_datafusion_err!("{url} is not a valid node address: {error}"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        let channel = {
            let _runtime = self.runtime.enter();
            match self.tls.clone() {
                None => endpoint.connect_lazy(),
                Some(tls) => endpoint.connect_with_connector_lazy(tower::service_fn(move |url: Uri| {
                    let tls = tls.clone();
                    async move { tls.connect(&url).await.map(TokioIo::new) }
                })),
            }
        };
        let auth = self.auth.clone();
        let name = name.to_owned();
        let signed = channel.map_request(move |request: http::Request<tonic::body::Body>| auth.sign(&name, request));
        let channel = BoxCloneSyncChannel::new(signed);
        open.insert(key, channel.clone());
        Ok(channel)
    }
}

pub(super) struct NodeChannelResolver {
    pub(super) channels: NodeChannels,
    pub(super) node_names: HashMap<Url, String>,
}

#[async_trait]
impl ChannelResolver for NodeChannelResolver {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let Some(name) = self.node_names.get(url) else { return internal_err!("{url} is not a node of this query") };
        let channel = self.channels.get_or_connect(name, url)?;
        // `datafusion-distributed` requires a ready channel, and a connection error does not name the node.
        let ready = channel.ready_oneshot().await.map_err(|error| exec_datafusion_err!("{url}: {error}"))?;
        Ok(create_worker_client(ready))
    }
}
