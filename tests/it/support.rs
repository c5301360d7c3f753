//! The whole service on a temporary directory, and a client that drives it in process.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::BodyExt;
use strata::config::Config;
use strata::model::user::Plan;
use strata::net::{AddressPolicy, Outgoing};
use strata::service::{
    App, Clock, DemoDataset, ImportError, ImportProgress, ImportRequest, Imported, MemoryRateLimiter, RateCapacity,
    RateLimits, SystemClock,
};
use strata::source::{FetchLimits, SourceClient};
use tempfile::TempDir;
use tower::Service;

use crate::twin::Value;

/// Who owns what the tests import.
pub const OWNER: &str = "owner@strata.test";

/// Where the fixtures lie.
pub const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data-fixtures");

/// The files below a directory, but the one that says whose store it is.
pub fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let paths = paths.filter(|path| !path.ends_with("strata.id"));
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Seals the end of a version file anew, after a change that is to pass for what was written.
pub fn seal(file: &mut [u8]) {
    const MARK: &[u8] = b"strata.seal:";
    let mark = file.windows(MARK.len()).rposition(|window| window == MARK).expect("a seal") + MARK.len();
    let start = std::str::from_utf8(&file[mark..mark + 16]).expect("digits");
    let start = usize::from_str_radix(start, 16).expect("an offset");
    let digits = mark + 17..mark + 25;
    file[digits.clone()].fill(b'0');
    let checksum = crc32fast::hash(&file[start..]);
    file[digits].copy_from_slice(format!("{checksum:08x}").as_bytes());
}

/// The way out of a service whose operator opened the loopback network.
pub fn loopback() -> Outgoing {
    Outgoing::new(AddressPolicy::new(["127.0.0.0/8".parse().expect("a network")]))
}

/// Fetches sources from loopback, too; there is no store.
pub fn loopback_client(limits: FetchLimits) -> SourceClient {
    SourceClient::new(loopback(), limits, None)
}

/// A service of its own, with an owner.
pub struct TestService {
    pub app: App,
    router: Router,
    directory: TempDir,
}

impl TestService {
    /// With a cache so small that parts are dropped while they are used.
    pub async fn start() -> TestService {
        TestService::configured(|config| config.cache.memory_bytes = 1 << 20).await
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
        config.query.threads = 2;
        // All requests of a test are one client's.
        (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
        change(&mut config);
        let limiter = MemoryRateLimiter::new(RateLimits::from(&config.limits), RateCapacity::default(), clock);
        let app = App::open_with(&config, Arc::new(limiter)).await.expect("the service opens");
        app.accounts().add_user(OWNER, "a long enough password", Plan::Scale, None).await.expect("the owner is added");
        TestService { router: strata::http::router(app.clone()), app, directory }
    }

    /// Another process on the same data, with the configuration changed.
    pub async fn beside(&self, change: impl FnOnce(&mut Config)) -> TestService {
        let mut config = self.app.config().clone();
        change(&mut config);
        let app = App::open(&config).await.expect("the service opens");
        let directory = tempfile::tempdir().expect("a temporary directory");
        TestService { router: strata::http::router(app.clone()), app, directory }
    }

    /// A service that was opened already.
    pub fn on(app: App) -> TestService {
        let directory = tempfile::tempdir().expect("a temporary directory");
        TestService { router: strata::http::router(app.clone()), app, directory }
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

    /// Imports a text in any source format as the dataset of that name.
    pub async fn try_import(&self, name: &str, private: bool, text: &[u8]) -> Result<Imported, ImportError> {
        let source = tempfile::NamedTempFile::new_in(self.directory()).expect("a temporary file");
        std::fs::write(source.path(), text).expect("written");
        let request = ImportRequest {
            source: source.path().to_string_lossy().into_owned(),
            name: name.to_owned(),
            owner_email: OWNER.to_owned(),
            private,
            format: None,
            records_path: None,
            publish_query: false,
        };
        self.app.imports().import(request, Arc::new(ImportProgress::default())).await
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

/// The fixtures: the name that the manifest gives, the file, and the key of the array in it.
pub const FIXTURE_FILES: [(&str, &str, Option<&str>); 7] = [
    ("World Countries", "world-countries/countries.json", None),
    ("Emoji", "emoji/emoji.json.zst", None),
    ("Earthquakes", "earthquakes/earthquakes.json", Some("features")),
    ("Football Matches", "football/matches.jsonl.gz", None),
    ("US Airports", "airports/airports.csv", None),
    ("US Unemployment", "unemployment/unemployment.tsv", None),
    ("Palmer Penguins", "penguins/penguins.json", None),
];

/// The entities of a fixture, read by other code than the service's: whole, and as a tree of values.
pub fn fixture(file: &str, records: Option<&str>) -> Vec<Value> {
    let packed = std::fs::read(Path::new(FIXTURES).join(file)).expect(file);
    let bytes = match file.rsplit_once('.') {
        Some((_, "gz")) => {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed), &mut bytes).expect("gzip");
            bytes
        }
        Some((_, "zst")) => zstd::decode_all(&*packed).expect("Zstandard"),
        _ => packed,
    };
    let text = String::from_utf8(bytes).expect("UTF-8");
    let name = file.trim_end_matches(".gz").trim_end_matches(".zst");
    let table = |delimiter| {
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
        let header = reader.headers().expect("a header").clone();
        let record = |record: csv::Result<csv::StringRecord>| {
            let record = record.expect("a record");
            let cells = header.iter().zip(&record);
            Value::Object(cells.map(|(key, cell)| (key.to_owned(), Value::String(cell.to_owned()))).collect())
        };
        reader.into_records().map(record).collect()
    };
    match name.rsplit_once('.') {
        Some((_, "csv")) => table(b','),
        Some((_, "tsv")) => table(b'\t'),
        Some((_, "jsonl")) => text.lines().map(|line| Value::parse_entity(line).expect(line)).collect(),
        _ => {
            let document = Value::parse(&text).expect("JSON");
            let array = records.map_or(Some(&document), |records| document.get(records)).cloned();
            match array {
                Some(Value::Array(entities)) => entities,
                _ => panic!("{file} holds no array"),
            }
        }
    }
}

/// The canonical texts of a fixture's entities.
pub fn fixture_entities(file: &str, records: Option<&str>) -> Vec<String> {
    fixture(file, records).iter().map(Value::write).collect()
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
        assert!(!self.body.is_empty() && !self.text().contains('\n'), "{:?}", self.text());
    }
}

/// Waits until a condition holds, which is asked every few milliseconds: long, since machines can be slow.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < until, "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Collects log lines.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// The lines so far.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        parsed(self.0.lock().expect("not poisoned").clone())
    }

    /// The lines so far, which are forgotten.
    pub fn take(&self) -> Vec<serde_json::Value> {
        parsed(std::mem::take(&mut *self.0.lock().expect("not poisoned")))
    }
}

fn parsed(lines: Vec<u8>) -> Vec<serde_json::Value> {
    let text = String::from_utf8(lines).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}
