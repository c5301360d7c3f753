//! Sketches that estimate the number of distinct values, and the most frequent values.

use hashbrown::HashTable;

use super::limits::{MIN_FREQUENT_COUNT, SAMPLE_INTERVAL};

/// 2,048 HyperLogLog registers result in a standard error of 2.3 %.
const REGISTER_BITS: u32 = 11;

/// Estimates the number of distinct hashes with HyperLogLog and the estimator of O. Ertl ("New cardinality estimation
/// algorithms for HyperLogLog sketches", 2017), which needs no correction for small or large numbers.
pub(super) struct DistinctSketch {
    registers: Box<[u8; 1 << REGISTER_BITS]>,
}

impl DistinctSketch {
    pub(super) fn new() -> DistinctSketch {
        DistinctSketch { registers: Box::new([0; 1 << REGISTER_BITS]) }
    }

    #[inline]
    pub(super) fn add(&mut self, hash: u64) {
        let hash = mix_hash(hash);
        let register = &mut self.registers[(hash >> (64 - REGISTER_BITS)) as usize];
        // The appended bit limits the rank to the bits of the hash after the register number.
        let rank = ((hash << REGISTER_BITS) | (1 << (REGISTER_BITS - 1))).leading_zeros() as u8 + 1;
        *register = (*register).max(rank);
    }

    pub(super) fn estimate(&self) -> u64 {
        const MAX_RANK: usize = 64 - REGISTER_BITS as usize + 1;
        let mut counts = [0_u32; MAX_RANK + 1];
        self.registers.iter().for_each(|register| counts[usize::from(*register).min(MAX_RANK)] += 1);
        let registers = f64::from(1_u32 << REGISTER_BITS);
        let sum = registers * hll_tau((registers - f64::from(counts[MAX_RANK])) / registers);
        let sum = counts[1..MAX_RANK].iter().rev().fold(sum, |sum, count| 0.5 * (sum + f64::from(*count)));
        let sum = sum + registers * hll_sigma(f64::from(counts[0]) / registers);
        (registers * registers / (2.0 * std::f64::consts::LN_2) / sum).round() as u64
    }
}

/// Finalizer of SplitMix64, because a hash for a table need not be good in all bits.
fn mix_hash(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

fn hll_sigma(mut x: f64) -> f64 {
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

fn hll_tau(mut x: f64) -> f64 {
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

/// Max candidates for frequent values. Each value that makes up more than 1/64 of the sample is among them.
const MAX_CANDIDATES: usize = 128;

/// Estimates the most frequent values of a stream from a sample of one in [`SAMPLE_INTERVAL`] values. The algorithm is
/// Misra-Gries. It evicts half of the candidates at once, so that a value costs only a lookup on average.
pub(super) struct FrequentValueSketch {
    candidates: HashTable<FrequencyCandidate>,
    max_missed_count: u64,
}

pub(super) struct FrequencyCandidate {
    hash: u64,
    pub(super) count: u64,
    max_missed_count: u64,
    /// The encoded value. Empty until the value occurs a second time in the sample.
    pub(super) value: Box<[u8]>,
}

impl FrequencyCandidate {
    fn max_count(&self) -> u64 {
        self.count + self.max_missed_count
    }
}

impl FrequentValueSketch {
    pub(super) fn from_counts<'a>(counts: impl Iterator<Item = (u64, u64, &'a [u8])>) -> FrequentValueSketch {
        let mut counts: Vec<_> = counts.collect();
        counts.sort_unstable_by_key(|(hash, count, _)| (std::cmp::Reverse(*count), *hash));
        let max_missed_count = counts.get(MAX_CANDIDATES / 2).map_or(0, |(_, count, _)| *count);
        let mut candidates = HashTable::with_capacity(MAX_CANDIDATES);
        for (hash, count, value) in counts.into_iter().take(MAX_CANDIDATES / 2) {
            let candidate = FrequencyCandidate { hash, count, max_missed_count: 0, value: value.into() };
            candidates.insert_unique(hash, candidate, |candidate| candidate.hash);
        }
        FrequentValueSketch { candidates, max_missed_count }
    }

    pub(super) fn add(&mut self, hash: u64, value: impl FnOnce() -> Box<[u8]>) {
        if let Some(candidate) = self.candidates.find_mut(hash, |candidate| candidate.hash == hash) {
            candidate.count += SAMPLE_INTERVAL;
            if candidate.value.is_empty() {
                candidate.value = value();
            }
            return;
        }
        if self.candidates.len() == MAX_CANDIDATES {
            self.evict_half();
        }
        let candidate = FrequencyCandidate {
            hash,
            count: SAMPLE_INTERVAL,
            max_missed_count: self.max_missed_count,
            value: Box::default(),
        };
        self.candidates.insert_unique(hash, candidate, |candidate| candidate.hash);
    }

    fn evict_half(&mut self) {
        let mut levels = [0; MAX_CANDIDATES];
        levels.iter_mut().zip(&self.candidates).for_each(|(level, candidate)| *level = candidate.max_count());
        let max_missed_count = *levels.select_nth_unstable(MAX_CANDIDATES / 2).1;
        self.candidates.retain(|candidate| candidate.max_count() > max_missed_count);
        self.max_missed_count = self.max_missed_count.max(max_missed_count);
    }

    pub(super) fn frequent_candidates(&self) -> impl Iterator<Item = &FrequencyCandidate> {
        self.candidates.iter().filter(|candidate| candidate.count >= MIN_FREQUENT_COUNT && !candidate.value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_is_close_to_distinct_count() {
        for count in [0_u64, 1, 2, 10, 100, 1_000, 5_000, 50_000, 1_000_000] {
            let mut sketch = DistinctSketch::new();
            for number in 0..count {
                // Each number is added twice: duplicates must not count. Consecutive integers test how poor hashes mix.
                sketch.add(number);
                sketch.add(number);
            }
            let error = sketch.estimate().abs_diff(count) as f64 / count.max(1) as f64;
            assert!(error < 0.08, "{} for {count}", sketch.estimate());
        }
    }

    #[test]
    fn frequent_values_are_found_among_rare_ones() {
        let mut frequent = FrequentValueSketch::from_counts(std::iter::empty());
        for number in 0..100_000_u64 {
            frequent.add(mix_hash(1_000 + number), || unreachable!("rare values occur only once"));
            for value in 1..=3 {
                if number % (10 * value) == 0 {
                    frequent.add(mix_hash(value), || value.to_be_bytes().into());
                }
            }
        }
        let mut candidates: Vec<_> = frequent.frequent_candidates().collect();
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.count));
        assert_eq!(candidates.len(), 3);
        for (value, candidate) in (1_u64..).zip(candidates) {
            assert_eq!(*candidate.value, value.to_be_bytes());
            let expected = SAMPLE_INTERVAL * 100_000_u64.div_ceil(10 * value);
            assert!(candidate.count <= expected && candidate.count * 10 >= expected * 9, "{}", candidate.count);
        }
    }
}
