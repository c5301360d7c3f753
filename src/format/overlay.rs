//! Overlays: the files and rows that make up a version.
//!
//! A version often shares most entities with earlier ones. Its file, a *delta file*, then contains only the new
//! entities, and refers to *base* files for all others. An *extent* is a range of rows in one row group of any of these
//! files. For example, if row 3 of a base with six rows is replaced, the version has three extents: rows 0 to 2 of the
//! base, row 0 of the delta file, and rows 4 and 5 of the base.
//!
//! A base can itself be a delta file. Only its own rows are used then, so that a reader opens each file once.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strata_store::{Result, StorageError};

use super::extent_codec;

/// Max bases of a delta file. Opening a version costs one or two requests for each base, in parallel.
pub const MAX_BASES: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// The files with the entities that are not in the delta file. Extents refer to them by their position, from 1.
    pub bases: Vec<BaseFile>,
    /// Hexadecimal SHA-256 of the documents in the delta file, in order, each followed by a line feed.
    pub own_sha256: String,
    /// No row of a file is in several extents.
    #[serde(with = "extent_codec")]
    pub extents: Vec<Extent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseFile {
    pub path: String,
    pub size_bytes: u64,
    pub content_sha256: String,
}

/// Consecutive rows of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// [`Extent::OWN`], or the position of a base in [`Overlay::bases`], from 1.
    pub file: u8,
    pub row_group: u32,
    pub start: u32,
    pub rows: u32,
}

impl Extent {
    /// Number of the version file itself.
    pub const OWN: u8 = 0;
}

impl Overlay {
    /// Returns the content hash of an edited list. It hashes the hashes of all files and the extents, so that an edit
    /// does not have to read the entities of the bases.
    pub fn content_sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update("strata.edit:");
        for base in &self.bases {
            hash.update(format!("{}:", base.content_sha256));
        }
        hash.update(format!("{}:", self.own_sha256));
        for Extent { file, row_group, start, rows } in &self.extents {
            hash.update(format!("{file},{row_group},{start},{rows};"));
        }
        hex::encode(hash.finalize())
    }

    pub fn entity_count(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.rows)).sum()
    }

    pub fn own_entity_count(&self) -> u64 {
        self.extents_in_file(Extent::OWN).map(|extent| u64::from(extent.rows)).sum()
    }

    /// Returns the base whose version has this content hash.
    pub fn find_base_with_content(&self, content_sha256: &str) -> Option<&BaseFile> {
        self.bases.iter().find(|base| base.content_sha256 == content_sha256)
    }

    fn extents_in_file(&self, file: u8) -> impl Iterator<Item = &Extent> {
        self.extents.iter().filter(move |extent| extent.file == file)
    }

    /// Checks that the delta file's own extents are in order and exist. `rows` has the row count of each row group.
    pub(super) fn check_own_extents(&self, rows: &[usize]) -> Result<()> {
        let mut next = (0, 0);
        for extent in self.extents_in_file(Extent::OWN) {
            if (extent.row_group, u64::from(extent.start)) < next {
                return Err(misplaced_extent());
            }
            next = (extent.row_group, u64::from(extent.start) + u64::from(extent.rows));
        }
        self.check_extents(&[rows])
    }

    /// Checks that the extents of the first files exist. `rows` has the row count of each row group of these files.
    pub(super) fn check_extents(&self, rows: &[&[usize]]) -> Result<()> {
        for extent in &self.extents {
            let Some(rows) = rows.get(usize::from(extent.file)) else { continue };
            let end = u64::from(extent.start) + u64::from(extent.rows);
            let is_within = rows.get(extent.row_group as usize).is_some_and(|rows| end <= *rows as u64);
            if extent.rows == 0 || !is_within {
                return Err(misplaced_extent());
            }
        }
        let is_file = |extent: &Extent| usize::from(extent.file) <= self.bases.len();
        if self.bases.len() <= MAX_BASES && self.extents.iter().all(is_file) { Ok(()) } else { Err(misplaced_extent()) }
    }
}

fn misplaced_extent() -> StorageError {
    StorageError::InvalidFile("its footer is damaged: an extent is misplaced".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay() -> Overlay {
        let extent = |file, row_group, start, rows| Extent { file, row_group, start, rows };
        Overlay {
            bases: vec![BaseFile {
                path: "versions/a.parquet".to_owned(),
                size_bytes: 7,
                content_sha256: "00".to_owned(),
            }],
            own_sha256: "11".to_owned(),
            extents: vec![
                extent(1, 0, 0, 3),
                extent(Extent::OWN, 0, 0, 1),
                extent(1, 0, 4, 2),
                extent(Extent::OWN, 0, 1, 2),
                extent(1, 2, 1, 1),
            ],
        }
    }

    #[test]
    fn overlay_survives_serialization() {
        let overlay = overlay();
        let text = serde_json::to_string(&overlay).expect("failed to serialize overlay");
        assert!(text.contains(r#""own_sha256":"11","extents":"AQAAAwAAAAEBAAICAAAAAgEEAgE"}"#), "{text}");
        assert_eq!(serde_json::from_str::<Overlay>(&text).expect("failed to parse overlay"), overlay);
        assert_eq!((overlay.entity_count(), overlay.own_entity_count()), (9, 3));
    }

    #[test]
    fn misplaced_extents_are_rejected() {
        let overlay = overlay();
        overlay.check_own_extents(&[3]).expect("failed to check own extents");
        overlay.check_extents(&[&[3], &[6, 1, 2]]).expect("failed to check extents");
        for rows in [&[5, 1, 2][..], &[6, 1, 1], &[6, 1]] {
            overlay.check_extents(&[&[3], rows]).expect_err("accepted an extent outside of the file");
        }
        for index in 0..overlay.extents.len() {
            let mut other = overlay.clone();
            other.extents[index].rows = 0;
            other.check_extents(&[&[3], &[6, 1, 2]]).expect_err("accepted an empty extent");
            let mut other = overlay.clone();
            other.extents[index].rows += 1;
            assert_ne!(other.content_sha256(), overlay.content_sha256());
            let mut other = overlay.clone();
            other.extents[index].file = 2;
            other.check_own_extents(&[3]).expect_err("accepted an extent of a missing file");
        }
        let mut other = overlay.clone();
        other.extents.swap(1, 3);
        other.check_own_extents(&[3]).expect_err("accepted own extents out of order");
        let mut other = overlay;
        other.extents.swap(0, 2);
        other.check_extents(&[&[3], &[6, 1, 2]]).expect("failed to check a moved extent");
    }
}
