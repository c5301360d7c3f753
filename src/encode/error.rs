//! The errors between entities and the bytes of an answer.

/// An answer could not be encoded. The text formats cannot fail.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("compression: {0}")]
    Compression(std::io::Error),
    /// A page is larger than Parquet's sizes are.
    #[error("parquet: a page is larger than 2 GiB")]
    PageTooLarge,
}
