//! The operations of owners.
//!
//! | Module | Holds |
//! |---|---|
//! | `operations` | the one table of operations, and what each is asked with |
//! | `errors` | the one table of errors |
//! | `schemas` | the schemas of fields, bodies and records |

mod errors;
mod operations;
mod schemas;

use serde_json::json;
use utoipa::openapi::path::{Operation as Described, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, ComponentsBuilder, ContentBuilder, HttpMethod, ObjectBuilder, PathItem, Paths, PathsBuilder, Ref,
    Required, ResponseBuilder, Type,
};

use self::errors::{ERRORS, error};
use self::operations::Asked::{Body, BodyOrDocument, Nothing, Query, Read, Token};
use self::operations::By::{Anybody, Everybody};
use self::operations::{DIFF, Field, Need, OPERATIONS, Operation};
use self::schemas::{body, record_schemas, schema};
use super::headers::{self, CORS, EVERY, RATE};
use super::responses::{TEXT, with_errors};
use super::{Section, diffs};
use crate::http::management::SESSION_COOKIE;
use crate::http::params::PARAMETERS;

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
        Some((_, "create" | "update" | "delete" | "list" | "view" | "rotate_key" | "clone")) => "datasets",
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

/// The names of the schemes by which users authenticate.
const SESSION: &str = "session";
const API_TOKEN: &str = "apiToken";

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
            described.parameter_ref(Ref::new(format!("#/components/parameters/{}", parameter.name)))
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
        answer = headers::with(answer, &[RATE, CORS]);
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
        .filter(|error| errors.contains(&error.status()))
        .fold(described, |described, error| {
            described.response(error.status().to_string(), Ref::from_response_name(error.name()))
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
        Nothing if operation.method == HttpMethod::Get => errors.push(400),
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
            .required(if *need == Need::Required { Required::True } else { Required::False })
            .description(Some(*about))
            .schema(Some(schema(*kind, None)))
            .example(Some(example()))
            .build();
        operation.parameter(parameter)
    })
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
