//! Whether a version file holds what it was written with: a full read.
//!
//! 1. Every byte is compared with the checksums of the file.
//! 2. The documents are hashed as the spool hashed them.
//! 3. Every other column is a function of the documents, and so are the shapes, so they are computed anew and compared;
//!    the profile has a hash of its own.
//!
//! So a damaged byte is found at any place in the file.

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::cast;
use sha2::{Digest, Sha256};
use strata_runtime::blocking::blocking;
use strata_store::{Result, StorageError};

use super::reader::{FileReader, Pace, VersionReader};
use super::shapes::builder::ShapeLimits;
use super::shapes::decoded::Shapes;
use super::shred::Shredder;

const BATCH_ROWS: usize = 2_048;

/// Reads a whole file and returns the hash of its entities ([`super::layout::Layout::content_sha256`]). Holds a decoded
/// row group; costs about as much as writing the file. `pace` is told of the bytes that are read, and may wait. Of an
/// edited file its own entities are read: its base is a file of its own.
pub async fn verify(reader: &VersionReader, pace: &mut dyn Pace) -> Result<String> {
    reader.verify_checksums(pace).await?;
    let list = reader;
    let reader = reader.own();
    let mut content = Sha256::new();
    // Whatever bounds they were written within.
    let any = ShapeLimits { share_percent: u64::MAX, ..ShapeLimits::default() };
    let mut shredder = Shredder::new(&reader.footer.layout, (!reader.footer.list.shapes.is_empty()).then_some(any));
    let mut entities = 0;
    for row_group in 0..reader.footer.list.row_groups.len() {
        let mut documents = Documents { texts: Vec::new(), first: 0, columns: columns(reader, row_group).await? };
        for page in 0..reader.page_count(row_group) {
            let page = reader.documents(row_group, page).await?;
            for row in page.rows() {
                let document = page.document(row);
                content.update(document);
                content.update(b"\n");
                let text = std::str::from_utf8(document)
                    .map_err(|_| damaged(&format!("entity {} is not valid UTF-8", entities + 1)))?;
                documents.texts.push(text.to_owned());
                entities += 1;
                if documents.texts.len() == BATCH_ROWS {
                    (documents, shredder) = documents.compare(shredder).await?;
                }
            }
        }
        (documents, shredder) = documents.compare(shredder).await?;
        if documents.first != reader.footer.list.row_groups[row_group].rows {
            return Err(damaged("a row group has the wrong number of entities"));
        }
        let rows = documents.first;
        let computed = shredder.take_shapes().map(|bytes| Shapes::decode(&bytes, rows)).transpose();
        let computed = computed.map_err(|error| StorageError::Layout(error.to_string()))?;
        if let (Some(stored), Some(computed)) = (reader.shapes(row_group).await?, computed)
            && *stored != computed
        {
            return Err(damaged("the path index does not match the documents"));
        }
        pace.spent(reader.stored_bytes(row_group)).await;
    }
    let layout = &reader.footer.layout;
    if entities != layout.own_entities() {
        return Err(damaged(&format!("it contains {entities} entities instead of {}", layout.own_entities())));
    }
    let profile = list.profile().await?;
    if (profile.entities, profile.document_bytes) != (layout.entity_count, layout.document_bytes) {
        return Err(damaged("its profile belongs to another version"));
    }
    let content = hex::encode(content.finalize());
    match &list.layout().edit {
        None => Ok(content),
        Some(edit) if edit.own_sha256 == content => Ok(edit.content_sha256()),
        Some(_) => Err(damaged("its delta entities do not match their hash")),
    }
}

/// The columns of a row group but the documents, in the order of the layout's schema.
async fn columns(reader: &FileReader, row_group: usize) -> Result<Vec<ArrayRef>> {
    let mut columns = Vec::new();
    for column in 1..reader.footer.layout.schema().fields().len() {
        columns.push(reader.column(row_group, column).await?);
    }
    Ok(columns)
}

struct Documents {
    texts: Vec<String>,
    first: usize,
    columns: Vec<ArrayRef>,
}

impl Documents {
    /// Computes the columns of the documents that wait, and compares them with those of the file: on a thread for what
    /// takes long, as a batch of large documents does.
    async fn compare(mut self, mut shredder: Shredder) -> Result<(Documents, Shredder)> {
        let compare = move || self.compare_now(&mut shredder).map(|()| (self, shredder));
        blocking(compare).await?
    }

    fn compare_now(&mut self, shredder: &mut Shredder) -> Result<()> {
        let documents = StringArray::from_iter_values(self.texts.drain(..));
        let rows = documents.len();
        let batch = shredder.shred(&documents)?;
        let schema = batch.schema();
        for (index, stored) in self.columns.iter().enumerate() {
            let expected = batch.column(index + 1);
            let name = schema.field(index + 1).name();
            if stored.len() < self.first + rows {
                return Err(damaged(&format!("the column {name} has too few rows")));
            }
            let stored = cast(&stored.slice(self.first, rows), expected.data_type())?;
            if *stored != **expected {
                return Err(damaged(&format!("the column {name} does not match the documents")));
            }
        }
        shredder.recycle(batch);
        self.first += rows;
        Ok(())
    }
}

fn damaged(what: &str) -> StorageError {
    StorageError::Layout(format!("it is damaged: {what}"))
}
