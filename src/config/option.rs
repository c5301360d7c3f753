//! An option is data: its key, documentation, default and range stand in one place. The parser, the refusal of unknown
//! keys and the table of docs/reference/configuration.md read them from there.
//!
//! [`section!`] makes a section of the configuration from a list of documented fields:
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

use super::unit::OptionUnit;

/// How a value is written in the environment and on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    Text,
    /// Text that is never shown, also not in a message.
    Secret,
    /// Decimal digits. Bytes and times may have a unit.
    WholeNumber,
    Boolean,
    /// Texts separated by commas; an array in the file.
    List,
}

/// One option of the configuration, as documentation and the parser know it.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigOption {
    /// The section, as in the file's `[section]`.
    pub section: &'static str,
    pub name: &'static str,
    pub about: String,
    pub kind: OptionKind,
    /// Its default as text; `None` when there is no default.
    pub default: Option<String>,
    /// The numbers it may have; `None` for any, or for no number.
    pub range: Option<RangeInclusive<u64>>,
}

impl ConfigOption {
    pub fn key(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The environment variable that sets it, `STRATA_SECTION__NAME`.
    pub fn environment_variable(&self) -> String {
        format!("STRATA_{}__{}", self.section, self.name).to_ascii_uppercase()
    }

    /// What the option's number counts, if it is one with a unit.
    pub(super) fn unit(&self) -> Option<OptionUnit> {
        if self.kind == OptionKind::WholeNumber { OptionUnit::from_option_name(self.name) } else { None }
    }

    pub(super) fn expectation(&self) -> &'static str {
        match self.kind {
            OptionKind::Text | OptionKind::Secret => "a string",
            OptionKind::WholeNumber => self.unit().map_or("a whole number, 0 or more", OptionUnit::expectation),
            OptionKind::Boolean => "true or false",
            OptionKind::List => "a list of strings, such as [\"a\", \"b\"]",
        }
    }
}

/// A value that breaks a rule: the key and the right form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Violation {
    pub(super) key: String,
    pub(super) reason: String,
}

impl Violation {
    pub(super) fn new(key: &str, reason: impl Into<String>) -> Violation {
        Violation { key: key.to_owned(), reason: reason.into() }
    }
}

/// A section of the configuration, which [`section!`] implements.
pub(super) trait Section {
    /// Its options with their values as defaults, in the order of the fields.
    fn options(&self) -> Vec<ConfigOption>;

    /// Returns the first number outside its range.
    fn check_ranges(&self) -> Result<(), Violation>;
}

pub(super) trait OptionValue {
    const KIND: OptionKind;

    /// The value as a default in the documentation; `None` if the type has no default other than none.
    fn shown(&self) -> Option<String> {
        None
    }

    /// The value as a number, for the check of its range.
    fn number(&self) -> Option<u64> {
        None
    }
}

impl OptionValue for u64 {
    const KIND: OptionKind = OptionKind::WholeNumber;

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn number(&self) -> Option<u64> {
        Some(*self)
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    const KIND: OptionKind = T::KIND;

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(T::shown)
    }

    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(T::number)
    }
}

pub(super) fn check_range(key: &str, value: Option<u64>, range: &RangeInclusive<u64>) -> Result<(), Violation> {
    match value {
        Some(number) if !range.contains(&number) => {
            Err(Violation::new(key, format!("{number} is out of range; valid: {} to {}", range.start(), range.end())))
        }
        _ => Ok(()),
    }
}

/// Makes a section: a struct with public fields, its defaults, its deserialization and its list of options.
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

        impl $crate::option::Section for $section_type {
            fn options(&self) -> Vec<$crate::option::ConfigOption> {
                use $crate::option::{ConfigOption, OptionValue};
                vec![ $( ConfigOption {
                    section: $section,
                    name: stringify!($name),
                    about: concat!($($doc),+).trim().to_owned(),
                    kind: <$type as OptionValue>::KIND,
                    default: self.$name.shown(),
                    range: None$(.or(Some($range)))?,
                }, )+ ]
            }

            fn check_ranges(&self) -> Result<(), $crate::option::Violation> {
                $( $(
                    $crate::option::check_range(
                        concat!($section, ".", stringify!($name)),
                        $crate::option::OptionValue::number(&self.$name),
                        &$range,
                    )?;
                )? )+
                Ok(())
            }
        }
    };
}

pub(super) use section;

/// Makes a type whose values come from a source that a check accepts. The check may change them; its error says what
/// would be right.
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
