//! Strategies for entities, paths and values that careless implementations handle incorrectly.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::Value;

/// Names from a small pool, so that keys repeat and paths match, and sometimes any text.
pub fn key() -> impl Strategy<Value = String> {
    const USUAL: &[&str] = &["a", "b", "name"];
    const LONG: &[&str] = &["description", "description_de", "description_en"];
    const UNUSUAL: &[&str] = &[
        "",
        " ",
        "\t",
        " a ",
        "a.b",
        "a.b.c",
        ".",
        "a,b",
        "c:d",
        "\\",
        "a\\",
        "\\.",
        "\"",
        "a\"b",
        "_source",
        "a_0_b",
        "a_0",
        "0",
        "null",
        "é",
        "İ",
        "ß",
        "Σς",
        "\u{ffff}",
        "\u{1}",
        "\n",
        "\u{7f}",
        "😀",
        "a/b",
        "{",
        "]",
        "sixteen bytes it",
    ];
    prop_oneof![
        6 => select(USUAL).prop_map(str::to_owned),
        4 => select(UNUSUAL).prop_map(str::to_owned),
        2 => select(LONG).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-z]{10,80}",
    ]
}

/// Texts that are nearly equal, need escapes, fold in unusual ways, or look like other types.
pub fn string() -> impl Strategy<Value = String> {
    const POOL: &[&str] = &[
        "",
        "x",
        "X",
        "null",
        "NULL",
        "true",
        "False",
        "1",
        "1.0",
        "10",
        " ",
        "Fruit",
        "FRUIT",
        "Äpfel",
        "äPFEL",
        "straße",
        "STRASSE",
        "ẞ",
        "ß",
        "ΟΔΟΣ",
        "οδος",
        "οδοσ",
        "İstanbul",
        "i\u{307}stanbul",
        "istanbul",
        "\u{212a}",
        "K",
        "k",
        "\u{ffff}",
        "\u{fffe}",
        "\u{2028}",
        "\u{7f}",
        "\u{80}",
        "😀",
        "𐐀",
        "\\",
        "\\\\",
        "\"",
        "\\\"",
        "a\\",
        "/",
        "\u{0}",
        "\u{8}\u{c}\n\r\t\u{1}\u{1f}",
        "{\"a\":[1,null]}",
        "[]",
        "},{",
        "\u{1b}[0m",
        "a,b:c.d",
        "http://a.b/c?d=e",
    ];
    prop_oneof![
        6 => select(POOL).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[ -~]{0,200}",
        1 => "[ a-zA-Zäöüß\"\\\\\n{}\\[\\],:]{0,150}",
    ]
}

/// JSON numbers: equal numbers with different spellings, and huge, tiny and long numbers.
pub fn number() -> impl Strategy<Value = String> {
    const POOL: &[&str] = &[
        "0",
        "-0",
        "0.0",
        "-0.0",
        "0e9",
        "1",
        "1.0",
        "10e-1",
        "1E0",
        "1e+0",
        "-1",
        "10",
        "10.0",
        "1e1",
        "1E+1",
        "100e-1",
        "1.5",
        "1.50",
        "15e-1",
        "0.1",
        "1e-7",
        "1e400",
        "-1e400",
        "1e-400",
        "1e308",
        "1.7976931348623157e308",
        "9007199254740992",
        "9007199254740993",
        "9007199254740992.0",
        "9007199254740993.0",
        "-9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "9.223372036854775807e18",
        "18446744073709551616",
        "123456789012345678901234567890",
        "1000000000000000000000000000000",
        "1e30",
        "1000000000000000019884624838656",
        "1000000000000000019884624838657",
        "-1e30",
        "5e-324",
        "2.2250738585072014e-308",
    ];
    prop_oneof![
        6 => select(POOL).prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|integer| integer.to_string()),
        1 => any::<i32>().prop_map(|integer| f64::from(integer).to_string()),
        1 => "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?",
    ]
}

pub fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        3 => number().prop_map(Value::Number),
        4 => string().prop_map(Value::String),
    ]
}

/// Any value that an entity can contain, with at most 127 levels. Keys can repeat.
pub fn value() -> impl Strategy<Value = Value> {
    let shredded = prop_oneof![
        8 => scalar(),
        1 => Just(Value::Array(Vec::new())),
        1 => Just(Value::Object(Vec::new())),
    ];
    let any = shredded.prop_recursive(4, 24, 6, |inner| {
        let object = vec((key(), inner.clone()), 0..6).prop_map(Value::Object).boxed();
        prop_oneof![
            3 => vec(inner.clone(), 0..6).prop_map(Value::Array),
            2 => vec(object.clone(), 1..4).prop_map(Value::Array),
            4 => object,
            1 => (inner, 1..125_usize, any::<u64>()).prop_map(|(value, levels, shape)| wrap(value, levels, shape)),
        ]
    });
    any.prop_filter("at most 127 levels", |value| depth(value) < 128)
}

/// Wraps a value in `levels` objects and arrays, selected by the bits of `shape`, or in none if the depth would exceed
/// the limit.
fn wrap(value: Value, levels: usize, shape: u64) -> Value {
    if levels + depth(&value) > 126 {
        return value;
    }
    (0..levels).fold(value, |value, level| match shape >> (level % 64) & 1 {
        0 => Value::Array(vec![value]),
        _ => Value::Object(vec![("a".to_owned(), value)]),
    })
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}

/// The valid text of an entity with white space, unnecessary escapes and repeated keys.
pub fn text() -> impl Strategy<Value = String> {
    let members = vec((key(), value()), 0..7);
    (members, vec(any::<u8>(), 1..40)).prop_map(|(members, choices)| {
        let mut out = String::new();
        spell(&Value::Object(members), &mut choices.into_iter().cycle(), &mut out);
        out
    })
}

/// A parsed entity, without repeated keys.
pub fn entity() -> impl Strategy<Value = Value> {
    text().prop_map(|text| Value::parse_entity(&text).expect("failed to parse text"))
}

/// The keys of a path that often matches.
pub fn path() -> impl Strategy<Value = Vec<String>> {
    vec(key(), 1..4).prop_filter("the lone empty key is no path", |keys| *keys != [""])
}

/// A filter value.
pub fn needle() -> impl Strategy<Value = String> {
    prop_oneof![string(), number()]
}

/// Writes a value with spellings that `choices` select. If all are zero, the text is canonical.
fn spell(value: &Value, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    match value {
        Value::Array(elements) => {
            out.push('[');
            for (number, element) in elements.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                blanks(choices, out);
                spell(element, choices, out);
                blanks(choices, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            blanks(choices, out);
            out.push('{');
            for (number, (key, value)) in members.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                blanks(choices, out);
                spell_string(key, choices, out);
                blanks(choices, out);
                out.push(':');
                blanks(choices, out);
                spell(value, choices, out);
                blanks(choices, out);
            }
            out.push('}');
            blanks(choices, out);
        }
        Value::String(text) => spell_string(text, choices, out),
        _ => out.push_str(&value.write()),
    }
}

fn blanks(choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    out.push_str(match choices.next().unwrap_or(0) % 16 {
        12 => " ",
        13 => "\n    ",
        14 => "\r\n\t",
        15 => "                                                                   ",
        _ => "",
    });
}

fn spell_string(text: &str, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match choices.next().unwrap_or(0) % 32 {
            30 => character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| *out += &format!("\\u{unit:04x}")),
            31 => character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| *out += &format!("\\u{unit:04X}")),
            29 if character == '/' => out.push_str("\\/"),
            _ => {
                let quoted = super::value::quote(character.encode_utf8(&mut [0; 4]));
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
    }
    out.push('"');
}
