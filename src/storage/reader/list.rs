//! Opening the list of an edited file: its base is opened, and both are compared.

use std::sync::Arc;

use object_store::path::Path as ObjectPath;

use super::file::FileReader;
use crate::storage::cache::PartCache;
use crate::storage::edit::Edit;
use crate::storage::error::BASE;
use crate::storage::parts::{Part, PartKey};
use crate::storage::piece_list::PieceList;
use crate::storage::store::Store;
use crate::storage::{Result, StorageError};

pub(super) async fn open(
    own: &FileReader,
    edit: &Edit,
    store: &Store,
    cache: &PartCache,
) -> Result<(FileReader, Arc<PieceList>)> {
    let path = ObjectPath::from(edit.base.path.as_str());
    let load = || async {
        let base = FileReader::open(store, &path, edit.base.size_bytes, cache).await.map_err(|error| {
            match error.is_damage() {
                true => own.file.blame(BASE, StorageError::Layout(error.to_string())),
                false => error,
            }
        })?;
        let list = PieceList::of(&own.footer, base.footer, edit).map_err(|error| own.file.blame("the list", error))?;
        Ok(Part::Pieces(Arc::new(list)))
    };
    let loaded = cache.get_or_load(PartKey::Pieces { file: own.footer.id }, load).await?;
    let Part::Pieces(list) = loaded else { return Err(StorageError::wrong_part()) };
    Ok((FileReader::of_footer(store, &path, list.base.clone(), cache), list))
}
