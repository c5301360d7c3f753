//! Statistics of the documentation's style. `cargo test --test it documentation::figures -- --nocapture` prints them
//! for each page.
//!
//! For comparison, PostgREST, Datasette, Meilisearch, ripgrep, and Quickwit have 14 to 25 "you", 12 to 27 modal verbs,
//! and 9 to 27 code blocks in 1,000 words. Their median page has 255 to 629 words.

use super::documents;

const MODALS: [&str; 5] = ["can", "cannot", "must", "should", "will"];

#[derive(Debug, Default)]
struct Figures {
    words: usize,
    you: usize,
    modals: usize,
    code_blocks: usize,
}

impl Figures {
    /// Counts the words that people write and read, without generated tables, code, and link targets.
    fn new(page: &str) -> Figures {
        let mut figures = Figures::default();
        let mut is_code = false;
        let mut is_generated = false;
        for line in page.lines() {
            if line.starts_with("<!-- ") {
                is_generated = line.ends_with(":begin -->");
            } else if line.trim_start().starts_with("```") {
                figures.code_blocks += usize::from(!is_code);
                is_code = !is_code;
            } else if !is_code && !is_generated {
                let line = without_targets(line);
                let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '\'');
                let starts = |word: &&str| word.starts_with(char::is_alphabetic);
                for word in line.split(|character| !is_word(character)).filter(starts) {
                    let word = word.to_lowercase();
                    figures.words += 1;
                    figures.you += usize::from(word == "you");
                    figures.modals += usize::from(MODALS.contains(&word.as_str()));
                }
            }
        }
        figures
    }

    fn in_thousand_words(&self, count: usize) -> f64 {
        count as f64 * 1_000.0 / self.words as f64
    }
}

/// Replaces `[text](target)` by `[text]`.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "]" + part.split_once(')').map_or("", |(_, rest)| rest))
}

#[test]
fn pages_address_their_readers() {
    let mut all = Figures::default();
    let mut lengths = Vec::new();
    // The pages of the API reference are generated.
    for (path, text) in documents().into_iter().filter(|(_, text)| !text.contains("<!-- api:begin -->")) {
        let page = Figures::new(&text);
        let [you, modals, blocks] =
            [page.you, page.modals, page.code_blocks].map(|count| page.in_thousand_words(count));
        println!("{:6} words, in 1,000: {you:5.1} you {modals:5.1} modals {blocks:5.1} blocks  {path}", page.words);
        lengths.push(page.words);
        all.words += page.words;
        all.you += page.you;
        all.modals += page.modals;
        all.code_blocks += page.code_blocks;
    }
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    let [you, modals, blocks] = [all.you, all.modals, all.code_blocks].map(|count| all.in_thousand_words(count));
    println!("{} words, in 1,000: {you:.1} you, {modals:.1} modals, {blocks:.1} blocks; median {median}", all.words);
    assert!(you >= 8.0, "you: {you:.1} times in 1,000 words");
    assert!(modals >= 10.0, "modal verbs: {modals:.1} in 1,000 words");
    assert!(blocks >= 10.0, "blocks of code: {blocks:.1} in 1,000 words");
    assert!(median <= 1_000, "median: {median} words");
}
