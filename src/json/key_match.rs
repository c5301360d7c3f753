//! Detects duplicate keys in an object, without quadratic cost for hostile objects.
//!
//! Each key's cheap 32-bit hash is compared with the hashes of up to [`MAX_PAIRWISE_MEMBERS`] earlier members. If two
//! hashes agree, or if there are more members, [`DuplicateMemberResolver::resolve`] sorts the keys at the end of the
//! object and compares their bytes. The hash can therefore be weak: collisions cost at most O(n log n).

const MAX_PAIRWISE_MEMBERS: usize = 64;

/// The key hashes of all open objects, outermost first.
#[derive(Debug, Default)]
pub(super) struct KeyHashes(Vec<u32>);

impl KeyHashes {
    pub(super) fn truncate(&mut self, first: usize) {
        self.0.truncate(first);
    }

    /// Adds a key of the innermost object, whose keys start at index `first`. Returns true if the key can be a
    /// duplicate, so that [`DuplicateMemberResolver::resolve`] must decide.
    #[inline]
    pub(super) fn push_may_be_duplicate(&mut self, first: usize, key: &[u8]) -> bool {
        let hash = hash_key(key);
        let before = &self.0[first..];
        let suspect = before.len() > MAX_PAIRWISE_MEMBERS || before.contains(&hash);
        self.0.push(hash);
        suspect
    }
}

/// Hashes the length and the outer bytes of the key. Keys that differ only in the middle collide, which is rare.
#[inline]
fn hash_key(key: &[u8]) -> u32 {
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

#[derive(Debug, Default)]
pub(super) struct DuplicateMemberResolver {
    sorted_members: Vec<usize>,
    value_sources: Vec<Option<usize>>,
}

impl DuplicateMemberResolver {
    /// Resolves duplicate keys among `count` members. The first of several equal keys takes the value of the last one
    /// (`Some(index)`); the others are removed (`None`). Returns `None` if all keys differ.
    pub(super) fn resolve<'k>(&mut self, count: usize, key: impl Fn(usize) -> &'k [u8]) -> Option<&[Option<usize>]> {
        self.sorted_members.clear();
        self.sorted_members.extend(0..count);
        self.sorted_members.sort_unstable_by(|&left, &right| key(left).cmp(key(right)).then(left.cmp(&right)));
        self.value_sources.clear();
        self.value_sources.resize(count, None);
        let mut all_differ = true;
        for equals in self.sorted_members.chunk_by(|&left, &right| key(left) == key(right)) {
            if let [first, .., last] | [first @ last] = *equals {
                self.value_sources[first] = Some(last);
            }
            all_differ &= equals.len() == 1;
        }
        (!all_differ).then_some(self.value_sources.as_slice())
    }
}
