//! Plain types: parsing and display.

mod causes;
mod dataset;
mod ids;
mod index;
mod leb128;
mod names;
mod node;
mod path;
mod request;
mod schedule;
mod secret;
mod similar;
mod slug;
mod source;
mod text;
mod user;
mod version;
