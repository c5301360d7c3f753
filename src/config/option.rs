//! Options as data: the key, documentation, default, and range of an option are declared in one place. The parser, the
//! check for unknown keys, and the table in docs/reference/configuration.md use the declaration.
//!
//! [`section!`] declares a section of the configuration from documented fields:
//!
//! ```text
//! section! {
//!     /// What the section is about.
//!     Query in "query" {
//!         /// What the option does, its unit, what 0 means.
//!         timeout_s: u64 = 30, within 1..=86_400;
//!     }
//! }
//! ```

use std::ops::RangeInclusive;

use super::option_unit::OptionUnit;

/// The form of an option's value in the environment and on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOptionKind {
    Text,
    /// The values of secret options are never shown, not even in error messages.
    Secret,
    /// A number is written in decimal digits. Bytes and durations can have a unit.
    WholeNumber,
    Boolean,
    /// A list is written as comma-separated strings, or as an array in the configuration file.
    List,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConfigOption {
    pub section: &'static str,
    pub name: &'static str,
    pub description: String,
    pub kind: ConfigOptionKind,
    pub default: Option<String>,
    /// The valid numbers of the option; `None` if there is no limit.
    pub range: Option<RangeInclusive<u64>>,
}

impl ConfigOption {
    pub fn key(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    pub fn environment_variable(&self) -> String {
        format!("STRATA_{}__{}", self.section, self.name).to_ascii_uppercase()
    }

    pub(super) fn unit(&self) -> Option<OptionUnit> {
        if self.kind == ConfigOptionKind::WholeNumber { OptionUnit::from_option_name(self.name) } else { None }
    }

    pub(super) fn expected_form(&self) -> &'static str {
        match self.kind {
            ConfigOptionKind::Text | ConfigOptionKind::Secret => "a string",
            ConfigOptionKind::WholeNumber => self.unit().map_or("a whole number, 0 or more", OptionUnit::expected_form),
            ConfigOptionKind::Boolean => "true or false",
            ConfigOptionKind::List => "a list of strings, such as [\"a\", \"b\"]",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct OptionViolation {
    pub(super) key: String,
    pub(super) reason: String,
}

impl OptionViolation {
    pub(super) fn new(key: &str, reason: impl Into<String>) -> OptionViolation {
        OptionViolation { key: key.to_owned(), reason: reason.into() }
    }
}

pub(super) trait ConfigSection {
    /// Returns the options of the section in the order of its fields. The values of the fields are the defaults.
    fn options(&self) -> Vec<ConfigOption>;

    fn check_ranges(&self) -> Result<(), OptionViolation>;
}

pub(super) trait OptionValue {
    const KIND: ConfigOptionKind;

    fn format_default(&self) -> Option<String> {
        None
    }

    fn as_number(&self) -> Option<u64> {
        None
    }
}

impl OptionValue for u64 {
    const KIND: ConfigOptionKind = ConfigOptionKind::WholeNumber;

    fn format_default(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn as_number(&self) -> Option<u64> {
        Some(*self)
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    const KIND: ConfigOptionKind = T::KIND;

    fn format_default(&self) -> Option<String> {
        self.as_ref().and_then(T::format_default)
    }

    fn as_number(&self) -> Option<u64> {
        self.as_ref().and_then(T::as_number)
    }
}

pub(super) fn check_range(key: &str, value: Option<u64>, range: &RangeInclusive<u64>) -> Result<(), OptionViolation> {
    match value {
        Some(number) if !range.contains(&number) => Err(OptionViolation::new(
            key,
            format!("{number} is out of range; valid: {} to {}", range.start(), range.end()),
        )),
        _ => Ok(()),
    }
}

/// Declares a configuration section: a struct with public fields, defaults, deserialization, and list of options.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $section_type:ident in $section:literal {
            $(
                $(#[doc = $doc:literal])+
                $name:ident: $type:ty = $default:expr $(, within $range:expr)?;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $section_type {
            $( $(#[doc = $doc])+ pub $name: $type, )+
        }

        impl Default for $section_type {
            fn default() -> Self {
                Self { $( $name: $default, )+ }
            }
        }

        impl $crate::option::ConfigSection for $section_type {
            fn options(&self) -> Vec<$crate::option::ConfigOption> {
                use $crate::option::{ConfigOption, OptionValue};
                vec![ $( ConfigOption {
                    section: $section,
                    name: stringify!($name),
                    description: concat!($($doc),+).trim().to_owned(),
                    kind: <$type as OptionValue>::KIND,
                    default: self.$name.format_default(),
                    range: None$(.or(Some($range)))?,
                }, )+ ]
            }

            fn check_ranges(&self) -> Result<(), $crate::option::OptionViolation> {
                $( $(
                    $crate::option::check_range(
                        concat!($section, ".", stringify!($name)),
                        $crate::option::OptionValue::as_number(&self.$name),
                        &$range,
                    )?;
                )? )+
                Ok(())
            }
        }
    };
}

pub(super) use section;

/// Declares a type whose values a check accepts. The check can change the value, and its error contains the valid form.
macro_rules! checked_type {
    (
        $(#[$attribute:meta])*
        $name:ident($inner:ty) from $source:ty $(=> $get:ident -> $view:ty)?, $check:expr
    ) => {
        $(#[$attribute])*
        #[derive(Clone, PartialEq)]
        pub struct $name($inner);

        $(impl $name {
            pub fn $get(&self) -> &$view {
                &self.0
            }
        })?

        impl TryFrom<$source> for $name {
            type Error = String;

            fn try_from(source: $source) -> Result<Self, String> {
                let check: fn($source) -> Result<$inner, String> = $check;
                check(source).map(Self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$source>::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(super) use checked_type;
