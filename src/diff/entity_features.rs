//! Reads the fields of unmatched entities as sorted numbers, so that a merge finds the equal fields of two entities.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use strata_query::QueryError;
use strata_query::fields::entity_counts::DiffEntityCounts;
use strata_query::fields::field_hash::FieldFeature;
use strata_query::fields::field_scan::FieldScanOutput;
use strata_query::fields::record_rows;
use strata_query::fields::row_group_fields::RowFeatures;
use strata_query::tasks;
use strata_query::tracked_vec::TrackedVec;
use strata_store::StorageError;

use super::field_weights::FieldWeights;
use super::{DiffSession, group_by_row_group};

/// Marks an entity whose features have not been read yet, in place of the start of its features.
const MISSING_START: u64 = u64::MAX;

/// The features (field values) of entities of one version. An entity's features are ordered by the rank of their field.
pub(super) struct EntityFeatures {
    features: TrackedVec<FieldFeature>,
    /// For each requested entity, the start of its features and their number.
    spans: TrackedVec<(u64, u32)>,
}

impl EntityFeatures {
    /// Reads features of the entities at `positions`, which can have any order. Other nodes can read some of them.
    pub(super) async fn read(
        session: &DiffSession,
        version: usize,
        positions: &[u64],
        weights: &FieldWeights,
    ) -> Result<EntityFeatures, QueryError> {
        let mut order = TrackedVec::new(&session.reservation);
        order.try_extend(positions.iter().copied().enumerate().map(|(index, position)| (position, index)))?;
        order.as_mut_slice().sort_unstable();
        let order = Arc::new(order);
        let entities = DiffEntityCounts::Positions(version, order.clone());
        let output = FieldScanOutput::Features(weights.ranks.clone());
        let collect = |batches| EntityFeatures::collect_remote_features(session, &order, batches);
        match session.run_distributed(entities, output, collect).await {
            Some(features) => Ok(features),
            None => EntityFeatures::read_local(session, version, &order, weights).await,
        }
    }

    fn with_missing_spans(session: &DiffSession, entities: usize) -> Result<EntityFeatures, QueryError> {
        Ok(EntityFeatures {
            features: TrackedVec::new(&session.reservation),
            spans: TrackedVec::from_elem((MISSING_START, 0), entities, &session.reservation)?,
        })
    }

    /// Collects the features from batches of other nodes. `order` contains each requested position with its index in
    /// the request, sorted by position.
    async fn collect_remote_features(
        session: &DiffSession,
        order: &[(u64, usize)],
        mut batches: SendableRecordBatchStream,
    ) -> Result<EntityFeatures, QueryError> {
        let mut all = EntityFeatures::with_missing_spans(session, order.len())?;
        while let Some(batch) = batches.try_next().await? {
            for row in record_rows::decode_feature_rows(&batch) {
                let (position, features) = row?;
                let found = order.binary_search_by_key(&position, |(position, _)| *position);
                let index = order[found.map_err(|_| remote_mismatch_error())?].1;
                let span = (all.features.len() as u64, features.len() as u32);
                if std::mem::replace(&mut all.spans.as_mut_slice()[index], span).0 != MISSING_START {
                    return Err(remote_mismatch_error());
                }
                all.features.try_extend(features)?;
            }
        }
        if all.spans.iter().any(|(start, _)| *start == MISSING_START) { Err(remote_mismatch_error()) } else { Ok(all) }
    }

    async fn read_local(
        session: &DiffSession,
        version: usize,
        order: &Arc<TrackedVec<(u64, usize)>>,
        weights: &FieldWeights,
    ) -> Result<EntityFeatures, QueryError> {
        let groups: Vec<_> = group_by_row_group(&session.readers[version], order, |(position, _)| *position).collect();
        let mut all = EntityFeatures::with_missing_spans(session, order.len())?;
        let reads: Vec<_> = groups
            .iter()
            .cloned()
            .map(|(row_group, range)| {
                let session = session.clone();
                let order = order.clone();
                let ranks = weights.ranks.clone();
                async move {
                    let reader = &session.readers[version];
                    let first = reader.row_groups()[row_group].first_position;
                    let rows = order[range].iter().map(|(position, _)| (position - first) as usize);
                    RowFeatures::read(reader, row_group, rows, &ranks, session.seeds, &session.reservation).await
                }
            })
            .collect();
        let mut results = tasks::run_in_order(reads.into_iter(), session.engine.threads());
        for (_, range) in groups {
            let Some(RowFeatures { features, feature_counts }) = results.try_next().await? else { break };
            let mut start = all.features.len() as u64;
            for ((_, index), count) in order[range].iter().zip(feature_counts) {
                all.spans.as_mut_slice()[*index] = (start, count);
                start += u64::from(count);
            }
            all.features.try_extend(features.iter().copied())?;
        }
        Ok(all)
    }

    #[inline]
    pub(super) fn features_of(&self, entity: usize) -> &[FieldFeature] {
        let (start, length) = self.spans[entity];
        &self.features[start as usize..start as usize + length as usize]
    }
}

fn remote_mismatch_error() -> QueryError {
    StorageError::InvalidFile("other nodes returned the fields of the wrong entities".to_owned()).into()
}
