//! The paths of pages. `/ui/{dataset_id}/{name_slug}/{version}/[alt/]` is the page of the read
//! `/api/{dataset_id}/{name_slug}/{version}/[alt/]`; other pages of the version are below it.

use axum::http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use strata_http::error::HttpError;
use strata_http::read::path;
use strata_http::visit::quoted;
use strata_service::ReadTarget;
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::version::{VersionNumber, VersionSelector};

use super::format;
use super::query::{Query, whole_number};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Clone, Debug)]
pub(super) struct DatasetPlace {
    pub(super) id: DatasetId,
    pub(super) slug: String,
}

impl DatasetPlace {
    pub(super) fn new(dataset: &Dataset) -> DatasetPlace {
        DatasetPlace { id: dataset.id, slug: dataset.name.slug().to_owned() }
    }

    /// Parses the beginning of a path below `/ui/`.
    pub(super) fn parse(path: &str) -> Result<DatasetPlace, HttpError> {
        let parts: Vec<&str> = path.trim_start_matches("/ui/").split('/').take(2).collect();
        let read = path::parse(&format!("/api/{}/active", parts.join("/")))?;
        Ok(DatasetPlace { id: read.target.dataset, slug: read.target.name_slug })
    }

    fn below(&self, root: &str, rest: &str) -> String {
        format!("{root}/{}/{}/{rest}", self.id, utf8_percent_encode(&self.slug, ESCAPED))
    }

    /// A page of the dataset, such as `versions`.
    pub(super) fn page(&self, name: &str) -> String {
        self.below("/ui", name)
    }

    pub(super) fn manage(&self, action: &str) -> String {
        self.below("/ui", &format!("manage/{action}"))
    }

    pub(super) fn diff(&self, v1: &VersionNumber, v2: &VersionNumber, alt: bool) -> String {
        let query = Query::default().and("v1", v1).and("v2", v2);
        if alt { query.and("alt", true) } else { query }.at(&self.page("diff"))
    }

    pub(super) fn version(&self, selector: VersionSelector, alt: bool) -> Place {
        Place { dataset: self.clone(), selector, alt }
    }

    pub(super) fn number(&self, number: VersionNumber) -> Place {
        self.version(VersionSelector::Number(number), false)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) dataset: DatasetPlace,
    pub(super) selector: VersionSelector,
    /// Whether the path names the alternate.
    pub(super) alt: bool,
}

impl Place {
    /// Parses a path below `/ui/`, and returns the parts that follow the version.
    pub(super) fn parse(path: &str) -> Result<(Place, Vec<&str>), HttpError> {
        let path = path.trim_start_matches("/ui/");
        let parts: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
        let own = if parts.get(3) == Some(&"alt") { 4 } else { 3 };
        let (read, rest) = parts.split_at(own.min(parts.len()));
        let read = path::parse(&format!("/api/{}", read.join("/")))?;
        let dataset = DatasetPlace { id: read.target.dataset, slug: read.target.name_slug };
        Ok((dataset.version(read.target.version, read.alt), rest.to_vec()))
    }

    pub(super) fn target(&self) -> ReadTarget {
        ReadTarget { dataset: self.dataset.id, name_slug: self.dataset.slug.clone(), version: self.selector }
    }

    fn below(&self, root: &str, rest: &str) -> String {
        let alt = if self.alt { "alt/" } else { "" };
        self.dataset.below(root, &format!("{}/{alt}{rest}", self.selector))
    }

    pub(super) fn browse(&self) -> String {
        self.page("")
    }

    pub(super) fn api(&self) -> String {
        self.below("/api", "")
    }

    /// A page of the version, such as `profile`.
    pub(super) fn page(&self, name: &str) -> String {
        self.below("/ui", name)
    }

    pub(super) fn alternate(&self) -> String {
        Place { alt: false, ..self.clone() }.page("alternate")
    }

    pub(super) fn alternate_action(&self, action: &str) -> String {
        format!("{}/{action}", self.alternate())
    }

    pub(super) fn entity(&self, position: u64) -> String {
        self.page(&format!("entity/{position}"))
    }
}

/// The position of an entity, which errors show as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Position {
    /// `u64::MAX` for all larger positions.
    pub(super) at: u64,
    sent: String,
}

impl Position {
    pub(super) fn parse(text: &str) -> Result<Position, HttpError> {
        let text = text.trim();
        match whole_number(text) {
            Some(at) => Ok(Position { at, sent: format::as_sent(text) }),
            None => {
                let text = format!("The position must be a whole number (0 or greater), but is {}.", quoted(text));
                Err(HttpError::Invalid { status: StatusCode::BAD_REQUEST, text })
            }
        }
    }

    pub(super) fn is_past_all(&self) -> bool {
        self.at == u64::MAX
    }

    /// The error for a position without an entity.
    pub(super) fn is_in_none(&self, what: &str, entities: u64) -> HttpError {
        let text = format::no_position(&self.sent, what, entities);
        HttpError::Invalid { status: StatusCode::NOT_FOUND, text }
    }
}

impl From<u64> for Position {
    fn from(at: u64) -> Self {
        Position { at, sent: at.to_string() }
    }
}
