//! An S3 server on the loopback interface that delays and records every request.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use strata_config::{StoreConfig, StoreEndpoint, StoreUrl};
use strata_types::secret::Secret;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// The bucket, which is the directory of the store in the data directory.
const BUCKET: &str = "store";

const KEY: &str = "bench";

/// A request for bytes of a version file, with the times of its arrival and of its response.
#[derive(Clone, Copy)]
pub struct TimedRequest {
    begun: Instant,
    ended: Instant,
}

/// Returns the length of the longest chain in which each request arrived after the response to the previous request.
pub fn round_trips(requests: &[TimedRequest]) -> usize {
    let mut by_end: Vec<TimedRequest> = requests.to_vec();
    by_end.sort_by_key(|request| request.ended);
    // The length of the longest chain that ends with each request, in the order of the responses.
    let mut longest: Vec<usize> = Vec::with_capacity(by_end.len());
    for request in &by_end {
        let before = by_end[..longest.len()].partition_point(|other| other.ended <= request.begun);
        let own = before.checked_sub(1).map_or(0, |last| longest[last]) + 1;
        longest.push(longest.last().copied().unwrap_or(0).max(own));
    }
    longest.last().copied().unwrap_or(0)
}

pub struct DelayingServer {
    endpoint: String,
    requests: Arc<Mutex<Vec<TimedRequest>>>,
    _serving: AbortOnDropHandle<()>,
}

impl DelayingServer {
    /// Serves the store of a data directory and delays each request by `delay`.
    pub async fn start(data: &Path, delay: Duration) -> DelayingServer {
        let files = s3s_fs::FileSystem::new(data).expect("failed to open the data directory");
        let mut service = s3s::service::S3ServiceBuilder::new(files);
        service.set_auth(s3s::auth::SimpleAuth::from_single(KEY, KEY));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("failed to get the address"));
        let requests: Arc<Mutex<Vec<TimedRequest>>> = Arc::default();
        let all = requests.clone();
        let serving = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let _ = connection.set_nodelay(true);
                let service = service.clone();
                let requests = all.clone();
                let answer = move |request: hyper::Request<hyper::body::Incoming>| {
                    let service = service.clone();
                    let requests = requests.clone();
                    async move {
                        let begun = Instant::now();
                        let is_read = request.uri().path().ends_with(".parquet") && request.method() == "GET";
                        tokio::time::sleep(delay).await;
                        let answer = Service::call(&service, request).await;
                        if is_read {
                            let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
                            requests.push(TimedRequest { begun, ended: Instant::now() });
                        }
                        answer
                    }
                };
                tokio::spawn(async move {
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let service = hyper::service::service_fn(answer);
                    let _ = server.serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
        DelayingServer { endpoint, requests, _serving: AbortOnDropHandle::new(serving) }
    }

    /// Returns the URL of the server.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the requests since the last call.
    pub fn take(&self) -> Vec<TimedRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Configures the service to use the server as its store.
pub fn configure(store: &mut StoreConfig, endpoint: &str) {
    store.url = Some(StoreUrl::try_from(format!("s3://{BUCKET}")).expect("failed to parse the URL"));
    store.endpoint = Some(StoreEndpoint::try_from(endpoint.to_owned()).expect("failed to parse the address"));
    store.region = Some("us-east-1".to_owned());
    store.access_key_id = Some(KEY.to_owned());
    store.secret_access_key = Some(Secret::from_stored(KEY.to_owned()));
    store.allow_http = true;
}
