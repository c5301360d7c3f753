//! What is left when the store fails: at its n-th call, for every n, before the call does anything or after it did all.

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
use strata_testing::TestService;
use strata_testing::maintenance::{BackupKind, Depth};
use strata_testing::owned::{add_user, try_push};
use strata_types::dataset::{DatasetChange, DatasetName};
use strata_types::ids::DatasetId;
use strata_types::user::{Plan, User};
use strata_types::version::VersionNumber;

/// When a call fails: it did nothing, or it did what it should and only the answer was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Before,
    After,
}

/// How many calls go well until one fails.
#[derive(Debug, Default)]
struct Plot {
    armed: Option<(usize, Fault)>,
    struck: bool,
    /// No call goes well, as of a server that does not answer.
    down: bool,
    /// The calls for objects of which this is a part of the path panic.
    panics_on: Option<String>,
}

/// Decides call by call; clones share the plot.
#[derive(Clone, Debug, Default)]
struct Fate(Arc<Mutex<Plot>>);

impl Fate {
    fn arm(&self, call: usize, fault: Fault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Plot { armed: Some((call, fault)), ..Plot::default() };
    }

    /// Lets all calls go well again, and tells whether one failed.
    fn disarm(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).struck
    }

    /// Lets the store answer nobody, or everybody again.
    fn set_down(&self, down: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).down = down;
    }

    /// Lets calls for one object panic.
    fn panic_on(&self, path: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).panics_on = Some(path.to_owned());
    }

    fn panic_if_told(&self, path: &Path) {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner).panics_on.clone();
        assert!(told.is_none_or(|told| !path.as_ref().contains(&told)), "the store panics as the test wants");
    }

    fn is_down(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).down
    }

    /// The fault of this call.
    fn next(&self) -> Option<Fault> {
        let mut plot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, fault) = plot.armed?;
        if left > 1 {
            plot.armed = Some((left - 1, fault));
            return None;
        }
        (plot.armed, plot.struck) = (None, true);
        Some(fault)
    }

    async fn apply<T>(&self, call: impl Future<Output = object_store::Result<T>>) -> object_store::Result<T> {
        if self.is_down() {
            return Err(object_store::Error::Generic { store: "S3", source: "nobody answers".into() });
        }
        match self.next() {
            None => call.await,
            Some(Fault::Before) => Err(failure()),
            Some(Fault::After) => {
                call.await?;
                Err(failure())
            }
        }
    }
}

fn failure() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "the store fails as the test wants".into() }
}

/// A store in memory that fails as it is told to.
#[derive(Debug)]
struct Faulty {
    inner: Arc<InMemory>,
    fate: Fate,
}

impl fmt::Display for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("faulty")
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    fate: Fate,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, fate) = (self.inner.put_part(data), self.fate.clone());
        Box::pin(async move { fate.apply(part).await })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.fate.apply(self.inner.complete()).await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.fate.apply(self.inner.abort()).await
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        self.fate.apply(self.inner.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let inner = self.fate.apply(self.inner.put_multipart_opts(path, options)).await?;
        Ok(Box::new(FaultyUpload { inner, fate: self.fate.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.fate.panic_if_told(path);
        self.fate.apply(self.inner.get_opts(path, options)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let (inner, fate) = (self.inner.clone(), self.fate.clone());
        let delete = move |path: object_store::Result<Path>| {
            let (inner, fate) = (inner.clone(), fate.clone());
            async move {
                let path = path?;
                let one = futures::stream::iter([Ok(path)]).boxed();
                let deleted = async { inner.delete_stream(one).try_collect::<Vec<_>>().await };
                Ok(fate.apply(deleted).await?.remove(0))
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match self.fate.next() {
            None => self.inner.list(prefix),
            Some(Fault::Before) => futures::stream::iter([Err(failure())]).boxed(),
            Some(Fault::After) => self.inner.list(prefix).chain(futures::stream::iter([Err(failure())])).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.fate.apply(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.fate.apply(self.inner.copy_opts(from, to, options)).await
    }
}

/// A service on a store that can fail.
struct Doomed {
    service: TestService,
    user: User,
    objects: Arc<InMemory>,
    fate: Fate,
    dataset: DatasetId,
    _directory: tempfile::TempDir,
}

impl Doomed {
    /// With a dataset that has a version and an alternate of it.
    async fn start() -> Doomed {
        Doomed::start_with(|_| {}).await
    }

    /// With the configuration changed.
    async fn start_with(change: impl FnOnce(&mut Config)) -> Doomed {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        change(&mut config);
        let (objects, fate) = (Arc::new(InMemory::new()), Fate::default());
        let faulty: Arc<dyn ObjectStore> = Arc::new(Faulty { inner: objects.clone(), fate: fate.clone() });
        let service = TestService::open_with_store(&config, faulty).await;
        let (user, _) = add_user(&service, "ada@strata.test", Plan::Scale).await;
        let name: DatasetName = "Things".parse().expect("a name");
        let created = service.services.datasets.create(&user, name, DatasetChange::default()).await.expect("created");
        let dataset = created.dataset.id;
        let doomed = Doomed { service, user, objects, fate, dataset, _directory: directory };
        doomed.refresh(r#"[{"first":1}]"#).await.expect("a version");
        doomed.save(r#"[{"alt":1}]"#).await.expect("an alternate");
        doomed
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
            .receive(self.user.id, body, &["dataset_id"])
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

    /// What the catalog says: every version and its alternate.
    async fn state(&self) -> String {
        let view = self.service.services.datasets.view(&self.user, self.dataset).await.expect("a view");
        let versions = view.versions.iter().map(|record| {
            let version = &record.version;
            format!("{} {} {:?}; ", version.number, version.file.path, version.alt.as_ref().map(|alt| &alt.path))
        });
        versions.collect()
    }

    /// The version files of the store.
    async fn stored(&self) -> BTreeSet<String> {
        let objects = self.objects.list(Some(&Path::from("versions")));
        objects.map_ok(|object| object.location.to_string()).try_collect().await.expect("a list")
    }

    /// The store holds what the catalog names and nothing else, once a sweep has been there; and all of it is whole.
    async fn is_sound(&self, what: &str) {
        let mut told = Vec::new();
        let swept = self
            .service
            .services
            .maintenance
            .sweep(Duration::ZERO, &mut |file| told.push(file.clone()))
            .await
            .expect("swept");
        assert_eq!(swept.failed, 0, "{what}: {told:?}");
        let checked = self.service.check(Depth::Everything).await;
        assert_eq!((checked.damaged, checked.unnamed), (0, 0), "{what}: {:?}", checked.findings);
        let stored = self.stored().await;
        let state = self.state().await;
        assert!(stored.iter().all(|path| state.contains(path)), "{what}: {stored:?}, but {state}");
        assert_eq!(stored.len() as u64, checked.files, "{what}");
    }

    /// Lets every call of the store that `act` makes fail in turn. After each the state is the one before, with an
    /// error, or a new one. Gives the number of failures.
    async fn torment(&self, what: &str, act: impl AsyncFn() -> Result<(), String>) -> usize {
        let mut failures = 0;
        for fault in [Fault::Before, Fault::After] {
            for call in 1.. {
                let before = self.state().await;
                self.fate.arm(call, fault);
                let outcome = act().await;
                let struck = self.fate.disarm();
                let what = format!("{what}, call {call} fails {fault:?}: {outcome:?}");
                let after = self.state().await;
                match &outcome {
                    Ok(()) => assert_ne!(before, after, "{what}"),
                    Err(error) => {
                        assert!(struck, "{what}");
                        assert_eq!(before, after, "{what}");
                        assert!(!error.is_empty() && !error.contains("panic") && !error.contains("worker"), "{what}");
                    }
                }
                self.is_sound(&what).await;
                if !struck {
                    break;
                }
                failures += 1;
                assert!(call < 100, "{what}: it never ends");
            }
        }
        failures
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_makes_a_version_or_nothing_wherever_the_store_fails() {
    let doomed = Doomed::start().await;
    let number = std::sync::atomic::AtomicUsize::new(0);
    let refresh = async || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        doomed.refresh(&format!(r#"[{{"n":{number}}}]"#)).await
    };
    assert!(doomed.torment("a refresh", refresh).await >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alternate_is_saved_or_as_it_was_wherever_the_store_fails() {
    let doomed = Doomed::start().await;
    assert!(doomed.torment("a save", async || doomed.save(r#"[{"alt":2}]"#).await).await >= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_in_parts_leaves_nothing_wherever_the_store_fails() {
    let doomed = Doomed::start().await;
    // Text that does not compress, enough for two parts of the file. One word each, which costs the keyword index
    // little.
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let mut entity = || {
        let text: String = (0..60_000).map(|_| char::from(random.sample(rand::distr::Alphanumeric))).collect();
        format!(r#"{{"text":"{text}"}}"#)
    };
    let entities: Vec<String> = (0..200).map(|_| entity()).collect();
    let list = format!("[{}]", entities.join(","));
    // The begin of the upload, its parts, its end.
    assert!(doomed.torment("a large save", async || doomed.save(&list).await).await >= 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_is_made_of_files_that_can_be_read_and_a_delete_asks_nothing_of_the_store() {
    let doomed = Doomed::start().await;
    let clone = async || {
        let name: DatasetName = "Clone".parse().expect("a name");
        doomed.service.services.datasets.clone_dataset(&doomed.user, doomed.dataset, name).await
    };
    doomed.fate.arm(1, Fault::Before);
    assert!(clone().await.is_err() && doomed.fate.disarm(), "a clone reads what it shares");
    let cloned = clone().await.expect("cloned");
    doomed.fate.arm(1, Fault::Before);
    let version = VersionNumber::new(1);
    doomed.service.services.datasets.delete_alternate(&doomed.user, doomed.dataset, version).await.expect("deleted");
    doomed.service.services.datasets.delete_alternate(&doomed.user, cloned.dataset.id, version).await.expect("deleted");
    assert!(!doomed.fate.disarm());
    doomed.is_sound("a clone and deletes").await;
    assert_eq!(doomed.stored().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_fails_is_finished_by_the_next() {
    for fault in [Fault::Before, Fault::After] {
        for call in 1.. {
            let doomed = Doomed::start().await;
            doomed.save("[]").await.expect("replaced");
            doomed.fate.arm(call, fault);
            let swept = doomed.service.services.maintenance.sweep(Duration::ZERO, &mut |_| {}).await;
            let struck = doomed.fate.disarm();
            assert!(swept.is_err() || swept.is_ok_and(|swept| struck == (swept.failed > 0)), "{fault:?} {call}");
            doomed.is_sound("a sweep").await;
            assert_eq!(doomed.stored().await.len(), 2);
            if !struck {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_from_a_store_that_fails_is_marked_as_incomplete() {
    let doomed = Doomed::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let mut complete = 0;
    for call in 1.. {
        let to = directory.path().join(call.to_string());
        doomed.fate.arm(call, Fault::Before);
        let outcome = doomed.service.backup(&to, BackupKind::Linked).await;
        let struck = doomed.fate.disarm();
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
    doomed.is_sound("backups").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_answer_is_no_damage() {
    let doomed = Doomed::start().await;
    doomed.fate.set_down(true);
    let mut told = Vec::new();
    let scrubbed = doomed.service.services.maintenance.scrub(0, &mut |file| told.push(file.clone())).await;
    let error = format!("{:?}", scrubbed.expect_err("the store is down"));
    assert!(error.starts_with("Unavailable("), "{error}");
    assert_eq!(told, []);
    let name: DatasetName = "Clone".parse().expect("a name");
    let cloned = doomed.service.services.datasets.clone_dataset(&doomed.user, doomed.dataset, name).await;
    let error = format!("{:?}", cloned.expect_err("the store is down"));
    assert!(error.starts_with("Storage("), "{error}");
    doomed.fate.set_down(false);
    let scrubbed = doomed.service.services.maintenance.scrub(0, &mut |_| {}).await.expect("scrubbed");
    assert_eq!((scrubbed.files, scrubbed.damaged), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_on_a_store_that_does_not_answer_goes_on_with_the_same_file() {
    let doomed = Doomed::start_with(|config| {
        config.scrub.interval_s = 1;
        config.scrub.bytes_per_s = 0;
    })
    .await;
    doomed.fate.set_down(true);
    let services = doomed.service.services.clone();
    let scrubbing = tokio::spawn(async move { services.maintenance.clone().scrub_periodically().await });
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let catalog = doomed.service.catalog().await;
    // Not one file counts as done, none was gone through, and nobody has the scrub.
    let hour = Duration::from_secs(3_600);
    assert_eq!(catalog.take_scrub(hour, hour).await.expect("asked"), Some(None));
    scrubbing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_panics_on_a_file_is_told_and_does_not_end_the_scrub() {
    let doomed = Doomed::start().await;
    let path = doomed.stored().await.pop_first().expect("a file");
    doomed.fate.panic_on(&path);
    let mut told = Vec::new();
    let scrubbed = doomed.service.services.maintenance.scrub(0, &mut |file| told.push(file.path.clone())).await;
    let scrubbed = scrubbed.expect("scrubbed");
    assert_eq!((scrubbed.files, scrubbed.damaged, told), (2, 1, vec![path]));
}
