//! Numeric IDs, which the metadata database assigns: positive, never reused, and at most `i64::MAX`. A request can
//! contain any number, and a number that was never assigned is not found.

use std::fmt;
use std::str::FromStr;

macro_rules! ids {
    ($($(#[$documentation:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
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
    DatasetId,
    UserId,
    VersionFileId,
    RefreshAttemptId,
    /// Identifies a hold that prevents the removal of version files, for example during a backup.
    FileHoldId,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a dataset_id: it must be a positive integer")]
pub struct InvalidDatasetId(pub String);

impl FromStr for DatasetId {
    type Err = InvalidDatasetId;

    /// Parses `[1-9][0-9]*`. A number above `u64::MAX` becomes `u64::MAX`, which is never assigned.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse_decimal(text) {
            Some(number) if number > 0 => Ok(DatasetId(number)),
            _ => Err(InvalidDatasetId(text.to_owned())),
        }
    }
}

/// Parses `0` or `[1-9][0-9]*`. A number above `u64::MAX` becomes `u64::MAX`.
pub(super) fn parse_decimal(text: &str) -> Option<u64> {
    let digits = text.as_bytes();
    let well_formed = match digits {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    // Well-formed digits fail to parse as `u64` only on overflow.
    well_formed.then(|| text.parse().unwrap_or(u64::MAX))
}
