//! The operations of endpoints in the OpenAPI document, derived from each [`Endpoint`].

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

use super::examples::{example_response, main_example};
use super::field_schemas::{field_schema, json_body, json_or_document_body};
use crate::endpoint::{AllowedCallers, Endpoint, EndpointGroup, EndpointInput, FieldRequirement, FieldSpec};
use crate::management::SESSION_COOKIE;
use crate::openapi_components::error_responses::{self, OWNER_ERRORS, with_error_refs};
use crate::openapi_components::response_headers::{self, COMMON_HEADERS, CORS_HEADERS, RATE_LIMIT_HEADERS};
use crate::openapi_components::{self, JSON_CONTENT_TYPE, schema_of_type};
use crate::params::PARAMETERS;

const SESSION_SCHEME: &str = "session";
const API_TOKEN_SCHEME: &str = "apiToken";
const NEW_VERSION_WEBHOOK: &str = "newVersion";

/// Builds the paths, the webhooks, and the components of endpoints. Component names are unique in the whole document.
pub(super) fn endpoints_section(endpoints: impl Iterator<Item = &'static Endpoint>) -> OpenApi {
    let mut paths = PathsBuilder::new();
    let mut components = endpoint_components();
    for endpoint in endpoints {
        for (method, id) in endpoint.methods_and_operation_ids() {
            paths = paths.path(endpoint.path, PathItem::new(method.clone(), endpoint_operation(endpoint, method, id)));
        }
        for (name, schema) in (endpoint.response.schemas)() {
            let schema = require_all_members(&name, schema);
            components = components.schema(name, schema);
        }
    }
    let payload = "WebhookPayload";
    let components = components.schema(payload, require_all_members(payload, WebhookPayload::schema())).build();
    let webhooks =
        PathsBuilder::new().path(NEW_VERSION_WEBHOOK, PathItem::new(HttpMethod::Post, webhook_operation(payload)));
    let tags = EndpointGroup::ALL.map(|group| {
        let (name, description) = group.tag_and_description();
        TagBuilder::new().name(name).description(Some(description)).build()
    });
    OpenApiBuilder::new().paths(paths).webhooks(Some(webhooks)).components(Some(components)).tags(Some(tags)).build()
}

fn webhook_operation(payload: &str) -> Operation {
    let signature = "The HMAC-SHA256 of the body in hexadecimal. The key is the secret of the webhook. strata sends \
                     this header only if you registered a secret.";
    let signature = openapi_components::parameter_builder(
        "X-Service-Signature",
        ParameterIn::Header,
        signature,
        schema_of_type(Type::String),
        None,
    );
    let json = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(payload)))
        .example(main_example(NEW_VERSION_WEBHOOK).and_then(|example| example.body.clone()))
        .build();
    let body = RequestBodyBuilder::new().content(JSON_CONTENT_TYPE, json).required(Some(Required::True)).build();
    OperationBuilder::new()
        .operation_id(Some(NEW_VERSION_WEBHOOK))
        .tag(EndpointGroup::Webhooks.tag_and_description().0)
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

/// Requires all members of a response record, so that generated clients do not have to handle missing members: members
/// without a value are null. The derived schemas require only members that are never null. Records composed of several
/// schemas (`allOf`) do not change: for example, some members of a pull exist only for pages.
fn require_all_members(record: &str, schema: RefOr<Schema>) -> RefOr<Schema> {
    let RefOr::T(Schema::Object(mut object)) = schema else { return schema };
    // Responses omit these members instead of setting them to null.
    let is_optional = |member: &str| member == "warnings" || (record, member) == ("ValueRecord", "estimated");
    object.required = object.properties.keys().filter(|member| !is_optional(member)).cloned().collect();
    Schema::Object(object).into()
}

fn endpoint_operation(endpoint: &Endpoint, method: &HttpMethod, id: &str) -> Operation {
    let example = main_example(id);
    let mut operation = OperationBuilder::new()
        .operation_id(Some(id))
        .tag(endpoint.group.tag_and_description().0)
        .summary(Some(endpoint.summary))
        .description(Some(endpoint.description));
    let users = [SESSION_SCHEME, API_TOKEN_SCHEME].map(|scheme| SecurityRequirement::new(scheme, Vec::<String>::new()));
    operation = match endpoint.callers {
        // An empty list of security schemes overrides the default of the document, which is the security of reads.
        AllowedCallers::Anyone => operation.securities(Some([])),
        AllowedCallers::UsersOrAnonymous => operation.securities(Some(users)).security(SecurityRequirement::default()),
        _ => operation.securities(Some(users)),
    };
    operation =
        endpoint.query_fields().iter().fold(operation, |operation, field| operation.parameter(query_parameter(field)));
    operation = match endpoint.input {
        EndpointInput::Empty | EndpointInput::Query(_) => operation,
        EndpointInput::ReadQuery(_) => PARAMETERS.iter().fold(operation, |operation, parameter| {
            operation.parameter_ref(Ref::new(format!("#/components/parameters/{}", parameter.name)))
        }),
        EndpointInput::Body(fields) => operation.request_body(Some(json_body(fields, example))),
        EndpointInput::BodyOrDocument { body: fields, .. } => {
            operation.request_body(Some(json_or_document_body(fields, example)))
        }
        EndpointInput::PathToken => operation.parameter(ping_token_parameter()),
    };
    operation = operation.response("200", success_response(endpoint, id));
    if let Some(description) = endpoint.response.not_modified {
        let not_modified = ResponseBuilder::new().description(description);
        operation = operation.response("304", with_headers(endpoint, not_modified));
    }
    let operation = with_error_refs(operation, error_responses::READ_ERRORS, &statuses_in_read_errors(endpoint));
    with_error_refs(operation, OWNER_ERRORS, &statuses_in_owner_errors(endpoint, method)).build()
}

fn success_response(endpoint: &Endpoint, id: &str) -> ResponseBuilder {
    let spec = &endpoint.response;
    let record = (spec.schemas)().first().map(|(name, _)| Ref::from_schema_name(name.as_str()));
    let record = record.map(|schema| (JSON_CONTENT_TYPE, RefOr::<Schema>::from(schema)));
    let others = spec.extra_content_types.iter().map(|content_type| {
        let value_type = if *content_type == JSON_CONTENT_TYPE { Type::Object } else { Type::String };
        (*content_type, schema_of_type(value_type).build().into())
    });
    let response = ResponseBuilder::new().description(spec.description);
    let response = record.into_iter().chain(others).fold(response, |response, (content_type, schema)| {
        let example = example_response(id, content_type).cloned();
        response.content(content_type, ContentBuilder::new().schema(Some(schema)).example(example).build())
    });
    with_headers(endpoint, response)
}

fn with_headers(endpoint: &Endpoint, response: ResponseBuilder) -> ResponseBuilder {
    let mut names = [&[COMMON_HEADERS][..], endpoint.response.headers].concat();
    if is_management_endpoint(endpoint) {
        names.push(&["Cache-Control"]);
    }
    if matches!(endpoint.input, EndpointInput::PathToken) {
        names.extend([RATE_LIMIT_HEADERS, &["Referrer-Policy"]]);
    }
    if endpoint.callers == AllowedCallers::UsersOrAnonymous {
        names.extend([RATE_LIMIT_HEADERS, CORS_HEADERS]);
    }
    response_headers::with_header_refs(response, &names)
}

/// Whether an endpoint belongs to the management API, which has its own table of errors.
fn is_management_endpoint(endpoint: &Endpoint) -> bool {
    endpoint.group != EndpointGroup::Operational
}

fn statuses_in_read_errors(endpoint: &Endpoint) -> Vec<u16> {
    let mut errors = vec![405];
    if !is_management_endpoint(endpoint) {
        errors.extend(endpoint.errors);
    }
    if endpoint.callers == AllowedCallers::UsersOrAnonymous {
        errors.push(410);
    }
    if matches!(endpoint.input, EndpointInput::ReadQuery(_)) {
        errors.push(414);
    }
    errors
}

fn statuses_in_owner_errors(endpoint: &Endpoint, method: &HttpMethod) -> Vec<u16> {
    if !is_management_endpoint(endpoint) {
        return Vec::new();
    }
    let mut errors = [endpoint.errors, &[500, 503]].concat();
    if endpoint.callers != AllowedCallers::Anyone {
        errors.extend([401, 403]);
    }
    match endpoint.input {
        EndpointInput::Empty if *method == HttpMethod::Get => errors.push(400),
        EndpointInput::Empty => {}
        EndpointInput::Query(_) | EndpointInput::ReadQuery(_) => errors.push(400),
        EndpointInput::PathToken => errors.extend([400, 413]),
        EndpointInput::Body(_) | EndpointInput::BodyOrDocument { .. } => errors.extend([400, 408, 413, 415]),
    }
    errors
}

fn query_parameter(field: &FieldSpec) -> Parameter {
    let FieldSpec { name, requirement, kind, description, example } = *field;
    let required = if requirement == FieldRequirement::Required { Required::True } else { Required::False };
    let schema = field_schema(kind, None);
    openapi_components::parameter_builder(name, ParameterIn::Query, description, schema, Some(example()))
        .required(required)
        .build()
}

fn ping_token_parameter() -> Parameter {
    let schema = schema_of_type(Type::String).min_length(Some(1));
    let example = Some(json!("ping_0123456789abcdef"));
    openapi_components::parameter_builder("token", ParameterIn::Path, "The token in the ping URL.", schema, example)
        .build()
}

fn endpoint_components() -> ComponentsBuilder {
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "An API token of the user. To create one, use `POST /token/create` or `strata user add --token`.",
        ))
        .build();
    let cookie = ApiKeyValue::with_description(SESSION_COOKIE, "The cookie that `POST /session/login` sets.");
    ComponentsBuilder::new()
        .security_scheme(SESSION_SCHEME, SecurityScheme::ApiKey(ApiKey::Cookie(cookie)))
        .security_scheme(API_TOKEN_SCHEME, SecurityScheme::Http(token))
        .responses_from_iter(
            OWNER_ERRORS.iter().map(|error| error.to_component(&[COMMON_HEADERS, RATE_LIMIT_HEADERS, CORS_HEADERS])),
        )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::openapi::documented_endpoints;

    #[test]
    fn operations_have_unique_ids_and_described_errors() {
        let mut ids = BTreeSet::new();
        for endpoint in documented_endpoints() {
            for (method, id) in endpoint.methods_and_operation_ids() {
                assert!(ids.insert(id), "operation {id} is not unique");
                let described = endpoint_operation(endpoint, method, id).responses.responses;
                for status in [statuses_in_read_errors(endpoint), statuses_in_owner_errors(endpoint, method)].concat() {
                    assert!(described.contains_key(&status.to_string()), "{id}: {status} is not described");
                }
            }
        }
    }
}
