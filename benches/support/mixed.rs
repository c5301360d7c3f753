//! A mix of reads that together use every part of a version file: documents at random positions, indexed columns, sort
//! keys, the keyword index, and the full-text column.

use form_urlencoded::byte_serialize;

use super::entities::{self, CATEGORIES, COLOURS, Generator, Random};
use super::source::PAGE;

/// Returns `count` query strings for a version with `entities` entities. The same seed gives the same queries.
pub fn queries(seed: u64, count: usize, entities: u64) -> Vec<String> {
    let generator = Generator::new();
    let random = &mut Random(seed);
    (0..count).map(|_| query(&generator, random, entities)).collect()
}

fn query(generator: &Generator, random: &mut Random, entities: u64) -> String {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let page = format!("limit={PAGE}");
    match random.below(20) {
        0..=7 => format!("{page}&offset={}", random.below(entities)),
        8..=9 => format!("filter=id:{}", entities::id(random.below(entities))),
        10 => {
            let category = CATEGORIES[random.below(CATEGORIES.len() as u64) as usize];
            format!("filter=category:{}&{page}", encoded(category))
        }
        11 => {
            let colour = COLOURS[random.below(COLOURS.len() as u64) as usize];
            format!("filter=variants.color:{}&{page}", encoded(colour))
        }
        12..=13 => format!("keywords={}&count=true", encoded(generator.word(random))),
        14..=15 => format!("keywords={}&{page}", encoded(generator.word(random))),
        16..=17 => {
            let sort = ["price:asc", "price:desc", "rating:desc", "name:asc"][random.below(4) as usize];
            format!("sort={sort}&{page}")
        }
        18 => format!("filter_contains=name:{}&{page}", encoded(generator.word(random))),
        _ => format!("filter_contains=description:{}&count=true", encoded(generator.word(random))),
    }
}
