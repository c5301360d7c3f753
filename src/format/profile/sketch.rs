//! Sketches of what is too much to keep: the number of distinct values, and the most frequent ones.

use hashbrown::HashTable;

use super::limits::{FREQUENT, SAMPLED};

/// Bits of a hash that choose a register: 2,048 registers, a standard error of 2.3 %.
const BITS: u32 = 11;

/// The number of distinct hashes, estimated by HyperLogLog with the estimator of O. Ertl ("New cardinality estimation
/// algorithms for HyperLogLog sketches", 2017), which needs no correction for small or large numbers.
pub(super) struct DistinctSketch {
    registers: Box<[u8; 1 << BITS]>,
}

impl DistinctSketch {
    pub(super) fn new() -> DistinctSketch {
        DistinctSketch { registers: Box::new([0; 1 << BITS]) }
    }

    #[inline]
    pub(super) fn add(&mut self, hash: u64) {
        let hash = mixed(hash);
        let register = &mut self.registers[(hash >> (64 - BITS)) as usize];
        // The bit below keeps the count within the bits that are left.
        let rank = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() as u8 + 1;
        *register = (*register).max(rank);
    }

    pub(super) fn estimate(&self) -> u64 {
        const LAST: usize = 64 - BITS as usize + 1;
        let mut counts = [0_u32; LAST + 1];
        for register in self.registers.iter() {
            counts[usize::from(*register).min(LAST)] += 1;
        }
        let registers = f64::from(1_u32 << BITS);
        let mut sum = registers * tau((registers - f64::from(counts[LAST])) / registers);
        for count in counts[1..LAST].iter().rev() {
            sum = 0.5 * (sum + f64::from(*count));
        }
        sum += registers * sigma(f64::from(counts[0]) / registers);
        (registers * registers / (2.0 * std::f64::consts::LN_2) / sum).round() as u64
    }
}

/// The finalizer of SplitMix64: a table's hash need not be good in all of its bits.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let mut weight = 1.0;
    let mut sum = x;
    loop {
        let before = sum;
        x *= x;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let mut weight = 1.0;
    let mut sum = 1.0 - x;
    loop {
        let before = sum;
        x = x.sqrt();
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// Most values that may be frequent. What makes up more than one in half as many of the sample is among them.
const CANDIDATES: usize = 128;

/// The most frequent values of a stream, of which one in [`SAMPLED`] is looked at: Misra-Gries, with half of the
/// candidates given up at once when there are too many, so that a value costs a look-up whatever the stream is.
pub(super) struct FrequentValues {
    candidates: HashTable<Candidate>,
    /// What a candidate may have been missed before it came in, most.
    floor: u64,
}

pub(super) struct Candidate {
    hash: u64,
    /// About how often it occurred since it came in.
    pub(super) count: u64,
    base: u64,
    /// What it is; empty until it has occurred twice.
    pub(super) value: Box<[u8]>,
}

impl Candidate {
    fn level(&self) -> u64 {
        self.count + self.base
    }
}

impl FrequentValues {
    /// Goes on from exact counts, in any order: each with its hash and, if it is known, what it is.
    pub(super) fn from_counts<'a>(counts: impl Iterator<Item = (u64, u64, &'a [u8])>) -> FrequentValues {
        let mut counts: Vec<_> = counts.collect();
        counts.sort_unstable_by_key(|(hash, count, _)| (std::cmp::Reverse(*count), *hash));
        let floor = counts.get(CANDIDATES / 2).map_or(0, |(_, count, _)| *count);
        let mut candidates = HashTable::with_capacity(CANDIDATES);
        for (hash, count, value) in counts.into_iter().take(CANDIDATES / 2) {
            let candidate = Candidate { hash, count, base: 0, value: value.into() };
            candidates.insert_unique(hash, candidate, |candidate| candidate.hash);
        }
        FrequentValues { candidates, floor }
    }

    /// Takes note of a value that was sampled; `value` says what it is, when that is asked.
    pub(super) fn add(&mut self, hash: u64, value: impl FnOnce() -> Box<[u8]>) {
        if let Some(candidate) = self.candidates.find_mut(hash, |candidate| candidate.hash == hash) {
            candidate.count += SAMPLED;
            if candidate.value.is_empty() {
                candidate.value = value();
            }
            return;
        }
        if self.candidates.len() == CANDIDATES {
            self.give_up_half();
        }
        let candidate = Candidate { hash, count: SAMPLED, base: self.floor, value: Box::default() };
        self.candidates.insert_unique(hash, candidate, |candidate| candidate.hash);
    }

    fn give_up_half(&mut self) {
        let mut levels = [0; CANDIDATES];
        for (level, candidate) in levels.iter_mut().zip(&self.candidates) {
            *level = candidate.level();
        }
        let floor = *levels.select_nth_unstable(CANDIDATES / 2).1;
        self.candidates.retain(|candidate| candidate.level() > floor);
        self.floor = self.floor.max(floor);
    }

    pub(super) fn frequent(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|candidate| candidate.count >= FREQUENT && !candidate.value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_near_the_number_of_distinct_hashes() {
        for count in [0_u64, 1, 2, 10, 100, 1_000, 5_000, 50_000, 1_000_000] {
            let mut sketch = DistinctSketch::new();
            for number in 0..count {
                // Twice each, and as poor as a hash can be.
                sketch.add(number);
                sketch.add(number);
            }
            let error = sketch.estimate().abs_diff(count) as f64 / count.max(1) as f64;
            assert!(error < 0.08, "{} for {count}", sketch.estimate());
        }
    }

    #[test]
    fn frequent_values_are_found_among_many_others() {
        let mut frequent = FrequentValues::from_counts(std::iter::empty());
        for number in 0..100_000_u64 {
            frequent.add(mixed(1_000 + number), || unreachable!("all others occur once"));
            for value in 1..=3 {
                if number % (10 * value) == 0 {
                    frequent.add(mixed(value), || value.to_be_bytes().into());
                }
            }
        }
        let mut found: Vec<_> = frequent.frequent().collect();
        found.sort_by_key(|candidate| std::cmp::Reverse(candidate.count));
        assert_eq!(found.len(), 3);
        for (value, candidate) in (1_u64..).zip(found) {
            assert_eq!(*candidate.value, value.to_be_bytes());
            let expected = SAMPLED * 100_000_u64.div_ceil(10 * value);
            assert!(candidate.count <= expected && candidate.count * 10 >= expected * 9, "{}", candidate.count);
        }
    }
}
