//! A pushed JSON body: an object with the entities and further members, such as `{"dataset_id":7,"entities":[…]}`. The
//! members come in any order. The entities pass without being held in memory.

use std::sync::{Arc, Mutex, PoisonError};

use strata_json::{Cursor, NumericValue, Scalar};
use strata_types::similar;

use super::error::SourceError;

const SHOWN_CHARACTERS: usize = 100;

pub(super) const ENTITIES: &str = "entities";

/// The members beside the entities that the caller wants. Clones share them. A member is known once the decoder has
/// passed it: those before the entities with the first entity, all of them at the end. One that comes twice has its
/// last value.
#[derive(Debug, Clone)]
pub struct EnvelopeFields {
    values: Arc<Mutex<Members>>,
}

type Members = Vec<(&'static str, Option<Value>)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// A scalar as the value of the one member of a canonical object.
    Scalar(Vec<u8>),
    /// An object or an array, with its article.
    Nested(&'static str),
}

impl EnvelopeFields {
    pub(super) fn new(names: &[&'static str]) -> Self {
        Self { values: Arc::new(Mutex::new(names.iter().map(|name| (*name, None)).collect())) }
    }

    pub(super) fn wants(&self, key: impl Fn(&str) -> bool) -> Option<usize> {
        self.with(|values| values.iter().position(|(name, _)| key(name)))
    }

    /// The error for a member that the caller does not want. A slip must not go unnoticed.
    pub(super) fn unknown(&self, name: &str) -> String {
        let known: Vec<&str> = self.with(|values| values.iter().map(|(name, _)| *name).chain([ENTITIES]).collect());
        let shown: String = name.chars().take(SHOWN_CHARACTERS).collect();
        let meant = similar::suggestion(name, known.iter().copied());
        format!("unknown field {shown:?};{meant} valid: {}", known.join(", "))
    }

    pub(super) fn set(&self, index: usize, value: Value) {
        self.with(|values| values[index].1 = Some(value));
    }

    /// A member that is a whole number, 0 or more, in any spelling: `7.0` is 7. None when it has not come or is null.
    pub fn integer(&self, name: &str) -> Result<Option<u64>, SourceError> {
        let wanted = match name {
            "version" => "a version number, such as 3",
            "dataset_id" => "a dataset ID, such as 7",
            _ => "a whole number, 0 or more",
        };
        self.scalar(name, wanted, |scalar| match scalar {
            Scalar::Number(number) => {
                let integer = NumericValue::parse(number).and_then(|value| value.integer());
                let integer = integer.and_then(|integer| u64::try_from(integer).ok()).or_else(|| number.parse().ok());
                integer.ok_or_else(|| number.chars().take(40).collect())
            }
            other => Err(kind(other).to_owned()),
        })
    }

    /// A member that is a text; none when it has not come or is null.
    pub fn text(&self, name: &str) -> Result<Option<String>, SourceError> {
        self.scalar(name, "a string", |scalar| match scalar {
            Scalar::String(text) => Ok(text.unescape().into_owned()),
            other => Err(kind(other).to_owned()),
        })
    }

    /// A member that is a boolean; none when it has not come or is null.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, SourceError> {
        self.scalar(name, "true or false", |scalar| match scalar {
            Scalar::Bool(value) => Ok(*value),
            other => Err(kind(other).to_owned()),
        })
    }

    /// The value of a member, as `read` returns it, or the error for what it has found.
    fn scalar<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl Fn(&Scalar<'_>) -> Result<T, String>,
    ) -> Result<Option<T>, SourceError> {
        let wrong = |found: String| SourceError::BadBody { reason: format!("{name} must be {wanted}, but is {found}") };
        let value = self.with(|values| {
            let member = values.iter().find(|(known, _)| *known == name);
            debug_assert!(member.is_some(), "{name} is taken, but not wanted");
            member.and_then(|(_, value)| value.clone())
        });
        match value {
            None => Ok(None),
            Some(Value::Nested(found)) => Err(wrong(found.to_owned())),
            Some(Value::Scalar(object)) => {
                let mut cursor = Cursor::new(&object);
                cursor.enter();
                match cursor.next_key().and_then(|_| cursor.next_scalar()) {
                    None | Some(Scalar::Null) => Ok(None),
                    Some(scalar) => read(&scalar).map(Some).map_err(wrong),
                }
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Members) -> T) -> T {
        act(&mut self.values.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn kind(scalar: &Scalar<'_>) -> &'static str {
    match scalar {
        Scalar::Null => "null",
        Scalar::Bool(_) => "a boolean",
        Scalar::Number(_) => "a number",
        Scalar::String(_) => "a string",
    }
}
