//! Diffs for people: a heading, and a few lines for each record.

use std::collections::HashSet;
use std::fmt::{self, Write};

use clap::builder::styling::{AnsiColor, Style};
use strata_diff::{ChangeType, DiffPage};
use strata_json::{JsonCursor, JsonStr};
use strata_service::{DiffSummary, VersionDiff};
use strata_types::invisible_text::flag_invisible;

use super::format_count;

#[derive(Clone, Copy, Debug)]
pub(super) struct TruncationLengths {
    value_characters: usize,
    entity_characters: usize,
}

impl TruncationLengths {
    pub(super) const TRUNCATED: TruncationLengths = TruncationLengths { value_characters: 60, entity_characters: 120 };
    pub(super) const UNLIMITED: TruncationLengths =
        TruncationLengths { value_characters: usize::MAX, entity_characters: usize::MAX };
}

/// Number of characters that a diff shows before the first difference between two long values.
const CONTEXT_CHARACTERS: usize = 20;

/// The terminal styles of a printed diff; plain by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DiffPalette {
    heading: Style,
    source: Style,
    dimmed: Style,
    added: Style,
    subtracted: Style,
    modified: Style,
}

impl DiffPalette {
    pub(super) fn with_colors() -> DiffPalette {
        DiffPalette {
            heading: Style::new().bold(),
            source: AnsiColor::Cyan.on_default(),
            dimmed: Style::new().dimmed(),
            added: AnsiColor::Green.on_default(),
            subtracted: AnsiColor::Red.on_default(),
            modified: AnsiColor::Yellow.on_default(),
        }
    }

    fn style(&self, change: ChangeType) -> Style {
        match change {
            ChangeType::Added => self.added,
            ChangeType::Subtracted => self.subtracted,
            ChangeType::Modified => self.modified,
        }
    }
}

fn change_sign(change: ChangeType) -> char {
    match change {
        ChangeType::Added => '+',
        ChangeType::Subtracted => '-',
        ChangeType::Modified => '~',
    }
}

struct StyledText<T>(Style, T);

impl<T: fmt::Display> fmt::Display for StyledText<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StyledText(style, text) = self;
        write!(formatter, "{style}{text}{style:#}")
    }
}

pub(super) struct DiffTextFormatter {
    pub(super) palette: DiffPalette,
    pub(super) lengths: TruncationLengths,
}

impl DiffTextFormatter {
    pub(super) fn format_heading(&self, diff: &VersionDiff) -> String {
        let DiffSummary { added, subtracted, modified, total_v1, total_v2 } = diff.summary();
        let [v1, v2] = diff.versions;
        let name = escape_invisible(diff.dataset.name.as_str());
        let alternate = if diff.alt { "the alternate of " } else { "" };
        let [total_v1, total_v2] = [total_v1, total_v2].map(|total| format_count(total, "entity", "entities"));
        let heading = format!("{name}: version {v1} ({total_v1}) and {alternate}version {v2} ({total_v2})");
        let palette = &self.palette;
        format!(
            "{}\n{}  {}  {}\n",
            StyledText(palette.heading, heading),
            StyledText(palette.added, format_args!("+{added} added")),
            StyledText(palette.subtracted, format_args!("-{subtracted} subtracted")),
            StyledText(palette.modified, format_args!("~{modified} modified")),
        )
    }

    pub(super) fn format_record(&self, record: &[u8]) -> String {
        let member = |name| strata_json::find_member(record, name).unwrap_or_default();
        let v1 = member("v1");
        let v2 = member("v2");
        let change = match (v1, v2) {
            (b"null", _) => ChangeType::Added,
            (_, b"null") => ChangeType::Subtracted,
            _ => ChangeType::Modified,
        };
        let style = self.palette.style(change);
        let id = display_string(member("id"));
        let source = display_string(member("source"));
        let mut text = format!("\n{} {}", StyledText(style, change_sign(change)), StyledText(style, id));
        if !source.is_empty() {
            let source = truncate(&source, self.lengths.entity_characters);
            // Writing to a string cannot fail.
            let _ = write!(text, "  {}", StyledText(self.palette.source, source));
        }
        text.push('\n');
        match change {
            ChangeType::Added => self.write_entity(v2, Style::new(), &mut text),
            ChangeType::Subtracted => self.write_entity(v1, Style::new(), &mut text),
            ChangeType::Modified => {
                // A modified entity without a source is printed as a whole, so that a reader can identify it.
                if member("source") == b"\"\"" {
                    self.write_entity(v2, self.palette.dimmed, &mut text);
                }
                self.write_field_diffs(member("field_diffs"), v1, v2, &mut text);
            }
        }
        text
    }

    fn write_entity(&self, entity: &[u8], style: Style, text: &mut String) {
        let shown = truncate(&escape_invisible(&String::from_utf8_lossy(entity)), self.lengths.entity_characters);
        let _ = writeln!(text, "    {}", StyledText(style, shown));
    }

    fn write_field_diffs(&self, field_diffs: &[u8], v1: &[u8], v2: &[u8], text: &mut String) {
        let names = |entity| strata_json::members(entity).map(|(name, _)| name.raw()).collect::<HashSet<_>>();
        let v1_names = names(v1);
        let v2_names = names(v2);
        let mut fields = JsonCursor::new(field_diffs);
        fields.enter();
        while fields.next_element() {
            let field = fields.skip_value();
            let member = |name| strata_json::find_member(field, name).unwrap_or_default();
            let name = JsonStr::new(strip_quotes(member("field")));
            let value = |side| escape_invisible(&String::from_utf8_lossy(member(side)));
            let shown_name = match name.raw() {
                b"" => "\"\"".to_owned(),
                raw => truncate(&escape_invisible(&String::from_utf8_lossy(raw)), self.lengths.value_characters),
            };
            let (change, values) = match (v1_names.contains(name.raw()), v2_names.contains(name.raw())) {
                (true, false) => {
                    let value = truncate(&value("v1"), self.lengths.value_characters);
                    (ChangeType::Subtracted, StyledText(self.palette.subtracted, value).to_string())
                }
                (false, _) => {
                    let value = truncate(&value("v2"), self.lengths.value_characters);
                    (ChangeType::Added, StyledText(self.palette.added, value).to_string())
                }
                (true, true) => {
                    let (old, new) =
                        truncate_around_difference(&value("v1"), &value("v2"), self.lengths.value_characters);
                    let old = StyledText(self.palette.subtracted, old);
                    let new = StyledText(self.palette.added, new);
                    (ChangeType::Modified, format!("{old} → {new}"))
                }
            };
            let sign = StyledText(self.palette.style(change), change_sign(change));
            let _ = writeln!(text, "    {sign} {shown_name}: {values}");
        }
    }

    /// Formats the note about diff records that are not on the printed page.
    pub(super) fn format_remaining(&self, diff: &VersionDiff, page: &DiffPage) -> String {
        if page.limit == Some(0) {
            return String::new();
        }
        let all = diff.change_count(page.change_type);
        let shown = diff.page_change_count(page);
        let kind = page.change_type.map(|change_type| format!(" {}", change_type.name())).unwrap_or_default();
        let left = all.saturating_sub(page.offset).saturating_sub(shown);
        let text = if all == 0 {
            match page.change_type {
                None => "No entities differ.".to_owned(),
                Some(_) => format!("No{kind} entities."),
            }
        } else if left > 0 {
            let next = page.offset.saturating_add(shown);
            format!("{left} more{kind}. To list the next ones, use --offset {next}. To list all, use --limit all.")
        } else if shown == 0 {
            format!("No{kind} records at --offset {}: the total is {all}.", page.offset)
        } else {
            return String::new();
        };
        format!("\n{}\n", StyledText(self.palette.dimmed, text))
    }
}

fn strip_quotes(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or_default()
}

fn display_string(value: &[u8]) -> String {
    escape_invisible(&String::from_utf8_lossy(strip_quotes(value)))
}

/// Escapes characters that a terminal would interpret or not show, except for parts of emoji and flags.
fn escape_invisible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (character, is_invisible) in flag_invisible(text) {
        if is_invisible {
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns at most `characters` characters. If there are more, the last one is `…`.
fn truncate(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(characters.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Truncates two texts so that their difference is visible.
fn truncate_around_difference(old: &str, new: &str, characters: usize) -> (String, String) {
    let same = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
    let is_long = |text: &str| text.char_indices().nth(characters).is_some();
    let from = same.saturating_sub(CONTEXT_CHARACTERS);
    if from < 2 || same + CONTEXT_CHARACTERS < characters || !(is_long(old) || is_long(new)) {
        return (truncate(old, characters), truncate(new, characters));
    }
    let part = |text: &str| {
        let rest: String = std::iter::once('…').chain(text.chars().skip(from)).collect();
        truncate(&rest, characters)
    };
    (part(old), part(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(record: &str, expected: &str) {
        let report = DiffTextFormatter {
            palette: DiffPalette::default(),
            lengths: TruncationLengths { value_characters: 30, entity_characters: 40 },
        };
        assert_eq!(report.format_record(record.as_bytes()), expected);
    }

    #[test]
    fn modified_entity_shows_its_fields() {
        check(
            concat!(
                r#"{"id":"m0-1","change_type":"modified","source":"http://a/1","#,
                r#""v1":{"a":1.0,"b":null,"d":null,"":0},"v2":{"a":2,"c":[],"d":5,"":1},"#,
                r#""field_diffs":[{"field":"a","v1":1.0,"v2":2},{"field":"b","v1":null,"v2":null},"#,
                r#"{"field":"d","v1":null,"v2":5},{"field":"","v1":0,"v2":1},{"field":"c","v1":null,"v2":[]}]}"#
            ),
            "\n~ m0-1  http://a/1\n    ~ a: 1.0 → 2\n    - b: null\n    ~ d: null → 5\n    ~ \"\": 0 → 1\n    + c: []\n",
        );
        // A modified entity without a source is printed as a whole, which identifies it.
        check(
            r#"{"id":"m0-0","source":"","v1":{"n":"x","a":1},"v2":{"n":"x","a":2},"field_diffs":[{"field":"a","v1":1,"v2":2}]}"#,
            "\n~ m0-0\n    {\"n\":\"x\",\"a\":2}\n    ~ a: 1 → 2\n",
        );
    }

    #[test]
    fn long_texts_of_records_are_truncated() {
        check(r#"{"id":"a3","source":"","v1":null,"v2":{"a":"é\n"}}"#, "\n+ a3\n    {\"a\":\"é\\n\"}\n");
        let long = "x".repeat(1 << 20);
        check(
            &format!(r#"{{"id":"s3","source":"\"","v1":{{"a":"{long}"}},"v2":null}}"#),
            &format!("\n- s3  \\\"\n    {{\"a\":\"{}…\n", &long[..33]),
        );
        check(
            &format!(
                r#"{{"id":"m0-0","source":"{long}","v1":{{"{long}":1}},"v2":{{"{long}":2}},"field_diffs":[{{"field":"{long}","v1":1,"v2":2}}]}}"#
            ),
            &format!("\n~ m0-0  {}…\n    ~ {}…: 1 → 2\n", &long[..39], &long[..29]),
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_invisible("a\u{1b}[31m\u{9b}b\u{202e}c\u{7f}"), "a\\u001b[31m\\u009bb\\u202ec\\u007f");
        assert_eq!(escape_invisible("\u{61c}\u{200b}\u{2060}\u{feff}"), "\\u061c\\u200b\\u2060\\ufeff");
        assert_eq!(escape_invisible("👩\u{200d}👧"), "👩\u{200d}👧");
    }

    #[test]
    fn long_values_are_truncated_around_difference() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
        let common = "x".repeat(100);
        let one = format!("{common}1yyyy");
        let other = format!("{common}2yyyy");
        let shown = format!("…{}", "x".repeat(CONTEXT_CHARACTERS));
        assert_eq!(truncate_around_difference(&one, &other, 60), (format!("{shown}1yyyy"), format!("{shown}2yyyy")));
        assert_eq!(truncate_around_difference(&one, &other, usize::MAX), (one, other));
        let one = format!("1{common}");
        let other = "2".to_owned();
        assert_eq!(truncate_around_difference(&one, &other, 10), ("1xxxxxxxx…".to_owned(), "2".to_owned()));
    }
}
