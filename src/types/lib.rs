//! Plain types that all crates of strata share, without I/O.

/// Names the variants of an enum, in the order in which documentation lists them. `Display` writes the names, and
/// `FromStr` parses nothing else. The error of any other text has this message.
macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),+ }, $error:ident, $message:tt) => {
        impl $type {
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
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

pub mod causes;
pub mod dataset;
pub mod ids;
pub mod index;
pub mod leb128;
pub mod limits;
pub mod node;
pub mod path;
pub mod request;
pub mod schedule;
pub mod scope;
pub mod secret;
pub mod similar;
pub mod slug;
pub mod source;
pub mod text;
pub mod user;
pub mod version;
