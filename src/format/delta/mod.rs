//! Delta versions: the file of a new list that shares most entities with the previous version.
//!
//! 1. [`EntityMatcher`] finds each entity of the list in the previous version, by its text.
//! 2. [`plan_delta`] builds the extents of the list, and spools the entities that no base has. The files of the
//!    previous version become the bases.
//! 3. [`write_delta`](super::writer::write_delta) writes the file.
//!
//! A version has at most [`MAX_BASES`](super::overlay::MAX_BASES) bases: if there would be more, the rows of the
//! smallest ones are stored again, as [`base_merge`] explains. If the list shares too little with the previous version,
//! or if its values do not fit the indexed columns, the whole list is written.
//!
//! `benches/storage` measures the size of the files, the time of a refresh, and the time of later reads.

mod base_merge;
mod matching;
mod previous_entities;

use strata_store::{Result, StorageError};
use tokio::runtime::Handle;

use self::base_merge::BaseMerge;
use self::matching::EntityMatcher;
use super::editing::extents::ExtentBuilder;
use super::editing::{DeltaFileLimits, EditedFile, bases_of};
use super::layout::FileLayout;
use super::overlay::{BaseFile, Extent};
use super::profile::{ProfileBuilder, ShreddingLimits};
use super::reader::VersionReader;
use super::spool::{FinishedSpool, SpoolWriter};
use super::writer::{DeltaFileSpec, WriteOptions};

/// The delta file of a version: its new entities, and all other information about the version.
pub struct DeltaPlan {
    pub spooled: FinishedSpool,
    pub list: DeltaFileSpec,
    /// The encoded profile of the whole list.
    pub profile: Vec<u8>,
}

/// The reason why planning ends early.
enum Stop {
    /// The whole list should be written.
    WriteWhole,
    /// The new entities and the rows of merged bases exceed the limits of a delta file.
    MergeFewerBases,
    Failed(StorageError),
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Stop {
        Stop::Failed(error)
    }
}

/// Plans the delta file of a spooled list. Returns `None` if the whole list should be written.
///
/// Blocks the thread, and reads the documents of the previous version once, or up to four times if the rows of merged
/// bases exceed the limits. Needs memory for some document pages, for at most
/// [`previous_entities::MAX_INDEXED_ENTITIES`] hashes of 8 bytes, and one bit for each entity.
pub fn plan_delta(
    previous: &VersionReader,
    spooled: &mut FinishedSpool,
    limits: &DeltaFileLimits,
    options: &WriteOptions,
    runtime: &Handle,
) -> Result<Option<DeltaPlan>> {
    let layout = previous.layout();
    let profile = &spooled.profile;
    let is_similar = layout.index == options.index_settings
        && profile.document_bytes >= limits.min_list_bytes
        && fits_columns(profile, layout)
        && has_most_columns(profile, layout, &options.shredding_limits);
    if !is_similar {
        return Ok(None);
    }
    let encoded_profile = {
        let mut stored = profile.to_stored(&profile.shredding_for_layout(layout), &layout.index);
        stored.set_unmet_index_paths(layout);
        stored.encode(profile.columns().as_ref())?
    };
    let document_bytes = profile.document_bytes;
    let mut merge = BaseMerge::new(&previous.document_bytes_of_files());
    let builder = loop {
        let mut builder = DeltaBuilder::new(previous, spooled, limits, options.max_row_group_rows, merge)?;
        let mut matcher = EntityMatcher::new(previous, runtime);
        let stop = match spooled.for_each_document(|document| builder.add(&mut matcher, document)) {
            Ok(()) => break builder,
            Err(stop) => stop,
        };
        let fewer = match stop {
            Stop::Failed(error) => return Err(error),
            Stop::WriteWhole => None,
            Stop::MergeFewerBases => builder.merge.halved(),
        };
        let Some(fewer) = fewer else { return Ok(None) };
        merge = fewer;
    };
    let content_sha256 = Some(spooled.content_sha256.clone());
    let list = DeltaFileSpec {
        bases: Vec::new(),
        extents: Vec::new(),
        layout: layout.clone(),
        document_bytes,
        content_sha256,
    };
    builder.finish(list, encoded_profile)
}

/// Whether the indexed columns of a layout can represent the values of all entities.
fn fits_columns(profile: &ProfileBuilder, layout: &FileLayout) -> bool {
    let mut after = layout.clone();
    profile.retire_oversized_dictionaries(&mut after);
    profile.retire_unfit_columns(&mut after);
    after.shredded_columns == layout.shredded_columns
}

/// Whether a layout has most of the indexed columns that a complete file of the list would have.
fn has_most_columns(profile: &ProfileBuilder, layout: &FileLayout, limits: &ShreddingLimits) -> bool {
    let choice = profile.choose_shredded(limits, &layout.index);
    let missing = choice.shredded_columns.iter().filter(|column| layout.find_shredded(&column.keys).is_none()).count();
    4 * missing <= choice.shredded_columns.len()
}

struct DeltaBuilder<'a> {
    limits: &'a DeltaFileLimits,
    bases: Vec<BaseFile>,
    merge: BaseMerge,
    has_merged_rows: bool,
    extents: ExtentBuilder,
    own: SpoolWriter,
    lines: Vec<u8>,
    entities: u64,
    max_own_entities: u64,
    max_own_bytes: u64,
    own_bytes: u64,
}

impl<'a> DeltaBuilder<'a> {
    fn new(
        previous: &VersionReader,
        spooled: &FinishedSpool,
        limits: &'a DeltaFileLimits,
        row_group_rows: usize,
        merge: BaseMerge,
    ) -> Result<DeltaBuilder<'a>> {
        let share = |total: u64| total.saturating_mul(limits.max_delta_percent) / 100;
        Ok(DeltaBuilder {
            limits,
            bases: bases_of(previous, EditedFile::Kept),
            merge,
            has_merged_rows: false,
            extents: ExtentBuilder::new(row_group_rows),
            own: spooled.new_writer()?,
            lines: Vec::new(),
            entities: spooled.profile.entities,
            max_own_entities: share(spooled.profile.entities),
            max_own_bytes: share(spooled.profile.document_bytes).min(limits.max_delta_bytes),
            own_bytes: 0,
        })
    }

    fn add(&mut self, matcher: &mut EntityMatcher<'_>, document: &[u8]) -> Result<(), Stop> {
        let found = matcher.find(document)?.map(|Extent { file, row_group, start, rows }| {
            // The file of the previous version is the first base, and its bases follow.
            Extent { file: file + 1, row_group, start, rows }
        });
        let is_merged = found.is_some_and(|extent| self.merge.contains(extent.file));
        self.has_merged_rows |= is_merged;
        match found.filter(|_| !is_merged) {
            Some(extent) => {
                self.extents.push_extent(extent);
                if !self.limits.allow_extents(self.extents.extents.len(), self.entities) {
                    return Err(Stop::WriteWhole);
                }
            }
            None => {
                self.own_bytes += document.len() as u64;
                if self.own.entities() >= self.max_own_entities || self.own_bytes > self.max_own_bytes {
                    return Err(if self.has_merged_rows { Stop::MergeFewerBases } else { Stop::WriteWhole });
                }
                self.extents.push_own_row(document.len());
                self.lines.clear();
                self.lines.extend_from_slice(document);
                self.lines.push(b'\n');
                self.own.add_lines(&self.lines)?;
            }
        }
        Ok(())
    }

    /// Adds the bases and the extents to `list`. Returns `None` if the list needs no base.
    fn finish(self, list: DeltaFileSpec, profile: Vec<u8>) -> Result<Option<DeltaPlan>> {
        let mut extents = self.extents.extents;
        let mut numbers = vec![Extent::OWN; self.bases.len() + 1];
        let mut bases = Vec::new();
        for (number, base) in (1..).zip(self.bases) {
            if extents.iter().any(|extent| usize::from(extent.file) == number) {
                bases.push(base);
                numbers[number] = bases.len() as u8;
            }
        }
        extents.iter_mut().for_each(|extent| extent.file = numbers[usize::from(extent.file)]);
        let spooled = self.own.finish()?;
        let has_bases = !bases.is_empty();
        Ok(has_bases.then_some(DeltaPlan { spooled, list: DeltaFileSpec { bases, extents, ..list }, profile }))
    }
}
