//! Texts of users as HTML. Texts are escaped, isolated from the text direction around them (`<bdi>`), and truncated.
//! Invisible characters are replaced by their code points, such as `U+202E`.

use std::fmt::{self, Display, Write};
use std::ops::Range;

use askama::filters::HtmlSafe;
use strata_types::invisible_text::{flag_invisible, format_escapes_as_code_points};

use super::format;
use super::highlight::{EscapeSyntax, KeywordHighlighter};

#[derive(Clone, Debug, Default)]
pub(super) struct SafeText {
    pub(super) text: String,
    full_length_bytes: Option<u64>,
    pub(super) link: Option<String>,
    marked_ranges: Vec<Range<usize>>,
    /// Whether the omitted part of the text contains a keyword match.
    has_more_matches: bool,
    /// The number of bytes at the end of `text` that were appended to the original text, such as the bytes of `…`.
    suffix_bytes: usize,
    omits_bdi: bool,
    /// Whether leading and trailing white space is replaced by code points.
    names_edge_whitespace: bool,
}

impl HtmlSafe for SafeText {}

impl SafeText {
    /// Truncates a text, with a note of its full length. A text of only white space becomes a sequence of code points.
    pub(super) fn new(text: &str, characters: usize) -> SafeText {
        let end = text.char_indices().nth(characters).map(|(end, _)| end);
        let full_length_bytes = end.map(|_| text.len() as u64);
        let shown = SafeText::from_text(&text[..end.unwrap_or(text.len())]);
        SafeText { full_length_bytes, names_edge_whitespace: text.trim().is_empty(), ..shown }
    }

    /// Truncates a text without showing its length, for pages that show the whole text elsewhere.
    pub(super) fn with_ellipsis(text: &str, characters: usize) -> SafeText {
        let mut shown = SafeText::from_prefix(text, characters, false);
        if shown.full_length_bytes.take().is_some() {
            shown.push_ellipsis();
        }
        shown
    }

    fn push_ellipsis(&mut self) {
        self.text.push('…');
        self.suffix_bytes += '…'.len_utf8();
    }

    pub(super) fn from_text(text: &str) -> SafeText {
        SafeText { text: text.to_owned(), ..SafeText::default() }
    }

    pub(super) fn from_lines(text: &str) -> SafeText {
        SafeText::from_text(&text.replace("\r\n", "\n"))
    }

    /// Truncates a text that may already be truncated. An empty text becomes `(empty)`, because a link needs a text.
    pub(super) fn from_prefix(text: &str, characters: usize, is_truncated: bool) -> SafeText {
        if text.is_empty() && !is_truncated {
            let shown = SafeText::from_text("(empty)");
            return SafeText { suffix_bytes: shown.text.len(), ..shown };
        }
        let mut shown = SafeText::new(text, characters);
        if is_truncated && shown.full_length_bytes.is_none() {
            shown.push_ellipsis();
        }
        shown
    }

    /// Replaces leading and trailing white space by code points.
    pub(super) fn with_visible_edges(self) -> SafeText {
        SafeText { names_edge_whitespace: true, ..self }
    }

    /// Returns the range of the text without leading and trailing white space that is replaced by code points.
    fn range_without_edge_whitespace(&self) -> Range<usize> {
        let all = self.text.len();
        if !self.names_edge_whitespace {
            return 0..all;
        }
        let start = all - self.text.trim_start().len();
        let end = if self.is_truncated() || self.suffix_bytes > 0 { all } else { self.text.trim_end().len() };
        start..end.max(start)
    }

    fn write_range(&self, formatter: &mut fmt::Formatter<'_>, Range { start, end }: Range<usize>) -> fmt::Result {
        let inner = self.range_without_edge_whitespace();
        let from = inner.start.clamp(start, end);
        let to = inner.end.clamp(start, end);
        self.text[start..from].chars().try_for_each(|character| write_code_point(formatter, character))?;
        EscapedHtml(&self.text[from..to]).fmt(formatter)?;
        self.text[to..end].chars().try_for_each(|character| write_code_point(formatter, character))
    }

    /// Omits the `<bdi>` element for a text that fills its block. Large tables render faster without it.
    pub(super) fn without_bdi(self) -> SafeText {
        SafeText { omits_bdi: self.link.is_none() && self.full_length_bytes.is_none(), ..self }
    }

    /// Like [`SafeText::new`], but links the text if it is a web URL.
    pub(super) fn with_auto_link(text: &str, characters: usize) -> SafeText {
        SafeText { link: parse_web_url(text), ..SafeText::new(text, characters) }
    }

    pub(super) fn with_highlights(self, highlighter: &KeywordHighlighter, syntax: EscapeSyntax) -> SafeText {
        let ranges = highlighter.match_ranges(&self.text[..self.text.len() - self.suffix_bytes], syntax);
        self.with_marked_ranges(ranges)
    }

    /// Highlights `marked_ranges` of the text, which must be in order and must not overlap.
    pub(super) fn with_marked_ranges(self, marked_ranges: Vec<Range<usize>>) -> SafeText {
        SafeText { marked_ranges, ..self }
    }

    /// Marks the keyword matches and notes matches in the omitted part of the text. Also returns all matches in
    /// `whole`, the text with the omitted part.
    pub(super) fn with_matches_in(
        self,
        whole: &str,
        highlighter: &KeywordHighlighter,
        syntax: EscapeSyntax,
    ) -> (SafeText, Vec<Range<usize>>) {
        let shown = self.with_highlights(highlighter, syntax);
        let matches = highlighter.match_ranges(whole, syntax);
        let bytes = |parts: &[Range<usize>]| parts.iter().map(Range::len).sum::<usize>();
        let has_more_matches = shown.is_truncated() && bytes(&matches) > bytes(&shown.marked_ranges);
        (SafeText { has_more_matches, ..shown }, matches)
    }

    /// Returns an excerpt of a text around its first keyword match, on the line of the match, with all matches marked.
    pub(super) fn from_match_excerpt(text: &str, matches: &[Range<usize>], characters: usize) -> SafeText {
        let found = matches.first().cloned().unwrap_or_default();
        let before = text[..found.start]
            .char_indices()
            .rev()
            .take(characters / 3)
            .take_while(|(_, character)| *character != '\n');
        let start = before.last().map_or(found.start, |(index, _)| index);
        let mut after = text[start..]
            .char_indices()
            .skip_while(|(index, character)| start + index < found.end || *character != '\n');
        let line = after.next().map_or(text.len(), |(index, _)| start + index);
        let end = text[start..line].char_indices().nth(characters).map_or(line, |(index, _)| start + index);
        let mut shown = SafeText::from_text(if start > 0 { "…" } else { "" });
        let to = |index: usize| index.clamp(start, end) - start + shown.text.len();
        let ranges = matches.iter().filter(|found| found.start < end && found.end > start);
        let ranges = ranges.map(|hit| to(hit.start)..to(hit.end)).collect();
        shown.text.push_str(&text[start..end]);
        if end < text.len() {
            shown.text.push('…');
        }
        shown.with_marked_ranges(ranges)
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.full_length_bytes.is_some()
    }

    /// Returns the approximate width in a monospaced font, in columns. Wide characters count as two columns.
    pub(super) fn display_width(&self) -> usize {
        let wide = self.text.chars().filter(|character| *character >= '\u{1100}').count();
        self.text.chars().count() + wide
    }

    pub(super) fn has_keyword_match(&self) -> bool {
        !self.marked_ranges.is_empty() || self.has_more_matches
    }

    pub(super) fn estimated_html_bytes(&self) -> usize {
        self.text.len() + self.link.as_ref().map_or(0, String::len)
    }
}

const MAX_LINK_BYTES: usize = 2_000;

fn parse_web_url(text: &str) -> Option<String> {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    if !is_web || text.len() > MAX_LINK_BYTES || text.chars().any(|character| character.is_whitespace()) {
        return None;
    }
    let url = url::Url::parse(text).ok()?;
    // URLs with a user name are not linked, because the user name can look like the host.
    (url.has_host() && url.username().is_empty() && url.password().is_none()).then(|| url.to_string())
}

impl fmt::Display for SafeText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(link) = &self.link {
            write!(formatter, "<a href=\"{}\" rel=\"noopener noreferrer nofollow\">", EscapedHtml(link))?;
        }
        if !self.omits_bdi {
            formatter.write_str("<bdi>")?;
        }
        let mut from = 0;
        for Range { start, end } in self.marked_ranges.iter().cloned() {
            self.write_range(formatter, from..start)?;
            formatter.write_str("<mark>")?;
            self.write_range(formatter, start..end)?;
            formatter.write_str("</mark>")?;
            from = end;
        }
        self.write_range(formatter, from..self.text.len())?;
        if !self.omits_bdi {
            formatter.write_str("</bdi>")?;
        }
        if self.link.is_some() {
            formatter.write_str("</a>")?;
        }
        if let Some(bytes) = self.full_length_bytes {
            let hits = if self.has_more_matches { ", with more matches in the rest" } else { "" };
            write!(formatter, "<span class=\"cut\">… shortened, {} in total{hits}</span>", format::byte_size(bytes))?;
        }
        Ok(())
    }
}

/// Returns the characters of a text, and whether each is shown as its code point.
pub(super) fn flag_invisible_chars(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    flag_invisible(text).map(|(character, is_invisible)| (character, is_invisible && !matches!(character, '\n' | '\t')))
}

pub(super) fn name_invisible_chars(text: &str) -> String {
    let mut named = String::with_capacity(text.len());
    for (character, is_named) in flag_invisible_chars(text) {
        let _ = if is_named { write!(named, "U+{:04X}", u32::from(character)) } else { named.write_char(character) };
    }
    named
}

fn write_code_point(formatter: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    write!(formatter, "<span class=\"ctl\">U+{:04X}</span>", u32::from(character))
}

/// Escapes invisible characters and noncharacters in JSON strings.
pub(super) fn escape_invisible_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for (character, is_named) in flag_invisible_chars(json) {
        let number = u32::from(character);
        let is_noncharacter = number & 0xFFFE == 0xFFFE || (0xFDD0..=0xFDEF).contains(&number);
        match is_named || is_noncharacter {
            true => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
            false => text.push(character),
        }
    }
    text
}

pub(super) struct EscapedHtml<'a>(pub(super) &'a str);

impl fmt::Display for EscapedHtml<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (character, is_named) in flag_invisible_chars(self.0) {
            match character {
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '&' => formatter.write_str("&amp;")?,
                '"' => formatter.write_str("&quot;")?,
                '\'' => formatter.write_str("&#39;")?,
                character if is_named => write_code_point(formatter, character)?,
                character => formatter.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// A sentence with code in backticks. It can contain texts of users.
pub(super) struct InlineCodeText {
    spans: Vec<(bool, SafeText)>,
}

impl HtmlSafe for InlineCodeText {}

impl InlineCodeText {
    pub(super) fn new(text: &str) -> InlineCodeText {
        let text = &*format_escapes_as_code_points(text);
        // An odd number of backticks means that a path in the sentence has one, so no part is shown as code.
        let is_paired = text.matches('`').count().is_multiple_of(2);
        let pieces: Vec<&str> = if is_paired { text.split('`').collect() } else { vec![text] };
        let pieces = pieces.into_iter().enumerate().filter(|(_, piece)| !piece.is_empty());
        InlineCodeText { spans: pieces.map(|(index, piece)| (index % 2 == 1, SafeText::from_text(piece))).collect() }
    }
}

impl fmt::Display for InlineCodeText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|(is_code, piece)| match is_code {
            true => write!(formatter, "<code>{piece}</code>"),
            false => piece.fmt(formatter),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_code_is_marked_and_escaped() {
        for (text, html) in [
            ("List `a.b`, or not.", "List <code>a.b</code>, or not."),
            ("`a` is `b`", "<code>a</code> is <code>b</code>"),
            ("`a`b` is none", "`a`b` is none"),
            ("`<\u{202e}`", "<code>&lt;<span class=\"ctl\">U+202E</span></code>"),
            ("No entity has \"\\u{202e}\".", "No entity has &quot;U+202E&quot;."),
            ("", ""),
        ] {
            let shown = InlineCodeText::new(text).to_string().replace("<bdi>", "").replace("</bdi>", "");
            assert_eq!(shown, html, "{text:?}");
        }
    }

    #[test]
    fn text_is_escaped_and_truncated() {
        for (text, html) in [
            ("", "<bdi></bdi>"),
            ("<b>&'\"", "<bdi>&lt;b&gt;&amp;&#39;&quot;</bdi>"),
            ("a\u{202e}b\0", "<bdi>a<span class=\"ctl\">U+202E</span>b<span class=\"ctl\">U+0000</span></bdi>"),
            ("👩\u{200d}🚀\n", "<bdi>👩\u{200d}🚀\n</bdi>"),
            ("0123456789x", "<bdi>0123456789</bdi><span class=\"cut\">… shortened, 11 bytes in total</span>"),
        ] {
            assert_eq!(SafeText::new(text, 10).to_string(), html, "{text:?}");
        }
        assert_eq!(SafeText::new("<b", 10).without_bdi().to_string(), "&lt;b");
        assert!(SafeText::new("0123456789x", 10).without_bdi().to_string().starts_with("<bdi>"), "more follows it");
    }

    #[test]
    fn matches_in_omitted_part_are_noted() {
        let highlighter = KeywordHighlighter::new(&["end".to_owned()]);
        let is_noted = |text: &str| {
            let (shown, _) = SafeText::new(text, 5).with_matches_in(text, &highlighter, EscapeSyntax::None);
            shown.to_string().contains("matches in the rest")
        };
        assert_eq!(["a long end", "end a long", "ab end", "end"].map(is_noted), [true, false, true, false]);
        assert!(is_noted("xxendend"));
        let shown = SafeText::new("xxendend", 5).with_highlights(&highlighter, EscapeSyntax::None).to_string();
        assert!(shown.starts_with("<bdi>xx<mark>end</mark></bdi>"), "{shown}");
    }

    #[test]
    fn ellipses_and_placeholders_are_not_marked() {
        let highlighter = KeywordHighlighter::new(&["…".to_owned(), "empty".to_owned()]);
        for (text, html) in [("12345…", "<bdi>12345…</bdi>"), ("", "<bdi>(empty)</bdi>")] {
            assert_eq!(
                SafeText::with_ellipsis(text, 5).with_highlights(&highlighter, EscapeSyntax::None).to_string(),
                html
            );
        }
    }

    /// Regression: texts of white space were shown as `(empty)`.
    #[test]
    fn whitespace_texts_and_edges_show_code_points() {
        let names = |html: String| html.replace("<span class=\"ctl\">", "{").replace("</span>", "}");
        let html_of = |shown: SafeText| names(shown.without_bdi().to_string());
        let six = format!("{}…", "{U+0020}".repeat(6));
        for (text, plain, ends) in [
            ("", "(empty)", "(empty)"),
            (" ", "{U+0020}", "{U+0020}"),
            (" \t\n\u{a0}", "{U+0020}{U+0009}{U+000A}{U+00A0}", "{U+0020}{U+0009}{U+000A}{U+00A0}"),
            (" a b ", " a b ", "{U+0020}a b{U+0020}"),
            ("a     b", "a     …", "a     …"),
            ("       ", &six, &six),
        ] {
            assert_eq!(html_of(SafeText::with_ellipsis(text, 6)), plain, "{text:?}");
            assert_eq!(html_of(SafeText::with_ellipsis(text, 6).with_visible_edges()), ends, "{text:?}");
        }
        assert_eq!(html_of(SafeText::from_prefix("", 6, true)), "…", "the beginning of a truncated text");
        let highlighter = KeywordHighlighter::new(&["a ".to_owned()]);
        assert_eq!(
            html_of(SafeText::from_text(" a ").with_visible_edges().with_highlights(&highlighter, EscapeSyntax::None)),
            "{U+0020}<mark>a{U+0020}</mark>"
        );
        assert_eq!(html_of(SafeText::with_auto_link("\t", 6)), "{U+0009}");
    }

    #[test]
    fn match_is_shown_with_text_around_it() {
        let highlighter = KeywordHighlighter::new(&["hit".to_owned()]);
        for (text, html) in [
            ("hit", "<mark>hit</mark>"),
            ("0123456789 hit 0123456789 HIT", "…56789 <mark>hit</mark> 0123456789…"),
            ("ä ö ü\nß hit hit\nß", "…ß <mark>hit</mark> <mark>hit</mark>…"),
            ("0123456789012345678hit", "…345678<mark>hit</mark>"),
        ] {
            let hits = highlighter.match_ranges(text, EscapeSyntax::None);
            assert_eq!(SafeText::from_match_excerpt(text, &hits, 20).without_bdi().to_string(), html, "{text:?}");
        }
        // A match that is longer than the excerpt is marked up to the end of the excerpt.
        let highlighter = KeywordHighlighter::new(&["x".repeat(50)]);
        let text = "x".repeat(50);
        let hits = highlighter.match_ranges(&text, EscapeSyntax::None);
        let shown = SafeText::from_match_excerpt(&text, &hits, 9).without_bdi().to_string();
        assert_eq!(shown, "<mark>xxxxxxxxx</mark>…");
    }
}
