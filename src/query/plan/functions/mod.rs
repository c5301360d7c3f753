//! The functions that plans call, one file each. They are stateless: parameters are literals of the call.

mod compare;
mod keywords;
mod position;
mod random;
mod seeded;

use datafusion::logical_expr::Expr;

pub(super) use compare::compare;
pub(super) use keywords::keywords;
pub(super) use position::position;
pub(super) use random::random;
pub(super) use seeded::seeded;

use crate::query::scan::predicate::Predicate;

/// The predicate that an expression is, when it is a call made by [`compare`] or [`keywords`].
pub(super) fn predicate_of(expression: &Expr) -> Option<Predicate> {
    let Expr::ScalarFunction(call) = expression else { return None };
    compare::predicate_of(call).or_else(|| keywords::predicate_of(call))
}
