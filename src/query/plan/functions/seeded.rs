//! `seeded(position, seed)`: the rank of an entity in the shuffle of a seed: SipHash-2-4 of its position under the key
//! that the seed is (docs/semantics.md, sample). Nothing else decides on it: neither the plan, nor the layout, nor the
//! machine. Another function is another encoder's version, too.

use std::sync::{Arc, LazyLock};

use arrow::array::{AsArray, UInt64Array};
use arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::lit;
use siphasher::sip::SipHasher24;

#[derive(Debug, PartialEq, Eq, Hash)]
struct SeededFunction {
    signature: Signature,
}

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::exact(vec![DataType::UInt64; 2], Volatility::Immutable);
    Arc::new(ScalarUDF::from(SeededFunction { signature }))
});

pub(in crate::query::plan) fn seeded(position: Expr, seed: u64) -> Expr {
    FUNCTION.call(vec![position, lit(seed)])
}

/// The rank of a position: the key is the seed as 16 bytes, little-endian, the message the position as 8.
fn rank(position: u64, seed: u64) -> u64 {
    SipHasher24::new_with_keys(seed, 0).hash(&position.to_le_bytes())
}

impl ScalarUDFImpl for SeededFunction {
    fn name(&self) -> &str {
        "seeded"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Array(positions), ColumnarValue::Scalar(ScalarValue::UInt64(Some(seed)))] =
            args.args.as_slice()
        else {
            return exec_err!("seeded takes positions and a seed");
        };
        let positions = positions.as_primitive::<UInt64Type>().values();
        let ranks = UInt64Array::from_iter_values(positions.iter().map(|position| rank(*position, *seed)));
        Ok(ColumnarValue::Array(Arc::new(ranks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of docs/semantics.md, sample.
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
