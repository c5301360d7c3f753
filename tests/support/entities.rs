//! Lists of entities, as text.

/// Entities that are changed if they pass through a tree of values.
pub const EXACT: &str =
    r#"[{"z":1e2,"a":100000000000000000000000000001,"é":"\u0001é\"","n":{"x":[1.50,null,{}]},"b":-0.0},{}]"#;

/// Returns a list of entities of approximately `size_bytes` bytes.
pub fn entities(size_bytes: usize) -> String {
    let entity = |number: usize| format!(r#"{{"number":{number},"text":"{}"}}"#, "é".repeat(40 + number % 50));
    let mut list = String::from("[");
    for number in 0.. {
        list.push_str(&entity(number));
        if list.len() >= size_bytes {
            break;
        }
        list.push(',');
    }
    list + "]"
}
