//! The table of docs/configuration.md, Options, generated from the options themselves.

use super::Config;
use super::option::{ConfigOption, OptionKind};

/// Every option as a row of one Markdown table: key, default, meaning.
pub fn markdown_table() -> String {
    let rows = Config::options().into_iter().map(|option| row(&option));
    ["| Key | Default | Meaning |\n".to_owned(), "|---|---|---|\n".to_owned()].into_iter().chain(rows).collect()
}

fn row(option: &ConfigOption) -> String {
    let default = match (&option.default, option.kind) {
        (None, _) => String::new(),
        (Some(text), OptionKind::WholeNumber) if option.name.ends_with("_bytes") => {
            format!("`{text}`{}", binary_unit(text))
        }
        (Some(text), _) => format!("`{text}`"),
    };
    let range =
        option.range.as_ref().map_or(String::new(), |range| format!(" From {} to {}.", range.start(), range.end()));
    let about = option.about.replace('|', "\\|");
    format!("| `{}` | {default} | {about}{range} |\n", option.key())
}

/// ` (16 MiB)` after a number of bytes that is a whole number of such units.
fn binary_unit(bytes: &str) -> String {
    let Ok(bytes) = bytes.parse::<u64>() else { return String::new() };
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, bits)| bytes >> bits > 0 && bytes % (1 << bits) == 0) {
        Some((unit, bits)) => format!(" ({} {unit})", bytes >> bits),
        None => String::new(),
    }
}
