//! JSON text of single entities.

mod fold;
mod nearest_double;
mod number;
mod order;
mod path_tree;
mod range;
mod rules;
mod words;
