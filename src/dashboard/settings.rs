//! `…/settings`: the description, the source, the index and the private key of a dataset. A secret is shown only in the
//! response to the form that requests it.
//!
//! A form contains the former values of its fields ([`WAS`]), and only changed values are saved. An old page therefore
//! does not revert what was saved since.

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

use super::context::{Heading, Tab};
use super::form_handling::{
    OwnerContext, Problem, Question, SubmittedForm, asked, invalid_field, not_the_form, own, problem, received_of_owner,
};
use super::refresh::shown_url;
use super::urls::DatasetPlace;
use super::visit::{PageResult, Reply, Shell, Visit, render};

const FIELDS: [&str; 7] = ["name", "description", "licence", "source", "format", "records_path", "index"];

/// The field with the former values of the others, as JSON.
const WAS: &str = "was";

pub(super) const URL_UNCHOSEN: &str = "to use this URL, choose “Fetch from this URL”; otherwise, clear this field";

pub(super) const FROM: [&str; 2] = ["push", "url"];

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    shell: Shell,
    heading: Heading,
    said: Flash,
    about: AboutForm,
    was: [String; 3],
    key: Option<String>,
    source: SourceForm,
    index: IndexForm,
    empty: bool,
}

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
    /// The URL without parts that might be a key, if only that is shown.
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

/// Parts of the page that depend on the form that was sent.
#[derive(Default)]
struct Flash {
    notice: Option<&'static str>,
    problem: Problem,
    key: bool,
    url: bool,
    about: Option<AboutForm>,
    source: Option<SourceForm>,
    index: Option<IndexForm>,
    was: Option<String>,
}

/// The former values of a form's fields.
fn was<F: DeserializeOwned>(sent: &SubmittedForm) -> Result<Option<F>, HttpError> {
    let Some(was) = sent.fields.first(WAS) else { return Ok(None) };
    serde_json::from_str(was).map(Some).map_err(|_| not_the_form("the field \"was\" has an invalid value"))
}

impl AboutForm {
    fn new(dataset: &Dataset) -> AboutForm {
        AboutForm {
            name: dataset.name.as_str().to_owned(),
            description: dataset.about.description.clone().unwrap_or_default(),
            licence: dataset.about.licence.clone().unwrap_or_default(),
            listed: dataset.about.listed,
            private: dataset.is_private(),
        }
    }

    pub(super) fn sent(sent: &SubmittedForm) -> AboutForm {
        AboutForm {
            name: sent.trimmed("name").to_owned(),
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
            name: Some(name).filter(|_| was.is_none_or(|was| was.name != self.name)),
            description: all.description.filter(|_| was.is_none_or(|was| was.description != self.description)),
            licence: all.licence.filter(|_| was.is_none_or(|was| was.licence != self.licence)),
            listed: all.listed.filter(|_| was.is_none_or(|was| was.listed != self.listed)),
            visibility: all.visibility.filter(|_| was.is_none_or(|was| was.private != self.private)),
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
    fn new(dataset: &Dataset, shows_url: bool) -> SourceForm {
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

    fn sent(sent: &SubmittedForm, dataset: &Dataset) -> SourceForm {
        SourceForm {
            pushed: sent.trimmed("from") != "url",
            url: sent.trimmed("source").to_owned(),
            hidden: SourceForm::new(dataset, false).hidden,
            format: sent.trimmed("format").to_owned(),
            records_path: sent.trimmed("records_path").to_owned(),
            publish_query: sent.ticked("publish_query"),
            infer_types: sent.ticked("infer_types"),
        }
    }

    fn settings(&self, was: Option<&SourceForm>) -> Result<DatasetChange, HttpError> {
        let source = match (self.pushed, self.url.as_str()) {
            // A URL that was typed is not dropped silently.
            (true, url) if was.is_some_and(|was| was.url != url) && !url.is_empty() => {
                return Err(invalid_field("source", URL_UNCHOSEN));
            }
            (true, _) => Some(DatasetSource::Push),
            // The hidden URL stays.
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
        Ok(DatasetChange {
            source: source.filter(|_| was.is_none_or(|was| was.pushed != self.pushed || was.url != self.url)),
            format: Some(format).filter(|_| was.is_none_or(|was| was.format != self.format)),
            records_path: Some(path).filter(|_| was.is_none_or(|was| was.records_path != self.records_path)),
            publish_query: Some(self.publish_query).filter(|now| was.is_none_or(|was| was.publish_query != *now)),
            infer_types: Some(self.infer_types).filter(|now| was.is_none_or(|was| was.infer_types != *now)),
            ..DatasetChange::default()
        })
    }
}

impl IndexForm {
    fn new(index: &IndexSettings) -> IndexForm {
        let lines = |paths: &[Path]| paths.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        IndexForm { always: lines(index.always()), never: lines(index.never()) }
    }

    fn sent(sent: &SubmittedForm) -> IndexForm {
        IndexForm { always: sent.trimmed("always").to_owned(), never: sent.trimmed("never").to_owned() }
    }

    fn settings(&self, was: Option<&IndexForm>) -> Result<DatasetChange, HttpError> {
        let lines = |form: &IndexForm| [&form.always, &form.never].map(|text| text.replace("\r\n", "\n"));
        let paths = [&self.always, &self.never].map(|text| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        });
        let index = IndexSettings::try_new(&paths[0], &paths[1]);
        let index = index.map_err(|error| invalid_field("index", error.to_string()))?;
        let index = Some(index).filter(|_| was.is_none_or(|was| lines(was) != lines(self)));
        Ok(DatasetChange { index, ..DatasetChange::default() })
    }
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    let query = visit.query(&["done"])?;
    let notice = query.one_of("done", &["about", "source", "index"])?.map(|done| match done {
        "index" => "The index settings were saved. They apply to new versions.",
        _ => "The settings were saved.",
    });
    settings(visit, Flash { notice, ..Flash::default() }).await
}

async fn settings(visit: &Visit, mut said: Flash) -> PageResult {
    let own = own(visit).await?;
    let dataset = &own.view.dataset;
    let was = |is_typed: bool, saved: serde_json::Result<String>| {
        if is_typed { said.was.clone() } else { saved.ok() }.unwrap_or_default()
    };
    let was = [
        was(said.about.is_some(), serde_json::to_string(&AboutForm::new(dataset))),
        was(said.source.is_some(), serde_json::to_string(&SourceForm::new(dataset, said.url))),
        was(said.index.is_some(), serde_json::to_string(&IndexForm::new(&dataset.index))),
    ];
    let page = SettingsPage {
        shell: visit.shell(said.problem.title(format!("Settings, {}", dataset.name.as_str()))),
        heading: own.heading(visit, Tab::Settings),
        about: said.about.take().unwrap_or_else(|| AboutForm::new(dataset)),
        was,
        key: dataset.private_key.as_ref().filter(|_| said.key).map(|key| key.expose().to_owned()),
        source: said.source.take().unwrap_or_else(|| SourceForm::new(dataset, said.url)),
        index: said.index.take().unwrap_or_else(|| IndexForm::new(&dataset.index)),
        empty: own.view.versions.is_empty(),
        said,
    };
    render(page.said.problem.status, &page)
}

pub(super) async fn confirm(visit: &mut Visit) -> PageResult {
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

pub(super) async fn act(visit: &mut Visit, body: Body) -> PageResult {
    let (own, sent) = received_of_owner(visit, body).await?;
    let error = match done(visit, &own, &sent).await {
        Err(error) => error,
        reply => return reply,
    };
    let problem = problem(visit, error, &FIELDS)?;
    let typed = |form| sent.action == form;
    let said = Flash {
        problem,
        about: typed("about").then(|| AboutForm::sent(&sent)),
        source: typed("source").then(|| SourceForm::sent(&sent, &own.view.dataset)),
        index: typed("index").then(|| IndexForm::sent(&sent)),
        was: sent.fields.first(WAS).map(str::to_owned),
        ..Flash::default()
    };
    settings(visit, said).await
}

async fn done(visit: &Visit, OwnerContext { place, view }: &OwnerContext, sent: &SubmittedForm) -> PageResult {
    let datasets = &visit.services.datasets;
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
        "show-source" => return settings(visit, Flash { url: true, ..Flash::default() }).await,
        "show-key" => return settings(visit, Flash { key: true, ..Flash::default() }).await,
        "rotate-key" => {
            datasets.rotate_key(&user, place.id).await?;
            let notice = Some("The private key was replaced. The old key no longer works.");
            return settings(visit, Flash { key: true, notice, ..Flash::default() }).await;
        }
        "delete" => {
            datasets.delete(&user, place.id).await?;
            return Ok(Reply::SeeOther("/".to_owned()));
        }
        _ => return Err(HttpError::NoSuchPath),
    };
    let updated = datasets.update(&user, place.id, form).await?;
    let place = DatasetPlace::new(&updated.dataset);
    Ok(Reply::done(&sent.action, &place.page("settings")))
}
