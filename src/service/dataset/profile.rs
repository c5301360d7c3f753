//! The profile of a version: what its paths hold, and which of them have a shredded column. It was computed when the
//! version was written, and is stored in a separate range of the file, so that no entity is read for it.
//!
//! Who may see it: the owner, of any of theirs; everybody else, of a public dataset that is not frozen, as for a read.

use std::sync::Arc;

use serde::Serialize;
use strata_format::profile::{ProfileSummary, StoredProfile};
use strata_format::reader::VersionReader;
use strata_types::ids::DatasetId;
use strata_types::user::User;
use strata_types::version::VersionSelector;
use utoipa::ToSchema;

use crate::admission::{Permit, Weight};
use crate::{Admitted, Client, Principal, ReadError, Reads};

/// A description of the contents of a version or its alternate.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VersionProfile {
    /// The ID of the dataset.
    pub dataset_id: u64,
    /// The number of the version.
    pub version: u64,
    /// Whether the profile describes the version's alternate.
    pub alt: bool,
    /// The size of the file in bytes.
    pub file_size_bytes: u64,
    /// The profile that strata stored with the version.
    #[serde(flatten)]
    pub contents: StoredProfile,
}

impl VersionProfile {
    /// The profile that callers get. See [`StoredProfile::without_spreads`].
    pub fn without_spreads(self) -> VersionProfile {
        VersionProfile { contents: self.contents.without_spreads(), ..self }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ProfileRequest<'a> {
    pub caller: Option<&'a User>,
    /// The address that a request without a user is charged to.
    pub client: Client,
    pub dataset: DatasetId,
    /// A number, or the active version.
    pub version: VersionSelector,
    pub alt: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Nobody has authenticated, and no public dataset has this id. A private one may or may not.
    #[error("the dataset is not public, and the request has no credentials")]
    Unauthenticated,
    #[error("no such dataset")]
    DatasetNotFound,
    /// As of a read: the dataset is frozen and another's; no such version or alternate; the file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Reads {
    /// The profile of a version, or of its alternate: of the caller's datasets, frozen ones too, and for everybody of
    /// public ones that are not frozen. One look-up in the catalog, and two requests to the store at most.
    pub async fn profile(&self, request: ProfileRequest<'_>) -> Result<VersionProfile, ProfileError> {
        let (reader, admitted, _permit) = self.open_profile(request).await?;
        let contents = reader.profile().await.map_err(ReadError::from)?;
        Ok(VersionProfile {
            dataset_id: admitted.dataset_id.get(),
            version: admitted.version.get(),
            alt: admitted.alt,
            file_size_bytes: admitted.file.size_bytes,
            contents,
        })
    }

    /// As [`Reads::profile`], for the beginning of the profile, which stays in memory.
    pub async fn profile_summary(&self, request: ProfileRequest<'_>) -> Result<Arc<ProfileSummary>, ProfileError> {
        let (reader, _, _permit) = self.open_profile(request).await?;
        Ok(reader.profile_summary().await.map_err(ReadError::from)?)
    }

    async fn open_profile(
        &self,
        request: ProfileRequest<'_>,
    ) -> Result<(VersionReader, Admitted, Permit), ProfileError> {
        let ProfileRequest { caller, client, dataset, version, alt } = request;
        let hidden = || if caller.is_some() { ProfileError::DatasetNotFound } else { ProfileError::Unauthenticated };
        let resolved = self.lookups.resolve(dataset, version).await?.ok_or_else(hidden)?;
        let dataset = &resolved.dataset;
        let owned = caller.is_some_and(|user| user.id == dataset.owner);
        if !owned && dataset.is_private() {
            return Err(hidden());
        }
        if !owned && dataset.frozen {
            return Err(ReadError::Frozen.into());
        }
        let holder = caller.map_or(Principal::Anonymous(client), |user| Principal::User(user.id));
        let admitted = Admitted::new(&resolved, version, alt, holder)?;
        let permit = self.capacity.admission.of(holder).query(Weight::Light).await.map_err(ReadError::from)?;
        let reader = VersionReader::open_recorded(&self.store, &admitted.file, &self.cache).await;
        Ok((reader.map_err(ReadError::from)?, admitted, permit))
    }
}
