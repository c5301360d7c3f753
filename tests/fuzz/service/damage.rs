//! Version files of which bytes have changed: reading gives entities or an error, never a panic, a hang or memory
//! without end. The input: a byte that chooses the file, then changes of four bytes each: two for the place, one for
//! how it counts, one for the value.

use std::sync::LazyLock;

use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::keywords::cut::Plan;
use strata_format::layout::ShreddedPart;
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use super::bench::{Bench, layout};

static BENCH: LazyLock<Bench> = LazyLock::new(Bench::new);
static FILES: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let entity = |number: usize| {
        format!(
            r#"{{"n":{number},"Name":"Entity {number}","tags":["A","b",{number}],"x":null,"deep":{{"y":1e{number}}}}}"#
        )
    };
    let write = |(count, choice): (usize, u8)| {
        let (path, _) = BENCH.write(&(0..count).map(entity).collect::<Vec<_>>(), &layout(choice));
        let get = async { BENCH.store.objects().get(&path).await?.bytes().await };
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
        // Most of what a reader trusts stands at the end.
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
        BENCH.store.objects().put(&path, file.into()).await?;
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
    for (row_group, place) in reader.row_groups().iter().enumerate() {
        assert_eq!(reader.search(row_group).await?.len(), place.rows);
        assert_eq!(reader.hashes(row_group).await?.len(), place.rows);
        if let Some(shapes) = reader.shapes(row_group).await? {
            assert_eq!(shapes.rows(), place.rows);
        }
        for shredded in 0..reader.layout().shredded_columns.len() {
            for column in ShreddedPart::ALL {
                if let Some(array) = reader.shredded(row_group, shredded, column).await? {
                    assert_eq!(array.len(), place.rows);
                }
            }
            reader.may_hold_text(row_group, shredded, b"entity 1").await?;
            reader.number_range(row_group, shredded);
            reader.holds_null(row_group, shredded);
        }
        for page in 0..reader.page_count(row_group) {
            entities += reader.documents(row_group, page).await?.len() as u64;
        }
    }
    assert_eq!(entities, reader.entity_count());
    for segment in 0..reader.keyword_index().segments.len() {
        for needle in ["entity", "1", "y 1", "a1", "-"] {
            reader.keyword_candidates(segment, &Plan::of(needle.as_bytes())).await?;
        }
    }
    Ok(())
}
