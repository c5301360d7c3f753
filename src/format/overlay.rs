//! Overlays: the files and rows that make up a version.
//!
//! An edit changes only a few entities. Therefore, an edited file, the *delta*, contains only the entities that edits
//! added, and refers to a *base* file for all others. An *extent* is a range of rows in one row group of either file.
//! For example, an edit that replaces row 3 of a base with six rows results in `[[0,0,0,3],[1,0,0,1],[0,0,4,2]]`.
//!
//! Readers treat extents as row groups. The extents of an unedited version are the row groups of its only file.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strata_store::{Result, StorageError};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditOverlay {
    /// The base file, which has all entities of the version that are not in the delta. It is never an edited file.
    pub base: BaseFile,
    /// Hexadecimal SHA-256 of the delta documents, in order, each followed by a line feed.
    pub own_sha256: String,
    #[serde(rename = "pieces")]
    pub extents: Vec<Extent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseFile {
    pub path: String,
    pub size_bytes: u64,
    pub content_sha256: String,
}

/// Consecutive rows of a row group. The JSON form is an array: file, row group, first row, number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u8, u32, u32, u32)", try_from = "(u8, u32, u32, u32)")]
pub struct Extent {
    pub file: u8,
    pub row_group: u32,
    pub start: u32,
    pub rows: u32,
}

impl From<Extent> for (u8, u32, u32, u32) {
    fn from(extent: Extent) -> Self {
        (extent.file, extent.row_group, extent.start, extent.rows)
    }
}

impl TryFrom<(u8, u32, u32, u32)> for Extent {
    type Error = &'static str;

    fn try_from(fields: (u8, u32, u32, u32)) -> Result<Self, Self::Error> {
        let (file, row_group, start, rows) = fields;
        match file {
            Extent::BASE | Extent::DELTA => Ok(Extent { file, row_group, start, rows }),
            _ => Err("an extent belongs to neither file"),
        }
    }
}

impl Extent {
    /// Number that extents have for the base of an edited file, or for the only file of a version.
    pub const BASE: u8 = 0;
    pub const DELTA: u8 = 1;
}

impl EditOverlay {
    /// Returns the content hash of an edited file. It hashes the hashes of both files and the extents, so an edit does
    /// not have to read the entities of the base.
    pub fn content_sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(format!("strata.edit:{}:{}:", self.base.content_sha256, self.own_sha256));
        for Extent { file, row_group, start, rows } in &self.extents {
            hash.update(format!("{file},{row_group},{start},{rows};"));
        }
        hex::encode(hash.finalize())
    }

    pub fn entity_count(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.rows)).sum()
    }

    pub fn delta_entity_count(&self) -> u64 {
        self.extents_in_file(Extent::DELTA).map(|extent| u64::from(extent.rows)).sum()
    }

    fn extents_in_file(&self, file: u8) -> impl Iterator<Item = &Extent> {
        self.extents.iter().filter(move |extent| extent.file == file)
    }

    /// Checks that the extents of a file are in order and exist. `rows` has the row count of each row group.
    pub(super) fn check_extents(&self, file: u8, rows: &[usize]) -> Result<()> {
        let mut next = (0, 0);
        for extent in self.extents_in_file(file) {
            let end = u64::from(extent.start) + u64::from(extent.rows);
            let is_within = rows.get(extent.row_group as usize).is_some_and(|rows| end <= *rows as u64);
            if extent.rows == 0 || !is_within || (extent.row_group, u64::from(extent.start)) < next {
                return Err(StorageError::InvalidFile("its footer is damaged: an extent is misplaced".to_owned()));
            }
            next = (extent.row_group, end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit() -> EditOverlay {
        let extent = |file, row_group, start, rows| Extent { file, row_group, start, rows };
        EditOverlay {
            base: BaseFile { path: "versions/a.parquet".to_owned(), size_bytes: 7, content_sha256: "00".to_owned() },
            own_sha256: "11".to_owned(),
            extents: vec![
                extent(Extent::BASE, 0, 0, 3),
                extent(Extent::DELTA, 0, 0, 1),
                extent(Extent::BASE, 0, 4, 2),
                extent(Extent::DELTA, 0, 1, 2),
                extent(Extent::BASE, 2, 1, 1),
            ],
        }
    }

    #[test]
    fn overlay_survives_serialization() {
        let edit = edit();
        let text = serde_json::to_string(&edit).expect("failed to serialize edit");
        assert!(text.contains(r#""pieces":[[0,0,0,3],[1,0,0,1],[0,0,4,2],[1,0,1,2],[0,2,1,1]]"#), "{text}");
        assert_eq!(serde_json::from_str::<EditOverlay>(&text).expect("failed to parse edit"), edit);
        assert!(serde_json::from_str::<EditOverlay>(&text.replace("[[0,", "[[2,")).is_err());
        assert_eq!((edit.entity_count(), edit.delta_entity_count()), (9, 3));
    }

    #[test]
    fn misplaced_extents_are_rejected() {
        let edit = edit();
        edit.check_extents(Extent::BASE, &[6, 1, 2]).expect("failed to check base extents");
        edit.check_extents(Extent::DELTA, &[3]).expect("failed to check delta extents");
        for rows in [&[5, 1, 2][..], &[6, 1, 1], &[6, 1]] {
            edit.check_extents(Extent::BASE, rows).expect_err("accepted an extent outside of the file");
        }
        for index in 0..edit.extents.len() {
            let mut other = edit.clone();
            other.extents[index].rows = 0;
            assert!(
                other.check_extents(Extent::BASE, &[6, 1, 2]).is_err()
                    || other.check_extents(Extent::DELTA, &[3]).is_err()
            );
            let mut other = edit.clone();
            other.extents[index].rows += 1;
            assert_ne!(other.content_sha256(), edit.content_sha256());
        }
        let mut other = edit;
        other.extents.swap(0, 2);
        other.check_extents(Extent::BASE, &[6, 1, 2]).expect_err("accepted extents out of order");
    }
}
