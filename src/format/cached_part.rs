//! The decoded parts of version files that readers return and the cache contains, and their keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use bytes::Bytes;
use object_store::path::Path as ObjectPath;

use super::aux_index::{AuxKey, CachedAuxIndex};
use super::document_page::DocumentPage;
use super::extent_list::ExtentList;
use super::footer::FileFooter;
use super::keywords::TokenPage;
use super::profile::{ProfilePaths, ProfileSummary};

/// Key of a decoded part in the cache. `file` is a [`FileFooter::id`] or the ID of a delta version's extents, `page`
/// the number of a page in its row group or keyword segment, `block` a block of posting lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartKey {
    Footer(Arc<str>),
    Documents { file: u64, row_group: u32, page: u32 },
    IndentedDocuments { file: u64, row_group: u32, page: u32 },
    Column { file: u64, row_group: u32, column: u32 },
    FoldedColumn { file: u64, row_group: u32, column: u32 },
    ProfilePaths { file: u64 },
    ProfileSummary { file: u64 },
    KeywordTokens { file: u64, segment: u32, page: u32 },
    KeywordPostings { file: u64, segment: u32, page: u32, block: u32 },
    Extents { file: u64 },
    AuxIndex { file: u64, key: AuxKey },
}

impl PartKey {
    pub(super) fn column(file: u64, row_group: usize, column: usize) -> PartKey {
        PartKey::Column { file, row_group: row_group as u32, column: column as u32 }
    }

    pub(super) fn folded_column(file: u64, row_group: usize, column: usize) -> PartKey {
        PartKey::FoldedColumn { file, row_group: row_group as u32, column: column as u32 }
    }
}

#[derive(Clone)]
pub enum CachedPart {
    Footer(Arc<FileFooter>),
    Documents(DocumentPage),
    Column(ArrayRef),
    ProfilePaths(Arc<ProfilePaths>),
    ProfileSummary(Arc<ProfileSummary>),
    KeywordTokens(Arc<TokenPage>),
    KeywordPostings(Bytes),
    Extents { list: Arc<ExtentList>, bases: Arc<[(ObjectPath, Arc<FileFooter>)]> },
    AuxIndex(CachedAuxIndex),
}

impl CachedPart {
    pub fn memory_bytes(&self) -> usize {
        match self {
            CachedPart::Footer(footer) => footer.memory_bytes,
            CachedPart::Documents(page) => page.memory_bytes(),
            CachedPart::Column(array) => array.get_array_memory_size(),
            CachedPart::ProfilePaths(paths) => 64 + paths.memory_bytes(),
            CachedPart::ProfileSummary(summary) => 64 + summary.memory_bytes,
            CachedPart::KeywordTokens(tokens) => 64 + tokens.memory_bytes(),
            CachedPart::KeywordPostings(bytes) => 64 + bytes.len(),
            CachedPart::Extents { list, .. } => list.memory_bytes(),
            CachedPart::AuxIndex(index) => index.memory_bytes,
        }
    }
}
