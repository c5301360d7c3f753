//! Tests in which the n-th call of the store fails, for every n, either before the call has an effect or after it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, UploadPart,
};
use rand::{RngExt, SeedableRng};
use strata_config::Config;
use strata_service::BackupCopyMode;
use strata_testing::TestService;
use strata_testing::maintenance::Depth;
use strata_testing::owned::{add_user, try_push};
use strata_types::dataset::{DatasetChange, DatasetName};
use strata_types::ids::DatasetId;
use strata_types::user::{User, UserPlan};
use strata_types::version::VersionNumber;

/// The moment of a failure: before the call had an effect, or after it, so that only the response was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FaultMoment {
    Before,
    After,
}

/// The planned faults of a store.
#[derive(Debug, Default)]
struct FaultPlan {
    armed: Option<(usize, FaultMoment)>,
    struck: bool,
    /// Every call fails, as with an unreachable server.
    down: bool,
    /// Calls for objects whose path contains this string panic.
    panics_on: Option<String>,
}

/// Decides whether a call fails; clones share the plan.
#[derive(Clone, Debug, Default)]
struct FaultControl(Arc<Mutex<FaultPlan>>);

impl FaultControl {
    fn arm(&self, call: usize, moment: FaultMoment) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            FaultPlan { armed: Some((call, moment)), ..FaultPlan::default() };
    }

    /// Removes the planned fault and returns whether it has occurred.
    fn disarm(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).struck
    }

    /// Makes all calls fail, or succeed again.
    fn set_down(&self, down: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).down = down;
    }

    /// Makes calls for one object panic.
    fn panic_on(&self, path: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).panics_on = Some(path.to_owned());
    }

    fn panic_if_planned(&self, path: &Path) {
        let part = self.0.lock().unwrap_or_else(PoisonError::into_inner).panics_on.clone();
        assert!(part.is_none_or(|part| !path.as_ref().contains(&part)), "planned panic");
    }

    fn is_down(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).down
    }

    /// Counts the call, and returns the moment at which it fails, if it does.
    fn next(&self) -> Option<FaultMoment> {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, moment) = plan.armed?;
        if left > 1 {
            plan.armed = Some((left - 1, moment));
            return None;
        }
        (plan.armed, plan.struck) = (None, true);
        Some(moment)
    }

    async fn apply<T>(&self, call: impl Future<Output = object_store::Result<T>>) -> object_store::Result<T> {
        if self.is_down() {
            return Err(object_store::Error::Generic { store: "S3", source: "connection refused".into() });
        }
        match self.next() {
            None => call.await,
            Some(FaultMoment::Before) => Err(failure()),
            Some(FaultMoment::After) => {
                call.await?;
                Err(failure())
            }
        }
    }
}

fn failure() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "the store fails as the test wants".into() }
}

/// A store in memory whose calls fail as planned.
#[derive(Debug)]
struct FaultyStore {
    inner: Arc<InMemory>,
    faults: FaultControl,
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("faulty")
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    faults: FaultControl,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        let faults = self.faults.clone();
        Box::pin(async move { faults.apply(part).await })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.faults.apply(self.inner.complete()).await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.faults.apply(self.inner.abort()).await
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        self.faults.apply(self.inner.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let inner = self.faults.apply(self.inner.put_multipart_opts(path, options)).await?;
        Ok(Box::new(FaultyUpload { inner, faults: self.faults.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.faults.panic_if_planned(path);
        self.faults.apply(self.inner.get_opts(path, options)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let inner = self.inner.clone();
        let faults = self.faults.clone();
        let delete = move |path: object_store::Result<Path>| {
            let inner = inner.clone();
            let faults = faults.clone();
            async move {
                let path = path?;
                let one = futures::stream::iter([Ok(path)]).boxed();
                let deleted = async { inner.delete_stream(one).try_collect::<Vec<_>>().await };
                Ok(faults.apply(deleted).await?.remove(0))
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match self.faults.next() {
            None => self.inner.list(prefix),
            Some(FaultMoment::Before) => futures::stream::iter([Err(failure())]).boxed(),
            Some(FaultMoment::After) => self.inner.list(prefix).chain(futures::stream::iter([Err(failure())])).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.faults.apply(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.faults.apply(self.inner.copy_opts(from, to, options)).await
    }
}

/// A service on a store that can fail.
struct FaultyService {
    service: TestService,
    user: User,
    objects: Arc<InMemory>,
    faults: FaultControl,
    dataset: DatasetId,
    _directory: tempfile::TempDir,
}

impl FaultyService {
    /// Starts a service with a dataset that has a version with an alternate.
    async fn start() -> FaultyService {
        FaultyService::start_with(|_| {}).await
    }

    /// Like [`FaultyService::start`], with a changed configuration.
    async fn start_with(change: impl FnOnce(&mut Config)) -> FaultyService {
        let directory = tempfile::tempdir().expect("failed to create a directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        change(&mut config);
        let objects = Arc::new(InMemory::new());
        let faults = FaultControl::default();
        let faulty: Arc<dyn ObjectStore> = Arc::new(FaultyStore { inner: objects.clone(), faults: faults.clone() });
        let service = TestService::open_with_store(&config, faulty).await;
        let (user, _) = add_user(&service, "ada@strata.test", UserPlan::Scale).await;
        let name: DatasetName = "Things".parse().expect("a name");
        let created =
            service.services.datasets.create(&user, name, DatasetChange::default()).await.expect("failed to create");
        let dataset = created.dataset.id;
        let faulty = FaultyService { service, user, objects, faults, dataset, _directory: directory };
        faulty.refresh(r#"[{"first":1}]"#).await.expect("failed to create the version");
        faulty.save(r#"[{"alt":1}]"#).await.expect("failed to save the alternate");
        faulty
    }

    async fn refresh(&self, entities: &str) -> Result<(), String> {
        try_push(&self.service, self.user.id, self.dataset.get(), entities).await
    }

    async fn save(&self, entities: &str) -> Result<(), String> {
        let body = Bytes::from(format!(r#"{{"entities":{entities}}}"#));
        let body = futures::stream::iter([Ok::<_, std::io::Error>(body)]);
        let pushed = self
            .service
            .services
            .ingest
            .receive_entities(self.user.id, body, &["dataset_id"])
            .await
            .map_err(|error| error.to_string())?;
        let saved = self.service.services.datasets.save_alternate(
            &self.user,
            self.dataset,
            VersionNumber::new(1),
            pushed.entities,
            None,
        );
        saved.await.map(drop).map_err(|error| error.to_string())
    }

    /// Returns the state in the catalog: every version and its alternate.
    async fn state(&self) -> String {
        let view = self
            .service
            .services
            .datasets
            .find_owned_view(&self.user, self.dataset)
            .await
            .expect("failed to view the dataset");
        let versions = view.versions.iter().map(|record| {
            let version = &record.version;
            format!("{} {} {:?}; ", version.number, version.file.path, version.alternate.as_ref().map(|alt| &alt.path))
        });
        versions.collect()
    }

    /// Returns the paths of the version files in the store.
    async fn stored(&self) -> BTreeSet<String> {
        let objects = self.objects.list(Some(&Path::from("versions")));
        objects.map_ok(|object| object.location.to_string()).try_collect().await.expect("a list")
    }

    /// Asserts that, after a sweep, the store contains exactly the files that the catalog names, and that all of them
    /// are intact.
    async fn assert_consistent(&self, what: &str) {
        let mut removed = Vec::new();
        let swept = self
            .service
            .services
            .maintenance
            .sweep(Duration::ZERO, &mut |file| removed.push(file.clone()))
            .await
            .expect("failed to sweep");
        assert_eq!(swept.failed, 0, "{what}: {removed:?}");
        let checked = self.service.check(Depth::Everything).await;
        assert_eq!((checked.damaged, checked.unnamed), (0, 0), "{what}: {:?}", checked.findings);
        let stored = self.stored().await;
        let state = self.state().await;
        assert!(stored.iter().all(|path| state.contains(path)), "{what}: {stored:?}, but {state}");
        assert_eq!(stored.len() as u64, checked.files, "{what}");
    }

    /// Lets every store call that `act` makes fail in turn. After each failure, the state must be unchanged with an
    /// error, or new. Returns the number of failures.
    async fn fail_each_call(&self, what: &str, act: impl AsyncFn() -> Result<(), String>) -> usize {
        let mut failures = 0;
        for moment in [FaultMoment::Before, FaultMoment::After] {
            for call in 1.. {
                let before = self.state().await;
                self.faults.arm(call, moment);
                let outcome = act().await;
                let struck = self.faults.disarm();
                let what = format!("{what}, call {call} fails {moment:?}: {outcome:?}");
                let after = self.state().await;
                match &outcome {
                    Ok(()) => assert_ne!(before, after, "{what}"),
                    Err(error) => {
                        assert!(struck, "{what}");
                        assert_eq!(before, after, "{what}");
                        assert!(!error.is_empty() && !error.contains("panic") && !error.contains("worker"), "{what}");
                    }
                }
                self.assert_consistent(&what).await;
                if !struck {
                    break;
                }
                failures += 1;
                assert!(call < 100, "{what}: more than 100 store calls");
            }
        }
        failures
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_with_store_fault_is_atomic() {
    let faulty = FaultyService::start().await;
    let number = std::sync::atomic::AtomicUsize::new(0);
    let refresh = async || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        faulty.refresh(&format!(r#"[{{"n":{number}}}]"#)).await
    };
    assert!(faulty.fail_each_call("a refresh", refresh).await >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alternate_save_with_store_fault_is_atomic() {
    let faulty = FaultyService::start().await;
    assert!(faulty.fail_each_call("a save", async || faulty.save(r#"[{"alt":2}]"#).await).await >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multipart_upload_with_store_fault_leaves_nothing() {
    let faulty = FaultyService::start().await;
    // Text that does not compress, enough for two parts of an upload. Each entity is one word, so that the keyword
    // index remains small.
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let mut entity = || {
        let text: String = (0..60_000).map(|_| char::from(random.sample(rand::distr::Alphanumeric))).collect();
        format!(r#"{{"text":"{text}"}}"#)
    };
    let entities: Vec<String> = (0..200).map(|_| entity()).collect();
    let list = format!("[{}]", entities.join(","));
    // The start of the upload, its parts, and its end.
    assert!(faulty.fail_each_call("a large save", async || faulty.save(&list).await).await >= 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clone_needs_readable_files_and_delete_needs_none() {
    let faulty = FaultyService::start().await;
    let clone = async || {
        let name: DatasetName = "Clone".parse().expect("a name");
        faulty.service.services.datasets.clone_dataset(&faulty.user, faulty.dataset, name).await
    };
    faulty.faults.arm(1, FaultMoment::Before);
    assert!(clone().await.is_err() && faulty.faults.disarm(), "a clone reads the shared files");
    let cloned = clone().await.expect("failed to clone");
    faulty.faults.arm(1, FaultMoment::Before);
    let version = VersionNumber::new(1);
    faulty
        .service
        .services
        .datasets
        .delete_alternate(&faulty.user, faulty.dataset, version)
        .await
        .expect("failed to delete");
    faulty
        .service
        .services
        .datasets
        .delete_alternate(&faulty.user, cloned.dataset.id, version)
        .await
        .expect("failed to delete");
    assert!(!faulty.faults.disarm());
    faulty.assert_consistent("a clone and deletes").await;
    assert_eq!(faulty.stored().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_sweep_is_finished_by_next_sweep() {
    for moment in [FaultMoment::Before, FaultMoment::After] {
        for call in 1.. {
            let faulty = FaultyService::start().await;
            faulty.save("[]").await.expect("failed to replace the alternate");
            faulty.faults.arm(call, moment);
            let swept = faulty.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await;
            let struck = faulty.faults.disarm();
            assert!(swept.is_err() || swept.is_ok_and(|swept| struck == (swept.failed > 0)), "{moment:?} {call}");
            faulty.assert_consistent("a sweep").await;
            assert_eq!(faulty.stored().await.len(), 2);
            if !struck {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_with_store_fault_is_marked_incomplete() {
    let faulty = FaultyService::start().await;
    let directory = tempfile::tempdir().expect("failed to create a directory");
    let mut complete = 0;
    for call in 1.. {
        let to = directory.path().join(call.to_string());
        faulty.faults.arm(call, FaultMoment::Before);
        let outcome = faulty.service.backup(&to, BackupCopyMode::LinkIfPossible).await;
        let struck = faulty.faults.disarm();
        assert_eq!(outcome.is_err(), struck, "{outcome:?}");
        let opened = TestService::open_data(&to).await;
        assert_eq!(opened.is_err(), struck);
        if !struck {
            complete += 1;
            break;
        }
        assert!(outcome.is_err_and(|error| error.to_string().contains("Things")));
        assert!(opened.err().is_some_and(|error| error.contains("incomplete")));
    }
    assert_eq!(complete, 1);
    faulty.assert_consistent("backups").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_store_is_not_reported_as_damage() {
    let faulty = FaultyService::start().await;
    faulty.faults.set_down(true);
    let mut damaged_files = Vec::new();
    let scrubbed = faulty.service.services.maintenance.scrub(0, &mut |file| damaged_files.push(file.clone())).await;
    let error = format!("{:?}", scrubbed.expect_err("the store is down"));
    assert!(error.starts_with("Unavailable("), "{error}");
    assert_eq!(damaged_files, []);
    let name: DatasetName = "Clone".parse().expect("a name");
    let cloned = faulty.service.services.datasets.clone_dataset(&faulty.user, faulty.dataset, name).await;
    let error = format!("{:?}", cloned.expect_err("the store is down"));
    assert!(error.starts_with("Storage("), "{error}");
    faulty.faults.set_down(false);
    let scrubbed = faulty.service.services.maintenance.scrub(0, &mut |_| {}).await.expect("failed to scrub");
    assert_eq!((scrubbed.files, scrubbed.damaged), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrub_resumes_at_file_that_was_unavailable() {
    let faulty = FaultyService::start_with(|config| {
        config.scrub.interval_s = 1;
        config.scrub.bytes_per_s = 0;
    })
    .await;
    faulty.faults.set_down(true);
    let services = faulty.service.services.clone();
    let scrubbing = tokio::spawn(async move { services.maintenance.clone().scrub_periodically().await });
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let catalog = faulty.service.catalog().await;
    // No file counts as scrubbed, the scrub is not finished, and no process holds its lease.
    let hour = Duration::from_secs(3_600);
    assert_eq!(catalog.try_acquire_scrub(hour, hour).await.expect("failed to query the catalog"), Some(None));
    scrubbing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_on_one_file_is_logged_and_scrub_continues() {
    let faulty = FaultyService::start().await;
    let path = faulty.stored().await.pop_first().expect("a file");
    faulty.faults.panic_on(&path);
    let mut damaged_files = Vec::new();
    let scrubbed =
        faulty.service.services.maintenance.scrub(0, &mut |file| damaged_files.push(file.path.clone())).await;
    let scrubbed = scrubbed.expect("failed to scrub");
    assert_eq!((scrubbed.files, scrubbed.damaged, damaged_files), (2, 1, vec![path]));
}
