//! A condition on one path of an entity: prepared once per query, from the literals of its function call.

use crate::document::{self, ContainsNeedle, EqualNeedle, NumericValue, Scalar};
use crate::model::path::Path;
use std::ops::ControlFlow;

/// How a path's scalars are compared with the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `filter`: decisions, section 3, rule 5.
    Equal,
    /// `filter_contains`: decisions, section 3, rule 6.
    Contains,
}

/// A condition on one path.
#[derive(Clone, Debug)]
pub struct Predicate {
    comparison: Comparison,
    path: Path,
    value: String,
    folded: Vec<u8>,
    number: Option<NumericValue>,
    equal: EqualNeedle,
    contains: ContainsNeedle,
}

impl Predicate {
    /// Prepares a comparison of what `path` reaches with `value`.
    pub fn new(comparison: Comparison, path: Path, value: &str) -> Predicate {
        Predicate {
            comparison,
            path,
            folded: document::fold(value).into_bytes(),
            number: NumericValue::parse(value),
            equal: EqualNeedle::new(value),
            contains: ContainsNeedle::new(value),
            value: value.to_owned(),
        }
    }

    /// The comparison.
    pub fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value, folded.
    pub fn folded(&self) -> &[u8] {
        &self.folded
    }

    /// The value as a number, where `filter` compares numbers.
    pub fn number(&self) -> Option<&NumericValue> {
        match self.comparison {
            Comparison::Equal => self.number.as_ref(),
            Comparison::Contains => None,
        }
    }

    /// Whether a null matches.
    pub fn matches_null(&self) -> bool {
        self.comparison == Comparison::Equal && self.folded == b"null"
    }

    /// The rule itself, on the document: what every faster way must agree with.
    pub fn matches(&self, document: &[u8]) -> bool {
        let mut found = false;
        document::reach(document, &self.path, |scalar: Scalar<'_>| {
            found = match self.comparison {
                Comparison::Equal => document::matches_equal(scalar, &self.equal),
                Comparison::Contains => document::matches_contains(scalar, &self.contains),
            };
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }
}

impl std::fmt::Display for Predicate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.comparison {
            Comparison::Equal => "filter",
            Comparison::Contains => "filter_contains",
        };
        write!(formatter, "{name}={}:{}", self.path, self.value)
    }
}
