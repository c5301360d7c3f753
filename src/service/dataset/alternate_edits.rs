//! Edits alternates (edited copies of versions) by position, for example "replace entity 3 and remove entity 7".
//!
//! 1. The edits are ordered by position and checked against the length of the list.
//! 2. If the list is that of the version, or refers to other files, the new file does, too: it contains only the new
//!    entities and the extents of the list ([`strata_format::editing`]), so the cost depends on the size of the change.
//! 3. Any other list is written in full, as is a list that would keep little of the bases ([`VersionSpooler`]).
//! 4. The file is saved like any other alternate ([`DatasetService::save_alternate`]).
//!
//! [`VersionSpooler`]: crate::refresh::version_spooler::VersionSpooler

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use strata_catalog::VersionStatus;
use strata_format::editing::{self, DeltaFileLimits, DeltaFilePlan, EditScript, EditedFile};
use strata_format::reader::VersionReader;
use strata_format::writer::MAX_ROW_GROUP_ROWS;
use strata_ingest::SourceError;
use strata_query::fetch::selected_documents;
use strata_store::StorageError;
use strata_types::ids::{DatasetId, UserId};
use strata_types::index_settings::IndexSettings;
use strata_types::user::User;
use strata_types::version::{VersionFile, VersionNumber};

use crate::dataset::DatasetService;
use crate::dataset::alternates::{AlternateError, EditError, EditProblem, VersionUnderEdit};
use crate::refresh::ingest::RefreshPermit;
use crate::refresh::tasks::run_on_thread;
use crate::refresh::version_file::WrittenFile;
use crate::refresh::version_spooler::append_line;
use crate::{BodyReservation, CostClass, RefreshError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityEdit {
    /// The position of an entity in the list before the edits, starting at 0.
    pub position: u64,
    pub change: EntityChange,
}

/// The change of an entity list at a position. New entities are canonical text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityChange {
    Set(Bytes),
    Remove,
    /// Inserts entities before the entity at the position, or at the end if the position is the length of the list.
    Insert(Vec<Bytes>),
}

impl DatasetService {
    /// Applies all edits or none to the alternate of a version, or to a new copy of the version. `etag` must be the
    /// current [`alternate_etag`](crate::alternate_etag). The work continues if the future is dropped.
    pub async fn edit_alternate(
        self: &Arc<Self>,
        owner: &User,
        dataset: DatasetId,
        version: VersionNumber,
        etag: &str,
        edits: Vec<EntityEdit>,
        reservation: Option<BodyReservation>,
    ) -> Result<VersionStatus, AlternateError> {
        let current = self.find_version_to_edit(owner, dataset, version).await?;
        let base = current.file_ids_if_unchanged(etag)?;
        check_entity_sizes(&edits, self.refreshes.ingest.config.limits.entity_bytes)?;
        let list = current.version.alternate.clone().unwrap_or_else(|| current.version.file.clone());
        let script = build_edit_script(edits, list.entity_count)?;
        let datasets = self.clone();
        let owner = owner.id;
        let editing = async move {
            let _reservation = reservation;
            let writing = datasets.write_edited_alternate(owner, &current, &list, script);
            Ok(datasets.save_written_alternate(owner, dataset, version, writing, Some(base)).await)
        };
        self.refreshes.tasks.run(editing).await?
    }

    async fn write_edited_alternate(
        &self,
        owner: UserId,
        current: &VersionUnderEdit,
        list: &VersionFile,
        script: EditScript,
    ) -> Result<WrittenFile, RefreshError> {
        let permit = self.refreshes.ingest.acquire_permit(owner).await?;
        let reader = self.refreshes.files.open(list).await?;
        let edited = if current.version.alternate.is_some() { EditedFile::Replaced } else { EditedFile::Kept };
        let script = Arc::new(script);
        // A complete file cannot be replaced by a delta file, because it would be the base.
        if edited == EditedFile::Kept || reader.layout().overlay.is_some() {
            let file = self.try_write_edited_file(owner, &reader, edited, &script, &current.index, &permit).await?;
            if let Some(file) = file {
                return Ok(file);
            }
        }
        let entities = self.refreshes.spooler.spool(owner, reader, Arc::unwrap_or_clone(script), permit).await?;
        self.write_alternate(entities, current.index.clone()).await
    }

    /// Writes a delta file. Returns `None` if the list should be written in full instead.
    async fn try_write_edited_file(
        &self,
        owner: UserId,
        reader: &VersionReader,
        edited: EditedFile,
        script: &Arc<EditScript>,
        index: &IndexSettings,
        permit: &RefreshPermit,
    ) -> Result<Option<WrittenFile>, RefreshError> {
        let engine = self.engine.with_priority(CostClass::Heavy.priority());
        let list = reader.clone();
        let script = script.clone();
        let index = index.clone();
        let planning = engine.spawn(async move {
            let limits = DeltaFileLimits::default();
            let plan = editing::plan_edit(&list, edited, &script, &index, &limits, MAX_ROW_GROUP_ROWS).await?;
            let Some(mut plan) = plan else { return Ok(None) };
            let (profile, columns) = match plan.profile.take() {
                Some(profile_and_columns) => profile_and_columns,
                None => editing::profile::rebuild_profile(&list, &script, &mut plan.list.layout).await?,
            };
            let profile = profile.encode(columns.as_ref())?;
            Ok::<_, StorageError>(Some((plan, profile)))
        });
        let Some((plan, profile)) = planning.await.map_err(|_| RefreshError::WorkerStopped)?? else {
            return Ok(None);
        };
        let DeltaFilePlan { delta_documents, list, .. } = plan;
        let mut spool = self.refreshes.ingest.create_spool(owner)?;
        let spooling = run_on_thread("edit", move || {
            let mut lines = Vec::new();
            for document in delta_documents {
                append_line(&document, &mut lines);
                if lines.len() >= selected_documents::SELECTION_CHUNK_BYTES as usize {
                    spool.add_lines(&lines)?;
                    lines.clear();
                }
            }
            spool.add_lines(&lines)?;
            spool.finish()
        });
        let spooled = spooling.await??;
        let file = self.refreshes.files.reserve_path().await?.write_delta(spooled, list, profile, permit).await?;
        Ok(Some(file))
    }
}

fn check_entity_sizes(edits: &[EntityEdit], limit_bytes: u64) -> Result<(), AlternateError> {
    let is_larger = |entity: &Bytes| entity.len() as u64 > limit_bytes;
    let too_large = edits.iter().position(|edit| match &edit.change {
        EntityChange::Set(entity) => is_larger(entity),
        EntityChange::Insert(entities) => entities.iter().any(is_larger),
        EntityChange::Remove => false,
    });
    too_large.map_or(Ok(()), |index| Err(AlternateError::Source(SourceError::edit_too_large(index, limit_bytes))))
}

fn build_edit_script(edits: Vec<EntityEdit>, length: u64) -> Result<EditScript, EditError> {
    let mut script = EditScript::new();
    // For each position, the index of the edit that replaces or removes the entity there.
    let mut changed_by: HashMap<u64, usize> = HashMap::new();
    for (index, EntityEdit { position, change }) in edits.into_iter().enumerate() {
        let invalid = |problem| Err(EditError { index, problem });
        let entity = match change {
            EntityChange::Insert(entities) => {
                if position > length {
                    return invalid(EditProblem::PastEnd { position, length, is_insert: true });
                }
                script.entry(position).or_default().inserts.extend(entities);
                continue;
            }
            EntityChange::Set(entity) => Some(entity),
            EntityChange::Remove => None,
        };
        if position >= length {
            return invalid(EditProblem::PastEnd { position, length, is_insert: false });
        }
        if let Some(other) = changed_by.insert(position, index) {
            return invalid(EditProblem::DuplicatePosition { position, other });
        }
        script.entry(position).or_default().change = Some(entity);
    }
    Ok(script)
}
