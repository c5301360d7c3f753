//! `…/diff`: the differences between two versions of a dataset, or a version and its alternate, for the owner. The
//! query string is that of `GET /dataset/diff`.

mod records;
mod summary;

use askama::Template;
use axum::http::StatusCode;
use strata_diff::{ChangeType, DiffPage};
use strata_encode::ContentCoding;
use strata_http::error::HttpError;
use strata_http::visit::{self, BaseUrl, DiffCall};
use strata_service::{DiffError, DiffForm, DiffSummary, ManageError, ReadError, VersionDiff};
use strata_types::limits::{PAGE_BYTES, PAGE_ENTITIES};
use strata_types::version::{VersionNumber, there_are};

use self::records::Record;
use self::summary::Summary;
use super::browse::Entities;
use super::context::{COMPARED, Heading, Tab};
use super::entity_diff::{Compared, Equality, Paths, Room};
use super::form_handling::own;
use super::format;
use super::query::Query;
use super::urls::{DatasetPlace, Place};
use super::visit::{PageResult, Shell, Visit, render};

const RECORDS: u64 = 20;

const FIELD_CHARACTERS: usize = 200;

/// The parameter that shows equal values, too.
const VIEW: &str = "view";
const WHOLE: &str = "whole";
const VIEWS: [&str; 2] = ["changes", WHOLE];

#[derive(Template)]
#[template(path = "diff.html")]
struct DiffPageHtml {
    shell: Shell,
    heading: Heading,
    form: Form,
    problem: Option<String>,
    found: Option<DiffResults>,
}

struct Form {
    v1: String,
    v2: String,
    alt: bool,
    /// SubmittedForm again, though the form has no field for it.
    change_type: String,
}

struct DiffResults {
    title: String,
    /// Entities of each version, and of each change type.
    totals: DiffSummary,
    names: [String; 2],
    of: u64,
    kinds: Vec<Kind>,
    summary: Option<Summary>,
    summary_href: Option<String>,
    records: String,
    notes: Vec<String>,
    list: Vec<RecordHtml>,
    pages: Vec<(&'static str, &'static str, String)>,
    whole: bool,
    view: String,
    api: String,
    api_href: String,
}

/// A filter by change type.
struct Kind {
    name: &'static str,
    number: String,
    href: String,
    current: bool,
}

struct RecordHtml {
    kind: &'static str,
    class: &'static str,
    /// The entity in words, and its page.
    old: Option<(String, String)>,
    new: Option<(String, String)>,
    changed: Option<String>,
    compared: Compared,
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    let uri = visit.head.uri.clone();
    visit::check_utf8(&visit.head)?;
    let place = DatasetPlace::parse(uri.path())?;
    let own = own(visit).await?;
    let dataset = &own.view.dataset;
    let sent = Query::parse(uri.query());
    // Calls that are copied here can name the dataset and a format.
    let names: Vec<&str> = DiffCall::parameters().chain([VIEW, COMPARED]).collect();
    let shown: Vec<&str> = names.iter().copied().filter(|name| !["dataset_id", "format"].contains(name)).collect();
    visit.ignore_others(&sent.without(&["dataset_id", "format"]), &shown);
    // The form sends empty fields.
    let given = sent.pairs().iter().filter(|(name, value)| !value.is_empty() && names.contains(&name.as_str()));
    let query: Query = given.cloned().collect();
    let field = |name| query.first(name).unwrap_or_default().chars().take(FIELD_CHARACTERS).collect::<String>();
    // Unless two are chosen: the version whose page has the link to this one, or the last version, and the one before.
    let latest = dataset.latest_version.map_or(0, VersionNumber::get);
    let of_alternate = query.is_true("alt");
    let has_two = latest > 1 || (of_alternate && latest > 0);
    let is_open = has_two && query.first("v1").is_none() && query.first("v2").is_none();
    let of = of(&query, latest);
    let [v1, v2] = proposed(*of.as_ref().unwrap_or(&None), latest, of_alternate);
    let chosen = |name, number: u64| if is_open { number.to_string() } else { field(name) };
    let form =
        Form { v1: chosen("v1", v1), v2: chosen("v2", v2), alt: of_alternate, change_type: field("change_type") };
    let compared = async {
        of?;
        let is_asked = query.first("v1").is_some() || query.first("v2").is_some();
        let call = call(&place, &query, (!is_asked).then_some([v1, v2]))?;
        if is_asked { Box::pin(find(visit, &place, &query, call)).await.map(Some) } else { Ok(None) }
    };
    let (status, problem, found) = match compared.await {
        Ok(found) => (StatusCode::OK, None, found),
        Err(error) if is_mistake(&error) => {
            let (status, text) = visit.tell(error);
            (status, Some(text), None)
        }
        Err(error) => return Err(error),
    };
    let title = found.as_ref().map_or("Compare versions", |found: &DiffResults| &found.title);
    let page = DiffPageHtml {
        shell: visit.shell(format!("{title}, {}", dataset.name.as_str())),
        heading: own.heading(visit, Tab::Compare),
        form,
        problem,
        found,
    };
    render(status, &page)
}

/// The versions that the form proposes to compare.
fn proposed(of: Option<u64>, latest: u64, alt: bool) -> [u64; 2] {
    let of = of.filter(|number| (1..=latest).contains(number)).unwrap_or(latest);
    match of {
        of if alt => [of, of],
        0 | 1 => [1, 2],
        of => [of - 1, of],
    }
}

/// The version whose page has the link to this one; 404 if it does not exist.
fn of(query: &Query, latest: u64) -> Result<Option<u64>, HttpError> {
    let of = query.number(COMPARED)?;
    match of.filter(|number| !(1..=latest).contains(number)) {
        None => Ok(of),
        Some(number) => {
            let latest = VersionNumber::new(latest);
            let there_are = there_are(Some(latest).filter(|all| all.get() > 0));
            let text = format!("There is no version {number}; {there_are}.");
            Err(HttpError::Invalid { status: StatusCode::NOT_FOUND, text })
        }
    }
}

/// The API call of the page's query string, with these versions if it names none.
fn call(place: &DatasetPlace, query: &Query, versions: Option<[u64; 2]>) -> Result<DiffCall, HttpError> {
    query.one_of(VIEW, &VIEWS)?;
    let read = read(place, query);
    let mut parameters = vec![("dataset_id".to_owned(), place.id.to_string())];
    let versions = ["v1", "v2"].into_iter().zip(versions.into_iter().flatten());
    parameters.extend(versions.map(|(name, number)| (name.to_owned(), number.max(1).to_string())));
    parameters.extend(read.pairs().iter().cloned());
    DiffCall::parse(parameters)
}

/// The parameters of the operation, without the dataset.
fn read(place: &DatasetPlace, query: &Query) -> Query {
    let read = query.without(&[VIEW, COMPARED]);
    // Another dataset is an error of the operation: it is given twice.
    if read.all("dataset_id").eq([place.id.to_string()]) { read.without(&["dataset_id"]) } else { read }
}

/// Whether the page explains an error in its form.
fn is_mistake(error: &HttpError) -> bool {
    use HttpError::{Call, Diff, Invalid};
    matches!(
        error,
        Call(_)
            | Invalid { .. }
            | Diff(DiffError::Manage(ManageError::NoVersionOf { .. } | ManageError::NoVersionYet))
            | Diff(DiffError::Read(ReadError::AltNotFound(_)))
    )
}

async fn find(visit: &Visit, place: &DatasetPlace, query: &Query, call: DiffCall) -> Result<DiffResults, HttpError> {
    let user = visit.user()?;
    let whole = query.first(VIEW) == Some(WHOLE);
    let read = read(place, query);
    let asked = call.page.limit.unwrap_or(RECORDS);
    let page = DiffPage { limit: Some(asked.min(PAGE_ENTITIES as u64)), ..call.page };
    let diff = call.compare(&visit.services, &user).await?;
    let answer = diff.answer(&page, DiffForm::Lines, ContentCoding::Identity).await.map_err(DiffError::from)?;
    let lines = Entities::take(answer.body, PAGE_BYTES).await?;

    let [v1, v2] = diff.versions;
    let names = [format!("Version {v1}"), format!("Version {v2}{}", if diff.alt { ", alternate" } else { "" })];
    let places = [place.number(v1), Place { alt: diff.alt, ..place.number(v2) }];
    let mut room = Room::for_page();
    let paths = if whole { Paths::All } else { Paths::Changed };
    let mut list = Vec::new();
    for (at, record) in lines.iter().filter_map(Record::parse).enumerate() {
        list.push(record_html(&record, page.offset + at as u64, &names, &places, paths, &mut room));
    }

    let count = diff.page_count(&page);
    let shown = list.len() as u64;
    let mut notes = Vec::new();
    if asked > PAGE_ENTITIES as u64 {
        notes.push(format!(
            "A page shows at most {PAGE_ENTITIES} records. The API call below returns up to {}.",
            format::as_sent(query.first("limit").unwrap_or_default())
        ));
    }
    if shown < count {
        notes.push(format!(
            "Only {} of {} fit on this page. The next page continues where this one ends.",
            format::grouped(shown),
            format::counted(count, "record", "records")
        ));
    }
    let total = diff.count(page.change_type);
    if let Some(last) = total.checked_sub(1).filter(|last| page.offset > *last) {
        notes.push(format!(
            "There is no record {}. The last record is {}.",
            format::grouped(page.offset),
            format::grouped(last)
        ));
    }
    if shown == 0 && count > 0 {
        notes.push("The first record is too large for this page. The API call below returns it.".to_owned());
    }
    // A record that is too large for a page is skipped.
    let next = page.offset.saturating_add(shown.max(count.min(1)));
    let at = |offset: u64| {
        let query = if offset == 0 { query.without(&["offset"]) } else { query.with("offset", offset) };
        query.at(&place.page("diff"))
    };
    let step = page.limit.unwrap_or(RECORDS).max(1);
    let mut pages = Vec::new();
    if page.offset > 0 {
        pages.push(("First", "", at(0)));
        pages.push(("Previous", "prev", at(page.offset.min(total).saturating_sub(step))));
    }
    if next < total && page.limit != Some(0) {
        pages.push(("Next", "next", at(next)));
        pages.push(("Last", "", at((total - 1) / step * step)));
    }
    let has_summary = page.offset == 0 && matches!(page.change_type, None | Some(ChangeType::Modified));
    let is_elsewhere = !has_summary && diff.count(Some(ChangeType::Modified)) > 0;
    let api = read.without(&["format"]);
    let api = if api.first("limit").is_some() { api } else { api.and("limit", RECORDS) };
    let api = Query::default().and("dataset_id", place.id).to_string() + "&" + &api.to_string();
    let api_href = format!("/dataset/diff?{api}");
    let view = if whole { query.without(&[VIEW]) } else { query.with(VIEW, WHOLE) };
    Ok(DiffResults {
        title: format!("{} and {}", names[0], names[1].to_lowercase()),
        totals: diff.summary(),
        names,
        of: diff.count(None),
        kinds: kinds(&diff, &page, query, place),
        summary: if has_summary { summary::summary(&diff).await? } else { None },
        summary_href: is_elsewhere.then(|| query.without(&["offset", "change_type"]).at(&place.page("diff"))),
        records: format::counted(total, "record", "records"),
        notes,
        list,
        pages,
        whole,
        view: view.at(&place.page("diff")),
        api: BaseUrl::of(&visit.head, &visit.services).url(&api_href),
        api_href,
    })
}

fn kind(change_type: ChangeType) -> &'static str {
    match change_type {
        ChangeType::Added => "Added",
        ChangeType::Subtracted => "Removed",
        ChangeType::Modified => "Changed",
    }
}

fn kinds(diff: &VersionDiff, page: &DiffPage, query: &Query, place: &DatasetPlace) -> Vec<Kind> {
    let rest = query.without(&["offset", "change_type"]);
    let types = [None, Some(ChangeType::Modified), Some(ChangeType::Subtracted), Some(ChangeType::Added)];
    let kind = |change_type: Option<ChangeType>| Kind {
        name: change_type.map_or("All", kind),
        number: format::grouped(diff.count(change_type)),
        href: change_type
            .map_or_else(|| rest.clone(), |one| rest.with("change_type", one.name()))
            .at(&place.page("diff")),
        current: page.change_type == change_type,
    };
    types.into_iter().map(kind).collect()
}

fn record_html(
    record: &Record<'_>,
    number: u64,
    names: &[String; 2],
    places: &[Place; 2],
    paths: Paths,
    room: &mut Room,
) -> RecordHtml {
    let [old, new] = [0, 1].map(|side: usize| {
        record.positions[side].map(|position| {
            let text = format!("{} of {}", format::grouped(position), names[side].to_lowercase());
            (text, places[side].entity(position))
        })
    });
    let kind = kind(record.change_type);
    let caption = format!("{kind}: record {}", format::grouped(number));
    let titles = names.each_ref().map(String::as_str);
    let compared = Compared::new(caption, titles, record.entities, Equality::Value, paths, room);
    let is_modified = record.change_type == ChangeType::Modified;
    let changed = is_modified.then(|| format::counted(compared.changed as u64, "path differs", "paths differ"));
    RecordHtml { kind, class: record.change_type.name(), old, new, changed, compared }
}
