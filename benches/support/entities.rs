//! Entities of a product catalogue, about 1 KB of JSON each, and the expected results of queries over them. The entity
//! at a position is the same on every run.
//!
//! 1. [`Generator::entity`] creates the entity at a position from the seed and the position.
//! 2. [`Entity::write`] writes the entity in the service's canonical form, so that an export must be equal to the
//!    source.
//! 3. [`QueryProbes`] decides for each query whether an entity matches. It uses only the entity's fields and no code of
//!    the service.

use std::collections::HashSet;

const SEED: u64 = 0x5eed_0001;

/// The number of words in the vocabulary.
const WORDS: usize = 20_000;

/// The size of the table that maps random bits to words. The rarest word has at least four slots.
const SLOTS: usize = 1 << 20;

pub const CATEGORIES: [&str; 20] = [
    "Lighting",
    "Kitchen",
    "Garden",
    "Books",
    "Audio",
    "Toys",
    "Office",
    "Outdoor",
    "Bathroom",
    "Tools",
    "Textiles",
    "Storage",
    "Sports",
    "Bicycles",
    "Music",
    "Café",
    "Möbel",
    "Pets",
    "Travel",
    "Photography",
];
const CITIES: [&str; 8] = ["berlin", "paris", "london", "madrid", "warszawa", "zürich", "roma", "東京"];
/// The colors of product variants.
pub const COLOURS: [&str; 12] =
    ["black", "white", "red", "green", "blue", "Teal", "grey", "yellow", "orange", "purple", "sand", "Natural Oak"];
const SIZES: [&str; 6] = ["XS", "S", "M", "L", "XL", "one size"];
const NOUNS: [&str; 16] = [
    "Lamp", "Chair", "Table", "Shelf", "Kettle", "Speaker", "Backpack", "Notebook", "Blanket", "Hammer", "Bowl",
    "Mirror", "Tent", "Globe", "茶碗", "Sofá",
];
const PROMOTIONS: [&str; 5] = ["SUMMER-24", "WINTER-24", "WELCOME", "OUTLET", "LAST-CHANCE"];
const BRANDS: u64 = 500;
const TAGS: u64 = 200;

/// The prices of many entities, in cents. Every fifth entity has one of the first prices.
const PRICE_POINTS: [u64; 12] = [950, 999, 1_000, 1_499, 1_999, 2_450, 2_999, 4_999, 7_900, 9_999, 14_900, 29_900];

/// A price in one of the forms that sources use.
enum Price {
    Number(String),
    Text(String),
    Null,
    Missing,
}

struct Variant {
    sku: String,
    size: &'static str,
    colour: &'static str,
    extra_cents: u64,
}

struct Review {
    author: String,
    stars: u64,
    text: String,
}

/// One product.
pub struct Entity {
    id: String,
    source: String,
    name: String,
    category: &'static str,
    brand: String,
    price: Price,
    rating: Option<u64>,
    in_stock: bool,
    created_at: String,
    dimensions: [u64; 3],
    stock: Vec<(&'static str, u64)>,
    tags: Vec<String>,
    variants: Vec<Variant>,
    description: String,
    reviews: Vec<Review>,
    promotion: Option<(&'static str, u64)>,
}

/// Returns the ID of the entity at a position. IDs are unique because the mixing function is a bijection.
pub fn id(position: u64) -> String {
    format!("p-{:016x}", mix(position ^ SEED))
}

/// A generator of entities.
pub struct Generator {
    vocabulary: Vec<String>,
    /// Ranks of words; each rank occurs as often as its word is frequent.
    slots: Vec<u16>,
}

impl Generator {
    /// Returns a generator. All generators are equal.
    pub fn new() -> Generator {
        let vocabulary = vocabulary();
        // Zipf's law with exponent 1: the frequency of the word with rank r is 1/r of the frequency of the first word.
        let total: f64 = (1..=WORDS).map(|rank| 1.0 / rank as f64).sum();
        let mut slots = Vec::with_capacity(SLOTS);
        let mut reached = 0.0;
        for rank in 0..WORDS {
            reached += 1.0 / (rank + 1) as f64 / total;
            let end = (reached * SLOTS as f64).round() as usize;
            slots.resize(end.max(slots.len()).min(SLOTS), rank as u16);
        }
        slots.resize(SLOTS, 0);
        Generator { vocabulary, slots }
    }

    /// Returns the entity at a position.
    pub fn entity(&self, position: u64) -> Entity {
        let random = &mut Random(mix(position.wrapping_add(SEED << 20)));
        let id = id(position);
        let brand_number = random.skewed(BRANDS);
        let brand = capitalized(&self.vocabulary[WORDS / 2 + brand_number as usize]);
        let noun = NOUNS[random.below(NOUNS.len() as u64) as usize];
        let name = format!("{} {noun} {}", capitalized(self.word(random)), self.word(random));
        let source = format!("https://shop.example/{}/{}", brand_number, id);
        let tags = 3 + random.below(4);
        let cities = random.below(CITIES.len() as u64 + 1) as usize;
        let first_city = random.below(CITIES.len() as u64) as usize;
        let reviews = random.below(3);
        Entity {
            source,
            name,
            category: CATEGORIES[random.skewed(CATEGORIES.len() as u64) as usize],
            price: price(random),
            rating: (random.below(20) > 0).then(|| 10 + random.below(41)),
            in_stock: random.below(4) > 0,
            created_at: format!(
                "20{:02}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                18 + random.below(8),
                1 + random.below(12),
                1 + random.below(28),
                random.below(24),
                random.below(60),
                random.below(60)
            ),
            dimensions: [10 + random.below(2_000), 10 + random.below(2_000), 10 + random.below(500)],
            stock: (0..cities).map(|city| (CITIES[(first_city + city) % CITIES.len()], random.skewed(100))).collect(),
            tags: (0..tags).map(|_| self.vocabulary[100 + random.skewed(TAGS) as usize].clone()).collect(),
            variants: (0..1 + random.below(3)).map(|number| variant(&id, number, random)).collect(),
            description: {
                let words = 42 + random.below(20);
                self.prose(words, random)
            },
            reviews: (0..reviews)
                .map(|_| Review {
                    author: format!(
                        "{} {}.",
                        capitalized(self.word(random)),
                        char::from(b'A' + random.below(26) as u8)
                    ),
                    stars: 1 + random.below(5),
                    text: {
                        let words = 10 + random.below(12);
                        self.prose(words, random)
                    },
                })
                .collect(),
            promotion: (random.below(100) == 0)
                .then(|| (PROMOTIONS[random.below(5) as usize], 5 + 5 * random.below(6))),
            id,
            brand,
        }
    }

    /// Returns a random word of the vocabulary; frequent words are more likely.
    pub fn word(&self, random: &mut Random) -> &str {
        &self.vocabulary[usize::from(self.slots[random.below(SLOTS as u64) as usize])]
    }

    /// Returns sentences with `words` words in total.
    fn prose(&self, words: u64, random: &mut Random) -> String {
        let mut text = String::with_capacity(words as usize * 7);
        let mut left = 0;
        for number in 0..words {
            if left == 0 {
                left = 6 + random.below(10);
                if number > 0 {
                    text.push_str(match random.below(40) {
                        0 => "!\n\n",
                        1 => "… 😀 ",
                        _ => ". ",
                    });
                }
                text.push_str(&capitalized(self.word(random)));
            } else {
                text.push(' ');
                match random.below(200) {
                    0 => {
                        text.push('"');
                        text.push_str(self.word(random));
                        text.push('"');
                    }
                    _ => text.push_str(self.word(random)),
                }
            }
            left -= 1;
        }
        text.push('.');
        text
    }
}

impl Entity {
    /// Appends the entity as canonical compact JSON.
    pub fn write(&self, out: &mut String) {
        use std::fmt::Write;
        let mut object = Object::begin(out);
        object.text("_source", &self.source);
        object.text("id", &self.id);
        object.text("name", &self.name);
        object.text("category", self.category);
        object.text("brand", &self.brand);
        match &self.price {
            Price::Number(number) => object.raw("price", number),
            Price::Text(text) => object.text("price", text),
            Price::Null => object.raw("price", "null"),
            Price::Missing => {}
        }
        if let Some(rating) = self.rating {
            object.raw("rating", &format!("{}.{}", rating / 10, rating % 10));
        }
        object.raw("in_stock", if self.in_stock { "true" } else { "false" });
        object.text("created_at", &self.created_at);
        let mut dimensions = Object::begin(object.value("dimensions"));
        for (key, value) in ["width", "height", "depth"].into_iter().zip(self.dimensions) {
            dimensions.raw(key, &format!("{}.{}", value / 10, value % 10));
        }
        dimensions.text("unit", "cm");
        dimensions.end();
        let mut stock = Object::begin(object.value("stock"));
        for (city, count) in &self.stock {
            let _ = write!(stock.value(city), "{count}");
        }
        stock.end();
        array(object.value("tags"), &self.tags, |tag, out| string(tag, out));
        array(object.value("variants"), &self.variants, |variant, out| {
            let mut object = Object::begin(out);
            object.text("sku", &variant.sku);
            object.text("size", variant.size);
            object.text("color", variant.colour);
            if variant.extra_cents > 0 {
                object.raw("extra", &number(variant.extra_cents));
            }
            object.end();
        });
        object.text("description", &self.description);
        array(object.value("reviews"), &self.reviews, |review, out| {
            let mut object = Object::begin(out);
            object.text("author", &review.author);
            object.raw("stars", &review.stars.to_string());
            object.text("text", &review.text);
            object.end();
        });
        if let Some((code, percent)) = self.promotion {
            let mut promotion = Object::begin(object.value("promotion"));
            promotion.text("code", code);
            promotion.raw("percent", &percent.to_string());
            promotion.end();
        }
        object.end();
    }
}

/// A query with a reference implementation.
pub struct Probe {
    /// The name of the stored expected result.
    pub name: &'static str,
    pub query: String,
    /// The reference implementation.
    pub question: Question,
}

/// Returns the sort key of an entity, or `None` if it has none.
pub type KeyOf = Box<dyn Fn(&Entity) -> Option<Key>>;

/// A reference implementation of a query.
pub enum Question {
    /// Selects the entities for which the function returns true.
    Which(Box<dyn Fn(&Entity) -> bool>),
    /// Selects the entities whose texts satisfy the function. The texts are all scalars in lower case, one on each
    /// line.
    Texts(Box<dyn Fn(&str) -> bool>),
    /// Selects the first entity with each key.
    FirstOf(Box<dyn Fn(&Entity) -> String>),
    /// Sorts all entities by key in ascending order; entities without a key come last.
    Least(KeyOf),
    /// Sorts all entities by key in descending order; entities without a key come last.
    Greatest(KeyOf),
}

/// A sort key: numbers precede strings.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Key {
    /// A numeric key.
    Number(f64),
    /// A string key, ordered by code points.
    Text(String),
}

/// Returns all scalars of an entity's JSON in lower case, one on each line.
pub fn texts(line: &str) -> String {
    fn add(value: &serde_json::Value, out: &mut String) {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::Array(items) => items.iter().for_each(|item| add(item, out)),
            serde_json::Value::Object(members) => members.values().for_each(|member| add(member, out)),
            serde_json::Value::String(text) => {
                out.extend(text.chars().flat_map(char::to_lowercase));
                out.push('\n');
            }
            other => {
                out.push_str(&other.to_string());
                out.push('\n');
            }
        }
    }
    let mut out = String::with_capacity(line.len());
    add(&serde_json::from_str(line).expect("entities are JSON"), &mut out);
    out
}

/// All queries of the benchmark.
pub struct QueryProbes(pub Vec<Probe>);

/// Queries with several range filters on one path: the name and the number of ranges.
pub const RANGES: [(&str, usize); 4] =
    [("1 range", 1), ("10 ranges", 10), ("100 ranges", 100), ("1,000 ranges", 1_000)];

impl QueryProbes {
    /// Returns the queries over the entities of a generator.
    pub fn new(generator: &Generator) -> QueryProbes {
        let word = |rank: usize| generator.vocabulary[rank].clone();
        let tag = word(100);
        let frequent = word(30);
        let rare = word(15_000);
        let other_rare = word(12_000);
        let mut probes = Vec::new();
        let mut add = |name, query: String, matches: Box<dyn Fn(&Entity) -> bool>| {
            probes.push(Probe { name, query, question: Question::Which(matches) });
        };
        let contains = |text: &str, part: &str| text.to_lowercase().contains(part);
        let kitchen = |entity: &Entity| entity.category == "Kitchen";
        add("category", "filter=category:kitchen".to_owned(), Box::new(kitchen));
        add("category missing", "filter=category:weaponry".to_owned(), Box::new(|_| false));
        add("id missing", "filter=id:p-0123456789".to_owned(), Box::new(|_| false));
        let is_price = |entity: &Entity| matches!(&entity.price, Price::Number(text) if text.parse() == Ok(9.5));
        add("price", "filter=price:9.5".to_owned(), Box::new(is_price));
        let is_between = |entity: &Entity| {
            let number = |text: &String| text.parse::<f64>().is_ok_and(|price| (9.5..20.0).contains(&price));
            matches!(&entity.price, Price::Number(text) if number(text))
        };
        add("price between", "filter_gte=price:9.5&filter_lt=price:20".to_owned(), Box::new(is_between));
        let is_before = |entity: &Entity| entity.created_at.as_str() < "2021-07";
        add("created before", "filter_lt=created_at:2021-07".to_owned(), Box::new(is_before));
        let is_above = |entity: &Entity| entity.promotion.is_some_and(|(_, percent)| percent > 25);
        add("promotion above", "filter_gt=promotion.percent:25".to_owned(), Box::new(is_above));
        let searched = tag.clone();
        let is_tag = move |entity: &Entity| entity.tags.contains(&searched);
        add("tags", format!("filter=tags:{tag}"), Box::new(is_tag.clone()));
        let both = move |entity: &Entity| kitchen(entity) && is_tag(entity);
        add("category and tags", format!("filter=category:kitchen&filter=tags:{tag}"), Box::new(both));
        let is_teal = |entity: &Entity| entity.variants.iter().any(|variant| variant.colour == "Teal");
        add("variants.color", "filter=variants.color:teal".to_owned(), Box::new(is_teal));
        let is_outlet = |entity: &Entity| entity.promotion.is_some_and(|(code, _)| code == "OUTLET");
        add("promotion.code", "filter=promotion.code:outlet".to_owned(), Box::new(is_outlet));
        let is_fifteen = |entity: &Entity| entity.promotion.is_some_and(|(_, percent)| percent == 15);
        add("promotion.percent", "filter=promotion.percent:15".to_owned(), Box::new(is_fifteen));
        add("description missing", "filter=description:nothing+like+this".to_owned(), Box::new(|_| false));
        let above = |entity: &Entity| entity.description.as_str() > "M";
        for (name, count) in RANGES {
            // The first range implies the others.
            let others: String = (1..count).map(|number| format!("&filter_gt=description:A{number}")).collect();
            add(name, format!("filter_gt=description:M{others}"), Box::new(above));
        }
        let described_and_reviewed = move |entity: &Entity| {
            let texts = || entity.reviews.iter().map(|review| review.text.as_str());
            (above(entity) && entity.description.as_str() < "T")
                && texts().any(|text| text > "M")
                && texts().any(|text| text < "T")
        };
        let query = ["gt=description:M", "lt=description:T", "gt=reviews.text:M", "lt=reviews.text:T"];
        let query = query.map(|range| format!("filter_{range}")).join("&");
        add("4 ranges of 2 paths", query, Box::new(described_and_reviewed));
        let is_lamp = move |entity: &Entity| contains(&entity.name, "lamp");
        add("name has", "filter_contains=name:lamp".to_owned(), Box::new(is_lamp));
        let mut described = |name, part: String| {
            let query = format!("filter_contains=description:{part}");
            add(name, query, Box::new(move |entity: &Entity| contains(&entity.description, &part)));
        };
        described("description has rare", rare.clone());
        described("description has frequent", frequent.clone());
        described("description has missing", "qqzzxx".to_owned());

        let mut ask = |name, query: String, question| probes.push(Probe { name, query, question });
        let has = |word: &str| {
            let word = word.to_owned();
            move |texts: &str| texts.contains(&word)
        };
        for (name, word) in [
            ("keyword rare", rare.as_str()),
            ("keyword frequent", &frequent),
            ("keyword missing", "qqzzxx"),
            ("keyword phrase", &format!("{frequent} {}", word(31))),
            ("keyword letters", "li"),
            ("keyword digits", "2018"),
            // This word is also the name of a field that every entity has.
            ("keyword field name", "stock"),
        ] {
            let query = format!("keywords={}", word.replace(' ', "+"));
            ask(name, query, Question::Texts(Box::new(has(word))));
        }
        let one = has(&rare);
        let other = has(&other_rare);
        let either = move |texts: &str| one(texts) || other(texts);
        ask("keywords or", format!("keywords={rare},{other_rare}"), Question::Texts(Box::new(either)));
        let next = word(31);
        let one = has(&frequent);
        let other = has(&next);
        let both = move |texts: &str| one(texts) && other(texts);
        let query = format!("keywords={frequent},{next}&keywords_mode=and");
        ask("keywords and, frequent", query, Question::Texts(Box::new(both)));
        let one = has(&frequent);
        let other = has(&rare);
        let both = move |texts: &str| one(texts) && other(texts);
        let query = format!("keywords={frequent},{rare}&keywords_mode=and");
        ask("keywords and", query, Question::Texts(Box::new(both)));

        let price = |entity: &Entity| match &entity.price {
            Price::Number(text) => text.parse().ok().map(Key::Number),
            Price::Text(text) => Some(Key::Text(text.clone())),
            Price::Null | Price::Missing => None,
        };
        ask("sort price", "sort=price:asc".to_owned(), Question::Least(Box::new(price)));
        let rating = |entity: &Entity| entity.rating.map(|rating| Key::Number(rating as f64));
        ask("sort rating", "sort=rating:desc".to_owned(), Question::Greatest(Box::new(rating)));
        let name = |entity: &Entity| Some(Key::Text(entity.name.clone()));
        ask("sort name", "sort=name:desc".to_owned(), Question::Greatest(Box::new(name)));
        let pair = |entity: &Entity| format!("{}\n{}", entity.brand, entity.category);
        ask("dedup pair", "dedup=true&dedup_key=brand,category".to_owned(), Question::FirstOf(Box::new(pair)));
        let whole = |entity: &Entity| entity.id.clone();
        ask("dedup", "dedup=true".to_owned(), Question::FirstOf(Box::new(whole)));
        QueryProbes(probes)
    }
}

fn price(random: &mut Random) -> Price {
    let cents = match random.below(5) {
        0 => PRICE_POINTS[random.below(3) as usize],
        1 | 2 => PRICE_POINTS[random.below(PRICE_POINTS.len() as u64) as usize],
        _ => 100 + random.below(50_000),
    };
    let long = format!("{}.{:02}", cents / 100, cents % 100);
    match random.below(100) {
        0..=79 => Price::Number(number(cents)),
        80..=82 => Price::Number(long),
        83..=91 => Price::Text(long),
        92..=95 => Price::Null,
        _ => Price::Missing,
    }
}

/// Formats cents as a JSON number without trailing zeros.
fn number(cents: u64) -> String {
    match (cents / 100, cents % 100) {
        (units, 0) => units.to_string(),
        (units, rest) if rest % 10 == 0 => format!("{units}.{}", rest / 10),
        (units, rest) => format!("{units}.{rest:02}"),
    }
}

fn variant(id: &str, number: u64, random: &mut Random) -> Variant {
    Variant {
        sku: format!("{}-{number}", &id[id.len() - 6..]),
        size: SIZES[random.below(SIZES.len() as u64) as usize],
        colour: COLOURS[random.skewed(COLOURS.len() as u64) as usize],
        extra_cents: if random.below(2) == 0 { 0 } else { 50 * random.below(40) },
    }
}

/// Returns distinct invented words. Frequent words are short.
fn vocabulary() -> Vec<String> {
    const STARTS: [&str; 20] =
        ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "br", "st", "tr", "sh", "pl", "ch"];
    const VOWELS: [&str; 12] = ["a", "e", "i", "o", "u", "ea", "ou", "io", "a", "e", "é", "ü"];
    const ENDS: [&str; 12] = ["", "", "", "n", "r", "s", "l", "nd", "rt", "ck", "m", "st"];
    let random = &mut Random(SEED);
    let mut seen = HashSet::new();
    let mut words = Vec::with_capacity(WORDS);
    while words.len() < WORDS {
        let syllables = match words.len() {
            0..100 => 1,
            100..2_000 => 2,
            _ => 3,
        };
        let mut word = String::new();
        for _ in 0..syllables {
            for part in [&STARTS[..], &VOWELS, &ENDS] {
                word.push_str(part[random.below(part.len() as u64) as usize]);
            }
        }
        if word.len() > 1 && seen.insert(word.clone()) {
            words.push(word);
        }
    }
    words
}

fn capitalized(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// A JSON object that is being written.
struct Object<'a> {
    out: &'a mut String,
    first: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut String) -> Object<'a> {
        out.push('{');
        Object { out, first: true }
    }

    /// Writes a key and returns the text to which the caller appends the value.
    fn value(&mut self, key: &str) -> &mut String {
        if !std::mem::take(&mut self.first) {
            self.out.push(',');
        }
        string(key, self.out);
        self.out.push(':');
        self.out
    }

    fn text(&mut self, key: &str, text: &str) {
        string(text, self.value(key));
    }

    fn raw(&mut self, key: &str, value: &str) {
        self.value(key).push_str(value);
    }

    fn end(self) {
        self.out.push('}');
    }
}

fn array<T>(out: &mut String, items: &[T], mut each: impl FnMut(&T, &mut String)) {
    out.push('[');
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        each(item, out);
    }
    out.push(']');
}

/// Appends a JSON string. The entities need only these escapes.
fn string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// SplitMix64, so that the entities do not depend on the version of a crate.
pub struct Random(pub u64);

impl Random {
    /// Returns a random number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a random number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a random number below `end`; small numbers are more likely.
    pub fn skewed(&mut self, end: u64) -> u64 {
        let roll = self.below(end);
        self.below(roll + 1)
    }
}

/// The finalizer of SplitMix64: a bijection that maps close numbers to distant ones.
fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
