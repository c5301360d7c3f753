//! The table of docs/read.md, Parameters, generated from the registry.

use std::fmt::Write;

use super::PARAMETERS;

/// A Markdown table with one line per parameter, in the registry's order. Ends with a line break.
pub fn markdown_table() -> String {
    let mut table = String::from("| Parameter | Values | Default | May repeat | Meaning |\n|---|---|---|---|---|\n");
    for parameter in PARAMETERS {
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} | {} |",
            parameter.name(),
            cell(&parameter.kind().text()),
            cell(parameter.default_text()),
            parameter.repetition().text(),
            cell(parameter.summary()),
        );
    }
    table
}

/// Text that stays inside its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
