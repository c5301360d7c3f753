//! A request as a plan, and what it selects.

mod cold;
mod keyword_index;
mod many_conditions;
mod reads;
mod selection;
