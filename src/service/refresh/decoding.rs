//! Decodes a source document into a spool of entities, on dedicated threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use strata_checks::CheckRun;
use strata_format::spool::SpoolWriter;
use strata_ingest::{
    self as source, DecodeOptions, EntityDecoder, EnvelopeFields, ExpansionLimits, ReadProgress, SourceError,
    SourceInput,
};
use strata_runtime::priority::ThreadWork;
use strata_store::StorageError;
use tokio_util::sync::CancellationToken;

use crate::refresh::checks::EntityChecks;
use crate::refresh::error::{RefreshError, Result};
use crate::refresh::ingest::{DecodedEntities, IngestService, RefreshPermit, SourceDocument};
use crate::refresh::tasks::run_on_thread;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshStage {
    /// The refresh waits for its source or for a permit.
    #[default]
    Waiting,
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

#[derive(Debug, Default)]
pub struct RefreshCounters {
    pub(crate) stage: Mutex<RefreshStage>,
    /// The number of received bytes, if the source is received completely before it is decoded.
    pub(crate) receive_progress: OnceLock<ReadProgress>,
    pub bytes_read: AtomicU64,
    /// The size of the source in bytes; 0 if unknown.
    pub bytes_total: AtomicU64,
    pub entities_decoded: AtomicU64,
    pub entities_written: AtomicU64,
}

impl RefreshCounters {
    pub(crate) fn enter_stage(&self, stage: RefreshStage) {
        *self.stage.lock() = stage;
    }

    pub(crate) fn start_receiving(&self, receive_progress: ReadProgress) {
        self.enter_stage(RefreshStage::Receiving);
        // A refresh receives only one source, so `receive_progress` is set only once.
        let _ = self.receive_progress.set(receive_progress);
    }
}

/// Size of the blocks of lines that the decoding thread sends to the spooling thread.
const DECODE_BLOCK_BYTES: usize = 1 << 20;

impl IngestService {
    /// Decodes a document on a new thread, which has a clone of the permit, and runs `checks` on the entities. To
    /// cancel the work, drop the future.
    pub(crate) fn decode(
        &self,
        document: SourceDocument,
        checks: Option<CheckRun>,
        permit: &RefreshPermit,
        progress: &Arc<RefreshCounters>,
    ) -> impl Future<Output = Result<DecodedEntities>> + Send + use<> {
        let sources = &self.config.sources;
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let cancellation = CancellationToken::new();
        let options = DecodeOptions {
            format: document.format,
            records_path: document.records_path,
            infer_types: document.infer_types,
            source_url: document.fetched_from,
            max_entity_bytes: number(self.config.limits.entity_bytes),
            max_source_bytes: sources.max_bytes,
            expansion_limits: ExpansionLimits {
                max_ratio: sources.max_expansion,
                free_bytes: sources.free_expansion_bytes,
            },
            zstd_window_bytes: sources.zstd_window_bytes,
            max_columns: number(sources.max_columns),
            parquet_memory_bytes: sources.parquet_memory_bytes,
            spool_directory: self.temp_dir.ensured_path().to_owned(),
            spool_account: document.disk_reservation.quota(),
            cancellation: cancellation.clone(),
            ..DecodeOptions::default()
        };
        let directory = options.spool_directory.clone();
        let progress = progress.clone();
        let work_cancellation = cancellation.clone();
        let SourceDocument { input, envelope_members, disk_reservation, .. } = document;
        let permit = permit.clone();
        let work = move || {
            let _permit = permit;
            let open = |input| match envelope_members {
                None => source::open_decoder(input, &options).map(|(decoder, _)| (decoder, None)),
                Some(members) => {
                    source::open_push_decoder(input, &options, members).map(|(decoder, fields)| (decoder, Some(fields)))
                }
            };
            let spool = SpoolWriter::create(&directory, disk_reservation)?;
            decode_into_spool(input, open, spool, checks, &progress, &work_cancellation)
        };
        let decoding = run_on_thread("decode", work);
        let guard = cancellation.drop_guard();
        async move {
            let _guard = guard;
            decoding.await?
        }
    }
}

fn try_fill_block(decoder: &mut dyn EntityDecoder, block: &mut Vec<u8>) -> Result<bool, SourceError> {
    while block.len() < DECODE_BLOCK_BYTES {
        if !decoder.next_entity(block)? {
            return Ok(false);
        }
        block.push(b'\n');
    }
    Ok(true)
}

/// Decodes a source into a spool. A second thread decodes and hashes while the calling thread computes the profile and
/// runs the checks.
fn decode_into_spool(
    input: SourceInput,
    open: impl FnOnce(SourceInput) -> Result<(Box<dyn EntityDecoder>, Option<EnvelopeFields>), SourceError>,
    mut spool: SpoolWriter,
    mut checks: Option<CheckRun>,
    progress: &RefreshCounters,
    cancellation: &CancellationToken,
) -> Result<DecodedEntities> {
    let read: ReadProgress = input.progress();
    progress.bytes_total.store(read.total_bytes().unwrap_or(0), Ordering::Relaxed);
    let (mut decoder, envelope_fields) = open(input)?;
    let (sender, receiver) = sync_channel::<Vec<u8>>(2);
    let (hash, mut warnings) = std::thread::scope(|scope| {
        let decode = move || -> Result<(Sha256, Vec<String>), SourceError> {
            let mut work = ThreadWork::default();
            let mut hash = Sha256::new();
            loop {
                let mut block = Vec::with_capacity(DECODE_BLOCK_BYTES + DECODE_BLOCK_BYTES / 8);
                let more = try_fill_block(&mut *decoder, &mut block)?;
                work.record_and_lower_priority(block.len() as u64);
                hash.update(&block);
                // If the receiver of the blocks is closed, the spooling thread has failed and reports the error.
                if sender.send(block).is_err() || !more {
                    return Ok((hash, decoder.warnings().to_vec()));
                }
            }
        };
        let decoding = std::thread::Builder::new().spawn_scoped(scope, decode).map_err(StorageError::Io)?;
        let mut work = ThreadWork::default();
        let spooled = receiver.into_iter().try_for_each(|block| -> Result<()> {
            work.record_and_lower_priority(block.len() as u64);
            if cancellation.is_cancelled() {
                return Err(RefreshError::Stopping);
            }
            spool.add_lines_without_hashing(&block)?;
            if let Some(checks) = &mut checks {
                checks.add_lines(&block)?;
            }
            progress.bytes_read.store(read.read_bytes(), Ordering::Relaxed);
            progress.entities_decoded.store(spool.entities(), Ordering::Relaxed);
            Ok(())
        });
        let decoded = decoding.join().map_err(|_| RefreshError::WorkerStopped)??;
        spooled.map(|()| decoded)
    })?;
    // An empty version is valid, but often a mistake in the source.
    if spool.entities() == 0 {
        warnings.push("The source contains no entities, so the version is empty.".to_owned());
    }
    let checks = checks.map(EntityChecks::Examined);
    Ok(DecodedEntities { spooled: spool.finish_with_hash(hash)?, warnings, envelope_fields, checks })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc;
    use std::time::Duration;

    use strata_config::Config;
    use strata_types::ids::UserId;
    use strata_types::source::SourceFormat;

    use super::*;
    use crate::{ProcessPurpose, Services};

    /// An endless JSON array of spaces, which reports each read to `reads`.
    struct EndlessSpaces {
        reads: mpsc::SyncSender<()>,
        has_begun: bool,
    }

    impl Read for EndlessSpaces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.reads.send(()).is_err() {
                return Ok(0);
            }
            buffer.fill(b' ');
            if !std::mem::replace(&mut self.has_begun, true) {
                buffer[0] = b'[';
            }
            Ok(buffer.len())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dropped_decoding_keeps_permit_until_thread_ends() {
        let directory = tempfile::tempdir().expect("failed to create directory");
        let mut config = Config::default();
        config.data.directory = directory.path().join("data");
        config.sources.concurrent = 1;
        let services = Services::open(&config, ProcessPurpose::Serve).await.expect("failed to open services");
        let ingest = &services.ingest;
        let permit = ingest.acquire_permit(UserId::new(1)).await.expect("failed to acquire permit");
        let (reads, read) = mpsc::sync_channel(0);
        let document = SourceDocument {
            format: Some(SourceFormat::Json),
            ..SourceDocument::new(SourceInput::from_reader(EndlessSpaces { reads, has_begun: false }))
        };
        let decoding = ingest.decode(document, None, &permit, &Arc::default());
        for _ in 0..3 {
            read.recv_timeout(Duration::from_secs(60)).expect("failed to wait for read");
        }
        drop((decoding, permit));
        assert_eq!(ingest.used_permits(), 1, "the thread still decodes or waits for its source");
        // The decoding thread ends after its current read.
        let mut reads_after_drop = 0;
        while ingest.used_permits() == 1 {
            reads_after_drop += u32::from(read.recv_timeout(Duration::from_millis(10)).is_ok());
            assert!(reads_after_drop < 1_000, "the thread continues after the drop");
        }
        assert!(ingest.acquire_permit(UserId::new(2)).await.is_ok());
    }
}
