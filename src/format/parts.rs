//! The decoded parts of a version file that a reader hands out and the cache keeps.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use bytes::Bytes;
use parquet::bloom_filter::Sbbf;

use super::aux_index::{AuxKey, CachedAux};
use super::document_page::DocumentPage;
use super::extent_list::ExtentList;
use super::footer::Footer;
use super::keywords::cut::Class;
use super::keywords::segment::Entries;
use super::profile::{PathIndex, ProfileSummary};
use super::shapes::decoded::Shapes;

/// What the cache keeps a part under. `file` is the number of a file ([`Footer::id`]) or of an edited list, `page` that
/// of a page of documents in its row group, `segment` that of a segment of the keyword index, `block` that of a block
/// of the lists of a class in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartKey {
    Footer(Arc<str>),
    Documents { file: u64, row_group: u32, page: u32 },
    Indented { file: u64, row_group: u32, page: u32 },
    Column { file: u64, row_group: u32, column: u32 },
    Bloom { file: u64, row_group: u32, column: u32 },
    Paths { file: u64 },
    ProfileSummary { file: u64 },
    Keywords { file: u64, segment: u32, class: Class },
    KeywordLists { file: u64, segment: u32, class: Class, block: u32 },
    Shapes { file: u64, row_group: u32 },
    Extents { file: u64 },
    Aux { file: u64, key: AuxKey },
}

impl PartKey {
    pub(super) fn column(file: u64, row_group: usize, column: usize) -> PartKey {
        PartKey::Column { file, row_group: row_group as u32, column: column as u32 }
    }
}

/// One decoded part, as the cache keeps it. Clones share memory.
#[derive(Clone)]
pub enum Part {
    Footer(Arc<Footer>),
    /// A page of documents, as they are stored or indented.
    Documents(DocumentPage),
    Column(ArrayRef),
    Bloom(Option<Arc<Sbbf>>),
    Paths(Arc<PathIndex>),
    ProfileSummary(Arc<ProfileSummary>),
    Keywords(Arc<Entries>),
    KeywordLists(Bytes),
    Shapes(Arc<Shapes>),
    /// The list of an edited file, and the footer of its base.
    Extents {
        list: Arc<ExtentList>,
        base: Arc<Footer>,
    },
    Aux(CachedAux),
}

impl Part {
    pub fn memory_bytes(&self) -> usize {
        match self {
            Part::Footer(footer) => footer.memory_bytes,
            Part::Documents(page) => page.memory_bytes(),
            Part::Column(array) => array.get_array_memory_size(),
            Part::Paths(paths) => 64 + paths.memory_bytes(),
            Part::ProfileSummary(summary) => 64 + summary.memory_bytes,
            Part::Keywords(entries) => 64 + entries.memory_bytes(),
            Part::KeywordLists(bytes) => 64 + bytes.len(),
            Part::Shapes(shapes) => 64 + shapes.memory_bytes(),
            Part::Extents { list, .. } => list.memory_bytes(),
            Part::Aux(index) => index.memory_bytes,
            Part::Bloom(bloom) => 64 + bloom.as_ref().map_or(0, |bloom| bloom.num_blocks() * 32),
        }
    }
}
