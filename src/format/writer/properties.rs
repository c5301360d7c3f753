//! Parquet writer properties for the columns of a layout.

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use strata_store::Result;

use super::options::{DOCUMENT_PAGE_TARGET_BYTES, MAX_ROW_GROUP_ROWS};
use crate::layout::{DOCUMENT_COLUMN_NAME, FileLayout, HASH_COLUMN_NAME, LAYOUT_KEY, ShreddedPart, to_json_string};

/// Page size of all columns except the documents. Compression then works in reused memory within the processor's
/// caches.
const COLUMN_PAGE_TARGET_BYTES: usize = 128 << 10;
/// Max bytes of a string's minimum or maximum in the column statistics. Longer ones are truncated to bounds.
const MAX_STATISTICS_BYTES: usize = 32;

pub(super) fn writer_properties(layout: &FileLayout) -> Result<WriterProperties> {
    let metadata = to_json_string(layout)?;
    let column = |name: &str| ColumnPath::new(vec![name.to_owned()]);
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("strata ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_key_value_metadata(Some(vec![KeyValue::new(LAYOUT_KEY.to_owned(), metadata)]))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::None)
        // Each reader of a file keeps the column statistics in memory, so they must be small.
        .set_statistics_truncate_length(Some(MAX_STATISTICS_BYTES))
        .set_dictionary_enabled(false)
        // The default limit of 20,000 rows per page would split narrow columns without a benefit.
        .set_data_page_row_count_limit(MAX_ROW_GROUP_ROWS)
        .set_write_batch_size(32)
        .set_data_page_size_limit(COLUMN_PAGE_TARGET_BYTES)
        .set_column_data_page_size_limit(column(DOCUMENT_COLUMN_NAME), DOCUMENT_PAGE_TARGET_BYTES)
        .set_column_encoding(column(DOCUMENT_COLUMN_NAME), Encoding::PLAIN)
        .set_column_compression(column(DOCUMENT_COLUMN_NAME), Compression::ZSTD(ZstdLevel::try_new(2)?))
        .set_column_compression(column(HASH_COLUMN_NAME), Compression::UNCOMPRESSED);
    for (number, shredded) in layout.shredded_columns.iter().enumerate() {
        for kind in ShreddedPart::ALL {
            let mut parts = vec![kind.column_name(number)];
            if shredded.fans_out {
                parts.extend(["list".to_owned(), "element".to_owned()]);
            }
            let path = ColumnPath::new(parts);
            // Without a dictionary, these encodings separate lengths from texts, and the bytes of numbers from each
            // other, so that both compress better.
            let (dictionary, encoding) = match kind {
                ShreddedPart::Remainder => continue,
                ShreddedPart::Kind => (true, Encoding::PLAIN),
                ShreddedPart::Text => (shredded.dictionary, Encoding::DELTA_LENGTH_BYTE_ARRAY),
                ShreddedPart::Number => (shredded.dictionary, Encoding::BYTE_STREAM_SPLIT),
            };
            builder = builder
                .set_column_dictionary_enabled(path.clone(), dictionary)
                .set_column_encoding(path.clone(), encoding)
                .set_column_statistics_enabled(path, EnabledStatistics::Chunk);
        }
    }
    Ok(builder.build())
}
