//! The endpoints of owners, each as its `Endpoint` says.
//!
//! | Module | Holds |
//! |---|---|
//! | `errors` | the one table of errors |
//! | `schemas` | the schemas of fields and bodies |

mod errors;
mod schemas;

use serde_json::json;
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{
    Components, ComponentsBuilder, ContentBuilder, HttpMethod, ObjectBuilder, PathItem, Paths, PathsBuilder, Ref,
    Required, ResponseBuilder, Type,
};

use self::errors::ERRORS;
use self::schemas::{body, schema};
use super::Section;
use super::headers::{self, CORS, EVERY, RATE};
use super::responses::with_errors;
use crate::http::endpoint::{Callers, Endpoint, Field, Group, Input, Need};
use crate::http::management::{SESSION_COOKIE, endpoints};
use crate::http::params::PARAMETERS;

/// The names of the schemes by which users authenticate.
const SESSION: &str = "session";
const API_TOKEN: &str = "apiToken";

pub(super) fn section() -> Section {
    Section { tags: Group::ALL.map(tag).to_vec(), paths: paths(), components: components() }
}

fn tag(group: Group) -> Tag {
    let (name, about) = group.described();
    TagBuilder::new().name(name).description(Some(about)).build()
}

fn paths() -> Paths {
    let operations = endpoints().flat_map(|endpoint| {
        endpoint
            .operations
            .iter()
            .map(move |(method, id)| (endpoint.path, PathItem::new(method.clone(), described(endpoint, method, id))))
    });
    operations.fold(PathsBuilder::new(), |paths, (path, item)| paths.path(path, item)).build()
}

fn described(endpoint: &Endpoint, method: &HttpMethod, id: &str) -> Operation {
    let mut described = OperationBuilder::new()
        .operation_id(Some(id))
        .tag(endpoint.group.described().0)
        .summary(Some(endpoint.summary));
    if endpoint.callers != Callers::Anybody {
        for scheme in [SESSION, API_TOKEN] {
            described = described.security(SecurityRequirement::new(scheme, Vec::<String>::new()));
        }
    }
    if endpoint.callers == Callers::UsersAndAnybody {
        described = described.security(SecurityRequirement::default());
    }
    described = endpoint.parameters().iter().fold(described, |described, field| described.parameter(parameter(field)));
    described = match endpoint.input {
        Input::Nothing | Input::Query(_) => described,
        Input::Read(_) => PARAMETERS.iter().fold(described, |described, parameter| {
            described.parameter_ref(Ref::new(format!("#/components/parameters/{}", parameter.name)))
        }),
        Input::Body(fields) => described.request_body(Some(body(fields, false))),
        Input::BodyOrDocument { body: fields, .. } => described.request_body(Some(body(fields, true))),
        Input::Token => described.parameter(token()),
    };
    let mut shared = vec![405];
    if endpoint.callers == Callers::UsersAndAnybody {
        shared.push(410);
    }
    if matches!(endpoint.input, Input::Read(_)) {
        shared.push(414);
    }
    let described = with_errors(described.response("200", answer(endpoint)), &shared);
    let errors = errors_of(endpoint, method);
    ERRORS
        .iter()
        .filter(|error| errors.contains(&error.status))
        .fold(described, |described, error| {
            described.response(error.status.to_string(), Ref::from_response_name(error.component))
        })
        .build()
}

/// What is answered with 200.
fn answer(endpoint: &Endpoint) -> ResponseBuilder {
    let described = &endpoint.answer;
    let schemas = (described.schemas)();
    let schema = schemas.first().map(|(name, _)| Ref::from_schema_name(name.as_str()));
    let json = ContentBuilder::new().schema(schema).build();
    let answer = ResponseBuilder::new().description(described.about).content("application/json", json);
    let answer = described.media.iter().fold(answer, |answer, (media, content)| answer.content(*media, content()));
    let mut answer = headers::with(answer, &[EVERY, &["Cache-Control"], described.headers]);
    if matches!(endpoint.input, Input::Token) {
        answer = headers::with(answer, &[RATE, &["Referrer-Policy"]]);
    }
    if endpoint.callers == Callers::UsersAndAnybody {
        answer = headers::with(answer, &[RATE, CORS]);
    }
    answer
}

/// The statuses of an endpoint's errors, but 405, 410 and 414.
fn errors_of(endpoint: &Endpoint, method: &HttpMethod) -> Vec<u16> {
    let mut errors = [endpoint.errors, &[500]].concat();
    if endpoint.callers != Callers::Anybody {
        errors.extend([401, 403]);
    }
    match endpoint.input {
        Input::Nothing if *method == HttpMethod::Get => errors.push(400),
        Input::Nothing => {}
        Input::Query(_) | Input::Read(_) => errors.push(400),
        Input::Token => errors.extend([400, 413]),
        Input::Body(_) | Input::BodyOrDocument { .. } => errors.extend([400, 408, 413, 415]),
    }
    errors
}

/// A field of a query.
fn parameter(field: &Field) -> Parameter {
    ParameterBuilder::new()
        .name(field.name)
        .parameter_in(ParameterIn::Query)
        .required(if field.need == Need::Required { Required::True } else { Required::False })
        .description(Some(field.about))
        .schema(Some(schema(field.kind, None)))
        .example(Some((field.example)()))
        .build()
}

/// The token in the path of a ping.
fn token() -> Parameter {
    ParameterBuilder::new()
        .name("token")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("The token of the ping URL."))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).build()))
        .example(Some(json!("ping_0123456789abcdef")))
        .build()
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
        .responses_from_iter(ERRORS.iter().map(|error| error.described(&[EVERY, RATE, CORS])));
    for (name, schema) in endpoints().flat_map(|endpoint| (endpoint.answer.schemas)()) {
        components = components.schema(name, schema);
    }
    components.build()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn operations_have_ids_of_their_own_and_errors_that_are_described() {
        let mut ids = BTreeSet::new();
        for endpoint in endpoints() {
            for (method, id) in endpoint.operations {
                assert!(ids.insert(*id), "{id} is there twice");
                for status in errors_of(endpoint, method) {
                    assert!(ERRORS.iter().any(|error| error.status == status), "{id}: {status} is not described");
                }
            }
        }
    }

    #[test]
    fn fields_of_an_endpoint_have_names_of_their_own() {
        for endpoint in endpoints() {
            for fields in [endpoint.parameters(), endpoint.members()] {
                let names: BTreeSet<&str> = fields.iter().map(|field| field.name).collect();
                assert_eq!(names.len(), fields.len(), "{}", endpoint.path);
            }
        }
    }
}
