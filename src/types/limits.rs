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
    /// The name of its constant.
    pub name: &'static str,
    /// What is limited.
    pub about: &'static str,
    /// The maximum.
    pub most: usize,
    /// The effect of more.
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
    /// The surplus is left out.
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
    /// Bytes of a query string as it is sent; of the parameters of a tool's read, together
    QUERY_BYTES = 32 << 10, Beyond::Status(414);
    /// Filters, listed paths and keywords of a read, together
    ITEMS = 1_000, Beyond::Status(400);
    /// Names in a path
    PATH_KEYS = 128, Beyond::Status(400);
    /// Bytes of names in `X-Unknown-Parameters`, and in `X-Unknown-Fields`
    UNKNOWN_HEADER_BYTES = 1_024, Beyond::LeftOut;
    /// Bytes of `Link`, `prev` left out before `next`
    LINK_BYTES = 2 << 10, Beyond::LeftOut;
    /// Levels that an entity nests, itself the first
    ENTITY_DEPTH = 128, Beyond::Status(422);
    /// Bytes of the names of a table's columns, together
    COLUMN_NAME_BYTES = 16 << 20, Beyond::Status(400);
    /// Datasets in a page of `/dataset/list`
    LISTED_DATASETS = 1_000, Beyond::LeftOut;
    /// Entries in a page of `/dataset/attempts` or `/webhook/deliveries`, and kept of each for a dataset
    HISTORY = 1_000, Beyond::LeftOut;
    /// Days of `/dataset/usage`, and for which it is kept
    USAGE_DAYS = 400, Beyond::LeftOut;
    /// Characters of a dataset's name
    DATASET_NAME_CHARACTERS = 200, Beyond::Status(400);
    /// Characters of a dataset's description
    DESCRIPTION_CHARACTERS = 4_000, Beyond::Status(400);
    /// Characters of a dataset's licence
    LICENCE_CHARACTERS = 1_000, Beyond::Status(400);
    /// Datasets in a page of `/datasets`
    LISTINGS = 1_000, Beyond::LeftOut;
    /// Characters of `q` of `/datasets`
    LISTINGS_QUERY_CHARACTERS = 200, Beyond::Status(400);
    /// Bytes of a form of the dashboard that signs in or out, and of the fields beside an uploaded file
    FORM_BYTES = 64 << 10, Beyond::Status(413);
    /// Bytes of a form of the dashboard for users
    USER_FORM_BYTES = 1 << 20, Beyond::Status(413);
    /// Bytes of a form of the dashboard's editor of entities
    EDITOR_FORM_BYTES = 6 * EDITOR_BYTES + (1 << 20), Beyond::Status(413);
    /// Bytes of the text in the dashboard's editor of entities
    EDITOR_BYTES = 3 * PAGE_BYTES, Beyond::Status(413);
    /// Positions that a form of the dashboard removes
    EDITOR_POSITIONS = 1_000, Beyond::Status(400);
    /// Modified entities that the dashboard's summary of a diff looks at
    SUMMARY_ENTITIES = 1_000, Beyond::LeftOut;
    /// Entities in a page of the dashboard
    PAGE_ENTITIES = 200, Beyond::LeftOut;
    /// Bytes of entities, as JSON, in a page of the dashboard
    PAGE_BYTES = 2 << 20, Beyond::LeftOut;
    /// Streams of a user, open at the same time, that tell how far a refresh is
    REFRESH_STREAMS = 4, Beyond::Status(429);
    /// Bytes of the URL of a source or a webhook
    URL_BYTES = 8 << 10, Beyond::Status(400);
    /// Bytes of `records_path`
    RECORDS_PATH_BYTES = 1_024, Beyond::Status(400);
    /// Bytes of `schedule`
    SCHEDULE_BYTES = 200, Beyond::Status(400);
    /// Paths in each list of `index`
    INDEX_PATHS = 64, Beyond::Status(400);
    /// Bytes of a path in `index`, with its escapes
    INDEX_PATH_BYTES = 1_024, Beyond::Status(400);
    /// Bytes of a webhook's secret
    WEBHOOK_SECRET_BYTES = 1_024, Beyond::Status(400);
    /// Values in a JSON body of a management call, entities not counted; each bracket and brace counts as one more
    BODY_VALUES = 10_000, Beyond::Status(400);
    /// Bytes of a pushed body, as it comes and unpacked, to the first bracket of an object with `entities`
    BRACKET_WITHIN_BYTES = 64 << 10, Beyond::Status(422);
    /// Bytes of a body of `/session/login`
    LOGIN_BODY_BYTES = 16 << 10, Beyond::Status(413);
    /// Bytes of a password
    PASSWORD_BYTES = 1_024, Beyond::Status(401);
    /// Bytes of an e-mail address
    EMAIL_BYTES = 254, Beyond::Command;
    /// Bytes of the name of an API token
    TOKEN_NAME_BYTES = 200, Beyond::Status(400);
    /// API tokens of a user
    TOKENS = 100, Beyond::Status(409);
    /// Seconds until an API token expires, 100 years
    TOKEN_LIFETIME_S = 3_153_600_000, Beyond::Status(400);
    /// Sessions of a user; at a log-in those not used the longest end
    SESSIONS = 100, Beyond::LeftOut;
    /// Bytes of a message to `/mcp`, entities that it pushes and edits not counted
    TOOL_MESSAGE_BYTES = 128 << 10, Beyond::Status(413);
    /// Levels that an entity nests in a message to `/mcp`
    TOOL_ENTITY_DEPTH = ENTITY_DEPTH - 4, Beyond::Status(400);
    /// Datasets in a page of the tools `list_datasets` and `list_public_datasets`
    TOOL_LISTED_DATASETS = 200, Beyond::ToolError;
    /// Bytes of what a tool gives
    TOOL_RESULT_BYTES = 256 << 10, Beyond::ToolError;
    /// Bytes of the entities that the tool `pull_for_edit` gives
    TOOL_PULL_BYTES = 1 << 20, Beyond::ToolError;
}
