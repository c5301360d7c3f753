//! Reads an export at the pace of its client, even while the job still writes the file.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use strata_runtime::blocking::run_blocking;
use strata_store::fs_timeout;
use strata_store::unavailable::ResourceUnavailable;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::admission::Permit;
use crate::export_cache::ExportCache;
use crate::export_cache::checksums::BlockChecksums;
use crate::export_cache::file::{ExportProgress, ExportTotals, export_job_error, export_unreadable_error};
use crate::export_cache::writer::{ExportChunks, ExportConsumer, ExportSource};
use crate::{CacheKey, ReadError};

/// An export in the cache, complete or not. The cache does not evict it before this value is dropped.
pub struct CachedExport {
    exports: Arc<ExportCache>,
    key: CacheKey,
    progress: watch::Receiver<ExportProgress>,
    pub(crate) totals: ExportTotals,
    source: ExportSource,
    pub(super) stream_permit: Option<Permit>,
}

impl CachedExport {
    pub(super) async fn open(
        exports: Arc<ExportCache>,
        key: CacheKey,
        mut progress: watch::Receiver<ExportProgress>,
        source: ExportSource,
    ) -> Result<Option<CachedExport>, ReadError> {
        let begun = progress.wait_for(|progress| !matches!(progress, ExportProgress::Started)).await;
        let totals = match &*begun.map_err(|_| export_job_error())? {
            ExportProgress::Written(written) => written.file.totals,
            ExportProgress::Started | ExportProgress::Abandoned => return Ok(None),
            ExportProgress::Failed(error) => return Err(error.clone()),
        };
        Ok(Some(CachedExport { exports, key, progress, totals, source, stream_permit: None }))
    }

    pub fn known_size_bytes(&self) -> Option<u64> {
        self.progress.borrow().size_bytes()
    }

    pub async fn wait_for_size_bytes(&mut self) -> Result<Option<u64>, ReadError> {
        let is_known = |progress: &ExportProgress| progress.size_bytes().is_some() || progress.is_finished();
        match &*self.progress.wait_for(is_known).await.map_err(|_| export_job_error())? {
            ExportProgress::Failed(error) if !error.is_quota_exceeded() => Err(error.clone()),
            progress => Ok(progress.size_bytes()),
        }
    }

    /// Waits until the export is complete, and returns its SHA-256; `None` if the cache has no space for the export.
    pub async fn wait_for_sha256(&mut self) -> Result<Option<[u8; 32]>, ReadError> {
        match &*self.progress.wait_for(ExportProgress::is_finished).await.map_err(|_| export_job_error())? {
            ExportProgress::Failed(error) if !error.is_quota_exceeded() => Err(error.clone()),
            progress => Ok(progress.sha256()),
        }
    }

    pub fn into_chunks(self) -> ExportChunks {
        self.into_range(0..u64::MAX)
    }

    pub fn into_range(self, range: Range<u64>) -> ExportChunks {
        let reader = ExportRangeReader { export: self, position: range.start, end: range.end };
        stream::try_unfold(reader, ExportRangeReader::next_chunks).try_flatten().boxed()
    }
}

struct ExportRangeReader {
    export: CachedExport,
    position: u64,
    end: u64,
}

impl ExportRangeReader {
    async fn next_chunks(mut self) -> Result<Option<(ExportChunks, ExportRangeReader)>, ReadError> {
        while self.position < self.end {
            let progress = self.export.progress.borrow_and_update().clone();
            let written = match progress {
                ExportProgress::Started => None,
                ExportProgress::Written(written) => Some(written),
                ExportProgress::Abandoned => return Ok(Some(self.rebuild_rest())),
                // The job used up the share of another principal, but this reader's principal may have enough space.
                ExportProgress::Failed(error) if error.is_quota_exceeded() => return Ok(Some(self.rebuild_rest())),
                ExportProgress::Failed(error) => return Err(error),
            };
            let is_whole = written.as_ref().is_some_and(|written| written.is_complete);
            if let Some(written) = written {
                if is_whole {
                    self.end = self.end.min(written.checksums.size_bytes);
                }
                if self.position < written.checksums.size_bytes.min(self.end) {
                    let permit = self
                        .export
                        .exports
                        .read_permits
                        .clone()
                        .acquire_owned()
                        .await
                        .map_err(|_| export_job_error())?;
                    match read_block(permit, written.file.path.clone(), written.checksums, self.position).await {
                        Ok(mut chunk) => {
                            chunk.truncate(usize::try_from(self.end - self.position).unwrap_or(usize::MAX));
                            self.position += chunk.len() as u64;
                            return Ok(Some((stream::once(async { Ok(chunk) }).boxed(), self)));
                        }
                        // The file system timed out, and would do so for the next block, so the rest is built again.
                        Err(error) if error.kind() == io::ErrorKind::TimedOut && !is_whole => {
                            return Ok(Some(self.rebuild_rest()));
                        }
                        // The job may have deleted its incomplete file. Damage is handled when the file is complete.
                        Err(_) if !is_whole => {}
                        // The file is intact: the read failed because the process lacks, for example, descriptors.
                        Err(error)
                            if error.kind() != io::ErrorKind::TimedOut
                                && ResourceUnavailable::from_error(&error).is_some() =>
                        {
                            return Err(export_unreadable_error(error));
                        }
                        // The file of the export was removed or damaged, or the file system does not respond.
                        Err(error) => {
                            let path = written.file.path.display();
                            tracing::warn!(%error, %path, "failed to read cached export; rebuilding it");
                            self.export.exports.lock_index().remove_damaged(&self.export.key, &written.file);
                            return Ok(Some(self.rebuild_rest()));
                        }
                    }
                }
            }
            if !is_whole {
                self.export.progress.changed().await.map_err(|_| export_job_error())?;
            }
        }
        Ok(None)
    }

    /// Builds the rest of the export again. Releases the stream permit, because building needs one.
    fn rebuild_rest(mut self) -> (ExportChunks, ExportRangeReader) {
        let rest = rebuild_range(self.export.source.clone(), ExportConsumer::Client, self.position, self.end);
        self.end = self.position;
        self.export.stream_permit = None;
        (rest, self)
    }
}

/// Returns the verified bytes of a block from `offset` on. Closes the file, because there can be many readers.
pub(super) async fn read_block(
    _permit: OwnedSemaphorePermit,
    path: Arc<Path>,
    checksums: BlockChecksums,
    offset: u64,
) -> io::Result<Bytes> {
    let name = path.to_path_buf();
    let read = move || {
        let block = checksums.block_range(offset);
        let length = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length(block.end - block.start)];
        fs::File::open(&path)?.read_exact_at(&mut bytes, block.start)?;
        if !checksums.verify(block.start, &bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the bytes do not match their checksum"));
        }
        Ok(Bytes::from(bytes).slice(length(offset - block.start)..))
    };
    let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "the file system is not responding");
    fs_timeout::with_timeout(name, run_blocking(read).boxed()).await.map_err(timed_out)??
}

/// Builds an export from the beginning, and returns the bytes of a range.
pub(super) fn rebuild_range(source: ExportSource, consumer: ExportConsumer, start: u64, end: u64) -> ExportChunks {
    let chunks = async move { Ok::<_, ReadError>(source(consumer).await?.chunks) };
    let mut offset = 0;
    let part = stream::once(chunks).try_flatten().try_filter_map(move |chunk| {
        let length = chunk.len() as u64;
        let within = |end: u64| usize::try_from(end.clamp(offset, offset + length) - offset).unwrap_or(chunk.len());
        let range = within(start)..within(end);
        offset += length;
        futures::future::ok((!range.is_empty()).then(|| chunk.slice(range)))
    });
    part.boxed()
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;
    use crate::export_cache::ExportBody;
    use crate::export_cache::checksums::BLOCK_BYTES;
    use crate::export_cache::fixture::{
        ExportFixture, ONE_HOUR, SEVEN_ENTITIES, channel_source, counting_source, new_fixture, read_all,
    };

    #[tokio::test]
    async fn reader_follows_file_at_its_own_pace() {
        let setup = new_fixture(1 << 30, ONE_HOUR);
        let (source, sender) = channel_source();
        let chunk = |byte: u8| Bytes::from(vec![byte; 600_000]);
        let export = setup.start_export(1, &source, &sender, [chunk(1), chunk(2)]).await;
        assert_eq!(export.known_size_bytes(), None);
        let mut body = export.into_chunks();
        let first = body.next().await.expect("a chunk").expect("bytes");
        assert!(first.len() as u64 <= BLOCK_BYTES && first.iter().all(|byte| *byte == 1));

        let mut late = setup.get(1, &source).await.expect("no error").expect("an export");
        drop(sender);
        assert_eq!(late.wait_for_size_bytes().await.expect("no error"), Some(1_200_000));
        let part = read_all(late.into_range(599_990..600_010)).await.expect("a part");
        assert_eq!(part, [[1_u8; 10], [2; 10]].concat());

        let rest = read_all(body).await.expect("the rest");
        assert!([&first[..], &rest].concat() == [chunk(1), chunk(2)].concat());
    }

    #[tokio::test]
    async fn each_range_equals_slice_of_whole_export() {
        let setup = new_fixture(1 << 30, ONE_HOUR);
        let whole: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let (source, build_count) = counting_source(&[&whole[..10], &whole[10..700_000], &whole[700_000..]]);
        assert!(setup.read(1, &source).await.as_deref() == Some(&whole));
        for range in [0..1, 9..11, 0..1_000_000, 262_143..262_145, 999_999..1_000_000, 500_000..999_999] {
            let export = setup.get(1, &source).await.expect("no error").expect("an export");
            let part = read_all(export.into_range(range.clone())).await.expect("a part");
            assert!(part == whole[range.start as usize..range.end as usize], "{range:?}");
        }
        assert_eq!(build_count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn reader_of_long_export_holds_no_descriptor() {
        let setup = new_fixture(1 << 30, ONE_HOUR);
        let (long, _) = counting_source(&[&[1; 300_000], &[2; 300_000]]);
        let (short, _) = counting_source(&[&[3; 1_000]]);
        let bodies = [setup.read(1, &long).await, setup.read(2, &short).await];
        assert_eq!(bodies.map(|body| body.map(|body| body.len())), [Some(600_000), Some(1_000)]);
        let streams_running = || setup.resources.admission.current_load().streams_running;
        assert_eq!(streams_running(), 0);
        let mut body = setup.get(1, &long).await.expect("no error").expect("an export").into_chunks();
        let first = body.next().await.expect("a chunk").expect("bytes");
        let open_files = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten().filter(|entry| {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            target.starts_with(setup.root.path()) && target.extension().is_some_and(|extension| extension == "parquet")
        });
        assert_eq!((open_files.count(), streams_running()), (0, 1));
        let small = setup.get(2, &short).await.expect("no error").expect("an export").into_chunks();
        assert_eq!(streams_running(), 1);
        // After the files of the cache are deleted, the rest of the export is built again.
        setup.file_paths().into_iter().for_each(|path| fs::remove_file(path).expect("removed"));
        let rest = read_all(body).await.expect("the rest");
        assert!([&first[..], &rest].concat() == [[1_u8; 300_000], [2; 300_000]].concat());
        assert_eq!(read_all(small).await.expect("a body"), [3; 1_000]);
        assert_eq!(streams_running(), 0);
    }

    #[tokio::test]
    async fn reader_continues_when_file_is_deleted() {
        let setup = new_fixture(10, ONE_HOUR);
        let (once, sender) = channel_source();
        let (again, _) = counting_source(&[b"0123", b"456", b"789abc", b"def"]);
        let first = AtomicUsize::new(0);
        let source: ExportSource =
            Arc::new(
                move |consumer| {
                    if first.fetch_add(1, Ordering::SeqCst) == 0 { once(consumer) } else { again(consumer) }
                },
            );
        let mut body = setup.start_export(1, &source, &sender, ["0123", "456"].map(Bytes::from)).await.into_chunks();
        assert_eq!(body.next().await.expect("a chunk").expect("bytes"), "0123");
        sender.send(Ok(Bytes::from_static(b"789abc"))).await.expect("sent");
        assert_eq!(read_all(body).await.expect("the rest"), b"456789abcdef");
        setup.wait_until_empty().await;
    }

    fn damage_files(setup: &ExportFixture, change: impl Fn(&mut Vec<u8>)) {
        for path in setup.file_paths() {
            let mut bytes = fs::read(&path).expect("read");
            change(&mut bytes);
            fs::write(&path, bytes).expect("written");
        }
    }

    #[tokio::test]
    async fn damaged_file_is_built_again() {
        let setup = new_fixture(1 << 30, ONE_HOUR);
        let whole: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let (source, build_count) = counting_source(&[&whole[..10], &whole[10..700_000], &whole[700_000..]]);
        assert!(setup.read(1, &source).await.as_deref() == Some(&whole));
        let change = |offset: usize| move |bytes: &mut Vec<u8>| bytes[offset] ^= 1;
        type CachedFileChange<'a> = &'a dyn Fn(&mut Vec<u8>);
        let damages: [CachedFileChange<'_>; 6] = [
            &change(0),
            &change(300_000),
            &change(999_999),
            &|bytes| bytes.truncate(999_999),
            &|bytes| bytes.truncate(0),
            &|bytes| bytes.push(0),
        ];
        for (number, change) in damages.iter().enumerate() {
            damage_files(&setup, change);
            let before = build_count.load(Ordering::SeqCst);
            assert!(setup.read(1, &source).await.as_deref() == Some(&whole), "{number}");
            // The next reader finds no file of the export, and starts a job that builds it.
            assert!(setup.read(1, &source).await.as_deref() == Some(&whole), "{number}");
            let more = build_count.load(Ordering::SeqCst) - before;
            assert_eq!((more, setup.files_and_bytes()), (if number == 5 { 0 } else { 2 }, (1, 1_000_000)), "{number}");
        }
        // A range of intact blocks is read from the file; a range with the damaged block is built again.
        damage_files(&setup, change(300_000));
        let before = build_count.load(Ordering::SeqCst);
        for (range, more) in [(0..262_144, 0), (524_288..1_000_000, 0), (262_143..262_145, 1)] {
            let export = setup.get(1, &source).await.expect("no error").expect("an export");
            let part = read_all(export.into_range(range.clone())).await.expect("a part");
            assert!(part == whole[range.start as usize..range.end as usize], "{range:?}");
            assert_eq!(build_count.load(Ordering::SeqCst) - before, more, "{range:?}");
        }
    }

    #[tokio::test]
    async fn file_damaged_while_written_is_built_again() {
        let setup = new_fixture(1 << 30, ONE_HOUR);
        let first = vec![1; 600_000];
        let build_count = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = mpsc::channel::<()>(1);
        let chunk = Bytes::from(first.clone());
        let counter = build_count.clone();
        let receiver = Mutex::new(Some(receiver));
        let source: ExportSource = Arc::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            let receiver = receiver.lock().take();
            let wait = stream::once(async move {
                if let Some(mut receiver) = receiver {
                    receiver.recv().await;
                }
                Ok(Bytes::from_static(b"end"))
            });
            let chunks = stream::iter([chunk.clone(), Bytes::from_static(b"middle")]).map(Ok).chain(wait).boxed();
            Box::pin(async move { Ok(ExportBody::new(SEVEN_ENTITIES, chunks)) })
        });
        let export = setup.get(1, &source).await.expect("no error").expect("an export");
        damage_files(&setup, |bytes| bytes[400_000] ^= 1);
        let end_job = async {
            tokio::task::yield_now().await;
            drop(sender);
        };
        let (body, ()) = tokio::join!(read_all(export.into_chunks()), end_job);
        assert!(body.expect("a body") == [&first[..], b"middle", b"end"].concat());
        assert_eq!(build_count.load(Ordering::SeqCst), 2);
    }
}
