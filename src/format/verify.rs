//! Full verification of a version file:
//!
//! 1. All bytes are compared with the checksums of the file.
//! 2. The documents are hashed and compared with the content hash.
//! 3. The other columns are computed again from the documents and compared. The profile has a hash.
//!
//! [`verify_and_hash`] reads only the file itself. [`verify_and_digest`] also reads the documents of the bases.

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::cast;
use sha2::{Digest, Sha256};
use strata_runtime::blocking::run_blocking;
use strata_store::{Result, StorageError};

use super::reader::{FileReader, NoReadThrottle, ReadThrottle, VersionReader};
use super::shredder::EntityShredder;

const VERIFY_BATCH_ROWS: usize = 2_048;

/// Returns the content hash ([`super::layout::FileLayout::content_sha256`]). Needs memory for one decoded row group,
/// and about as much time as writing the file. The bases of a delta file are not read.
pub async fn verify_and_hash(reader: &VersionReader, throttle: &mut dyn ReadThrottle) -> Result<String> {
    reader.verify_checksums(throttle).await?;
    let list = reader;
    let reader = reader.version_file();
    let mut content = Sha256::new();
    let mut shredder = EntityShredder::new(&reader.footer.layout, None);
    let mut entities = 0;
    for row_group in 0..reader.footer.extent_list.row_groups.len() {
        let mut documents =
            ColumnVerifier { documents: Vec::new(), first_row: 0, columns: read_all_columns(reader, row_group).await? };
        for page in 0..reader.page_count(row_group) {
            let page = reader.read_document_page(row_group, page).await?;
            for row in page.rows() {
                let document = page.document(row);
                content.update(document);
                content.update(b"\n");
                let text = std::str::from_utf8(document)
                    .map_err(|_| file_damaged(&format!("entity {} is not valid UTF-8", entities + 1)))?;
                documents.documents.push(text.to_owned());
                entities += 1;
                if documents.documents.len() == VERIFY_BATCH_ROWS {
                    (documents, shredder) = documents.verify_columns(shredder).await?;
                }
            }
        }
        (documents, shredder) = documents.verify_columns(shredder).await?;
        if documents.first_row != reader.footer.extent_list.row_groups[row_group].rows {
            return Err(file_damaged("a row group has the wrong number of entities"));
        }
        throttle.throttle(reader.stored_bytes(row_group)).await;
    }
    let layout = &reader.footer.layout;
    let expected = layout.stored_row_count();
    if entities != expected {
        return Err(file_damaged(&format!("it contains {entities} entities instead of {expected}")));
    }
    let profile = list.profile().await?;
    if (profile.entities, profile.document_bytes) != (layout.entity_count, layout.document_bytes) {
        return Err(file_damaged("its profile belongs to another version"));
    }
    let content = hex::encode(content.finalize());
    match &list.layout().overlay {
        None => Ok(content),
        Some(overlay) if overlay.own_sha256 == content => Ok(list.layout().content_sha256.clone()),
        Some(_) => Err(file_damaged("its entities do not match their hash")),
    }
}

/// Verifies a version file like [`verify_and_hash`], and the documents of its bases. Returns the SHA-256 of the version
/// as JSON Lines in hexadecimal.
///
/// For a complete file and for a delta file of a refresh, this digest must equal the content hash. The content hash of
/// an edited list covers only the hashes and extents of its files ([`Overlay::content_sha256`]). The documents of its
/// bases are therefore compared only with the checksums of their pages.
///
/// Streams the documents in order. Needs memory for one decoded row group.
///
/// [`Overlay::content_sha256`]: super::overlay::Overlay::content_sha256
pub async fn verify_and_digest(reader: &VersionReader) -> Result<String> {
    let verified = verify_and_hash(reader, &mut NoReadThrottle).await?;
    let layout = reader.layout();
    let digest = match &layout.overlay {
        None => verified,
        Some(_) => digest_documents(reader).await?,
    };
    let is_edited = layout.overlay.as_ref().is_some_and(|overlay| overlay.content_sha256() == layout.content_sha256);
    match is_edited || digest == layout.content_sha256 {
        true => Ok(digest),
        false => Err(file_damaged("its entities do not match their hash")),
    }
}

/// Returns the SHA-256 of all documents of the list, each followed by a line feed.
async fn digest_documents(reader: &VersionReader) -> Result<String> {
    let mut content = Sha256::new();
    let mut entities = 0;
    for row_group in 0..reader.row_groups().len() {
        let mut next_page = 0;
        let page_count = reader.page_count(row_group);
        while next_page < page_count {
            let pages = reader.read_document_pages(row_group, next_page..page_count).await?;
            next_page += pages.len();
            for page in pages {
                for row in page.rows() {
                    content.update(page.document(row));
                    content.update(b"\n");
                    entities += 1;
                }
            }
        }
    }
    let expected = reader.entity_count();
    if entities != expected {
        return Err(file_damaged(&format!("its list contains {entities} entities instead of {expected}")));
    }
    Ok(hex::encode(content.finalize()))
}

async fn read_all_columns(reader: &FileReader, row_group: usize) -> Result<Vec<ArrayRef>> {
    let mut columns = Vec::new();
    for column in 1..reader.footer.layout.schema().fields().len() {
        columns.push(reader.read_column(row_group, column).await?);
    }
    Ok(columns)
}

struct ColumnVerifier {
    documents: Vec<String>,
    first_row: usize,
    columns: Vec<ArrayRef>,
}

impl ColumnVerifier {
    /// Compares stored columns with columns of the pending documents, on a blocking thread, because this can take long.
    async fn verify_columns(mut self, mut shredder: EntityShredder) -> Result<(ColumnVerifier, EntityShredder)> {
        let compare = move || self.verify_columns_blocking(&mut shredder).map(|()| (self, shredder));
        run_blocking(compare).await?
    }

    fn verify_columns_blocking(&mut self, shredder: &mut EntityShredder) -> Result<()> {
        let documents = StringArray::from_iter_values(self.documents.drain(..));
        let rows = documents.len();
        let batch = shredder.shred(&documents)?;
        let schema = batch.schema();
        for (index, stored) in self.columns.iter().enumerate() {
            let expected = batch.column(index + 1);
            let name = schema.field(index + 1).name();
            if stored.len() < self.first_row + rows {
                return Err(file_damaged(&format!("the column {name} has too few rows")));
            }
            let stored = cast(&stored.slice(self.first_row, rows), expected.data_type())?;
            if *stored != **expected {
                return Err(file_damaged(&format!("the column {name} does not match the documents")));
            }
        }
        self.first_row += rows;
        Ok(())
    }
}

fn file_damaged(what: &str) -> StorageError {
    StorageError::InvalidFile(format!("it is damaged: {what}"))
}
