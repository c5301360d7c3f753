//! Fixed limits of requests, which no option can change. The code, the tests, and the table in docs/reference/limits.md
//! use the same entries. The tests try each limit at its maximum and above it.
//!
//! To add a limit, add an entry here and a case in `tests/it/resilience/limits/fixed.rs`.

/// Factor by which an encoded entity can always exceed its JSON, regardless of `limits.encoded_entity_bytes`.
pub const MIN_ENCODED_EXPANSION: usize = 4;

#[derive(Clone, Copy, Debug)]
pub struct FixedLimit {
    pub name: &'static str,
    pub description: &'static str,
    pub max: usize,
    pub over_limit: OverLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverLimit {
    Status(u16),
    ToolError,
    CommandError,
    Truncate,
}

macro_rules! limits {
    ($(#[doc = $about:literal] $name:ident = $max:expr, $over_limit:expr;)+) => {
        $(#[doc = $about] pub const $name: usize = $max;)+

        pub const FIXED_LIMITS: &[FixedLimit] = &[$(FixedLimit {
            name: stringify!($name),
            description: $about.trim_ascii(),
            max: $name,
            over_limit: $over_limit,
        }),+];
    };
}

limits! {
    /// Bytes of a query string as sent, or of all query parameters of a tool call
    MAX_QUERY_STRING_BYTES = 32 << 10, OverLimit::Status(414);
    /// Filters, listed paths, and keywords in a query, in total
    MAX_QUERY_ITEMS = 1_000, OverLimit::Status(400);
    /// Keys in a path
    MAX_PATH_KEYS = 128, OverLimit::Status(400);
    /// Bytes of the names in an `X-Unknown-Parameters` or `X-Unknown-Fields` header
    MAX_UNKNOWN_NAMES_HEADER_BYTES = 1_024, OverLimit::Truncate;
    /// Bytes of a `Link` header; strata omits `prev` first, then `next`
    MAX_LINK_HEADER_BYTES = 2 << 10, OverLimit::Truncate;
    /// Nesting levels of an entity, including the entity itself
    MAX_ENTITY_DEPTH = 128, OverLimit::Status(422);
    /// Bytes of all column names of a table
    MAX_COLUMN_NAMES_BYTES = 16 << 20, OverLimit::Status(400);
    /// Datasets on a page of `/dataset/list`
    MAX_OWNED_DATASETS_PER_PAGE = 1_000, OverLimit::Truncate;
    /// Entries on a page of `/dataset/attempts` or `/webhook/deliveries`, and entries stored per dataset
    MAX_HISTORY_ENTRIES = 1_000, OverLimit::Truncate;
    /// Days of usage that strata stores and that `/dataset/usage` returns
    MAX_USAGE_DAYS = 400, OverLimit::Truncate;
    /// Characters of a dataset name
    MAX_DATASET_NAME_CHARACTERS = 200, OverLimit::Status(400);
    /// Characters of a dataset description
    MAX_DESCRIPTION_CHARACTERS = 4_000, OverLimit::Status(400);
    /// Characters of a dataset license
    MAX_LICENSE_CHARACTERS = 1_000, OverLimit::Status(400);
    /// Datasets on a page of `/datasets`
    MAX_LISTED_DATASETS_PER_PAGE = 1_000, OverLimit::Truncate;
    /// Characters of `q` in a request to `/datasets`
    MAX_DATASET_SEARCH_CHARACTERS = 200, OverLimit::Status(400);
    /// Bytes of a sign-in or sign-out form in the dashboard, or of the fields sent with an upload
    MAX_SMALL_FORM_BYTES = 64 << 10, OverLimit::Status(413);
    /// Bytes of a dashboard form for signed-in users
    MAX_USER_FORM_BYTES = 1 << 20, OverLimit::Status(413);
    /// Bytes of a form in the dashboard's entity editor
    MAX_EDITOR_FORM_BYTES = 6 * MAX_EDITOR_TEXT_BYTES + (1 << 20), OverLimit::Status(413);
    /// Bytes of the text in the dashboard's entity editor
    MAX_EDITOR_TEXT_BYTES = 3 * MAX_PAGE_ENTITY_BYTES, OverLimit::Status(413);
    /// Entities that you can remove at once in the dashboard
    MAX_REMOVED_ENTITIES = 1_000, OverLimit::Status(400);
    /// Modified entities that the dashboard examines to summarize a diff
    MAX_DIFF_SUMMARY_ENTITIES = 1_000, OverLimit::Truncate;
    /// Entities on a dashboard page
    MAX_PAGE_ENTITIES = 200, OverLimit::Truncate;
    /// Bytes of the entities on a dashboard page, measured as JSON
    MAX_PAGE_ENTITY_BYTES = 2 << 20, OverLimit::Truncate;
    /// Refresh progress streams that a user can have open at the same time
    MAX_USER_REFRESH_STREAMS = 4, OverLimit::Status(429);
    /// Bytes of a source or webhook URL
    MAX_URL_BYTES = 8 << 10, OverLimit::Status(400);
    /// Bytes of `records_path`
    MAX_RECORDS_PATH_BYTES = 1_024, OverLimit::Status(400);
    /// Bytes of `schedule`
    MAX_SCHEDULE_BYTES = 200, OverLimit::Status(400);
    /// Paths in each list of `index`
    MAX_INDEX_PATHS = 64, OverLimit::Status(400);
    /// Bytes of a path in `index`, including escapes
    MAX_INDEX_PATH_BYTES = 1_024, OverLimit::Status(400);
    /// Paths in `checks`, in total
    MAX_CHECK_PATHS = 256, OverLimit::Status(400);
    /// Bytes of a path in `checks`, including escapes
    MAX_CHECK_PATH_BYTES = 1_024, OverLimit::Status(400);
    /// Bytes of `json_schema` in `checks`, as compact JSON
    MAX_CHECK_SCHEMA_BYTES = 64 << 10, OverLimit::Status(400);
    /// Patterns in `json_schema` (`pattern`, and keys of `patternProperties`)
    MAX_SCHEMA_PATTERNS = 64, OverLimit::Status(400);
    /// Values of an entity, multiplied by the subschemas of `json_schema` that can apply to one value
    MAX_SCHEMA_EVALUATIONS = 10_000_000, OverLimit::Status(422);
    /// Bytes of a webhook secret
    MAX_WEBHOOK_SECRET_BYTES = 1_024, OverLimit::Status(400);
    /// Values in the JSON body of a management call, excluding entities; each array or object counts twice
    MAX_BODY_JSON_VALUES = 10_000, OverLimit::Status(400);
    /// Bytes that precede the opening brace of a pushed object with `entities`, both compressed and decompressed
    MAX_BYTES_BEFORE_BRACE = 64 << 10, OverLimit::Status(422);
    /// Bytes of a `/session/login` request body
    MAX_LOGIN_BODY_BYTES = 16 << 10, OverLimit::Status(413);
    /// Bytes of a password
    MAX_PASSWORD_BYTES = 1_024, OverLimit::Status(401);
    /// Bytes of an email address
    MAX_EMAIL_BYTES = 254, OverLimit::CommandError;
    /// Bytes of an API token name
    MAX_TOKEN_NAME_BYTES = 200, OverLimit::Status(400);
    /// API tokens per user
    MAX_USER_TOKENS = 100, OverLimit::Status(409);
    /// Seconds until an API token expires (100 years)
    MAX_TOKEN_LIFETIME_S = 3_153_600_000, OverLimit::Status(400);
    /// Sessions per user; if a login exceeds the limit, strata ends the least recently used session
    MAX_USER_SESSIONS = 100, OverLimit::Truncate;
    /// Bytes of a message to `/mcp`, excluding pushed and edited entities
    MAX_TOOL_MESSAGE_BYTES = 128 << 10, OverLimit::Status(413);
    /// Nesting levels of an entity in a message to `/mcp`
    MAX_TOOL_ENTITY_DEPTH = MAX_ENTITY_DEPTH - 4, OverLimit::Status(400);
    /// Datasets on a page of the tools `list_datasets` and `list_public_datasets`
    MAX_TOOL_DATASETS_PER_PAGE = 200, OverLimit::ToolError;
    /// Bytes of a tool result
    MAX_TOOL_RESULT_BYTES = 256 << 10, OverLimit::ToolError;
    /// Bytes of the entities that the tool `pull_for_edit` returns
    MAX_TOOL_PULLED_BYTES = 1 << 20, OverLimit::ToolError;
}
