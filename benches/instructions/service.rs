//! The service in this process, on as few threads as possible, executing an action a given number of times.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use strata_service::{ImportRequest, ProcessPurpose, ReadTarget, RefreshCounters, Services};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;
use tower::Service;

use crate::IMPORTED;
use crate::paths::HotPathAction;
use crate::support::import::{OWNER, config};
use crate::support::load::target;

/// The size of the cache, which is large enough for all data.
const CACHE_BYTES: u64 = 1 << 30;

/// The number of executions before the counted ones, which fill caches and initialize lazy state.
const WARM_UP_REPETITIONS: u64 = 3;

#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    pub action: HotPathAction,
    /// The number of executions after the warm-up.
    pub repetitions: u64,
    pub prepared: PreparedData,
}

/// The data that the parent process has prepared.
#[derive(Clone, Serialize, Deserialize)]
pub struct PreparedData {
    pub data: PathBuf,
    pub path: String,
    pub name_slug: String,
    pub source: PathBuf,
}

/// Runs a job in the child process.
pub fn run(job: &Job) {
    on_one_thread(&job.prepared, async |service| {
        // An import fills no cache for the next import.
        let warm = if matches!(job.action, HotPathAction::Import) { 0 } else { WARM_UP_REPETITIONS };
        for _ in 0..warm + job.repetitions {
            service.act(&job.action).await;
        }
    });
}

/// Opens the service on a runtime with one thread, runs `work`, and closes the service.
pub fn on_one_thread<T>(prepared: &PreparedData, work: impl AsyncFnOnce(&mut OpenService) -> T) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("failed to start the runtime");
    runtime.block_on(async {
        let mut configuration = config(&prepared.data, CACHE_BYTES);
        configuration.query.threads = 1;
        let services =
            Services::open(&configuration, ProcessPurpose::Serve).await.expect("failed to open the data directory");
        let router = strata_http::router(services.clone());
        let mut service = OpenService { services, router, prepared: prepared.clone(), etag: None, imports: 0 };
        let done = work(&mut service).await;
        service.services.close().await;
        done
    })
}

/// An open service.
pub struct OpenService {
    services: Arc<Services>,
    router: Router,
    prepared: PreparedData,
    /// The `ETag` of the response to revalidate.
    etag: Option<HeaderValue>,
    /// The number of imports so far, for unique names.
    imports: u64,
}

impl OpenService {
    /// Executes an action once and returns the body of the response.
    pub async fn act(&mut self, action: &HotPathAction) -> Bytes {
        match action {
            HotPathAction::Read(query) => self.read(query, StatusCode::OK).await,
            HotPathAction::Revalidate(query) => {
                if self.etag.is_none() {
                    self.read(query, StatusCode::OK).await;
                }
                self.read(query, StatusCode::NOT_MODIFIED).await
            }
            HotPathAction::LookUp => {
                self.look_up().await;
                Bytes::new()
            }
            HotPathAction::Import => {
                self.import().await;
                Bytes::new()
            }
        }
    }

    async fn read(&mut self, query: &str, status: StatusCode) -> Bytes {
        let mut request = Request::get(target(&self.prepared.path, query));
        if let (StatusCode::NOT_MODIFIED, Some(etag)) = (status, &self.etag) {
            request = request.header(IF_NONE_MATCH, etag.clone());
        }
        let request = request.body(Body::empty()).expect("failed to build the request");
        self.services.lookups.notify_catalog_change();
        let answer = match self.router.call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        assert_eq!(answer.status(), status, "{query}");
        self.etag = answer.headers().get(ETAG).cloned();
        answer.into_body().collect().await.expect("failed to read the response").to_bytes()
    }

    async fn look_up(&self) {
        let lookups = &self.services.lookups;
        lookups.notify_catalog_change();
        let target = ReadTarget {
            dataset: DatasetId::new(1),
            name_slug: self.prepared.name_slug.clone(),
            version: VersionSelector::Active,
        };
        assert!(!lookups.find(&target).await.expect("failed to query the catalog").is_private());
    }

    async fn import(&mut self) {
        // A name that no other process uses.
        self.imports += 1;
        let request = ImportRequest {
            source: self.prepared.source.display().to_string(),
            name: format!("imported {} {}", std::process::id(), self.imports),
            owner_email: OWNER.to_owned(),
            private: false,
            format: None,
            records_path: None,
            publish_query: false,
            infer_types: false,
            about: strata_types::dataset::DatasetMetadata::default(),
        };
        let imported = self.services.refreshes.import(request, Arc::new(RefreshCounters::default())).await;
        assert_eq!(imported.expect("failed to import").entity_count, IMPORTED);
    }
}
