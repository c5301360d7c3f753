//! Endpoints as operations of the document, each as its [`Endpoint`] says.

use serde_json::json;
use strata_service::webhook::WebhookPayload;
use utoipa::PartialSchema;
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr,
    Required, ResponseBuilder, Schema, Type,
};

use super::examples::{example, response};
use super::schemas::{body, schema};
use crate::description::headers::{self, CORS, EVERY, RATE};
use crate::description::responses::{self, OWNER_ERRORS, with_errors};
use crate::description::{self, JSON, typed};
use crate::endpoint::{Callers, Endpoint, Field, Group, Input, Need};
use crate::management::SESSION_COOKIE;
use crate::params::PARAMETERS;

const SESSION: &str = "session";
const API_TOKEN: &str = "apiToken";

const NEW_VERSION: &str = "newVersion";

/// Endpoints, and what several of them refer to. Names of components are unique in the whole document.
pub(super) fn section(endpoints: impl Iterator<Item = &'static Endpoint>) -> OpenApi {
    let mut paths = PathsBuilder::new();
    let mut components = components();
    for endpoint in endpoints {
        for (method, id) in endpoint.operations() {
            paths = paths.path(endpoint.path, PathItem::new(method.clone(), described(endpoint, method, id)));
        }
        for (name, schema) in (endpoint.answer.schemas)() {
            let schema = complete(&name, schema);
            components = components.schema(name, schema);
        }
    }
    let payload = "WebhookPayload";
    let components = components.schema(payload, complete(payload, WebhookPayload::schema())).build();
    let webhooks = PathsBuilder::new().path(NEW_VERSION, PathItem::new(HttpMethod::Post, webhook(payload)));
    let tags = Group::ALL.map(|group| {
        let (name, about) = group.described();
        TagBuilder::new().name(name).description(Some(about)).build()
    });
    OpenApiBuilder::new().paths(paths).webhooks(Some(webhooks)).components(Some(components)).tags(Some(tags)).build()
}

fn webhook(payload: &str) -> Operation {
    let signature = "The HMAC-SHA256 of the body in hexadecimal. The key is the secret of the webhook. strata sends \
                     this header only if you registered a secret.";
    let signature =
        description::parameter("X-Service-Signature", ParameterIn::Header, signature, typed(Type::String), None);
    let json = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(payload)))
        .example(example(NEW_VERSION).and_then(|example| example.body.clone()))
        .build();
    let body = RequestBodyBuilder::new().content(JSON, json).required(Some(Required::True)).build();
    OperationBuilder::new()
        .operation_id(Some(NEW_VERSION))
        .tag(Group::Webhooks.described().0)
        .summary(Some("The request that strata sends to your webhook"))
        .description(Some(
            "strata sends exactly one POST request for each new version, and does not retry it. Your receiver should \
             return a 2xx status before it does any other work, because strata waits only for a limited time. strata \
             does not follow redirects.",
        ))
        .parameter(signature)
        .request_body(Some(body))
        .securities(Some([]))
        .response("2XX", ResponseBuilder::new().description("Your receiver accepted the request."))
        .response("4XX", ResponseBuilder::new().description("strata records the status and does not retry."))
        .build()
}

/// A schema of an answer. A record has all other members, null where they do not apply: so generated clients need not
/// handle what is missing. The derived schemas require only members that are never null. A record made of several
/// (`allOf`) is left as it is: a pull has some members only of pages.
fn complete(record: &str, schema: RefOr<Schema>) -> RefOr<Schema> {
    let RefOr::T(Schema::Object(mut object)) = schema else { return schema };
    // Some members are there only where they say something.
    let is_optional = |member: &str| member == "warnings" || (record, member) == ("ValueRecord", "estimated");
    object.required = object.properties.keys().filter(|member| !is_optional(member)).cloned().collect();
    Schema::Object(object).into()
}

fn described(endpoint: &Endpoint, method: &HttpMethod, id: &str) -> Operation {
    let example = example(id);
    let mut described = OperationBuilder::new()
        .operation_id(Some(id))
        .tag(endpoint.group.described().0)
        .summary(Some(endpoint.summary))
        .description(Some(endpoint.description));
    let users = [SESSION, API_TOKEN].map(|scheme| SecurityRequirement::new(scheme, Vec::<String>::new()));
    described = match endpoint.callers {
        // Said, because the default of the document is that of reads.
        Callers::Anybody => described.securities(Some([])),
        Callers::UsersAndAnybody => described.securities(Some(users)).security(SecurityRequirement::default()),
        _ => described.securities(Some(users)),
    };
    described = endpoint.parameters().iter().fold(described, |described, field| described.parameter(parameter(field)));
    described = match endpoint.input {
        Input::Nothing | Input::Query(_) => described,
        Input::Read(_) => PARAMETERS.iter().fold(described, |described, parameter| {
            described.parameter_ref(Ref::new(format!("#/components/parameters/{}", parameter.name)))
        }),
        Input::Body(fields) => described.request_body(Some(body(fields, false, example))),
        Input::BodyOrDocument { body: fields, .. } => described.request_body(Some(body(fields, true, example))),
        Input::Token => described.parameter(token()),
    };
    described = described.response("200", answer(endpoint, id));
    if let Some(about) = endpoint.answer.not_modified {
        let not_modified = ResponseBuilder::new().description(about);
        described = described.response("304", with_headers(endpoint, not_modified));
    }
    let described = with_errors(described, responses::ERRORS, &shared_errors(endpoint));
    with_errors(described, OWNER_ERRORS, &own_errors(endpoint, method)).build()
}

fn answer(endpoint: &Endpoint, id: &str) -> ResponseBuilder {
    let described = &endpoint.answer;
    let record = (described.schemas)().first().map(|(name, _)| Ref::from_schema_name(name.as_str()));
    let record = record.map(|schema| (JSON, RefOr::<Schema>::from(schema)));
    let others = described.media.iter().map(|media| {
        let value_type = if *media == JSON { Type::Object } else { Type::String };
        (*media, typed(value_type).build().into())
    });
    let answer = ResponseBuilder::new().description(described.about);
    let answer = record.into_iter().chain(others).fold(answer, |answer, (media, schema)| {
        let content = ContentBuilder::new().schema(Some(schema)).example(response(id, media).cloned());
        answer.content(media, content.build())
    });
    with_headers(endpoint, answer)
}

fn with_headers(endpoint: &Endpoint, answer: ResponseBuilder) -> ResponseBuilder {
    let mut answer = headers::with(headers::with(answer, &[EVERY]), endpoint.answer.headers);
    if is_managed(endpoint) {
        answer = headers::with(answer, &[&["Cache-Control"]]);
    }
    if matches!(endpoint.input, Input::Token) {
        answer = headers::with(answer, &[RATE, &["Referrer-Policy"]]);
    }
    if endpoint.callers == Callers::UsersAndAnybody {
        answer = headers::with(answer, &[RATE, CORS]);
    }
    answer
}

/// Whether an endpoint is what owners do, whose errors have a table of their own.
fn is_managed(endpoint: &Endpoint) -> bool {
    endpoint.group != Group::Operational
}

/// The statuses of its errors that are described as those of a read are.
fn shared_errors(endpoint: &Endpoint) -> Vec<u16> {
    let mut errors = vec![405];
    if !is_managed(endpoint) {
        errors.extend(endpoint.errors);
    }
    if endpoint.callers == Callers::UsersAndAnybody {
        errors.push(410);
    }
    if matches!(endpoint.input, Input::Read(_)) {
        errors.push(414);
    }
    errors
}

fn own_errors(endpoint: &Endpoint, method: &HttpMethod) -> Vec<u16> {
    if !is_managed(endpoint) {
        return Vec::new();
    }
    let mut errors = [endpoint.errors, &[500, 503]].concat();
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

fn parameter(field: &Field) -> Parameter {
    let Field { name, need, kind, about, example } = *field;
    let required = if need == Need::Required { Required::True } else { Required::False };
    description::parameter(name, ParameterIn::Query, about, schema(kind, None), Some(example()))
        .required(required)
        .build()
}

fn token() -> Parameter {
    let schema = typed(Type::String).min_length(Some(1));
    let example = Some(json!("ping_0123456789abcdef"));
    description::parameter("token", ParameterIn::Path, "The token in the ping URL.", schema, example).build()
}

fn components() -> ComponentsBuilder {
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "An API token of the user. To create one, use `POST /token/create` or `strata user add --token`.",
        ))
        .build();
    let cookie = ApiKeyValue::with_description(SESSION_COOKIE, "The cookie that `POST /session/login` sets.");
    ComponentsBuilder::new()
        .security_scheme(SESSION, SecurityScheme::ApiKey(ApiKey::Cookie(cookie)))
        .security_scheme(API_TOKEN, SecurityScheme::Http(token))
        .responses_from_iter(OWNER_ERRORS.iter().map(|error| error.described(&[EVERY, RATE, CORS])))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::openapi::endpoints;

    #[test]
    fn operations_have_unique_ids_and_described_errors() {
        let mut ids = BTreeSet::new();
        for endpoint in endpoints() {
            for (method, id) in endpoint.operations() {
                assert!(ids.insert(id), "{id} is there twice");
                let described = described(endpoint, method, id).responses.responses;
                for status in [shared_errors(endpoint), own_errors(endpoint, method)].concat() {
                    assert!(described.contains_key(&status.to_string()), "{id}: {status} is not described");
                }
            }
        }
    }
}
