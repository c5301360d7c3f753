//! Texts of others as HTML: escaped, apart from the direction of the text around them, shortened, and with what nobody
//! would see made visible.

use std::fmt::{self, Display, Write};
use std::ops::Range;

use askama::filters::HtmlSafe;
use strata_types::text::{with_invisible, with_names};

use super::figures;
use super::marks::{Found, Marks, Syntax};

/// A text of others, as the inside of an element.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) text: String,
    /// Bytes of all of it, where it is shortened.
    all_bytes: Option<u64>,
    pub(super) link: Option<String>,
    marked: Vec<Range<usize>>,
    /// Whether a hit ends in what is left out.
    has_more_hits: bool,
    /// Bytes at the end of the text that are no part of the value, such as those of `…`.
    ours: usize,
    /// Whether it is all that a block holds.
    alone: bool,
    /// Whether white space at its ends is named.
    names_ends: bool,
}

impl HtmlSafe for Shown {}

impl Shown {
    /// The first characters of a text. One of white space alone has a name for each: nobody would see it.
    pub(super) fn new(text: &str, characters: usize) -> Shown {
        let end = text.char_indices().nth(characters).map(|(end, _)| end);
        let all_bytes = end.map(|_| text.len() as u64);
        let shown = Shown::whole(&text[..end.unwrap_or(text.len())]);
        Shown { all_bytes, names_ends: text.trim().is_empty(), ..shown }
    }

    /// The first characters of a text, which is somewhere else on the page, or on another.
    pub(super) fn short(text: &str, characters: usize) -> Shown {
        let mut shown = Shown::beginning(text, characters, false);
        if shown.all_bytes.take().is_some() {
            shown.push_dots();
        }
        shown
    }

    fn push_dots(&mut self) {
        self.text.push('…');
        self.ours += '…'.len_utf8();
    }

    pub(super) fn whole(text: &str) -> Shown {
        Shown { text: text.to_owned(), ..Shown::default() }
    }

    /// All of a text of lines, however they end.
    pub(super) fn lines(text: &str) -> Shown {
        Shown::whole(&text.replace("\r\n", "\n"))
    }

    /// A text whose beginning is all there is of it. The empty one has a name, because a link needs one.
    pub(super) fn beginning(text: &str, characters: usize, is_cut: bool) -> Shown {
        if text.is_empty() && !is_cut {
            let shown = Shown::whole("(empty)");
            return Shown { ours: shown.text.len(), ..shown };
        }
        let mut shown = Shown::new(text, characters);
        if is_cut && shown.all_bytes.is_none() {
            shown.push_dots();
        }
        shown
    }

    /// With a name for each character of white space at its ends, where that makes it another value.
    pub(super) fn naming_ends(self) -> Shown {
        Shown { names_ends: true, ..self }
    }

    /// The part of it between what is named at its ends.
    fn inner(&self) -> Range<usize> {
        let all = self.text.len();
        if !self.names_ends {
            return 0..all;
        }
        let start = all - self.text.trim_start().len();
        // Where it is shortened, its end is not there.
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

    /// What is all that a cell or another block holds: no direction of other text meets its own there, so it needs no
    /// element to keep them apart. Large tables are ready sooner without.
    pub(super) fn alone(self) -> Shown {
        Shown { alone: self.link.is_none() && self.all_bytes.is_none(), ..self }
    }

    /// As [`Shown::new`], as a link where it is a URL of the web.
    pub(super) fn linked(text: &str, characters: usize) -> Shown {
        Shown { link: web_url(text), ..Shown::new(text, characters) }
    }

    pub(super) fn marking(self, marks: &Marks, syntax: Syntax) -> Shown {
        let marked = marks.parts(&self.text[..self.text.len() - self.ours], syntax);
        self.marked_at(marked)
    }

    /// With these parts of it marked, which are in order and do not touch.
    pub(super) fn marked_at(self, marked: Vec<Range<usize>>) -> Shown {
        Shown { marked, ..self }
    }

    /// With the hits in it marked, and a word on those in the rest of `whole`, of which it is the beginning; and what
    /// is found there.
    pub(super) fn searched(self, whole: &str, marks: &Marks, syntax: Syntax) -> (Shown, Found) {
        let shown = self.marking(marks, syntax);
        let found = marks.find(whole, syntax, shown.marked.iter().map(Range::len).sum());
        (Shown { has_more_hits: shown.is_cut() && found.is_more, ..shown }, found)
    }

    /// The first of these hits of a text, with what stands around it on its line, so many characters at most. All of
    /// them in that are marked.
    pub(super) fn around(text: &str, hits: &[Range<usize>], characters: usize) -> Shown {
        let hit = hits.first().cloned().unwrap_or_default();
        let before = text[..hit.start].char_indices().rev().take(characters / 3).take_while(|(_, one)| *one != '\n');
        let start = before.last().map_or(hit.start, |(place, _)| place);
        let mut after = text[start..].char_indices().skip_while(|(place, one)| start + place < hit.end || *one != '\n');
        let line = after.next().map_or(text.len(), |(place, _)| start + place);
        let end = text[start..line].char_indices().nth(characters).map_or(line, |(place, _)| start + place);
        let mut shown = Shown::whole(if start > 0 { "…" } else { "" });
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

    /// Roughly the columns of its characters in a font of fixed width: those of some scripts take two.
    pub(super) fn columns(&self) -> usize {
        let wide = self.text.chars().filter(|character| *character >= '\u{1100}').count();
        self.text.chars().count() + wide
    }

    /// Whether something in it is marked, or in what is left out.
    pub(super) fn is_marked(&self) -> bool {
        !self.marked.is_empty() || self.has_more_hits
    }

    /// Bytes that its HTML takes, roughly.
    pub(super) fn weight(&self) -> usize {
        self.text.len() + self.link.as_ref().map_or(0, String::len)
    }
}

/// Most bytes of a URL that becomes a link.
const LINK_BYTES: usize = 2_000;

/// The text as a URL of the web, if it is nothing else.
fn web_url(text: &str) -> Option<String> {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    if !is_web || text.len() > LINK_BYTES || text.chars().any(|character| character.is_whitespace()) {
        return None;
    }
    let url = url::Url::parse(text).ok()?;
    // A name before the host looks as if it were the host.
    (url.has_host() && url.username().is_empty() && url.password().is_none()).then(|| url.to_string())
}

impl fmt::Display for Shown {
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
            write!(formatter, "<span class=\"cut\">… shortened, {} in total{hits}</span>", figures::size(bytes))?;
        }
        Ok(())
    }
}

/// The characters of a text, each with whether it is shown by its number. Lines stay lines.
pub(super) fn with_named(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    with_invisible(text).map(|(character, is_invisible)| (character, is_invisible && !matches!(character, '\n' | '\t')))
}

/// A text for where no elements are, such as the title of an element: with the numbers of such characters.
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

/// JSON with escapes for what nobody would see, and for what is no character of HTML.
pub(super) fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for (character, is_named) in with_named(json) {
        let number = u32::from(character);
        let is_none = number & 0xFFFE == 0xFFFE || (0xFDD0..=0xFDEF).contains(&number);
        // Outside of strings there are none of them.
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
                // No byte of a URL is one.
                character if is_named => write_name(formatter, character)?,
                character => formatter.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// A sentence of the service. It tells code apart by backticks, as documentation does, and holds texts of others.
pub(super) struct Sentence {
    /// Whether it is code, and what it says.
    pieces: Vec<(bool, Shown)>,
}

impl HtmlSafe for Sentence {}

impl Sentence {
    pub(super) fn new(text: &str) -> Sentence {
        let text = &*with_names(text);
        // A backtick in a path of the dataset leaves one without the other.
        let is_paired = text.matches('`').count().is_multiple_of(2);
        let pieces: Vec<&str> = if is_paired { text.split('`').collect() } else { vec![text] };
        let pieces = pieces.into_iter().enumerate().filter(|(_, piece)| !piece.is_empty());
        Sentence { pieces: pieces.map(|(place, piece)| (place % 2 == 1, Shown::whole(piece))).collect() }
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
    fn code_is_told_apart_and_nothing_is_hidden() {
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
    fn texts_are_shown_as_they_are_and_run_nowhere() {
        for (text, html) in [
            ("", "<bdi></bdi>"),
            ("<b>&'\"", "<bdi>&lt;b&gt;&amp;&#39;&quot;</bdi>"),
            ("a\u{202e}b\0", "<bdi>a<span class=\"ctl\">U+202E</span>b<span class=\"ctl\">U+0000</span></bdi>"),
            ("👩\u{200d}🚀\n", "<bdi>👩\u{200d}🚀\n</bdi>"),
            ("0123456789x", "<bdi>0123456789</bdi><span class=\"cut\">… shortened, 11 bytes in total</span>"),
        ] {
            assert_eq!(Shown::new(text, 10).to_string(), html, "{text:?}");
        }
        assert_eq!(Shown::new("<b", 10).alone().to_string(), "&lt;b");
        assert!(Shown::new("0123456789x", 10).alone().to_string().starts_with("<bdi>"), "more follows it");
    }

    #[test]
    fn hits_are_marked_and_escaped() {
        let marks = Marks::of(&["<b".to_owned(), "&".to_owned()]);
        let shown = Shown::new("a<B>&\u{202e}", 10).marking(&marks, Syntax::Text);
        let html = "<bdi>a<mark>&lt;B</mark>&gt;<mark>&amp;</mark><span class=\"ctl\">U+202E</span></bdi>";
        assert_eq!((shown.to_string().as_str(), shown.is_marked()), (html, true));
    }

    #[test]
    fn hits_in_what_is_left_out_are_told() {
        let marks = Marks::of(&["end".to_owned()]);
        let told = |text: &str| {
            let (shown, _) = Shown::new(text, 5).searched(text, &marks, Syntax::Text);
            shown.to_string().contains("matches in the rest")
        };
        assert_eq!(["a long end", "end a long", "ab end", "end"].map(told), [true, false, true, false]);
        // Hits that touch each other across the end of what is shown.
        assert!(told("xxendend"));
        let shown = Shown::new("xxendend", 5).marking(&marks, Syntax::Text).to_string();
        assert!(shown.starts_with("<bdi>xx<mark>end</mark></bdi>"), "{shown}");
    }

    #[test]
    fn what_is_no_part_of_a_value_is_not_marked() {
        let marks = Marks::of(&["…".to_owned(), "empty".to_owned()]);
        for (text, html) in [("12345…", "<bdi>12345…</bdi>"), ("", "<bdi>(empty)</bdi>")] {
            assert_eq!(Shown::short(text, 5).marking(&marks, Syntax::Text).to_string(), html);
        }
    }

    /// Texts of blanks were called empty, as the empty text is.
    #[test]
    fn white_space_that_nobody_would_see_is_named() {
        let names = |html: String| html.replace("<span class=\"ctl\">", "{").replace("</span>", "}");
        let told = |shown: Shown| names(shown.alone().to_string());
        for (text, alone, ends) in [
            ("", "(empty)", "(empty)"),
            (" ", "{U+0020}", "{U+0020}"),
            (" \t\n\u{a0}", "{U+0020}{U+0009}{U+000A}{U+00A0}", "{U+0020}{U+0009}{U+000A}{U+00A0}"),
            (" a b ", " a b ", "{U+0020}a b{U+0020}"),
            ("a     b", "a     …", "a     …"),
            (
                "       ",
                "{U+0020}{U+0020}{U+0020}{U+0020}{U+0020}{U+0020}…",
                "{U+0020}{U+0020}{U+0020}{U+0020}{U+0020}{U+0020}…",
            ),
        ] {
            assert_eq!(told(Shown::short(text, 6)), alone, "{text:?}");
            assert_eq!(told(Shown::short(text, 6).naming_ends()), ends, "{text:?}");
        }
        assert_eq!(told(Shown::beginning("", 6, true)), "…", "the beginning of a text that is cut");
        let marks = Marks::of(&["a ".to_owned()]);
        assert_eq!(
            told(Shown::whole(" a ").naming_ends().marking(&marks, Syntax::Text)),
            "{U+0020}<mark>a{U+0020}</mark>"
        );
        assert_eq!(told(Shown::linked("\t", 6)), "{U+0009}");
    }

    #[test]
    fn a_flag_of_tags_stays_and_other_tags_are_named() {
        let flag = "\u{1F3F4}\u{E0067}\u{E0062}\u{E007F}";
        assert_eq!(Shown::whole(flag).alone().to_string(), flag);
        assert_eq!(escaped_json(&format!("\"{flag}\"")), format!("\"{flag}\""));
        assert_eq!(Shown::whole("a\u{E0067}").alone().to_string(), "a<span class=\"ctl\">U+E0067</span>");
        assert_eq!(escaped_json("\"a\u{E0067}\""), r#""a\udb40\udc67""#);
    }

    #[test]
    fn a_hit_is_shown_with_what_stands_around_it() {
        let marks = Marks::of(&["hit".to_owned()]);
        for (text, html) in [
            ("hit", "<mark>hit</mark>"),
            ("0123456789 hit 0123456789 HIT", "…56789 <mark>hit</mark> 0123456789…"),
            ("ä ö ü\nß hit hit\nß", "…ß <mark>hit</mark> <mark>hit</mark>…"),
            ("0123456789012345678hit", "…345678<mark>hit</mark>"),
        ] {
            let hits = marks.parts(text, Syntax::Text);
            assert_eq!(Shown::around(text, &hits, 20).alone().to_string(), html, "{text:?}");
        }
        // A hit that is longer than what is shown is marked as far as it goes.
        let marks = Marks::of(&["x".repeat(50)]);
        let text = "x".repeat(50);
        let hits = marks.parts(&text, Syntax::Text);
        let shown = Shown::around(&text, &hits, 9).alone().to_string();
        assert_eq!(shown, "<mark>xxxxxxxxx</mark>…");
    }

    #[test]
    fn urls_of_the_web_are_links_and_nothing_else_is() {
        let link = Shown::linked("https://a.test/?a=1&b='\"", 100).to_string();
        assert!(link.starts_with("<a href=\"https://a.test/?a=1&amp;b=%27%22\" rel=\"noopener"), "{link}");
        for text in [
            "javascript:alert(1)",
            "data:text/html,x",
            "https://",
            "https://a b",
            " https://a.test",
            "https://good@evil.test/",
        ] {
            assert!(!Shown::linked(text, 100).to_string().contains("<a"), "{text}");
        }
    }
}
