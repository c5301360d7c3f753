//! The whole service on a temporary directory, and a client that drives it in process.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::BodyExt;
use strata_config::Config;
use strata_service::{
    App, Clock, DemoDataset, ImportError, ImportProgress, ImportRequest, Imported, MemoryRateLimiter, RateCapacity,
    RateLimits, SystemClock,
};
use strata_types::user::Plan;
use tempfile::TempDir;
use tower::Service;

use crate::fixtures::FIXTURES;

/// Who owns what the tests import.
pub const OWNER: &str = "owner@strata.test";

/// The password of every user of the tests.
pub const PASSWORD: &str = "a long enough password";

/// A service of its own, with an owner.
pub struct TestService {
    pub app: App,
    router: Router,
    directory: TempDir,
}

impl TestService {
    /// With a cache so small that parts are dropped while they are used.
    pub async fn start() -> TestService {
        TestService::configured(|config| config.cache.memory_bytes = Some(1 << 20)).await
    }

    /// With the configuration changed.
    pub async fn configured(change: impl FnOnce(&mut Config)) -> TestService {
        TestService::clocked(SystemClock::start(), change).await
    }

    /// With the configuration changed, and requests counted by this clock.
    pub async fn clocked(clock: impl Clock, change: impl FnOnce(&mut Config)) -> TestService {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        // The same on every machine.
        config.query.threads = 2;
        (config.cache.memory_bytes, config.query.memory_bytes) = (Some(1 << 30), Some(1 << 30));
        // All requests of a test are one client's.
        (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
        change(&mut config);
        let limiter = MemoryRateLimiter::new(RateLimits::from(&config.limits), RateCapacity::default(), clock);
        let app = App::open_with(&config, Arc::new(limiter)).await.expect("the service opens");
        app.accounts().add_user(OWNER, PASSWORD, Plan::Scale, None).await.expect("the owner is added");
        TestService { router: strata_dashboard::router(app.clone()), app, directory }
    }

    /// Another process on the same data, with the configuration changed.
    pub async fn beside(&self, change: impl FnOnce(&mut Config)) -> TestService {
        let mut config = self.app.config().clone();
        change(&mut config);
        let app = App::open(&config).await.expect("the service opens");
        let directory = tempfile::tempdir().expect("a temporary directory");
        TestService { router: strata_dashboard::router(app.clone()), app, directory }
    }

    /// A service that was opened already.
    pub fn on(app: App) -> TestService {
        let directory = tempfile::tempdir().expect("a temporary directory");
        TestService { router: strata_dashboard::router(app.clone()), app, directory }
    }

    /// The directory of its data.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The version files that are there.
    pub fn version_files(&self) -> Vec<std::path::PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.directory().join("store/versions")) else { return Vec::new() };
        let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files
    }

    /// The files of exports, whole or in the making.
    pub fn export_files(&self) -> std::collections::BTreeSet<std::path::PathBuf> {
        let entries = |path: std::path::PathBuf| {
            std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
        };
        let own = entries(self.directory().join("exports")).filter(|path| path.is_dir());
        own.flat_map(entries).filter(|path| path.extension().is_some()).collect()
    }

    /// Imports a text in any source format as the dataset of that name.
    pub async fn try_import(&self, name: &str, private: bool, text: &[u8]) -> Result<Imported, ImportError> {
        let source = tempfile::NamedTempFile::new_in(self.directory()).expect("a temporary file");
        std::fs::write(source.path(), text).expect("written");
        let request = ImportRequest {
            source: source.path().to_string_lossy().into_owned(),
            name: name.to_owned(),
            owner_email: OWNER.to_owned(),
            about: strata_types::dataset::About::default(),
            private,
            format: None,
            records_path: None,
            publish_query: false,
            infer_types: false,
        };
        self.app.refreshes().import(request, Arc::new(ImportProgress::default())).await
    }

    /// Imports entities, given as the text of a JSON array or as lines.
    pub async fn import(&self, name: &str, text: &str) -> Imported {
        self.try_import(name, false, text.as_bytes()).await.expect("imported")
    }

    /// Imports every fixture.
    pub async fn load_fixtures(&self) -> Vec<DemoDataset> {
        self.app.demo().load(Path::new(FIXTURES)).await.expect("the fixtures are loaded")
    }

    /// `GET` of a path and query.
    pub async fn get(&self, uri: &str) -> Answer {
        self.send("GET", uri, None).await
    }

    /// A request, with an `Authorization` if one is given.
    pub async fn send(&self, method: &str, uri: &str, authorization: Option<&str>) -> Answer {
        let headers: Vec<_> = authorization.map(|value| ("authorization", value)).into_iter().collect();
        self.send_with(method, uri, &headers).await
    }

    /// `GET` with headers.
    pub async fn get_with(&self, uri: &str, headers: &[(&str, &str)]) -> Answer {
        self.send_with("GET", uri, headers).await
    }

    /// A request with headers.
    pub async fn send_with(&self, method: &str, uri: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.call(request.body(Body::empty()).expect("a request")).await
    }

    /// Any request.
    pub async fn call(&self, request: Request<Body>) -> Answer {
        let response = match self.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, mut body) = response.into_parts();
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

/// A response, read as far as it went.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// How many pieces the body came in.
    pub chunks: usize,
    /// Whether the body came to its proper end.
    pub whole: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// A successful answer with this body.
    #[track_caller]
    pub fn is(&self, body: &str) {
        assert_eq!((self.status, self.whole), (200, true), "{}", self.text());
        // Compared before they are shown: bodies can be large.
        if self.body != body.as_bytes() {
            let differs = self.body.iter().zip(body.as_bytes()).position(|(one, other)| one != other);
            let from = differs.unwrap_or_else(|| self.body.len().min(body.len())).saturating_sub(100);
            let shown = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[from.min(bytes.len())..bytes.len().min(from + 300)]).into_owned()
            };
            let (found, expected) = (shown(&self.body), shown(body.as_bytes()));
            panic!(
                "{} bytes for {}; from byte {from}:\nfound    {found}\nexpected {expected}",
                self.body.len(),
                body.len()
            );
        }
    }

    /// An error answer: of this status, and readable on one line.
    #[track_caller]
    pub fn is_error(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert!(!self.body.is_empty() && !self.text().contains('\n'), "{:?}", self.text());
    }
}
