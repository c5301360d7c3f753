//! Parquet exports: each made once into a bounded cache on disk, so that parts of it can be served, and a reader that
//! comes back for another part gets the same bytes.
//!
//! 1. The first request for an export starts its making, in a task of its own: it writes a file as fast as batches
//!    come, whoever reads how fast. Later requests find the making, or what it made.
//! 2. Readers follow the file: each reads at its own pace what is written, in chunks, and waits for more. So nothing is
//!    buffered for a slow one, and the first byte need not wait for the last. Who wants a part waits for the end, since
//!    only then the length is known.
//! 3. Room is taken as the file grows, for whom it is made ([`crate::service::export_cache::room`]). Where there is
//!    none left, the file is given up, and readers go on with an answer of their own, after what they have read of it.
//! 4. A making that nobody waits for is stopped, but not at once: who has run out of patience may ask again. It is at
//!    once where others wait for what it takes, or where it would be another one of the same client.
//!
//! Files are not trusted: each block has a checksum, taken while it is made and kept in memory, and nothing is sent
//! that does not verify. A file that does not, or is shorter than it was, is dropped, and readers go on as where one is
//! given up.
//!
//! Each process has a directory of its own below `exports/` in the data directory
//! ([`crate::service::maintenance::scratch`]): nothing is shared, and nothing taken over from one that has ended.

pub(in crate::service) mod room;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use crate::config;
use crate::service::admission::capacity::Capacity;
use crate::service::admission::semaphore::Holder;
use crate::service::admission::{Admission, Permit};
use crate::service::export_cache::room::{Room, Space};
use crate::service::lookup::cache_key::CacheKey;
use crate::service::lookup::error::ReadError;
use crate::service::maintenance::scratch::Scratch;
use crate::storage::shortage::Shortage;

/// Bytes that are read for a client at once, and that have a checksum: a block.
const CHUNK_BYTES: u64 = 256 << 10;

/// Files in the cache, however small: what a directory holds well.
const MOST_FILES: usize = 4_096;

/// How long a making goes on when nobody waits for it any more: longer than clients wait before they try again.
const LINGER: Duration = Duration::from_secs(30);

/// How often such a making looks whether it is in anybody's way.
const LOOK: Duration = Duration::from_millis(100);

/// The cache. Clones share everything.
#[derive(Clone)]
pub(in crate::service) struct Exports {
    shared: Arc<Shared>,
}

struct Shared {
    index: Mutex<Index>,
    linger: Duration,
    /// Last, so that the files go before it does.
    directory: Scratch,
}

struct Index {
    entries: HashMap<CacheKey, Entry>,
    /// Exports that turned out not to fit, so that they are not tried again each time.
    too_large: HashSet<CacheKey>,
    /// What all files take, those in the making included.
    room: Room,
    /// Makings that nobody waits for.
    lingering: HashSet<Holder>,
    /// Counts uses, for the order of last use.
    uses: u64,
    /// Counts files, for their names.
    files: u64,
}

enum Entry {
    Making { progress: watch::Sender<Progress> },
    Made { file: Arc<MadeFile>, holder: Holder, used: u64 },
}

/// How far a making has come.
#[derive(Clone)]
enum Progress {
    /// Nothing is known yet.
    Started,
    /// So many bytes can be read.
    Writing { head: Head, sums: Sums },
    /// It is all there.
    Made(Arc<MadeFile>),
    /// It is not kept: it does not fit, or the disk failed.
    GivenUp,
    /// There is no such export.
    Failed(ReadError),
}

/// What is known of an answer before its first byte, and where the file is in the making.
#[derive(Clone)]
struct Head {
    total: u64,
    partial: Arc<Path>,
    whole: Arc<Path>,
}

/// The checksums of a file as far as it is written.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// Bytes that are written.
    bytes: u64,
    /// Of the whole blocks, at least as many as have been written.
    whole: Arc<RwLock<Vec<u32>>>,
    /// Of the block that is not whole.
    last: crc32fast::Hasher,
}

impl Sums {
    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES - self.bytes % CHUNK_BYTES;
            let (block, rest) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.last.update(block);
            self.bytes += block.len() as u64;
            if self.bytes.is_multiple_of(CHUNK_BYTES) {
                let sum = std::mem::take(&mut self.last).finalize();
                self.whole.write().unwrap_or_else(PoisonError::into_inner).push(sum);
            }
            bytes = rest;
        }
    }

    /// Where the block lies that holds a byte, as far as it is written.
    fn block(&self, at: u64) -> Range<u64> {
        let start = at - at % CHUNK_BYTES;
        start..self.bytes.min(start + CHUNK_BYTES)
    }

    /// Whether this is what was written as the block that begins there.
    fn verify(&self, start: u64, block: &[u8]) -> bool {
        let whole = || {
            let whole = self.whole.read().unwrap_or_else(PoisonError::into_inner);
            whole.get(usize::try_from(start / CHUNK_BYTES).ok()?).copied()
        };
        let expected = match start + CHUNK_BYTES <= self.bytes {
            true => whole(),
            false => Some(self.last.clone().finalize()),
        };
        expected == Some(crc32fast::hash(block))
    }
}

/// A file of the cache. It is removed when the cache has dropped it and nobody reads it any more.
#[derive(Debug)]
struct MadeFile {
    path: Arc<Path>,
    bytes: u64,
    total: u64,
    sums: Sums,
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// What the cache has of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::service) enum ExportState {
    /// All of it.
    Made,
    /// Some of it: it is being made.
    BeingMade,
    /// It was made, and did not fit.
    TooLarge,
}

/// Who takes the bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::service) enum Taker {
    /// A client, at whatever pace.
    Client,
    /// The service itself, at once.
    Service,
}

/// Makes an export, from the beginning, for who takes it: the same bytes each time.
pub(in crate::service) type Make = Arc<dyn Fn(Taker) -> BoxFuture<'static, Result<Content, ReadError>> + Send + Sync>;

/// An export as it is made.
pub(in crate::service) struct Content {
    /// Entities in it.
    pub total: u64,
    /// Its bytes.
    pub chunks: BoxStream<'static, Result<Bytes, ReadError>>,
}

/// An export as a caller gets it: its bytes are in the cache, or on their way there. They stay as long as this does.
pub struct Export {
    exports: Exports,
    identity: CacheKey,
    progress: watch::Receiver<Progress>,
    total: u64,
    make: Make,
    /// Its place among the streamed answers, unless it is short.
    place: Option<Permit>,
}

impl Exports {
    /// An empty cache of at most `capacity_bytes`, in this directory.
    pub(in crate::service) fn new(directory: Scratch, capacity_bytes: u64, fair: &config::Fair) -> Exports {
        Exports::lingering(directory, Room::new(capacity_bytes, MOST_FILES, fair), LINGER)
    }

    fn lingering(directory: Scratch, room: Room, linger: Duration) -> Exports {
        let index = Index {
            entries: HashMap::new(),
            too_large: HashSet::new(),
            room,
            lingering: HashSet::new(),
            uses: 0,
            files: 0,
        };
        Exports { shared: Arc::new(Shared { index: Mutex::new(index), linger, directory }) }
    }

    /// The export of this identity, made by `make` on the engine's threads unless it is there or being made. Waits
    /// until its first bytes are there. `None` if it does not fit.
    ///
    /// # Errors
    /// What `make` fails with before the first byte.
    pub(in crate::service) async fn get(
        &self,
        capacity: &Capacity,
        identity: CacheKey,
        make: Make,
    ) -> Result<Option<Export>, ReadError> {
        let Some((progress, begun)) = self.follow(capacity, identity, &make) else { return Ok(None) };
        let since = Instant::now();
        let mut export = match self.begun(identity, progress, make).await {
            // One who has begun it, and may have asked for much, was refused: that says nothing of others.
            // An answer of its own is made in its own share, which whoever begins this next does not use up either.
            Err(error) if !begun && error.is_anothers(since) => return Ok(None),
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(export)) => export,
        };
        // One chunk is read at once, and done with.
        if export.known_bytes().is_none_or(|bytes| bytes > CHUNK_BYTES) {
            export.place = Some(capacity.admission().stream().await?);
        }
        Ok(Some(export))
    }

    /// The export whose making this is, as soon as its first bytes are there.
    async fn begun(
        &self,
        identity: CacheKey,
        mut progress: watch::Receiver<Progress>,
        make: Make,
    ) -> Result<Option<Export>, ReadError> {
        let known = progress.wait_for(|progress| !matches!(progress, Progress::Started)).await;
        let known = known.map_err(|_| vanished())?.clone();
        let total = match known {
            Progress::Writing { head: Head { total, .. }, .. } => total,
            Progress::Made(file) => file.total,
            Progress::Started | Progress::GivenUp => return Ok(None),
            Progress::Failed(error) => return Err(error),
        };
        Ok(Some(Export { exports: self.clone(), identity, progress, total, make, place: None }))
    }

    /// What the cache has of the export of this identity. No use of it.
    pub(in crate::service) fn state(&self, identity: CacheKey) -> Option<ExportState> {
        let index = self.shared.index();
        match index.entries.get(&identity) {
            Some(Entry::Made { file, .. }) if file.path.exists() => Some(ExportState::Made),
            Some(Entry::Making { .. }) => Some(ExportState::BeingMade),
            Some(Entry::Made { .. }) | None => index.too_large.contains(&identity).then_some(ExportState::TooLarge),
        }
    }

    /// The progress of an export, which is started if need be, and whether it was; `None` if it would not fit.
    fn follow(
        &self,
        capacity: &Capacity,
        identity: CacheKey,
        make: &Make,
    ) -> Option<(watch::Receiver<Progress>, bool)> {
        let admission = capacity.admission();
        let holder = admission.holder();
        let mut index = self.shared.index();
        index.uses += 1;
        let uses = index.uses;
        match index.entries.get_mut(&identity) {
            Some(Entry::Making { progress }) => return Some((progress.subscribe(), false)),
            // Somebody else may have removed the file.
            Some(Entry::Made { file, used, .. }) if file.path.exists() => {
                *used = uses;
                return Some((watch::channel(Progress::Made(file.clone())).1, false));
            }
            Some(Entry::Made { .. }) => index.forget(&identity),
            None => {}
        }
        if index.too_large.contains(&identity) || !index.take(holder, 0, 1) {
            return None;
        }
        index.files += 1;
        let name = |extension| self.shared.directory.path().join(format!("{}.{extension}", index.files)).into();
        let (partial, whole) = (name("part"), name("parquet"));
        let (progress, followed) = watch::channel(Progress::Started);
        let making = Making {
            exports: self.clone(),
            admission: admission.clone(),
            identity,
            partial,
            whole,
            progress: progress.clone(),
            bytes: 0,
            sums: Sums::default(),
            over: false,
        };
        index.entries.insert(identity, Entry::Making { progress });
        drop(index);
        // It ends by itself: when it is over, or abandoned.
        drop(capacity.engine().spawn(making.run(make.clone())).detach());
        Some((followed, true))
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        // Nothing panics between two changes that belong together.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Takes room for more of a holder, from files that nobody reads if need be. Whether there is that much.
    fn take(&mut self, holder: Holder, bytes: u64, files: u64) -> bool {
        let wanted = Space { bytes, files };
        loop {
            if self.room.is_there(holder, wanted, || self.in_use()) {
                self.room.take(holder, wanted);
                return true;
            }
            if !self.evict(holder, wanted) {
                return false;
            }
        }
    }

    /// What of each holder is being read or made.
    fn in_use(&self) -> HashMap<Holder, u64> {
        let mut idle: HashMap<Holder, u64> = HashMap::new();
        for (_, holder, bytes, _) in self.idle() {
            *idle.entry(holder).or_default() += bytes;
        }
        self.room.bytes_by_holder().map(|(holder, bytes)| (holder, bytes - idle.get(&holder).unwrap_or(&0))).collect()
    }

    /// The files that nobody reads: when they were used, whose they are, and their bytes.
    fn idle(&self) -> impl Iterator<Item = (u64, Holder, u64, CacheKey)> {
        self.entries.iter().filter_map(|(identity, entry)| match entry {
            // New readers come only through the index, which is locked.
            Entry::Made { file, holder, used } if Arc::strong_count(file) == 1 => {
                Some((*used, *holder, file.bytes, *identity))
            }
            Entry::Made { .. } | Entry::Making { .. } => None,
        })
    }

    /// Drops a file that nobody reads, of whom it may be taken. Whether there is one.
    fn evict(&mut self, asker: Holder, wanted: Space) -> bool {
        let idle = self.idle().filter(|(_, holder, ..)| self.room.may_take_from(asker, wanted, *holder));
        // Of who has most, what was used least recently.
        let victim =
            idle.max_by_key(|(used, holder, ..)| (self.room.weight(*holder, wanted), std::cmp::Reverse(*used)));
        let victim = victim.map(|(.., identity)| identity);
        if let Some(identity) = victim {
            self.forget(&identity);
        }
        victim.is_some()
    }

    fn remember_too_large(&mut self, identity: CacheKey) {
        // Forgetting them all now and then costs one more try each.
        if self.too_large.len() >= MOST_FILES {
            self.too_large.clear();
        }
        self.too_large.insert(identity);
    }

    /// Drops a file that turned out to be damaged, unless another one is there by now.
    fn forget_damaged(&mut self, identity: &CacheKey, damaged: &Arc<MadeFile>) {
        if matches!(self.entries.get(identity), Some(Entry::Made { file, .. }) if Arc::ptr_eq(file, damaged)) {
            self.forget(identity);
        }
    }

    /// Drops a file that was made.
    fn forget(&mut self, identity: &CacheKey) {
        if let Some(Entry::Made { file, holder, .. }) = self.entries.remove(identity) {
            self.room.give_back(holder, Space { bytes: file.bytes, files: 1 });
        }
    }
}

/// A making under way. Dropped before it is over, as by a panic, it leaves nothing behind either.
struct Making {
    exports: Exports,
    /// Of whom it is made for.
    admission: Admission,
    identity: CacheKey,
    partial: Arc<Path>,
    whole: Arc<Path>,
    progress: watch::Sender<Progress>,
    /// Reserved so far.
    bytes: u64,
    /// Of what is written.
    sums: Sums,
    over: bool,
}

/// Why a making ends early.
enum Stopped {
    NoRoom,
    Disk(io::Error),
    Failed(ReadError),
}

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Stopped {
        Stopped::Failed(error)
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Stopped {
        Stopped::Disk(error)
    }
}

impl Making {
    async fn run(mut self, make: Make) {
        let (exports, progress, identity) = (self.exports.clone(), self.progress.clone(), self.identity);
        let admission = self.admission.clone();
        let written = tokio::select! {
            written = self.write(make) => Some(written),
            () = abandoned(&exports.shared, &admission, identity, &progress) => None,
        };
        let end = match written {
            Some(Ok(total)) => return self.made(total),
            Some(Err(Stopped::NoRoom)) => Progress::GivenUp,
            Some(Err(Stopped::Disk(error))) => {
                tracing::warn!(%error, directory = %self.exports.shared.directory.path().display(), "an export is not kept");
                Progress::GivenUp
            }
            Some(Err(Stopped::Failed(error))) => Progress::Failed(error),
            // Nobody is there to be told.
            None => Progress::GivenUp,
        };
        self.unmade(end);
    }

    /// Writes the file, and returns the number of entities. Each chunk is shown when the next one is there: so the last
    /// comes together with the end, and of an export of one chunk everybody knows the length.
    async fn write(&mut self, make: Make) -> Result<u64, Stopped> {
        let Content { total, mut chunks } = make(Taker::Service).await?;
        let head = Head { total, partial: self.partial.clone(), whole: self.whole.clone() };
        self.exports.shared.directory.restore()?;
        let mut file = tokio::fs::File::create_new(&self.partial).await?;
        while let Some(chunk) = chunks.try_next().await? {
            if self.bytes > 0 {
                self.progress.send_replace(Progress::Writing { head: head.clone(), sums: self.sums.clone() });
            }
            let bytes = chunk.len() as u64;
            self.take(bytes)?;
            self.bytes += bytes;
            file.write_all(&chunk).await?;
            // The writing goes on behind this type's back until then.
            file.flush().await?;
            self.sums.update(&chunk);
        }
        tokio::fs::rename(&self.partial, &self.whole).await?;
        Ok(total)
    }

    /// Takes room for more bytes.
    fn take(&self, bytes: u64) -> Result<(), Stopped> {
        let (mut index, holder) = (self.exports.shared.index(), self.admission.holder());
        if index.take(holder, bytes, 0) {
            return Ok(());
        }
        if self.bytes + bytes > index.room.most_bytes(holder) {
            index.remember_too_large(self.identity);
        }
        Err(Stopped::NoRoom)
    }

    fn made(mut self, total: u64) {
        self.over = true;
        let (path, sums) = (self.whole.clone(), std::mem::take(&mut self.sums));
        let file = Arc::new(MadeFile { path, bytes: self.bytes, total, sums });
        let mut index = self.exports.shared.index();
        index.uses += 1;
        let used = index.uses;
        index.entries.insert(self.identity, Entry::Made { file: file.clone(), holder: self.admission.holder(), used });
        drop(index);
        self.progress.send_replace(Progress::Made(file));
    }

    fn unmade(&mut self, end: Progress) {
        self.over = true;
        // Before the room is given to others.
        remove(&self.partial);
        remove(&self.whole);
        let mut index = self.exports.shared.index();
        index.room.give_back(self.admission.holder(), Space { bytes: self.bytes, files: 1 });
        let own = |progress: &watch::Sender<Progress>| progress.same_channel(&self.progress);
        if matches!(index.entries.get(&self.identity), Some(Entry::Making { progress }) if own(progress)) {
            index.entries.remove(&self.identity);
        }
        drop(index);
        self.progress.send_replace(end);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.over {
            self.unmade(Progress::Failed(vanished()));
        }
    }
}

/// Completes when nobody has followed a making for a while. From then on nobody can.
async fn abandoned(shared: &Shared, admission: &Admission, identity: CacheKey, progress: &watch::Sender<Progress>) {
    loop {
        progress.closed().await;
        let lingering = Lingering::begin(shared, admission.holder());
        let began = Instant::now();
        while lingering.is_some()
            && progress.receiver_count() == 0
            && began.elapsed() < shared.linger
            && !admission.is_contended()
        {
            tokio::time::sleep(LOOK.min(shared.linger)).await;
        }
        drop(lingering);
        let mut index = shared.index();
        // New followers come only through the index, which is locked.
        if progress.receiver_count() == 0 {
            index.entries.remove(&identity);
            return;
        }
    }
}

/// The one making of a holder that may go on for a while when nobody waits for it.
struct Lingering<'a> {
    shared: &'a Shared,
    holder: Holder,
}

impl Lingering<'_> {
    fn begin(shared: &Shared, holder: Holder) -> Option<Lingering<'_>> {
        let first = shared.index().lingering.insert(holder);
        first.then_some(Lingering { shared, holder })
    }
}

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        self.shared.index().lingering.remove(&self.holder);
    }
}

impl Export {
    /// Entities in it.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Its length in bytes, if that is known by now.
    pub fn known_bytes(&self) -> Option<u64> {
        match &*self.progress.borrow() {
            Progress::Made(file) => Some(file.bytes),
            Progress::Started | Progress::Writing { .. } | Progress::GivenUp | Progress::Failed(_) => None,
        }
    }

    /// Waits until its length in bytes is known; `None` if it turns out not to be kept.
    ///
    /// # Errors
    /// What its making fails with.
    pub async fn bytes(&mut self) -> Result<Option<u64>, ReadError> {
        let over = |progress: &Progress| !matches!(progress, Progress::Started | Progress::Writing { .. });
        match &*self.progress.wait_for(over).await.map_err(|_| vanished())? {
            Progress::Made(file) => Ok(Some(file.bytes)),
            Progress::Failed(error) if !error.is_of_a_share() => Err(error.clone()),
            Progress::Started | Progress::Writing { .. } | Progress::GivenUp | Progress::Failed(_) => Ok(None),
        }
    }

    /// All of it, at the reader's pace.
    pub fn whole(self) -> BoxStream<'static, Result<Bytes, ReadError>> {
        self.part(0..u64::MAX)
    }

    /// The bytes of a range, as far as there are that many, at the reader's pace.
    pub fn part(self, range: Range<u64>) -> BoxStream<'static, Result<Bytes, ReadError>> {
        let make = self.make.clone();
        let reading = Reading { export: self, at: range.start, end: range.end };
        let following = stream::try_unfold(reading, Reading::next);
        following
            .map_ok(move |step| match step {
                Step::Chunk(bytes) => stream::once(async { Ok(bytes) }).boxed(),
                Step::GivenUp { at, end } => remade(make.clone(), at, end).boxed(),
            })
            .try_flatten()
            .boxed()
    }
}

/// A reader of an export's file.
struct Reading {
    export: Export,
    at: u64,
    end: u64,
}

/// What a reader gets next.
enum Step {
    Chunk(Bytes),
    /// The file is not kept: the rest has to be made once more.
    GivenUp {
        at: u64,
        end: u64,
    },
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Step, Reading)>, ReadError> {
        loop {
            if self.at >= self.end {
                return Ok(None);
            }
            let progress = self.export.progress.borrow_and_update().clone();
            let written = match &progress {
                Progress::Started => None,
                Progress::Writing { head, sums } => Some((&head.partial, &head.whole, sums)),
                Progress::Made(file) => {
                    self.end = self.end.min(file.bytes);
                    Some((&file.path, &file.path, &file.sums))
                }
                Progress::GivenUp => return Ok(Some(self.give_up())),
                // For whom it was made there was no room; for this reader there may be.
                Progress::Failed(error) if error.is_of_a_share() => return Ok(Some(self.give_up())),
                Progress::Failed(error) => return Err(error.clone()),
            };
            if let Some((first, second, sums)) = written.filter(|(.., sums)| self.at < sums.bytes.min(self.end)) {
                match read_block(first.clone(), second.clone(), sums.clone(), self.at).await {
                    Ok(mut chunk) => {
                        let most = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
                        chunk.truncate(most);
                        self.at += chunk.len() as u64;
                        return Ok(Some((Step::Chunk(chunk), self)));
                    }
                    Err(error) => match &progress {
                        // It is not the file's fault.
                        Progress::Made(_) if Shortage::of(&error).is_some() => return Err(unreadable(error)),
                        // Removed by somebody else, or damaged.
                        Progress::Made(file) => {
                            tracing::warn!(%error, path = %file.path.display(), "a file of the exports is made again");
                            self.export.exports.shared.index().forget_damaged(&self.export.identity, file);
                            return Ok(Some(self.give_up()));
                        }
                        // Given up a moment ago, perhaps; what is damaged is found when it is made.
                        _ => {}
                    },
                }
            }
            if matches!(progress, Progress::Started | Progress::Writing { .. }) {
                self.export.progress.changed().await.map_err(|_| vanished())?;
            }
        }
    }

    /// The rest is to be made once more. Nothing is left to be read here, and the place goes to whatever makes it.
    fn give_up(mut self) -> (Step, Reading) {
        let step = Step::GivenUp { at: self.at, end: self.end };
        self.end = self.at;
        self.export.place = None;
        (step, self)
    }
}

/// The block of a file that holds a byte, from that byte on, once all of it verifies. The file has one name or, later,
/// the other. It is opened for each block: readers may be many and slow, and descriptors are few.
async fn read_block(first: Arc<Path>, second: Arc<Path>, sums: Sums, at: u64) -> io::Result<Bytes> {
    let read = move || {
        let file = match fs::File::open(&first) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::File::open(&second)?,
            other => other?,
        };
        let block = sums.block(at);
        let length = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length(block.end - block.start)];
        file.read_exact_at(&mut bytes, block.start)?;
        if !sums.verify(block.start, &bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its bytes are not those that were written"));
        }
        Ok(Bytes::from(bytes).slice(length(at - block.start)..))
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

/// A range of an export's bytes, made for one reader alone.
fn remade(make: Make, start: u64, end: u64) -> impl stream::Stream<Item = Result<Bytes, ReadError>> + Send {
    let content = async move { Ok::<_, ReadError>(make(Taker::Client).await?.chunks) };
    let mut at = 0;
    stream::once(content).try_flatten().try_filter_map(move |chunk| {
        let length = chunk.len() as u64;
        let within = |place: u64| usize::try_from(place.clamp(at, at + length) - at).unwrap_or(chunk.len());
        let (from, to) = (within(start), within(end));
        at += length;
        futures::future::ok((from < to).then(|| chunk.slice(from..to)))
    })
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a file of the exports stays behind");
        }
        _ => {}
    }
}

/// The making ended without a word, as by a panic, which is logged where it arose.
fn vanished() -> ReadError {
    unreadable(io::Error::other("the making of an export was cut off"))
}

fn unreadable(error: io::Error) -> ReadError {
    ReadError::Unreadable(Arc::new(error))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tempfile::TempDir;
    use tokio::sync::mpsc;

    use super::*;
    use crate::query::{Engine, EngineOptions};

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A cache, what it needs, and what its exports are made from.
    struct Setup {
        root: TempDir,
        capacity: Capacity,
        exports: Exports,
    }

    /// A failure that is nobody's share.
    const LATE: ReadError = ReadError::Timeout { seconds: 1 };

    /// Everything is everybody's.
    const NO_SHARES: config::Fair = config::Fair { share_percent: 100, user_percent: 0, space_percent: 100 };

    fn setup(capacity_bytes: u64, linger: Duration) -> Setup {
        let root = tempfile::tempdir().expect("a directory");
        let options = EngineOptions {
            threads: 2,
            memory_bytes: 1 << 24,
            shares: crate::query::TenantShares { one_percent: 100, anonymous_percent: 100 },
            timeout: HOUR,
            diff_timeout: HOUR,
            spill_directory: Some(root.path().join("tmp")),
            spill_bytes: 1 << 24,
        };
        std::fs::create_dir(root.path().join("tmp")).expect("created");
        let engine = Engine::try_new(&options).expect("an engine");
        let room = Room::new(capacity_bytes, MOST_FILES, &NO_SHARES);
        let exports =
            Exports::lingering(Scratch::create(&root.path().join("exports")).expect("a directory"), room, linger);
        let admission = Admission::new(&config::Config::default().query, &NO_SHARES, 2);
        Setup { root, capacity: Capacity::new(engine, admission), exports }
    }

    impl Setup {
        async fn get(&self, number: usize, make: &Make) -> Result<Option<Export>, ReadError> {
            self.exports.get(&self.capacity, CacheKey::numbered(number), make.clone()).await
        }

        /// Gets an export and reads it.
        async fn read(&self, number: usize, make: &Make) -> Option<Vec<u8>> {
            let export = self.get(number, make).await.expect("no error")?;
            let body = read(export.whole()).await.expect("a body");
            // Whoever made it has let go of it, unless a test holds it.
            for _ in 0..1_000 {
                let held = self.exports.shared.index().entries.get(&CacheKey::numbered(number)).is_some_and(|entry| {
                    matches!(entry, Entry::Made { file, .. } if Arc::strong_count(file) > 1)
                        || matches!(entry, Entry::Making { .. })
                });
                if !held {
                    break;
                }
                tokio::task::yield_now().await;
            }
            Some(body)
        }

        /// The sizes of the files in the cache's directory.
        fn files(&self) -> Vec<u64> {
            let entries = std::fs::read_dir(self.exports.shared.directory.path()).expect("a directory");
            let files = entries.map(|entry| entry.expect("an entry")).filter(|file| file.file_name() != "lock");
            let mut sizes: Vec<u64> = files.map(|file| file.metadata().map_or(0, |data| data.len())).collect();
            sizes.sort_unstable();
            sizes
        }

        fn accounted(&self) -> (usize, u64) {
            let index = self.exports.shared.index();
            (index.entries.len(), index.room.bytes())
        }

        /// Waits until nothing is there or being made.
        async fn is_empty(&self) {
            while self.accounted() != (0, 0) {
                tokio::task::yield_now().await;
            }
            assert_eq!(self.files(), [] as [u64; 0]);
        }
    }

    async fn read(stream: BoxStream<'static, Result<Bytes, ReadError>>) -> Result<Vec<u8>, ReadError> {
        stream
            .try_fold(Vec::new(), |mut all, chunk| async move {
                all.extend_from_slice(&chunk);
                Ok(all)
            })
            .await
    }

    /// Makes these chunks, and counts how often.
    fn chunks(chunks: &[&[u8]]) -> (Make, Arc<AtomicUsize>) {
        let chunks: Vec<Bytes> = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect();
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let make: Make = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let chunks = stream::iter(chunks.clone()).map(Ok).boxed();
            Box::pin(async move { Ok(Content { total: 7, chunks }) })
        });
        (make, made)
    }

    /// Makes what is sent.
    fn sent() -> (Make, mpsc::Sender<Result<Bytes, ReadError>>) {
        let (sender, receiver) = mpsc::channel(1);
        let receiver = Arc::new(Mutex::new(Some(receiver)));
        let make: Make = Arc::new(move |_| {
            let receiver = receiver.lock().expect("not poisoned").take().expect("made once");
            let chunks =
                stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
            Box::pin(async move { Ok(Content { total: 7, chunks: chunks.boxed() }) })
        });
        (make, sender)
    }

    #[tokio::test]
    async fn requests_for_the_same_export_share_one_making() {
        let setup = setup(1_000, HOUR);
        let (make, made) = chunks(&[b"one ", b"two ", b"three"]);
        let all = futures::future::join_all((0..20).map(|_| setup.read(1, &make))).await;
        assert!(all.iter().all(|read| read.as_deref() == Some(b"one two three")), "{all:?}");
        // One of a single chunk is all there when it begins.
        let (single, _) = chunks(&[b"alone"]);
        let export = setup.get(2, &single).await.expect("no error").expect("an export");
        assert_eq!((export.total(), export.known_bytes()), (7, Some(5)));
        assert_eq!(made.load(Ordering::SeqCst), 1);
        assert_eq!((setup.accounted(), setup.files()), ((2, 18), vec![5, 13]));
    }

    #[tokio::test]
    async fn a_reader_gets_what_is_written_before_the_end_and_at_its_own_pace() {
        let setup = setup(1 << 30, HOUR);
        let (make, sender) = sent();
        let chunk = |byte: u8| Bytes::from(vec![byte; 600_000]);
        let send = async {
            sender.send(Ok(chunk(1))).await.expect("sent");
            sender.send(Ok(chunk(2))).await.expect("sent");
        };
        let (export, ()) = tokio::join!(setup.get(1, &make), send);
        let export = export.expect("no error").expect("an export");
        assert_eq!(export.known_bytes(), None);
        let mut body = export.whole();
        let first = body.next().await.expect("a chunk").expect("bytes");
        assert!(first.len() as u64 <= CHUNK_BYTES && first.iter().all(|byte| *byte == 1));

        // Another is served to its end while the first one waits.
        let mut late = setup.get(1, &make).await.expect("no error").expect("an export");
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
        let (make, made) = chunks(&[&whole[..10], &whole[10..700_000], &whole[700_000..]]);
        assert!(setup.read(1, &make).await.as_deref() == Some(&whole));
        for range in [0..1, 9..11, 0..1_000_000, 262_143..262_145, 999_999..1_000_000, 500_000..999_999] {
            let export = setup.get(1, &make).await.expect("no error").expect("an export");
            let part = read(export.part(range.clone())).await.expect("a part");
            assert!(part == whole[range.start as usize..range.end as usize], "{range:?}");
        }
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_share_of_who_has_begun_a_making_is_not_that_of_others() {
        let setup = setup(1_000, HOUR);
        let (begun, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
        let (counted, let_go) = (begun.clone(), asked.clone());
        let failing: Make = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let let_go = let_go.clone();
            Box::pin(async move {
                let_go.acquire().await.expect("open").forget();
                Err(ReadError::OutOfMemory)
            })
        });
        let let_go = async {
            tokio::task::yield_now().await;
            asked.add_permits(1);
        };
        let (first, second, ()) = tokio::join!(setup.get(1, &failing), setup.get(1, &failing), let_go);
        assert!(matches!(first, Err(ReadError::OutOfMemory)));
        // It makes an answer of its own.
        assert!(matches!(second, Ok(None)) && begun.load(Ordering::SeqCst) == 1);
        setup.is_empty().await;

        // In the middle: who reads gets the rest from an answer of its own, too.
        let (first, sender) = sent();
        let (again, made) = chunks(&[b"one", b" two", b" three"]);
        let is_first = std::sync::atomic::AtomicBool::new(true);
        let make: Make = Arc::new(move |taker| match is_first.swap(false, Ordering::SeqCst) {
            true => first(taker),
            false => again(taker),
        });
        let send = async {
            for chunk in ["one", " two"] {
                sender.send(Ok(Bytes::from(chunk))).await.expect("sent");
            }
        };
        let (export, ()) = tokio::join!(setup.get(2, &make), send);
        let mut export = export.expect("no error").expect("an export");
        sender.send(Err(ReadError::OutOfMemory)).await.expect("sent");
        assert_eq!(export.bytes().await.expect("no error"), None);
        assert_eq!(read(export.whole()).await.expect("a body"), b"one two three");
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn readers_of_long_exports_hold_a_place_and_no_descriptor() {
        let setup = setup(1 << 30, HOUR);
        let (long, _) = chunks(&[&[1; 300_000], &[2; 300_000]]);
        let (short, _) = chunks(&[&[3; 1_000]]);
        let bodies = [setup.read(1, &long).await, setup.read(2, &short).await];
        assert_eq!(bodies.map(|body| body.map(|body| body.len())), [Some(600_000), Some(1_000)]);
        let places = || setup.capacity.admission().load().streams;
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
        for entry in std::fs::read_dir(setup.exports.shared.directory.path()).expect("a directory").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "parquet") {
                std::fs::remove_file(entry.path()).expect("removed");
            }
        }
        let rest = read(body).await.expect("the rest");
        assert!([&first[..], &rest].concat() == [[1_u8; 300_000], [2; 300_000]].concat());
        assert_eq!(read(small).await.expect("a body"), [3; 1_000]);
        assert_eq!(places(), 0);
    }

    #[tokio::test]
    async fn a_making_that_fails_or_panics_leaves_nothing_behind_and_is_tried_again() {
        let setup = setup(1_000, HOUR);
        let failing: Make = Arc::new(|_| Box::pin(async { Err(LATE) }));
        let panicking: Make = Arc::new(|_| Box::pin(async { panic!("on purpose") }));
        for make in [&failing, &panicking] {
            let all = futures::future::join_all((0..5).map(|_| setup.get(1, make))).await;
            assert!(all.iter().all(Result::is_err));
            setup.is_empty().await;
        }
        // In the middle: who has begun to read gets the error.
        let (make, sender) = sent();
        let send = async {
            for _ in 0..2 {
                sender.send(Ok(Bytes::from_static(b"half"))).await.expect("sent");
            }
        };
        let (export, ()) = tokio::join!(setup.get(1, &make), send);
        let mut waiting = setup.get(1, &make).await.expect("no error").expect("an export");
        sender.send(Err(LATE)).await.expect("sent");
        let body = read(export.expect("no error").expect("an export").whole()).await;
        assert!(matches!(body, Err(ReadError::Timeout { .. })), "{body:?}");
        assert!(matches!(waiting.bytes().await, Err(ReadError::Timeout { .. })));
        drop(waiting);
        setup.is_empty().await;

        let (make, _) = chunks(&[b"all is well"]);
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"all is well"[..]));
    }

    #[tokio::test]
    async fn a_making_that_everyone_has_left_stops_and_leaves_nothing_behind() {
        let setup = setup(1_000, Duration::ZERO);
        let (make, sender) = sent();
        let send = async {
            for _ in 0..2 {
                sender.send(Ok(Bytes::from_static(b"half"))).await.expect("sent");
            }
        };
        let (export, ()) = tokio::join!(setup.get(1, &make), send);
        let export = export.expect("no error").expect("an export");
        let other = setup.get(1, &make).await.expect("no error").expect("an export");
        drop(export);
        // The making goes on for the other one.
        while setup.accounted() != (1, 8) {
            tokio::task::yield_now().await;
        }
        drop(other);
        // Its source is dropped, too.
        sender.closed().await;
        setup.is_empty().await;
    }

    #[tokio::test]
    async fn who_comes_back_soon_finds_the_making_going_on() {
        let setup = setup(1_000, HOUR);
        let (make, sender) = sent();
        // Leaves before there is anything.
        assert!(futures::poll!(std::pin::pin!(setup.get(1, &make))).is_pending());
        sender.send(Ok(Bytes::from_static(b"made on"))).await.expect("sent");
        drop(sender);
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"made on"[..]));
    }

    #[tokio::test]
    async fn what_was_used_least_recently_goes_unless_it_is_read() {
        let setup = setup(30, HOUR);
        let (ten, made) = chunks(&[&[7; 10]]);
        for number in [1, 2, 3, 1] {
            setup.read(number, &ten).await.expect("kept");
        }
        assert_eq!((made.load(Ordering::SeqCst), setup.accounted()), (3, (3, 30)));
        // The second is the oldest, but is being read: the third goes.
        let held = setup.exports.shared.index().entries.get(&CacheKey::numbered(2)).map(|entry| match entry {
            Entry::Made { file, .. } => file.clone(),
            Entry::Making { .. } => panic!("it is made"),
        });
        setup.read(4, &ten).await.expect("kept");
        assert_eq!((setup.files(), setup.accounted()), (vec![10; 3], (3, 30)));
        drop(held);
        for number in [1, 2, 4] {
            setup.read(number, &ten).await.expect("kept");
        }
        assert_eq!(made.load(Ordering::SeqCst), 4);
        setup.read(3, &ten).await.expect("kept");
        assert_eq!(made.load(Ordering::SeqCst), 5);

        // Where all are being read, there is no room, for now.
        let mut held = Vec::new();
        for number in [2, 3, 4] {
            held.push(setup.get(number, &ten).await.expect("no error").expect("an export"));
        }
        assert!(setup.get(9, &ten).await.expect("no error").is_none());
        drop(held);
        assert!(setup.get(9, &ten).await.expect("no error").is_some());
    }

    #[tokio::test]
    async fn an_export_that_does_not_fit_is_served_all_the_same() {
        let setup = setup(10, HOUR);
        let (make, made) = chunks(&[b"0123", b"456", b"789abc", b"def"]);
        // The first reader has begun when it turns out.
        let mut export = setup.get(1, &make).await.expect("no error");
        if let Some(export) = &mut export {
            assert_eq!(export.bytes().await.expect("no error"), None);
        }
        if let Some(export) = export {
            assert_eq!(read(export.whole()).await.expect("a body"), b"0123456789abcdef");
        }
        setup.is_empty().await;
        let before = made.load(Ordering::SeqCst);
        // It is not tried again.
        assert!(setup.get(1, &make).await.expect("no error").is_none());
        assert_eq!(made.load(Ordering::SeqCst), before);
    }

    #[tokio::test]
    async fn a_reader_in_the_middle_goes_on_where_it_was_when_the_file_is_given_up() {
        let setup = setup(10, HOUR);
        let (once, sender) = sent();
        let (again, _) = chunks(&[b"0123", b"456", b"789abc", b"def"]);
        let first = AtomicUsize::new(0);
        let make: Make =
            Arc::new(move |taker| if first.fetch_add(1, Ordering::SeqCst) == 0 { once(taker) } else { again(taker) });
        let send = async {
            for chunk in [&b"0123"[..], b"456"] {
                sender.send(Ok(Bytes::from_static(chunk))).await.expect("sent");
            }
        };
        let (export, ()) = tokio::join!(setup.get(1, &make), send);
        let mut body = export.expect("no error").expect("an export").whole();
        assert_eq!(body.next().await.expect("a chunk").expect("bytes"), "0123");
        sender.send(Ok(Bytes::from_static(b"789abc"))).await.expect("sent");
        assert_eq!(read(body).await.expect("the rest"), b"456789abcdef");
        setup.is_empty().await;
    }

    #[tokio::test]
    async fn a_file_that_somebody_removed_is_made_again() {
        let setup = setup(100, HOUR);
        let (make, made) = chunks(&[b"bytes"]);
        setup.read(1, &make).await.expect("kept");
        for entry in std::fs::read_dir(setup.exports.shared.directory.path()).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some() {
                std::fs::remove_file(path).expect("removed");
            }
        }
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"bytes"[..]));
        assert_eq!((made.load(Ordering::SeqCst), setup.accounted()), (2, (1, 5)));
    }

    /// Changes the cache's only file.
    fn damage(setup: &Setup, change: impl Fn(&mut Vec<u8>)) {
        for entry in fs::read_dir(setup.exports.shared.directory.path()).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some() {
                let mut bytes = fs::read(&path).expect("read");
                change(&mut bytes);
                fs::write(&path, bytes).expect("written");
            }
        }
    }

    #[tokio::test]
    async fn a_file_that_is_damaged_is_made_again_and_no_wrong_byte_is_sent() {
        let setup = setup(1 << 30, HOUR);
        let whole: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let (make, made) = chunks(&[&whole[..10], &whole[10..700_000], &whole[700_000..]]);
        assert!(setup.read(1, &make).await.as_deref() == Some(&whole));
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
            assert!(setup.read(1, &make).await.as_deref() == Some(&whole), "{number}");
            // The next one finds none, and makes one that is whole.
            assert!(setup.read(1, &make).await.as_deref() == Some(&whole), "{number}");
            let more = made.load(Ordering::SeqCst) - before;
            assert_eq!((more, setup.accounted()), (if number == 5 { 0 } else { 2 }, (1, 1_000_000)), "{number}");
        }
        // A range of sound blocks needs no other file; one that touches the damaged one does.
        damage(&setup, change(300_000));
        let before = made.load(Ordering::SeqCst);
        for (range, more) in [(0..262_144, 0), (524_288..1_000_000, 0), (262_143..262_145, 1)] {
            let export = setup.get(1, &make).await.expect("no error").expect("an export");
            let part = read(export.part(range.clone())).await.expect("a part");
            assert!(part == whole[range.start as usize..range.end as usize], "{range:?}");
            assert_eq!(made.load(Ordering::SeqCst) - before, more, "{range:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_damaged_while_it_is_made_gives_no_wrong_byte() {
        let setup = setup(1 << 30, HOUR);
        let (first, made) = (vec![1; 600_000], Arc::new(AtomicUsize::new(0)));
        let (sender, receiver) = mpsc::channel::<()>(1);
        let (chunk, counted, receiver) = (Bytes::from(first.clone()), made.clone(), Mutex::new(Some(receiver)));
        let make: Make = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let held = receiver.lock().expect("not poisoned").take();
            let wait = stream::once(async move {
                if let Some(mut held) = held {
                    held.recv().await;
                }
                Ok(Bytes::from_static(b"end"))
            });
            let chunks = stream::iter([chunk.clone(), Bytes::from_static(b"middle")]).map(Ok).chain(wait).boxed();
            Box::pin(async move { Ok(Content { total: 7, chunks }) })
        });
        let export = setup.get(1, &make).await.expect("no error").expect("an export");
        damage(&setup, |bytes| bytes[400_000] ^= 1);
        let going_on = async {
            tokio::task::yield_now().await;
            drop(sender);
        };
        let (body, ()) = tokio::join!(read(export.whole()), going_on);
        assert!(body.expect("a body") == [&first[..], b"middle", b"end"].concat());
        assert_eq!(made.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn processes_side_by_side_leave_each_other_alone_and_clear_what_the_dead_left() {
        let setup = setup(100, HOUR);
        let root = setup.root.path().join("exports");
        let (make, _) = chunks(&[b"bytes"]);
        setup.read(1, &make).await.expect("kept");
        let dead = root.join("process-dead");
        std::fs::create_dir(&dead).expect("created");
        std::fs::write(dead.join("lock"), "").expect("written");
        std::fs::write(dead.join("1.part"), "half").expect("written");

        let other = Exports::new(Scratch::create(&root).expect("a second one"), 100, &NO_SHARES);
        assert!(!dead.exists());
        assert_eq!(setup.files(), [5]);
        let own = other.shared.directory.path().to_owned();
        assert!(own.exists() && own != setup.exports.shared.directory.path());
        drop(other);
        assert!(!own.exists());
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"bytes"[..]));
    }
}
