//! Second part of a diff: similar entities of one `_source`, taken greedily.
//!
//! The rule (docs/reference/diffs.md, Diffs) is: of all candidate pairs the one of highest similarity, then lowest
//! position in v1, then lowest in v2, again and again. It orders all pairs strictly, so exactly one matching has no
//! pair that both sides would rather be in than where they are, and it is the greedy one. Deferred acceptance finds it
//! without a list of all pairs: each entity of v1 in turn proposes to its best candidate that is free or held by a
//! worse pair, and whoever is displaced proposes again. Those with the best pairs go first, so that few are displaced.
//! Candidates come from an index of the values in v2; only the best few of each entity are kept, and found again when
//! these are gone.
//!
//! A pair of similarity 0.3 shares a value, because all weights are positive. Entities that are equal were matched
//! before ([`super::identity`]), which the rule would do as well: their similarity is 1, and that of others is less.
//! (Sums of doubles could hide a difference only between two of more than 60,000 fields each; equal ones go first
//! there, too.)

use hashbrown::HashMap;
use strata_query::QueryError;
use strata_query::account::Accounted;
use strata_query::fields::values::{Feature, rank};

use super::Session;
use super::features::Features;

/// From when on similar entities are not looked for among all: docs/reference/diffs.md, Diffs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffBounds {
    /// Most candidate pairs of one source.
    pub candidate_pairs: u64,
    /// Where there are more: most entities that may have a value on each side, for those that share it to be
    /// candidates.
    pub value_holders: u64,
}

impl Default for DiffBounds {
    fn default() -> DiffBounds {
        DiffBounds { candidate_pairs: 10_000_000, value_holders: 100 }
    }
}

const MIN_SIMILARITY: f64 = 0.3 - 1e-9;

/// Sources with at most this many pairs are compared without an index.
const MIN_INDEXED_PAIRS: usize = 64;

const KEPT: usize = 4;

const PAIRS_AT_ONCE: usize = 1 << 16;

/// The entities of one source in one version: some of those that were read, by position.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) features: &'a Features,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<'a> Side<'a> {
    fn features_of(&self, number: usize) -> &'a [Feature] {
        self.features.features_of(self.first + number)
    }
}

/// Calls `matched` with the numbers of each match of a source, in the order of v2.
pub(super) async fn match_source(
    session: &Session,
    bounds: &DiffBounds,
    weights: &[f64],
    sides: [Side<'_>; 2],
    mut matched: impl FnMut(usize, usize),
) -> Result<(), QueryError> {
    let pairs = sides[0].count as u64 * sides[1].count as u64;
    let seen = Accounted::filled(0, sides[1].count, &session.reservation)?;
    let mut candidates = Candidates { sides, weights, index: None, seen, round: 0, work: 0 };
    if pairs > bounds.candidate_pairs.min(MIN_INDEXED_PAIRS as u64) {
        candidates.index = Some(Index::new(session, sides).await?);
        if pairs > bounds.candidate_pairs
            && candidates.are_more_than(bounds.candidate_pairs).await
            && let Some(index) = &mut candidates.index
        {
            index.holders = bounds.value_holders;
        }
    }
    let mut holders: Accounted<Option<Proposal>> = Accounted::filled(None, sides[1].count, &session.reservation)?;
    let mut best: Accounted<Best> = Accounted::filled(Best::default(), sides[0].count, &session.reservation)?;
    let mut order: Accounted<(f64, u32)> = Accounted::new(&session.reservation);
    for one in 0..sides[0].count {
        let found = candidates.best(one, &holders).await;
        if let Some(first) = found.kept[..found.count].first() {
            order.push((first.0, one as u32))?;
        }
        best.items_mut()[one] = found;
    }
    order.items_mut().sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    for (_, one) in order.iter() {
        let mut proposing = Some(*one as usize);
        while let Some(one) = proposing {
            let best = &mut best.items_mut()[one];
            proposing = match best.next() {
                Some((similarity, other)) => {
                    let proposal = Proposal { similarity, one: one as u32 };
                    let holder = &mut holders.items_mut()[other as usize];
                    if proposal.beats(holder) {
                        holder.replace(proposal).map(|displaced| displaced.one as usize)
                    } else {
                        Some(one)
                    }
                }
                None if best.complete => None,
                None => {
                    *best = candidates.best(one, &holders).await;
                    (best.count > 0).then_some(one)
                }
            };
        }
    }
    for (other, holder) in holders.iter().enumerate() {
        if let Some(holder) = holder {
            matched(holder.one as usize, other);
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Proposal {
    similarity: f64,
    one: u32,
}

impl Proposal {
    /// Whether this is the better one of two pairs of the same entity of v2.
    fn beats(&self, holder: &Option<Proposal>) -> bool {
        holder.as_ref().is_none_or(|holder| {
            self.similarity > holder.similarity || (self.similarity == holder.similarity && self.one < holder.one)
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Best {
    kept: [(f64, u32); KEPT],
    count: usize,
    at: usize,
    complete: bool,
}

impl Best {
    fn next(&mut self) -> Option<(f64, u32)> {
        let next = self.kept[..self.count].get(self.at).copied();
        self.at += 1;
        next
    }

    fn add(&mut self, similarity: f64, other: u32) {
        let better = |kept: &(f64, u32)| kept.0 > similarity || (kept.0 == similarity && kept.1 < other);
        let place = self.kept[..self.count].partition_point(better);
        if self.count == KEPT {
            self.complete = false;
            if place == KEPT {
                return;
            }
        } else {
            self.count += 1;
        }
        self.kept[place..self.count].rotate_right(1);
        self.kept[place] = (similarity, other);
    }
}

struct Candidates<'a> {
    sides: [Side<'a>; 2],
    weights: &'a [f64],
    /// Without it all are candidates.
    index: Option<Index>,
    /// For each entity of v2, in which round it was last found.
    seen: Accounted<u64>,
    round: u64,
    work: usize,
}

impl Candidates<'_> {
    /// Calls `found` with each candidate of an entity, once, until it returns false.
    fn each(&mut self, one: usize, mut found: impl FnMut(usize) -> bool) {
        self.work += 1;
        let Some(index) = &self.index else {
            self.work += self.sides[1].count;
            (0..self.sides[1].count).all(found);
            return;
        };
        self.round += 1;
        let seen = self.seen.items_mut();
        for feature in self.sides[0].features_of(one) {
            let others = index.others(*feature);
            self.work += others.len();
            for other in others {
                let seen = &mut seen[*other as usize];
                if *seen != self.round {
                    *seen = self.round;
                    if !found(*other as usize) {
                        return;
                    }
                }
            }
        }
    }

    /// The best candidates of an entity that are free or held by a worse pair.
    async fn best(&mut self, one: usize, holders: &[Option<Proposal>]) -> Best {
        self.pause().await;
        let mut best = Best { complete: true, ..Best::default() };
        let weights = self.weights;
        let [ones, others] = self.sides;
        self.each(one, |other| {
            let similarity = similarity(ones.features_of(one), others.features_of(other), weights);
            let proposal = Proposal { similarity, one: one as u32 };
            if similarity >= MIN_SIMILARITY && proposal.beats(&holders[other]) {
                best.add(similarity, other as u32);
            }
            true
        });
        best
    }

    async fn are_more_than(&mut self, bound: u64) -> bool {
        let Some(index) = &self.index else { return false };
        let of_group = |group: &Group| u64::from(group.ones) * u64::from(group.others);
        if index.groups.iter().any(|group| of_group(group) > bound) {
            return true;
        }
        if index.groups.iter().map(of_group).sum::<u64>() <= bound {
            return false;
        }
        let mut pairs = 0;
        for one in 0..self.sides[0].count {
            self.pause().await;
            self.each(one, |_| {
                pairs += 1;
                pairs <= bound
            });
            if pairs > bound {
                return true;
            }
        }
        false
    }

    async fn pause(&mut self) {
        if self.work >= PAIRS_AT_ONCE {
            self.work = 0;
            tokio::task::yield_now().await;
        }
    }
}

struct Index {
    numbers: HashMap<Feature, u32, foldhash::fast::RandomState>,
    groups: Accounted<Group>,
    /// The entities of all groups, one group after the other.
    others: Accounted<u32>,
    /// Values that more entities have on a side do not count.
    holders: u64,
    _reservation: datafusion::execution::memory_pool::MemoryReservation,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The number in v1.
    ones: u32,
    /// The number in v2.
    others: u32,
    start: u64,
}

impl Index {
    async fn new(session: &Session, sides: [Side<'_>; 2]) -> Result<Index, QueryError> {
        let reservation = session.reservation.new_empty();
        let mut numbers: HashMap<Feature, u32, _> = HashMap::default();
        let mut groups: Accounted<Group> = Accounted::new(&reservation);
        for one in 0..sides[0].count {
            pause_at(one).await;
            for feature in sides[0].features_of(one) {
                if numbers.len() == numbers.capacity() {
                    // The table grows to twice as many, each of them with a byte and an eighth more, beside the old
                    // one.
                    let capacity = 2 * numbers.capacity().max(8);
                    reservation.try_resize(capacity * (size_of::<(Feature, u32)>() + 1) * 8 / 7 * 3 / 2)?;
                    numbers.reserve(capacity - numbers.len());
                }
                let number = *numbers.entry(*feature).or_insert(groups.len() as u32);
                if number as usize == groups.len() {
                    groups.push(Group::default())?;
                }
                groups.items_mut()[number as usize].ones += 1;
            }
        }
        let mut holdings = 0;
        for other in 0..sides[1].count {
            pause_at(other).await;
            for feature in sides[1].features_of(other) {
                if let Some(number) = numbers.get(feature) {
                    groups.items_mut()[*number as usize].others += 1;
                    holdings += 1;
                }
            }
        }
        let mut start = 0;
        for group in groups.items_mut() {
            group.start = start;
            start += u64::from(group.others);
            group.others = 0;
        }
        let mut others = Accounted::filled(0, holdings, &reservation)?;
        for other in 0..sides[1].count {
            pause_at(other).await;
            for feature in sides[1].features_of(other) {
                if let Some(number) = numbers.get(feature) {
                    let group = &mut groups.items_mut()[*number as usize];
                    others.items_mut()[group.start as usize + group.others as usize] = other as u32;
                    group.others += 1;
                }
            }
        }
        Ok(Index { numbers, groups, others, holders: u64::MAX, _reservation: reservation })
    }

    /// The entities of v2 that have a value, ascending: none if too many have it.
    fn others(&self, feature: Feature) -> &[u32] {
        let Some(number) = self.numbers.get(&feature) else { return &[] };
        let group = &self.groups[*number as usize];
        if u64::from(group.ones.max(group.others)) > self.holders {
            return &[];
        }
        &self.others[group.start as usize..group.start as usize + group.others as usize]
    }
}

/// Lets others use the thread, and cancelling take effect, every few thousand entities.
async fn pause_at(entity: usize) {
    if entity % 4_096 == 4_095 {
        tokio::task::yield_now().await;
    }
}

/// The similarity of two entities, given their features by rank: sums of doubles in the order of the names.
fn similarity(one: &[Feature], other: &[Feature], weights: &[f64]) -> f64 {
    let mut equal = 0.0;
    let mut all = 0.0;
    let mut left = 0;
    let mut right = 0;
    loop {
        let rank = match (one.get(left), other.get(right)) {
            (Some(one), Some(other)) => {
                let one_rank = rank(*one);
                let other_rank = rank(*other);
                if one == other {
                    equal += weights[one_rank];
                }
                left += usize::from(one_rank <= other_rank);
                right += usize::from(other_rank <= one_rank);
                one_rank.min(other_rank)
            }
            (Some(one), None) => {
                left += 1;
                rank(*one)
            }
            (None, Some(other)) => {
                right += 1;
                rank(*other)
            }
            (None, None) => break,
        };
        all += weights[rank];
    }
    if all == 0.0 { 1.0 } else { equal / all }
}
