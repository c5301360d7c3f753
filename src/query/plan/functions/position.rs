//! `position(order)`: the position of an entity, out of its order key, whose last eight bytes it is.

use std::sync::{Arc, LazyLock};

use arrow::array::{AsArray, UInt64Array};
use arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct PositionFunction {
    signature: Signature,
}

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::exact(vec![DataType::Binary], Volatility::Immutable);
    Arc::new(ScalarUDF::from(PositionFunction { signature }))
});

pub(in crate::query::plan) fn position(order: Expr) -> Expr {
    FUNCTION.call(vec![order])
}

impl ScalarUDFImpl for PositionFunction {
    fn name(&self) -> &str {
        "position"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Array(keys)] = args.args.as_slice() else {
            return exec_err!("position takes order keys");
        };
        let position = |key: &[u8]| key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let positions: UInt64Array = keys.as_binary::<i32>().iter().map(|key| key.and_then(position)).collect();
        Ok(ColumnarValue::Array(Arc::new(positions)))
    }
}
