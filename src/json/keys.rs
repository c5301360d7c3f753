//! Finds equal keys among the members of one object. Ordinary objects need no hash table, and hostile ones cause no
//! quadratic cost.
//!
//! While members arrive, each key's cheap 32-bit hash is compared with those of at most [`MAX_COMPARED`] earlier
//! members. If two agree, or there are more members, the keys are sorted once at the end ([`Winners::find`]), which
//! decides by their bytes. So the hash need not be strong: collisions cost only time, n log n at worst.

/// Members up to which hashes are compared one with all.
const MAX_COMPARED: usize = 64;

/// The hashes of the keys of the objects that are open, outermost first.
#[derive(Debug, Default)]
pub(super) struct KeyHashes(Vec<u32>);

impl KeyHashes {
    /// Forgets the keys of an object whose first key was number `first`.
    pub(super) fn truncate(&mut self, first: usize) {
        self.0.truncate(first);
    }

    /// Adds a key of the innermost object, whose first key is number `first`. False when it certainly differs from the
    /// keys before it. True when [`Winners::find`] has to decide.
    #[inline]
    pub(super) fn may_repeat(&mut self, first: usize, key: &[u8]) -> bool {
        let hash = hash(key);
        let before = &self.0[first..];
        let suspect = before.len() > MAX_COMPARED || before.contains(&hash);
        self.0.push(hash);
        suspect
    }
}

/// Length and outer bytes of the key, mixed. Keys that differ only in the middle collide, which is rare in real
/// objects.
#[inline]
fn hash(key: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (head, tail) = match (key.first_chunk(), key.last_chunk()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => match (key.first_chunk(), key.last_chunk()) {
            (Some(head), Some(tail)) => (u64::from(u32::from_le_bytes(*head)), u64::from(u32::from_le_bytes(*tail))),
            _ => (key.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0),
        },
    };
    let mixed = (head ^ tail.rotate_left(29) ^ (key.len() as u64) << 17).wrapping_mul(FACTOR);
    (mixed >> 32) as u32
}

/// For each member, which member's value it has in the end.
#[derive(Debug, Default)]
pub(super) struct Winners {
    order: Vec<usize>,
    winners: Vec<Option<usize>>,
}

impl Winners {
    /// Resolves equal keys among `count` members. The first of equal keys keeps its place and takes the value of the
    /// last. The others are removed (`None`). Returns nothing when all keys differ.
    pub(super) fn find<'k>(&mut self, count: usize, key: impl Fn(usize) -> &'k [u8]) -> Option<&[Option<usize>]> {
        self.order.clear();
        self.order.extend(0..count);
        self.order.sort_unstable_by(|&left, &right| key(left).cmp(key(right)).then(left.cmp(&right)));
        self.winners.clear();
        self.winners.resize(count, None);
        let mut all_differ = true;
        for equals in self.order.chunk_by(|&left, &right| key(left) == key(right)) {
            if let [first, .., last] | [first @ last] = *equals {
                self.winners[first] = Some(last);
            }
            all_differ &= equals.len() == 1;
        }
        (!all_differ).then_some(self.winners.as_slice())
    }
}
