//! Step 2 of a diff: matches similar entities that have the same `_source`.
//!
//! The rule (docs/reference/diffs.md, Matching) is greedy: repeatedly match the pair with the highest similarity, then
//! the lowest position in v1, then the lowest position in v2. That is a strict order of all pairs, so the greedy
//! matching is the only stable one. Deferred acceptance (Gale and Shapley, 1962) finds it without a list of all pairs:
//! each entity of v1 proposes to its best candidate that is free or has a worse partner, and a displaced partner
//! proposes again. The entities with the best pairs propose first, so that few are displaced.
//!
//! Candidates are entities that share a field's value, found with an index of the values in v2. Every pair of at least
//! the minimum similarity shares a value, because all weights are positive. Only the best few candidates of an entity
//! are stored; if all of them refuse, the search runs again.
//!
//! Equal entities already match in [`super::exact_matching`]. The rule would give the same result, because their
//! similarity is 1 and any other is less, up to rounding errors in entities of more than 60,000 fields.

use hashbrown::HashMap;
use strata_query::QueryError;
use strata_query::fields::field_hash::{FieldFeature, unpack_field_rank};
use strata_query::tracked_vec::TrackedVec;

use super::DiffSession;
use super::entity_features::EntityFeatures;

/// The limits beyond which a diff does not compare all candidate pairs; see docs/reference/diffs.md, Matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffLimits {
    /// Maximum number of candidate pairs among the entities with the same `_source`.
    pub max_candidate_pairs: u64,
    /// Maximum number of entities of a version that share a value. If a `_source` exceeds `max_candidate_pairs`, a
    /// value that more entities share does not make them candidates.
    pub max_value_holders: u64,
}

impl Default for DiffLimits {
    fn default() -> DiffLimits {
        DiffLimits { max_candidate_pairs: 10_000_000, max_value_holders: 100 }
    }
}

const MIN_SIMILARITY: f64 = 0.3 - 1e-9;

/// If the entities with the same `_source` form at most this number of pairs, all are compared without an index.
const MAX_UNINDEXED_PAIRS: usize = 64;

const MAX_BEST_CANDIDATES: usize = 4;
const YIELD_EVERY_PAIRS: usize = 1 << 16;

/// The entities of one version that have the same `_source`: a range of `features`, ordered by position.
#[derive(Clone, Copy)]
pub(super) struct SameSourceEntities<'a> {
    pub(super) features: &'a EntityFeatures,
    pub(super) first_entity: usize,
    pub(super) count: usize,
}

impl<'a> SameSourceEntities<'a> {
    fn features_of(&self, entity: usize) -> &'a [FieldFeature] {
        self.features.features_of(self.first_entity + entity)
    }
}

/// Matches the entities that have the same `_source`. Calls `on_match` for each pair with the indexes of its two
/// entities among these entities of v1 and of v2. The pairs are in the order of v2.
pub(super) async fn match_same_source(
    session: &DiffSession,
    limits: &DiffLimits,
    weights: &[f64],
    sides: [SameSourceEntities<'_>; 2],
    mut on_match: impl FnMut(usize, usize),
) -> Result<(), QueryError> {
    let pairs = sides[0].count as u64 * sides[1].count as u64;
    let last_seen_round = TrackedVec::from_elem(0, sides[1].count, &session.reservation)?;
    let mut finder = CandidateFinder { sides, weights, index: None, last_seen_round, round: 0, pairs_since_yield: 0 };
    if pairs > limits.max_candidate_pairs.min(MAX_UNINDEXED_PAIRS as u64) {
        finder.index = Some(FeatureIndex::new(session, sides).await?);
        if pairs > limits.max_candidate_pairs
            && finder.has_more_pairs_than(limits.max_candidate_pairs).await
            && let Some(index) = &mut finder.index
        {
            index.max_holders = limits.max_value_holders;
        }
    }
    let mut accepted: TrackedVec<Option<MatchProposal>> =
        TrackedVec::from_elem(None, sides[1].count, &session.reservation)?;
    let mut best: TrackedVec<BestCandidates> =
        TrackedVec::from_elem(BestCandidates::default(), sides[0].count, &session.reservation)?;
    let mut order: TrackedVec<(f64, u32)> = TrackedVec::new(&session.reservation);
    for entity in 0..sides[0].count {
        let found = finder.find_best(entity, &accepted).await;
        if let Some((similarity, _)) = found.candidates[..found.count].first() {
            order.try_push((*similarity, entity as u32))?;
        }
        best.as_mut_slice()[entity] = found;
    }
    order.as_mut_slice().sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    for (_, entity) in order.iter() {
        let mut proposing = Some(*entity as usize);
        while let Some(entity) = proposing {
            let best = &mut best.as_mut_slice()[entity];
            proposing = match best.next_candidate() {
                Some((similarity, candidate)) => {
                    let proposal = MatchProposal { similarity, v1_entity: entity as u32 };
                    let current = &mut accepted.as_mut_slice()[candidate as usize];
                    if proposal.is_better_than(current) {
                        current.replace(proposal).map(|displaced| displaced.v1_entity as usize)
                    } else {
                        Some(entity)
                    }
                }
                None if best.is_complete => None,
                None => {
                    *best = finder.find_best(entity, &accepted).await;
                    (best.count > 0).then_some(entity)
                }
            };
        }
    }
    for (v2_entity, proposal) in accepted.iter().enumerate() {
        if let Some(proposal) = proposal {
            on_match(proposal.v1_entity as usize, v2_entity);
        }
    }
    Ok(())
}

/// The proposal of an entity of v1 to match an entity of v2.
#[derive(Clone, Copy, Debug)]
struct MatchProposal {
    similarity: f64,
    v1_entity: u32,
}

impl MatchProposal {
    /// Returns whether an entity of v2 prefers this proposal to `current`, the proposal that it has accepted.
    fn is_better_than(&self, current: &Option<MatchProposal>) -> bool {
        current.as_ref().is_none_or(|current| {
            self.similarity > current.similarity
                || (self.similarity == current.similarity && self.v1_entity < current.v1_entity)
        })
    }
}

/// The best candidates of an entity of v1: pairs of similarity and number in v2, best first.
#[derive(Clone, Copy, Debug, Default)]
struct BestCandidates {
    candidates: [(f64, u32); MAX_BEST_CANDIDATES],
    count: usize,
    next_index: usize,
    /// Whether the entity has no other candidates than `candidates`.
    is_complete: bool,
}

impl BestCandidates {
    fn next_candidate(&mut self) -> Option<(f64, u32)> {
        let next = self.candidates[..self.count].get(self.next_index).copied();
        self.next_index += 1;
        next
    }

    fn insert_if_among_best(&mut self, similarity: f64, v2_entity: u32) {
        let is_better =
            |(other, entity): &(f64, u32)| *other > similarity || (*other == similarity && *entity < v2_entity);
        let index = self.candidates[..self.count].partition_point(is_better);
        if self.count == MAX_BEST_CANDIDATES {
            self.is_complete = false;
            if index == MAX_BEST_CANDIDATES {
                return;
            }
        } else {
            self.count += 1;
        }
        self.candidates[index..self.count].rotate_right(1);
        self.candidates[index] = (similarity, v2_entity);
    }
}

struct CandidateFinder<'a> {
    sides: [SameSourceEntities<'a>; 2],
    weights: &'a [f64],
    /// Finds the candidates of an entity. If `None`, every entity of v2 is a candidate.
    index: Option<FeatureIndex>,
    /// For each entity of v2, the last search (round) that found it, so that each search returns the entity only once.
    last_seen_round: TrackedVec<u64>,
    round: u64,
    pairs_since_yield: usize,
}

impl CandidateFinder<'_> {
    /// Calls `visit` once with each candidate of an entity of v1, until `visit` returns false.
    fn for_each_candidate(&mut self, v1_entity: usize, mut visit: impl FnMut(usize) -> bool) {
        self.pairs_since_yield += 1;
        let Some(index) = &self.index else {
            self.pairs_since_yield += self.sides[1].count;
            (0..self.sides[1].count).all(visit);
            return;
        };
        self.round += 1;
        let last_seen_round = self.last_seen_round.as_mut_slice();
        for feature in self.sides[0].features_of(v1_entity) {
            let v2_entities = index.v2_entities_with(*feature);
            self.pairs_since_yield += v2_entities.len();
            for v2_entity in v2_entities {
                let last_seen = &mut last_seen_round[*v2_entity as usize];
                if *last_seen != self.round {
                    *last_seen = self.round;
                    if !visit(*v2_entity as usize) {
                        return;
                    }
                }
            }
        }
    }

    /// Returns the best candidates of an entity of v1 that would accept its proposal.
    async fn find_best(&mut self, v1_entity: usize, accepted: &[Option<MatchProposal>]) -> BestCandidates {
        self.yield_if_due().await;
        let mut best = BestCandidates { is_complete: true, ..BestCandidates::default() };
        let weights = self.weights;
        let [v1, v2] = self.sides;
        self.for_each_candidate(v1_entity, |v2_entity| {
            let similarity = similarity(v1.features_of(v1_entity), v2.features_of(v2_entity), weights);
            let proposal = MatchProposal { similarity, v1_entity: v1_entity as u32 };
            if similarity >= MIN_SIMILARITY && proposal.is_better_than(&accepted[v2_entity]) {
                best.insert_if_among_best(similarity, v2_entity as u32);
            }
            true
        });
        best
    }

    async fn has_more_pairs_than(&mut self, limit: u64) -> bool {
        let Some(index) = &self.index else { return false };
        let pairs_of_group = |group: &FeatureGroup| u64::from(group.v1_count) * u64::from(group.v2_count);
        if index.groups.iter().any(|group| pairs_of_group(group) > limit) {
            return true;
        }
        if index.groups.iter().map(pairs_of_group).sum::<u64>() <= limit {
            return false;
        }
        let mut pairs = 0;
        for v1_entity in 0..self.sides[0].count {
            self.yield_if_due().await;
            self.for_each_candidate(v1_entity, |_| {
                pairs += 1;
                pairs <= limit
            });
            if pairs > limit {
                return true;
            }
        }
        false
    }

    async fn yield_if_due(&mut self) {
        if self.pairs_since_yield >= YIELD_EVERY_PAIRS {
            self.pairs_since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// An inverted index from feature values in v1 to the entities of v2 that have them, for one `_source`.
struct FeatureIndex {
    group_numbers: HashMap<FieldFeature, u32, foldhash::fast::RandomState>,
    groups: TrackedVec<FeatureGroup>,
    /// The entities of v2 by feature value: all entities that have one value, then all that have the next one.
    v2_entities: TrackedVec<u32>,
    /// If more than this number of entities of a version have the same value, the index ignores the value.
    max_holders: u64,
    _reservation: datafusion::execution::memory_pool::MemoryReservation,
}

/// The entities with the same feature value: their number in each version, and their start in `v2_entities`.
#[derive(Clone, Copy, Debug, Default)]
struct FeatureGroup {
    v1_count: u32,
    v2_count: u32,
    start: u64,
}

impl FeatureIndex {
    async fn new(session: &DiffSession, sides: [SameSourceEntities<'_>; 2]) -> Result<FeatureIndex, QueryError> {
        let reservation = session.reservation.new_empty();
        let mut group_numbers: HashMap<FieldFeature, u32, _> = HashMap::default();
        let mut groups: TrackedVec<FeatureGroup> = TrackedVec::new(&reservation);
        for v1_entity in 0..sides[0].count {
            yield_periodically(v1_entity).await;
            for feature in sides[0].features_of(v1_entity) {
                if group_numbers.len() == group_numbers.capacity() {
                    // Reserves the memory of the hash table: one control byte per entry, free entries (the maximum load
                    // is 7/8), and the old table, which exists until the new one is filled.
                    let capacity = 2 * group_numbers.capacity().max(8);
                    reservation.try_resize(capacity * (size_of::<(FieldFeature, u32)>() + 1) * 8 / 7 * 3 / 2)?;
                    group_numbers.reserve(capacity - group_numbers.len());
                }
                let number = *group_numbers.entry(*feature).or_insert(groups.len() as u32);
                if number as usize == groups.len() {
                    groups.try_push(FeatureGroup::default())?;
                }
                groups.as_mut_slice()[number as usize].v1_count += 1;
            }
        }
        let mut v2_entries = 0;
        for v2_entity in 0..sides[1].count {
            yield_periodically(v2_entity).await;
            for feature in sides[1].features_of(v2_entity) {
                if let Some(number) = group_numbers.get(feature) {
                    groups.as_mut_slice()[*number as usize].v2_count += 1;
                    v2_entries += 1;
                }
            }
        }
        let mut start = 0;
        for group in groups.as_mut_slice() {
            group.start = start;
            start += u64::from(group.v2_count);
            group.v2_count = 0;
        }
        let mut v2_entities = TrackedVec::from_elem(0, v2_entries, &reservation)?;
        for v2_entity in 0..sides[1].count {
            yield_periodically(v2_entity).await;
            for feature in sides[1].features_of(v2_entity) {
                if let Some(number) = group_numbers.get(feature) {
                    let group = &mut groups.as_mut_slice()[*number as usize];
                    v2_entities.as_mut_slice()[group.start as usize + group.v2_count as usize] = v2_entity as u32;
                    group.v2_count += 1;
                }
            }
        }
        Ok(FeatureIndex { group_numbers, groups, v2_entities, max_holders: u64::MAX, _reservation: reservation })
    }

    /// Returns the entities of v2 that have `feature`, ascending; none if more than `max_holders` entities have it.
    fn v2_entities_with(&self, feature: FieldFeature) -> &[u32] {
        let Some(number) = self.group_numbers.get(&feature) else { return &[] };
        let group = &self.groups[*number as usize];
        if u64::from(group.v1_count.max(group.v2_count)) > self.max_holders {
            return &[];
        }
        &self.v2_entities[group.start as usize..group.start as usize + group.v2_count as usize]
    }
}

/// Yields to the runtime every 4,096 entities, which is also a cancellation point.
async fn yield_periodically(entity: usize) {
    if entity % 4_096 == 4_095 {
        tokio::task::yield_now().await;
    }
}

/// Returns the weight of the equal fields divided by the weight of all fields of two entities, whose features are
/// sorted by rank. Weights are added in the order of ranks, so that the order of the fields does not change rounding.
fn similarity(left: &[FieldFeature], right: &[FieldFeature], weights: &[f64]) -> f64 {
    let mut equal = 0.0;
    let mut all = 0.0;
    let mut left_index = 0;
    let mut right_index = 0;
    loop {
        let rank = match (left.get(left_index), right.get(right_index)) {
            (Some(left), Some(right)) => {
                let left_rank = unpack_field_rank(*left);
                let right_rank = unpack_field_rank(*right);
                if left == right {
                    equal += weights[left_rank];
                }
                left_index += usize::from(left_rank <= right_rank);
                right_index += usize::from(right_rank <= left_rank);
                left_rank.min(right_rank)
            }
            (Some(left), None) => {
                left_index += 1;
                unpack_field_rank(*left)
            }
            (None, Some(right)) => {
                right_index += 1;
                unpack_field_rank(*right)
            }
            (None, None) => break,
        };
        all += weights[rank];
    }
    if all == 0.0 { 1.0 } else { equal / all }
}
