//! The dataset and the version that a page is about.

use strata_catalog::{Attempt, AttemptOutcome};
use strata_http::error::HttpError;
use strata_http::visit;
use strata_service::{Admitted, Authorization, Bucket, ReadError, Requester, UsageMeter};
use strata_types::dataset::Dataset;
use strata_types::version::{Version, VersionSelector};

use super::place::{DatasetPlace, Place};
use super::query::Query;
use super::shown::Shown;
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

/// Counts the request as a read, and finds what it names. As at the read endpoint, a request of nobody that is one too
/// many costs no look-up. To all but its owner, a private dataset is what a missing one is.
pub(super) async fn open(visit: &mut Visit, place: &Place, alt: bool) -> Result<Opened, HttpError> {
    let app = visit.app.clone();
    let target = place.target();
    let client = visit.visitor.client;
    let user = visit.visitor.user.clone();
    if user.is_none()
        && let Err(refused) = visit::count(&app, client, Bucket::Public, &mut visit.headers).await
    {
        visit.meter = Some(app.usage().refused(target.dataset, &target.name_slug));
        return Err(refused);
    }
    let lookup = match user {
        None => app.lookups().find(&target).await,
        Some(_) => app.lookups().find_in_turn(client, &target).await,
    };
    let found = lookup.as_ref().ok().and_then(|lookup| lookup.visible_to(user.as_ref()));
    let found = found.map(|(dataset, version)| (dataset.clone(), version.cloned()));
    visit.meter = found.as_ref().map(|(dataset, _)| app.usage().found(dataset.id));
    if user.is_some() {
        let is_private = found.as_ref().is_some_and(|(dataset, _)| dataset.is_private());
        let bucket = if is_private { Bucket::Private } else { Bucket::Public };
        if let Err(refused) = visit::count(&app, client, bucket, &mut visit.headers).await {
            visit.meter.iter().for_each(UsageMeter::rate_limited);
            return Err(refused);
        }
    }
    let lookup = lookup?;
    let (dataset, version) = found.ok_or(ReadError::DatasetNotFound)?;
    visit.dataset = dataset.latest_version.is_some().then(|| DatasetPlace::of(&dataset));
    let requester = match &user {
        None => Requester::Client { client, authorization: Authorization::None },
        Some(user) => Requester::User(user),
    };
    let admitted = lookup.authorize(requester, alt)?;
    // Nobody is admitted to what is not there.
    let version = version.ok_or(ReadError::DatasetNotFound)?;
    Ok(Opened { dataset, version, admitted })
}

/// The parameter of the page of differences that names the version whose page led there.
pub(super) const COMPARED: &str = "of";

/// Characters and lines of a description that are shown as a whole.
const DESCRIPTION_CHARACTERS: usize = 400;
const DESCRIPTION_LINES: usize = 4;

/// The beginning of a description that is long, so that the page begins near its top.
pub(super) fn beginning(description: &str) -> Option<Shown> {
    let lines: Vec<&str> = description.lines().take(DESCRIPTION_LINES + 1).collect();
    let is_long = description.chars().nth(DESCRIPTION_CHARACTERS).is_some() || lines.len() > DESCRIPTION_LINES;
    let first = lines.iter().copied().find(|line| !line.trim().is_empty()).unwrap_or_default();
    is_long.then(|| Shown::short(first, DESCRIPTION_CHARACTERS / 2))
}

/// What pages of a dataset say of it, and the way to its other pages.
pub(super) struct Heading {
    pub(super) dataset: Dataset,
    /// The version shown, where one is: `v3`, and what else is said of it.
    pub(super) version: Option<String>,
    /// The active version, where another one is shown, and its page.
    pub(super) active: Option<(u64, String)>,
    /// The alternate of the version shown, or the version of the alternate: what leads there, and its page.
    pub(super) beside: Option<(&'static str, String)>,
    /// The version whose pages the tabs lead to.
    pub(super) place: Place,
    /// Its entities, as they were asked for where one came from.
    pub(super) browse: String,
    /// Whether the visitor owns the dataset, and sees the pages for owners.
    pub(super) owned: bool,
    /// What this version differs in from the one before.
    pub(super) compare: String,
    /// For the owner: whether the newest refresh has failed.
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
    pub(super) fn of(visit: &Visit, opened: &Opened, place: &Place, tab: Tab) -> Heading {
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
        Heading { version: Some(shown), active, beside, compare, ..Heading::around(visit, dataset, place, tab) }
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

    /// That of a dataset whose pages of a version are those of this place.
    pub(super) fn around(visit: &Visit, dataset: &Dataset, place: &Place, tab: Tab) -> Heading {
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

    /// With the failure of the newest refresh, for the owner of the dataset: at night nobody sees it. One look-up;
    /// where it fails, the page goes without.
    pub(super) async fn with_failure(self, visit: &Visit, dataset: &Dataset) -> Heading {
        let Some(user) = visit.visitor.user.as_ref().filter(|_| self.owned) else { return self };
        let newest = visit.app.datasets().attempts(user, dataset.id, None, 1).await.unwrap_or_default();
        let has_failed = |attempt: &Attempt| matches!(attempt.outcome, Some(AttemptOutcome::Failed { .. }));
        Heading { failed: newest.first().is_some_and(has_failed), ..self }
    }
}
