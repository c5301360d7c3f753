//! Secrets in the configuration: the model's type, read from a text and never shown.

use serde::{Deserialize, Deserializer};

use super::option::{OptionKind, OptionValue};
use crate::model::secret::Secret;

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Secret::from_stored)
    }
}

impl OptionValue for Secret {
    const KIND: OptionKind = OptionKind::Secret;

    fn shown(&self) -> Option<String> {
        Some("[secret]".to_owned())
    }
}
