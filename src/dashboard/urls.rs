//! The URLs of pages. For example, the page `/ui/3/x/v2/alt/` shows the response of `/api/3/x/v2/alt/`. Other pages of
//! the version are below that path.

use axum::http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use strata_http::error::HttpError;
use strata_http::page_support::quote_for_page;
use strata_http::read::path;
use strata_service::ReadTarget;
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::version::{VersionNumber, VersionSelector};

use super::format;
use super::query_params::{QueryParams, parse_whole_number};

const PATH_ESCAPE_SET: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Clone, Debug)]
pub(super) struct DatasetUrls {
    pub(super) id: DatasetId,
    pub(super) slug: String,
}

impl DatasetUrls {
    pub(super) fn new(dataset: &Dataset) -> DatasetUrls {
        DatasetUrls { id: dataset.id, slug: dataset.name.slug().to_owned() }
    }

    pub(super) fn parse(path: &str) -> Result<DatasetUrls, HttpError> {
        let parts: Vec<&str> = path.trim_start_matches("/ui/").split('/').take(2).collect();
        let read = path::parse_path(&format!("/api/{}/active", parts.join("/")))?;
        Ok(DatasetUrls { id: read.target.dataset, slug: read.target.name_slug })
    }

    fn path_below(&self, root: &str, rest: &str) -> String {
        format!("{root}/{}/{}/{rest}", self.id, utf8_percent_encode(&self.slug, PATH_ESCAPE_SET))
    }

    pub(super) fn page_url(&self, name: &str) -> String {
        self.path_below("/ui", name)
    }

    pub(super) fn manage_url(&self, action: &str) -> String {
        self.path_below("/ui", &format!("manage/{action}"))
    }

    pub(super) fn diff_url(&self, v1: &VersionNumber, v2: &VersionNumber, alt: bool) -> String {
        let query = QueryParams::default().with_added("v1", v1).with_added("v2", v2);
        if alt { query.with_added("alt", true) } else { query }.to_url(&self.page_url("diff"))
    }

    pub(super) fn for_version(&self, selector: VersionSelector, alt: bool) -> VersionUrls {
        VersionUrls { dataset: self.clone(), selector, alt }
    }

    pub(super) fn active_version(&self) -> VersionUrls {
        self.for_version(VersionSelector::Active, false)
    }

    pub(super) fn for_version_number(&self, number: VersionNumber) -> VersionUrls {
        self.for_version(VersionSelector::Number(number), false)
    }
}

#[derive(Clone, Debug)]
pub(super) struct VersionUrls {
    pub(super) dataset: DatasetUrls,
    pub(super) selector: VersionSelector,
    pub(super) alt: bool,
}

impl VersionUrls {
    /// Parses the path of a page below `/ui/` with a version. Also returns the segments after the version.
    pub(super) fn parse(path: &str) -> Result<(VersionUrls, Vec<&str>), HttpError> {
        let path = path.trim_start_matches("/ui/");
        let parts: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
        let prefix_length = if parts.get(3) == Some(&"alt") { 4 } else { 3 };
        let (read, rest) = parts.split_at(prefix_length.min(parts.len()));
        let read = path::parse_path(&format!("/api/{}", read.join("/")))?;
        let dataset = DatasetUrls { id: read.target.dataset, slug: read.target.name_slug };
        Ok((dataset.for_version(read.target.version, read.alt), rest.to_vec()))
    }

    pub(super) fn read_target(&self) -> ReadTarget {
        ReadTarget { dataset: self.dataset.id, name_slug: self.dataset.slug.clone(), version: self.selector }
    }

    fn path_below(&self, root: &str, rest: &str) -> String {
        let alt = if self.alt { "alt/" } else { "" };
        self.dataset.path_below(root, &format!("{}/{alt}{rest}", self.selector))
    }

    pub(super) fn browse_url(&self) -> String {
        self.page_url("")
    }

    pub(super) fn api_path(&self) -> String {
        self.path_below("/api", "")
    }

    /// Returns the path of the API call for the changes since another version. Alternates have no changes.
    pub(super) fn changes_path(&self) -> String {
        self.original_version().path_below("/changes", "")
    }

    pub(super) fn changes_url(&self) -> String {
        self.original_version().page_url("changes")
    }

    fn original_version(&self) -> VersionUrls {
        VersionUrls { alt: false, ..self.clone() }
    }

    pub(super) fn page_url(&self, name: &str) -> String {
        self.path_below("/ui", name)
    }

    pub(super) fn alternate_url(&self) -> String {
        self.original_version().page_url("alternate")
    }

    pub(super) fn alternate_action_url(&self, action: &str) -> String {
        format!("{}/{action}", self.alternate_url())
    }

    pub(super) fn entity_url(&self, position: u64) -> String {
        self.page_url(&format!("entity/{position}"))
    }
}

/// The position of an entity in the path of a page. Error messages show the position as the user typed it.
#[derive(Clone, Debug)]
pub(super) struct EntityPosition {
    pub(super) index: u64,
    typed_text: String,
}

impl EntityPosition {
    pub(super) fn parse(text: &str) -> Result<EntityPosition, HttpError> {
        let text = text.trim();
        match parse_whole_number(text) {
            Some(index) => Ok(EntityPosition { index, typed_text: format::truncate_digits(text) }),
            None => {
                let text =
                    format!("The position must be a whole number (0 or greater), but is {}.", quote_for_page(text));
                Err(HttpError::InvalidRequest { status: StatusCode::BAD_REQUEST, text })
            }
        }
    }

    pub(super) fn is_overflow(&self) -> bool {
        self.index == u64::MAX
    }

    pub(super) fn not_found_error(&self, what: &str, entities: u64) -> HttpError {
        let text = format::position_not_found_text(&self.typed_text, what, entities);
        HttpError::InvalidRequest { status: StatusCode::NOT_FOUND, text }
    }
}

impl From<u64> for EntityPosition {
    fn from(index: u64) -> Self {
        EntityPosition { index, typed_text: index.to_string() }
    }
}
