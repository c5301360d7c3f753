//! `filter(document, path, value, denull)`, `filter_contains(…)`, `filter_gt(…)` and its like: whether a path of a
//! document compares with a value.
//!
//! The scan takes these calls over as [`Predicate`]s; evaluated here, they read every document.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::{col, lit};

use crate::model::path::Path;
use crate::model::request::RangeBound;
use crate::query::scan::predicate::{Compare, Comparison, Predicate};
use crate::query::scan::schema::DOCUMENT;

#[derive(Debug, PartialEq, Eq, Hash)]
struct CompareFunction {
    comparison: Comparison,
    signature: Signature,
}

static EQUAL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Comparison::Equal));
static CONTAINS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Comparison::Contains));
static RANGES: LazyLock<[Arc<ScalarUDF>; 4]> =
    LazyLock::new(|| RangeBound::ALL.map(|bound| function(Comparison::Range(bound))));

fn function(comparison: Comparison) -> Arc<ScalarUDF> {
    let types = vec![DataType::Binary, DataType::Utf8, DataType::Utf8, DataType::Boolean];
    let signature = Signature::exact(types, Volatility::Immutable);
    Arc::new(ScalarUDF::from(CompareFunction { comparison, signature }))
}

/// The call that compares `path` of the table's documents with `value`; with `denull`, as if it had run.
pub(in crate::query::plan) fn compare(comparison: Comparison, path: &Path, value: &str, denull: bool) -> Expr {
    let function: &Arc<ScalarUDF> = match comparison {
        Comparison::Equal => &EQUAL,
        Comparison::Contains => &CONTAINS,
        Comparison::Range(bound) => &RANGES[bound as usize],
    };
    function.call(vec![col(DOCUMENT), lit(path.to_string()), lit(value), lit(denull)])
}

pub(super) fn predicate_of(call: &ScalarFunction) -> Option<Predicate> {
    let function = (call.func.inner().as_ref() as &dyn Any).downcast_ref::<CompareFunction>()?;
    let [Expr::Column(column), Expr::Literal(path, _), Expr::Literal(value, _), Expr::Literal(denull, _)] =
        call.args.as_slice()
    else {
        return None;
    };
    (column.name == DOCUMENT).then(|| predicate(function.comparison, path, value, denull))?
}

fn predicate(
    comparison: Comparison,
    path: &ScalarValue,
    value: &ScalarValue,
    denull: &ScalarValue,
) -> Option<Predicate> {
    let path = Path::parse(path.try_as_str()??).ok()?;
    let ScalarValue::Boolean(Some(denull)) = denull else { return None };
    Some(Predicate::Compare(Box::new(Compare::new(comparison, path, value.try_as_str()??, *denull))))
}

impl ScalarUDFImpl for CompareFunction {
    fn name(&self) -> &str {
        self.comparison.parameter()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [
            ColumnarValue::Array(documents),
            ColumnarValue::Scalar(path),
            ColumnarValue::Scalar(value),
            ColumnarValue::Scalar(denull),
        ] = args.args.as_slice()
        else {
            return exec_err!("{} takes documents and literals", self.name());
        };
        let Some(predicate) = predicate(self.comparison, path, value, denull) else {
            return exec_err!("{} takes a path, a text and a boolean", self.name());
        };
        let documents = documents.as_binary::<i32>();
        let matches: BooleanArray =
            documents.iter().map(|document| document.map(|document| predicate.matches(document))).collect();
        Ok(ColumnarValue::Array(Arc::new(matches)))
    }
}
