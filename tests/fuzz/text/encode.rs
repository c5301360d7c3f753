//! Entities in every text format. The input is a byte that selects the format, followed by one entity on each line.

use std::sync::Arc;

use strata_encode::{self as encode, EncodedSizeLimit, ListContents, ListElement};
use strata_json::TableColumnNamesBuilder;
use strata_reference::pipeline::{self, Body};
use strata_reference::{Value, formats};
use strata_types::read_request::{ReadRequest, ResponseFormat};

use crate::harness::text;

const FORMATS: [ResponseFormat; 5] =
    [ResponseFormat::Json, ResponseFormat::Jsonl, ResponseFormat::Csv, ResponseFormat::Tsv, ResponseFormat::Xml];

pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let entities: Vec<Value> =
        text(rest).lines().take(8).filter_map(|entity| Value::parse_entity(entity).ok()).collect();
    let request = ReadRequest {
        format: FORMATS[usize::from(choice % 5)],
        flatten: choice & 0x20 != 0,
        pretty: choice & 0x40 != 0,
        ..ReadRequest::default()
    };
    let documents: Vec<String> = entities.iter().map(Value::write).collect();

    let mut builder = TableColumnNamesBuilder::new(usize::MAX);
    documents.iter().for_each(|document| builder.add_entity(document.as_bytes()).expect("no limit"));
    let columns = builder.finish();
    if !entities.is_empty() {
        assert_eq!(columns.names(), formats::columns(&entities));
    }

    let encoder = encode::new_text_encoder(&request, Some(Arc::new(columns)), EncodedSizeLimit::new(1 << 30))
        .expect("a text format");
    let mut out = Vec::new();
    let contents = ListContents::from_entity_count(documents.len() as u64);
    encoder.write_header(contents, &mut out);
    for (ordinal, document) in (0..).zip(&documents) {
        encoder
            .write_entity(document.as_bytes(), ListElement::from_ordinal(ordinal), &mut out)
            .expect("the entity exceeds the limit");
    }
    encoder.write_footer(contents, &mut out);
    let found = Body::Text(String::from_utf8(out).expect("UTF-8"));
    assert_eq!(found, pipeline::body(&entities, &entities, &request));
}
