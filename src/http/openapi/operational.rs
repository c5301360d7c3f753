//! The operations for those who run the service, and the document itself.

use utoipa::openapi::path::{Operation, OperationBuilder, Paths};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, Content, ContentBuilder, HttpMethod, ObjectBuilder, PathItem, PathsBuilder, ResponseBuilder, Type,
};

use super::Section;
use super::headers::{self, CACHING, CORS, EVERY};
use super::responses::{TEXT, with_errors};

const TAG: &str = "operational";

pub(super) fn section() -> Section {
    Section {
        tags: vec![TagBuilder::new().name(TAG).description(Some("Health, metrics, and this document")).build()],
        paths: paths(),
        components: Components::new(),
    }
}

fn paths() -> Paths {
    PathsBuilder::new()
        .path("/healthz", get(healthz()))
        .path("/readyz", get(readyz()))
        .path("/metrics", get(metrics()))
        .path("/openapi.json", get(openapi()))
        .build()
}

fn get(operation: OperationBuilder) -> PathItem {
    let operation: Operation = operation.tag(TAG).build();
    PathItem::new(HttpMethod::Get, operation)
}

fn healthz() -> OperationBuilder {
    OperationBuilder::new()
        .operation_id(Some("getHealth"))
        .summary(Some("Whether the process answers"))
        .response("200", answer("The process answers.", TEXT, text("ok")))
}

fn readyz() -> OperationBuilder {
    let operation = OperationBuilder::new()
        .operation_id(Some("getReadiness"))
        .summary(Some("Whether the catalog and the store can be written, too"))
        .response("200", answer("The service can serve requests.", TEXT, text("ok")));
    with_errors(operation, &[503])
}

fn metrics() -> OperationBuilder {
    let example = text("# TYPE strata_requests_total counter\nstrata_requests_total 1\n");
    OperationBuilder::new()
        .operation_id(Some("getMetrics"))
        .summary(Some("Metrics in the text format of Prometheus"))
        .response("200", answer("All metrics.", "text/plain; version=0.0.4", example))
}

fn openapi() -> OperationBuilder {
    let any_object = ContentBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(SchemaType::Type(Type::Object)).build()))
        .build();
    let tagged = &[EVERY, CORS, CACHING];
    OperationBuilder::new()
        .operation_id(Some("getOpenApi"))
        .summary(Some("This document"))
        .response("200", headers::with(answer("An OpenAPI 3.1 document.", "application/json", any_object), tagged))
        .response(
            "304",
            headers::with(ResponseBuilder::new().description("`If-None-Match` names the document."), tagged),
        )
}

fn answer(description: &str, content_type: &str, content: Content) -> ResponseBuilder {
    headers::with(ResponseBuilder::new().description(description).content(content_type, content), &[EVERY])
}

fn text(example: &str) -> Content {
    let schema = ObjectBuilder::new().schema_type(Type::String).build();
    ContentBuilder::new().schema(Some(schema)).example(Some(example.into())).build()
}
