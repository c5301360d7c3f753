//! Statements that ask for many values at once: always for as many, so that there is one statement, and a page of them
//! is filled up with nulls, which are never found.

use super::CatalogError;
use super::engine::{Engine, Row, Value};

pub(super) const AT_ONCE: usize = 100;

pub(super) fn placeholders() -> String {
    let placeholders: Vec<String> = (1..=AT_ONCE).map(|number| format!("${number}")).collect();
    placeholders.join(", ")
}

/// What a statement yields for these texts, a hundred at a time. One that the catalog cannot hold is never found.
pub(super) async fn rows_of_texts<T: Row>(
    engine: &Engine,
    sql: &'static str,
    texts: &[&str],
) -> Result<Vec<T>, CatalogError> {
    let mut rows = Vec::new();
    for chunk in texts.chunks(AT_ONCE) {
        let text = |number| chunk.get(number).copied().filter(|text: &&str| !text.contains('\0'));
        let values: Vec<Value<'_>> = (0..AT_ONCE).map(|number| Value::OptionalText(text(number))).collect();
        rows.extend(engine.fetch_all::<T>(sql, &values).await?);
    }
    Ok(rows)
}
