//! A request as a plan, and what it selects.

mod keyword_index;
mod many_conditions;
mod reads;
mod selection;
mod sets;
