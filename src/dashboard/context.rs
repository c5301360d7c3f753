//! The dataset and the version that a page is about.

use strata_catalog::{Attempt, AttemptOutcome};
use strata_http::error::HttpError;
use strata_http::visit;
use strata_service::{Admitted, Authorization, Bucket, ReadError, Requester, UsageMeter};
use strata_types::dataset::Dataset;
use strata_types::version::{Version, VersionSelector};

use super::query::Query;
use super::safe_text::SafeText;
use super::urls::{DatasetPlace, Place};
use super::visit::Visit;

pub(super) struct Opened {
    pub(super) dataset: Dataset,
    pub(super) version: Version,
    pub(super) admitted: Admitted,
}

impl Opened {
    pub(super) fn title(&self) -> String {
        let alternate = if self.admitted.alt { ", alternate" } else { "" };
        format!("{} v{}{alternate}", self.dataset.name.as_str(), self.version.number)
    }
}

/// Counts the request as a read, and finds its version. As at the read endpoint, an anonymous request over the rate
/// limit costs no look-up. For all but its owner, a private dataset does not exist.
pub(super) async fn open(visit: &mut Visit, place: &Place, alt: bool) -> Result<Opened, HttpError> {
    let services = visit.services.clone();
    let target = place.target();
    let client = visit.visitor.client;
    let user = visit.visitor.user.clone();
    if user.is_none()
        && let Err(refused) = visit::count(&services, client, Bucket::Public, &mut visit.headers).await
    {
        visit.meter = Some(services.usage.refused(target.dataset, &target.name_slug));
        return Err(refused);
    }
    let lookup = match user {
        None => services.lookups.find(&target).await,
        Some(_) => services.lookups.find_in_turn(client, &target).await,
    };
    let found = lookup.as_ref().ok().and_then(|lookup| lookup.visible_to(user.as_ref()));
    let found = found.map(|(dataset, version)| (dataset.clone(), version.cloned()));
    visit.meter = found.as_ref().map(|(dataset, _)| services.usage.found(dataset.id));
    if user.is_some() {
        let is_private = found.as_ref().is_some_and(|(dataset, _)| dataset.is_private());
        let bucket = if is_private { Bucket::Private } else { Bucket::Public };
        if let Err(refused) = visit::count(&services, client, bucket, &mut visit.headers).await {
            visit.meter.iter().for_each(UsageMeter::rate_limited);
            return Err(refused);
        }
    }
    let lookup = lookup?;
    let (dataset, version) = found.ok_or(ReadError::DatasetNotFound)?;
    visit.dataset = dataset.latest_version.is_some().then(|| DatasetPlace::new(&dataset));
    let requester = match &user {
        None => Requester::Client { client, authorization: Authorization::None },
        Some(user) => Requester::User(user),
    };
    let admitted = lookup.authorize(requester, alt)?;
    let version = version.ok_or(ReadError::DatasetNotFound)?;
    Ok(Opened { dataset, version, admitted })
}

/// The parameter of the page of differences that names the version whose page has the link.
pub(super) const COMPARED: &str = "of";

/// Characters and lines of a description that is not folded.
const DESCRIPTION_CHARACTERS: usize = 400;
const DESCRIPTION_LINES: usize = 4;

/// The beginning of a long description, which is folded.
pub(super) fn beginning(description: &str) -> Option<SafeText> {
    let lines: Vec<&str> = description.lines().take(DESCRIPTION_LINES + 1).collect();
    let is_long = description.chars().nth(DESCRIPTION_CHARACTERS).is_some() || lines.len() > DESCRIPTION_LINES;
    let first = lines.iter().copied().find(|line| !line.trim().is_empty()).unwrap_or_default();
    is_long.then(|| SafeText::short(first, DESCRIPTION_CHARACTERS / 2))
}

/// The values of `heading.html`.
pub(super) struct Heading {
    pub(super) dataset: Dataset,
    /// The version of the page, such as `v3, active`.
    pub(super) version: Option<String>,
    /// The active version, if the page shows another one, and its page.
    pub(super) active: Option<(u64, String)>,
    /// The words and the target of the link between a version and its alternate.
    pub(super) beside: Option<(&'static str, String)>,
    /// The version of the tabs.
    pub(super) place: Place,
    pub(super) browse: String,
    pub(super) owned: bool,
    pub(super) compare: String,
    /// Whether the newest refresh has failed, for the owner.
    pub(super) failed: bool,
    pub(super) tab: Tab,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Data,
    Profile,
    Versions,
    Compare,
    Settings,
    Refresh,
    Webhook,
    Usage,
}

impl Heading {
    pub(super) fn new(visit: &Visit, opened: &Opened, place: &Place, tab: Tab) -> Heading {
        let Opened { dataset, version, admitted, .. } = opened;
        let compare = Query::default().and(COMPARED, version.number);
        let compare = if admitted.alt { compare.and("alt", true) } else { compare }.at(&place.dataset.page("diff"));
        let shown = Heading::version(dataset, version.number.get(), admitted.alt);
        let active = dataset.active_version().filter(|active| *active != version.number && !dataset.frozen);
        let active =
            active.map(|active| (active.get(), place.dataset.version(VersionSelector::Active, false).browse()));
        let other = place.dataset.version(VersionSelector::Number(version.number), !admitted.alt);
        let words = if admitted.alt { "View original version" } else { "View alternate" };
        let beside = match tab {
            Tab::Data if version.alt.is_some() => Some((words, other.browse())),
            Tab::Profile if version.alt.is_some() => Some((words, other.page("profile"))),
            _ => None,
        };
        Heading { version: Some(shown), active, beside, compare, ..Heading::for_dataset(visit, dataset, place, tab) }
    }

    pub(super) fn version(dataset: &Dataset, number: u64, alt: bool) -> String {
        let is_active = dataset.active_version().is_some_and(|active| active.get() == number);
        let active = match dataset.pinned_version {
            Some(_) if is_active => ", active and pinned",
            None if is_active => ", active",
            _ => "",
        };
        format!("v{number}{active}{}", if alt { ", alternate" } else { "" })
    }

    /// The heading of a page that is not about a version, with tabs for the version of this place.
    pub(super) fn for_dataset(visit: &Visit, dataset: &Dataset, place: &Place, tab: Tab) -> Heading {
        Heading {
            dataset: dataset.clone(),
            version: None,
            active: None,
            beside: None,
            place: place.clone(),
            browse: place.browse(),
            owned: visit.visitor.user.as_ref().is_some_and(|user| user.id == dataset.owner),
            compare: place.dataset.page("diff"),
            failed: false,
            tab,
        }
    }

    /// Looks up whether the newest refresh has failed. The page does not need the look-up to succeed.
    pub(super) async fn with_failure(self, visit: &Visit, dataset: &Dataset) -> Heading {
        let Some(user) = visit.visitor.user.as_ref().filter(|_| self.owned) else { return self };
        let newest = visit.services.datasets.attempts(user, dataset.id, None, 1).await.unwrap_or_default();
        let has_failed = |attempt: &Attempt| matches!(attempt.outcome, Some(AttemptOutcome::Failed { .. }));
        Heading { failed: newest.first().is_some_and(has_failed), ..self }
    }
}
