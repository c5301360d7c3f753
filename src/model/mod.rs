//! Plain types that every layer shares: no I/O, and no use of other modules of the crate.

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
