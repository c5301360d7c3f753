//! Tests one scalar for `filter_gt`, `filter_gte`, `filter_lt` and `filter_lte` (docs/reference/filters.md, Range
//! filters). A needle is prepared once per request.

use std::cmp::Ordering;

use strata_types::request::RangeBound;

use super::cursor::Scalar;
use super::number::NumericValue;
use super::text::Text;

#[derive(Clone, Debug)]
pub struct RangeNeedle {
    /// On which side of its limit it looks.
    pub bound: RangeBound,
    pub limit: RangeLimit,
}

/// What scalars are compared with: those of its own type alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeLimit {
    Number(NumericValue),
    Text(Box<str>),
}

impl RangeLimit {
    /// The limit that a value means: text between double quotes, else a JSON number, else text.
    pub fn of(value: &str) -> RangeLimit {
        // A lone quote does not stand on both sides.
        if let Some(quoted) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            return RangeLimit::Text(quoted.into());
        }
        NumericValue::parse(value).map_or_else(|| RangeLimit::Text(value.into()), RangeLimit::Number)
    }
}

impl RangeNeedle {
    pub fn new(bound: RangeBound, value: &str) -> RangeNeedle {
        RangeNeedle { bound, limit: RangeLimit::of(value) }
    }

    /// Whether every scalar that fits this one fits the other one, too, which looks on the same side and compares with
    /// the same type; of equal ones either.
    pub fn implies(&self, other: &RangeNeedle) -> bool {
        let ordering = match (&self.limit, &other.limit) {
            (RangeLimit::Number(limit), RangeLimit::Number(other)) => limit.cmp(other),
            (RangeLimit::Text(limit), RangeLimit::Text(other)) => limit.as_bytes().cmp(other.as_bytes()),
            _ => return false,
        };
        let takes_limit = |needle: &RangeNeedle| needle.bound.admits(Ordering::Equal);
        self.bound.is_lower() == other.bound.is_lower()
            && match ordering {
                Ordering::Equal => takes_limit(other) || !takes_limit(self),
                Ordering::Greater => self.bound.is_lower(),
                Ordering::Less => !self.bound.is_lower(),
            }
    }

    /// Whether it compares numbers, and the number of this text fits.
    pub fn admits_number(&self, text: &str) -> bool {
        let RangeLimit::Number(limit) = &self.limit else { return false };
        NumericValue::parse(text).is_some_and(|number| self.bound.admits(number.cmp(limit)))
    }
}

/// Whether the scalar has the limit's type, and lies on the right side of it.
pub fn matches_range(scalar: Scalar<'_>, needle: &RangeNeedle) -> bool {
    match (scalar, &needle.limit) {
        (Scalar::Number(text), _) => needle.admits_number(text),
        (Scalar::String(text), RangeLimit::Text(limit)) => needle.bound.admits(compare(text, limit)),
        _ => false,
    }
}

/// The bytes of UTF-8 order as its code points do.
fn compare(text: Text<'_>, limit: &str) -> Ordering {
    if text.is_plain() {
        return text.raw().cmp(limit.as_bytes());
    }
    text.unescape().as_bytes().cmp(limit.as_bytes())
}
