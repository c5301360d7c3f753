//! What an edited file says of the list that it stands for: which rows of its base and which of its own make the list,
//! in order.
//!
//! An edit changes a few entities of many. So the file of an edited list contains only the entities that edits brought,
//! and names the file of the others: its *base*. A *piece* is some rows of one row group of either. Readers see each
//! piece as a row group.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strata_store::{Result, StorageError};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The file that the other entities lie in. It is no edited one.
    pub base: BaseFile,
    /// Hex SHA-256 over the documents of the file's own entities, in order, each followed by a line feed.
    pub own_sha256: String,
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseFile {
    pub path: String,
    pub size_bytes: u64,
    pub content_sha256: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Base,
    Own,
}

/// Rows of a row group that follow each other. As data it is the list of 0 for the base or 1 for the file itself, the
/// row group, its first row and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u8, u32, u32, u32)", try_from = "(u8, u32, u32, u32)")]
pub struct Piece {
    pub source: Source,
    pub row_group: u32,
    pub start: u32,
    pub rows: u32,
}

impl From<Piece> for (u8, u32, u32, u32) {
    fn from(piece: Piece) -> Self {
        (u8::from(piece.source == Source::Own), piece.row_group, piece.start, piece.rows)
    }
}

impl TryFrom<(u8, u32, u32, u32)> for Piece {
    type Error = &'static str;

    fn try_from((source, row_group, start, rows): (u8, u32, u32, u32)) -> Result<Self, Self::Error> {
        let source = match source {
            0 => Source::Base,
            1 => Source::Own,
            _ => return Err("an extent belongs to neither file"),
        };
        Ok(Piece { source, row_group, start, rows })
    }
}

impl Edit {
    /// The hash of the list's entities: lists of the same hash are the same. It is that of the two files' hashes and
    /// the pieces, for the entities of the base are not read to make an edit.
    pub fn content_sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(format!("strata.edit:{}:{}:", self.base.content_sha256, self.own_sha256));
        for piece in &self.pieces {
            let (source, row_group, start, rows) = (*piece).into();
            hash.update(format!("{source},{row_group},{start},{rows};"));
        }
        hex::encode(hash.finalize())
    }

    pub fn entity_count(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.rows)).sum()
    }

    pub fn own_entities(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.source == Source::Own).map(|piece| u64::from(piece.rows)).sum()
    }

    /// Whether the pieces of a source, whose row groups have so many rows, lie in them, and none before the one that
    /// comes before it in the list.
    pub(super) fn check(&self, source: Source, rows: &[usize]) -> Result<()> {
        let mut next = (0, 0);
        for piece in self.pieces.iter().filter(|piece| piece.source == source) {
            let end = u64::from(piece.start) + u64::from(piece.rows);
            let lies_within = rows.get(piece.row_group as usize).is_some_and(|rows| end <= *rows as u64);
            if piece.rows == 0 || !lies_within || (piece.row_group, u64::from(piece.start)) < next {
                return Err(StorageError::Layout("its footer is damaged: an extent is misplaced".to_owned()));
            }
            next = (piece.row_group, end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit() -> Edit {
        let piece = |source, row_group, start, rows| Piece { source, row_group, start, rows };
        Edit {
            base: BaseFile { path: "versions/a.parquet".to_owned(), size_bytes: 7, content_sha256: "00".to_owned() },
            own_sha256: "11".to_owned(),
            pieces: vec![
                piece(Source::Base, 0, 0, 3),
                piece(Source::Own, 0, 0, 1),
                piece(Source::Base, 0, 4, 2),
                piece(Source::Own, 0, 1, 2),
                piece(Source::Base, 2, 1, 1),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let edit = edit();
        let text = serde_json::to_string(&edit).expect("JSON");
        assert!(text.contains(r#""pieces":[[0,0,0,3],[1,0,0,1],[0,0,4,2],[1,0,1,2],[0,2,1,1]]"#), "{text}");
        assert_eq!(serde_json::from_str::<Edit>(&text).expect("an edit"), edit);
        assert!(serde_json::from_str::<Edit>(&text.replace("[[0,", "[[2,")).is_err());
        assert_eq!((edit.entity_count(), edit.own_entities()), (9, 3));
    }

    #[test]
    fn pieces_have_a_place_and_an_order() {
        let edit = edit();
        edit.check(Source::Base, &[6, 1, 2]).expect("sound");
        edit.check(Source::Own, &[3]).expect("sound");
        for rows in [&[5, 1, 2][..], &[6, 1, 1], &[6, 1]] {
            edit.check(Source::Base, rows).expect_err("one lies outside");
        }
        for at in 0..edit.pieces.len() {
            let mut other = edit.clone();
            other.pieces[at].rows = 0;
            assert!(other.check(Source::Base, &[6, 1, 2]).is_err() || other.check(Source::Own, &[3]).is_err());
            let mut other = edit.clone();
            other.pieces[at].rows += 1;
            assert_ne!(other.content_sha256(), edit.content_sha256());
        }
        let mut other = edit;
        other.pieces.swap(0, 2);
        other.check(Source::Base, &[6, 1, 2]).expect_err("out of order");
    }
}
