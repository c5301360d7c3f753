//! Decodes a document into a spool of entities, on threads of its own.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};

use sha2::{Digest, Sha256};
use strata_format::spool::Spool;
use strata_ingest::{
    self as source, Decode, DecodeOptions, EnvelopeFields, ExpansionLimits, Progress, SourceError, SourceInput,
};
use strata_runtime::priority::Work;
use strata_store::StorageError;
use strata_store::budget::SpoolCharge;
use tokio_util::sync::CancellationToken;

use crate::locked;
use crate::refresh::error::RefreshError;
use crate::refresh::ingest::{Decoded, Document, Ingest, RefreshPermit};
use crate::refresh::tasks::on_thread;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshStage {
    /// The refresh waits for the source or for a permit.
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

/// The progress of creating a version: decoding the source, then writing the file.
#[derive(Debug, Default)]
pub struct ImportProgress {
    pub(crate) stage: Mutex<RefreshStage>,
    /// Counts the received bytes, if the source has to be received first.
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

    /// Enters the stage in which the source is received and counted.
    pub(crate) fn receives(&self, received: Progress) {
        self.enter(RefreshStage::Receiving);
        // A refresh receives one source.
        let _ = self.received.set(received);
    }
}

/// The size of the blocks of lines that the decoding thread sends to the spooling thread.
const BLOCK_BYTES: usize = 1 << 20;

impl Ingest {
    /// Decodes a document into a spool, on a thread that starts at once and has the permit until it ends. Dropping the
    /// future ends the work.
    pub(crate) fn decode(
        &self,
        document: Document,
        permit: &RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> impl Future<Output = Result<Decoded, RefreshError>> + Send + use<> {
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
        let directory = options.spool_directory.clone();
        let progress = progress.clone();
        let ended = end.clone();
        let Document { input, envelope, charge, .. } = document;
        let permit = permit.clone();
        let work = move || {
            let _permit = permit;
            let open = |input| match envelope {
                None => source::open(input, &options).map(|(decoder, _)| (decoder, None)),
                Some(members) => {
                    source::open_push(input, &options, members).map(|(decoder, fields)| (decoder, Some(fields)))
                }
            };
            decode(input, open, &directory, charge, &progress, &ended)
        };
        let decoded = on_thread("decode", work);
        let end = end.drop_guard();
        async move {
            let _end = end;
            decoded.await?
        }
    }
}

fn fill_block(decoder: &mut dyn Decode, block: &mut Vec<u8>) -> Result<bool, SourceError> {
    while block.len() < BLOCK_BYTES {
        if !decoder.next(block)? {
            return Ok(false);
        }
        block.push(b'\n');
    }
    Ok(true)
}

/// Decodes a source into a spool. A second thread decodes and hashes, which takes about as long as the profile.
fn decode(
    input: SourceInput,
    open: impl FnOnce(SourceInput) -> Result<(Box<dyn Decode>, Option<EnvelopeFields>), SourceError>,
    directory: &Path,
    charge: SpoolCharge,
    progress: &ImportProgress,
    ended: &CancellationToken,
) -> Result<Decoded, RefreshError> {
    let read: Progress = input.progress();
    progress.bytes_total.store(read.total_bytes().unwrap_or(0), Ordering::Relaxed);
    let mut spool = Spool::create(directory, charge)?;
    let (mut decoder, fields) = open(input)?;
    let (blocks, received) = sync_channel::<Vec<u8>>(2);
    let (hash, mut warnings) = std::thread::scope(|scope| {
        let decode = move || -> Result<(Sha256, Vec<String>), SourceError> {
            let mut work = Work::default();
            let mut hash = Sha256::new();
            loop {
                let mut block = Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 8);
                let more = fill_block(&mut *decoder, &mut block)?;
                work.add(block.len() as u64);
                hash.update(&block);
                // The receiver is gone only after it failed, and its error is the one that is reported.
                if blocks.send(block).is_err() || !more {
                    return Ok((hash, decoder.warnings().to_vec()));
                }
            }
        };
        let decoding = std::thread::Builder::new().spawn_scoped(scope, decode).map_err(StorageError::Io)?;
        let mut work = Work::default();
        let spooled = received.into_iter().try_for_each(|block| -> Result<(), RefreshError> {
            work.add(block.len() as u64);
            if ended.is_cancelled() {
                return Err(RefreshError::Stopping);
            }
            spool.add_hashed_lines(&block)?;
            progress.bytes_read.store(read.read_bytes(), Ordering::Relaxed);
            progress.entities_decoded.store(spool.entities(), Ordering::Relaxed);
            Ok(())
        });
        let decoded = decoding.join().map_err(|_| RefreshError::Worker)??;
        spooled.map(|()| decoded)
    })?;
    // An empty version is valid, but often a mistake of the program that creates the source.
    if spool.entities() == 0 {
        warnings.push("The source contains no entities, so the version is empty.".to_owned());
    }
    Ok(Decoded { spooled: spool.finish_with(hash)?, warnings, fields })
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
    use crate::{Purpose, Services};

    /// An endless array of spaces, which reports reads.
    struct Blanks {
        reads: mpsc::SyncSender<()>,
        begun: bool,
    }

    impl Read for Blanks {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
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
    async fn thread_of_dropped_decoding_has_permit_until_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.data.directory = directory.path().join("data");
        config.sources.concurrent = 1;
        let services = Services::open(&config, Purpose::Serve).await.expect("it opens");
        let ingest = &services.ingest;
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
        // The thread ends after the read that it waits for.
        let mut more = 0;
        while ingest.permits_held() == 1 {
            more += u32::from(read.recv_timeout(Duration::from_millis(10)).is_ok());
            assert!(more < 1_000, "it goes on for nobody");
        }
        assert!(ingest.permit(UserId::new(2)).await.is_ok());
    }
}
