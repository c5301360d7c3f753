//! The fields of unmatched entities as numbers, by which pairs are compared.

use std::sync::Arc;

use futures::TryStreamExt;

use super::account::Accounted;
use super::identity::SOURCE;
use super::session::Session;
use super::tasks;
use super::values::{HASH_BITS, ValueHasher};
use super::weights::Weights;
use crate::document;
use crate::query::QueryError;
use crate::query::fetch::pages::Pages;

/// A field of an entity: its rank in the highest bits, the hash of its value in the others. Features of one rank are
/// equal where the values are.
pub(super) type Feature = u128;

/// The rank of a feature's field.
#[inline]
pub(super) fn rank(feature: Feature) -> usize {
    (feature >> HASH_BITS) as usize
}

/// The features of entities of one version, each entity's by rank.
pub(super) struct Features {
    features: Accounted<Feature>,
    /// For each entity, in the order in which they were asked for, where its features start and how many they are.
    spans: Accounted<(u64, u32)>,
}

impl Features {
    /// Those of the entities at these positions, in whatever order.
    ///
    /// # Errors
    /// When the version cannot be read or the pool refuses.
    pub(super) async fn read(
        session: &Session,
        version: usize,
        positions: &[u64],
        weights: &Arc<Weights>,
    ) -> Result<Features, QueryError> {
        let mut order = Accounted::new(&session.reservation);
        order.extend(positions.iter().copied().enumerate().map(|(place, position)| (position, place)))?;
        order.items_mut().sort_unstable();
        let row_groups = session.readers[version].row_groups();
        let mut jobs: Vec<(usize, std::ops::Range<usize>)> = Vec::new();
        let mut start = 0;
        while let Some((position, _)) = order.get(start) {
            let row_group = session.readers[version].row_group_of(*position);
            let within = order[start..].partition_point(|(position, _)| row_groups[row_group].holds(*position));
            jobs.push((row_group, start..start + within));
            start += within;
        }
        let mut all = Features {
            features: Accounted::new(&session.reservation),
            spans: Accounted::filled((0, 0), positions.len(), &session.reservation)?,
        };
        let order = Arc::new(order);
        let works = {
            let (session, order, weights) = (session.clone(), order.clone(), weights.clone());
            jobs.clone().into_iter().map(move |(row_group, places)| {
                let (session, order, weights) = (session.clone(), order.clone(), weights.clone());
                async move { of_row_group(&session, version, row_group, &order[places], &weights).await }
            })
        };
        let mut parts = tasks::in_order(works, session.threads);
        for (_, places) in jobs {
            let Some((features, lengths)) = parts.try_next().await? else { break };
            let mut start = all.features.len() as u64;
            for ((_, place), length) in order[places].iter().zip(lengths) {
                all.spans.items_mut()[*place] = (start, length);
                start += u64::from(length);
            }
            all.features.extend(features.iter().copied())?;
        }
        Ok(all)
    }

    /// The features of an entity.
    #[inline]
    pub(super) fn of(&self, entity: usize) -> &[Feature] {
        let (start, length) = self.spans[entity];
        &self.features[start as usize..start as usize + length as usize]
    }
}

/// The features of entities of a row group, one after the other, and how many each has.
async fn of_row_group(
    session: &Session,
    version: usize,
    row_group: usize,
    entities: &[(u64, usize)],
    weights: &Weights,
) -> Result<(Accounted<Feature>, Vec<u32>), QueryError> {
    // Cancelling takes effect between row groups, even when nothing has to be waited for.
    tokio::task::consume_budget().await;
    let reader = &session.readers[version];
    let group = reader.row_groups()[row_group];
    let mut pages = Pages::of(reader, row_group, entities.len(), group.rows);
    let mut hasher = ValueHasher::new(&session.seeds);
    let mut features = Accounted::new(&session.reservation);
    let mut lengths = Vec::with_capacity(entities.len());
    for (position, _) in entities {
        let start = features.len();
        for (name, value) in document::members(pages.document((position - group.first) as usize).await?) {
            // Every field but one has a weight.
            if name.eq_str(SOURCE) {
                continue;
            }
            if let Some(rank) = weights.rank(name) {
                features.push(u128::from(rank) << HASH_BITS | hasher.hash(value))?;
            }
        }
        features.items_mut()[start..].sort_unstable();
        lengths.push((features.len() - start) as u32);
    }
    Ok((features, lengths))
}
