//! The first entity of every group of a version, in the cache ([`Firsts`]). The first `dedup` of a whole version builds
//! it, and later ones only read it. If other nodes scan parts of the version, [`KeepFirsts`] collects their results.
//!
//! Measured by the rows `dedup …` of `benches/reads`.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanBufferBuilder, RecordBatch};
use arrow::datatypes::UInt64Type;
use datafusion::error::Result as EngineResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use foldhash::fast::RandomState;
use futures::{Stream, StreamExt, TryStreamExt};
use strata_format::aux_index::{AuxIndex, AuxKey, Firsts};
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::operator::{Input, Operator};
use crate::scan::aux_index;
use crate::scan::dedup_key::GroupSpec;
use crate::scan::dedup_source::GroupCodes;

/// If codes are below this, a bitmap marks those that have been seen, otherwise a hash table.
const MAX_BITMAP_CODES: u64 = 1 << 24;

/// Bytes of a code and of a key in a hash table that has just grown.
const CODE_BYTES: u64 = 24;
const KEY_BYTES: u64 = 80;

/// Rows that are processed between two yields.
const YIELD_EVERY_ROWS: usize = 32_768;

/// The first entities of these groups, if the cache contains them.
pub(crate) async fn lookup(reader: &VersionReader, groups: &GroupSpec) -> Option<Arc<Firsts>> {
    reader.aux_index(AuxKey::firsts(&groups.name())).await.hit()
}

/// Finds the first entities of these groups by their codes, or by the keys of each row group.
pub(super) async fn build(
    reader: &VersionReader,
    groups: &GroupSpec,
    codes: Option<GroupCodes<'_>>,
    keys: impl Stream<Item = Result<ArrayRef, StorageError>> + Send,
    memory: &MemoryReservation,
) -> Result<Option<Arc<Firsts>>, StorageError> {
    let entities = reader.entity_count();
    let seen_bytes = match &codes {
        Some(codes) if codes.space <= MAX_BITMAP_CODES => codes.space / 8,
        Some(codes) => codes.space.min(entities).saturating_mul(CODE_BYTES),
        None => entities.saturating_mul(KEY_BYTES),
    };
    let find = async {
        let bits = match codes {
            Some(codes) => by_codes(&codes, entities as usize).await,
            None => by_keys(keys, entities as usize).await?,
        };
        Ok(Some(Firsts::of(bits.build())))
    };
    let working_bytes = seen_bytes.saturating_add(entities / 8);
    let key = AuxKey::firsts(&groups.name());
    Ok(aux_index::build(reader, key, working_bytes, memory, find).await?.hit())
}

async fn by_codes(codes: &GroupCodes<'_>, entities: usize) -> BooleanBufferBuilder {
    let mut bits = BooleanBufferBuilder::new(entities);
    let mut bitmap = vec![0_u64; if codes.space <= MAX_BITMAP_CODES { codes.space as usize / 64 + 1 } else { 0 }];
    let mut table: HashSet<u64, RandomState> = HashSet::default();
    for start in (0..entities).step_by(YIELD_EVERY_ROWS) {
        tokio::task::yield_now().await;
        let positions = start..entities.min(start + YIELD_EVERY_ROWS);
        codes.each(positions, |_, code| {
            let bit = 1 << (code % 64);
            bits.append(match bitmap.get_mut(code as usize / 64) {
                Some(word) => std::mem::replace(word, *word | bit) & bit == 0,
                None => table.insert(code),
            });
        });
    }
    bits
}

async fn by_keys(
    keys: impl Stream<Item = Result<ArrayRef, StorageError>> + Send,
    entities: usize,
) -> Result<BooleanBufferBuilder, StorageError> {
    let mut bits = BooleanBufferBuilder::new(entities);
    let mut seen: HashSet<[u8; 32], RandomState> = HashSet::default();
    let mut keys = std::pin::pin!(keys);
    while let Some(keys) = keys.try_next().await? {
        for key in keys.as_binary::<i32>().iter() {
            let key = key.and_then(|key| key.try_into().ok());
            let key = key.ok_or_else(|| StorageError::Layout("a group key has an unexpected length".to_owned()))?;
            bits.append(seen.insert(key));
        }
    }
    Ok(bits)
}

/// Caches the first entities of all groups of a version, whose positions its input returns in any order.
#[derive(Clone, Debug)]
pub struct KeepFirsts {
    pub(super) reader: VersionReader,
    pub(super) groups: GroupSpec,
    pub(super) positions: usize,
}

impl Operator for KeepFirsts {
    const NAME: &'static str = "KeepFirsts";

    fn execute(&self, input: Input<'_>) -> EngineResult<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new("first entities of groups").register(input.context.memory_pool());
        let collector = Collector::new(self.clone(), memory);
        let batches = input.execute()?;
        let batches = futures::stream::try_unfold((batches, collector), |(mut batches, mut collector)| async move {
            match batches.next().await.transpose()? {
                Some(batch) => {
                    collector.add(&batch);
                    Ok(Some((batch, (batches, collector))))
                }
                None => {
                    collector.finish().await;
                    Ok(None)
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(input.schema, batches)))
    }
}

struct Collector {
    keep: KeepFirsts,
    /// A bit for each entity. `None` if there is no memory, or if the cache cannot contain the result.
    bits: Option<BooleanBufferBuilder>,
    _memory: MemoryReservation,
}

impl Collector {
    fn new(keep: KeepFirsts, memory: MemoryReservation) -> Collector {
        let entities = keep.reader.entity_count() as usize;
        let has_memory = memory.try_grow(entities / 8 + 1).is_ok();
        let bits = (has_memory && keep.reader.can_cache(Firsts::ENTITY_BYTES)).then(|| {
            let mut bits = BooleanBufferBuilder::new(entities);
            bits.append_n(entities, false);
            bits
        });
        Collector { keep, bits, _memory: memory }
    }

    fn add(&mut self, batch: &RecordBatch) {
        let Some(bits) = &mut self.bits else { return };
        let positions = batch.column(self.keep.positions).as_primitive::<UInt64Type>().values();
        if positions.iter().all(|position| *position < bits.len() as u64) {
            positions.iter().for_each(|position| bits.set_bit(*position as usize, true));
        } else {
            self.bits = None;
        }
    }

    async fn finish(&mut self) {
        let Some(bits) = self.bits.take() else { return };
        let key = AuxKey::firsts(&self.keep.groups.name());
        let found = async { Ok(Some(Firsts::of(bits.build()))) };
        // If the cache rejects the result, the next query computes it again.
        let _ = self.keep.reader.build_aux_index(key, Box::pin(found)).await;
    }
}
