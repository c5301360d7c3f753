//! Sentences of the service as HTML. They tell code apart by backticks, as documentation does, and hold texts of
//! others.

use std::fmt;

use askama::filters::HtmlSafe;

use super::shown::Shown;
use crate::model::text::with_names;

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
}
