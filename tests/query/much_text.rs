//! Keyword searches in enough text that finders adapt to it, with and without hidden fields.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use strata_format::keywords::indexer::KeywordSegmentLimits;
use strata_format::writer::WriteOptions;
use strata_query::QueryOutcome;
use strata_reference::Value;
use strata_testing::engines::EngineLab;
use strata_testing::versions::{all_shredded, segments};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{KeywordsMode, ReadRequest};

const ENTITIES: usize = 16_000;

/// The texts of an entity, with few distinct letters, so that words occur, overlap and reach the end of a text.
struct Texts {
    seen: String,
    plain: String,
    listed: Vec<String>,
}

fn texts(random: &mut StdRng) -> Texts {
    let text = |random: &mut StdRng, max_length: usize| -> String {
        let length = random.random_range(0..max_length);
        (0..length).map(|_| ['a', 'a', 'b', ' '][random.random_range(0..4)]).collect()
    };
    let elements = random.random_range(0..3);
    Texts {
        seen: text(random, 200),
        plain: text(random, 12),
        listed: (0..elements).map(|_| text(random, 12)).collect(),
    }
}

impl Texts {
    fn entity(&self) -> Value {
        let string = |text: &String| Value::String(text.clone());
        let listed = Value::Array(self.listed.iter().map(string).collect());
        let members = [("seen", string(&self.seen)), ("plain", string(&self.plain)), ("listed", listed)];
        Value::Object(members.map(|(key, value)| (key.to_owned(), value)).to_vec())
    }

    fn matches(&self, words: &[&str], mode: KeywordsMode, hides: bool) -> bool {
        let hidden = std::iter::once(&self.plain).chain(&self.listed).filter(|_| !hides);
        let texts: Vec<&String> = std::iter::once(&self.seen).chain(hidden).collect();
        let mut found = words.iter().map(|word| texts.iter().any(|text| text.contains(word)));
        if mode == KeywordsMode::Or { found.any(|found| found) } else { found.all(|found| found) }
    }
}

#[test]
fn keywords_in_much_text_match_naive_search() {
    let lab = EngineLab::new();
    let random = &mut StdRng::seed_from_u64(1);
    let all: Vec<Texts> = (0..ENTITIES).map(|_| texts(random)).collect();
    let entities: Vec<Value> = all.iter().map(Texts::entity).collect();
    let without_index = KeywordSegmentLimits { min_text_bytes: u64::MAX, ..KeywordSegmentLimits::default() };
    for keywords in [without_index, segments(usize::MAX)] {
        let options =
            WriteOptions { shredding_limits: all_shredded(), keyword_limits: keywords, ..WriteOptions::default() };
        let reader = lab.reader(&entities, &options);
        for words in [&["ab"][..], &["aa", "b"], &["bbbb", "abab", "aaaaaaa"], &["bab", "bab"], &["bbbbbbbb"]] {
            for (mode, hides) in [KeywordsMode::Or, KeywordsMode::And].into_iter().flat_map(|m| [(m, false), (m, true)])
            {
                let request = ReadRequest {
                    keywords: words.iter().map(|word| (*word).to_owned()).collect(),
                    keywords_mode: mode,
                    drop_fields: if hides { FieldPath::parse_list("plain,listed") } else { Vec::new() },
                    ..ReadRequest::default()
                };
                let select = lab.engines[1].select(reader.clone(), Arc::new(request));
                let Ok(QueryOutcome::Selection(selection)) = lab.bench.runtime.block_on(select) else {
                    panic!("no selection");
                };
                let matching = all.iter().zip(0..).filter(|(texts, _)| texts.matches(words, mode, hides));
                let expected: Vec<u64> = matching.map(|(_, position)| position).collect();
                assert_eq!(selection.positions().to_vec(), expected, "{words:?} {mode:?} {hides}");
            }
        }
    }
}
