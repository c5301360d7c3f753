//! The fields of unmatched entities as numbers, by which pairs are compared.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use strata_query::QueryError;
use strata_query::account::Accounted;
use strata_query::fields::chosen::Chosen;
use strata_query::fields::row_group::RowFeatures;
use strata_query::fields::rows;
use strata_query::fields::scan::Wanted;
use strata_query::fields::values::Feature;
use strata_query::tasks;
use strata_store::StorageError;

use super::weights::Weights;
use super::{Session, by_row_group};

/// Stands for the start of features that have not come.
const MISSING: u64 = u64::MAX;

/// The features of entities of one version, each entity's by rank.
pub(super) struct Features {
    features: Accounted<Feature>,
    /// For each entity, in the order in which they were asked for, where its features start and how many they are.
    spans: Accounted<(u64, u32)>,
}

impl Features {
    /// Those of the entities at these positions, in whatever order. Other nodes may help to read them.
    pub(super) async fn read(
        session: &Session,
        version: usize,
        positions: &[u64],
        weights: &Weights,
    ) -> Result<Features, QueryError> {
        let mut order = Accounted::new(&session.reservation);
        order.extend(positions.iter().copied().enumerate().map(|(place, position)| (position, place)))?;
        order.items_mut().sort_unstable();
        let order = Arc::new(order);
        let chosen = Chosen::Positions(version, order.clone());
        let wanted = Wanted::Features(weights.ranks.clone());
        match session.helped(chosen, wanted, |batches| Features::collect(session, &order, batches)).await {
            Some(features) => Ok(features),
            None => Features::read_here(session, version, &order, weights).await,
        }
    }

    fn none(session: &Session, entities: usize) -> Result<Features, QueryError> {
        Ok(Features {
            features: Accounted::new(&session.reservation),
            spans: Accounted::filled((MISSING, 0), entities, &session.reservation)?,
        })
    }

    /// Those that nodes give of the entities of these positions and places.
    async fn collect(
        session: &Session,
        order: &[(u64, usize)],
        mut batches: SendableRecordBatchStream,
    ) -> Result<Features, QueryError> {
        let mut all = Features::none(session, order.len())?;
        while let Some(batch) = batches.try_next().await? {
            for row in rows::feature_rows(&batch) {
                let (position, features) = row?;
                let found = order.binary_search_by_key(&position, |(position, _)| *position);
                let place = order[found.map_err(|_| other_entities())?].1;
                let span = (all.features.len() as u64, features.len() as u32);
                if std::mem::replace(&mut all.spans.items_mut()[place], span).0 != MISSING {
                    return Err(other_entities());
                }
                all.features.extend(features)?;
            }
        }
        if all.spans.iter().any(|(start, _)| *start == MISSING) { Err(other_entities()) } else { Ok(all) }
    }

    async fn read_here(
        session: &Session,
        version: usize,
        order: &Arc<Accounted<(u64, usize)>>,
        weights: &Weights,
    ) -> Result<Features, QueryError> {
        let jobs: Vec<_> = by_row_group(&session.readers[version], order, |(position, _)| *position).collect();
        let mut all = Features::none(session, order.len())?;
        let works: Vec<_> = jobs
            .iter()
            .cloned()
            .map(|(row_group, places)| {
                let session = session.clone();
                let order = order.clone();
                let ranks = weights.ranks.clone();
                async move {
                    let reader = &session.readers[version];
                    let first = reader.row_groups()[row_group].first;
                    let rows = order[places].iter().map(|(position, _)| (position - first) as usize);
                    RowFeatures::read(reader, row_group, rows, &ranks, session.seeds, &session.reservation).await
                }
            })
            .collect();
        let works = works.into_iter();
        let mut parts = tasks::in_order(works, session.engine.threads());
        for (_, places) in jobs {
            let Some(RowFeatures { features, lengths }) = parts.try_next().await? else { break };
            let mut start = all.features.len() as u64;
            for ((_, place), length) in order[places].iter().zip(lengths) {
                all.spans.items_mut()[*place] = (start, length);
                start += u64::from(length);
            }
            all.features.extend(features.iter().copied())?;
        }
        Ok(all)
    }

    #[inline]
    pub(super) fn features_of(&self, entity: usize) -> &[Feature] {
        let (start, length) = self.spans[entity];
        &self.features[start as usize..start as usize + length as usize]
    }
}

fn other_entities() -> QueryError {
    StorageError::Layout("other nodes returned the fields of the wrong entities".to_owned()).into()
}
