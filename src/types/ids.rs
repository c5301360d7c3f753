//! The numbers that identify users, datasets, version files, refresh attempts and holds.
//!
//! The catalog assigns them: positive, never reused, at most `i64::MAX`. A request may name any number. A number that
//! was never assigned is not found.

use std::fmt;
use std::str::FromStr;

/// Declares ids: each a number in a type of its own.
macro_rules! ids {
    ($($(#[$documentation:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The id with this number, whether or not the catalog has assigned it.
            pub fn new(number: u64) -> Self {
                $name(number)
            }

            pub fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    )+};
}

pub(super) use ids;

ids! {
    /// Identifies a dataset, in URLs and in `X-Dataset-ID` too.
    DatasetId,
    UserId,
    /// Identifies one immutable file of entities; versions may share one.
    FileId,
    /// Identifies one attempt to refresh a dataset.
    AttemptId,
    /// Identifies a hold on all files, as a backup takes one.
    HoldId,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a dataset_id: it must be a positive integer")]
pub struct InvalidDatasetId(pub String);

impl FromStr for DatasetId {
    type Err = InvalidDatasetId;

    /// Parses `[1-9][0-9]*` (docs/reference/query-semantics.md, Path of a read). A number past `u64` is well formed, so
    /// it is no error. It becomes `u64::MAX`, which is never assigned.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse_decimal(text) {
            Some(number) if number > 0 => Ok(DatasetId(number)),
            _ => Err(InvalidDatasetId(text.to_owned())),
        }
    }
}

/// Reads `0` or `[1-9][0-9]*`, ASCII digits only. A number past `u64` becomes `u64::MAX`.
pub(super) fn parse_decimal(text: &str) -> Option<u64> {
    let digits = text.as_bytes();
    let well_formed = match digits {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    // Well-formed digits fail to parse only if there are too many.
    well_formed.then(|| text.parse().unwrap_or(u64::MAX))
}
