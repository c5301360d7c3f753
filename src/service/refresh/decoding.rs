//! A document to a spool of entities.
//!
//! Decoding runs on a thread of its own, which keeps the permit that it works in until it ends. Dropping what waits for
//! it ends it early.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};

use futures::FutureExt;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};
use strata_format::spool::{Spool, Spooled};
use strata_ingest::{
    self as source, Decode, DecodeOptions, EnvelopeFields, ExpansionLimits, Progress, SourceError, SourceInput,
};
use strata_runtime::priority::Work;
use strata_store::StorageError;
use strata_store::budget::SpoolCharge;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::locked;
use crate::refresh::error::RefreshError;
use crate::refresh::ingest::{Document, Ingest, RefreshPermit};
use crate::refresh::tasks::on_thread;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshStage {
    /// It asks the source, or waits for its turn.
    #[default]
    Waiting,
    /// The source, or the body, comes.
    Receiving,
    Decoding,
    Writing,
    Publishing,
}

impl RefreshStage {
    pub fn name(self) -> &'static str {
        match self {
            RefreshStage::Waiting => "waiting",
            RefreshStage::Receiving => "receiving",
            RefreshStage::Decoding => "decoding",
            RefreshStage::Writing => "writing",
            RefreshStage::Publishing => "publishing",
        }
    }
}

/// How far the making of a version is. Two phases: decoding the source, then writing the file.
#[derive(Debug, Default)]
pub struct ImportProgress {
    pub(crate) stage: Mutex<RefreshStage>,
    /// Counts the bytes that have come, where the source has to be received first.
    pub(crate) received: OnceLock<Progress>,
    pub bytes_read: AtomicU64,
    /// Bytes of the source; 0 while unknown.
    pub bytes_total: AtomicU64,
    pub entities_decoded: AtomicU64,
    pub entities_written: AtomicU64,
}

impl ImportProgress {
    pub(crate) fn enter(&self, stage: RefreshStage) {
        *locked(&self.stage) = stage;
    }

    /// The source begins to come, and this counts it.
    pub(crate) fn receives(&self, received: Progress) {
        self.enter(RefreshStage::Receiving);
        // A refresh receives one source.
        let _ = self.received.set(received);
    }
}

pub(crate) struct Decoded {
    pub spooled: Spooled,
    pub warnings: Vec<String>,
}

pub(crate) struct Decoding {
    work: BoxFuture<'static, Result<Result<Decoded, RefreshError>, RefreshError>>,
    begun: oneshot::Receiver<EnvelopeFields>,
    _end: DropGuard,
}

impl Decoding {
    /// The members of the envelope before the entities, once known; `None` if there is no envelope, or none was begun.
    pub(crate) async fn fields(&mut self) -> Option<EnvelopeFields> {
        (&mut self.begun).await.ok()
    }

    pub(crate) async fn finish(self) -> Result<Decoded, RefreshError> {
        self.work.await?
    }
}

/// Lines handed from the decoding thread to the spooling one at a time.
const BLOCK_BYTES: usize = 1 << 20;

impl Ingest {
    /// Starts decoding a document into a spool, which holds the permit until it ends.
    pub(crate) fn decode(
        &self,
        document: Document,
        permit: &RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Decoding {
        let sources = &self.config.sources;
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let end = CancellationToken::new();
        let options = DecodeOptions {
            format: document.format,
            records_path: document.records_path,
            infer_types: document.infer_types,
            fetched_from: document.fetched_from,
            entity_limit_bytes: number(self.config.limits.entity_bytes),
            source_limit_bytes: sources.max_bytes,
            expansion: ExpansionLimits { times: sources.max_expansion, free_bytes: sources.free_expansion_bytes },
            zstd_window_bytes: sources.zstd_window_bytes,
            columns_max: number(sources.max_columns),
            parquet_memory_bytes: sources.parquet_memory_bytes,
            spool_directory: self.scratch.restored_path().to_owned(),
            spool_account: document.charge.account(),
            cancelled: end.clone(),
            ..DecodeOptions::default()
        };
        let (begin, begun) = oneshot::channel();
        let (directory, progress, ended) = (self.scratch.restored_path().to_owned(), progress.clone(), end.clone());
        let (input, envelope, charge) = (document.input, document.envelope, document.charge);
        let permit = permit.clone();
        let work = move || {
            let _permit = permit;
            let open = |input| match envelope {
                None => source::open(input, &options).map(|(decoder, _)| (decoder, None)),
                Some(members) => source::open_push(input, &options, members)
                    .map(|(decoder, fields)| (decoder, Some((begin, fields)))),
            };
            decode(input, open, &directory, charge, &progress, &ended)
        };
        Decoding { work: on_thread("decode", work).boxed(), begun, _end: end.drop_guard() }
    }
}

type Begin = (oneshot::Sender<EnvelopeFields>, EnvelopeFields);

fn fill_block(decoder: &mut dyn Decode, block: &mut Vec<u8>) -> Result<bool, SourceError> {
    while block.len() < BLOCK_BYTES {
        if !decoder.next(block)? {
            return Ok(false);
        }
        block.push(b'\n');
    }
    Ok(true)
}

/// Decodes a source into a spool: the decoder on a thread of its own, unless it ends soon; the profile on this one.
fn decode(
    input: SourceInput,
    open: impl FnOnce(SourceInput) -> Result<(Box<dyn Decode>, Option<Begin>), SourceError>,
    directory: &Path,
    charge: SpoolCharge,
    progress: &ImportProgress,
    ended: &CancellationToken,
) -> Result<Decoded, RefreshError> {
    let read: Progress = input.progress();
    progress.bytes_total.store(read.total_bytes().unwrap_or(0), Ordering::Relaxed);
    let mut spool = Spool::create(directory, charge)?;
    let mut work = Work::default();
    let mut add = |block: &[u8], add: fn(&mut Spool, &[u8]) -> Result<(), StorageError>| -> Result<(), RefreshError> {
        work.add(block.len() as u64);
        if ended.is_cancelled() {
            return Err(RefreshError::Stopping);
        }
        add(&mut spool, block)?;
        progress.bytes_read.store(read.read_bytes(), Ordering::Relaxed);
        progress.entities_decoded.store(spool.entities(), Ordering::Relaxed);
        Ok(())
    };
    let (mut decoder, begin) = open(input)?;
    let mut first = Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 8);
    let more = decoder.next(&mut first);
    if let Some((begin, fields)) = begin {
        // The waiting task may have ended.
        let _ = begin.send(fields);
    }
    let mut more = more?;
    if more {
        first.push(b'\n');
        more = fill_block(&mut *decoder, &mut first)?;
    }
    // What ends in its first block is not worth a further thread.
    if !more {
        add(&first, Spool::add_lines)?;
        let mut warnings = decoder.warnings().to_vec();
        warnings.extend(no_entities(&spool));
        return Ok(Decoded { spooled: spool.finish()?, warnings });
    }
    let (blocks, received) = sync_channel::<Vec<u8>>(2);
    let (hash, warnings) = std::thread::scope(|scope| {
        let first = &first;
        // Decoding and hashing take about as long as the profile.
        let work = move || -> Result<(Sha256, Vec<String>), SourceError> {
            let (mut work, mut hash) = (Work::default(), Sha256::new());
            hash.update(first);
            loop {
                let mut block = Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 8);
                let more = fill_block(&mut *decoder, &mut block)?;
                work.add(block.len() as u64);
                hash.update(&block);
                // The other side is gone only when it failed; its error is the one that is reported.
                if blocks.send(block).is_err() || !more {
                    return Ok((hash, decoder.warnings().to_vec()));
                }
            }
        };
        let decoding = std::thread::Builder::new().spawn_scoped(scope, work).map_err(StorageError::Io)?;
        let mut add = |block: &[u8]| add(block, Spool::add_hashed_lines);
        let spooled = add(first).and_then(|()| received.into_iter().try_for_each(|block| add(&block)));
        let decoded = decoding.join().map_err(|_| RefreshError::Worker)??;
        spooled.map(|()| decoded)
    })?;
    Ok(Decoded { spooled: spool.finish_with(hash)?, warnings })
}

/// No entities are a valid version, and often a mistake of whatever makes the source.
fn no_entities(spool: &Spool) -> Option<String> {
    (spool.entities() == 0).then(|| "The source contains no entities, so the version is empty.".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::App;
    use strata_config::Config;
    use strata_types::ids::UserId;
    use strata_types::source::SourceFormat;

    /// An array of blanks without an end, which tells when it is read.
    struct Blanks {
        reads: mpsc::SyncSender<()>,
        begun: bool,
    }

    impl Read for Blanks {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            // Nobody takes it once the test is over.
            if self.reads.send(()).is_err() {
                return Ok(0);
            }
            buffer.fill(b' ');
            if !std::mem::replace(&mut self.begun, true) {
                buffer[0] = b'[';
            }
            Ok(buffer.len())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_whose_client_has_left_keeps_its_turn_until_it_ends_and_ends_soon() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.data.directory = directory.path().join("data");
        config.sources.concurrent = 1;
        let app = App::open(&config).await.expect("it opens");
        let ingest = app.ingest();
        let permit = ingest.permit(UserId::new(1)).await.expect("a permit");
        let (reads, read) = mpsc::sync_channel(0);
        let document = Document {
            format: Some(SourceFormat::Json),
            ..Document::new(SourceInput::stream(Blanks { reads, begun: false }))
        };
        let decoding = ingest.decode(document, &permit, &Arc::default());
        for _ in 0..3 {
            read.recv_timeout(Duration::from_secs(60)).expect("it reads");
        }
        drop((decoding, permit));
        assert_eq!(ingest.permits_held(), 1, "its thread still works, or waits for its source");
        // What it waits for comes, and is all that it takes; the rest need not.
        let mut more = 0;
        while ingest.permits_held() == 1 {
            more += u32::from(read.recv_timeout(Duration::from_millis(10)).is_ok());
            assert!(more < 1_000, "it goes on for nobody");
        }
        assert!(ingest.permit(UserId::new(2)).await.is_ok());
    }
}
