//! A service on a temporary directory, and a client that calls it in process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use object_store::ObjectStore;
use strata_catalog::Catalog;
use strata_config::Config;
use strata_http::ServeError;
use strata_service::{
    AdmissionLoad, ClockReading, DemoDataset, ImportError, ImportRequest, ImportedVersion, MemoryRateLimiter,
    ProcessPurpose, RateLimitClock, RateLimiterCapacity, RateLimits, RefreshCounters, ServiceDependencies, Services,
    SystemClock,
};
use strata_store::store::Store;
use strata_types::dataset::DatasetMetadata;
use strata_types::field_path::FieldPath;
use strata_types::user::UserPlan;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::Service;

use crate::fixtures::FIXTURES;
use crate::{catalog, metrics};

/// The owner of imported datasets.
pub const OWNER: &str = "owner@strata.test";

pub const DEMO_OWNER: &str = "demo@strata.test";

pub const PASSWORD: &str = "a long enough password";

/// A service with an owner.
pub struct TestService {
    pub services: Arc<Services>,
    router: Router,
    directory: TempDir,
}

impl TestService {
    /// Starts a service with a cache so small that parts are evicted while they are used.
    pub async fn start() -> TestService {
        TestService::configured(|config| config.cache.memory_bytes = Some(1 << 20)).await
    }

    /// Starts a service with a changed configuration.
    pub async fn configured(change: impl FnOnce(&mut Config)) -> TestService {
        TestService::clocked(SystemClock::start(), change).await
    }

    /// Like [`TestService::configured`], but rate limits use the time that `elapsed` returns.
    pub async fn timed_by(
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
        change: impl FnOnce(&mut Config),
    ) -> TestService {
        TestService::clocked(ElapsedClock(elapsed), change).await
    }

    async fn clocked(clock: impl RateLimitClock, change: impl FnOnce(&mut Config)) -> TestService {
        let directory = tempfile::tempdir().expect("failed to create temporary directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        // Results are equal on every machine.
        config.query.threads = 2;
        (config.cache.memory_bytes, config.query.memory_bytes) = (Some(1 << 30), Some(1 << 30));
        // All requests of a test belong to one client.
        (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
        change(&mut config);
        let limiter = MemoryRateLimiter::new(RateLimits::from(&config.limits), RateLimiterCapacity::default(), clock);
        let services = Services::build(ServiceDependencies {
            rate_limiter: Some(Arc::new(limiter)),
            ..ServiceDependencies::new(&config, ProcessPurpose::Serve)
        })
        .await
        .expect("failed to open service");
        services.accounts.add_user(OWNER, PASSWORD, UserPlan::Scale, None).await.expect("failed to add owner");
        TestService { router: strata_dashboard::router(services.clone()), services, directory }
    }

    /// Starts another process on the same data with a changed configuration.
    pub async fn open_instance(&self, change: impl FnOnce(&mut Config)) -> TestService {
        let mut config = (*self.services.config).clone();
        change(&mut config);
        TestService::open(&config).await.expect("failed to open service")
    }

    /// Starts another process on the same data with the same configuration.
    pub async fn reopened(&self) -> TestService {
        self.open_instance(|_| {}).await
    }

    /// Opens a service with this configuration. The error is a message.
    pub async fn open(config: &Config) -> Result<TestService, String> {
        Services::open(config, ProcessPurpose::Serve).await.map(TestService::on).map_err(|error| error.to_string())
    }

    /// Opens a service on a data directory or a backup, with the default configuration and without rate limits. The
    /// error is a message.
    pub async fn open_data(directory: &Path) -> Result<TestService, String> {
        let mut config = Config::default();
        config.data.directory = directory.to_owned();
        (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
        TestService::open(&config).await
    }

    /// Opens a service with this object store. The configuration specifies the data directory.
    pub async fn open_with_store(config: &Config, objects: Arc<dyn ObjectStore>) -> TestService {
        let limits = RateLimits::from(&config.limits);
        let limiter = MemoryRateLimiter::new(limits, RateLimiterCapacity::default(), SystemClock::start());
        let services = Services::build(ServiceDependencies {
            rate_limiter: Some(Arc::new(limiter)),
            store: Some(Store::from(objects)),
            ..ServiceDependencies::new(config, ProcessPurpose::Serve)
        })
        .await;
        TestService::on(services.expect("failed to open service"))
    }

    fn on(services: Arc<Services>) -> TestService {
        let directory = tempfile::tempdir().expect("failed to create temporary directory");
        TestService { router: strata_dashboard::router(services.clone()), services, directory }
    }

    /// Opens the metadata database like another process.
    pub async fn catalog(&self) -> Catalog {
        catalog::open(&self.services.config.catalog_url()).await
    }

    /// Returns the routes with all layers of the server.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Serves the service on a free loopback port, with the limits of its configuration.
    pub async fn listen(&self) -> ListeningService {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind free port");
        let address = listener.local_addr().expect("failed to get address");
        let (stop, stopped) = oneshot::channel::<()>();
        let services = self.services.clone();
        let server = tokio::spawn(async move { strata_dashboard::serve(services, listener, stopped).await });
        ListeningService { address, stop, server }
    }

    /// Returns true if no work is running or queued, and no response uses memory.
    pub fn is_idle(&self) -> bool {
        self.services.current_load() == AdmissionLoad::default()
    }

    /// Renders the metrics of the process and of this service.
    pub fn metrics(&self) -> String {
        self.services.update_metrics();
        metrics::rendered()
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the existing version files.
    pub fn version_files(&self) -> Vec<std::path::PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.directory().join("store/versions")) else { return Vec::new() };
        let mut files: Vec<_> = entries.map(|entry| entry.expect("failed to read entry").path()).collect();
        files.sort();
        files
    }

    /// Returns the export files, including incomplete ones.
    pub fn export_files(&self) -> std::collections::BTreeSet<std::path::PathBuf> {
        let entries = |path: std::path::PathBuf| {
            std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
        };
        let own = entries(self.directory().join("exports")).filter(|path| path.is_dir());
        own.flat_map(entries).filter(|path| path.extension().is_some()).collect()
    }

    /// Imports text in any source format as a dataset.
    pub async fn try_import(&self, name: &str, private: bool, text: &[u8]) -> Result<ImportedVersion, ImportError> {
        let source = tempfile::NamedTempFile::new_in(self.directory()).expect("failed to create temporary file");
        std::fs::write(source.path(), text).expect("failed to write");
        let source = source.path().to_string_lossy();
        self.import_source(ImportedSource { private, ..ImportedSource::new(name, &source) }).await
    }

    /// Imports a source like the `import` command.
    pub async fn import_source(&self, source: ImportedSource<'_>) -> Result<ImportedVersion, ImportError> {
        let request = ImportRequest {
            source: source.source.to_owned(),
            name: source.name.to_owned(),
            owner_email: source.owner.to_owned(),
            about: DatasetMetadata::default(),
            private: source.private,
            format: None,
            records_path: source.records_path.map(|path| FieldPath::parse(path).expect("missing path")),
            publish_query: false,
            infer_types: false,
        };
        self.services.refreshes.import(request, Arc::new(RefreshCounters::default())).await
    }

    /// Imports entities from the text of a JSON array or from lines.
    pub async fn import(&self, name: &str, text: &str) -> ImportedVersion {
        self.try_import(name, false, text.as_bytes()).await.expect("failed to import")
    }

    /// Imports all fixtures.
    pub async fn load_fixtures(&self) -> Vec<DemoDataset> {
        self.services.demo.load(Path::new(FIXTURES)).await.expect("failed to load fixtures")
    }

    /// Sends a GET of a path and query.
    pub async fn get(&self, uri: &str) -> Answer {
        self.send("GET", uri, None).await
    }

    /// Sends a request with an optional `Authorization` header.
    pub async fn send(&self, method: &str, uri: &str, authorization: Option<&str>) -> Answer {
        let headers: Vec<_> = authorization.map(|value| ("authorization", value)).into_iter().collect();
        self.send_with(method, uri, &headers).await
    }

    /// Sends a GET with headers.
    pub async fn get_with(&self, uri: &str, headers: &[(&str, &str)]) -> Answer {
        self.send_with("GET", uri, headers).await
    }

    /// Sends a request with headers.
    pub async fn send_with(&self, method: &str, uri: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.call(request.body(Body::empty()).expect("failed to build request")).await
    }

    /// Returns the response to a request without reading its body.
    pub async fn respond(&self, request: Request<Body>) -> Response<Body> {
        match self.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Sends a request and reads the response.
    pub async fn call(&self, request: Request<Body>) -> Answer {
        let (parts, mut body) = self.respond(request).await.into_parts();
        let mut answer = Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: Bytes::new(),
            chunks: 0,
            whole: true,
        };
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Err(_) => answer.whole = false,
            }
            answer.chunks += 1;
        }
        answer.body = bytes.into();
        answer
    }
}

/// A source to import, and the dataset for its version.
#[derive(Clone, Copy)]
pub struct ImportedSource<'a> {
    pub name: &'a str,
    /// A path or a URL.
    pub source: &'a str,
    pub owner: &'a str,
    pub private: bool,
    pub records_path: Option<&'a str>,
}

impl<'a> ImportedSource<'a> {
    /// Creates a public dataset of the default owner.
    pub fn new(name: &'a str, source: &'a str) -> ImportedSource<'a> {
        ImportedSource { name, source, owner: OWNER, private: false, records_path: None }
    }
}

/// A service that listens until the drop.
pub struct ListeningService {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), ServeError>>,
}

impl ListeningService {
    /// Shuts the server down, and waits until it has stopped without an error.
    pub async fn stop(self) {
        drop(self.stop);
        self.server.await.expect("task panicked").expect("server failed");
    }
}

/// A clock that a closure controls. The windows of rate limits begin at a time in 2023.
struct ElapsedClock<F>(F);

impl<F: Fn() -> Duration + Send + Sync + 'static> RateLimitClock for ElapsedClock<F> {
    fn now(&self) -> ClockReading {
        let elapsed = (self.0)();
        ClockReading { elapsed, unix: elapsed + Duration::from_secs(1_700_000_000) }
    }
}

/// A response, whose body can be incomplete.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The number of chunks of the body.
    pub chunks: usize,
    /// True if the body is complete.
    pub whole: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("invalid text"))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("invalid text")
    }

    /// Checks that the response is successful and has this body.
    #[track_caller]
    pub fn is(&self, body: &str) {
        assert_eq!((self.status, self.whole), (200, true), "{}", self.text());
        // Compared before formatting, because bodies can be large.
        if self.body != body.as_bytes() {
            let differs = self.body.iter().zip(body.as_bytes()).position(|(one, other)| one != other);
            let from = differs.unwrap_or_else(|| self.body.len().min(body.len())).saturating_sub(100);
            let shown = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[from.min(bytes.len())..bytes.len().min(from + 300)]).into_owned()
            };
            let found = shown(&self.body);
            let expected = shown(body.as_bytes());
            panic!(
                "{} bytes for {}; from byte {from}:\nfound    {found}\nexpected {expected}",
                self.body.len(),
                body.len()
            );
        }
    }

    /// Checks that the response is an error with this status and a message on one line.
    #[track_caller]
    pub fn is_error(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert!(!self.body.is_empty() && !self.text().contains('\n'), "{:?}", self.text());
    }
}
