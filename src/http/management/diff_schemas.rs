//! The Diff result and its records (docs/reference/diffs.md, Diffs).

use serde_json::{Value, json};
use strata_diff::ChangeType;
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ArrayBuilder, Content, ContentBuilder, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type};

use crate::description::typed;
use crate::endpoint::NamedSchema;

const DIFF_RESULT: &str = "DiffResult";
const DIFF_RECORD: &str = "DiffRecord";
const FIELD_DIFF: &str = "FieldDiff";

pub(super) fn schemas() -> Vec<NamedSchema> {
    let number = |description: &str| typed(Type::Integer).minimum(Some(0_usize)).description(Some(description)).into();
    let text = |description: &str| typed(Type::String).description(Some(description)).into();
    let any = |description: &str| {
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(description)).into()
    };
    let list = |of: &str, description: &str| {
        ArrayBuilder::new().items(Ref::from_schema_name(of)).description(Some(description)).into()
    };
    let change_type = typed(Type::String)
        .enum_values(Some(ChangeType::ALL.map(ChangeType::name)))
        .description(Some("The type of change. `v1` is null for `added`, and `v2` is null for `subtracted`."));
    let result = [
        ("added", number("The number of entities in v2 but not in v1.")),
        ("subtracted", number("The number of entities in v1 but not in v2.")),
        ("modified", number("The number of entities that are in both versions but differ in at least one field.")),
        ("total_v1", number("The number of entities in v1.")),
        ("total_v2", number("The number of entities in v2.")),
        (
            "records",
            list(
                DIFF_RECORD,
                "The modified and subtracted entities in the order of v1, followed by the added entities in the order \
                 of v2.",
            ),
        ),
    ];
    let record = [
        (
            "id",
            text("`m`, `s`, or `a`, followed by the zero-based positions in v1 and v2. Examples: `m3-4`, `s5`, `a6`."),
        ),
        ("change_type", change_type.into()),
        ("source", text("The text of `_source`, or an empty string if there is none.")),
        ("v1", entity_or_null("The entity in v1.")),
        ("v2", entity_or_null("The entity in v2.")),
        (
            "field_diffs",
            list(FIELD_DIFF, "The changed fields of a modified entity in the order of v1, followed by the new fields."),
        ),
    ];
    let field = [
        ("field", text("The name of a top-level field.")),
        ("v1", any("The value in v1, or null if the field is missing.")),
        ("v2", any("The value in v2, or null if the field is missing.")),
    ];
    vec![
        (DIFF_RESULT.to_owned(), object("The differences between two versions.", result)),
        (DIFF_RECORD.to_owned(), object("An entity that differs between the versions.", record)),
        (FIELD_DIFF.to_owned(), object("A field that differs between the versions.", field)),
    ]
}

fn entity_or_null(description: &str) -> RefOr<Schema> {
    let null = typed(Type::Null);
    let either = OneOfBuilder::new().item(Ref::from_schema_name("Entity")).item(null).description(Some(description));
    Schema::OneOf(either.build()).into()
}

fn object<const N: usize>(description: &str, properties: [(&str, RefOr<Schema>); N]) -> RefOr<Schema> {
    let object = typed(Type::Object).description(Some(description));
    let with =
        |object: ObjectBuilder, (name, schema): (&str, RefOr<Schema>)| object.property(name, schema).required(name);
    properties.into_iter().fold(object, with).into()
}

pub(super) fn lines() -> Content {
    let text = typed(Type::String).build();
    ContentBuilder::new().schema(Some(text)).example(Some(format!("{}\n", example()).into())).build()
}

fn example() -> Value {
    json!({
        "id": "m0-0",
        "change_type": "modified",
        "source": "",
        "v1": { "name": "Aruba", "area": 180 },
        "v2": { "name": "Aruba", "area": 181 },
        "field_diffs": [{ "field": "area", "v1": 180, "v2": 181 }],
    })
}
