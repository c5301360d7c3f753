//! Where the pages of a dataset are. `/ui/{dataset_id}/{name_slug}/{version}/[alt/]` is the page of the read
//! `/api/{dataset_id}/{name_slug}/{version}/[alt/]`; other pages of the version lie below it.

use axum::http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use strata_http::error::HttpError;
use strata_http::read::path;
use strata_http::visit::quoted;
use strata_service::ReadTarget;
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::version::{VersionNumber, VersionSelector};

use super::figures;
use super::query::{Query, whole_number};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Clone, Debug)]
pub(super) struct DatasetPlace {
    pub(super) id: DatasetId,
    pub(super) slug: String,
}

impl DatasetPlace {
    pub(super) fn of(dataset: &Dataset) -> DatasetPlace {
        DatasetPlace { id: dataset.id, slug: dataset.name.slug().to_owned() }
    }

    /// The one that a path below `/ui/` begins with.
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

    /// The page that compares a version with another one, or with its alternate.
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
    /// The one of a path below `/ui/`, and what follows it: a page of the version, and what that is of.
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

    /// The page of the version's alternate, for its owner.
    pub(super) fn alternate(&self) -> String {
        Place { alt: false, ..self.clone() }.page("alternate")
    }

    /// The page that changes the alternate in this way.
    pub(super) fn alternate_action(&self, action: &str) -> String {
        format!("{}/{action}", self.alternate())
    }

    pub(super) fn entity(&self, position: u64) -> String {
        self.page(&format!("entity/{position}"))
    }
}

/// The position of an entity, which errors show as it was sent, also if no number is as large.
#[derive(Clone, Debug)]
pub(super) struct Position {
    /// Past all entities where it was sent larger than numbers are.
    pub(super) at: u64,
    sent: String,
}

impl Position {
    /// The one of a text; 400 for anything else.
    pub(super) fn parse(text: &str) -> Result<Position, HttpError> {
        let text = text.trim();
        match whole_number(text) {
            Some(at) => Ok(Position { at, sent: figures::as_sent(text) }),
            None => {
                let text = format!("The position must be a whole number (0 or greater), but is {}.", quoted(text));
                Err(HttpError::Invalid { status: StatusCode::BAD_REQUEST, text })
            }
        }
    }

    /// Whether no entity can be there.
    pub(super) fn is_past_all(&self) -> bool {
        self.at == u64::MAX
    }

    /// That an entity is not there, of a version or a list.
    pub(super) fn is_in_none(&self, what: &str, entities: u64) -> HttpError {
        let text = figures::no_position(&self.sent, what, entities);
        HttpError::Invalid { status: StatusCode::NOT_FOUND, text }
    }
}

impl From<u64> for Position {
    fn from(at: u64) -> Self {
        Position { at, sent: at.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_that_of_a_read_and_written_back() {
        for (path, api, rest) in [
            ("/ui/7/k%C3%B6ln/active/", "/api/7/k%C3%B6ln/active/", &[][..]),
            ("/ui/7/a%2Fb/v12", "/api/7/a%2Fb/v12/", &[]),
            ("/ui/7/x/v12/alt", "/api/7/x/v12/alt/", &[]),
            ("/ui/7/x/v12/alt/entity/3", "/api/7/x/v12/alt/", &["entity", "3"]),
            ("/ui/7/x/latest/profile", "/api/7/x/latest/", &["profile"]),
        ] {
            let (place, found) = Place::parse(path).expect(path);
            assert_eq!((place.api().as_str(), found.as_slice()), (api, rest), "{path}");
            assert_eq!(DatasetPlace::parse(path).expect(path).slug, place.dataset.slug);
        }
        for path in ["/ui/x/y/v1", "/ui/0/y/v1/", "/ui/1/y/1/", "/ui/1/%zz/v1/profile"] {
            assert!(Place::parse(path).is_err(), "{path}");
        }
        let (place, _) = Place::parse("/ui/7/k%C3%B6ln/v3/alt/").expect("a place");
        assert_eq!(place.entity(5), "/ui/7/k%C3%B6ln/v3/alt/entity/5");
        assert_eq!(place.dataset.manage("pin"), "/ui/7/k%C3%B6ln/manage/pin");
    }
}
