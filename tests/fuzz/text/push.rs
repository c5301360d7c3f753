//! Pushed JSON bodies with the entities and other members in any order. The input is a byte that selects the chunk
//! size, followed by the body.

use strata_ingest::DecodeOptions;
use strata_reference::{Value, number};

use super::decoding::decode_push;

pub fn check(bytes: &[u8]) {
    let Some((pieces, body)) = bytes.split_first() else { return };
    let options = DecodeOptions { max_entity_bytes: 4096, max_source_bytes: 1 << 20, ..DecodeOptions::default() };
    let (whole, integer) = decode_push(body, usize::MAX, &options);
    whole.assert_valid(&options);
    let cut = DecodeOptions { window_bytes: 1 + usize::from(pieces % 16), ..options };
    let again = decode_push(body, 1 + usize::from(pieces / 16), &cut);
    if !body.starts_with(&[0x1f, 0x8b]) && !body.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        assert_eq!(again, (whole.clone(), integer.clone()), "in pieces");
    }

    // A document that is not too deep and contains the array once must yield exactly its members.
    let Ok(text) = std::str::from_utf8(body) else { return };
    let opened = text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    let escaped = text.contains("\\u");
    if opened > 120 || escaped || text.matches("\"entities\"").count() != 1 {
        return;
    }
    let Ok(envelope @ Value::Object(_)) = Value::parse_at(text, 0) else { return };
    let Value::Object(members) = &envelope else { return };
    if members.iter().any(|(name, _)| name != "entities" && name != "dataset_id") {
        assert!(whole.error.is_some(), "{text}");
        return;
    }
    let Some(Value::Array(items)) = envelope.get("entities") else { return };
    if items.iter().all(|item| matches!(item, Value::Object(_))) {
        assert_eq!(whole.error, None, "{text}");
        assert_eq!(whole.entities, items.iter().map(Value::write).collect::<Vec<_>>(), "{text}");
        let whole_number = |text: &str| (0..=20_u64).find(|it| number::compare(text, &it.to_string()).is_eq());
        match envelope.get("dataset_id") {
            None | Some(Value::Null) => assert_eq!(integer, Ok(None), "{text}"),
            Some(Value::Number(text)) => {
                if let Some(expected) = whole_number(text) {
                    assert_eq!(integer, Ok(Some(expected)), "{text}");
                }
            }
            Some(_) => assert!(integer.is_err(), "{text}"),
        }
    }
}
