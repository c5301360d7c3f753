//! `filter(document, path, value)` and `filter_contains(document, path, value)`: whether a path of a document
//! compares with a value.
//!
//! The scan takes these calls over as [`Predicate`]s; evaluated here, they read every document.

use std::sync::{Arc, LazyLock};

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::{col, lit};

use crate::model::path::Path;
use crate::query::predicate::{Comparison, Predicate};
use crate::query::table::DOCUMENT;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Compare {
    comparison: Comparison,
    signature: Signature,
}

static EQUAL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Comparison::Equal));
static CONTAINS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Comparison::Contains));

fn function(comparison: Comparison) -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Binary, DataType::Utf8, DataType::Utf8], Volatility::Immutable);
    Arc::new(ScalarUDF::from(Compare { comparison, signature }))
}

/// The call that compares `path` of the table's documents with `value`.
pub fn compare(comparison: Comparison, path: &Path, value: &str) -> Expr {
    let function = match comparison {
        Comparison::Equal => &EQUAL,
        Comparison::Contains => &CONTAINS,
    };
    function.call(vec![col(DOCUMENT), lit(path.to_string()), lit(value)])
}

/// The predicate that an expression is, when it is a call made by [`compare`].
pub fn predicate_of(expression: &Expr) -> Option<Predicate> {
    let Expr::ScalarFunction(call) = expression else { return None };
    let compare = call.func.inner().as_ref() as &dyn std::any::Any;
    let compare = compare.downcast_ref::<Compare>()?;
    let [Expr::Column(column), Expr::Literal(path, _), Expr::Literal(value, _)] = call.args.as_slice() else {
        return None;
    };
    if column.name != DOCUMENT {
        return None;
    }
    predicate(compare.comparison, path, value)
}

fn predicate(comparison: Comparison, path: &ScalarValue, value: &ScalarValue) -> Option<Predicate> {
    let path = Path::parse(path.try_as_str()??).ok()?;
    Some(Predicate::new(comparison, path, value.try_as_str()??))
}

impl ScalarUDFImpl for Compare {
    fn name(&self) -> &str {
        match self.comparison {
            Comparison::Equal => "filter",
            Comparison::Contains => "filter_contains",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Array(documents), ColumnarValue::Scalar(path), ColumnarValue::Scalar(value)] =
            args.args.as_slice()
        else {
            return exec_err!("{} takes documents, a literal path and a literal value", self.name());
        };
        let Some(predicate) = predicate(self.comparison, path, value) else {
            return exec_err!("{} takes a path and a text", self.name());
        };
        let documents = documents.as_binary::<i32>();
        let matches: BooleanArray =
            documents.iter().map(|document| document.map(|document| predicate.matches(document))).collect();
        Ok(ColumnarValue::Array(Arc::new(matches)))
    }
}
