//! The operations of owners: one table of them, the fields of their requests, the records of their answers.

use serde_json::{Map, Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        AllOfBuilder, ArrayBuilder, Components, ComponentsBuilder, Content, ContentBuilder, HttpMethod, ObjectBuilder,
        PathItem, Paths, PathsBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema, Type,
        path::{Operation as Described, OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
        request_body::{RequestBody, RequestBodyBuilder},
        schema::{AdditionalProperties, AnyOfBuilder, SchemaFormat, SchemaType},
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
        tag::TagBuilder,
    },
};

use super::{
    Section, diffs,
    headers::{self, EVERY, RATE},
    responses::{TEXT, with_errors},
};
use crate::{
    http::{
        management::{SESSION_COOKIE, explain, records},
        params::PARAMETERS,
    },
    model::{
        dataset::{DEFAULT_SCHEDULE, DatasetName},
        index::INDEX_PATHS,
        source::SourceFormat,
    },
    query::diff::ChangeType,
    service::Explanation,
};

/// The groups in which tools show the operations, in their order: name, what it is about.
const TAGS: [(&str, &str); 5] = [
    ("accounts", "Sessions and API tokens"),
    ("datasets", "Datasets of the caller, and clones of public ones"),
    ("versions", "How versions are made, which one is active, what they contain, what they differ in"),
    ("alternates", "Second entity lists of versions, saved by owners and by agents"),
    ("webhooks", "The POST that follows a new version"),
];

/// The tag of an operation, by its path.
fn tag_of(path: &str) -> &'static str {
    match path.trim_start_matches('/').split_once('/') {
        Some(("session" | "token", _)) => "accounts",
        Some(("agent", _)) => "alternates",
        Some(("webhook", _)) => "webhooks",
        Some(("ping", _)) => "versions",
        Some((_, rest)) if rest.starts_with("alternate/") => "alternates",
        Some((_, "create" | "update" | "list" | "view" | "rotate_key" | "clone")) => "datasets",
        _ => "versions",
    }
}

/// What an answer of 200 holds, by the name of its schema.
fn about_answer(schema: &str) -> &'static str {
    match schema {
        "UserAnswer" => "The user, with the plan.",
        "TokenAnswer" => "The token, which is not shown again.",
        "TokensAnswer" => "The names and times of the tokens, not the tokens themselves.",
        "DatasetAnswer" => "The dataset as it is now.",
        "DatasetsAnswer" => "A page of the datasets. The next one is that after the last `dataset_id`.",
        "DatasetViewAnswer" => "The dataset with its versions.",
        "ProfileAnswer" => "The profile of the version.",
        "VersionAnswer" => "The version as it is now.",
        "PullAnswer" => "The entities exactly as they are stored, and the etag, which is also the `ETag`.",
        "PushAnswer" => "The version, its alternate saved, and the etag for the next push.",
        "Explanation" => "The explanation, as JSON or as text.",
        "WebhookAnswer" => "The webhook without its secret, or that there is none.",
        diffs::DIFF_RESULT => {
            "How many entities were added, subtracted and modified in all, and a page of the records."
        }
        _ => "It is done.",
    }
}

/// Texts that are stored, as a pattern.
const NO_NUL: &str = r"^[^\u0000]*$";

/// The names of the schemes by which users authenticate.
const SESSION: &str = "session";
const API_TOKEN: &str = "apiToken";

/// A field of a body, or a parameter: its name, whether it must be there, what it is, an example.
struct Field(&'static str, Need, Kind, &'static str, fn() -> Value);

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Required,
    Optional,
}
use Need::{Optional, Required as Needed};

#[derive(Clone, Copy)]
enum Kind {
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
enum Asked {
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
enum By {
    Anybody,
    User,
    /// Anybody, who may see less than a user.
    Everybody,
}
use By::{Anybody, Everybody, User};

/// One operation. `answer` is the name of a schema.
struct Operation {
    path: &'static str,
    method: HttpMethod,
    id: &'static str,
    about: &'static str,
    by: By,
    asked: Asked,
    answer: &'static str,
    /// The statuses of its errors besides those that [`errors_of`] adds.
    errors: &'static [u16],
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
    "Paths that get a leaf in versions and alternates written from then on, and paths that get none, at most 64 together, \
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
const DIFF: &str = "diffVersions";

const OPERATIONS: &[Operation] = &[
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
        asked: Body(&[NAME, PRIVATE, SOURCE, FORMAT, RECORDS_PATH, SCHEDULE, INDEX]),
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
            SCHEDULE,
            INDEX,
        ]),
        answer: "DatasetAnswer",
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
        about: "What the paths of a version hold, and which have a leaf: of the caller's datasets, and of public ones",
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
            Field("version", Optional, Kind::Id, "The number of one of its versions; else the active one.", || {
                json!(1)
            }),
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
                "What the explanation is written as. When not given, `json` for who prefers application/json in `Accept`, \
                 and `text` for all others.",
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
            Field("v1", Needed, Kind::Id, "The number of the version that is compared.", || json!(1)),
            Field("v2", Needed, Kind::Id, "The number of the version that it is compared with.", || json!(2)),
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

/// An error of management: its status, its component, when it is given, an example of its text, its headers.
struct Error(u16, &'static str, &'static str, &'static str, &'static [&'static str]);

const ERRORS: &[Error] = &[
    Error(
        400,
        "InvalidRequest",
        "The body is not a JSON object, or a field or parameter is missing or cannot be used: the text names it.",
        "Invalid request: dataset_id: it is missing; valid: a positive integer.",
        &["Cache-Control"],
    ),
    Error(
        401,
        "NotAuthenticated",
        "There is neither a session that lasts nor a valid API token; or, at the log-in, no user with this email and \
         password.",
        "There is no user with this email and password.",
        &["Cache-Control", "WWW-Authenticate"],
    ),
    Error(
        403,
        "NotAllowed",
        "The caller's plan does not include it; or the call has a cookie and comes from a page of another origin.",
        "Your plan allows at most 3 active datasets; frozen ones do not count.",
        &["Cache-Control"],
    ),
    Error(
        404,
        "NotTheCallers",
        "There is no such dataset that the caller may use, or no such token; or the dataset has no such version, alternate or \
         webhook.",
        "You have no dataset with this dataset_id.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(408, "TooSlow", "The body did not come in time.", "The body did not come within 60 s.", &["Cache-Control"]),
    Error(
        409,
        "Conflict",
        "What is there does not allow it: a name is taken, the dataset is frozen, or not, or being refreshed; an etag is \
         stale.",
        "You have another dataset of this name.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(413, "TooLarge", "The body is too large.", "The body is longer than 2097152 bytes.", &["Cache-Control"]),
    Error(
        415,
        "UnsupportedMediaType",
        "`Content-Type` does not say that the body is JSON, or of a source format where one is taken.",
        "The body must be JSON, uncompressed: send it with Content-Type: application/json.",
        &["Cache-Control"],
    ),
    Error(
        422,
        "UnusableEntities",
        "The document cannot be used: the text names the place.",
        "No version was made: item 3: it is not an object.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(
        429,
        "TooManyTries",
        "Too many log-ins, pings, or calls without credentials.",
        "Too many log-ins; the next one is tried in 42 s.",
        &["Cache-Control", "Referrer-Policy", "Retry-After"],
    ),
    Error(
        500,
        "Failure",
        "The service failed. The cause is in its log.",
        "The service could not do this. The failure was logged.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(
        502,
        "SourceUnreachable",
        "The source cannot be fetched.",
        "No version was made: the source cannot be fetched: it answered 404 Not Found.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(
        503,
        "TooBusy",
        "The service has too much to do, or is about to stop; or a comparison or an explained read took too long, or needed \
         more memory than it may.",
        "Too many log-ins are being checked. Try again in a moment.",
        &["Cache-Control", "Referrer-Policy", "Retry-After"],
    ),
];

pub(super) fn section() -> Section {
    Section {
        tags: TAGS.map(|(name, about)| TagBuilder::new().name(name).description(Some(about)).build()).to_vec(),
        paths: paths(),
        components: components(),
    }
}

fn paths() -> Paths {
    OPERATIONS
        .iter()
        .fold(PathsBuilder::new(), |paths, operation| {
            paths.path(operation.path, PathItem::new(operation.method.clone(), described(operation)))
        })
        .build()
}

fn described(operation: &Operation) -> Described {
    let mut described = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .tag(tag_of(operation.path))
        .summary(Some(operation.about));
    if operation.by != Anybody {
        for scheme in [SESSION, API_TOKEN] {
            described = described.security(SecurityRequirement::new(scheme, Vec::<String>::new()));
        }
    }
    if operation.by == Everybody {
        described = described.security(SecurityRequirement::default());
    }
    described = match &operation.asked {
        Nothing => described,
        Query(fields) => query(described, fields),
        Read(fields) => PARAMETERS.iter().fold(query(described, fields), |described, parameter| {
            described.parameter_ref(Ref::new(format!("#/components/parameters/{}", parameter.name())))
        }),
        Body(fields) => described.request_body(Some(body(fields, false))),
        BodyOrDocument(fields, parameters) => query(described, parameters).request_body(Some(body(fields, true))),
        Token => described.parameter(
            ParameterBuilder::new()
                .name("token")
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some("The token of the ping URL."))
                .schema(Some(ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).build()))
                .example(Some(json!("ping_0123456789abcdef")))
                .build(),
        ),
    };
    let answer = ContentBuilder::new().schema(Some(Ref::from_schema_name(operation.answer))).build();
    let mut answer =
        ResponseBuilder::new().description(about_answer(operation.answer)).content("application/json", answer);
    if matches!(operation.asked, Read(_)) {
        let text = ContentBuilder::new().schema(Some(ObjectBuilder::new().schema_type(Type::String).build())).build();
        answer = answer.content(TEXT, text);
    }
    answer = headers::with(answer, &[EVERY, &["Cache-Control"]]);
    if matches!(operation.id, "logIn" | "logOut") {
        answer = headers::with(answer, &[&["Set-Cookie"]]);
    }
    if operation.id == "pullForEdit" {
        answer = headers::with(answer, &[&["ETag"]]);
    }
    if operation.id == DIFF {
        answer =
            headers::with(answer.content("application/x-ndjson", diffs::lines()), &[&["Vary", "Content-Encoding"]]);
    }
    if matches!(operation.asked, Token) {
        answer = headers::with(answer, &[RATE, &["Referrer-Policy"]]);
    }
    if operation.by == Everybody {
        answer = headers::with(answer, &[RATE]);
    }
    let errors = errors_of(operation);
    let mut shared = vec![405];
    if operation.by == Everybody {
        shared.push(410);
    }
    if matches!(operation.asked, Read(_)) {
        shared.push(414);
    }
    let described = with_errors(described.response("200", answer), &shared);
    ERRORS
        .iter()
        .filter(|error| errors.contains(&error.0))
        .fold(described, |described, Error(status, name, ..)| {
            described.response(status.to_string(), Ref::from_response_name(*name))
        })
        .build()
}

/// The statuses of an operation's errors, but 405 and 414.
fn errors_of(operation: &Operation) -> Vec<u16> {
    let mut errors = [operation.errors, &[500]].concat();
    if operation.by != Anybody {
        errors.extend([401, 403]);
    }
    match operation.asked {
        Nothing => {}
        Query(_) | Read(_) => errors.push(400),
        Token => errors.extend([400, 413]),
        Body(_) | BodyOrDocument(..) => errors.extend([400, 408, 413, 415]),
    }
    errors
}

fn query(operation: OperationBuilder, fields: &[Field]) -> OperationBuilder {
    fields.iter().fold(operation, |operation, Field(name, need, kind, about, example)| {
        let parameter: Parameter = ParameterBuilder::new()
            .name(*name)
            .parameter_in(ParameterIn::Query)
            .required(if *need == Needed { Required::True } else { Required::False })
            .description(Some(*about))
            .schema(Some(schema(*kind, None)))
            .example(Some(example()))
            .build();
        operation.parameter(parameter)
    })
}

fn body(fields: &[Field], or_document: bool) -> RequestBody {
    let mut object = ObjectBuilder::new().schema_type(Type::Object);
    let mut shown = Map::new();
    for Field(name, need, kind, about, example) in fields {
        object = object.property(*name, schema(*kind, Some(about)));
        if *need == Needed {
            object = object.required(*name);
        }
        shown.insert((*name).to_owned(), example());
    }
    let json = ContentBuilder::new().schema(Some(object.build())).example(Some(Value::Object(shown))).build();
    let body = RequestBodyBuilder::new().content("application/json", json);
    match or_document {
        false => body.required(Some(Required::True)).build(),
        true => {
            let documents =
                ["application/x-ndjson", "text/csv", "text/tab-separated-values", "application/octet-stream"];
            let body = body.required(Some(Required::False));
            documents.into_iter().fold(body, |body, media_type| body.content(media_type, Content::default())).build()
        }
    }
}

fn schema(kind: Kind, about: Option<&str>) -> RefOr<Schema> {
    let object = || ObjectBuilder::new().description(about);
    let text = || object().schema_type(Type::String);
    let nullable = || object().schema_type(SchemaType::from_iter([Type::String, Type::Null]));
    let format = |format: &str| Some(SchemaFormat::Custom(format.to_owned()));
    let schema = match kind {
        Kind::Id => object().schema_type(Type::Integer).minimum(Some(1_usize)).maximum(Some(i64::MAX)),
        Kind::Positive => object().schema_type(Type::Integer).minimum(Some(1_usize)),
        Kind::Text => text().min_length(Some(1)).pattern(Some(NO_NUL)),
        Kind::Name => text().max_length(Some(DatasetName::MAX_CHARACTERS)).format(format("dataset-name")),
        Kind::Url => text().format(format("uri")),
        Kind::Source => {
            let push = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["push"]));
            let url = ObjectBuilder::new().schema_type(Type::String).format(format("uri"));
            return Schema::AnyOf(AnyOfBuilder::new().item(push).item(url).description(about).build()).into();
        }
        Kind::Format => text().enum_values(Some(SourceFormat::ALL.map(SourceFormat::name))),
        Kind::NullableFormat => {
            let names = SourceFormat::ALL.map(|format| Value::from(format.name()));
            nullable().enum_values(Some(names.into_iter().chain([Value::Null])))
        }
        Kind::NullablePath => nullable().format(format("field-path")),
        Kind::NullableSchedule => nullable().format(format("cron")),
        Kind::Boolean => object().schema_type(Type::Boolean),
        Kind::Version => text().pattern(Some("^(active|latest|v?(0|[1-9][0-9]*))$")),
        Kind::Index => {
            let path =
                || ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).format(format("field-path"));
            let paths = || ArrayBuilder::new().items(path()).max_items(Some(INDEX_PATHS));
            object()
                .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
                .property("always", paths())
                .property("never", paths())
                .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        }
        Kind::Form => text().enum_values(Some(["text", "json"])),
        Kind::Count => object().schema_type(Type::Integer).minimum(Some(0_usize)),
        Kind::ChangeType => text().enum_values(Some(ChangeType::ALL.map(ChangeType::name))),
        Kind::DiffFormat => text().enum_values(Some(["json", "jsonl"])),
        Kind::Entities => {
            return ArrayBuilder::new().items(Ref::from_schema_name("Entity")).description(about).build().into();
        }
    };
    schema.build().into()
}

fn components() -> Components {
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API token of the user: `POST /token/create`, or `strata user add --token`."))
        .build();
    let cookie = ApiKeyValue::with_description(SESSION_COOKIE, "The cookie that `POST /session/login` sets.");
    let mut components = ComponentsBuilder::new()
        .security_scheme(SESSION, SecurityScheme::ApiKey(ApiKey::Cookie(cookie)))
        .security_scheme(API_TOKEN, SecurityScheme::Http(token))
        .responses_from_iter(ERRORS.iter().map(error));
    for (name, schema) in record_schemas() {
        components = components.schema(name, schema);
    }
    for (name, schema) in diffs::schemas() {
        components = components.schema(name, schema);
    }
    components.build()
}

/// Every record, under its name.
fn record_schemas() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = Vec::new();
    add::<records::Done>(&mut schemas);
    add::<records::UserAnswer>(&mut schemas);
    add::<records::TokenAnswer>(&mut schemas);
    add::<records::TokensAnswer>(&mut schemas);
    add::<records::DatasetAnswer>(&mut schemas);
    add::<records::DatasetsAnswer>(&mut schemas);
    add::<records::DatasetViewAnswer>(&mut schemas);
    add::<records::VersionAnswer>(&mut schemas);
    schemas.push(("PullAnswer".to_owned(), pull_answer()));
    add::<records::PushAnswer>(&mut schemas);
    add::<records::ProfileAnswer>(&mut schemas);
    add::<records::WebhookAnswer>(&mut schemas);
    add::<Explanation>(&mut schemas);
    schemas
}

/// The record of a pull with the entities after it.
fn pull_answer() -> RefOr<Schema> {
    let entities = schema(Kind::Entities, Some("The entities, exactly as they are stored."));
    let entities = ObjectBuilder::new().schema_type(Type::Object).property("entities", entities).required("entities");
    RefOr::T(Schema::AllOf(AllOfBuilder::new().item(records::PulledRecord::schema()).item(entities).build()))
}

fn add<T: ToSchema + PartialSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

fn error(error: &Error) -> (&'static str, Response) {
    let Error(_, name, description, example, more) = error;
    let text = ContentBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).build()))
        .example(Some((*example).into()))
        .build();
    let response = ResponseBuilder::new().description(*description).content(TEXT, text);
    (*name, headers::with(response, &[EVERY, RATE, more]).build())
}
