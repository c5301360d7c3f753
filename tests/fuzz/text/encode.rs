//! Entities in every text format. The input: a byte that chooses the format, then an entity on each line.

use std::sync::Arc;

use strata_encode::{self as encode, EntityBound};
use strata_json::ColumnsBuilder;
use strata_reference::pipeline::{self, Body};
use strata_reference::{Value, formats};
use strata_types::request::{Format, ReadRequest};

use crate::harness::text;

const FORMATS: [Format; 5] = [Format::Json, Format::Jsonl, Format::Csv, Format::Tsv, Format::Xml];

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

    let mut builder = ColumnsBuilder::new(usize::MAX);
    documents.iter().for_each(|document| builder.add(document.as_bytes()).expect("no limit"));
    let columns = builder.finish();
    if !entities.is_empty() {
        assert_eq!(columns.names(), formats::columns(&entities));
    }

    let encoder =
        encode::text_encoder(&request, Some(Arc::new(columns)), EntityBound::new(1 << 30)).expect("a text format");
    let mut out = Vec::new();
    encoder.begin(documents.is_empty(), &mut out);
    for (number, document) in documents.iter().enumerate() {
        encoder.entity(document.as_bytes(), number == 0, &mut out).expect("within the bound");
    }
    encoder.end(documents.is_empty(), &mut out);
    let found = Body::Text(String::from_utf8(out).expect("UTF-8"));
    assert_eq!(found, pipeline::body(&entities, &entities, &request));
}
