//! The service in this process, on one thread as far as it lets one choose: what is done, once or again and again.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use strata_service::{ImportProgress, ImportRequest, Purpose, ReadTarget, Services};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;
use tower::Service;

use crate::IMPORTED;
use crate::paths::Action;
use crate::support::import::{OWNER, config};
use crate::support::load::target;

/// Bytes of the cache: it holds all that is read.
const CACHE_BYTES: u64 = 1 << 30;

/// Times that an action is done before it is counted: caches are filled, and what is made once is made.
const WARM: u64 = 3;

/// What a child process is to do.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    /// What.
    pub action: Action,
    /// How often, after it is warm.
    pub repetitions: u64,
    /// Where.
    pub place: Place,
}

/// Data that are there already.
#[derive(Clone, Serialize, Deserialize)]
pub struct Place {
    /// The data directory.
    pub data: PathBuf,
    /// The path of the version in URLs.
    pub path: String,
    /// The dataset's name in URLs.
    pub name_slug: String,
    /// What is imported.
    pub source: PathBuf,
}

/// The child: opens the service and does it.
pub fn run(job: &Job) {
    on_one_thread(&job.place, async |service| {
        // An import keeps nothing for the next one.
        let warm = if matches!(job.action, Action::Import) { 0 } else { WARM };
        for _ in 0..warm + job.repetitions {
            service.act(&job.action).await;
        }
    });
}

/// Opens the service, and closes it after the work.
pub fn on_one_thread<T>(place: &Place, work: impl AsyncFnOnce(&mut Serving) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut configuration = config(&place.data, CACHE_BYTES);
        configuration.query.threads = 1;
        let services = Services::open(&configuration, Purpose::Serve).await.expect("the data directory opens");
        let router = strata_http::router(services.clone());
        let mut service = Serving { services, router, place: place.clone(), etag: None, imports: 0 };
        let done = work(&mut service).await;
        service.services.close().await;
        done
    })
}

/// The service, open.
pub struct Serving {
    services: Arc<Services>,
    router: Router,
    place: Place,
    /// That of the answer to revalidate.
    etag: Option<HeaderValue>,
    /// How many were made.
    imports: u64,
}

impl Serving {
    /// Does it once; the body of the answer.
    pub async fn act(&mut self, action: &Action) -> Bytes {
        match action {
            Action::Read(query) => self.read(query, StatusCode::OK).await,
            Action::Revalidate(query) => {
                if self.etag.is_none() {
                    self.read(query, StatusCode::OK).await;
                }
                self.read(query, StatusCode::NOT_MODIFIED).await
            }
            Action::LookUp => {
                self.look_up().await;
                Bytes::new()
            }
            Action::Import => {
                self.import().await;
                Bytes::new()
            }
        }
    }

    async fn read(&mut self, query: &str, status: StatusCode) -> Bytes {
        let mut request = Request::get(target(&self.place.path, query));
        if let (StatusCode::NOT_MODIFIED, Some(etag)) = (status, &self.etag) {
            request = request.header(IF_NONE_MATCH, etag.clone());
        }
        let request = request.body(Body::empty()).expect("a request");
        self.services.lookups.catalog_changed();
        let answer = match self.router.call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        assert_eq!(answer.status(), status, "{query}");
        self.etag = answer.headers().get(ETAG).cloned();
        answer.into_body().collect().await.expect("a whole answer").to_bytes()
    }

    async fn look_up(&self) {
        let lookups = &self.services.lookups;
        lookups.catalog_changed();
        let target = ReadTarget {
            dataset: DatasetId::new(1),
            name_slug: self.place.name_slug.clone(),
            version: VersionSelector::Active,
        };
        assert!(!lookups.find(&target).await.expect("the catalog answers").is_private());
    }

    async fn import(&mut self) {
        // A name that no other process has taken.
        self.imports += 1;
        let request = ImportRequest {
            source: self.place.source.display().to_string(),
            name: format!("imported {} {}", std::process::id(), self.imports),
            owner_email: OWNER.to_owned(),
            private: false,
            format: None,
            records_path: None,
            publish_query: false,
            infer_types: false,
            about: strata_types::dataset::About::default(),
        };
        let imported = self.services.refreshes.import(request, Arc::new(ImportProgress::default())).await;
        assert_eq!(imported.expect("an import").entity_count, IMPORTED);
    }
}
