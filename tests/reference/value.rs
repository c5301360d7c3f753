//! A tree of JSON values that preserves key order and the text of numbers, with a parser and two writers.

use std::iter::Peekable;
use std::str::Chars;

use strata_json::JsonScalar;

/// A JSON value. Numbers are stored as text. After parsing, the keys of an object are unique.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Converts a scalar of the code under test.
    pub fn from_scalar(scalar: JsonScalar<'_>) -> Value {
        match scalar {
            JsonScalar::Null => Value::Null,
            JsonScalar::Bool(value) => Value::Bool(value),
            JsonScalar::Number(text) => Value::Number(text.to_owned()),
            JsonScalar::String(text) => Value::String(text.unescape().into_owned()),
        }
    }

    /// Parses an entity: an object with at most 128 levels and optional surrounding white space. A repeated key has its
    /// first position and its last value.
    pub fn parse_entity(text: &str) -> Result<Value, String> {
        match Value::parse_at(text, 1)? {
            entity @ Value::Object(_) => Ok(entity),
            _ => Err("not an object".to_owned()),
        }
    }

    /// Parses any value that an entity can contain.
    pub fn parse(text: &str) -> Result<Value, String> {
        Value::parse_at(text, 2)
    }

    /// Parses an array of entities.
    pub fn parse_list(text: &str) -> Result<Value, String> {
        Value::parse_at(text, 0)
    }

    /// Parses a value whose objects and arrays begin at `level`.
    pub fn parse_at(text: &str, level: usize) -> Result<Value, String> {
        let mut parser = Parser { rest: text.chars().peekable() };
        parser.blanks();
        let value = parser.value(level)?;
        parser.blanks();
        match parser.rest.next() {
            Some(next) => Err(format!("{next:?} after the end")),
            None => Ok(value),
        }
    }

    /// Returns the compact text with canonical escapes.
    pub fn write(&self) -> String {
        match self {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(text) => text.clone(),
            Value::String(text) => quote(text),
            Value::Array(elements) => {
                let elements: Vec<String> = elements.iter().map(Value::write).collect();
                format!("[{}]", elements.join(","))
            }
            Value::Object(members) => {
                let members: Vec<String> =
                    members.iter().map(|(key, value)| format!("{}:{}", quote(key), value.write())).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// Returns the indented text of a value at `level`. The first line has no indentation.
    pub fn write_pretty(&self, level: usize) -> String {
        let lines = |open: &str, items: Vec<String>, close: &str| {
            let inner = format!("\n{}", "  ".repeat(level + 1));
            let outer = format!("\n{}", "  ".repeat(level));
            format!("{open}{inner}{}{outer}{close}", items.join(&format!(",{inner}")))
        };
        match self {
            Value::Array(elements) if !elements.is_empty() => {
                lines("[", elements.iter().map(|element| element.write_pretty(level + 1)).collect(), "]")
            }
            Value::Object(members) if !members.is_empty() => {
                let member =
                    |(key, value): &(String, Value)| format!("{}: {}", quote(key), value.write_pretty(level + 1));
                lines("{", members.iter().map(member).collect(), "}")
            }
            _ => self.write(),
        }
    }

    /// Returns the value of a member if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the text of a scalar; `None` for null, objects and arrays.
    pub fn text(&self) -> Option<String> {
        match self {
            Value::String(text) | Value::Number(text) => Some(text.clone()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Sets a member. An existing key keeps its position and gets the new value.
pub fn set(members: &mut Vec<(String, Value)>, key: String, value: Value) {
    match members.iter_mut().find(|(name, _)| *name == key) {
        Some((_, old)) => *old = value,
        None => members.push((key, value)),
    }
}

/// Returns a JSON string with canonical escapes.
pub fn quote(text: &str) -> String {
    let mut out = "\"".to_owned();
    for character in text.chars() {
        match character {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\u{8}' => out += "\\b",
            '\u{c}' => out += "\\f",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            '\0'..='\u{1f}' => out += &format!("\\u{:04x}", u32::from(character)),
            _ => out.push(character),
        }
    }
    out + "\""
}

struct Parser<'t> {
    rest: Peekable<Chars<'t>>,
}

impl Parser<'_> {
    fn value(&mut self, level: usize) -> Result<Value, String> {
        match self.rest.peek().copied() {
            Some('{' | '[') if level > 128 => Err("too deep".to_owned()),
            Some('{') => {
                let mut members = Vec::new();
                self.items('{', '}', |parser| {
                    let key = parser.string()?;
                    parser.blanks();
                    parser.expect(':')?;
                    parser.blanks();
                    let value = parser.value(level + 1)?;
                    set(&mut members, key, value);
                    Ok(())
                })?;
                Ok(Value::Object(members))
            }
            Some('[') => {
                let mut elements = Vec::new();
                self.items('[', ']', |parser| {
                    elements.push(parser.value(level + 1)?);
                    Ok(())
                })?;
                Ok(Value::Array(elements))
            }
            Some('"') => Ok(Value::String(self.string()?)),
            _ => self.word(),
        }
    }

    fn items(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(open)?;
        self.blanks();
        if self.rest.next_if_eq(&close).is_some() {
            return Ok(());
        }
        loop {
            item(self)?;
            self.blanks();
            if self.rest.next_if_eq(&close).is_some() {
                return Ok(());
            }
            self.expect(',')?;
            self.blanks();
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect('"')?;
        let mut units = Vec::new();
        loop {
            match self.rest.next() {
                None => return Err("a string without end".to_owned()),
                Some('"') => return String::from_utf16(&units).map_err(|_| "a lone surrogate".to_owned()),
                Some('\0'..='\u{1f}') => return Err("a control character".to_owned()),
                Some('\\') => units.push(match self.rest.next() {
                    Some(character @ ('"' | '\\' | '/')) => character as u16,
                    Some('b') => 8,
                    Some('f') => 12,
                    Some('n') => 10,
                    Some('r') => 13,
                    Some('t') => 9,
                    Some('u') => {
                        let digits: String =
                            (0..4).filter_map(|_| self.rest.next_if(char::is_ascii_hexdigit)).collect();
                        match digits.len() {
                            4 => u16::from_str_radix(&digits, 16).expect("invalid escape"),
                            _ => return Err("a bad escape".to_owned()),
                        }
                    }
                    _ => return Err("a bad escape".to_owned()),
                }),
                Some(character) => units.extend_from_slice(character.encode_utf16(&mut [0; 2])),
            }
        }
    }

    /// Parses a literal or a number.
    fn word(&mut self) -> Result<Value, String> {
        let belongs = |character: &char| character.is_ascii_alphanumeric() || "+-.".contains(*character);
        let word: String = std::iter::from_fn(|| self.rest.next_if(belongs)).collect();
        match word.as_str() {
            "null" => Ok(Value::Null),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ if super::number::is_number(&word) => Ok(Value::Number(word)),
            _ => Err(format!("{word:?} is no value")),
        }
    }

    fn expect(&mut self, character: char) -> Result<(), String> {
        match self.rest.next() {
            Some(next) if next == character => Ok(()),
            next => Err(format!("{next:?} where {character:?} should stand")),
        }
    }

    fn blanks(&mut self) {
        while self.rest.next_if(|next| " \t\r\n".contains(*next)).is_some() {}
    }
}
