//! Predicates on entities, prepared once for a query.

use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use strata_format::layout::TEXT_SEPARATOR;
use strata_json::{ContainsPredicate, EqualsPredicate, JsonScalar, NumericValue, RangeOperand, RangePredicate};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{KeywordsMode, PathValue, RangeBound, ReadRequest};

use crate::fetch::entity_projection::{EntityProjection, EntityProjectionScratch, NullTreatment};
use crate::scan::range_simplification::drop_implied_ranges;

#[derive(Clone, Debug)]
pub enum Predicate {
    Comparison(Box<PathComparison>),
    Keywords(KeywordSearch),
}

impl Predicate {
    /// Lists the predicates of a request, even if the projection removes the fields that they test.
    pub fn from_request<'r>(
        request: &'r ReadRequest,
        projection: &'r EntityProjection,
    ) -> impl Iterator<Item = Predicate> + 'r {
        let comparisons = ComparisonOperator::from_request(request).map(|(operator, condition)| {
            let nulls = projection.null_treatment();
            let compare = PathComparison::new(operator, condition.path.clone(), &condition.value, nulls);
            Predicate::Comparison(Box::new(compare))
        });
        let keywords = (!request.keywords.is_empty()).then(|| {
            Predicate::Keywords(KeywordSearch::new(request.keywords.clone(), request.keywords_mode, projection.clone()))
        });
        comparisons.chain(keywords)
    }

    /// Whether a stored document matches. All access paths must agree with this function.
    pub fn matches(&self, document: &[u8]) -> bool {
        match self {
            Predicate::Comparison(compare) => compare.matches(document),
            Predicate::Keywords(keywords) => keywords.matches(document),
        }
    }

    /// Returns the byte strings of which the full text of a match must contain one or all, depending on the mode.
    pub fn full_text_needles(&self) -> Option<(&[Vec<u8>], KeywordsMode)> {
        match self {
            Predicate::Comparison(compare) => {
                Some((std::slice::from_ref(compare.full_text_needle.as_ref()?), KeywordsMode::And))
            }
            Predicate::Keywords(keywords) => Some((&keywords.folded, keywords.mode)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ComparisonOperator {
    Equal,
    Contains,
    Range(RangeBound),
}

impl ComparisonOperator {
    pub fn parameter_name(self) -> &'static str {
        match self {
            ComparisonOperator::Equal => "filter",
            ComparisonOperator::Contains => "filter_contains",
            ComparisonOperator::Range(bound) => bound.parameter_name(),
        }
    }

    /// Lists the comparisons of a request in the order of the steps, without range filters that others imply.
    pub fn from_request(request: &ReadRequest) -> impl Iterator<Item = (ComparisonOperator, &PathValue)> {
        let equal = request.filters.iter().map(|condition| (ComparisonOperator::Equal, condition));
        let contains = request.contains_filters.iter().map(|condition| (ComparisonOperator::Contains, condition));
        let ranges = drop_implied_ranges(request)
            .into_iter()
            .map(|(bound, condition)| (ComparisonOperator::Range(bound), condition));
        equal.chain(contains).chain(ranges)
    }
}

/// A comparison of the scalars at a path with a value (docs/reference/filters.md).
#[derive(Clone, Debug)]
pub struct PathComparison {
    pub operator: ComparisonOperator,
    pub path: FieldPath,
    pub(crate) value: String,
    pub(crate) denull: bool,
    pub(crate) folded: Vec<u8>,
    pub(crate) full_text_needle: Option<Vec<u8>>,
    needle: ComparisonNeedle,
}

#[derive(Clone, Debug)]
enum ComparisonNeedle {
    Equal(EqualsPredicate),
    Contains(Box<ContainsPredicate>),
    Range(RangePredicate),
}

impl PathComparison {
    pub fn new(operator: ComparisonOperator, path: FieldPath, value: &str, nulls: NullTreatment) -> PathComparison {
        let folded = strata_json::fold_case(value).into_bytes();
        let needle = match operator {
            ComparisonOperator::Equal => ComparisonNeedle::Equal(EqualsPredicate::new(value)),
            ComparisonOperator::Contains => ComparisonNeedle::Contains(Box::new(ContainsPredicate::new(value))),
            ComparisonOperator::Range(bound) => ComparisonNeedle::Range(RangePredicate::new(bound, value)),
        };
        let mut compare = PathComparison {
            operator,
            path,
            value: value.to_owned(),
            denull: nulls == NullTreatment::Remove,
            folded,
            full_text_needle: None,
            needle,
        };
        compare.full_text_needle = compare.build_full_text_needle();
        compare
    }

    fn build_full_text_needle(&self) -> Option<Vec<u8>> {
        match self.operator {
            ComparisonOperator::Contains => Some(self.folded.clone()).filter(|folded| !folded.is_empty()),
            // Case folding does not preserve the order of strings, so the full text cannot decide a range.
            ComparisonOperator::Range(_) => None,
            // A number has many spellings, and null has no text, so the full text cannot be searched for them.
            ComparisonOperator::Equal if self.number().is_some() || self.can_match_null() => None,
            ComparisonOperator::Equal => Some(self.whole_text_needle()),
        }
    }

    /// Returns the bytes that the full text of an entity contains if a scalar has the folded text.
    pub(crate) fn whole_text_needle(&self) -> Vec<u8> {
        [&[TEXT_SEPARATOR], self.folded.as_slice(), &[TEXT_SEPARATOR]].concat()
    }

    pub fn number(&self) -> Option<&NumericValue> {
        if let ComparisonNeedle::Equal(needle) = &self.needle { needle.number.as_ref() } else { None }
    }

    pub fn range_needle(&self) -> Option<&RangePredicate> {
        if let ComparisonNeedle::Range(needle) = &self.needle { Some(needle) } else { None }
    }

    /// Whether strings are compared exactly, for which case-folded strings are not sufficient.
    pub fn needs_exact_text(&self) -> bool {
        self.range_needle().is_some_and(|range| matches!(&range.operand, RangeOperand::String(_)))
    }

    pub fn can_match_null(&self) -> bool {
        self.operator == ComparisonOperator::Equal && self.folded == b"null" && !self.denull
    }

    pub fn matches(&self, document: &[u8]) -> bool {
        let mut found = false;
        strata_json::visit_scalars_at(document, &self.path, |scalar: JsonScalar<'_>| {
            found = self.matches_scalar(scalar);
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    pub fn matches_scalar(&self, scalar: JsonScalar<'_>) -> bool {
        let is_removed = match scalar {
            JsonScalar::Null => true,
            JsonScalar::String(text) => text.raw().is_empty(),
            _ => false,
        };
        !(self.denull && is_removed)
            && match &self.needle {
                ComparisonNeedle::Equal(needle) => strata_json::matches_equal(scalar, needle),
                ComparisonNeedle::Contains(needle) => strata_json::matches_contains(scalar, needle),
                ComparisonNeedle::Range(needle) => strata_json::matches_range(scalar, needle),
            }
    }
}

/// A search for words in all scalars of projected entities (docs/reference/filters.md, keywords).
#[derive(Clone, Debug)]
pub struct KeywordSearch {
    pub(crate) words: Vec<String>,
    /// Case-folded words, the longest first, because long words are rare.
    pub(crate) folded: Vec<Vec<u8>>,
    needles: Vec<ContainsPredicate>,
    pub(crate) mode: KeywordsMode,
    pub(crate) projection: EntityProjection,
}

impl KeywordSearch {
    /// Creates a search for words, which must not be empty. Words that are equal when case-folded are searched once.
    pub fn new(mut words: Vec<String>, mode: KeywordsMode, projection: EntityProjection) -> KeywordSearch {
        let mut seen = HashSet::new();
        words.retain(|word| seen.insert(strata_json::fold_case(word)));
        let mut folded: Vec<Vec<u8>> = words.iter().map(|word| strata_json::fold_case(word).into_bytes()).collect();
        folded.sort_by_key(|word| std::cmp::Reverse(word.len()));
        let needles = words.iter().map(|word| ContainsPredicate::new(word)).collect();
        KeywordSearch { folded, needles, words, mode, projection }
    }

    fn matches(&self, document: &[u8]) -> bool {
        let mut scratch = EntityProjectionScratch::default();
        let entity = self.projection.apply(document, &mut scratch);
        let mut missing: Vec<&ContainsPredicate> = self.needles.iter().collect();
        let all = self.mode == KeywordsMode::And;
        let mut found = false;
        strata_json::visit_all_scalars(entity, |scalar| {
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
            Predicate::Comparison(compare) => {
                write!(formatter, "{}={}:{}", compare.operator.parameter_name(), compare.path, compare.value)
            }
            Predicate::Keywords(keywords) => {
                let mode = if keywords.mode == KeywordsMode::And { "and" } else { "or" };
                write!(formatter, "keywords={} ({mode})", keywords.words.join(","))
            }
        }
    }
}
