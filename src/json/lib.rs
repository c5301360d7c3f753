//! One entity as JSON text: pure functions over bytes, without a tree of values.
//!
//! Text has one entry, [`canonicalize`]. It validates the text and writes the canonical form that storage keeps.
//! Everything else trusts canonical text, and is fast because of that:
//!
//! | to | use |
//! |---|---|
//! | find where a document ends in a stream | [`ValueScanner`] |
//! | read | [`Cursor`], [`reach`], [`reach_values`], [`PathTree`], [`scalars`], [`member`], [`members`], [`Text`] |
//! | clean and choose fields | [`denull`], [`Projection`] |
//! | write | [`pretty_within`], [`write_string`] |
//! | compare | [`fold`], [`NumericValue`], [`EqualNeedle`], [`ContainsNeedle`], [`RangeNeedle`], [`CanonicalForm`] |
//! | sort | [`write_order`] |
//! | flatten | [`Shape`], [`ColumnsBuilder`] |
//! | cut into words | [`for_each_piece`] |
//!
//! Objects and arrays nest at most [`MAX_DEPTH`] levels, and no function recurses deeper than that.

mod canonical_form;
mod canonicalize;
mod columns;
mod cursor;
mod denull;
mod error;
mod fold;
mod keys;
mod nearest_double;
mod number;
mod order;
mod path_tree;
mod predicate;
mod pretty;
mod project;
mod range;
mod reach;
mod rewrite;
mod scan;
mod shape;
mod split;
mod text;
mod words;

pub use canonical_form::{CanonicalForm, prefix};
pub use canonicalize::{Canonicalizer, canonicalize, canonicalize_message};
pub use columns::{Columns, ColumnsBuilder, Names, TooManyColumns};
pub use cursor::{Cursor, JsonType, Scalar, Token};
pub use denull::denull;
pub use error::DocumentError;
pub use fold::{fold, fold_into, fold_text_into};
pub use nearest_double::nearest_double;
pub use number::{NumericValue, is_number};
pub use order::{ordered_bits, write_order, write_order_boolean, write_order_double, write_order_string};
pub use path_tree::{PathTree, Visitor};
pub use predicate::{ContainsNeedle, EqualNeedle, fold_scalar_into, matches_contains, matches_equal};
pub use pretty::pretty_within;
pub use project::{Inside, Projection};
pub use range::{RangeLimit, RangeNeedle, matches_range};
pub use reach::{member, members, reach, reach_values, scalars};
pub use scan::{find_either, find_markup};
pub use shape::{Name, Place, Shape};
pub use split::ValueScanner;
pub use text::{Part, Text, escape_into, write_string};
pub use words::for_each_piece;

/// Levels to which objects and arrays may nest; the entity is level 1 (docs/reference/paths-and-values.md, Entities and
/// values).
pub const MAX_DEPTH: usize = strata_types::limits::ENTITY_DEPTH;
