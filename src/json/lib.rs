//! JSON text of single entities: pure functions over bytes that build no value tree.
//!
//! [`canonicalize`] is the only entry for untrusted text. It validates the text and writes canonical text, the form
//! that version files store. All other functions require canonical text, which makes them fast:
//!
//! | Task | Items |
//! |---|---|
//! | split a stream | [`ValueScanner`] |
//! | read values | [`JsonCursor`], [`JsonStr`], [`find_member`], [`members`], [`visit_all_scalars`] |
//! | evaluate paths | [`visit_scalars_at`], [`visit_values_at`], [`PathTrie`] |
//! | select fields | [`remove_nulls`], [`FieldProjection`] |
//! | write | [`try_write_indented`], [`write_json_string`] |
//! | compare | [`fold_case`], [`NumericValue`], [`EqualsPredicate`], [`ContainsPredicate`], [`RangePredicate`] |
//! | hash and sort | [`CanonicalFormWriter`], [`write_sort_key`] |
//! | flatten | [`EntityFlattener`], [`TableColumnNamesBuilder`] |
//! | split into tokens | [`for_each_token`] |
//!
//! Objects and arrays nest at most [`MAX_NESTING_DEPTH`] levels, and no function recurses deeper than that.

mod canonical_form;
mod canonicalize;
mod case_folding;
mod columns;
mod cursor;
mod error;
mod flatten;
mod json_str;
mod key_match;
mod nearest_double;
mod number;
mod path_eval;
mod path_trie;
mod predicate;
mod pretty;
mod projection;
mod range_predicate;
mod remove_nulls;
mod rewrite;
mod scan;
mod sort_key;
mod tokenizer;
mod value_scanner;

pub use canonical_form::{CanonicalFormWriter, EntityHash, sortable_prefix, truncate_sha256};
pub use canonicalize::{JsonCanonicalizer, canonicalize, canonicalize_envelope};
pub use case_folding::{fold_bytes, fold_case, fold_case_into, fold_json_str_into};
pub use columns::{TableColumnNames, TableColumnNamesBuilder, TooManyColumnsError, UniqueNames};
pub use cursor::{JsonCursor, JsonScalar, JsonToken, JsonType};
pub use error::DocumentError;
pub use flatten::{CellSink, EntityFlattener, FlattenedKey};
pub use json_str::{JsonStr, JsonStrPart, escape_into, write_json_string};
pub use nearest_double::nearest_double;
pub use number::{NumericValue, is_number};
pub use path_eval::{find_member, members, visit_all_scalars, visit_scalars_at, visit_values_at};
pub use path_trie::{PathTrie, PathVisitor};
pub use predicate::{ContainsPredicate, EqualsPredicate, fold_scalar_into, matches_contains, matches_equal};
pub use pretty::try_write_indented;
pub use projection::{FieldProjection, SourceField, ValueProjection};
pub use range_predicate::{RangeOperand, RangePredicate, matches_range};
pub use remove_nulls::remove_nulls;
pub use scan::{find_either_byte, find_xml_special};
pub use sort_key::{
    SortDirection, sortable_bits, write_sort_key, write_sort_key_bool, write_sort_key_double, write_sort_key_string,
};
pub use tokenizer::for_each_token;
pub use value_scanner::ValueScanner;

/// Maximum nesting depth of objects and arrays; the entity itself is level 1.
pub const MAX_NESTING_DEPTH: usize = strata_types::limits::MAX_ENTITY_DEPTH;
