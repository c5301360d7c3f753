//! How Parquet is to write the columns of a layout.

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use strata_store::Result;

use super::options::{DOCUMENT_PAGE_BYTES, ROW_GROUP_ROWS};
use crate::layout::{DOCUMENT, HASH, Layout, METADATA_KEY, SEARCH, ShreddedPart, json_text};
use crate::profile::DISTINCT;

/// A page of another column ends at so many bytes. What is compressed at once then stays in the cache of a processor,
/// in memory that is used again: search texts take a quarter less time to write than in pages of 1 MiB, and 2 % more
/// bytes.
const PAGE_BYTES: usize = 128 << 10;

/// Bytes of a text's minimum and maximum in the statistics of a column. Longer ones are cut to bounds of them.
const STATISTICS_BYTES: usize = 32;

pub(super) fn properties(layout: &Layout) -> Result<WriterProperties> {
    let metadata = json_text(layout)?;
    let column = |name: &str| ColumnPath::new(vec![name.to_owned()]);
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("strata ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_key_value_metadata(Some(vec![KeyValue::new(METADATA_KEY.to_owned(), metadata)]))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::None)
        // The minimum and the maximum of texts stand in the footer, which every reader holds.
        .set_statistics_truncate_length(Some(STATISTICS_BYTES))
        .set_dictionary_enabled(false)
        // Pages are cut by bytes; the default of 20,000 rows would cut narrow columns for nothing.
        .set_data_page_row_count_limit(ROW_GROUP_ROWS)
        .set_write_batch_size(32)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_column_data_page_size_limit(column(DOCUMENT), DOCUMENT_PAGE_BYTES)
        .set_column_encoding(column(DOCUMENT), Encoding::PLAIN)
        .set_column_compression(column(HASH), Compression::UNCOMPRESSED)
        .set_column_encoding(column(SEARCH), Encoding::PLAIN);
    for (number, shredded) in layout.shredded_columns.iter().enumerate() {
        for kind in ShreddedPart::ALL {
            let mut parts = vec![kind.name(number)];
            if shredded.fans_out {
                parts.extend(["list".to_owned(), "element".to_owned()]);
            }
            let path = ColumnPath::new(parts);
            let dictionary = match kind {
                ShreddedPart::Remainder => continue,
                ShreddedPart::Kind => true,
                ShreddedPart::Text | ShreddedPart::Exact | ShreddedPart::Number => shredded.dictionary,
            };
            builder = builder
                .set_column_dictionary_enabled(path.clone(), dictionary)
                .set_column_statistics_enabled(path.clone(), EnabledStatistics::Chunk);
            if kind == ShreddedPart::Text {
                let distinct = if shredded.dictionary { DISTINCT } else { ROW_GROUP_ROWS };
                builder = builder
                    .set_column_bloom_filter_enabled(path.clone(), true)
                    .set_column_bloom_filter_max_ndv(path, distinct as u64);
            }
        }
    }
    Ok(builder.build())
}
