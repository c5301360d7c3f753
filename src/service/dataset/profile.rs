//! Returns the profile of a version: its paths with their types, ranges and frequent values, and the indexed columns.
//!
//! The profile is computed when the version is written and stored in its own range of the file, so that no entity must
//! be read. Owners can see the profiles of all their datasets; other users only of public datasets that are not frozen.

use std::sync::Arc;

use serde::Serialize;
use strata_format::profile::{ProfileSummary, StoredProfile};
use strata_format::reader::VersionReader;
use strata_types::ids::DatasetId;
use strata_types::user::User;
use strata_types::version::{VersionSelector, VersionVariant};
use utoipa::ToSchema;

use crate::admission::{CostClass, Permit};
use crate::{AuthorizedTarget, ClientNetwork, Principal, ReadError, ReadService};

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
    /// Returns the profile as users see it; see [`StoredProfile::without_histograms`].
    pub fn without_histograms(self) -> VersionProfile {
        VersionProfile { contents: self.contents.without_histograms(), ..self }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ProfileRequest<'a> {
    pub caller: Option<&'a User>,
    /// The network of the client, whose limits apply to a request without a user.
    pub client: ClientNetwork,
    pub dataset: DatasetId,
    pub version: VersionSelector,
    pub variant: VersionVariant,
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The request has no user, and no public dataset has this ID. The error hides whether a private dataset has it.
    #[error("the dataset is not public, and the request has no credentials")]
    Unauthenticated,
    #[error("no such dataset")]
    DatasetNotFound,
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl ReadService {
    /// Returns the profile of a version or of its alternate, with one catalog look-up and at most two store requests.
    pub async fn profile(&self, request: ProfileRequest<'_>) -> Result<VersionProfile, ProfileError> {
        let (reader, target, _permit) = self.open_profile(request).await?;
        let contents = reader.profile().await.map_err(ReadError::from)?;
        Ok(VersionProfile {
            dataset_id: target.dataset_id.get(),
            version: target.version.get(),
            alt: target.variant.is_alternate(),
            file_size_bytes: target.file.size_bytes,
            contents,
        })
    }

    /// Like [`ReadService::profile`], but returns the summary at the start of the profile, which is cached.
    pub async fn profile_summary(&self, request: ProfileRequest<'_>) -> Result<Arc<ProfileSummary>, ProfileError> {
        let (reader, _, _permit) = self.open_profile(request).await?;
        Ok(reader.profile_summary().await.map_err(ReadError::from)?)
    }

    async fn open_profile(
        &self,
        request: ProfileRequest<'_>,
    ) -> Result<(VersionReader, AuthorizedTarget, Permit), ProfileError> {
        let ProfileRequest { caller, client, dataset, version, variant } = request;
        let hidden = || if caller.is_some() { ProfileError::DatasetNotFound } else { ProfileError::Unauthenticated };
        let resolved = self.lookups.resolve(dataset, version).await?.ok_or_else(hidden)?;
        let dataset = &resolved.dataset;
        let is_owner = caller.is_some_and(|user| user.id == dataset.owner);
        if !is_owner && dataset.is_private() {
            return Err(hidden());
        }
        if !is_owner && dataset.frozen {
            return Err(ReadError::Frozen.into());
        }
        let principal = caller.map_or(Principal::Anonymous(client), |user| Principal::User(user.id));
        let target = AuthorizedTarget::new(&resolved, version, variant, principal)?;
        let admission = self.resources.admission.for_principal(principal);
        let permit = admission.acquire_query(CostClass::Light).await.map_err(ReadError::from)?;
        let reader = VersionReader::open_recorded(&self.store, &target.file, &self.cache).await;
        Ok((reader.map_err(ReadError::from)?, target, permit))
    }
}
