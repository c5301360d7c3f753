//! Plain types that all crates of strata share, without I/O.

/// Gives each variant of an enum a name. `Display` writes these names, and `FromStr` accepts only them.
macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),+ }, $error:ident, $message:tt) => {
        names!($type { $($variant = $name),+ } and {}, $error, $message);
    };
    // The variants after `and` have names, but they are not in `ALL`, and their names are not parsed.
    (
        $type:ident { $($variant:ident = $name:literal),+ } and { $($other:ident = $other_name:literal),* },
        $error:ident, $message:tt
    ) => {
        impl $type {
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];
            pub const NAMES: [&str; [$($name),+].len()] = [$($name),+];

            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                    $($type::$other => $other_name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.name())
            }
        }

        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error($message)]
        pub struct $error(pub String);

        impl std::str::FromStr for $type {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $type::ALL.into_iter().find(|value| value.name() == text).ok_or_else(|| $error(text.to_owned()))
            }
        }
    };
}

pub mod dataset;
pub mod error_chain;
pub mod field_path;
pub mod ids;
pub mod index_settings;
pub mod invisible_text;
pub mod leb128;
pub mod limits;
pub mod node;
pub mod read_request;
pub mod schedule;
pub mod secret;
pub mod slug;
pub mod source;
pub mod suggest;
pub mod token_scope;
pub mod user;
pub mod version;
