//! The first entities of all groups of a version, in the cache ([`GroupRepresentatives`]), built by the first `dedup`
//! of a whole version. Later requests, such as the next page of the same `dedup`, read positions from the cache instead
//! of grouping the version again. If other nodes scan parts of the version, [`FillDistinctCacheOperator`] collects
//! their results.
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
use strata_format::aux_index::{AuxIndex, AuxKey, GroupRepresentatives};
use strata_format::reader::VersionReader;
use strata_json::EntityHash;
use strata_store::StorageError;

use crate::scan::aux_index_build;
use crate::scan::dedup_key_source::DedupKeyCodes;
use crate::scan::dedup_spec::DedupSpec;
use crate::unary_exec::{OperatorInput, UnaryOperator};

/// If group keys are numbers below this limit, a bitmap marks the keys that were seen; otherwise, a hash table.
const MAX_BITMAP_CODES: u64 = 1 << 24;
/// Bytes of a numeric code in a hash table that has just grown. `KEY_ENTRY_BYTES` is the same for a binary key.
const CODE_ENTRY_BYTES: u64 = 24;
const KEY_ENTRY_BYTES: u64 = 80;
const YIELD_EVERY_ROWS: usize = 32_768;

pub(crate) async fn cached_first_entities(
    reader: &VersionReader,
    spec: &DedupSpec,
) -> Option<Arc<GroupRepresentatives>> {
    reader.cached_aux_index(AuxKey::for_group_representatives(&spec.cache_key_text())).await.into_hit()
}

pub(super) async fn build_first_entities(
    reader: &VersionReader,
    spec: &DedupSpec,
    codes: Option<DedupKeyCodes<'_>>,
    keys: impl Stream<Item = Result<ArrayRef, StorageError>> + Send,
    memory: &MemoryReservation,
) -> Result<Option<Arc<GroupRepresentatives>>, StorageError> {
    let entities = reader.entity_count();
    let table_bytes = match &codes {
        Some(codes) if codes.key_limit <= MAX_BITMAP_CODES => codes.key_limit / 8,
        Some(codes) => codes.key_limit.min(entities).saturating_mul(CODE_ENTRY_BYTES),
        None => entities.saturating_mul(KEY_ENTRY_BYTES),
    };
    let find = async {
        let bits = match codes {
            Some(codes) => mark_first_entities_by_code(&codes, entities as usize).await,
            None => mark_first_entities_by_key(keys, entities as usize).await?,
        };
        Ok(Some(GroupRepresentatives::from_bits(bits.build())))
    };
    let working_bytes = table_bytes.saturating_add(entities / 8);
    let key = AuxKey::for_group_representatives(&spec.cache_key_text());
    Ok(aux_index_build::build_or_wait(reader, key, working_bytes, memory, find).await?.into_hit())
}

async fn mark_first_entities_by_code(codes: &DedupKeyCodes<'_>, entities: usize) -> BooleanBufferBuilder {
    let mut bits = BooleanBufferBuilder::new(entities);
    let mut bitmap =
        vec![0_u64; if codes.key_limit <= MAX_BITMAP_CODES { codes.key_limit as usize / 64 + 1 } else { 0 }];
    let mut table: HashSet<u64, RandomState> = HashSet::default();
    for start in (0..entities).step_by(YIELD_EVERY_ROWS) {
        tokio::task::yield_now().await;
        let positions = start..entities.min(start + YIELD_EVERY_ROWS);
        codes.for_each_key(positions, |_, code| {
            let bit = 1 << (code % 64);
            bits.append(match bitmap.get_mut(code as usize / 64) {
                Some(word) => std::mem::replace(word, *word | bit) & bit == 0,
                None => table.insert(code),
            });
        });
    }
    bits
}

async fn mark_first_entities_by_key(
    keys: impl Stream<Item = Result<ArrayRef, StorageError>> + Send,
    entities: usize,
) -> Result<BooleanBufferBuilder, StorageError> {
    let mut bits = BooleanBufferBuilder::new(entities);
    let mut seen: HashSet<EntityHash, RandomState> = HashSet::default();
    let mut keys = std::pin::pin!(keys);
    let damaged = || StorageError::InvalidFile("a group key has an unexpected length".to_owned());
    while let Some(keys) = keys.try_next().await? {
        for key in keys.as_binary::<i32>().iter() {
            let key = key.and_then(|key| key.try_into().ok()).ok_or_else(damaged)?;
            bits.append(seen.insert(key));
        }
    }
    Ok(bits)
}

/// Caches the first entities of all `dedup` groups of a version. The input plan yields their positions in any order.
#[derive(Clone, Debug)]
pub struct FillDistinctCacheOperator {
    pub(super) reader: VersionReader,
    pub(super) groups: DedupSpec,
    pub(super) position_column: usize,
}

impl UnaryOperator for FillDistinctCacheOperator {
    const NAME: &'static str = "KeepFirsts";

    fn execute(&self, input: OperatorInput<'_>) -> EngineResult<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new("first entities of groups").register(input.context.memory_pool());
        let collector = FirstEntityCollector::new(self.clone(), memory);
        let batches = input.execute()?;
        let batches = futures::stream::try_unfold((batches, collector), |(mut batches, mut collector)| async move {
            match batches.next().await.transpose()? {
                Some(batch) => {
                    collector.mark_entities(&batch);
                    Ok(Some((batch, (batches, collector))))
                }
                None => {
                    collector.store_in_cache().await;
                    Ok(None)
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(input.schema, batches)))
    }
}

struct FirstEntityCollector {
    operator: FillDistinctCacheOperator,
    /// One bit for each entity of the version. `None` if there is no memory, or if the cache cannot contain the result.
    first_entity_bits: Option<BooleanBufferBuilder>,
    _memory: MemoryReservation,
}

impl FirstEntityCollector {
    fn new(operator: FillDistinctCacheOperator, memory: MemoryReservation) -> FirstEntityCollector {
        let entities = operator.reader.entity_count() as usize;
        let has_memory = memory.try_grow(entities / 8 + 1).is_ok();
        let bits =
            (has_memory && operator.reader.can_cache_index(GroupRepresentatives::MAX_BYTES_PER_ENTITY)).then(|| {
                let mut bits = BooleanBufferBuilder::new(entities);
                bits.append_n(entities, false);
                bits
            });
        FirstEntityCollector { operator, first_entity_bits: bits, _memory: memory }
    }

    fn mark_entities(&mut self, batch: &RecordBatch) {
        let Some(bits) = &mut self.first_entity_bits else { return };
        let positions = batch.column(self.operator.position_column).as_primitive::<UInt64Type>().values();
        if positions.iter().all(|position| *position < bits.len() as u64) {
            positions.iter().for_each(|position| bits.set_bit(*position as usize, true));
        } else {
            self.first_entity_bits = None;
        }
    }

    async fn store_in_cache(&mut self) {
        let Some(bits) = self.first_entity_bits.take() else { return };
        let key = AuxKey::for_group_representatives(&self.operator.groups.cache_key_text());
        let representatives = async { Ok(Some(GroupRepresentatives::from_bits(bits.build()))) };
        // If the cache rejects the group representatives, the next query computes them again.
        let _ = self.operator.reader.build_aux_index(key, Box::pin(representatives)).await;
    }
}
