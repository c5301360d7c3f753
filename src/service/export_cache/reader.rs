//! Reads an export at the pace of its client, also while it is written.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use strata_runtime::blocking::blocking;
use strata_store::directory;
use strata_store::shortage::Shortage;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::admission::Permit;
use crate::export_cache::Exports;
use crate::export_cache::checksums::Sums;
use crate::export_cache::file::{Progress, Totals, aborted, unreadable};
use crate::export_cache::writer::{Chunks, Consumer, ExportSource};
use crate::{CacheKey, ReadError};

/// An export in the cache, complete or not. It is not evicted before this is dropped.
pub struct Export {
    exports: Arc<Exports>,
    key: CacheKey,
    progress: watch::Receiver<Progress>,
    pub(crate) totals: Totals,
    source: ExportSource,
    pub(super) place: Option<Permit>,
}

impl Export {
    /// Waits for the first bytes of an export.
    pub(super) async fn begun(
        exports: Arc<Exports>,
        key: CacheKey,
        mut progress: watch::Receiver<Progress>,
        source: ExportSource,
    ) -> Result<Option<Export>, ReadError> {
        let known = progress.wait_for(|progress| !matches!(progress, Progress::Started)).await;
        let totals = match &*known.map_err(|_| aborted())? {
            Progress::Written(written) => written.file.totals,
            Progress::Started | Progress::GivenUp => return Ok(None),
            Progress::Failed(error) => return Err(error.clone()),
        };
        Ok(Some(Export { exports, key, progress, totals, source, place: None }))
    }

    pub fn known_bytes(&self) -> Option<u64> {
        self.progress.borrow().size_bytes()
    }

    /// Waits for the length in bytes; `None` if there is no space for the file.
    pub async fn bytes(&mut self) -> Result<Option<u64>, ReadError> {
        let is_known = |progress: &Progress| progress.size_bytes().is_some() || progress.is_over();
        match &*self.progress.wait_for(is_known).await.map_err(|_| aborted())? {
            Progress::Failed(error) if !error.is_of_a_share() => Err(error.clone()),
            progress => Ok(progress.size_bytes()),
        }
    }

    pub fn whole(self) -> Chunks {
        self.part(0..u64::MAX)
    }

    /// The bytes of a range, as far as the export has that many.
    pub fn part(self, range: Range<u64>) -> Chunks {
        let reading = Reading { export: self, at: range.start, end: range.end };
        stream::try_unfold(reading, Reading::next).try_flatten().boxed()
    }
}

struct Reading {
    export: Export,
    at: u64,
    end: u64,
}

impl Reading {
    /// The next chunk, or all the rest if it must be built again.
    async fn next(mut self) -> Result<Option<(Chunks, Reading)>, ReadError> {
        while self.at < self.end {
            let progress = self.export.progress.borrow_and_update().clone();
            let written = match progress {
                Progress::Started => None,
                Progress::Written(written) => Some(written),
                Progress::GivenUp => return Ok(Some(self.rebuilt())),
                // Another principal's share was used up. This one's may not be.
                Progress::Failed(error) if error.is_of_a_share() => return Ok(Some(self.rebuilt())),
                Progress::Failed(error) => return Err(error),
            };
            let is_whole = written.as_ref().is_some_and(|written| written.is_whole);
            if let Some(written) = written {
                if is_whole {
                    self.end = self.end.min(written.sums.bytes);
                }
                if self.at < written.sums.bytes.min(self.end) {
                    let turn = self.export.exports.reads.clone().acquire_owned().await.map_err(|_| aborted())?;
                    match read_block(turn, written.file.path.clone(), written.sums, self.at).await {
                        Ok(mut chunk) => {
                            chunk.truncate(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
                            self.at += chunk.len() as u64;
                            return Ok(Some((stream::once(async { Ok(chunk) }).boxed(), self)));
                        }
                        // The next block would take as long.
                        Err(error) if error.kind() == io::ErrorKind::TimedOut && !is_whole => {
                            return Ok(Some(self.rebuilt()));
                        }
                        // It may have been deleted a moment ago. Damage is found when it is complete.
                        Err(_) if !is_whole => {}
                        // The process lacks a resource. The file is sound.
                        Err(error) if error.kind() != io::ErrorKind::TimedOut && Shortage::of(&error).is_some() => {
                            return Err(unreadable(error));
                        }
                        // It was removed or damaged, or the file system does not respond.
                        Err(error) => {
                            let path = written.file.path.display();
                            tracing::warn!(%error, %path, "failed to read cached export; rebuilding it");
                            self.export.exports.index().forget_damaged(&self.export.key, &written.file);
                            return Ok(Some(self.rebuilt()));
                        }
                    }
                }
            }
            if !is_whole {
                self.export.progress.changed().await.map_err(|_| aborted())?;
            }
        }
        Ok(None)
    }

    /// The rest, built again. The permit is released, because building needs one.
    fn rebuilt(mut self) -> (Chunks, Reading) {
        let rest = rebuilt(self.export.source.clone(), Consumer::Client, self.at, self.end);
        self.end = self.at;
        self.export.place = None;
        (rest, self)
    }
}

/// The bytes of a block from the byte at `at` on, after all of the block was verified. The file is opened for each
/// block, because there may be many slow readers, and descriptors are few.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if the file system does not respond. Its thread then releases the permit.
pub(super) async fn read_block(_turn: OwnedSemaphorePermit, path: Arc<Path>, sums: Sums, at: u64) -> io::Result<Bytes> {
    let name = path.to_path_buf();
    let read = move || {
        let block = sums.block(at);
        let length = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length(block.end - block.start)];
        fs::File::open(&path)?.read_exact_at(&mut bytes, block.start)?;
        if !sums.verify(block.start, &bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the bytes do not match their checksum"));
        }
        Ok(Bytes::from(bytes).slice(length(at - block.start)..))
    };
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the file system is not responding");
    directory::ask(name, blocking(read).boxed()).await.map_err(silent)??
}

/// The bytes of a range of an export, which is built from the beginning.
pub(super) fn rebuilt(source: ExportSource, consumer: Consumer, start: u64, end: u64) -> Chunks {
    let content = async move { Ok::<_, ReadError>(source(consumer).await?.chunks) };
    let mut at = 0;
    let part = stream::once(content).try_flatten().try_filter_map(move |chunk| {
        let length = chunk.len() as u64;
        let within = |place: u64| usize::try_from(place.clamp(at, at + length) - at).unwrap_or(chunk.len());
        let range = within(start)..within(end);
        at += length;
        futures::future::ok((!range.is_empty()).then(|| chunk.slice(range)))
    });
    part.boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;
    use crate::export_cache::ExportBody;
    use crate::export_cache::checksums::BLOCK_BYTES;
    use crate::export_cache::fixture::{HOUR, SEVEN, Setup, chunks, read, sent, setup};

    #[tokio::test]
    async fn reader_follows_file_at_its_own_pace() {
        let setup = setup(1 << 30, HOUR);
        let (source, sender) = sent();
        let chunk = |byte: u8| Bytes::from(vec![byte; 600_000]);
        let export = setup.begun(1, &source, &sender, [chunk(1), chunk(2)]).await;
        assert_eq!(export.known_bytes(), None);
        let mut body = export.whole();
        let first = body.next().await.expect("a chunk").expect("bytes");
        assert!(first.len() as u64 <= BLOCK_BYTES && first.iter().all(|byte| *byte == 1));

        // Another is served to its end while the first one waits.
        let mut late = setup.get(1, &source).await.expect("no error").expect("an export");
        drop(sender);
        assert_eq!(late.bytes().await.expect("no error"), Some(1_200_000));
        let part = read(late.part(599_990..600_010)).await.expect("a part");
        assert_eq!(part, [[1_u8; 10], [2; 10]].concat());

        let rest = read(body).await.expect("the rest");
        assert!([&first[..], &rest].concat() == [chunk(1), chunk(2)].concat());
    }

    #[tokio::test]
    async fn every_part_is_that_of_the_whole() {
        let setup = setup(1 << 30, HOUR);
        let whole: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let (source, made) = chunks(&[&whole[..10], &whole[10..700_000], &whole[700_000..]]);
        assert!(setup.read(1, &source).await.as_deref() == Some(&whole));
        for range in [0..1, 9..11, 0..1_000_000, 262_143..262_145, 999_999..1_000_000, 500_000..999_999] {
            let export = setup.get(1, &source).await.expect("no error").expect("an export");
            let part = read(export.part(range.clone())).await.expect("a part");
            assert!(part == whole[range.start as usize..range.end as usize], "{range:?}");
        }
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn reader_of_long_export_holds_no_descriptor() {
        let setup = setup(1 << 30, HOUR);
        let (long, _) = chunks(&[&[1; 300_000], &[2; 300_000]]);
        let (short, _) = chunks(&[&[3; 1_000]]);
        let bodies = [setup.read(1, &long).await, setup.read(2, &short).await];
        assert_eq!(bodies.map(|body| body.map(|body| body.len())), [Some(600_000), Some(1_000)]);
        let places = || setup.capacity.admission.load().streams;
        assert_eq!(places(), 0);
        let mut body = setup.get(1, &long).await.expect("no error").expect("an export").whole();
        let first = body.next().await.expect("a chunk").expect("bytes");
        let held = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten().filter(|entry| {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            target.starts_with(setup.root.path()) && target.extension().is_some_and(|extension| extension == "parquet")
        });
        assert_eq!((held.count(), places()), (0, 1));
        let small = setup.get(2, &short).await.expect("no error").expect("an export").whole();
        assert_eq!(places(), 1);
        // Somebody removes the files: the rest is made once more.
        setup.paths().into_iter().for_each(|path| fs::remove_file(path).expect("removed"));
        let rest = read(body).await.expect("the rest");
        assert!([&first[..], &rest].concat() == [[1_u8; 300_000], [2; 300_000]].concat());
        assert_eq!(read(small).await.expect("a body"), [3; 1_000]);
        assert_eq!(places(), 0);
    }

    #[tokio::test]
    async fn reader_continues_when_file_is_deleted() {
        let setup = setup(10, HOUR);
        let (once, sender) = sent();
        let (again, _) = chunks(&[b"0123", b"456", b"789abc", b"def"]);
        let first = AtomicUsize::new(0);
        let source: ExportSource =
            Arc::new(
                move |consumer| {
                    if first.fetch_add(1, Ordering::SeqCst) == 0 { once(consumer) } else { again(consumer) }
                },
            );
        let mut body = setup.begun(1, &source, &sender, ["0123", "456"].map(Bytes::from)).await.whole();
        assert_eq!(body.next().await.expect("a chunk").expect("bytes"), "0123");
        sender.send(Ok(Bytes::from_static(b"789abc"))).await.expect("sent");
        assert_eq!(read(body).await.expect("the rest"), b"456789abcdef");
        setup.is_empty().await;
    }

    fn damage(setup: &Setup, change: impl Fn(&mut Vec<u8>)) {
        for path in setup.paths() {
            let mut bytes = fs::read(&path).expect("read");
            change(&mut bytes);
            fs::write(&path, bytes).expect("written");
        }
    }

    #[tokio::test]
    async fn damaged_file_is_built_again() {
        let setup = setup(1 << 30, HOUR);
        let whole: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let (source, made) = chunks(&[&whole[..10], &whole[10..700_000], &whole[700_000..]]);
        assert!(setup.read(1, &source).await.as_deref() == Some(&whole));
        let change = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 1;
        type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);
        let damages: [Damage<'_>; 6] = [
            &change(0),
            &change(300_000),
            &change(999_999),
            &|bytes| bytes.truncate(999_999),
            &|bytes| bytes.truncate(0),
            // What is behind the end is no part of it.
            &|bytes| bytes.push(0),
        ];
        for (number, change) in damages.iter().enumerate() {
            damage(&setup, change);
            let before = made.load(Ordering::SeqCst);
            assert!(setup.read(1, &source).await.as_deref() == Some(&whole), "{number}");
            // The next one finds none, and makes one that is whole.
            assert!(setup.read(1, &source).await.as_deref() == Some(&whole), "{number}");
            let more = made.load(Ordering::SeqCst) - before;
            assert_eq!((more, setup.accounted()), (if number == 5 { 0 } else { 2 }, (1, 1_000_000)), "{number}");
        }
        // A range of sound blocks needs no other file; one that touches the damaged one does.
        damage(&setup, change(300_000));
        let before = made.load(Ordering::SeqCst);
        for (range, more) in [(0..262_144, 0), (524_288..1_000_000, 0), (262_143..262_145, 1)] {
            let export = setup.get(1, &source).await.expect("no error").expect("an export");
            let part = read(export.part(range.clone())).await.expect("a part");
            assert!(part == whole[range.start as usize..range.end as usize], "{range:?}");
            assert_eq!(made.load(Ordering::SeqCst) - before, more, "{range:?}");
        }
    }

    #[tokio::test]
    async fn file_damaged_while_written_is_built_again() {
        let setup = setup(1 << 30, HOUR);
        let first = vec![1; 600_000];
        let made = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = mpsc::channel::<()>(1);
        let chunk = Bytes::from(first.clone());
        let counted = made.clone();
        let receiver = Mutex::new(Some(receiver));
        let source: ExportSource = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let held = receiver.lock().expect("not poisoned").take();
            let wait = stream::once(async move {
                if let Some(mut held) = held {
                    held.recv().await;
                }
                Ok(Bytes::from_static(b"end"))
            });
            let chunks = stream::iter([chunk.clone(), Bytes::from_static(b"middle")]).map(Ok).chain(wait).boxed();
            Box::pin(async move { Ok(ExportBody::new(SEVEN, chunks)) })
        });
        let export = setup.get(1, &source).await.expect("no error").expect("an export");
        damage(&setup, |bytes| bytes[400_000] ^= 1);
        let going_on = async {
            tokio::task::yield_now().await;
            drop(sender);
        };
        let (body, ()) = tokio::join!(read(export.whole()), going_on);
        assert!(body.expect("a body") == [&first[..], b"middle", b"end"].concat());
        assert_eq!(made.load(Ordering::SeqCst), 2);
    }
}
