//! The functions in expressions of plans.
//!
//! | Call | Value |
//! |---|---|
//! | `filter(document, path, value, denull)`, `filter_contains(…)`, … | whether a value at a path matches |
//! | `keywords(document, mode, include_source, denull, keep, drop, word…)` | whether a document contains words |
//! | `position(order)` | the position of an entity: the last eight bytes of its order key |
//! | `random()` | a number from the cryptographically secure generator of the thread, for shuffling |
//! | `seeded(position, seed)` | the rank of an entity in the shuffle of a seed |
//!
//! The scan evaluates the first two, which contain their [`Predicate`]. Explanations show their literals.

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
use strata_types::field_path::FieldPath;
use strata_types::read_request::KeywordsMode;

use crate::scan::predicate::{KeywordSearch, PathComparison, Predicate};
use crate::scan::scan_columns::DOCUMENT_COLUMN;

#[derive(Debug)]
struct PlanFunction {
    kind: PlanFunctionKind,
    signature: Signature,
}

/// Plan functions with the same name are equal, because the arguments of a call determine its predicate.
impl PartialEq for PlanFunction {
    fn eq(&self, other: &PlanFunction) -> bool {
        self.name() == other.name()
    }
}

impl Eq for PlanFunction {}

impl Hash for PlanFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

#[derive(Debug)]
pub(super) enum PlanFunctionKind {
    Predicate(Box<Predicate>),
    Position,
    Random,
    SeededRank,
}

impl PlanFunctionKind {
    pub(super) fn call_with(self, arguments: Vec<Expr>) -> Expr {
        let signature = match self {
            PlanFunctionKind::Predicate(_) => Signature::variadic_any(Volatility::Immutable),
            PlanFunctionKind::Position => Signature::exact(vec![DataType::Binary], Volatility::Immutable),
            PlanFunctionKind::Random => Signature::nullary(Volatility::Volatile),
            PlanFunctionKind::SeededRank => Signature::exact(vec![DataType::UInt64; 2], Volatility::Immutable),
        };
        ScalarUDF::from(PlanFunction { kind: self, signature }).call(arguments)
    }
}

pub(super) fn predicate_call(predicate: Predicate) -> Expr {
    let mut arguments = vec![col(DOCUMENT_COLUMN)];
    match &predicate {
        Predicate::Comparison(comparison) => {
            let PathComparison { path, value, denull, .. } = &**comparison;
            arguments.extend([lit(path.to_string()), lit(value.as_str()), lit(*denull)]);
        }
        Predicate::Keywords(KeywordSearch { words, mode, projection, .. }) => {
            arguments.extend([
                lit(*mode == KeywordsMode::And),
                lit(projection.include_source),
                lit(projection.denull),
                lit(FieldPath::format_list(&projection.keep)),
                lit(FieldPath::format_list(&projection.drop)),
            ]);
            arguments.extend(words.iter().map(|word| lit(word.as_str())));
        }
    }
    PlanFunctionKind::Predicate(Box::new(predicate)).call_with(arguments)
}

pub(super) fn predicate_from_call(expression: &Expr) -> Option<&Predicate> {
    let Expr::ScalarFunction(call) = expression else { return None };
    let function: &PlanFunction = (call.func.inner().as_ref() as &dyn Any).downcast_ref()?;
    if let PlanFunctionKind::Predicate(predicate) = &function.kind { Some(predicate) } else { None }
}

impl ScalarUDFImpl for PlanFunction {
    fn name(&self) -> &str {
        match &self.kind {
            PlanFunctionKind::Predicate(predicate) => match &**predicate {
                Predicate::Comparison(comparison) => comparison.operator.parameter_name(),
                Predicate::Keywords(_) => "keywords",
            },
            PlanFunctionKind::Position => "position",
            PlanFunctionKind::Random => "random",
            PlanFunctionKind::SeededRank => "seeded",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            PlanFunctionKind::Predicate(_) => DataType::Boolean,
            PlanFunctionKind::Position | PlanFunctionKind::Random | PlanFunctionKind::SeededRank => DataType::UInt64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Array(match (&self.kind, args.args.as_slice()) {
            (PlanFunctionKind::Position, [ColumnarValue::Array(keys)]) => {
                let position = |key: &[u8]| key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                let positions = keys.as_binary::<i32>().iter().map(|key| key.and_then(position));
                Arc::new(positions.collect::<UInt64Array>())
            }
            (PlanFunctionKind::Random, []) => {
                let mut generator = rand::rng();
                Arc::new(UInt64Array::from_iter_values((0..args.number_rows).map(|_| generator.next_u64())))
            }
            (
                PlanFunctionKind::SeededRank,
                [ColumnarValue::Array(positions), ColumnarValue::Scalar(ScalarValue::UInt64(Some(seed)))],
            ) => {
                let positions = positions.as_primitive::<UInt64Type>().values();
                Arc::new(UInt64Array::from_iter_values(positions.iter().map(|position| seeded_rank(*position, *seed))))
            }
            _ => return exec_err!("{} received unexpected arguments", self.name()),
        }))
    }
}

/// The rank of a position in the shuffle of a seed (docs/reference/sort-and-dedup.md, sample): SipHash-2-4 of the
/// position in 8 bytes. The key is the seed in 16 bytes. Both are little-endian. The function must never change.
fn seeded_rank(position: u64, seed: u64) -> u64 {
    SipHasher24::new_with_keys(seed, 0).hash(&position.to_le_bytes())
}
