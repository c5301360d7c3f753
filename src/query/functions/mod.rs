//! The functions that plans call, one file each. They are stateless: parameters are literals of the call.

mod compare;

pub use compare::{compare, predicate_of};
