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

/// Defines builder methods.
macro_rules! setters {
    ($($field:ident: $type:ty),+ $(,)?) => { $(
        pub(crate) const fn $field(self, $field: $type) -> Self {
            Self { $field, ..self }
        }
    )+ };
}

pub(crate) use setters;

pub(super) struct Endpoint {
    pub path: &'static str,
    method: HttpMethod,
    /// The id of its operation, unique in the document.
    id: &'static str,
    /// A second method of the handler, with the id of its operation.
    also: Option<(HttpMethod, &'static str)>,
    pub group: Group,
    /// One line without a final full stop.
    pub summary: &'static str,
    /// Full sentences.
    pub description: &'static str,
    pub callers: Callers,
    pub input: Input,
    /// The response with status 200.
    pub answer: Answer,
    /// The statuses of its errors, without those of all endpoints with the same group, callers, and input.
    pub errors: &'static [u16],
    handler: Handler,
}

type Handler = fn() -> MethodRouter<AppState>;

/// The tag of an operation. Tools show tags in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Accounts,
    Datasets,
    Versions,
    Alternates,
    Webhooks,
    /// Endpoints of the service itself, whose errors are described like the errors of reads.
    Operational,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Callers {
    /// Credentials are ignored.
    Anybody,
    Users,
    /// Without credentials, a caller can see less.
    UsersAndAnybody,
}

/// The input of an endpoint. Names that are not listed return 400.
pub(super) enum Input {
    Nothing,
    Query(&'static [Field]),
    /// A query with these parameters and the parameters of a read.
    Read(&'static [Field]),
    Body(&'static [Field]),
    /// A JSON object, or a document of a source format with parameters in the query.
    BodyOrDocument {
        body: &'static [Field],
        query: &'static [Field],
    },
    Token,
}

/// A member of a body, or a parameter of a query.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub name: &'static str,
    pub need: Need,
    pub kind: FieldKind,
    pub about: &'static str,
    pub example: fn() -> Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Required,
    Optional,
}

#[derive(Clone, Copy)]
pub(super) enum FieldKind {
    Id,
    Positive,
    PositiveOrNull(usize),
    WholeNumber,
    Boolean,
    Text,
    /// Up to this many characters, or an empty string.
    TextPart(usize),
    /// Up to this many characters, an empty string, or null.
    TextOrNull(usize),
    OneOf(fn() -> Vec<&'static str>),
    OneOfOrNull(fn() -> Vec<&'static str>),
    DatasetName,
    Url,
    /// `push` or a URL.
    Source,
    PathOrNull,
    ScheduleOrNull,
    /// `active`, `latest`, or a number.
    Version,
    /// The same in a body, where a number can be a JSON number.
    VersionOrNumber,
    Index,
    Entities,
    Edits,
}

pub(super) struct Answer {
    /// A sentence.
    pub about: &'static str,
    /// The schema of its JSON record, followed by the schemas that it refers to. Empty if it is not a JSON record.
    pub schemas: fn() -> Vec<NamedSchema>,
    /// Further content types.
    pub media: &'static [&'static str],
    /// Its headers, without those of all endpoints with the same group, callers, and input.
    pub headers: &'static [&'static [&'static str]],
    /// The meaning of a 304 with the same headers, if it can occur.
    pub not_modified: Option<&'static str>,
}

pub(super) type NamedSchema = (String, RefOr<Schema>);

impl Group {
    pub(super) const ALL: [Group; 6] =
        [Group::Accounts, Group::Datasets, Group::Versions, Group::Alternates, Group::Webhooks, Group::Operational];

    pub(super) fn described(self) -> (&'static str, &'static str) {
        match self {
            Group::Accounts => ("accounts", "Sessions and API tokens"),
            Group::Datasets => ("datasets", "Your datasets, and clones of public datasets"),
            Group::Versions => ("versions", "Refreshes, the active version, profiles, explanations, and diffs"),
            Group::Alternates => ("alternates", "A second list of entities for a version, saved by an owner or agent"),
            Group::Webhooks => ("webhooks", "The POST request that strata sends for each new version"),
            Group::Operational => ("operational", "Health, metrics, and this document"),
        }
    }
}

impl Endpoint {
    pub(super) const fn get(path: &'static str, id: &'static str, group: Group, handler: Handler) -> Endpoint {
        Endpoint::new(HttpMethod::Get, path, id, group, handler)
    }

    pub(super) const fn post(path: &'static str, id: &'static str, group: Group, handler: Handler) -> Endpoint {
        Endpoint::new(HttpMethod::Post, path, id, group, handler)
    }

    pub(super) const fn delete(path: &'static str, id: &'static str, group: Group, handler: Handler) -> Endpoint {
        Endpoint::new(HttpMethod::Delete, path, id, group, handler)
    }

    /// An endpoint for users, without input.
    const fn new(method: HttpMethod, path: &'static str, id: &'static str, group: Group, handler: Handler) -> Endpoint {
        Endpoint {
            path,
            method,
            id,
            also: None,
            group,
            summary: "",
            description: "",
            callers: Callers::Users,
            input: Input::Nothing,
            answer: Answer::new("", &[]),
            errors: &[],
            handler,
        }
    }

    pub(super) const fn also(self, method: HttpMethod, id: &'static str) -> Endpoint {
        Endpoint { also: Some((method, id)), ..self }
    }

    setters! {
        summary: &'static str,
        description: &'static str,
        callers: Callers,
        input: Input,
        answer: Answer,
        errors: &'static [u16],
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = (&HttpMethod, &'static str)> {
        let also = self.also.iter().map(|(method, id)| (method, *id));
        std::iter::once((&self.method, self.id)).chain(also)
    }

    /// The methods of its route, as the header `Allow` lists them. A route with GET also has HEAD.
    pub(super) fn allowed(&self) -> &'static str {
        match self.method {
            HttpMethod::Get => "GET,HEAD",
            HttpMethod::Delete => "DELETE",
            _ => "POST",
        }
    }

    pub(super) fn parameters(&self) -> &'static [Field] {
        match self.input {
            Input::Query(fields) | Input::Read(fields) | Input::BodyOrDocument { query: fields, .. } => fields,
            Input::Nothing | Input::Body(_) | Input::Token => &[],
        }
    }

    pub(super) fn members(&self) -> &'static [Field] {
        match self.input {
            Input::Body(fields) | Input::BodyOrDocument { body: fields, .. } => fields,
            Input::Nothing | Input::Query(_) | Input::Read(_) | Input::Token => &[],
        }
    }

    /// The names of the members of its body other than the entities.
    pub(super) fn beside_entities(&self) -> Vec<&'static str> {
        let beside = self.members().iter().filter(|field| !matches!(field.kind, FieldKind::Entities));
        beside.map(|field| field.name).collect()
    }
}

/// The routes of endpoints. Each request has its endpoint as an extension, from which `Fields` are extracted.
pub(super) fn routes(endpoints: impl Iterator<Item = &'static Endpoint>) -> Router<AppState> {
    endpoints.fold(Router::new(), |routes, endpoint| {
        routes.route(endpoint.path, (endpoint.handler)().layer(Extension(endpoint)))
    })
}

pub(super) fn names(fields: &[Field]) -> Vec<&'static str> {
    fields.iter().map(|field| field.name).collect()
}

impl Field {
    pub(super) const fn required(name: &'static str, kind: FieldKind, example: fn() -> Value) -> Field {
        Field { name, need: Need::Required, kind, about: "", example }
    }

    pub(super) const fn optional(name: &'static str, kind: FieldKind, example: fn() -> Value) -> Field {
        Field { name, need: Need::Optional, kind, about: "", example }
    }

    setters! { about: &'static str }
}

impl Answer {
    pub(super) const fn record<T: ToSchema + PartialSchema>(about: &'static str) -> Answer {
        Answer { schemas: record_schemas::<T>, ..Answer::new(about, &[]) }
    }

    pub(super) const fn new(about: &'static str, media: &'static [&'static str]) -> Answer {
        Answer { about, schemas: Vec::new, media, headers: &[], not_modified: None }
    }
}

fn record_schemas<T: ToSchema + PartialSchema>() -> Vec<NamedSchema> {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    schemas
}
