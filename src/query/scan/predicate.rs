//! Conditions on an entity, prepared once for a query.

use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use strata_format::layout::SEPARATOR;
use strata_json::{ContainsNeedle, EqualNeedle, NumericValue, RangeLimit, RangeNeedle, Scalar};
use strata_types::path::Path;
use strata_types::request::{KeywordsMode, PathValue, RangeBound, ReadRequest};

use crate::fetch::reshape::{Reshape, ReshapeScratch};
use crate::scan::range_simplification::simplify;

#[derive(Clone, Debug)]
pub enum Predicate {
    Compare(Box<Compare>),
    Keywords(Keywords),
}

impl Predicate {
    /// The conditions of a request on reshaped entities, even if the reshaping removes the fields that they test.
    pub fn from_request<'r>(request: &'r ReadRequest, reshape: &'r Reshape) -> impl Iterator<Item = Predicate> + 'r {
        let compares = Comparison::from_request(request).map(|(comparison, condition)| {
            let compare = Compare::new(comparison, condition.path.clone(), &condition.value, reshape.denull);
            Predicate::Compare(Box::new(compare))
        });
        let keywords = (!request.keywords.is_empty()).then(|| {
            Predicate::Keywords(Keywords::new(request.keywords.clone(), request.keywords_mode, reshape.clone()))
        });
        compares.chain(keywords)
    }

    /// Whether a stored document matches. All access paths must agree with it.
    pub fn matches(&self, document: &[u8]) -> bool {
        match self {
            Predicate::Compare(compare) => compare.matches(document),
            Predicate::Keywords(keywords) => keywords.matches(document),
        }
    }

    /// The texts of which the full-text column of a match contains one, or all.
    pub fn searched(&self) -> Option<(&[Vec<u8>], KeywordsMode)> {
        match self {
            Predicate::Compare(compare) => Some((std::slice::from_ref(compare.searched.as_ref()?), KeywordsMode::And)),
            Predicate::Keywords(keywords) => Some((&keywords.folded, keywords.mode)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Comparison {
    /// `filter`
    Equal,
    /// `filter_contains`
    Contains,
    /// `filter_gt` and others
    Range(RangeBound),
}

impl Comparison {
    pub fn parameter(self) -> &'static str {
        match self {
            Comparison::Equal => "filter",
            Comparison::Contains => "filter_contains",
            Comparison::Range(bound) => bound.parameter(),
        }
    }

    /// The comparisons of a request in the order of the steps, without range filters that others imply.
    pub fn from_request(request: &ReadRequest) -> impl Iterator<Item = (Comparison, &PathValue)> {
        let equal = request.filters.iter().map(|condition| (Comparison::Equal, condition));
        let contains = request.filters_contain.iter().map(|condition| (Comparison::Contains, condition));
        let ranges = simplify(request).into_iter().map(|(bound, condition)| (Comparison::Range(bound), condition));
        equal.chain(contains).chain(ranges)
    }
}

/// A comparison of the scalars at a path with a value (docs/reference/filters.md).
#[derive(Clone, Debug)]
pub struct Compare {
    pub comparison: Comparison,
    pub path: Path,
    pub(crate) value: String,
    /// Whether nulls and empty strings count as missing.
    pub(crate) denull: bool,
    pub(crate) folded: Vec<u8>,
    /// See [`Predicate::searched`].
    pub(crate) searched: Option<Vec<u8>>,
    needle: Needle,
}

#[derive(Clone, Debug)]
enum Needle {
    Equal(EqualNeedle),
    Contains(Box<ContainsNeedle>),
    Range(RangeNeedle),
}

impl Compare {
    pub fn new(comparison: Comparison, path: Path, value: &str, denull: bool) -> Compare {
        let folded = strata_json::fold(value).into_bytes();
        let needle = match comparison {
            Comparison::Equal => Needle::Equal(EqualNeedle::new(value)),
            Comparison::Contains => Needle::Contains(Box::new(ContainsNeedle::new(value))),
            Comparison::Range(bound) => Needle::Range(RangeNeedle::new(bound, value)),
        };
        let mut compare = Compare { comparison, path, value: value.to_owned(), denull, folded, searched: None, needle };
        compare.searched = compare.searched_text();
        compare
    }

    fn searched_text(&self) -> Option<Vec<u8>> {
        match self.comparison {
            Comparison::Contains => Some(self.folded.clone()).filter(|folded| !folded.is_empty()),
            // Folding does not preserve the order.
            Comparison::Range(_) => None,
            // A number has many spellings, and null has no text.
            Comparison::Equal if self.number().is_some() || self.matches_null() => None,
            Comparison::Equal => Some([&[SEPARATOR], self.folded.as_slice(), &[SEPARATOR]].concat()),
        }
    }

    /// The value of `filter` as a number, if it is one.
    pub fn number(&self) -> Option<&NumericValue> {
        if let Needle::Equal(needle) = &self.needle { needle.number.as_ref() } else { None }
    }

    pub fn range(&self) -> Option<&RangeNeedle> {
        if let Needle::Range(needle) = &self.needle { Some(needle) } else { None }
    }

    /// Whether strings are compared exactly, which folded texts do not allow.
    pub fn needs_exact_text(&self) -> bool {
        self.range().is_some_and(|range| matches!(&range.limit, RangeLimit::Text(_)))
    }

    pub fn matches_null(&self) -> bool {
        self.comparison == Comparison::Equal && self.folded == b"null" && !self.denull
    }

    pub fn matches(&self, document: &[u8]) -> bool {
        let mut found = false;
        strata_json::reach(document, &self.path, |scalar: Scalar<'_>| {
            found = self.fits(scalar);
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    pub fn fits(&self, scalar: Scalar<'_>) -> bool {
        let is_removed = match scalar {
            Scalar::Null => true,
            Scalar::String(text) => text.raw().is_empty(),
            _ => false,
        };
        !(self.denull && is_removed)
            && match &self.needle {
                Needle::Equal(needle) => strata_json::matches_equal(scalar, needle),
                Needle::Contains(needle) => strata_json::matches_contains(scalar, needle),
                Needle::Range(needle) => strata_json::matches_range(scalar, needle),
            }
    }
}

/// A search for words in all scalars of reshaped entities (docs/reference/filters.md, keywords).
#[derive(Clone, Debug)]
pub struct Keywords {
    pub(crate) words: Vec<String>,
    /// The longest first, because long words are rare.
    pub(crate) folded: Vec<Vec<u8>>,
    needles: Vec<ContainsNeedle>,
    pub(crate) mode: KeywordsMode,
    pub(crate) reshape: Reshape,
}

impl Keywords {
    /// Words must not be empty. Words that are equal when folded are searched once.
    pub fn new(mut words: Vec<String>, mode: KeywordsMode, reshape: Reshape) -> Keywords {
        let mut seen = HashSet::new();
        words.retain(|word| seen.insert(strata_json::fold(word)));
        let mut folded: Vec<Vec<u8>> = words.iter().map(|word| strata_json::fold(word).into_bytes()).collect();
        folded.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Keywords { folded, needles: words.iter().map(|word| ContainsNeedle::new(word)).collect(), words, mode, reshape }
    }

    /// Whether no field is hidden, so that the full-text column decides. What `denull` removes contains no words.
    pub fn sees_everything(&self) -> bool {
        !self.reshape.hides_fields()
    }

    fn matches(&self, document: &[u8]) -> bool {
        let mut scratch = ReshapeScratch::default();
        let entity = self.reshape.apply(document, &mut scratch);
        let mut missing: Vec<&ContainsNeedle> = self.needles.iter().collect();
        let all = self.mode == KeywordsMode::And;
        let mut found = false;
        strata_json::scalars(entity, |scalar| {
            let before = missing.len();
            missing.retain(|needle| !strata_json::matches_contains(scalar, needle));
            found = if all { missing.is_empty() } else { missing.len() < before };
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Predicate::Compare(compare) => {
                write!(formatter, "{}={}:{}", compare.comparison.parameter(), compare.path, compare.value)
            }
            Predicate::Keywords(keywords) => {
                let mode = if keywords.mode == KeywordsMode::And { "and" } else { "or" };
                write!(formatter, "keywords={} ({mode})", keywords.words.join(","))
            }
        }
    }
}
