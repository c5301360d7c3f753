//! `…/settings`: what an owner says of a dataset, where its entities come from, which of its paths are indexed, and its
//! private key. A secret is shown when it is asked for, in the answer to that form and on no other page.
//!
//! A form holds what its fields were when it was made ([`WAS`]), and only what was changed in it is saved. So an old
//! page takes back nothing that was saved since.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strata_http::error::HttpError;
use strata_service::{ManageError, visibility};
use strata_types::dataset::{Dataset, DatasetChange, DatasetName, DatasetSource, InvalidDatasetName};
use strata_types::index::IndexSettings;
use strata_types::path::Path;
use strata_types::source::SourceFormat;

use super::acting::{
    Own, Problem, Question, Sent, asked, invalid_field, not_the_form, own, problem, received_of_owner,
};
use super::opened::{Heading, Tab};
use super::place::DatasetPlace;
use super::refresh::shown_url;
use super::visit::{Reply, Shell, Visit, render};

/// The fields beside which their problems are said.
const FIELDS: [&str; 7] = ["name", "description", "licence", "source", "format", "records_path", "index"];

/// The field with what the others were, as JSON.
const WAS: &str = "was";

/// What is said of a URL where entities are sent.
pub(super) const URL_UNCHOSEN: &str = "to use this URL, choose “Fetch from this URL”; otherwise, clear this field";

/// Where entities come from, as the form names it.
pub(super) const FROM: [&str; 2] = ["push", "url"];

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    shell: Shell,
    heading: Heading,
    said: Said,
    about: AboutForm,
    /// What the fields of the forms were.
    was: [String; 3],
    /// The private key, where it was asked for.
    key: Option<String>,
    source: SourceForm,
    index: IndexForm,
    empty: bool,
}

/// What an owner says of a dataset, here and when it is made.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct AboutForm {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) licence: String,
    pub(super) listed: bool,
    pub(super) private: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct SourceForm {
    pushed: bool,
    url: String,
    /// The URL without what may be a key in it, where only that is shown.
    #[serde(skip)]
    hidden: Option<String>,
    format: String,
    records_path: String,
    publish_query: bool,
    infer_types: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct IndexForm {
    always: String,
    never: String,
}

/// What is shown besides the settings; what was typed, where it was not taken.
#[derive(Default)]
struct Said {
    status: StatusCode,
    notice: Option<&'static str>,
    problem: Problem,
    key: bool,
    url: bool,
    about: Option<AboutForm>,
    source: Option<SourceForm>,
    index: Option<IndexForm>,
    /// What the fields of that form were.
    was: Option<String>,
}

/// What the fields of a form were, by the form; 400 where it is not what a page has put there.
fn was<F: DeserializeOwned>(sent: &Sent) -> Result<Option<F>, HttpError> {
    let Some(was) = sent.fields.first(WAS) else { return Ok(None) };
    serde_json::from_str(was).map(Some).map_err(|_| not_the_form("the field \"was\" has an invalid value"))
}

/// A value that was set, if it was changed.
fn changed<V: PartialEq>(now: &V, was: Option<&V>) -> bool {
    was != Some(now)
}

impl AboutForm {
    fn of(dataset: &Dataset) -> AboutForm {
        AboutForm {
            name: dataset.name.as_str().to_owned(),
            description: dataset.about.description.clone().unwrap_or_default(),
            licence: dataset.about.licence.clone().unwrap_or_default(),
            listed: dataset.about.listed,
            private: dataset.is_private(),
        }
    }

    pub(super) fn sent(sent: &Sent) -> AboutForm {
        AboutForm {
            name: sent.trimmed("name").to_owned(),
            // Browsers send the line breaks of a text as CR LF.
            description: sent.trimmed("description").replace("\r\n", "\n"),
            licence: sent.trimmed("licence").to_owned(),
            listed: sent.ticked("listed"),
            private: sent.ticked("private"),
        }
    }

    pub(super) const TEXTS: [&str; 3] = ["name", "description", "licence"];

    pub(super) const BOXES: [&str; 2] = ["listed", "private"];

    fn settings(&self, was: Option<&AboutForm>) -> Result<DatasetChange, HttpError> {
        let (name, all) = self.checked()?;
        Ok(DatasetChange {
            name: Some(name).filter(|_| changed(&self.name, was.map(|was| &was.name))),
            description: all.description.filter(|_| changed(&self.description, was.map(|was| &was.description))),
            licence: all.licence.filter(|_| changed(&self.licence, was.map(|was| &was.licence))),
            listed: all.listed.filter(|_| changed(&self.listed, was.map(|was| &was.listed))),
            visibility: all.visibility.filter(|_| changed(&self.private, was.map(|was| &was.private))),
            ..DatasetChange::default()
        })
    }

    /// The name, and the settings without it.
    pub(super) fn checked(&self) -> Result<(DatasetName, DatasetChange), HttpError> {
        let text = |text: &str| Some(Some(text.to_owned()).filter(|text| !text.is_empty()));
        let invalid = |problem: InvalidDatasetName| invalid_field("name", problem.to_string());
        let settings = DatasetChange {
            description: text(&self.description),
            licence: text(&self.licence),
            listed: Some(self.listed),
            visibility: Some(visibility(self.private)),
            ..DatasetChange::default()
        };
        Ok((self.name.parse().map_err(invalid)?, settings))
    }
}

impl SourceForm {
    fn of(dataset: &Dataset, shows_url: bool) -> SourceForm {
        let url = match &dataset.source {
            DatasetSource::Push => "",
            DatasetSource::Url(url) => url,
        };
        let hidden = Some(shown_url(url)).filter(|shown| !shows_url && shown != url);
        SourceForm {
            pushed: dataset.source == DatasetSource::Push,
            url: if hidden.is_some() { String::new() } else { url.to_owned() },
            hidden,
            format: dataset.format.map(SourceFormat::name).unwrap_or_default().to_owned(),
            records_path: dataset.records_path.clone().unwrap_or_default(),
            publish_query: dataset.publish_query,
            infer_types: dataset.infer_types,
        }
    }

    fn sent(sent: &Sent, dataset: &Dataset) -> SourceForm {
        SourceForm {
            pushed: sent.trimmed("from") != "url",
            url: sent.trimmed("source").to_owned(),
            hidden: SourceForm::of(dataset, false).hidden,
            format: sent.trimmed("format").to_owned(),
            records_path: sent.trimmed("records_path").to_owned(),
            publish_query: sent.ticked("publish_query"),
            infer_types: sent.ticked("infer_types"),
        }
    }

    fn settings(&self, was: Option<&SourceForm>) -> Result<DatasetChange, HttpError> {
        let source = match (self.pushed, self.url.as_str()) {
            // A URL that was typed is not dropped without a word.
            (true, url) if was.is_some_and(|was| was.url != url) && !url.is_empty() => {
                return Err(invalid_field("source", URL_UNCHOSEN));
            }
            (true, _) => Some(DatasetSource::Push),
            // It stays what it is, and was not shown.
            (false, "") if self.hidden.is_some() => None,
            (false, "") => {
                return Err(invalid_field("source", "enter a URL with the scheme http, https, s3, or store"));
            }
            (false, url) => Some(DatasetSource::Url(url.to_owned())),
        };
        let format = match self.format.as_str() {
            "" => None,
            format => Some(format.parse::<SourceFormat>().map_err(|error| invalid_field("format", error.to_string()))?),
        };
        if !self.records_path.is_empty()
            && let Some(format) = format.filter(|format| *format != SourceFormat::Json)
        {
            let problem = format!(
                "this path requires the json format, but the selected format is {format}; clear the path or the format"
            );
            return Err(invalid_field("records_path", problem));
        }
        let path = Some(self.records_path.clone()).filter(|path| !path.is_empty());
        let place = |form: &SourceForm| (form.pushed, form.url.clone());
        Ok(DatasetChange {
            source: source.filter(|_| changed(&place(self), was.map(place).as_ref())),
            format: Some(format).filter(|_| changed(&self.format, was.map(|was| &was.format))),
            records_path: Some(path).filter(|_| changed(&self.records_path, was.map(|was| &was.records_path))),
            publish_query: Some(self.publish_query).filter(|now| changed(now, was.map(|was| &was.publish_query))),
            infer_types: Some(self.infer_types).filter(|now| changed(now, was.map(|was| &was.infer_types))),
            ..DatasetChange::default()
        })
    }
}

impl IndexForm {
    fn of(index: &IndexSettings) -> IndexForm {
        let lines = |paths: &[Path]| paths.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        IndexForm { always: lines(index.always()), never: lines(index.never()) }
    }

    fn sent(sent: &Sent) -> IndexForm {
        IndexForm { always: sent.trimmed("always").to_owned(), never: sent.trimmed("never").to_owned() }
    }

    fn settings(&self, was: Option<&IndexForm>) -> Result<DatasetChange, HttpError> {
        let lines = |form: &IndexForm| [&form.always, &form.never].map(|text| text.replace("\r\n", "\n"));
        let paths = [&self.always, &self.never].map(|text| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        });
        let index = IndexSettings::try_new(&paths[0], &paths[1]);
        let index = index.map_err(|error| invalid_field("index", error.to_string()))?;
        let index = Some(index).filter(|_| changed(&lines(self), was.map(lines).as_ref()));
        Ok(DatasetChange { index, ..DatasetChange::default() })
    }
}

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    let query = visit.query(&["done"])?;
    let notice = query.one_of("done", &["about", "source", "index"])?.map(|done| match done {
        "index" => "The index settings were saved. They apply to new versions.",
        _ => "The settings were saved.",
    });
    settings(visit, Said { notice, ..Said::default() }).await
}

async fn settings(visit: &Visit, mut said: Said) -> Result<Reply, HttpError> {
    let own = own(visit).await?;
    let dataset = &own.view.dataset;
    let was = |is_typed: bool, saved: serde_json::Result<String>| {
        if is_typed { said.was.clone() } else { saved.ok() }.unwrap_or_default()
    };
    let was = [
        was(said.about.is_some(), serde_json::to_string(&AboutForm::of(dataset))),
        was(said.source.is_some(), serde_json::to_string(&SourceForm::of(dataset, said.url))),
        was(said.index.is_some(), serde_json::to_string(&IndexForm::of(&dataset.index))),
    ];
    let page = SettingsPage {
        shell: visit.shell(said.problem.title(format!("Settings, {}", dataset.name.as_str()))),
        heading: own.heading(visit, Tab::Settings),
        about: said.about.take().unwrap_or_else(|| AboutForm::of(dataset)),
        was,
        key: dataset.private_key.as_ref().filter(|_| said.key).map(|key| key.expose().to_owned()),
        source: said.source.take().unwrap_or_else(|| SourceForm::of(dataset, said.url)),
        index: said.index.take().unwrap_or_else(|| IndexForm::of(&dataset.index)),
        empty: own.view.versions.is_empty(),
        said,
    };
    render(page.said.status, &page)
}

/// The page that says what the deletion does.
pub(super) async fn confirm(visit: &mut Visit) -> Result<Reply, HttpError> {
    let own = asked(visit).await?;
    if !own.view.versions.is_empty() {
        return Err(ManageError::HasVersions.into());
    }
    let question = Question {
        title: "Delete this dataset?".to_owned(),
        effects: vec![
            "You can delete this dataset because it has no versions.".to_owned(),
            "Its settings will be deleted, including its keys and any webhook. This cannot be undone.".to_owned(),
        ],
        action: format!("{}/delete", own.place.page("settings")),
        button: "Delete dataset".to_owned(),
        danger: true,
        back: own.place.page("settings"),
        ..Question::default()
    };
    question.page(visit, own.heading(visit, Tab::Settings), StatusCode::OK)
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    let (own, sent) = received_of_owner(visit, body).await?;
    let error = match done(visit, &own, &sent).await {
        Err(error) => error,
        reply => return reply,
    };
    let (status, problem) = problem(visit, error, &FIELDS)?;
    let typed = |form| sent.action == form;
    let said = Said {
        status,
        problem,
        about: typed("about").then(|| AboutForm::sent(&sent)),
        source: typed("source").then(|| SourceForm::sent(&sent, &own.view.dataset)),
        index: typed("index").then(|| IndexForm::sent(&sent)),
        was: sent.fields.first(WAS).map(str::to_owned),
        ..Said::default()
    };
    settings(visit, said).await
}

async fn done(visit: &Visit, Own { place, view }: &Own, sent: &Sent) -> Result<Reply, HttpError> {
    let datasets = visit.app.datasets();
    let user = visit.user()?;
    if !matches!(sent.action.as_str(), "about" | "source" | "index") {
        sent.check(&[], &[])?;
    }
    let form = match sent.action.as_str() {
        "about" => {
            sent.check(&AboutForm::TEXTS, &[&AboutForm::BOXES[..], &[WAS]].concat())?;
            AboutForm::sent(sent).settings(was(sent)?.as_ref())?
        }
        "source" => {
            sent.check(&["from", "source", "format", "records_path"], &["publish_query", "infer_types", WAS])?;
            sent.chosen("from", &FROM)?;
            SourceForm::sent(sent, &view.dataset).settings(was(sent)?.as_ref())?
        }
        "index" => {
            sent.check(&["always", "never"], &[WAS])?;
            IndexForm::sent(sent).settings(was(sent)?.as_ref())?
        }
        "show-source" => return settings(visit, Said { url: true, ..Said::default() }).await,
        "show-key" => return settings(visit, Said { key: true, ..Said::default() }).await,
        "rotate-key" => {
            datasets.rotate_key(&user, place.id).await?;
            let notice = Some("The private key was replaced. The old key no longer works.");
            return settings(visit, Said { key: true, notice, ..Said::default() }).await;
        }
        "delete" => {
            datasets.delete(&user, place.id).await?;
            return Ok(Reply::SeeOther("/".to_owned()));
        }
        _ => return Err(HttpError::NoSuchPath),
    };
    let updated = datasets.update(&user, place.id, form).await?;
    let place = DatasetPlace::of(&updated.dataset);
    Ok(Reply::done(&sent.action, &place.page("settings")))
}
