//! Version files with changed bytes. Reading must return entities or an error, but never panic, hang, or use unlimited
//! memory. The input is a byte that selects the file, followed by changes of four bytes each: two for the position, one
//! for the kind of the change, and one for the value.

use std::sync::LazyLock;

use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::keywords::field_set::FieldSet;
use strata_format::keywords::tokenizer::TermQuery;
use strata_format::layout::ShreddedPart;
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use super::bench::{FileBench, layout};

static BENCH: LazyLock<FileBench> = LazyLock::new(FileBench::new);
static FILES: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let entity = |number: usize| {
        format!(
            r#"{{"n":{number},"Name":"Entity {number}","tags":["A","b",{number}],"x":null,"deep":{{"y":1e{number}}}}}"#
        )
    };
    let write = |(count, choice): (usize, u8)| {
        let (path, _) = BENCH.write(&(0..count).map(entity).collect::<Vec<_>>(), &layout(choice));
        let get = async { BENCH.store.object_store().get(&path).await?.bytes().await };
        BENCH.runtime.block_on(get).expect("an object")
    };
    [(0, 3), (1, 7), (40, 7), (20, 6), (12, 10), (300, 3), (40, 79)].map(write).into()
});

pub fn check(bytes: &[u8]) {
    let Some((choice, changes)) = bytes.split_first() else { return };
    let whole = &FILES[usize::from(*choice) % FILES.len()];
    let mut file = whole.to_vec();
    let mut size = whole.len() as u64;
    for change in changes.chunks_exact(4) {
        let [low, high, how, value] = *change else { unreachable!("four bytes") };
        let place = usize::from(u16::from_le_bytes([low, high]));
        if file.is_empty() {
            break;
        }
        let length = file.len();
        // Most of the bytes that a reader trusts are at the end.
        let at = if how & 1 == 0 { length - 1 - place % length } else { place % length };
        match how / 2 % 8 {
            0..4 => file[at] ^= value,
            4 => file[at] = value,
            5 => file.truncate(at),
            6 => drop(file.drain(at..length.min(at + usize::from(value)))),
            _ => size = size.wrapping_add_signed(i64::from(value as i8)),
        }
    }
    let unchanged = file == *whole && size == whole.len() as u64;

    let path = ObjectPath::from("versions/damaged.parquet");
    let read = async {
        BENCH.store.object_store().put(&path, file.into()).await?;
        read_all(&path, size).await
    };
    match BENCH.runtime.block_on(read) {
        Ok(()) => {}
        Err(error) => {
            assert!(!unchanged, "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

async fn read_all(path: &ObjectPath, size: u64) -> Result<(), StorageError> {
    let reader = VersionReader::open(&BENCH.store, path, size, &PartCache::new(0)).await?;
    reader.profile().await?;
    let mut entities = 0;
    for (row_group, span) in reader.row_groups().iter().enumerate() {
        assert_eq!(reader.read_entity_hashes(row_group).await?.len(), span.rows);
        for shredded in 0..reader.layout().shredded_columns.len() {
            for part in ShreddedPart::ALL {
                if let Some(array) = reader.read_shredded(row_group, shredded, part).await? {
                    assert_eq!(array.len(), span.rows);
                }
            }
            reader.number_range(row_group, shredded);
            reader.may_have_null(row_group, shredded);
        }
        for page in 0..reader.page_count(row_group) {
            entities += reader.read_document_page(row_group, page).await?.len() as u64;
        }
    }
    assert_eq!(entities, reader.entity_count());
    for segment in 0..reader.keyword_index().segments.len() {
        for needle in ["entity", "1", "y 1", "a1", "-"] {
            let query = TermQuery::from_needle(needle.as_bytes());
            reader.keyword_candidates(segment, &query, FieldSet::ALL).await?;
        }
    }
    Ok(())
}
