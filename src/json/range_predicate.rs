//! Predicates of `filter_gt`, `filter_gte`, `filter_lt`, and `filter_lte` on one scalar (docs/reference/filters.md).

use std::cmp::Ordering;

use strata_types::read_request::RangeBound;

use super::cursor::JsonScalar;
use super::json_str::JsonStr;
use super::number::NumericValue;

#[derive(Clone, Debug)]
pub struct RangePredicate {
    pub bound: RangeBound,
    pub operand: RangeOperand,
}

/// The operand of a range filter, which matches only scalars of its own type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeOperand {
    Number(NumericValue),
    String(Box<str>),
}

impl RangeOperand {
    /// A value in double quotes is a string, any other value a number if it is a JSON number, and otherwise a string.
    pub fn from_filter_value(value: &str) -> RangeOperand {
        // The value `"` is not in quotes, because one character cannot be both the prefix and the suffix.
        if let Some(quoted) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            return RangeOperand::String(quoted.into());
        }
        NumericValue::parse(value).map_or_else(|| RangeOperand::String(value.into()), RangeOperand::Number)
    }
}

impl RangePredicate {
    pub fn new(bound: RangeBound, value: &str) -> RangePredicate {
        RangePredicate { bound, operand: RangeOperand::from_filter_value(value) }
    }

    /// Returns true if every scalar that matches `self` matches `other`, and directions and operand types are equal.
    pub fn implies(&self, other: &RangePredicate) -> bool {
        let ordering = match (&self.operand, &other.operand) {
            (RangeOperand::Number(limit), RangeOperand::Number(other)) => limit.cmp(other),
            (RangeOperand::String(limit), RangeOperand::String(other)) => limit.as_bytes().cmp(other.as_bytes()),
            _ => return false,
        };
        let accepts_equal = |needle: &RangePredicate| needle.bound.accepts(Ordering::Equal);
        self.bound.is_lower_bound() == other.bound.is_lower_bound()
            && match ordering {
                Ordering::Equal => accepts_equal(other) || !accepts_equal(self),
                Ordering::Greater => self.bound.is_lower_bound(),
                Ordering::Less => !self.bound.is_lower_bound(),
            }
    }

    /// Returns true if the operand of the range filter is a number and the number `text` is in the range.
    pub fn matches_number(&self, text: &str) -> bool {
        let RangeOperand::Number(limit) = &self.operand else { return false };
        NumericValue::parse(text).is_some_and(|number| self.bound.accepts(number.cmp(limit)))
    }
}

pub fn matches_range(scalar: JsonScalar<'_>, needle: &RangePredicate) -> bool {
    match (scalar, &needle.operand) {
        (JsonScalar::Number(text), _) => needle.matches_number(text),
        (JsonScalar::String(text), RangeOperand::String(limit)) => needle.bound.accepts(compare_str(text, limit)),
        _ => false,
    }
}

/// Compares the UTF-8 bytes of two strings, which order like their code points.
fn compare_str(text: JsonStr<'_>, limit: &str) -> Ordering {
    if text.is_plain() {
        return text.raw().cmp(limit.as_bytes());
    }
    text.unescape().as_bytes().cmp(limit.as_bytes())
}
