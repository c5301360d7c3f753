//! A pushed JSON body: an object with entities and further fields, such as `{"dataset_id":7,"entities":[…]}`. The
//! fields can be in any order. The entities are streamed.

use std::sync::Arc;

use parking_lot::Mutex;
use strata_json::{JsonCursor, JsonScalar, NumericValue};
use strata_types::suggest;

use super::error::SourceError;

const MAX_SHOWN_CHARACTERS: usize = 100;
pub(super) const ENTITIES_FIELD: &str = "entities";

/// The requested fields other than `entities`. A field is available after the decoder has passed it: fields before the
/// entities with the first entity, all fields at the end. The last of duplicate fields wins.
#[derive(Debug, Clone)]
pub struct EnvelopeFields {
    values: Arc<Mutex<EnvelopeValues>>,
}

type EnvelopeValues = Vec<(&'static str, Option<EnvelopeValue>)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EnvelopeValue {
    /// A scalar value of a field, stored as the canonical object `{"":scalar}`.
    Scalar(Vec<u8>),
    /// An object or array as the value of a field, as a noun with an article for errors, such as `an object`.
    Nested(&'static str),
}

impl EnvelopeFields {
    pub(super) fn new(names: &[&'static str]) -> Self {
        Self { values: Arc::new(Mutex::new(names.iter().map(|name| (*name, None)).collect())) }
    }

    pub(super) fn find_field_index(&self, matches: impl Fn(&str) -> bool) -> Option<usize> {
        self.with_values(|values| values.iter().position(|(name, _)| matches(name)))
    }

    /// Returns the error for an unknown field, so that a typing error is not ignored.
    pub(super) fn unknown_field_error(&self, name: &str) -> String {
        let known: Vec<&str> =
            self.with_values(|values| values.iter().map(|(name, _)| *name).chain([ENTITIES_FIELD]).collect());
        let shown: String = name.chars().take(MAX_SHOWN_CHARACTERS).collect();
        let suggestion = suggest::did_you_mean(name, known.iter().copied());
        format!("unknown field {shown:?};{suggestion} valid: {}", known.join(", "))
    }

    pub(super) fn set(&self, index: usize, value: EnvelopeValue) {
        self.with_values(|values| values[index].1 = Some(value));
    }

    /// Returns a field that must be a non-negative integer in any notation (`7.0` is 7); `None` if missing or null.
    pub fn integer(&self, name: &str) -> Result<Option<u64>, SourceError> {
        let expected = match name {
            "version" => "a version number, such as 3",
            "dataset_id" => "a dataset ID, such as 7",
            _ => "a whole number, 0 or more",
        };
        self.read_scalar(name, expected, |scalar| match scalar {
            JsonScalar::Number(number) => {
                let integer = NumericValue::parse(number).and_then(|value| value.as_i64());
                let integer = integer.and_then(|integer| u64::try_from(integer).ok()).or_else(|| number.parse().ok());
                integer.ok_or_else(|| number.chars().take(40).collect())
            }
            other => Err(scalar_kind(other).to_owned()),
        })
    }

    /// Returns a field that must be a string; `None` if missing or null.
    pub fn string(&self, name: &str) -> Result<Option<String>, SourceError> {
        self.read_scalar(name, "a string", |scalar| match scalar {
            JsonScalar::String(text) => Ok(text.unescape().into_owned()),
            other => Err(scalar_kind(other).to_owned()),
        })
    }

    /// Returns a field that must be a boolean; `None` if missing or null.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, SourceError> {
        self.read_scalar(name, "true or false", |scalar| match scalar {
            JsonScalar::Bool(value) => Ok(*value),
            other => Err(scalar_kind(other).to_owned()),
        })
    }

    fn read_scalar<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&JsonScalar<'_>) -> Result<T, String>,
    ) -> Result<Option<T>, SourceError> {
        let type_error =
            |found: String| SourceError::InvalidBody { reason: format!("{name} must be {expected}, but is {found}") };
        let value = self.with_values(|values| {
            let member = values.iter().find(|(known, _)| *known == name);
            debug_assert!(member.is_some(), "the field {name} was not requested");
            member.and_then(|(_, value)| value.clone())
        });
        match value {
            None => Ok(None),
            Some(EnvelopeValue::Nested(found)) => Err(type_error(found.to_owned())),
            Some(EnvelopeValue::Scalar(object)) => {
                let mut cursor = JsonCursor::new(&object);
                cursor.enter();
                match cursor.next_key().and_then(|_| cursor.next_scalar()) {
                    None | Some(JsonScalar::Null) => Ok(None),
                    Some(scalar) => read(&scalar).map(Some).map_err(type_error),
                }
            }
        }
    }

    fn with_values<T>(&self, act: impl FnOnce(&mut EnvelopeValues) -> T) -> T {
        act(&mut self.values.lock())
    }
}

fn scalar_kind(scalar: &JsonScalar<'_>) -> &'static str {
    match scalar {
        JsonScalar::Null => "null",
        JsonScalar::Bool(_) => "a boolean",
        JsonScalar::Number(_) => "a number",
        JsonScalar::String(_) => "a string",
    }
}
