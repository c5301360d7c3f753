//! Plain types that every layer shares: no I/O, and no use of other modules of the crate.

/// Implements `FromStr` for a type with `ALL` and `name`: it parses the exact names. The error of any other text has
/// this message.
macro_rules! parse_by_name {
    ($type:ident, $error:ident, $message:tt) => {
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
