//! An endpoint as data: who may call it, what it takes, what it answers, and its handler.
//!
//! Router, OpenAPI document and the check of names read the same value, which stands beside the handler. So a field
//! that is added there is taken, documented and suggested at once.

use axum::Router;
use axum::routing::{MethodFilter, MethodRouter};
use serde_json::Value;
use utoipa::openapi::{Content, HttpMethod, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::service::App;

/// One path, and all that there is to know of it.
pub(in crate::http) struct Endpoint {
    /// The pattern of its path.
    pub path: &'static str,
    /// The methods that it takes, each with the id of its operation, unique in the document.
    pub operations: &'static [(HttpMethod, &'static str)],
    /// Where tools show it.
    pub group: Group,
    /// What it does, in one line without a final full stop.
    pub summary: &'static str,
    /// Who may call it.
    pub callers: Callers,
    /// What it takes.
    pub input: Input,
    /// What it answers with 200.
    pub answer: Answer,
    /// The statuses of its errors besides those that all endpoints with its group, its caller and its input have.
    pub errors: &'static [u16],
    /// Its handler, for these methods.
    pub handler: fn(MethodFilter) -> MethodRouter<App>,
}

/// The groups in which tools show endpoints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Group {
    Accounts,
    Datasets,
    Versions,
    Alternates,
    Webhooks,
    /// Those of the service itself. Their errors are described as those of reads are.
    Operational,
}

/// Who may call an endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Callers {
    /// Nobody's credentials are looked at.
    Anybody,
    Users,
    /// Users, and anybody, who may see less.
    UsersAndAnybody,
}

/// What an endpoint takes. Names that are not listed are refused.
pub(in crate::http) enum Input {
    Nothing,
    Query(&'static [Field]),
    /// A query with these parameters, and those of a read.
    Read(&'static [Field]),
    /// A JSON object.
    Body(&'static [Field]),
    /// A JSON object, or a document of a source format with parameters in the query.
    BodyOrDocument {
        body: &'static [Field],
        query: &'static [Field],
    },
    /// The token in the path.
    Token,
}

/// A member of a body, or a parameter of a query.
#[derive(Clone, Copy)]
pub(in crate::http) struct Field {
    pub name: &'static str,
    pub need: Need,
    pub kind: FieldKind,
    /// What it is, as a sentence.
    pub about: &'static str,
    /// Valid by the schema of its kind.
    pub example: fn() -> Value,
}

/// Whether a field must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Need {
    Required,
    Optional,
}

/// What the values of a field are.
#[derive(Clone, Copy)]
pub(in crate::http) enum FieldKind {
    /// The number of something that is recorded.
    Id,
    /// Any positive integer.
    Positive,
    /// A positive integer of at most this, or null.
    PositiveOrNull(usize),
    /// A whole number, 0 too.
    WholeNumber,
    Boolean,
    Text,
    /// A part of a text, of at most so many characters; perhaps an empty one.
    TextPart(usize),
    /// A text of at most so many characters, perhaps an empty one, or null.
    TextOrNull(usize),
    /// One of these texts.
    OneOf(fn() -> Vec<&'static str>),
    /// The same, or null.
    OneOfOrNull(fn() -> Vec<&'static str>),
    /// The name of a dataset.
    DatasetName,
    Url,
    /// `push` or a URL.
    Source,
    /// A path into entities, or null.
    PathOrNull,
    /// A cron expression, or null.
    ScheduleOrNull,
    /// `active`, `latest`, or a number.
    Version,
    /// The same in a body, where a number may be a JSON number.
    VersionOrNumber,
    /// An object of two lists of paths, or null.
    Index,
    Entities,
    /// A list of edits of entities.
    Edits,
}

/// An answer of 200.
pub(in crate::http) struct Answer {
    /// What it holds, as a sentence.
    pub about: &'static str,
    /// The schema of its JSON and those that it refers to, each under its name; its own comes first. None where it is
    /// no JSON record.
    pub schemas: fn() -> Vec<NamedSchema>,
    /// What it may be besides that, by content type.
    pub media: &'static [Medium],
    /// Its headers besides those that all endpoints with its group, its caller and its input have.
    pub headers: &'static [&'static [&'static str]],
    /// What 304 means, if it may be that instead, with the same headers.
    pub not_modified: Option<&'static str>,
}

/// A content type, and what a body of it holds.
pub(in crate::http) type Medium = (&'static str, fn() -> Content);

/// A schema under its name.
pub(in crate::http) type NamedSchema = (String, RefOr<Schema>);

impl Group {
    /// All, in the order in which tools show them.
    pub(in crate::http) const ALL: [Group; 6] =
        [Group::Accounts, Group::Datasets, Group::Versions, Group::Alternates, Group::Webhooks, Group::Operational];

    /// Its name, and what it is about.
    pub(in crate::http) fn described(self) -> (&'static str, &'static str) {
        match self {
            Group::Accounts => ("accounts", "Sessions and API tokens"),
            Group::Datasets => ("datasets", "Datasets of the caller, and clones of public ones"),
            Group::Versions => {
                ("versions", "How versions are made, which one is active, what they contain, what they differ in")
            }
            Group::Alternates => ("alternates", "Second entity lists of versions, saved by owners and by agents"),
            Group::Webhooks => ("webhooks", "The POST that follows a new version"),
            Group::Operational => ("operational", "Health, metrics, and this document"),
        }
    }
}

impl Endpoint {
    /// Its route: the handler for its methods.
    fn route(&self) -> MethodRouter<App> {
        let filters = self.operations.iter().map(|(method, _)| match method {
            HttpMethod::Get => MethodFilter::GET,
            HttpMethod::Post => MethodFilter::POST,
            HttpMethod::Put => MethodFilter::PUT,
            HttpMethod::Delete => MethodFilter::DELETE,
            HttpMethod::Options => MethodFilter::OPTIONS,
            HttpMethod::Head => MethodFilter::HEAD,
            HttpMethod::Patch => MethodFilter::PATCH,
            HttpMethod::Trace => MethodFilter::TRACE,
        });
        filters.reduce(MethodFilter::or).map_or_else(MethodRouter::new, self.handler)
    }

    /// The parameters of its query.
    pub(in crate::http) fn parameters(&self) -> &'static [Field] {
        match self.input {
            Input::Query(fields) | Input::Read(fields) | Input::BodyOrDocument { query: fields, .. } => fields,
            Input::Nothing | Input::Body(_) | Input::Token => &[],
        }
    }

    /// The members of its body.
    pub(in crate::http) fn members(&self) -> &'static [Field] {
        match self.input {
            Input::Body(fields) | Input::BodyOrDocument { body: fields, .. } => fields,
            Input::Nothing | Input::Query(_) | Input::Read(_) | Input::Token => &[],
        }
    }

    /// The names of the members that stand beside the entities of its body.
    pub(in crate::http) fn beside_entities(&self) -> Vec<&'static str> {
        let beside = self.members().iter().filter(|field| !matches!(field.kind, FieldKind::Entities));
        beside.map(|field| field.name).collect()
    }
}

/// The routes of endpoints.
pub(in crate::http) fn routes(endpoints: impl Iterator<Item = &'static Endpoint>) -> Router<App> {
    endpoints.fold(Router::new(), |routes, endpoint| routes.route(endpoint.path, endpoint.route()))
}

/// The names of fields, in their order.
pub(in crate::http) fn names(fields: &[Field]) -> Vec<&'static str> {
    fields.iter().map(|field| field.name).collect()
}

impl Field {
    /// One that must be there.
    pub(in crate::http) const fn required(
        name: &'static str,
        kind: FieldKind,
        about: &'static str,
        example: fn() -> Value,
    ) -> Field {
        Field { name, need: Need::Required, kind, about, example }
    }

    /// One that may be absent.
    pub(in crate::http) const fn optional(
        name: &'static str,
        kind: FieldKind,
        about: &'static str,
        example: fn() -> Value,
    ) -> Field {
        Field { name, need: Need::Optional, kind, about, example }
    }
}

impl Answer {
    /// A record, as JSON.
    pub(in crate::http) const fn record<T: ToSchema + PartialSchema>(about: &'static str) -> Answer {
        Answer { schemas: record_schemas::<T>, ..Answer::of(about, &[]) }
    }

    /// One of these content types.
    pub(in crate::http) const fn of(about: &'static str, media: &'static [Medium]) -> Answer {
        Answer { about, schemas: Vec::new, media, headers: &[], not_modified: None }
    }
}

fn record_schemas<T: ToSchema + PartialSchema>() -> Vec<NamedSchema> {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    schemas
}
