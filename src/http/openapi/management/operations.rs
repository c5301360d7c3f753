//! The one table of operations, and what each is asked with.

use serde_json::{Value, json};
use utoipa::openapi::HttpMethod;

use crate::http::management::explain;
use crate::http::openapi::diffs;
use crate::model::dataset::DEFAULT_SCHEDULE;

/// A field of a body, or a parameter: its name, whether it must be there, what it is, an example.
pub(super) struct Field(
    pub(super) &'static str,
    pub(super) Need,
    pub(super) Kind,
    pub(super) &'static str,
    pub(super) fn() -> Value,
);

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Need {
    Required,
    Optional,
}
use Need::{Optional, Required as Needed};

#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// The number of something that is recorded.
    Id,
    /// Any positive integer.
    Positive,
    Text,
    /// The name of a dataset.
    Name,
    Url,
    /// `push` or a URL.
    Source,
    /// In the query.
    Format,
    /// As a member, where null detects it.
    NullableFormat,
    /// A path into entities, or null.
    NullablePath,
    /// A cron expression, or null.
    NullableSchedule,
    Boolean,
    Entities,
    /// `active`, `latest`, or a number.
    Version,
    /// The same in a body, where a number may be a JSON number.
    VersionOrNumber,
    /// An object of two lists of paths, or null.
    Index,
    Form,
    /// A whole number, 0 too.
    Count,
    ChangeType,
    /// `json` or `jsonl`.
    DiffFormat,
}

/// What an operation is asked with.
pub(super) enum Asked {
    Nothing,
    Query(&'static [Field]),
    /// A query with these parameters, and those of a read.
    Read(&'static [Field]),
    Body(&'static [Field]),
    /// A body, or a document of a source format with these parameters.
    BodyOrDocument(&'static [Field], &'static [Field]),
    /// The token in the path.
    Token,
}
use Asked::{Body, BodyOrDocument, Nothing, Query, Read, Token};

/// Who may ask.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum By {
    Anybody,
    User,
    /// Anybody, who may see less than a user.
    Everybody,
}
use By::{Anybody, Everybody, User};

/// One operation. `answer` is the name of a schema.
pub(super) struct Operation {
    pub(super) path: &'static str,
    pub(super) method: HttpMethod,
    pub(super) id: &'static str,
    pub(super) about: &'static str,
    pub(super) by: By,
    pub(super) asked: Asked,
    pub(super) answer: &'static str,
    /// The statuses of its errors besides those that [`errors_of`] adds.
    pub(super) errors: &'static [u16],
}

const DATASET_ID: Field = Field("dataset_id", Needed, Kind::Id, "One of the caller's datasets.", || json!(1));
const NAME: Field =
    Field("name", Needed, Kind::Name, "Its name, unique among the caller's, with a letter or digit in it.", || {
        json!("World Countries")
    });
const TOKEN_NAME: Field =
    Field("name", Needed, Kind::Text, "The token's name, unique among the caller's.", || json!("ci"));
const PRIVATE: Field =
    Field("private", Optional, Kind::Boolean, "Whether reading it needs a key; false for a new one.", || json!(true));
const SOURCE: Field = Field(
    "source",
    Optional,
    Kind::Source,
    "Where its entities come from: an http, https, s3 or store URL, or `push`, as for a new one.",
    || json!("https://example.org/countries.json"),
);
const FORMAT: Field = Field(
    "format",
    Optional,
    Kind::NullableFormat,
    "The format of the source; null, as for a new one, detects it.",
    || json!("json"),
);
const RECORDS_PATH: Field = Field(
    "records_path",
    Optional,
    Kind::NullablePath,
    "The path to the array of entities within a JSON source; null, as for a new one, is the document itself.",
    || json!("data.items"),
);
const PUBLISH_QUERY: Field = Field(
    "publish_query",
    Optional,
    Kind::Boolean,
    "Whether the `_source` of entities of versions made from then on keeps the query of the source's URL, where keys often \
     stand; false for a new one.",
    || json!(false),
);
const SCHEDULE: Field = Field(
    "schedule",
    Optional,
    Kind::NullableSchedule,
    "When it is refreshed: a cron expression of five fields in UTC, nightly for a new one; null is never.",
    || json!(DEFAULT_SCHEDULE),
);
const INDEX: Field = Field(
    "index",
    Optional,
    Kind::Index,
    "Paths that get a shredded column in versions and alternates written from then on, and paths that get none, at most 64 together, \
     none in both; replaced as a whole, null or `{}` clears it. All others are decided by the profile of each version.",
    || json!({ "always": ["name"], "never": ["notes"] }),
);
const VERSION: Field = Field("version", Needed, Kind::Id, "The number of one of its versions.", || json!(1));
const ENTITIES: Field = Field(
    "entities",
    Needed,
    Kind::Entities,
    "The entities, in their order.",
    || json!([{ "name": "Aruba", "area": 180 }]),
);

/// The operation whose answer has two formats.
pub(super) const DIFF: &str = "diffVersions";

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/session/login",
        method: HttpMethod::Post,
        id: "logIn",
        about: "Begins a session, whose id is in the cookie `strata_session`",
        by: Anybody,
        asked: Body(&[
            Field("email", Needed, Kind::Text, "The e-mail address.", || json!("ada@example.org")),
            Field("password", Needed, Kind::Text, "The password.", || json!("a password")),
        ]),
        answer: "UserAnswer",
        errors: &[401, 403, 429, 503],
    },
    Operation {
        path: "/session/logout",
        method: HttpMethod::Post,
        id: "logOut",
        about: "Ends the session",
        by: User,
        asked: Nothing,
        answer: "Done",
        errors: &[],
    },
    Operation {
        path: "/session/me",
        method: HttpMethod::Get,
        id: "getUser",
        about: "The caller",
        by: User,
        asked: Nothing,
        answer: "UserAnswer",
        errors: &[],
    },
    Operation {
        path: "/token/create",
        method: HttpMethod::Post,
        id: "createToken",
        about: "Makes an API token, which is shown this once",
        by: User,
        asked: Body(&[TOKEN_NAME]),
        answer: "TokenAnswer",
        errors: &[409],
    },
    Operation {
        path: "/token/delete",
        method: HttpMethod::Delete,
        id: "deleteToken",
        about: "Deletes an API token, which opens nothing from then on",
        by: User,
        asked: Body(&[TOKEN_NAME]),
        answer: "Done",
        errors: &[404],
    },
    Operation {
        path: "/token/list",
        method: HttpMethod::Get,
        id: "listTokens",
        about: "The caller's API tokens, by name",
        by: User,
        asked: Nothing,
        answer: "TokensAnswer",
        errors: &[],
    },
    Operation {
        path: "/dataset/create",
        method: HttpMethod::Post,
        id: "createDataset",
        about: "Creates a dataset, without a version yet",
        by: User,
        asked: Body(&[NAME, PRIVATE, SOURCE, FORMAT, RECORDS_PATH, PUBLISH_QUERY, SCHEDULE, INDEX]),
        answer: "DatasetAnswer",
        errors: &[409],
    },
    Operation {
        path: "/dataset/update",
        method: HttpMethod::Post,
        id: "updateDataset",
        about: "Changes what is given of a dataset, and nothing else",
        by: User,
        asked: Body(&[
            DATASET_ID,
            Field("name", Optional, Kind::Name, "Its name, and with it the slug.", || json!("World Countries")),
            PRIVATE,
            SOURCE,
            FORMAT,
            RECORDS_PATH,
            PUBLISH_QUERY,
            SCHEDULE,
            INDEX,
        ]),
        answer: "DatasetAnswer",
        errors: &[404, 409],
    },
    Operation {
        path: "/dataset/delete",
        method: HttpMethod::Delete,
        id: "deleteDataset",
        about: "Deletes a dataset that has no versions; versions are permanent",
        by: User,
        asked: Body(&[DATASET_ID]),
        answer: "Done",
        errors: &[404, 409],
    },
    Operation {
        path: "/dataset/list",
        method: HttpMethod::Get,
        id: "listDatasets",
        about: "The caller's datasets, by id",
        by: User,
        asked: Query(&[
            Field("after", Optional, Kind::Positive, "Only those with a greater `dataset_id`.", || json!(1)),
            Field("limit", Optional, Kind::Positive, "At most so many; 1,000 at most in any case.", || json!(100)),
        ]),
        answer: "DatasetsAnswer",
        errors: &[],
    },
    Operation {
        path: "/dataset/view",
        method: HttpMethod::Get,
        id: "viewDataset",
        about: "A dataset with its versions, newest first",
        by: User,
        asked: Query(&[DATASET_ID]),
        answer: "DatasetViewAnswer",
        errors: &[404],
    },
    Operation {
        path: "/dataset/profile",
        method: HttpMethod::Get,
        id: "profileVersion",
        about: "What the paths of a version hold, and which are stored as shredded columns: of the caller's datasets, and of public ones",
        by: Everybody,
        asked: Query(&[
            Field("dataset_id", Needed, Kind::Id, "One of the caller's datasets, or a public one.", || json!(1)),
            Field(
                "version",
                Optional,
                Kind::Version,
                "`active` (the default), `latest`, or the number of a version, with or without a `v`.",
                || json!("latest"),
            ),
            Field("alt", Optional, Kind::Boolean, "Whether the alternate of the version is meant.", || json!(false)),
        ]),
        answer: "ProfileAnswer",
        errors: &[404, 429],
    },
    Operation {
        path: "/dataset/rotate_key",
        method: HttpMethod::Post,
        id: "rotateKey",
        about: "Replaces the key of a private dataset",
        by: User,
        asked: Body(&[DATASET_ID]),
        answer: "DatasetAnswer",
        errors: &[404, 409],
    },
    Operation {
        path: "/dataset/refresh",
        method: HttpMethod::Post,
        id: "refreshDataset",
        about: "Makes a version: fetches the source, or takes the entities of a `push` dataset",
        by: User,
        asked: BodyOrDocument(
            &[DATASET_ID, Field("entities", Optional, Kind::Entities, "For `push`: the entities.", ENTITIES.4)],
            &[
                Field("dataset_id", Optional, Kind::Id, "The dataset, when the body does not name it.", || json!(1)),
                Field(
                    "format",
                    Optional,
                    Kind::Format,
                    "The format of a document that is pushed; detected when not given.",
                    || json!("jsonl"),
                ),
            ],
        ),
        answer: "VersionAnswer",
        errors: &[404, 409, 422, 502, 503],
    },
    Operation {
        path: "/dataset/rollback",
        method: HttpMethod::Post,
        id: "rollBack",
        about: "Makes a version the active one for good; with `freeze` also freezes the dataset there",
        by: User,
        asked: Body(&[
            DATASET_ID,
            Field("version_number", Needed, Kind::Id, "The number of one of its versions.", || json!(1)),
            Field("freeze", Optional, Kind::Boolean, "Whether to freeze the dataset.", || json!(false)),
        ]),
        answer: "DatasetAnswer",
        errors: &[404],
    },
    Operation {
        path: "/dataset/unpin",
        method: HttpMethod::Post,
        id: "unpin",
        about: "Lets the active version follow the newest one again",
        by: User,
        asked: Body(&[DATASET_ID]),
        answer: "DatasetAnswer",
        errors: &[404],
    },
    Operation {
        path: "/dataset/unfreeze",
        method: HttpMethod::Post,
        id: "unfreeze",
        about: "Lets a frozen dataset be refreshed and read again; a pin stays",
        by: User,
        asked: Body(&[DATASET_ID]),
        answer: "DatasetAnswer",
        errors: &[404, 409],
    },
    Operation {
        path: "/dataset/alternate/save",
        method: HttpMethod::Post,
        id: "saveAlternate",
        about: "Saves the alternate of a version, in place of the one that is there",
        by: User,
        asked: Body(&[DATASET_ID, VERSION, ENTITIES]),
        answer: "VersionAnswer",
        errors: &[404, 409, 422, 503],
    },
    Operation {
        path: "/dataset/alternate/delete",
        method: HttpMethod::Delete,
        id: "deleteAlternate",
        about: "Deletes the alternate of a version",
        by: User,
        asked: Body(&[DATASET_ID, VERSION]),
        answer: "VersionAnswer",
        errors: &[404],
    },
    Operation {
        path: "/agent/pull_for_edit",
        method: HttpMethod::Post,
        id: "pullForEdit",
        about: "The entities of a version for an editor, with the etag that the push takes",
        by: User,
        asked: Body(&[
            DATASET_ID,
            Field("version", Optional, Kind::VersionOrNumber, "One of its versions; else the active one.", || json!(1)),
            Field("alt", Optional, Kind::Boolean, "Whether to pull the version's alternate.", || json!(false)),
        ]),
        answer: "PullAnswer",
        errors: &[404, 503],
    },
    Operation {
        path: "/agent/push_alt_version",
        method: HttpMethod::Post,
        id: "pushAltVersion",
        about: "Saves the alternate of a version, unless one was saved or deleted since the entities were pulled",
        by: User,
        asked: Body(&[
            DATASET_ID,
            VERSION,
            Field("etag", Needed, Kind::Text, "What the pull gave.", || json!("\"00112233445566778899aabbccddeeff\"")),
            ENTITIES,
        ]),
        answer: "PushAnswer",
        errors: &[404, 409, 422, 503],
    },
    Operation {
        path: "/dataset/clone",
        method: HttpMethod::Post,
        id: "cloneDataset",
        about: "A new dataset whose first version is the latest of a public dataset, or of one of the caller's",
        by: User,
        asked: Body(&[Field("dataset_id", Needed, Kind::Id, "What is cloned.", || json!(1)), NAME]),
        answer: "DatasetAnswer",
        errors: &[404, 409],
    },
    Operation {
        path: "/dataset/explain",
        method: HttpMethod::Get,
        id: "explainRead",
        about: "What a read of a dataset does, frozen or not: it is made with these parameters, counted and discarded",
        by: User,
        asked: Read(&[
            DATASET_ID,
            Field(
                explain::VERSION,
                Optional,
                Kind::Version,
                "The version: `active`, unless another one is named, `latest`, or a number, with `v` before it or not.",
                || json!("v1"),
            ),
            Field(
                explain::EXPLAIN,
                Optional,
                Kind::Form,
                "What the explanation is written as. When not given, `text` for who prefers text/plain in `Accept`, and \
                 `json` for all others.",
                || json!("json"),
            ),
        ]),
        answer: "Explanation",
        errors: &[404, 503],
    },
    Operation {
        path: "/dataset/diff",
        method: HttpMethod::Get,
        id: DIFF,
        about: "What two versions differ in; a page of the records with `change_type`, `offset` and `limit`",
        by: User,
        asked: Query(&[
            DATASET_ID,
            Field("v1", Needed, Kind::Version, "The version that is compared.", || json!("1")),
            Field("v2", Needed, Kind::Version, "The version that it is compared with.", || json!("2")),
            Field("change_type", Optional, Kind::ChangeType, "Only records of this type.", || json!("modified")),
            Field("offset", Optional, Kind::Count, "Skips the first so many records.", || json!(0)),
            Field("limit", Optional, Kind::Count, "At most so many records.", || json!(100)),
            Field("format", Optional, Kind::DiffFormat, "`jsonl` is the records alone, one per line.", || {
                json!("json")
            }),
        ]),
        answer: diffs::DIFF_RESULT,
        errors: &[404, 503],
    },
    Operation {
        path: "/webhook/register",
        method: HttpMethod::Post,
        id: "registerWebhook",
        about: "Registers the webhook of a dataset, in place of the one that is there; not on the plan free",
        by: User,
        asked: Body(&[
            DATASET_ID,
            Field("url", Needed, Kind::Url, "The receiver, http or https.", || json!("https://example.org/hook")),
            Field("secret", Optional, Kind::Text, "Signs the payload; never shown.", || json!("a secret")),
        ]),
        answer: "Done",
        errors: &[404],
    },
    Operation {
        path: "/webhook/delete",
        method: HttpMethod::Delete,
        id: "deleteWebhook",
        about: "Deletes the webhook of a dataset",
        by: User,
        asked: Body(&[DATASET_ID]),
        answer: "Done",
        errors: &[404],
    },
    Operation {
        path: "/webhook/view",
        method: HttpMethod::Get,
        id: "viewWebhook",
        about: "The webhook of a dataset, if there is one",
        by: User,
        asked: Query(&[DATASET_ID]),
        answer: "WebhookAnswer",
        errors: &[404],
    },
    Operation {
        path: "/ping/{token}",
        method: HttpMethod::Get,
        id: "ping",
        about: "Refreshes the dataset whose ping URL this is",
        by: Anybody,
        asked: Token,
        answer: "VersionAnswer",
        errors: &[404, 409, 422, 429, 502, 503],
    },
    Operation {
        path: "/ping/{token}",
        method: HttpMethod::Post,
        id: "pingByPost",
        about: "Refreshes the dataset whose ping URL this is",
        by: Anybody,
        asked: Token,
        answer: "VersionAnswer",
        errors: &[404, 409, 422, 429, 502, 503],
    },
];
