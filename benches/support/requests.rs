//! Requests with their expected responses.

use super::source::Source;

/// A request with its expected response.
#[derive(Clone)]
pub struct CheckedRequest {
    pub query: String,
    pub expected: Expected,
}

/// An expected response.
#[derive(Clone)]
pub enum Expected {
    /// A count.
    Count(u64),
    /// The entities at these positions as a compact array.
    Compact(Vec<u64>),
    /// The entities at these positions as an indented array.
    Pretty(Vec<u64>),
    /// The source file, byte for byte.
    Source,
    /// All entities in another format or order than in the source, with at least this many bytes for each.
    All(u64),
}

impl Expected {
    /// Returns the number of entities in the response, or the count.
    pub fn total(&self, source: &Source) -> u64 {
        match self {
            Expected::Count(count) => *count,
            Expected::Compact(positions) | Expected::Pretty(positions) => positions.len() as u64,
            Expected::Source | Expected::All(_) => source.entities,
        }
    }

    /// Returns the complete body if it is small.
    pub fn body(&self, source: &Source) -> Option<Vec<u8>> {
        let lines = |positions: &[u64]| positions.iter().map(|position| source.line(*position)).collect::<Vec<_>>();
        match self {
            Expected::Compact(positions) => Some([&b"["[..], &lines(positions).join(&b','), b"]"].concat()),
            // Numbers and the order of keys do not change.
            Expected::Pretty(positions) => {
                let values = lines(positions).into_iter().map(|line| serde_json::from_slice(&line));
                let values: Vec<serde_json::Value> = values.collect::<Result<_, _>>().expect("entities are JSON");
                serde_json::to_vec_pretty(&values).ok()
            }
            Expected::Count(_) | Expected::Source | Expected::All(_) => None,
        }
    }
}
