//! A diff for people: a heading, and a few lines for each record.

use std::collections::HashSet;
use std::fmt::{self, Write};

use clap::builder::styling::{AnsiColor, Style};
use strata_diff::{ChangeType, DiffPage};
use strata_json::{Cursor, Text};
use strata_service::{DiffSummary, VersionDiff};
use strata_types::text::with_invisible;

use super::counted;

/// The maximum lengths of shown values and entities, in characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    value: usize,
    entity: usize,
}

impl Lengths {
    pub(super) const CUT: Lengths = Lengths { value: 60, entity: 120 };
    pub(super) const WHOLE: Lengths = Lengths { value: usize::MAX, entity: usize::MAX };
}

/// Characters that are shown before the first difference of two long values.
const CONTEXT: usize = 20;

/// The styles of a report, without any by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Palette {
    heading: Style,
    source: Style,
    faint: Style,
    added: Style,
    subtracted: Style,
    modified: Style,
}

impl Palette {
    pub(super) fn coloured() -> Palette {
        Palette {
            heading: Style::new().bold(),
            source: AnsiColor::Cyan.on_default(),
            faint: Style::new().dimmed(),
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

fn sign(change: ChangeType) -> char {
    match change {
        ChangeType::Added => '+',
        ChangeType::Subtracted => '-',
        ChangeType::Modified => '~',
    }
}

struct Painted<T>(Style, T);

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Painted(style, text) = self;
        write!(formatter, "{style}{text}{style:#}")
    }
}

pub(super) struct Report {
    pub(super) palette: Palette,
    pub(super) lengths: Lengths,
}

impl Report {
    /// Both versions, and the numbers of changes.
    pub(super) fn heading(&self, diff: &VersionDiff) -> String {
        let DiffSummary { added, subtracted, modified, total_v1, total_v2 } = diff.summary();
        let [v1, v2] = diff.versions;
        let name = visible(diff.dataset.name.as_str());
        let alternate = if diff.alt { "the alternate of " } else { "" };
        let [total_v1, total_v2] = [total_v1, total_v2].map(|total| counted(total, "entity", "entities"));
        let heading = format!("{name}: version {v1} ({total_v1}) and {alternate}version {v2} ({total_v2})");
        let palette = &self.palette;
        format!(
            "{}\n{}  {}  {}\n",
            Painted(palette.heading, heading),
            Painted(palette.added, format_args!("+{added} added")),
            Painted(palette.subtracted, format_args!("-{subtracted} subtracted")),
            Painted(palette.modified, format_args!("~{modified} modified")),
        )
    }

    /// One record, as it is in JSON.
    pub(super) fn record(&self, record: &[u8]) -> String {
        let member = |name| strata_json::member(record, name).unwrap_or_default();
        let v1 = member("v1");
        let v2 = member("v2");
        let change = match (v1, v2) {
            (b"null", _) => ChangeType::Added,
            (_, b"null") => ChangeType::Subtracted,
            _ => ChangeType::Modified,
        };
        let style = self.palette.style(change);
        let id = string(member("id"));
        let source = string(member("source"));
        let mut text = format!("\n{} {}", Painted(style, sign(change)), Painted(style, id));
        if !source.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(text, "  {}", Painted(self.palette.source, cut(&source, self.lengths.entity)));
        }
        text.push('\n');
        match change {
            ChangeType::Added => self.entity(v2, Style::new(), &mut text),
            ChangeType::Subtracted => self.entity(v1, Style::new(), &mut text),
            ChangeType::Modified => {
                // The line must identify the record.
                if member("source") == b"\"\"" {
                    self.entity(v2, self.palette.faint, &mut text);
                }
                self.fields(member("field_diffs"), v1, v2, &mut text);
            }
        }
        text
    }

    fn entity(&self, entity: &[u8], style: Style, text: &mut String) {
        let shown = cut(&visible(&String::from_utf8_lossy(entity)), self.lengths.entity);
        let _ = writeln!(text, "    {}", Painted(style, shown));
    }

    fn fields(&self, field_diffs: &[u8], v1: &[u8], v2: &[u8], text: &mut String) {
        let names = |entity| strata_json::members(entity).map(|(name, _)| name.raw()).collect::<HashSet<_>>();
        let ones = names(v1);
        let others = names(v2);
        let mut fields = Cursor::new(field_diffs);
        fields.enter();
        while fields.next_element() {
            let field = fields.skip_value();
            let member = |name| strata_json::member(field, name).unwrap_or_default();
            let name = Text::new(unquoted(member("field")));
            let value = |side| visible(&String::from_utf8_lossy(member(side)));
            let shown_name = match name.raw() {
                b"" => "\"\"".to_owned(),
                raw => cut(&visible(&String::from_utf8_lossy(raw)), self.lengths.value),
            };
            let (change, values) = match (ones.contains(name.raw()), others.contains(name.raw())) {
                (true, false) => {
                    let value = cut(&value("v1"), self.lengths.value);
                    (ChangeType::Subtracted, Painted(self.palette.subtracted, value).to_string())
                }
                (false, _) => {
                    let value = cut(&value("v2"), self.lengths.value);
                    (ChangeType::Added, Painted(self.palette.added, value).to_string())
                }
                (true, true) => {
                    let (old, new) = cut_both(&value("v1"), &value("v2"), self.lengths.value);
                    let old = Painted(self.palette.subtracted, old);
                    let new = Painted(self.palette.added, new);
                    (ChangeType::Modified, format!("{old} → {new}"))
                }
            };
            let _ = writeln!(text, "    {} {shown_name}: {values}", Painted(self.palette.style(change), sign(change)));
        }
    }

    /// The note about records that the page leaves out.
    pub(super) fn rest(&self, diff: &VersionDiff, page: &DiffPage) -> String {
        if page.limit == Some(0) {
            return String::new();
        }
        let all = diff.count(page.change_type);
        let shown = diff.page_count(page);
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
        format!("\n{}\n", Painted(self.palette.faint, text))
    }
}

/// A JSON string without its quotes.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or_default()
}

/// A JSON string as it is shown: escaped, without its quotes.
fn string(value: &[u8]) -> String {
    visible(&String::from_utf8_lossy(unquoted(value)))
}

/// The text with escapes for characters that a terminal would obey, or not show. Characters that join the parts of
/// emoji and letters stay, and so do the tags of flags.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (character, is_invisible) in with_invisible(text) {
        if is_invisible {
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The first characters of a text. If there are more, the last one is `…`.
fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(characters.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Two texts, cut so that their difference is visible.
fn cut_both(one: &str, other: &str, characters: usize) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let is_long = |text: &str| text.char_indices().nth(characters).is_some();
    let from = same.saturating_sub(CONTEXT);
    if from < 2 || same + CONTEXT < characters || !(is_long(one) || is_long(other)) {
        return (cut(one, characters), cut(other, characters));
    }
    let part = |text: &str| {
        let rest: String = std::iter::once('…').chain(text.chars().skip(from)).collect();
        cut(&rest, characters)
    };
    (part(one), part(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(record: &str, expected: &str) {
        let report = Report { palette: Palette::default(), lengths: Lengths { value: 30, entity: 40 } };
        assert_eq!(report.record(record.as_bytes()), expected);
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
        // Without a source, the entity itself identifies the record.
        check(
            r#"{"id":"m0-0","source":"","v1":{"n":"x","a":1},"v2":{"n":"x","a":2},"field_diffs":[{"field":"a","v1":1,"v2":2}]}"#,
            "\n~ m0-0\n    {\"n\":\"x\",\"a\":2}\n    ~ a: 1 → 2\n",
        );
    }

    #[test]
    fn long_texts_of_records_are_cut() {
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
        assert_eq!(visible("a\u{1b}[31m\u{9b}b\u{202e}c\u{7f}"), "a\\u001b[31m\\u009bb\\u202ec\\u007f");
        assert_eq!(visible("\u{61c}\u{200b}\u{2060}\u{feff}"), "\\u061c\\u200b\\u2060\\ufeff");
        assert_eq!(visible("👩\u{200d}👧"), "👩\u{200d}👧");
    }

    #[test]
    fn long_values_are_cut_around_their_difference() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        let common = "x".repeat(100);
        let one = format!("{common}1yyyy");
        let other = format!("{common}2yyyy");
        let shown = format!("…{}", "x".repeat(CONTEXT));
        assert_eq!(cut_both(&one, &other, 60), (format!("{shown}1yyyy"), format!("{shown}2yyyy")));
        assert_eq!(cut_both(&one, &other, usize::MAX), (one, other));
        let one = format!("1{common}");
        let other = "2".to_owned();
        assert_eq!(cut_both(&one, &other, 10), ("1xxxxxxxx…".to_owned(), "2".to_owned()));
    }
}
