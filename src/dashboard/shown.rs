//! Texts of others as HTML: escaped, apart from the direction of the text around them, shortened, and with what nobody
//! would see made visible.

use std::fmt::{self, Write};
use std::ops::Range;

use askama::filters::HtmlSafe;

use super::figures;
use super::marks::{Found, Marks};
use crate::model::text::is_invisible;

/// A text of others, as the inside of an element.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    text: String,
    /// Bytes of all of it, where it is shortened.
    all_bytes: Option<u64>,
    link: Option<String>,
    /// The parts of the text that are marked.
    marked: Vec<Range<usize>>,
    /// Whether a hit ends in what is left out.
    has_more_hits: bool,
    /// Bytes at the end of the text that are no part of the value, such as those of `…`.
    ours: usize,
    /// Whether it is all that a block holds.
    alone: bool,
}

impl HtmlSafe for Shown {}

impl Shown {
    /// The first characters of a text.
    pub(super) fn new(text: &str, characters: usize) -> Shown {
        let end = text.char_indices().nth(characters).map(|(end, _)| end);
        let all_bytes = end.map(|_| text.len() as u64);
        Shown {
            text: text[..end.unwrap_or(text.len())].to_owned(),
            all_bytes,
            link: None,
            marked: Vec::new(),
            has_more_hits: false,
            ours: 0,
            alone: false,
        }
    }

    /// The first characters of a text, which is somewhere else on the page, or on another.
    pub(super) fn short(text: &str, characters: usize) -> Shown {
        let mut shown = Shown::beginning(text, characters, false);
        shown.elide();
        shown
    }

    /// Without saying how long all of it is.
    fn elide(&mut self) {
        if self.all_bytes.take().is_some() {
            self.push_dots();
        }
    }

    fn push_dots(&mut self) {
        self.text.push('…');
        self.ours += '…'.len_utf8();
    }

    /// All of a text.
    pub(super) fn whole(text: &str) -> Shown {
        Shown {
            text: text.to_owned(),
            all_bytes: None,
            link: None,
            marked: Vec::new(),
            has_more_hits: false,
            ours: 0,
            alone: false,
        }
    }

    /// All of a text of lines, however they end.
    pub(super) fn lines(text: &str) -> Shown {
        Shown::whole(&text.replace("\r\n", "\n"))
    }

    /// A text whose beginning is all there is of it.
    /// What nobody would see has a name, because a link needs one.
    pub(super) fn beginning(text: &str, characters: usize, is_cut: bool) -> Shown {
        if text.trim().is_empty() {
            let shown = Shown::whole("(empty)");
            return Shown { ours: shown.text.len(), ..shown };
        }
        let mut shown = Shown::new(text, characters);
        if is_cut && shown.all_bytes.is_none() {
            shown.push_dots();
        }
        shown
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

    /// With the hits of keywords marked.
    pub(super) fn marking(mut self, marks: &Marks) -> Shown {
        self.marked = marks.in_text(self.of_value());
        self
    }

    /// As [`Shown::marking`], of a text that is JSON.
    pub(super) fn marking_json(mut self, marks: &Marks) -> Shown {
        self.marked = marks.in_json(self.of_value());
        self
    }

    /// The text without what is no part of the value.
    fn of_value(&self) -> &str {
        &self.text[..self.text.len() - self.ours]
    }

    /// With these parts of it marked, which are in order and do not touch.
    pub(super) fn marked_at(self, marked: Vec<Range<usize>>) -> Shown {
        Shown { marked, ..self }
    }

    /// Bytes of it that are marked.
    pub(super) fn marked_bytes(&self) -> usize {
        self.marked.iter().map(Range::len).sum()
    }

    /// With a word on the hits that were found in the rest of the whole text.
    pub(super) fn telling(self, found: &Found) -> Shown {
        Shown { has_more_hits: self.is_cut() && found.is_more, ..self }
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

    /// Whether it is shortened.
    pub(super) fn is_cut(&self) -> bool {
        self.all_bytes.is_some()
    }

    /// Whether it leads to the web.
    pub(super) fn is_link(&self) -> bool {
        self.link.is_some()
    }

    /// The columns that its characters would take on one line in a font of fixed width, roughly: those of some scripts
    /// take two.
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
            write!(formatter, "{}<mark>{}</mark>", Escaped(&self.text[from..start]), Escaped(&self.text[start..end]))?;
            from = end;
        }
        Escaped(&self.text[from..]).fmt(formatter)?;
        if !self.alone {
            formatter.write_str("</bdi>")?;
        }
        if self.link.is_some() {
            formatter.write_str("</a>")?;
        }
        if let Some(bytes) = self.all_bytes {
            let hits = if self.has_more_hits { ", and what is looked for is in the rest" } else { "" };
            write!(formatter, "<span class=\"cut\">… shortened, {} in all{hits}</span>", figures::size(bytes))?;
        }
        Ok(())
    }
}

/// Whether a character is shown by its number. Those that join letters and emoji stay: without them, many words and
/// pictures are others.
pub(super) fn is_named(character: char) -> bool {
    is_invisible(character) && !matches!(character, '\n' | '\t' | '\u{200C}' | '\u{200D}')
}

/// JSON with escapes for what nobody would see, and for what is no character of HTML.
pub(super) fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        let number = u32::from(character);
        let is_none = number & 0xFFFE == 0xFFFE || (0xFDD0..=0xFDEF).contains(&number);
        // Outside of strings there are none of them.
        match is_named(character) || is_none {
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
        for character in self.0.chars() {
            match character {
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '&' => formatter.write_str("&amp;")?,
                '"' => formatter.write_str("&quot;")?,
                '\'' => formatter.write_str("&#39;")?,
                // No byte of a URL is one.
                character if is_named(character) => {
                    write!(formatter, "<span class=\"ctl\">U+{:04X}</span>", u32::from(character))?;
                }
                character => formatter.write_char(character)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shown_as_they_are_and_run_nowhere() {
        for (text, html) in [
            ("", "<bdi></bdi>"),
            ("<b>&'\"", "<bdi>&lt;b&gt;&amp;&#39;&quot;</bdi>"),
            ("a\u{202e}b\0", "<bdi>a<span class=\"ctl\">U+202E</span>b<span class=\"ctl\">U+0000</span></bdi>"),
            ("👩\u{200d}🚀\n", "<bdi>👩\u{200d}🚀\n</bdi>"),
            ("0123456789x", "<bdi>0123456789</bdi><span class=\"cut\">… shortened, 11 bytes in all</span>"),
        ] {
            assert_eq!(Shown::new(text, 10).to_string(), html, "{text:?}");
        }
        assert_eq!(Shown::new("<b", 10).alone().to_string(), "&lt;b");
        assert!(Shown::new("0123456789x", 10).alone().to_string().starts_with("<bdi>"), "more follows it");
    }

    #[test]
    fn hits_are_marked_and_escaped() {
        let marks = Marks::of(&["<b".to_owned(), "&".to_owned()]);
        let shown = Shown::new("a<B>&\u{202e}", 10).marking(&marks);
        let html = "<bdi>a<mark>&lt;B</mark>&gt;<mark>&amp;</mark><span class=\"ctl\">U+202E</span></bdi>";
        assert_eq!((shown.to_string().as_str(), shown.is_marked()), (html, true));
    }

    #[test]
    fn hits_in_what_is_left_out_are_told() {
        let marks = Marks::of(&["end".to_owned()]);
        let told = |text: &str| {
            let shown = Shown::new(text, 5).marking(&marks);
            let found = marks.found_in_text(text, shown.marked_bytes());
            shown.telling(&found).to_string().contains("is in the rest")
        };
        assert_eq!(["a long end", "end a long", "ab end", "end"].map(told), [true, false, true, false]);
        // Hits that touch each other across the end of what is shown.
        assert!(told("xxendend"));
        let shown = Shown::new("xxendend", 5).marking(&marks).to_string();
        assert!(shown.starts_with("<bdi>xx<mark>end</mark></bdi>"), "{shown}");
    }

    #[test]
    fn what_is_no_part_of_a_value_is_not_marked() {
        let marks = Marks::of(&["…".to_owned(), "empty".to_owned()]);
        for (text, html) in [("12345…", "<bdi>12345…</bdi>"), ("  ", "<bdi>(empty)</bdi>")] {
            assert_eq!(Shown::short(text, 5).marking(&marks).to_string(), html);
        }
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
            let hits = marks.in_text(text);
            assert_eq!(Shown::around(text, &hits, 20).alone().to_string(), html, "{text:?}");
        }
        // A hit that is longer than what is shown is marked as far as it goes.
        let marks = Marks::of(&["x".repeat(50)]);
        let text = "x".repeat(50);
        let hits = marks.in_text(&text);
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
