//! An endpoint as data: who can call it, its input, its response, and its handler.
//!
//! The router, the OpenAPI document, and the check of field names use the same value, which is next to the handler. So
//! a field that you add there is accepted, documented, and suggested for misspelled names.

use axum::routing::MethodRouter;
use axum::{Extension, Router};
use serde_json::Value;
use utoipa::openapi::{HttpMethod, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::AppState;

macro_rules! setters {
    ($($field:ident: $type:ty),+ $(,)?) => { $(
        pub(crate) const fn $field(self, $field: $type) -> Self {
            Self { $field, ..self }
        }
    )+ };
}

pub(crate) use setters;

/// Defines constructors of endpoints for users, without input.
macro_rules! constructors {
    ($($name:ident: $method:ident),+) => { $(
        pub(super) const fn $name(
            path: &'static str,
            operation_id: &'static str,
            group: EndpointGroup,
            method_router: MethodRouterFn,
        ) -> Endpoint {
            Endpoint {
                path,
                method: HttpMethod::$method,
                operation_id,
                second_operation: None,
                group,
                summary: "",
                description: "",
                callers: AllowedCallers::Users,
                input: EndpointInput::Empty,
                response: EndpointResponse::new("", &[]),
                errors: &[],
                method_router,
            }
        }
    )+ };
}

pub(super) struct Endpoint {
    pub path: &'static str,
    method: HttpMethod,
    operation_id: &'static str,
    second_operation: Option<(HttpMethod, &'static str)>,
    pub group: EndpointGroup,
    /// Summary of the operation in the OpenAPI document: one line without a final full stop.
    pub summary: &'static str,
    /// Description of the operation in the OpenAPI document, in full sentences.
    pub description: &'static str,
    pub callers: AllowedCallers,
    pub input: EndpointInput,
    pub response: EndpointResponse,
    /// Statuses of the errors that the endpoint can return, except errors that `group`, `callers`, and `input` imply.
    pub errors: &'static [u16],
    method_router: MethodRouterFn,
}

type MethodRouterFn = fn() -> MethodRouter<AppState>;

/// The OpenAPI tag of an endpoint. API tools show the tags in the order of the variants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointGroup {
    Accounts,
    Datasets,
    Versions,
    Alternates,
    Webhooks,
    /// Endpoints of the service itself. Their errors are described like the errors of reads.
    Operational,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedCallers {
    /// Everyone can call the endpoint. Credentials are ignored.
    Anyone,
    Users,
    /// Credentials are optional. Without them, a caller can see less.
    UsersOrAnonymous,
}

/// The input of an endpoint. Requests with fields that are not listed return 400.
pub(super) enum EndpointInput {
    Empty,
    Query(&'static [FieldSpec]),
    /// The query parameters of a read in addition to the listed parameters.
    ReadQuery(&'static [FieldSpec]),
    Body(&'static [FieldSpec]),
    /// A JSON object, or a document of a source format with parameters in the query.
    BodyOrDocument {
        body: &'static [FieldSpec],
        query: &'static [FieldSpec],
    },
    PathToken,
}

#[derive(Clone, Copy)]
pub(super) struct FieldSpec {
    pub name: &'static str,
    pub requirement: FieldRequirement,
    pub kind: FieldKind,
    pub description: &'static str,
    pub example: fn() -> Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldRequirement {
    Required,
    Optional,
}

#[derive(Clone, Copy)]
pub(super) enum FieldKind {
    Id,
    PositiveInteger,
    PositiveIntegerOrNull(usize),
    WholeNumber,
    Boolean,
    Text,
    BoundedText(usize),
    BoundedTextOrNull(usize),
    OneOf(fn() -> Vec<&'static str>),
    OneOfOrNull(fn() -> Vec<&'static str>),
    DatasetName,
    Url,
    Source,
    PathOrNull,
    ScheduleOrNull,
    VersionSelector,
    /// Like [`FieldKind::VersionSelector`], for a JSON body, in which the version number can be a JSON number.
    VersionSelectorOrNumber,
    IndexSettings,
    Checks,
    Entities,
    Edits,
}

pub(super) struct EndpointResponse {
    pub description: &'static str,
    /// The schema of the JSON response, followed by the schemas that it refers to. Empty for other content types.
    pub schemas: fn() -> Vec<NamedSchema>,
    /// Content types of the response in addition to JSON.
    pub extra_content_types: &'static [&'static str],
    /// The response headers, except headers that the group, the callers, and the input of the endpoint imply.
    pub headers: &'static [&'static [&'static str]],
    /// The description of a 304 response with the same headers, if the endpoint can return one.
    pub not_modified: Option<&'static str>,
}

pub(super) type NamedSchema = (String, RefOr<Schema>);

impl EndpointGroup {
    pub(super) const ALL: [EndpointGroup; 6] = [
        EndpointGroup::Accounts,
        EndpointGroup::Datasets,
        EndpointGroup::Versions,
        EndpointGroup::Alternates,
        EndpointGroup::Webhooks,
        EndpointGroup::Operational,
    ];

    pub(super) fn tag_and_description(self) -> (&'static str, &'static str) {
        match self {
            EndpointGroup::Accounts => ("accounts", "Sessions and API tokens"),
            EndpointGroup::Datasets => ("datasets", "Your datasets, and clones of public datasets"),
            EndpointGroup::Versions => ("versions", "Refreshes, the active version, profiles, explanations, and diffs"),
            EndpointGroup::Alternates => {
                ("alternates", "A second list of entities for a version, saved by an owner or agent")
            }
            EndpointGroup::Webhooks => ("webhooks", "The POST request that strata sends for each new version"),
            EndpointGroup::Operational => ("operational", "Health, metrics, and this document"),
        }
    }
}

impl Endpoint {
    constructors! { get: Get, post: Post, delete: Delete }

    pub(super) const fn with_second_method(self, method: HttpMethod, id: &'static str) -> Endpoint {
        Endpoint { second_operation: Some((method, id)), ..self }
    }

    setters! {
        summary: &'static str,
        description: &'static str,
        callers: AllowedCallers,
        input: EndpointInput,
        response: EndpointResponse,
        errors: &'static [u16],
    }

    pub(super) fn methods_and_operation_ids(&self) -> impl Iterator<Item = (&HttpMethod, &'static str)> {
        let second = self.second_operation.iter().map(|(method, id)| (method, *id));
        std::iter::once((&self.method, self.operation_id)).chain(second)
    }

    /// Returns the value of the `Allow` header. A route with GET also has HEAD.
    pub(super) fn allow_header(&self) -> &'static str {
        match self.method {
            HttpMethod::Get => "GET,HEAD",
            HttpMethod::Delete => "DELETE",
            _ => "POST",
        }
    }

    pub(super) fn query_fields(&self) -> &'static [FieldSpec] {
        match self.input {
            EndpointInput::Query(fields)
            | EndpointInput::ReadQuery(fields)
            | EndpointInput::BodyOrDocument { query: fields, .. } => fields,
            EndpointInput::Empty | EndpointInput::Body(_) | EndpointInput::PathToken => &[],
        }
    }

    pub(super) fn body_fields(&self) -> &'static [FieldSpec] {
        match self.input {
            EndpointInput::Body(fields) | EndpointInput::BodyOrDocument { body: fields, .. } => fields,
            EndpointInput::Empty | EndpointInput::Query(_) | EndpointInput::ReadQuery(_) | EndpointInput::PathToken => {
                &[]
            }
        }
    }

    /// The names of all body members except the entities.
    pub(super) fn envelope_field_names(&self) -> Vec<&'static str> {
        let envelope = self.body_fields().iter().filter(|field| !matches!(field.kind, FieldKind::Entities));
        envelope.map(|field| field.name).collect()
    }
}

/// Builds the routes. Each request gets its endpoint as an extension, from which `CallFields` are extracted.
pub(super) fn routes(endpoints: impl Iterator<Item = &'static Endpoint>) -> Router<AppState> {
    endpoints.fold(Router::new(), |routes, endpoint| {
        routes.route(endpoint.path, (endpoint.method_router)().layer(Extension(endpoint)))
    })
}

pub(super) fn field_names(fields: &[FieldSpec]) -> Vec<&'static str> {
    fields.iter().map(|field| field.name).collect()
}

impl FieldSpec {
    pub(super) const fn required(name: &'static str, kind: FieldKind, example: fn() -> Value) -> FieldSpec {
        FieldSpec { name, requirement: FieldRequirement::Required, kind, description: "", example }
    }

    pub(super) const fn optional(name: &'static str, kind: FieldKind, example: fn() -> Value) -> FieldSpec {
        FieldSpec { name, requirement: FieldRequirement::Optional, kind, description: "", example }
    }

    setters! { description: &'static str }
}

impl EndpointResponse {
    pub(super) const fn for_record<T: ToSchema + PartialSchema>(description: &'static str) -> EndpointResponse {
        EndpointResponse { schemas: record_schemas::<T>, ..EndpointResponse::new(description, &[]) }
    }

    pub(super) const fn new(description: &'static str, extra_content_types: &'static [&'static str]) -> Self {
        EndpointResponse { description, schemas: Vec::new, extra_content_types, headers: &[], not_modified: None }
    }
}

fn record_schemas<T: ToSchema + PartialSchema>() -> Vec<NamedSchema> {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    schemas
}
