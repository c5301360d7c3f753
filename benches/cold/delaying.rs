//! An S3 server on the loopback interface that lets every request wait, and knows what was asked of it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use strata_config::{Endpoint, Store, StoreUrl};
use strata_types::secret::Secret;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// The bucket: the folder of the store in the data directory.
const BUCKET: &str = "store";

const KEY: &str = "bench";

/// A request for bytes of a version file: when it came, and when its answer went.
#[derive(Clone, Copy)]
pub struct Asked {
    begun: Instant,
    ended: Instant,
}

/// The longest chain of requests of which each was made after the answer to the one before.
pub fn chain(asked: &[Asked]) -> usize {
    let mut by_end: Vec<Asked> = asked.to_vec();
    by_end.sort_by_key(|asked| asked.ended);
    // For each request, in the order of their ends, the longest chain of those up to it.
    let mut longest: Vec<usize> = Vec::with_capacity(by_end.len());
    for request in &by_end {
        let before = by_end[..longest.len()].partition_point(|other| other.ended <= request.begun);
        let own = before.checked_sub(1).map_or(0, |last| longest[last]) + 1;
        longest.push(longest.last().copied().unwrap_or(0).max(own));
    }
    longest.last().copied().unwrap_or(0)
}

/// The server.
pub struct Delaying {
    endpoint: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Delaying {
    /// Serves the store of a data directory; each request waits for so long.
    pub async fn start(data: &Path, delay: Duration) -> Delaying {
        let files = s3s_fs::FileSystem::new(data).expect("a data directory");
        let mut service = s3s::service::S3ServiceBuilder::new(files);
        service.set_auth(s3s::auth::SimpleAuth::from_single(KEY, KEY));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let all = asked.clone();
        let serving = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let _ = connection.set_nodelay(true);
                let (service, asked) = (service.clone(), all.clone());
                let answer = move |request: hyper::Request<hyper::body::Incoming>| {
                    let (service, asked) = (service.clone(), asked.clone());
                    async move {
                        let begun = Instant::now();
                        let is_read = request.uri().path().ends_with(".parquet") && request.method() == "GET";
                        tokio::time::sleep(delay).await;
                        let answer = Service::call(&service, request).await;
                        if is_read {
                            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                            asked.push(Asked { begun, ended: Instant::now() });
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
        Delaying { endpoint, asked, _serving: AbortOnDropHandle::new(serving) }
    }

    /// Where it answers.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What was asked for since this was called last.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Configures a store of the server's.
pub fn configure(store: &mut Store, endpoint: &str) {
    store.url = Some(StoreUrl::try_from(format!("s3://{BUCKET}")).expect("a URL"));
    store.endpoint = Some(Endpoint::try_from(endpoint.to_owned()).expect("an address"));
    store.region = Some("us-east-1".to_owned());
    store.access_key_id = Some(KEY.to_owned());
    store.secret_access_key = Some(Secret::from_stored(KEY.to_owned()));
    store.allow_http = true;
}
