//! An endpoint as data: who may call it, what it takes, what it answers, and its handler.
//!
//! Router, OpenAPI document and the check of names read the same value, which stands beside the handler. So a field
//! that is added there is taken, documented and suggested at once.

use axum::routing::{MethodFilter, MethodRouter};
use axum::{Extension, Router};
use serde_json::Value;
use strata_service::App;
use utoipa::openapi::{Content, HttpMethod, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Makes methods that set a field of a value.
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
    filter: MethodFilter,
    /// The id of its operation, unique in the document.
    id: &'static str,
    /// A second method, with the id of its operation. The handler takes it regardless of the filter.
    also: Option<(HttpMethod, &'static str)>,
    pub group: Group,
    /// What it does, in one line without a final full stop.
    pub summary: &'static str,
    /// What callers should know besides, in full sentences.
    pub description: &'static str,
    pub callers: Callers,
    pub input: Input,
    /// The response with status 200.
    pub answer: Answer,
    /// The statuses of its errors besides those that all endpoints with its group, its caller and its input have.
    pub errors: &'static [u16],
    handler: Handler,
}

type Handler = fn(MethodFilter) -> MethodRouter<App>;

/// The groups in which tools show endpoints, in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Accounts,
    Datasets,
    Versions,
    Alternates,
    Webhooks,
    /// Those of the service itself. Their errors are described as those of reads are.
    Operational,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Callers {
    /// Nobody's credentials are looked at.
    Anybody,
    Users,
    /// Users, and anybody, who may see less.
    UsersAndAnybody,
}

/// What an endpoint takes. Names that are not listed are refused.
pub(super) enum Input {
    Nothing,
    Query(&'static [Field]),
    /// A query with these parameters, and those of a read.
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
    /// Valid by the schema of its kind.
    pub example: fn() -> Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Required,
    Optional,
}

#[derive(Clone, Copy)]
pub(super) enum FieldKind {
    /// The number of something that is recorded.
    Id,
    Positive,
    PositiveOrNull(usize),
    WholeNumber,
    Boolean,
    Text,
    /// A part of a text, of at most so many characters; perhaps an empty one.
    TextPart(usize),
    /// A text of at most so many characters, perhaps an empty one, or null.
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
    /// The same in a body, where a number may be a JSON number.
    VersionOrNumber,
    Index,
    Entities,
    Edits,
}

pub(super) struct Answer {
    /// What it holds, as a sentence.
    pub about: &'static str,
    /// The schema of its JSON and those that it refers to, by name, its own first; none if it is no JSON record.
    pub schemas: fn() -> Vec<NamedSchema>,
    /// What it may be besides that, by content type.
    pub media: &'static [Medium],
    /// Its headers besides those that all endpoints with its group, its caller and its input have.
    pub headers: &'static [&'static [&'static str]],
    /// What 304 means, if it may be that instead, with the same headers.
    pub not_modified: Option<&'static str>,
}

pub(super) type Medium = (&'static str, fn() -> Content);

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
        Endpoint::new(HttpMethod::Get, MethodFilter::GET, path, id, group, handler)
    }

    pub(super) const fn post(path: &'static str, id: &'static str, group: Group, handler: Handler) -> Endpoint {
        Endpoint::new(HttpMethod::Post, MethodFilter::POST, path, id, group, handler)
    }

    pub(super) const fn delete(path: &'static str, id: &'static str, group: Group, handler: Handler) -> Endpoint {
        Endpoint::new(HttpMethod::Delete, MethodFilter::DELETE, path, id, group, handler)
    }

    /// An endpoint for users, without input.
    const fn new(
        method: HttpMethod,
        filter: MethodFilter,
        path: &'static str,
        id: &'static str,
        group: Group,
        handler: Handler,
    ) -> Endpoint {
        Endpoint {
            path,
            method,
            filter,
            id,
            also: None,
            group,
            summary: "",
            description: "",
            callers: Callers::Users,
            input: Input::Nothing,
            answer: Answer::of("", &[]),
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

    /// The names of the members that stand beside the entities of its body.
    pub(super) fn beside_entities(&self) -> Vec<&'static str> {
        let beside = self.members().iter().filter(|field| !matches!(field.kind, FieldKind::Entities));
        beside.map(|field| field.name).collect()
    }
}

/// The routes of endpoints. Each request carries its endpoint, for the extraction of its fields.
pub(super) fn routes(endpoints: impl Iterator<Item = &'static Endpoint>) -> Router<App> {
    endpoints.fold(Router::new(), |routes, endpoint| {
        routes.route(endpoint.path, (endpoint.handler)(endpoint.filter).layer(Extension(endpoint)))
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
        Answer { schemas: record_schemas::<T>, ..Answer::of(about, &[]) }
    }

    /// One of these content types.
    pub(super) const fn of(about: &'static str, media: &'static [Medium]) -> Answer {
        Answer { about, schemas: Vec::new, media, headers: &[], not_modified: None }
    }
}

fn record_schemas<T: ToSchema + PartialSchema>() -> Vec<NamedSchema> {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    schemas
}
