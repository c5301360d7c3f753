//! The read endpoint as two operations of the document, one for each form of its path: all parameters of the registry,
//! all formats.

use serde_json::json;
use strata_types::request::Format;
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterIn};
use utoipa::openapi::schema::{AdditionalProperties, SchemaType};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ArrayBuilder, Components, ComponentsBuilder, Content, ContentBuilder, HttpMethod, ObjectBuilder, OneOfBuilder,
    OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref, Response, ResponseBuilder, Schema, Type,
};

use crate::description::headers::{self, CACHING, CORS, DATASET, EVERY, RATE};
use crate::description::{bytes, parameter, parameters, responses, text, typed};
use crate::params::{ITEMS_LIMIT, PARAMETERS, PATH_KEYS_LIMIT, QUERY_BYTES_LIMIT};

const TAG: &str = "read";

const PRIVATE_KEY: &str = "privateKey";

const ERRORS: &[u16] = &[400, 401, 403, 404, 405, 410, 412, 414, 416, 429, 500, 503];

/// What most answers carry.
const COMMON: &[&[&str]] = &[EVERY, RATE, DATASET, CACHING, CORS, &["X-Unknown-Parameters"]];

/// What tells of the entities of an answer.
const PAGE: &[&str] = &["X-Total-Count", "X-Total-Matches", "X-Unknown-Fields", "Link"];

pub(crate) fn section() -> OpenApi {
    // How a read authenticates, which is the default of the document: nothing, or the key. Generators of clients take
    // what an operation itself says for something that it needs.
    let security = [SecurityRequirement::default(), SecurityRequirement::new(PRIVATE_KEY, Vec::<String>::new())];
    let version = "Queries the entities of a version";
    let alternate = "Queries the entities of a version's alternate, like `alt=true`; returns 404 if the version has no \
                     alternate";
    let paths = PathsBuilder::new()
        .path("/api/{dataset_id}/{name_slug}/{version}", operation("readDataset", version))
        .path("/api/{dataset_id}/{name_slug}/{version}/alt", operation("readAlternate", alternate));
    let tag = TagBuilder::new().name(TAG).description(Some("Queries of a version's entities")).build();
    OpenApiBuilder::new().paths(paths).components(Some(components())).security(Some(security)).tags(Some([tag])).build()
}

fn operation(id: &str, summary: &str) -> PathItem {
    let mut operation =
        OperationBuilder::new().operation_id(Some(id)).tag(TAG).summary(Some(summary)).description(Some(format!(
            "Only GET is allowed, and the path can end with a `/`. strata applies the parameters in the order in which \
             they are listed here, regardless of their order in the URL. A request can contain up to {ITEMS_LIMIT} \
             filters, listed paths, and keywords in total. A path can have up to {PATH_KEYS_LIMIT} keys, and the query \
             string can have up to {QUERY_BYTES_LIMIT} bytes. strata ignores unknown parameters and lists them in \
             `X-Unknown-Parameters`. In `X-Unknown-Fields`, it lists the fields that no entity has. With \
             `strict=true`, it returns 400 in both cases. Booleans can also be `1` and `0`, and they are not \
             case-sensitive. Private datasets require their private key."
        )));
    let names = path_parameters().into_iter().chain(header_parameters()).map(|parameter| parameter.name);
    let queries = PARAMETERS.iter().map(|parameter| parameter.name.to_owned());
    for name in names.chain(queries) {
        operation = operation.parameter_ref(Ref::new(format!("#/components/parameters/{name}")));
    }
    let operation = operation
        .response("200", Ref::from_response_name("Entities"))
        .response("206", Ref::from_response_name("Part"))
        .response("304", Ref::from_response_name("NotModified"));
    let operation: Operation = responses::with_errors(operation, responses::ERRORS, ERRORS).build();
    PathItem::new(HttpMethod::Get, operation)
}

fn components() -> Components {
    let private_key = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The dataset's private key. Private datasets require it, and public datasets ignore it."))
        .build();
    let mut components = ComponentsBuilder::new()
        .security_scheme(PRIVATE_KEY, SecurityScheme::Http(private_key))
        .schema("Entity", entity())
        .schema("Count", count())
        .response("Entities", entities())
        .response("Part", part())
        .response("NotModified", not_modified());
    let queries = PARAMETERS.iter().map(parameters::described);
    for parameter in path_parameters().into_iter().chain(header_parameters()).chain(queries) {
        components = components.parameter(parameter.name.clone(), parameter);
    }
    components.build()
}

fn path_parameters() -> [Parameter; 3] {
    let versions = "^(active|latest|v(0|[1-9][0-9]*))$";
    [
        ("dataset_id", "The ID of the dataset.", typed(Type::Integer).minimum(Some(1_usize)), json!(1)),
        (
            "name_slug",
            "The dataset's slug, which is the dataset's name in lowercase, with hyphens. If the slug does not match \
             exactly, strata returns 404.",
            typed(Type::String).min_length(Some(1)),
            json!("world-countries"),
        ),
        (
            "version",
            "`active` (the pinned version, or the newest version if none is pinned), `latest` (the version with the \
             highest number), or `vN` (always exactly this version).",
            typed(Type::String).pattern(Some(versions)),
            json!("active"),
        ),
    ]
    .map(|(name, about, schema, example)| parameter(name, ParameterIn::Path, about, schema, Some(example)).build())
}

// `If-Match` is left out: tools that test by the document take each 412 for a fault.
fn header_parameters() -> [Parameter; 3] {
    [
        (
            "If-None-Match",
            "The `ETag` of a response that you already have. If the response has not changed, strata returns 304.",
            "\"8f14e45fceea167a\"",
        ),
        (
            "Range",
            "The range of a parquet file to return, as `bytes=first-last`. strata then returns 206. It ignores this \
             header for other formats.",
            "bytes=0-1023",
        ),
        (
            "If-Range",
            "The `ETag` of the file from which you request a range. If the file has changed, strata returns the whole \
             file.",
            "\"8f14e45fceea167a\"",
        ),
    ]
    .map(|(name, about, example)| {
        parameter(name, ParameterIn::Header, about, typed(Type::String), Some(example.into())).build()
    })
}

fn entity() -> Schema {
    let about = "The URL that the entity came from, if there is one.";
    let source = ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(about));
    let about = "An entity. The fields depend on the dataset, and can contain nested objects and arrays.";
    Schema::Object(
        typed(Type::Object)
            .description(Some(about))
            .property("_source", source)
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .build(),
    )
}

fn count() -> Schema {
    let integer = |about: &str| typed(Type::Integer).minimum(Some(0_usize)).description(Some(about));
    let properties = [
        ("count", integer("The number of entities that the same request would return without `count`.")),
        ("dataset_id", integer("The ID of the dataset.")),
        ("version", integer("The number of the version.")),
        ("alt", typed(Type::Boolean).description(Some("Whether strata counted the version's alternate."))),
    ];
    let schema = typed(Type::Object).description(Some("The response to a request with `count=true`."));
    let schema =
        properties.into_iter().fold(schema, |schema, (name, property)| schema.property(name, property).required(name));
    Schema::Object(schema.build())
}

fn entities() -> Response {
    let response = ResponseBuilder::new()
        .description("The entities in the requested format. With `count=true`, only their number, as JSON.");
    // Generators of clients that take one content type for all bodies take the first one: JSON.
    let response = Format::ALL
        .into_iter()
        .fold(response, |response, format| response.content(format.content_type(), content(format)));
    let table = &["Content-Disposition", "Accept-Ranges", "Content-Encoding"][..];
    headers::with(headers::with(response, COMMON), &[table, PAGE]).build()
}

fn part() -> Response {
    let response = ResponseBuilder::new()
        .description("The requested range of a parquet file.")
        .content(Format::Parquet.content_type(), content(Format::Parquet));
    let ranges = &["Content-Range", "Accept-Ranges", "Content-Disposition"][..];
    headers::with(headers::with(response, COMMON), &[ranges, PAGE]).build()
}

fn not_modified() -> Response {
    let response = ResponseBuilder::new().description("`If-None-Match` matches the current response.");
    headers::with(response, COMMON).build()
}

fn content(format: Format) -> Content {
    match format {
        Format::Json => {
            let entities = ArrayBuilder::new().items(Ref::from_schema_name("Entity"));
            let schema = OneOfBuilder::new().item(entities).item(Ref::from_schema_name("Count")).build();
            let countries = json!([{ "cca3": "ABW", "area": 180 }, { "cca3": "AFG", "area": 652_230 }]);
            ContentBuilder::new().schema(Some(Schema::OneOf(schema))).example(Some(countries)).build()
        }
        Format::Jsonl => text("{\"cca3\":\"ABW\",\"area\":180}\n{\"cca3\":\"AFG\",\"area\":652230}\n"),
        Format::Csv => text("cca3,area\nABW,180\nAFG,652230\n"),
        Format::Tsv => text("cca3\tarea\nABW\t180\nAFG\t652230\n"),
        Format::Xml => text(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><dataset><entity><cca3>ABW</cca3><area>180</area></entity>\
             <entity><cca3>AFG</cca3><area>652230</area></entity></dataset>",
        ),
        Format::Parquet => bytes(),
    }
}
