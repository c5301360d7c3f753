//! The fixed limits: bounds of requests that no option changes. Each has one entry. The code, the table of
//! docs/reference/limits.md, Fixed limits, and the tests use it. The tests try every limit at its maximum and past it.
//! Limits that an operator may choose are options (`config`).
//!
//! To add a limit, add its entry here and its case in `tests/it/resilience/limits/fixed.rs`.

/// How many times the bytes of its JSON an entity may always take as it is written, whatever
/// `limits.encoded_entity_bytes` says.
pub const ENCODED_EXPANSION: usize = 4;

/// A fixed limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub name: &'static str,
    pub about: &'static str,
    pub most: usize,
    pub beyond: Beyond,
}

/// The effect of a request that goes beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// It is refused with this status.
    Status(u16),
    /// The tool's result is an error.
    ToolError,
    /// A command refuses it.
    Command,
    LeftOut,
}

macro_rules! limits {
    ($(#[doc = $about:literal] $name:ident = $most:expr, $beyond:expr;)+) => {
        $(#[doc = $about] pub const $name: usize = $most;)+

        /// Every fixed limit, as docs/reference/limits.md, Fixed limits, lists them.
        pub const ALL: &[Limit] = &[$(Limit {
            name: stringify!($name),
            about: $about.trim_ascii(),
            most: $name,
            beyond: $beyond,
        }),+];
    };
}

limits! {
    /// Bytes of a query string as sent, or of all query parameters of a tool call
    QUERY_BYTES = 32 << 10, Beyond::Status(414);
    /// Filters, listed paths, and keywords in a query, in total
    ITEMS = 1_000, Beyond::Status(400);
    /// Keys in a path
    PATH_KEYS = 128, Beyond::Status(400);
    /// Bytes of the names in an `X-Unknown-Parameters` or `X-Unknown-Fields` header
    UNKNOWN_HEADER_BYTES = 1_024, Beyond::LeftOut;
    /// Bytes of a `Link` header; strata omits `prev` first, then `next`
    LINK_BYTES = 2 << 10, Beyond::LeftOut;
    /// Nesting levels of an entity, including the entity itself
    ENTITY_DEPTH = 128, Beyond::Status(422);
    /// Bytes of all column names of a table
    COLUMN_NAME_BYTES = 16 << 20, Beyond::Status(400);
    /// Datasets on a page of `/dataset/list`
    LISTED_DATASETS = 1_000, Beyond::LeftOut;
    /// Entries on a page of `/dataset/attempts` or `/webhook/deliveries`, and entries stored per dataset
    HISTORY = 1_000, Beyond::LeftOut;
    /// Days of usage that strata stores and that `/dataset/usage` returns
    USAGE_DAYS = 400, Beyond::LeftOut;
    /// Characters of a dataset name
    DATASET_NAME_CHARACTERS = 200, Beyond::Status(400);
    /// Characters of a dataset description
    DESCRIPTION_CHARACTERS = 4_000, Beyond::Status(400);
    /// Characters of a dataset license
    LICENCE_CHARACTERS = 1_000, Beyond::Status(400);
    /// Datasets on a page of `/datasets`
    LISTINGS = 1_000, Beyond::LeftOut;
    /// Characters of `q` in a request to `/datasets`
    LISTINGS_QUERY_CHARACTERS = 200, Beyond::Status(400);
    /// Bytes of a sign-in or sign-out form in the dashboard, or of the fields sent with an upload
    FORM_BYTES = 64 << 10, Beyond::Status(413);
    /// Bytes of a dashboard form for signed-in users
    USER_FORM_BYTES = 1 << 20, Beyond::Status(413);
    /// Bytes of a form in the dashboard's entity editor
    EDITOR_FORM_BYTES = 6 * EDITOR_BYTES + (1 << 20), Beyond::Status(413);
    /// Bytes of the text in the dashboard's entity editor
    EDITOR_BYTES = 3 * PAGE_BYTES, Beyond::Status(413);
    /// Entities that you can remove at once in the dashboard
    EDITOR_POSITIONS = 1_000, Beyond::Status(400);
    /// Modified entities that the dashboard examines to summarize a diff
    SUMMARY_ENTITIES = 1_000, Beyond::LeftOut;
    /// Entities on a dashboard page
    PAGE_ENTITIES = 200, Beyond::LeftOut;
    /// Bytes of the entities on a dashboard page, measured as JSON
    PAGE_BYTES = 2 << 20, Beyond::LeftOut;
    /// Refresh progress streams that a user can have open at the same time
    REFRESH_STREAMS = 4, Beyond::Status(429);
    /// Bytes of a source or webhook URL
    URL_BYTES = 8 << 10, Beyond::Status(400);
    /// Bytes of `records_path`
    RECORDS_PATH_BYTES = 1_024, Beyond::Status(400);
    /// Bytes of `schedule`
    SCHEDULE_BYTES = 200, Beyond::Status(400);
    /// Paths in each list of `index`
    INDEX_PATHS = 64, Beyond::Status(400);
    /// Bytes of a path in `index`, including escapes
    INDEX_PATH_BYTES = 1_024, Beyond::Status(400);
    /// Bytes of a webhook secret
    WEBHOOK_SECRET_BYTES = 1_024, Beyond::Status(400);
    /// Values in the JSON body of a management call, excluding entities; each array or object counts twice
    BODY_VALUES = 10_000, Beyond::Status(400);
    /// Bytes that precede the opening brace of a pushed object with `entities`, both compressed and decompressed
    BRACKET_WITHIN_BYTES = 64 << 10, Beyond::Status(422);
    /// Bytes of a `/session/login` request body
    LOGIN_BODY_BYTES = 16 << 10, Beyond::Status(413);
    /// Bytes of a password
    PASSWORD_BYTES = 1_024, Beyond::Status(401);
    /// Bytes of an email address
    EMAIL_BYTES = 254, Beyond::Command;
    /// Bytes of an API token name
    TOKEN_NAME_BYTES = 200, Beyond::Status(400);
    /// API tokens per user
    TOKENS = 100, Beyond::Status(409);
    /// Seconds until an API token expires (100 years)
    TOKEN_LIFETIME_S = 3_153_600_000, Beyond::Status(400);
    /// Sessions per user; if a login exceeds the limit, strata ends the least recently used session
    SESSIONS = 100, Beyond::LeftOut;
    /// Bytes of a message to `/mcp`, excluding pushed and edited entities
    TOOL_MESSAGE_BYTES = 128 << 10, Beyond::Status(413);
    /// Nesting levels of an entity in a message to `/mcp`
    TOOL_ENTITY_DEPTH = ENTITY_DEPTH - 4, Beyond::Status(400);
    /// Datasets on a page of the tools `list_datasets` and `list_public_datasets`
    TOOL_LISTED_DATASETS = 200, Beyond::ToolError;
    /// Bytes of a tool result
    TOOL_RESULT_BYTES = 256 << 10, Beyond::ToolError;
    /// Bytes of the entities that the tool `pull_for_edit` returns
    TOOL_PULL_BYTES = 1 << 20, Beyond::ToolError;
}
