//! `random()`: a number for every row from the cryptographically secure generator of its thread. Sorting by it
//! shuffles.

use std::sync::{Arc, LazyLock};

use arrow::array::UInt64Array;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use rand::Rng;

#[derive(Debug, PartialEq, Eq, Hash)]
struct RandomFunction {
    signature: Signature,
}

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::nullary(Volatility::Volatile);
    Arc::new(ScalarUDF::from(RandomFunction { signature }))
});

pub(in crate::query::plan) fn random() -> Expr {
    FUNCTION.call(Vec::new())
}

impl ScalarUDFImpl for RandomFunction {
    fn name(&self) -> &str {
        "random"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut generator = rand::rng();
        let numbers = UInt64Array::from_iter_values((0..args.number_rows).map(|_| generator.next_u64()));
        Ok(ColumnarValue::Array(Arc::new(numbers)))
    }
}
