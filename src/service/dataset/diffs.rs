//! Compares two versions of a dataset and returns pages of the changes.
//!
//! A request looks up both versions, compares their files, and encodes the records of a page from the documents, with
//! back-pressure from the client. The comparison is heavy work, so concurrent requests for the same files share it.
//!
//! A diff is cached as a list of positions ([`crate::dataset::comparison_cache`]).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use futures::{FutureExt, TryFutureExt};
use parking_lot::Mutex;
use strata_diff::{self as diff, ChangeList, ChangeType, DiffChange, DiffLimits, DiffPage, change_records};
use strata_encode::{ContentCoding, ListElement};
use strata_format::reader::VersionReader;
use strata_query::QueryError;
use strata_query::fetch::selected_documents::{SELECTION_CHUNK_BYTES, SelectionChunk};
use strata_runtime::metrics::metrics;
use strata_runtime::priority::ThreadPriority;
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::read_request::ResponseFormat;
use strata_types::user::User;
use strata_types::version::{DatasetVersion, VersionFile, VersionNumber, VersionSelector};

use crate::admission::resource_context::ResourceContext;
use crate::dataset::comparison_cache::{ComparisonCache, SharedComparison};
use crate::read::body_stream::{BackpressuredEncoder, ENCODED_BYTES_PER_BYTE};
use crate::read::response_cache::compress;
use crate::read::text_body::MAX_WHOLE_BODY_BYTES;
use crate::{AuthorizedTarget, ManageError, Principal, ReadError, ReadResponse, ReadService, ResponseBody};

const RECORD_OVERHEAD_BYTES: u64 = 100;

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error(transparent)]
    Manage(#[from] ManageError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffSides {
    pub v1: VersionSelector,
    pub v2: VersionSelector,
    /// If true, the alternate (edited copy) of version v2 is compared instead of the version.
    pub alt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffSummary {
    pub added: u64,
    pub subtracted: u64,
    pub modified: u64,
    pub total_v1: u64,
    pub total_v2: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffFormat {
    /// A JSON object with the summary and the records of a page; see docs/reference/diffs.md, Result.
    Json,
    Jsonl,
}

impl DiffFormat {
    fn content_type(self) -> &'static str {
        match self {
            DiffFormat::Json => ResponseFormat::Json.content_type(),
            DiffFormat::Jsonl => ResponseFormat::Jsonl.content_type(),
        }
    }

    fn write_record(self, record: &[u8], element: ListElement, out: &mut Vec<u8>) {
        if element == ListElement::Later && self != DiffFormat::Jsonl {
            out.push(b',');
        }
        out.extend_from_slice(record);
        if self == DiffFormat::Jsonl {
            out.push(b'\n');
        }
    }
}

/// The differences between two versions. Clones share the list of changes.
#[derive(Clone)]
pub struct VersionDiff {
    pub dataset: Dataset,
    pub versions: [VersionNumber; 2],
    pub alt: bool,
    resources: ResourceContext,
    readers: [VersionReader; 2],
    diff: SharedComparison<ChangeList>,
}

impl VersionDiff {
    pub fn summary(&self) -> DiffSummary {
        DiffSummary {
            added: self.diff.added_count(),
            subtracted: self.diff.subtracted_count(),
            modified: self.diff.modified_count(),
            total_v1: self.diff.total_v1,
            total_v2: self.diff.total_v2,
        }
    }

    pub fn change_count(&self, change_type: Option<ChangeType>) -> u64 {
        self.diff.change_count(change_type)
    }

    pub fn page_change_count(&self, page: &DiffPage) -> u64 {
        self.diff.page_change_count(page)
    }

    /// Returns a page as a stream, which is encoded on the engine's threads. To cancel the work, drop the stream.
    pub fn stream_page(&self, page: &DiffPage, format: DiffFormat) -> BoxStream<'static, Result<Bytes, ReadError>> {
        let diff = self.clone();
        let page = *page;
        let body = async move { Ok(diff.page_body(&page, format).await?.into_stream()) };
        body.try_flatten_stream().boxed()
    }

    /// Returns a page as a response, which is compressed with `coding` if that is worthwhile.
    pub async fn page_response(
        &self,
        page: &DiffPage,
        format: DiffFormat,
        coding: ContentCoding,
    ) -> Result<ReadResponse, ReadError> {
        let plain = ReadResponse {
            total: self.page_change_count(page),
            matches: None,
            content_type: format.content_type(),
            coding: ContentCoding::Identity,
            body: self.page_body(page, format).await?,
        };
        compress(&self.resources, plain, coding).await
    }

    async fn page_body(&self, page: &DiffPage, format: DiffFormat) -> Result<ResponseBody, ReadError> {
        let admission = &self.resources.admission;
        let entity_count = self.page_change_count(page);
        let mean_document_bytes = RECORD_OVERHEAD_BYTES + self.readers.iter().map(mean_document_bytes).sum::<u64>();
        let (begin, end) = self.json_prefix_and_suffix(format);
        let estimated_bytes = mean_document_bytes.saturating_mul(entity_count);
        if estimated_bytes <= SELECTION_CHUNK_BYTES
            && let Some(permit) = admission.try_acquire_whole_body(estimated_bytes)
        {
            let changes: Vec<DiffChange> = self.diff.changes(page).collect();
            let readers = self.readers.clone();
            let mut body = begin.clone();
            let work = async move {
                let max_bytes = MAX_WHOLE_BODY_BYTES;
                let written =
                    write_records(&readers, &changes, format, ListElement::First, max_bytes, &mut body).await?;
                if written < changes.len() {
                    return Ok(None);
                }
                body.extend_from_slice(end);
                Ok::<_, ReadError>(Some(body))
            };
            let body = self.resources.engine.spawn(work).await.map_err(QueryError::from)??;
            // If the entities are much larger than the mean size, `body` is `None`, and the records are streamed.
            if let Some(body) = body {
                metrics().sent_rows.increment(entity_count);
                return Ok(ResponseBody::Whole(self.resources.charge_whole_body(body, permit)?));
            }
        }
        let chunk_bytes = mean_document_bytes.saturating_mul(ENCODED_BYTES_PER_BYTE);
        let stream_permit = admission.acquire_stream_for_chunks(chunk_bytes).await?;
        let readers = self.readers.clone();
        let diff = self.diff.clone();
        let mut cursor = diff.cursor(page);
        // The response begins with the first records, so that an unreadable version still returns an error status.
        let mut begin = Some(begin);
        // The changes that no longer fit into a full chunk of the response, by the ordinal of the first of them.
        let remaining: Arc<Mutex<HashMap<u64, Vec<DiffChange>>>> = Arc::default();
        let encode = move |chunk: SelectionChunk, max_bytes: u64| {
            let count = usize::try_from(chunk.ordinals.end - chunk.ordinals.start).unwrap_or(usize::MAX);
            let rest = remaining.lock().remove(&chunk.ordinals.start);
            let changes: Vec<DiffChange> =
                rest.unwrap_or_else(|| std::iter::from_fn(|| diff.next_change(&mut cursor)).take(count).collect());
            let readers = readers.clone();
            let remaining = remaining.clone();
            let begin = begin.take();
            async move {
                let first = if begin.is_some() { ListElement::First } else { ListElement::Later };
                let mut bytes = begin.unwrap_or_default();
                let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
                let written = write_records(&readers, &changes, format, first, max_bytes, &mut bytes).await?;
                let next = chunk.ordinals.start + written as u64;
                if written < changes.len() {
                    let rest = changes[written..].to_vec();
                    remaining.lock().insert(next, rest);
                }
                Ok((bytes, next))
            }
        };
        let capacity = self.resources.clone();
        let encoder = BackpressuredEncoder { capacity, stream_permit, entity_count, mean_document_bytes, encode };
        let end = stream::iter((!end.is_empty()).then(|| Ok(Bytes::from_static(end))));
        Ok(ResponseBody::Stream(encoder.into_stream().chain(end).boxed()))
    }

    fn json_prefix_and_suffix(&self, format: DiffFormat) -> (Vec<u8>, &'static [u8]) {
        if format != DiffFormat::Json {
            return (Vec::new(), b"");
        }
        let DiffSummary { added, subtracted, modified, total_v1, total_v2 } = self.summary();
        let begin = format!(
            r#"{{"added":{added},"subtracted":{subtracted},"modified":{modified},"total_v1":{total_v1},"total_v2":{total_v2},"records":["#
        );
        (begin.into_bytes(), b"]}")
    }
}

pub(super) fn mean_document_bytes(reader: &VersionReader) -> u64 {
    let layout = reader.layout();
    layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default()
}

/// Appends diff records until `out` has grown by `max_bytes`, and returns their number.
async fn write_records(
    readers: &[VersionReader; 2],
    changes: &[DiffChange],
    format: DiffFormat,
    mut element: ListElement,
    max_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<usize, ReadError> {
    let start = out.len();
    let each = |record: &[u8]| {
        format.write_record(record, std::mem::replace(&mut element, ListElement::Later), out);
        if out.len() - start < max_bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    Ok(change_records::for_each_record(readers, changes, each).await?)
}

/// Two versions whose files are compared.
struct ComparedVersions {
    dataset: Dataset,
    versions: [VersionNumber; 2],
    alt: bool,
    files: [VersionFile; 2],
}

pub struct DiffService {
    pub(crate) reads: Arc<ReadService>,
    pub(crate) cache: Arc<ComparisonCache>,
}

impl DiffService {
    /// Compares two versions of a dataset, which can be frozen. If `owner` is `None`, the owner of the dataset does not
    /// matter. Dropping the future cancels the work, unless other requests wait for the same diff.
    pub async fn compare(
        &self,
        owner: Option<&User>,
        dataset: DatasetId,
        DiffSides { v1, v2, alt }: DiffSides,
    ) -> Result<VersionDiff, DiffError> {
        let ReadService { catalog, resources, .. } = &*self.reads;
        let (found, resources) = match owner {
            Some(owner) => {
                let found = catalog.owned_dataset(owner.id, dataset).await.map(Some);
                (found, resources.for_principal(Principal::User(owner.id)))
            }
            None => (catalog.dataset(dataset).await, resources.clone()),
        };
        let dataset = found.map_err(ManageError::from)?.ok_or(ManageError::DatasetNotFound)?;
        let number = |selector| match selector {
            VersionSelector::Active => dataset.active_version(),
            VersionSelector::Latest => dataset.latest_version,
            VersionSelector::Number(number) => Some(number),
        };
        let [Some(v1), Some(v2)] = [v1, v2].map(number) else { return Err(ManageError::NoVersionYet.into()) };
        let versions = [v1, v2];
        let v1_file = self.find_version(&dataset, v1).await?.file;
        let second = self.find_version(&dataset, v2).await?;
        let v2_file = match alt {
            false => second.file,
            true => second.alternate.ok_or(ReadError::AltNotFound(v2))?,
        };
        let sides = ComparedVersions { dataset, versions, alt, files: [v1_file, v2_file] };
        Ok(self.compare_versions(resources, sides).await?)
    }

    /// Like [`DiffService::compare`], for two versions of a dataset that a requester can query. An alternate can be
    /// only the second one.
    pub async fn compare_targets(
        &self,
        dataset: &Dataset,
        targets: [&AuthorizedTarget; 2],
    ) -> Result<VersionDiff, ReadError> {
        let resources = self.reads.resources.for_principal(targets[1].principal);
        let sides = ComparedVersions {
            dataset: dataset.clone(),
            versions: targets.map(|target| target.version),
            alt: targets[1].variant.is_alternate(),
            files: targets.map(|target| target.file.clone()),
        };
        self.compare_versions(resources, sides).await
    }

    async fn compare_versions(
        &self,
        resources: ResourceContext,
        sides: ComparedVersions,
    ) -> Result<VersionDiff, ReadError> {
        let ComparedVersions { dataset, versions, alt, files } = sides;
        let readers = [self.open_reader(&files[0]).await?, self.open_reader(&files[1]).await?];
        let diff = match files[0].content_hash == files[1].content_hash {
            true => SharedComparison::uncached(ChangeList::for_equal_versions(readers[0].entity_count())),
            false => self.compare_files(&resources, &files, &readers).await?,
        };
        Ok(VersionDiff { resources, dataset, versions, alt, readers, diff })
    }

    async fn find_version(&self, dataset: &Dataset, number: VersionNumber) -> Result<DatasetVersion, ManageError> {
        let found = self.reads.catalog.version(dataset.id, number).await.map_err(ManageError::from);
        Ok(found.map_err(|error| error.with_version_details(number, dataset.latest_version))?.version)
    }

    pub(super) async fn open_reader(&self, file: &VersionFile) -> Result<VersionReader, ReadError> {
        Ok(VersionReader::open_recorded(&self.reads.store, file, &self.reads.cache).await?)
    }

    async fn compare_files(
        &self,
        resources: &ResourceContext,
        files: &[VersionFile; 2],
        readers: &[VersionReader; 2],
    ) -> Result<SharedComparison<ChangeList>, ReadError> {
        let compute = || {
            let resources = resources.clone();
            let [v1, v2] = readers.clone();
            async move {
                let _permit = resources.admission.acquire_diff().await?;
                let engine = resources.engine.with_priority(ThreadPriority::Heavy);
                Ok(diff::compare(&engine, v1, v2, DiffLimits::default()).await?)
            }
            .boxed()
        };
        self.cache.get_or_compute(files, compute).await
    }
}
