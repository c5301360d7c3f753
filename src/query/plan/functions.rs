//! The functions that plans call.
//!
//! | Call | Value |
//! |---|---|
//! | `filter(document, path, value, denull)`, `filter_contains(…)`, … | whether a value at a path matches |
//! | `keywords(document, mode, include_source, denull, keep, drop, word…)` | whether a document contains words |
//! | `position(order)` | the position of an entity: the last eight bytes of its order key |
//! | `random()` | a number from the cryptographically secure generator of the thread, for shuffling |
//! | `seeded(position, seed)` | the rank of an entity in the shuffle of a seed |
//!
//! The scan evaluates the first two, which contain their [`Predicate`]. Their literals show it in explanations.

use std::any::Any;
use std::hash::{Hash, Hasher};
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

use crate::scan::predicate::{Compare, Keywords, Predicate};
use crate::scan::schema::DOCUMENT;

#[derive(Debug)]
struct Function {
    kind: FunctionKind,
    signature: Signature,
}

/// Functions with the same name are equal, because the arguments of a call determine its predicate.
impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

#[derive(Debug)]
pub(super) enum FunctionKind {
    Predicate(Box<Predicate>),
    Position,
    Random,
    Seeded,
}

impl FunctionKind {
    pub(super) fn call(self, arguments: Vec<Expr>) -> Expr {
        let signature = match self {
            FunctionKind::Predicate(_) => Signature::variadic_any(Volatility::Immutable),
            FunctionKind::Position => Signature::exact(vec![DataType::Binary], Volatility::Immutable),
            FunctionKind::Random => Signature::nullary(Volatility::Volatile),
            FunctionKind::Seeded => Signature::exact(vec![DataType::UInt64; 2], Volatility::Immutable),
        };
        ScalarUDF::from(Function { kind: self, signature }).call(arguments)
    }
}

/// The call that evaluates a predicate on the table's documents.
pub(super) fn call_predicate(predicate: Predicate) -> Expr {
    let mut arguments = vec![col(DOCUMENT)];
    match &predicate {
        Predicate::Compare(compare) => {
            let Compare { path, value, denull, .. } = &**compare;
            arguments.extend([lit(path.to_string()), lit(value.as_str()), lit(*denull)]);
        }
        Predicate::Keywords(Keywords { words, mode, reshape, .. }) => {
            arguments.extend([
                lit(*mode == KeywordsMode::And),
                lit(reshape.include_source),
                lit(reshape.denull),
                lit(Path::list(&reshape.keep)),
                lit(Path::list(&reshape.drop)),
            ]);
            arguments.extend(words.iter().map(|word| lit(word.as_str())));
        }
    }
    FunctionKind::Predicate(Box::new(predicate)).call(arguments)
}

/// The predicate of a call by [`call_predicate`].
pub(super) fn called_predicate(expression: &Expr) -> Option<&Predicate> {
    let Expr::ScalarFunction(call) = expression else { return None };
    match (call.func.inner().as_ref() as &dyn Any).downcast_ref::<Function>()? {
        Function { kind: FunctionKind::Predicate(predicate), .. } => Some(predicate),
        _ => None,
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match &self.kind {
            FunctionKind::Predicate(predicate) => match &**predicate {
                Predicate::Compare(compare) => compare.comparison.parameter(),
                Predicate::Keywords(_) => "keywords",
            },
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
            FunctionKind::Predicate(_) => DataType::Boolean,
            FunctionKind::Position | FunctionKind::Random | FunctionKind::Seeded => DataType::UInt64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Array(match (&self.kind, args.args.as_slice()) {
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

/// The rank of a position in the shuffle of a seed (docs/reference/sort-and-dedup.md, sample): SipHash-2-4 of the
/// position in 8 bytes. The key is the seed in 16 bytes. Both are little-endian. The function must never change.
fn rank(position: u64, seed: u64) -> u64 {
    SipHasher24::new_with_keys(seed, 0).hash(&position.to_le_bytes())
}
