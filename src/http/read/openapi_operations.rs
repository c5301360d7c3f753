//! The read endpoint in the OpenAPI document: one operation for each form of its path, with all parameters of the
//! registry and all formats.

use serde_json::json;
use strata_types::read_request::ResponseFormat;
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterIn};
use utoipa::openapi::schema::{AdditionalProperties, SchemaType};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ArrayBuilder, Components, ComponentsBuilder, Content, ContentBuilder, HttpMethod, ObjectBuilder, OneOfBuilder,
    OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref, Required, Response, ResponseBuilder, Schema, Type,
};

use crate::openapi_components::response_headers::{
    self, CACHING_HEADERS, COMMON_HEADERS, CORS_HEADERS, DATASET_HEADERS, RATE_LIMIT_HEADERS,
};
use crate::openapi_components::{
    binary_content, error_responses, parameter_builder, read_parameters, schema_of_type, text_content,
};
use crate::params::{MAX_PATH_KEYS, MAX_QUERY_BYTES, MAX_QUERY_ITEMS, PARAMETERS};

const READ_TAG: &str = "read";
const PRIVATE_KEY_SCHEME: &str = "privateKey";
const READ_ERROR_STATUSES: &[u16] = &[400, 401, 403, 404, 405, 410, 412, 414, 416, 429, 500, 503];

const COMMON_READ_HEADERS: &[&[&str]] =
    &[COMMON_HEADERS, RATE_LIMIT_HEADERS, DATASET_HEADERS, CACHING_HEADERS, CORS_HEADERS, &["X-Unknown-Parameters"]];

const COMMON_CHANGES_HEADERS: &[&[&str]] =
    &[COMMON_HEADERS, RATE_LIMIT_HEADERS, DATASET_HEADERS, CACHING_HEADERS, CORS_HEADERS];

const PAGE_HEADERS: &[&str] = &["X-Total-Count", "X-Total-Matches", "X-Unknown-Fields", "Link"];

pub(crate) fn openapi_section() -> OpenApi {
    // The default security of the document is the security of reads: none, or the private key. Client generators treat
    // the security of a single operation as mandatory.
    let security = [SecurityRequirement::default(), SecurityRequirement::new(PRIVATE_KEY_SCHEME, Vec::<String>::new())];
    let version = "Queries the entities of a version";
    let alternate = "Queries the entities of a version's alternate, like `alt=true`; returns 404 if the version has no \
                     alternate";
    let paths = PathsBuilder::new()
        .path("/api/{dataset_id}/{name_slug}/{version}", read_operation("readDataset", version))
        .path("/api/{dataset_id}/{name_slug}/{version}/alt", read_operation("readAlternate", alternate))
        .path("/changes/{dataset_id}/{name_slug}/{version}", changes_operation())
        .path("/files/{dataset_id}/{name_slug}/{file}", file_operation());
    let tag = TagBuilder::new().name(READ_TAG).description(Some("Queries of a version's entities")).build();
    OpenApiBuilder::new()
        .paths(paths)
        .components(Some(read_components()))
        .security(Some(security))
        .tags(Some([tag]))
        .build()
}

fn read_operation(id: &str, summary: &str) -> PathItem {
    let mut operation =
        OperationBuilder::new().operation_id(Some(id)).tag(READ_TAG).summary(Some(summary)).description(Some(format!(
            "Only GET is allowed, and the path can end with a `/`. strata applies the parameters in the order in which \
             they are listed here, regardless of their order in the URL. A request can contain up to {MAX_QUERY_ITEMS} \
             filters, listed paths, and keywords in total. A path can have up to {MAX_PATH_KEYS} keys, and the query \
             string can have up to {MAX_QUERY_BYTES} bytes. strata ignores unknown parameters and lists them in \
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
    let operation: Operation =
        error_responses::with_error_refs(operation, error_responses::READ_ERRORS, READ_ERROR_STATUSES).build();
    PathItem::new(HttpMethod::Get, operation)
}

/// The parameters of reads that the name of a file replaces.
const FILE_NAME_PARAMETERS: [&str; 3] = ["format", "count", "alt"];

fn changes_operation() -> PathItem {
    let description = "Only GET is allowed, and the path can end with a `/`. Each line of the response is an edit with \
                       a `position` in the version `since`: `set` replaces an entity, `remove` removes it, and \
                       `insert` inserts entities before it. The positions ascend. The last line contains the SHA-256 \
                       of this version as JSON Lines, so that you can verify your copy. strata compares entities by \
                       their stored text. Private datasets require their private key.";
    let operation = OperationBuilder::new()
        .operation_id(Some("readChanges"))
        .tag(READ_TAG)
        .summary(Some("Returns the edits that turn another version into this one"))
        .description(Some(description));
    // Not references to components, because the reference pages describe those as the parameters of all reads.
    let [if_none_match, ..] = header_parameters();
    let parameters = path_parameters().into_iter().chain([if_none_match, since_parameter()]);
    let operation = parameters.fold(operation, OperationBuilder::parameter);
    let operation = operation
        .response("200", Ref::from_response_name("Changes"))
        .response("304", Ref::from_response_name("NotModified"));
    let statuses: Vec<u16> = READ_ERROR_STATUSES.iter().copied().filter(|status| *status != 416).collect();
    PathItem::new(
        HttpMethod::Get,
        error_responses::with_error_refs(operation, error_responses::READ_ERRORS, &statuses).build(),
    )
}

fn file_operation() -> PathItem {
    let description = "GET, HEAD, and OPTIONS are allowed. The response is the same as the response to a query of this \
                       version or alternate with this format, and you can use the same parameters except for `format`, \
                       `count`, and `alt`. JSON is compact unless you set `pretty=true`. A HEAD request ignores \
                       `Range`.";
    let operation = OperationBuilder::new()
        .operation_id(Some("readFile"))
        .tag(READ_TAG)
        .summary(Some("Returns a version as a file with a fixed URL"))
        .description(Some(description));
    let operation = operation.parameter(file_parameter());
    let parameters = ["dataset_id", "name_slug"].into_iter().map(str::to_owned);
    let parameters = parameters.chain(header_parameters().map(|parameter| parameter.name));
    let queries = PARAMETERS.iter().map(|parameter| parameter.name);
    let queries = queries.filter(|name| !FILE_NAME_PARAMETERS.contains(name)).map(str::to_owned);
    let operation = parameters.chain(queries).fold(operation, |operation, name| {
        operation.parameter_ref(Ref::new(format!("#/components/parameters/{name}")))
    });
    let operation = operation
        .response("200", Ref::from_response_name("File"))
        .response("206", Ref::from_response_name("Part"))
        .response("304", Ref::from_response_name("NotModified"));
    PathItem::new(
        HttpMethod::Get,
        error_responses::with_error_refs(operation, error_responses::READ_ERRORS, READ_ERROR_STATUSES).build(),
    )
}

fn since_parameter() -> Parameter {
    let description = "The version that you have, as `vN`. It can be older or newer than the requested version.";
    let schema = schema_of_type(Type::String).pattern(Some("^v(0|[1-9][0-9]*)$"));
    let builder = parameter_builder("since", ParameterIn::Query, description, schema, Some(json!("v1")));
    builder.required(Required::True).build()
}

fn file_parameter() -> Parameter {
    let description = "The version (`active`, `latest`, or `vN`), followed by `-alt` for the alternate, a dot, and the \
                       name of a format.";
    let formats = ResponseFormat::FILE_FORMATS.map(ResponseFormat::name).join("|");
    let pattern = format!("^(active|latest|v(0|[1-9][0-9]*))(-alt)?\\.({formats})$");
    let schema = schema_of_type(Type::String).pattern(Some(pattern));
    parameter_builder("file", ParameterIn::Path, description, schema, Some(json!("active.jsonl"))).build()
}

fn read_components() -> Components {
    let private_key = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The dataset's private key. Private datasets require it, and public datasets ignore it."))
        .build();
    let mut components = ComponentsBuilder::new()
        .security_scheme(PRIVATE_KEY_SCHEME, SecurityScheme::Http(private_key))
        .schema("Entity", entity_schema())
        .schema("Count", count_schema())
        .response("Entities", entities_response())
        .response("Part", partial_response())
        .response("Changes", changes_response())
        .response("File", file_response())
        .response("NotModified", not_modified_response());
    let queries = PARAMETERS.iter().map(read_parameters::parameter_component);
    for parameter in path_parameters().into_iter().chain(header_parameters()).chain(queries) {
        components = components.parameter(parameter.name.clone(), parameter);
    }
    components.build()
}

fn path_parameters() -> [Parameter; 3] {
    let versions = "^(active|latest|v(0|[1-9][0-9]*))$";
    [
        ("dataset_id", "The ID of the dataset.", schema_of_type(Type::Integer).minimum(Some(1_usize)), json!(1)),
        (
            "name_slug",
            "The dataset's slug, which is the dataset's name in lowercase, with hyphens. If the slug does not match \
             exactly, strata returns 404.",
            schema_of_type(Type::String).min_length(Some(1)),
            json!("world-countries"),
        ),
        (
            "version",
            "`active` (the pinned version, or the newest version if none is pinned), `latest` (the version with the \
             highest number), or `vN` (always exactly this version).",
            schema_of_type(Type::String).pattern(Some(versions)),
            json!("active"),
        ),
    ]
    .map(|(name, description, schema, example)| {
        parameter_builder(name, ParameterIn::Path, description, schema, Some(example)).build()
    })
}

// `If-Match` is not documented, because tools that test APIs by the document report every 412 as a failure.
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
    .map(|(name, description, example)| {
        parameter_builder(name, ParameterIn::Header, description, schema_of_type(Type::String), Some(example.into()))
            .build()
    })
}

fn entity_schema() -> Schema {
    let description = "The URL that the entity came from, if there is one.";
    let source = ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(description));
    let description = "An entity. The fields depend on the dataset, and can contain nested objects and arrays.";
    Schema::Object(
        schema_of_type(Type::Object)
            .description(Some(description))
            .property("_source", source)
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .build(),
    )
}

fn count_schema() -> Schema {
    let integer = |text: &str| schema_of_type(Type::Integer).minimum(Some(0_usize)).description(Some(text));
    let properties = [
        ("count", integer("The number of entities that the same request would return without `count`.")),
        ("dataset_id", integer("The ID of the dataset.")),
        ("version", integer("The number of the version.")),
        ("alt", schema_of_type(Type::Boolean).description(Some("Whether strata counted the version's alternate."))),
    ];
    let schema = schema_of_type(Type::Object).description(Some("The response to a request with `count=true`."));
    let schema =
        properties.into_iter().fold(schema, |schema, (name, property)| schema.property(name, property).required(name));
    Schema::Object(schema.build())
}

fn entities_response() -> Response {
    let response = ResponseBuilder::new()
        .description("The entities in the requested format. With `count=true`, only their number, as JSON.");
    // Client generators that use only one content type use the first one, which is JSON.
    let response = ResponseFormat::ALL
        .into_iter()
        .fold(response, |response, format| response.content(format.content_type(), format_content(format)));
    with_page_headers(response, &["Content-Disposition", "Accept-Ranges", "Content-Encoding"])
}

fn changes_response() -> Response {
    let example = "{\"position\":0,\"set\":{\"cca3\":\"ABW\",\"area\":180}}\n{\"position\":7,\"remove\":true}\n\
                   {\"version\":4,\"since\":3,\"entity_count\":249,\"content_sha256\":\
                   \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}\n";
    let response = ResponseBuilder::new()
        .description("The edits in the order of their positions, and a last line with the digest of this version.")
        .content(ResponseFormat::Jsonl.content_type(), text_content(example));
    let response = response_headers::with_header_refs(response, COMMON_CHANGES_HEADERS);
    response_headers::with_header_refs(response, &[&["X-Total-Changes", "Content-Encoding"]]).build()
}

fn file_response() -> Response {
    let response = ResponseBuilder::new().description("The entities in the format of the file.");
    let response = ResponseFormat::FILE_FORMATS
        .into_iter()
        .fold(response, |response, format| response.content(format.content_type(), format_content(format)));
    with_page_headers(response, &["Content-Disposition", "Accept-Ranges", "Content-Encoding", "Repr-Digest"])
}

fn partial_response() -> Response {
    let response = ResponseBuilder::new()
        .description("The requested range of a parquet file.")
        .content(ResponseFormat::Parquet.content_type(), format_content(ResponseFormat::Parquet));
    with_page_headers(response, &["Content-Range", "Accept-Ranges", "Content-Disposition"])
}

fn with_page_headers(response: ResponseBuilder, file_headers: &[&str]) -> Response {
    let response = response_headers::with_header_refs(response, COMMON_READ_HEADERS);
    response_headers::with_header_refs(response, &[file_headers, PAGE_HEADERS]).build()
}

fn not_modified_response() -> Response {
    let response = ResponseBuilder::new().description("`If-None-Match` matches the current response.");
    response_headers::with_header_refs(response, COMMON_READ_HEADERS).build()
}

fn format_content(format: ResponseFormat) -> Content {
    match format {
        ResponseFormat::Json => {
            let entities = ArrayBuilder::new().items(Ref::from_schema_name("Entity"));
            let schema = OneOfBuilder::new().item(entities).item(Ref::from_schema_name("Count")).build();
            let countries = json!([{ "cca3": "ABW", "area": 180 }, { "cca3": "AFG", "area": 652_230 }]);
            ContentBuilder::new().schema(Some(Schema::OneOf(schema))).example(Some(countries)).build()
        }
        ResponseFormat::Jsonl => text_content("{\"cca3\":\"ABW\",\"area\":180}\n{\"cca3\":\"AFG\",\"area\":652230}\n"),
        ResponseFormat::Csv => text_content("cca3,area\nABW,180\nAFG,652230\n"),
        ResponseFormat::Tsv => text_content("cca3\tarea\nABW\t180\nAFG\t652230\n"),
        ResponseFormat::Xml => text_content(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><dataset><entity><cca3>ABW</cca3><area>180</area></entity>\
             <entity><cca3>AFG</cca3><area>652230</area></entity></dataset>",
        ),
        ResponseFormat::Parquet | ResponseFormat::Arrow => binary_content(),
    }
}
