//! Texts of users as HTML: escaped, isolated from the direction of the text around them, shortened, and with names for
//! invisible characters.

use std::fmt::{self, Display, Write};
use std::ops::Range;

use askama::filters::HtmlSafe;
use strata_types::text::{with_invisible, with_names};

use super::format;
use super::highlight::{Highlighter, Syntax};

/// A text of a user, as the inside of an element.
#[derive(Clone, Debug, Default)]
pub(super) struct SafeText {
    pub(super) text: String,
    /// The length of the whole text, if it is shortened.
    all_bytes: Option<u64>,
    pub(super) link: Option<String>,
    marked: Vec<Range<usize>>,
    /// Whether a hit ends in the rest of the text.
    has_more_hits: bool,
    /// Bytes at the end that are not a part of the value, such as those of `…`.
    ours: usize,
    alone: bool,
    /// Whether white space at its ends is named.
    names_ends: bool,
}

impl HtmlSafe for SafeText {}

impl SafeText {
    /// The first characters of a text. All characters of a blank text are named.
    pub(super) fn new(text: &str, characters: usize) -> SafeText {
        let end = text.char_indices().nth(characters).map(|(end, _)| end);
        let all_bytes = end.map(|_| text.len() as u64);
        let shown = SafeText::whole(&text[..end.unwrap_or(text.len())]);
        SafeText { all_bytes, names_ends: text.trim().is_empty(), ..shown }
    }

    /// The first characters of a text without its length, because the whole text is elsewhere.
    pub(super) fn short(text: &str, characters: usize) -> SafeText {
        let mut shown = SafeText::beginning(text, characters, false);
        if shown.all_bytes.take().is_some() {
            shown.push_dots();
        }
        shown
    }

    fn push_dots(&mut self) {
        self.text.push('…');
        self.ours += '…'.len_utf8();
    }

    pub(super) fn whole(text: &str) -> SafeText {
        SafeText { text: text.to_owned(), ..SafeText::default() }
    }

    pub(super) fn lines(text: &str) -> SafeText {
        SafeText::whole(&text.replace("\r\n", "\n"))
    }

    /// The first characters of a text that is perhaps truncated. The empty text has a name, because a link needs one.
    pub(super) fn beginning(text: &str, characters: usize, is_cut: bool) -> SafeText {
        if text.is_empty() && !is_cut {
            let shown = SafeText::whole("(empty)");
            return SafeText { ours: shown.text.len(), ..shown };
        }
        let mut shown = SafeText::new(text, characters);
        if is_cut && shown.all_bytes.is_none() {
            shown.push_dots();
        }
        shown
    }

    /// With names for white space at its ends.
    pub(super) fn naming_ends(self) -> SafeText {
        SafeText { names_ends: true, ..self }
    }

    /// The part between the ends that are named.
    fn inner(&self) -> Range<usize> {
        let all = self.text.len();
        if !self.names_ends {
            return 0..all;
        }
        let start = all - self.text.trim_start().len();
        let end = if self.is_cut() || self.ours > 0 { all } else { self.text.trim_end().len() };
        start..end.max(start)
    }

    fn write_part(&self, formatter: &mut fmt::Formatter<'_>, Range { start, end }: Range<usize>) -> fmt::Result {
        let inner = self.inner();
        let from = inner.start.clamp(start, end);
        let to = inner.end.clamp(start, end);
        self.text[start..from].chars().try_for_each(|character| write_name(formatter, character))?;
        Escaped(&self.text[from..to]).fmt(formatter)?;
        self.text[to..end].chars().try_for_each(|character| write_name(formatter, character))
    }

    /// A text that is alone in its block needs no element that isolates its direction. Large tables render faster
    /// without.
    pub(super) fn alone(self) -> SafeText {
        SafeText { alone: self.link.is_none() && self.all_bytes.is_none(), ..self }
    }

    /// [`SafeText::new`] as a link if it is a web URL.
    pub(super) fn linked(text: &str, characters: usize) -> SafeText {
        SafeText { link: web_url(text), ..SafeText::new(text, characters) }
    }

    pub(super) fn marking(self, marks: &Highlighter, syntax: Syntax) -> SafeText {
        let marked = marks.parts(&self.text[..self.text.len() - self.ours], syntax);
        self.marked_at(marked)
    }

    /// With these parts marked, which are in order and do not overlap.
    pub(super) fn marked_at(self, marked: Vec<Range<usize>>) -> SafeText {
        SafeText { marked, ..self }
    }

    /// With the hits in it marked, and a note on hits in the rest of `whole`; and the hits in `whole`.
    pub(super) fn searched(self, whole: &str, marks: &Highlighter, syntax: Syntax) -> (SafeText, Vec<Range<usize>>) {
        let shown = self.marking(marks, syntax);
        let hits = marks.parts(whole, syntax);
        let bytes = |parts: &[Range<usize>]| parts.iter().map(Range::len).sum::<usize>();
        let has_more_hits = shown.is_cut() && bytes(&hits) > bytes(&shown.marked);
        (SafeText { has_more_hits, ..shown }, hits)
    }

    /// The first hit of a text with the text around it on its line, at most so many characters, and with all hits
    /// marked.
    pub(super) fn around(text: &str, hits: &[Range<usize>], characters: usize) -> SafeText {
        let hit = hits.first().cloned().unwrap_or_default();
        let before = text[..hit.start].char_indices().rev().take(characters / 3).take_while(|(_, one)| *one != '\n');
        let start = before.last().map_or(hit.start, |(place, _)| place);
        let mut after = text[start..].char_indices().skip_while(|(place, one)| start + place < hit.end || *one != '\n');
        let line = after.next().map_or(text.len(), |(place, _)| start + place);
        let end = text[start..line].char_indices().nth(characters).map_or(line, |(place, _)| start + place);
        let mut shown = SafeText::whole(if start > 0 { "…" } else { "" });
        let to = |place: usize| place.clamp(start, end) - start + shown.text.len();
        let marked = hits.iter().filter(|hit| hit.start < end && hit.end > start);
        let marked = marked.map(|hit| to(hit.start)..to(hit.end)).collect();
        shown.text.push_str(&text[start..end]);
        if end < text.len() {
            shown.text.push('…');
        }
        shown.marked_at(marked)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.all_bytes.is_some()
    }

    /// The approximate number of columns in a monospaced font, in which characters of some scripts take two.
    pub(super) fn columns(&self) -> usize {
        let wide = self.text.chars().filter(|character| *character >= '\u{1100}').count();
        self.text.chars().count() + wide
    }

    pub(super) fn is_marked(&self) -> bool {
        !self.marked.is_empty() || self.has_more_hits
    }

    /// The approximate length of its HTML in bytes.
    pub(super) fn weight(&self) -> usize {
        self.text.len() + self.link.as_ref().map_or(0, String::len)
    }
}

/// Bytes of a URL that becomes a link.
const LINK_BYTES: usize = 2_000;

fn web_url(text: &str) -> Option<String> {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    if !is_web || text.len() > LINK_BYTES || text.chars().any(|character| character.is_whitespace()) {
        return None;
    }
    let url = url::Url::parse(text).ok()?;
    // A user name looks like the host.
    (url.has_host() && url.username().is_empty() && url.password().is_none()).then(|| url.to_string())
}

impl fmt::Display for SafeText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(link) = &self.link {
            write!(formatter, "<a href=\"{}\" rel=\"noopener noreferrer nofollow\">", Escaped(link))?;
        }
        if !self.alone {
            formatter.write_str("<bdi>")?;
        }
        let mut from = 0;
        for Range { start, end } in self.marked.iter().cloned() {
            self.write_part(formatter, from..start)?;
            formatter.write_str("<mark>")?;
            self.write_part(formatter, start..end)?;
            formatter.write_str("</mark>")?;
            from = end;
        }
        self.write_part(formatter, from..self.text.len())?;
        if !self.alone {
            formatter.write_str("</bdi>")?;
        }
        if self.link.is_some() {
            formatter.write_str("</a>")?;
        }
        if let Some(bytes) = self.all_bytes {
            let hits = if self.has_more_hits { ", with more matches in the rest" } else { "" };
            write!(formatter, "<span class=\"cut\">… shortened, {} in total{hits}</span>", format::size(bytes))?;
        }
        Ok(())
    }
}

/// The characters of a text, each with whether it is shown as its code point.
pub(super) fn with_named(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    with_invisible(text).map(|(character, is_invisible)| (character, is_invisible && !matches!(character, '\n' | '\t')))
}

/// A text for an attribute, with the code points of invisible characters.
pub(super) fn named_text(text: &str) -> String {
    let mut named = String::with_capacity(text.len());
    for (character, is_named) in with_named(text) {
        let _ = if is_named { write!(named, "U+{:04X}", u32::from(character)) } else { named.write_char(character) };
    }
    named
}

fn write_name(formatter: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    write!(formatter, "<span class=\"ctl\">U+{:04X}</span>", u32::from(character))
}

/// JSON with escapes for invisible characters and for noncharacters.
pub(super) fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for (character, is_named) in with_named(json) {
        let number = u32::from(character);
        let is_none = number & 0xFFFE == 0xFFFE || (0xFDD0..=0xFDEF).contains(&number);
        match is_named || is_none {
            true => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
            false => text.push(character),
        }
    }
    text
}

/// A text, safe inside an element and inside quotes.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (character, is_named) in with_named(self.0) {
            match character {
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '&' => formatter.write_str("&amp;")?,
                '"' => formatter.write_str("&quot;")?,
                '\'' => formatter.write_str("&#39;")?,
                character if is_named => write_name(formatter, character)?,
                character => formatter.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// A sentence of the service, with code in backticks. It can contain texts of users.
pub(super) struct Sentence {
    /// Whether each piece is code, and its text.
    pieces: Vec<(bool, SafeText)>,
}

impl HtmlSafe for Sentence {}

impl Sentence {
    pub(super) fn new(text: &str) -> Sentence {
        let text = &*with_names(text);
        // A path can contain a backtick.
        let is_paired = text.matches('`').count().is_multiple_of(2);
        let pieces: Vec<&str> = if is_paired { text.split('`').collect() } else { vec![text] };
        let pieces = pieces.into_iter().enumerate().filter(|(_, piece)| !piece.is_empty());
        Sentence { pieces: pieces.map(|(place, piece)| (place % 2 == 1, SafeText::whole(piece))).collect() }
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|(is_code, piece)| match is_code {
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
            let shown = Sentence::new(text).to_string().replace("<bdi>", "").replace("</bdi>", "");
            assert_eq!(shown, html, "{text:?}");
        }
    }

    #[test]
    fn text_is_escaped_and_shortened() {
        for (text, html) in [
            ("", "<bdi></bdi>"),
            ("<b>&'\"", "<bdi>&lt;b&gt;&amp;&#39;&quot;</bdi>"),
            ("a\u{202e}b\0", "<bdi>a<span class=\"ctl\">U+202E</span>b<span class=\"ctl\">U+0000</span></bdi>"),
            ("👩\u{200d}🚀\n", "<bdi>👩\u{200d}🚀\n</bdi>"),
            ("0123456789x", "<bdi>0123456789</bdi><span class=\"cut\">… shortened, 11 bytes in total</span>"),
        ] {
            assert_eq!(SafeText::new(text, 10).to_string(), html, "{text:?}");
        }
        assert_eq!(SafeText::new("<b", 10).alone().to_string(), "&lt;b");
        assert!(SafeText::new("0123456789x", 10).alone().to_string().starts_with("<bdi>"), "more follows it");
    }

    #[test]
    fn hits_in_the_rest_of_a_text_are_mentioned() {
        let marks = Highlighter::new(&["end".to_owned()]);
        let told = |text: &str| {
            let (shown, _) = SafeText::new(text, 5).searched(text, &marks, Syntax::Text);
            shown.to_string().contains("matches in the rest")
        };
        assert_eq!(["a long end", "end a long", "ab end", "end"].map(told), [true, false, true, false]);
        // Hits that touch each other across the end of what is shown.
        assert!(told("xxendend"));
        let shown = SafeText::new("xxendend", 5).marking(&marks, Syntax::Text).to_string();
        assert!(shown.starts_with("<bdi>xx<mark>end</mark></bdi>"), "{shown}");
    }

    #[test]
    fn dots_and_placeholders_are_not_marked() {
        let marks = Highlighter::new(&["…".to_owned(), "empty".to_owned()]);
        for (text, html) in [("12345…", "<bdi>12345…</bdi>"), ("", "<bdi>(empty)</bdi>")] {
            assert_eq!(SafeText::short(text, 5).marking(&marks, Syntax::Text).to_string(), html);
        }
    }

    /// Texts of blanks were called empty, as the empty text is.
    #[test]
    fn blank_text_and_blank_ends_are_named() {
        let names = |html: String| html.replace("<span class=\"ctl\">", "{").replace("</span>", "}");
        let told = |shown: SafeText| names(shown.alone().to_string());
        let six = format!("{}…", "{U+0020}".repeat(6));
        for (text, alone, ends) in [
            ("", "(empty)", "(empty)"),
            (" ", "{U+0020}", "{U+0020}"),
            (" \t\n\u{a0}", "{U+0020}{U+0009}{U+000A}{U+00A0}", "{U+0020}{U+0009}{U+000A}{U+00A0}"),
            (" a b ", " a b ", "{U+0020}a b{U+0020}"),
            ("a     b", "a     …", "a     …"),
            ("       ", &six, &six),
        ] {
            assert_eq!(told(SafeText::short(text, 6)), alone, "{text:?}");
            assert_eq!(told(SafeText::short(text, 6).naming_ends()), ends, "{text:?}");
        }
        assert_eq!(told(SafeText::beginning("", 6, true)), "…", "the beginning of a text that is cut");
        let marks = Highlighter::new(&["a ".to_owned()]);
        assert_eq!(
            told(SafeText::whole(" a ").naming_ends().marking(&marks, Syntax::Text)),
            "{U+0020}<mark>a{U+0020}</mark>"
        );
        assert_eq!(told(SafeText::linked("\t", 6)), "{U+0009}");
    }

    #[test]
    fn hit_is_shown_with_the_text_around_it() {
        let marks = Highlighter::new(&["hit".to_owned()]);
        for (text, html) in [
            ("hit", "<mark>hit</mark>"),
            ("0123456789 hit 0123456789 HIT", "…56789 <mark>hit</mark> 0123456789…"),
            ("ä ö ü\nß hit hit\nß", "…ß <mark>hit</mark> <mark>hit</mark>…"),
            ("0123456789012345678hit", "…345678<mark>hit</mark>"),
        ] {
            let hits = marks.parts(text, Syntax::Text);
            assert_eq!(SafeText::around(text, &hits, 20).alone().to_string(), html, "{text:?}");
        }
        // A hit that is longer than what is shown is marked as far as it goes.
        let marks = Highlighter::new(&["x".repeat(50)]);
        let text = "x".repeat(50);
        let hits = marks.parts(&text, Syntax::Text);
        let shown = SafeText::around(&text, &hits, 9).alone().to_string();
        assert_eq!(shown, "<mark>xxxxxxxxx</mark>…");
    }
}
