//! The functions that plans call. They are stateless: parameters are literals of the call.
//!
//! | Call | Value |
//! |---|---|
//! | `filter(document, path, value, denull)`, `filter_contains(…)`, `filter_gt(…)` and its like | whether a path of a document compares with a value |
//! | `keywords(document, mode, include_source, denull, keep, drop, word…)` | whether words occur in what a reshaping leaves of a document |
//! | `position(order)` | the position of an entity: the last eight bytes of its order key |
//! | `random()` | a number from the cryptographically secure generator of the thread; sorting by it shuffles |
//! | `seeded(position, seed)` | the rank of an entity in the shuffle of a seed |
//!
//! Calls of the first two are not evaluated: the scan takes all of them over as [`Predicate`]s.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{AsArray, UInt64Array};
use arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::{col, lit};
use rand::Rng;
use siphasher::sip::SipHasher24;
use strata_types::path::Path;
use strata_types::request::KeywordsMode;

use crate::fetch::reshape::Reshape;
use crate::scan::predicate::{Compare, Comparison, Keywords, Predicate};
use crate::scan::schema::DOCUMENT;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: FunctionKind,
    signature: Signature,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FunctionKind {
    Compare(Comparison),
    Keywords,
    Position,
    Random,
    Seeded,
}

impl FunctionKind {
    pub(super) fn call(self, arguments: Vec<Expr>) -> Expr {
        let signature = match self {
            FunctionKind::Compare(_) => {
                let types = vec![DataType::Binary, DataType::Utf8, DataType::Utf8, DataType::Boolean];
                Signature::exact(types, Volatility::Immutable)
            }
            FunctionKind::Keywords => Signature::variadic_any(Volatility::Immutable),
            FunctionKind::Position => Signature::exact(vec![DataType::Binary], Volatility::Immutable),
            FunctionKind::Random => Signature::nullary(Volatility::Volatile),
            FunctionKind::Seeded => Signature::exact(vec![DataType::UInt64; 2], Volatility::Immutable),
        };
        ScalarUDF::from(Function { kind: self, signature }).call(arguments)
    }
}

/// The call that compares `path` of the table's documents with `value`; with `denull`, as if it had run.
pub(super) fn compare(comparison: Comparison, path: &Path, value: &str, denull: bool) -> Expr {
    FunctionKind::Compare(comparison).call(vec![col(DOCUMENT), lit(path.to_string()), lit(value), lit(denull)])
}

/// The call that searches what `reshape` leaves of the table's documents.
pub(super) fn keywords(words: &[String], mode: KeywordsMode, reshape: &Reshape) -> Expr {
    let mut arguments = vec![
        col(DOCUMENT),
        lit(mode == KeywordsMode::And),
        lit(reshape.include_source),
        lit(reshape.denull),
        lit(Path::list(&reshape.keep)),
        lit(Path::list(&reshape.drop)),
    ];
    arguments.extend(words.iter().map(|word| lit(word.as_str())));
    FunctionKind::Keywords.call(arguments)
}

/// The predicate that an expression is, when it is a call made by [`compare`] or [`keywords`].
pub(super) fn predicate_of(expression: &Expr) -> Option<Predicate> {
    let Expr::ScalarFunction(call) = expression else { return None };
    let function = (call.func.inner().as_ref() as &dyn Any).downcast_ref::<Function>()?;
    let [Expr::Column(column), literals @ ..] = call.args.as_slice() else { return None };
    let literals: Option<Vec<&ScalarValue>> = literals.iter().map(Expr::as_literal).collect();
    (column.name == DOCUMENT).then(|| predicate(function.kind, &literals?))?
}

fn predicate(kind: FunctionKind, literals: &[&ScalarValue]) -> Option<Predicate> {
    match (kind, literals) {
        (FunctionKind::Compare(comparison), [path, value, ScalarValue::Boolean(Some(denull))]) => {
            let path = Path::parse(path.try_as_str()??).ok()?;
            Some(Predicate::Compare(Box::new(Compare::new(comparison, path, value.try_as_str()??, *denull))))
        }
        (
            FunctionKind::Keywords,
            [
                ScalarValue::Boolean(Some(all)),
                ScalarValue::Boolean(Some(include_source)),
                ScalarValue::Boolean(Some(denull)),
                keep,
                drop,
                words @ ..,
            ],
        ) => {
            let list = |value: &ScalarValue| Some(Path::parse_list(value.try_as_str()??));
            let words: Option<Vec<String>> = words.iter().map(|word| Some(word.try_as_str()??.to_owned())).collect();
            let reshape = Reshape::new(*include_source, *denull, list(keep)?, list(drop)?);
            let mode = if *all { KeywordsMode::And } else { KeywordsMode::Or };
            Some(Predicate::Keywords(Keywords::new(words?, mode, reshape)))
        }
        _ => None,
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            FunctionKind::Compare(comparison) => comparison.parameter(),
            FunctionKind::Keywords => "keywords",
            FunctionKind::Position => "position",
            FunctionKind::Random => "random",
            FunctionKind::Seeded => "seeded",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            FunctionKind::Compare(_) | FunctionKind::Keywords => DataType::Boolean,
            FunctionKind::Position | FunctionKind::Random | FunctionKind::Seeded => DataType::UInt64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Array(match (self.kind, args.args.as_slice()) {
            (FunctionKind::Position, [ColumnarValue::Array(keys)]) => {
                let position = |key: &[u8]| key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                let positions = keys.as_binary::<i32>().iter().map(|key| key.and_then(position));
                Arc::new(positions.collect::<UInt64Array>())
            }
            (FunctionKind::Random, []) => {
                let mut generator = rand::rng();
                Arc::new(UInt64Array::from_iter_values((0..args.number_rows).map(|_| generator.next_u64())))
            }
            (
                FunctionKind::Seeded,
                [ColumnarValue::Array(positions), ColumnarValue::Scalar(ScalarValue::UInt64(Some(seed)))],
            ) => {
                let positions = positions.as_primitive::<UInt64Type>().values();
                Arc::new(UInt64Array::from_iter_values(positions.iter().map(|position| rank(*position, *seed))))
            }
            _ => return exec_err!("{} received unexpected arguments", self.name()),
        }))
    }
}

/// The rank of a position in the shuffle of a seed (docs/reference/sort-and-dedup.md, sample): SipHash-2-4, whose key
/// is the seed as 16 bytes, little-endian, and whose message is the position as 8. Nothing else decides on it: neither
/// the plan, nor the layout, nor the machine. Another function is another encoder's version, too.
fn rank(position: u64, seed: u64) -> u64 {
    SipHasher24::new_with_keys(seed, 0).hash(&position.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of docs/reference/sort-and-dedup.md, sample.
    #[test]
    fn ranks_never_change() {
        let order = |seed| {
            let mut positions: Vec<u64> = (0..10).collect();
            positions.sort_by_key(|position| rank(*position, seed));
            positions
        };
        let ranks = [rank(0, 0), rank(1, 0), rank(0, 1), rank(u64::MAX, u64::MAX)];
        let expected = [0xe849_e8bb_6ffe_2567, 0x8004_c5a6_9410_5f5e, 0x1cc1_d069_b22d_7407, 0xd9ed_40d6_16ce_2c30];
        assert_eq!(ranks, expected);
        assert_eq!(order(0), [8, 9, 1, 7, 4, 2, 3, 5, 6, 0]);
        assert_eq!(order(1), [7, 9, 0, 1, 6, 2, 8, 4, 5, 3]);
        assert_eq!(order(42), [4, 0, 8, 7, 2, 1, 5, 9, 3, 6]);
    }
}
