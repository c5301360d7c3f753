//! The dataset and the version that a dashboard page shows.

use strata_catalog::{AttemptOutcome, RefreshAttempt};
use strata_http::error::HttpError;
use strata_http::page_support;
use strata_service::{AuthorizationHeader, AuthorizedTarget, RateLimitBucket, ReadError, ReadRequester, UsageMeter};
use strata_types::dataset::Dataset;
use strata_types::version::{DatasetVersion, VersionNumber, VersionSelector, VersionVariant};

use super::page_request::PageRequest;
use super::query_params::QueryParams;
use super::safe_text::SafeText;
use super::urls::{DatasetUrls, VersionUrls};

pub(super) struct VersionContext {
    pub(super) dataset: Dataset,
    pub(super) version: DatasetVersion,
    pub(super) authorized_target: AuthorizedTarget,
}

impl VersionContext {
    pub(super) fn title(&self) -> String {
        let alternate = if self.authorized_target.variant.is_alternate() { ", alternate" } else { "" };
        format!("{} v{}{alternate}", self.dataset.name.as_str(), self.version.number)
    }
}

/// Counts the request as a read and resolves its version. An anonymous request over the rate limit costs no database
/// lookup, as in the API. Only the owner can distinguish a private dataset from a missing one.
pub(super) async fn load_version_context(
    req: &mut PageRequest,
    urls: &VersionUrls,
    alt: bool,
) -> Result<VersionContext, HttpError> {
    let services = req.services.clone();
    let target = urls.read_target();
    let client = req.current_user.client;
    let user = req.current_user.user.clone();
    if user.is_none()
        && let Err(refused) =
            page_support::count(&services, client, RateLimitBucket::Public, &mut req.response_headers).await
    {
        req.usage_meter = Some(services.usage.meter_rate_limited(target.dataset, &target.name_slug));
        return Err(refused);
    }
    let lookup = match user {
        None => services.lookups.find(&target).await,
        Some(_) => services.lookups.find_with_permit(client, &target).await,
    };
    let found = lookup.as_ref().ok().and_then(|lookup| lookup.dataset_and_version_visible_to(user.as_ref()));
    let found = found.map(|(dataset, version)| (dataset.clone(), version.cloned()));
    req.usage_meter = found.as_ref().map(|(dataset, _)| services.usage.meter_read(dataset.id));
    if user.is_some() {
        let is_private = found.as_ref().is_some_and(|(dataset, _)| dataset.is_private());
        let bucket = if is_private { RateLimitBucket::Private } else { RateLimitBucket::Public };
        if let Err(refused) = page_support::count(&services, client, bucket, &mut req.response_headers).await {
            req.usage_meter.iter().for_each(UsageMeter::record_rate_limited);
            return Err(refused);
        }
    }
    let lookup = lookup?;
    let (dataset, version) = found.ok_or(ReadError::DatasetNotFound)?;
    req.dataset_urls = dataset.latest_version.is_some().then(|| DatasetUrls::new(&dataset));
    let authorized_target = lookup.authorize(read_requester(req), VersionVariant::from_alt(alt))?;
    Ok(VersionContext { dataset, version: version.ok_or(ReadError::DatasetNotFound)?, authorized_target })
}

fn read_requester(req: &PageRequest) -> ReadRequester<'_> {
    match &req.current_user.user {
        None => ReadRequester::Client { client: req.current_user.client, authorization: AuthorizationHeader::None },
        Some(user) => ReadRequester::User(user),
    }
}

/// Resolves another version of a dataset whose version was loaded by [`load_version_context`], without counting again.
pub(super) async fn find_other_version(
    req: &PageRequest,
    urls: &VersionUrls,
    number: VersionNumber,
) -> Result<AuthorizedTarget, HttpError> {
    let lookup = req.services.lookups.find(&urls.dataset.for_version_number(number).read_target()).await?;
    Ok(lookup.authorize(read_requester(req), VersionVariant::Original)?)
}

/// The query parameter of the comparison page that contains the number of the version from whose page it was opened.
pub(super) const LINKING_VERSION_PARAM: &str = "of";

const MAX_UNFOLDED_DESCRIPTION_CHARACTERS: usize = 400;
const MAX_UNFOLDED_DESCRIPTION_LINES: usize = 4;

pub(super) fn description_preview(description: &str) -> Option<SafeText> {
    let lines: Vec<&str> = description.lines().take(MAX_UNFOLDED_DESCRIPTION_LINES + 1).collect();
    let is_long = description.chars().nth(MAX_UNFOLDED_DESCRIPTION_CHARACTERS).is_some()
        || lines.len() > MAX_UNFOLDED_DESCRIPTION_LINES;
    let first = lines.iter().copied().find(|line| !line.trim().is_empty()).unwrap_or_default();
    is_long.then(|| SafeText::with_ellipsis(first, MAX_UNFOLDED_DESCRIPTION_CHARACTERS / 2))
}

pub(super) struct DatasetHeading {
    pub(super) dataset: Dataset,
    pub(super) version: Option<String>,
    pub(super) active_version_link: Option<(u64, String)>,
    pub(super) counterpart_link: Option<(&'static str, String)>,
    pub(super) urls: VersionUrls,
    pub(super) browse: String,
    pub(super) is_owner: bool,
    pub(super) compare: String,
    /// Whether the newest refresh failed. Always false for visitors who do not own the dataset.
    pub(super) has_failed_refresh: bool,
    pub(super) tab: DatasetTab,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatasetTab {
    Data,
    Profile,
    Changes,
    Versions,
    Compare,
    Settings,
    Refresh,
    Webhook,
    Usage,
}

impl DatasetHeading {
    pub(super) fn new(req: &PageRequest, ctx: &VersionContext, urls: &VersionUrls, tab: DatasetTab) -> DatasetHeading {
        let VersionContext { dataset, version, authorized_target: target, .. } = ctx;
        let compare = QueryParams::default().with_added(LINKING_VERSION_PARAM, version.number);
        let is_alternate = target.variant.is_alternate();
        let compare = compare.with_optional("alt", is_alternate.then_some(true));
        let active = dataset.active_version().filter(|active| *active != version.number && !dataset.frozen);
        let active_version_link = active.map(|active| (active.get(), urls.dataset.active_version().browse_url()));
        let other = urls.dataset.for_version(VersionSelector::Number(version.number), !is_alternate);
        let words = if is_alternate { "View original version" } else { "View alternate" };
        let counterpart_link = match tab {
            DatasetTab::Data if version.alternate.is_some() => Some((words, other.browse_url())),
            DatasetTab::Profile if version.alternate.is_some() => Some((words, other.page_url("profile"))),
            _ => None,
        };
        DatasetHeading {
            version: Some(DatasetHeading::version_label(dataset, version.number.get(), is_alternate)),
            active_version_link,
            counterpart_link,
            compare: compare.to_url(&urls.dataset.page_url("diff")),
            ..DatasetHeading::for_dataset(req, dataset, urls, tab)
        }
    }

    pub(super) fn version_label(dataset: &Dataset, number: u64, alt: bool) -> String {
        let is_active = dataset.active_version().is_some_and(|active| active.get() == number);
        let active = match dataset.pinned_version {
            Some(_) if is_active => ", active and pinned",
            None if is_active => ", active",
            _ => "",
        };
        format!("v{number}{active}{}", if alt { ", alternate" } else { "" })
    }

    pub(super) fn for_dataset(
        req: &PageRequest,
        dataset: &Dataset,
        urls: &VersionUrls,
        tab: DatasetTab,
    ) -> DatasetHeading {
        DatasetHeading {
            dataset: dataset.clone(),
            version: None,
            active_version_link: None,
            counterpart_link: None,
            urls: urls.clone(),
            browse: urls.browse_url(),
            is_owner: req.current_user.user.as_ref().is_some_and(|user| user.id == dataset.owner),
            compare: urls.dataset.page_url("diff"),
            has_failed_refresh: false,
            tab,
        }
    }

    /// Sets `has_failed_refresh` by the newest refresh attempt. If the lookup of the attempt fails, the value is false.
    pub(super) async fn with_refresh_status(self, req: &PageRequest, dataset: &Dataset) -> DatasetHeading {
        let Some(user) = req.current_user.user.as_ref().filter(|_| self.is_owner) else { return self };
        let newest = req.services.datasets.list_attempts(user, dataset.id, None, 1).await.unwrap_or_default();
        let has_failed = |attempt: &RefreshAttempt| matches!(attempt.outcome, Some(AttemptOutcome::Failed { .. }));
        DatasetHeading { has_failed_refresh: newest.first().is_some_and(has_failed), ..self }
    }
}
