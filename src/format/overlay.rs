//! Which rows of which files are the entities of a version, in order.
//!
//! An edit changes a few entities of many. So an edited file, the *delta*, contains only the entities that edits
//! brought, and names the file of the others, its *base*. An *extent* is some rows of one row group of either. For
//! example, an edit that replaces row 3 of a base with six rows makes the extents `[[0,0,0,3],[1,0,0,1],[0,0,4,2]]`.
//!
//! Readers see each extent as a row group. A version that lies in one file is the overlay whose extents are the row
//! groups of that file, so readers have one way to all versions.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strata_store::{Result, StorageError};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The file of the other entities. It is not an edited file.
    pub base: BaseFile,
    /// Hex SHA-256 over the documents of the file's own entities, in order, each followed by a line feed.
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

/// Consecutive rows of a row group. As data it is an array of the file, the row group, its first row, and the number
/// of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u8, u32, u32, u32)", try_from = "(u8, u32, u32, u32)")]
pub struct Extent {
    /// The index of its file among the files of the overlay.
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
    /// The first file: the base of an edited file, or the only file of a version.
    pub const BASE: u8 = 0;
    pub const DELTA: u8 = 1;
}

impl Edit {
    /// The hash of the list's entities: lists with the same hash are the same. It covers the hashes of both files and
    /// the extents, because an edit does not read the entities of the base.
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

    pub fn own_entities(&self) -> u64 {
        self.of_file(Extent::DELTA).map(|extent| u64::from(extent.rows)).sum()
    }

    fn of_file(&self, file: u8) -> impl Iterator<Item = &Extent> {
        self.extents.iter().filter(move |extent| extent.file == file)
    }

    /// Checks that the extents of a file, whose row groups have these numbers of rows, are within them, and in their
    /// order.
    pub(super) fn check(&self, file: u8, rows: &[usize]) -> Result<()> {
        let mut next = (0, 0);
        for extent in self.of_file(file) {
            let end = u64::from(extent.start) + u64::from(extent.rows);
            let is_within = rows.get(extent.row_group as usize).is_some_and(|rows| end <= *rows as u64);
            if extent.rows == 0 || !is_within || (extent.row_group, u64::from(extent.start)) < next {
                return Err(StorageError::Layout("its footer is damaged: an extent is misplaced".to_owned()));
            }
            next = (extent.row_group, end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit() -> Edit {
        let extent = |file, row_group, start, rows| Extent { file, row_group, start, rows };
        Edit {
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
    fn edit_written_and_read_is_equal() {
        let edit = edit();
        let text = serde_json::to_string(&edit).expect("JSON");
        assert!(text.contains(r#""pieces":[[0,0,0,3],[1,0,0,1],[0,0,4,2],[1,0,1,2],[0,2,1,1]]"#), "{text}");
        assert_eq!(serde_json::from_str::<Edit>(&text).expect("an edit"), edit);
        assert!(serde_json::from_str::<Edit>(&text.replace("[[0,", "[[2,")).is_err());
        assert_eq!((edit.entity_count(), edit.own_entities()), (9, 3));
    }

    #[test]
    fn extents_misplaced_or_disordered_are_rejected() {
        let edit = edit();
        edit.check(Extent::BASE, &[6, 1, 2]).expect("sound");
        edit.check(Extent::DELTA, &[3]).expect("sound");
        for rows in [&[5, 1, 2][..], &[6, 1, 1], &[6, 1]] {
            edit.check(Extent::BASE, rows).expect_err("one lies outside");
        }
        for at in 0..edit.extents.len() {
            let mut other = edit.clone();
            other.extents[at].rows = 0;
            assert!(other.check(Extent::BASE, &[6, 1, 2]).is_err() || other.check(Extent::DELTA, &[3]).is_err());
            let mut other = edit.clone();
            other.extents[at].rows += 1;
            assert_ne!(other.content_sha256(), edit.content_sha256());
        }
        let mut other = edit;
        other.extents.swap(0, 2);
        other.check(Extent::BASE, &[6, 1, 2]).expect_err("out of order");
    }
}
