//! The errors between entities and the bytes of an answer.

/// An answer could not be encoded. The text formats cannot fail.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The Parquet writer failed.
    #[error("parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Arrow could not hold the cells.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
}
