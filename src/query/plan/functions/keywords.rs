//! `keywords(document, mode, include_source, denull, keep, drop, word…)`: whether words occur in what a reshaping
//! leaves of a document.
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
use crate::model::request::KeywordsMode;
use crate::query::fetch::reshape::Reshape;
use crate::query::scan::predicate::{Keywords, Predicate};
use crate::query::scan::schema::DOCUMENT;

#[derive(Debug, PartialEq, Eq, Hash)]
struct KeywordsFunction {
    signature: Signature,
}

static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(ScalarUDF::from(KeywordsFunction { signature }))
});

/// The call that searches what `reshape` leaves of the table's documents.
pub(in crate::query::plan) fn keywords(words: &[String], mode: KeywordsMode, reshape: &Reshape) -> Expr {
    let list = |paths: &[Path]| paths.iter().map(Path::to_string).collect::<Vec<_>>().join(",");
    let mut arguments = vec![
        col(DOCUMENT),
        lit(mode == KeywordsMode::And),
        lit(reshape.include_source()),
        lit(reshape.denull()),
        lit(list(reshape.keep())),
        lit(list(reshape.drop())),
    ];
    arguments.extend(words.iter().map(|word| lit(word.as_str())));
    FUNCTION.call(arguments)
}

pub(super) fn predicate_of(call: &ScalarFunction) -> Option<Predicate> {
    (call.func.inner().as_ref() as &dyn Any).downcast_ref::<KeywordsFunction>()?;
    let [Expr::Column(column), literals @ ..] = call.args.as_slice() else { return None };
    let literals: Option<Vec<&ScalarValue>> = literals
        .iter()
        .map(|argument| match argument {
            Expr::Literal(value, _) => Some(value),
            _ => None,
        })
        .collect();
    (column.name == DOCUMENT).then(|| predicate(&literals?))?
}

fn predicate(literals: &[&ScalarValue]) -> Option<Predicate> {
    let [
        ScalarValue::Boolean(Some(all)),
        ScalarValue::Boolean(Some(include_source)),
        ScalarValue::Boolean(Some(denull)),
        keep,
        drop,
        words @ ..,
    ] = literals
    else {
        return None;
    };
    let list = |value: &ScalarValue| Some(Path::parse_list(value.try_as_str()??));
    let words: Option<Vec<String>> = words.iter().map(|word| Some(word.try_as_str()??.to_owned())).collect();
    let reshape = Reshape::new(*include_source, *denull, list(keep)?, list(drop)?);
    let mode = if *all { KeywordsMode::And } else { KeywordsMode::Or };
    Some(Predicate::Keywords(Keywords::new(words?, mode, reshape)))
}

impl ScalarUDFImpl for KeywordsFunction {
    fn name(&self) -> &str {
        "keywords"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Array(documents), literals @ ..] = args.args.as_slice() else {
            return exec_err!("keywords takes documents and literals");
        };
        let literals: Option<Vec<&ScalarValue>> = literals
            .iter()
            .map(|argument| match argument {
                ColumnarValue::Scalar(value) => Some(value),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        let Some(predicate) = literals.and_then(|literals| predicate(&literals)) else {
            return exec_err!("keywords takes literals after the documents");
        };
        let documents = documents.as_binary::<i32>();
        let matches: BooleanArray =
            documents.iter().map(|document| document.map(|document| predicate.matches(document))).collect();
        Ok(ColumnarValue::Array(Arc::new(matches)))
    }
}
