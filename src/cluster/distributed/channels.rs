//! Connections to other nodes. They are kept, and looked after: a node that hangs answers no ping, and its requests
//! fail then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::{exec_datafusion_err, internal_datafusion_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{ChannelResolver, WorkerChannel};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::runtime::Handle;
use tonic::transport::Endpoint;
use tower::ServiceExt;
use url::Url;

use super::guard::Guard;
use crate::tls::NodeTls;

const CONNECTING: Duration = Duration::from_secs(1);

/// How often a node is pinged that has work, and how long it may take to answer.
pub(super) const PING_EVERY: Duration = Duration::from_secs(2);

pub(super) const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(3);

const KEPT: usize = 1_000;

#[derive(Clone)]
pub(super) struct Channels {
    guard: Guard,
    /// With what connections are made; `None` without TLS.
    tls: Option<Arc<NodeTls>>,
    /// Whose threads answer pings: those that queries do not keep busy.
    runtime: Handle,
    /// By name and address: a token is for one node.
    open: Arc<Mutex<HashMap<(String, Url), BoxCloneSyncChannel>>>,
}

impl Channels {
    pub(super) fn new(guard: Guard, tls: Option<Arc<NodeTls>>, runtime: Handle) -> Channels {
        Channels { guard, tls, runtime, open: Arc::default() }
    }

    /// The connection to a node. It is made with the first request, and made again after it was lost.
    fn channel(&self, name: &str, url: &Url) -> Result<BoxCloneSyncChannel> {
        let key = (name.to_owned(), url.clone());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(&key) {
            return Ok(channel.clone());
        }
        if open.len() >= KEPT {
            open.clear();
        }
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|error| internal_datafusion_err!("{url} is not a valid node address: {error}"))?
            .connect_timeout(CONNECTING)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWERED_WITHIN)
            .keep_alive_while_idle(true);
        let channel = {
            let _threads = self.runtime.enter();
            match self.tls.clone() {
                None => endpoint.connect_lazy(),
                Some(tls) => endpoint.connect_with_connector_lazy(tower::service_fn(move |url: Uri| {
                    let tls = tls.clone();
                    async move { tls.connect(&url).await.map(TokioIo::new) }
                })),
            }
        };
        let guard = self.guard.clone();
        let name = name.to_owned();
        let signed = channel.map_request(move |request: http::Request<tonic::body::Body>| guard.sign(&name, request));
        let channel = BoxCloneSyncChannel::new(signed);
        open.insert(key, channel.clone());
        Ok(channel)
    }
}

pub(super) struct NamedChannels {
    pub(super) channels: Channels,
    pub(super) names: HashMap<Url, String>,
}

#[async_trait]
impl ChannelResolver for NamedChannels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let Some(name) = self.names.get(url) else { return internal_err!("{url} is not a node of this query") };
        let channel = self.channels.channel(name, url)?;
        // The library takes a channel that is ready, and its errors name no node.
        let ready = channel.ready_oneshot().await.map_err(|error| exec_datafusion_err!("{url}: {error}"))?;
        Ok(create_worker_client(ready))
    }
}
