//! `…/settings`: the description, source, index, checks, and private key of a dataset. A secret is only shown in the
//! response to the form that requests it.
//!
//! A form contains the previous values of its fields ([`PREVIOUS_VALUES_FIELD`]), and only changed values are saved.
//! Therefore, a page that was opened earlier does not revert later changes.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strata_http::error::HttpError;
use strata_service::{ManageError, new_private_visibility};
use strata_types::dataset::{
    Dataset, DatasetChange, DatasetName, DatasetSource, DatasetVisibility, InvalidDatasetName,
};
use strata_types::field_path::FieldPath;
use strata_types::index_settings::IndexSettings;
use strata_types::source::SourceFormat;
use strata_types::version::{VersionSelector, VersionVariant};

use super::checks::{self, ChecksForm};
use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::{
    ConfirmationPrompt, FormProblem, OwnerContext, SubmittedForm, form_mismatch_error, invalid_field_error,
    load_confirmation_context, load_owner_context, receive_owner_form, to_form_problem,
};
use super::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use super::refresh::redact_url;
use super::urls::DatasetUrls;

const PROBLEM_FIELDS: [&str; 8] =
    ["name", "description", "licence", "source", "format", "records_path", "index", checks::FORM_NAME];
const PREVIOUS_VALUES_FIELD: &str = "was";
const SUGGEST_PARAM: &str = "suggest";

pub(super) const UNSELECTED_URL_PROBLEM: &str =
    "to use this URL, choose “Fetch from this URL”; otherwise, clear this field";

pub(super) const SOURCE_CHOICES: [&str; 2] = ["push", "url"];

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    layout: PageLayout,
    heading: DatasetHeading,
    flash: SettingsFlash,
    about: AboutForm,
    previous_values: [String; 4],
    private_key: Option<String>,
    source: SourceForm,
    index: IndexForm,
    checks: ChecksForm,
    are_checks_suggested: bool,
    has_no_versions: bool,
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
    /// The source URL without parts that might be a key; `None` if the page shows the whole URL.
    #[serde(skip)]
    masked_url: Option<String>,
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

#[derive(Default)]
struct SettingsFlash {
    notice: Option<&'static str>,
    problem: FormProblem,
    shows_key: bool,
    shows_url: bool,
    about: Option<AboutForm>,
    source: Option<SourceForm>,
    index: Option<IndexForm>,
    checks: Option<ChecksForm>,
    suggests_checks: bool,
    previous_values: Option<String>,
}

fn parse_previous_values<F: DeserializeOwned>(form: &SubmittedForm) -> Result<Option<F>, HttpError> {
    let Some(json) = form.fields.first(PREVIOUS_VALUES_FIELD) else { return Ok(None) };
    serde_json::from_str(json).map(Some).map_err(|_| form_mismatch_error("the field \"was\" has an invalid value"))
}

impl AboutForm {
    fn new(dataset: &Dataset) -> AboutForm {
        AboutForm {
            name: dataset.name.as_str().to_owned(),
            description: dataset.metadata.description.clone().unwrap_or_default(),
            licence: dataset.metadata.license.clone().unwrap_or_default(),
            listed: dataset.metadata.listed,
            private: dataset.is_private(),
        }
    }

    pub(super) fn from_form(form: &SubmittedForm) -> AboutForm {
        AboutForm {
            name: form.trimmed_value("name").to_owned(),
            description: form.trimmed_value("description").replace("\r\n", "\n"),
            licence: form.trimmed_value("licence").to_owned(),
            listed: form.is_checked("listed"),
            private: form.is_checked("private"),
        }
    }

    pub(super) const TEXT_FIELDS: [&str; 3] = ["name", "description", "licence"];
    pub(super) const CHECKBOX_FIELDS: [&str; 2] = ["listed", "private"];

    fn to_dataset_change(&self, was: Option<&AboutForm>) -> Result<DatasetChange, HttpError> {
        let (name, all) = self.validate()?;
        Ok(DatasetChange {
            name: Some(name).filter(|_| was.is_none_or(|was| was.name != self.name)),
            description: all.description.filter(|_| was.is_none_or(|was| was.description != self.description)),
            licence: all.licence.filter(|_| was.is_none_or(|was| was.licence != self.licence)),
            listed: all.listed.filter(|_| was.is_none_or(|was| was.listed != self.listed)),
            visibility: all.visibility.filter(|_| was.is_none_or(|was| was.private != self.private)),
            ..DatasetChange::default()
        })
    }

    pub(super) fn validate(&self) -> Result<(DatasetName, DatasetChange), HttpError> {
        let text = |text: &str| Some(Some(text.to_owned()).filter(|text| !text.is_empty()));
        let invalid = |problem: InvalidDatasetName| invalid_field_error("name", problem.to_string());
        let visibility = if self.private { new_private_visibility() } else { DatasetVisibility::Public };
        let settings = DatasetChange {
            description: text(&self.description),
            licence: text(&self.licence),
            listed: Some(self.listed),
            visibility: Some(visibility),
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
        let masked_url = Some(redact_url(url)).filter(|shown| !shows_url && shown != url);
        SourceForm {
            pushed: dataset.source == DatasetSource::Push,
            url: if masked_url.is_some() { String::new() } else { url.to_owned() },
            masked_url,
            format: dataset.format.map(SourceFormat::name).unwrap_or_default().to_owned(),
            records_path: dataset.records_path.clone().unwrap_or_default(),
            publish_query: dataset.publish_query,
            infer_types: dataset.infer_types,
        }
    }

    fn from_form(form: &SubmittedForm, dataset: &Dataset) -> SourceForm {
        SourceForm {
            pushed: form.trimmed_value("from") != "url",
            url: form.trimmed_value("source").to_owned(),
            masked_url: SourceForm::new(dataset, false).masked_url,
            format: form.trimmed_value("format").to_owned(),
            records_path: form.trimmed_value("records_path").to_owned(),
            publish_query: form.is_checked("publish_query"),
            infer_types: form.is_checked("infer_types"),
        }
    }

    fn to_dataset_change(&self, was: Option<&SourceForm>) -> Result<DatasetChange, HttpError> {
        let source = match (self.pushed, self.url.as_str()) {
            // A URL that the user typed must not be dropped silently because the form selects pushed entities instead.
            (true, url) if was.is_some_and(|was| was.url != url) && !url.is_empty() => {
                return Err(invalid_field_error("source", UNSELECTED_URL_PROBLEM));
            }
            (true, _) => Some(DatasetSource::Push),
            (false, "") if self.masked_url.is_some() => None,
            (false, "") => {
                return Err(invalid_field_error("source", "enter a URL with the scheme http, https, s3, or store"));
            }
            (false, url) => Some(DatasetSource::Url(url.to_owned())),
        };
        let format = (!self.format.is_empty()).then(|| self.format.parse::<SourceFormat>()).transpose();
        let format = format.map_err(|error| invalid_field_error("format", error.to_string()))?;
        if !self.records_path.is_empty()
            && let Some(format) = format.filter(|format| *format != SourceFormat::Json)
        {
            let problem = format!(
                "this path requires the json format, but the selected format is {format}; clear the path or the format"
            );
            return Err(invalid_field_error("records_path", problem));
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
        let lines = |paths: &[FieldPath]| paths.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        IndexForm { always: lines(index.always_indexed()), never: lines(index.never_indexed()) }
    }

    fn from_form(form: &SubmittedForm) -> IndexForm {
        IndexForm { always: form.trimmed_value("always").to_owned(), never: form.trimmed_value("never").to_owned() }
    }

    fn to_dataset_change(&self, was: Option<&IndexForm>) -> Result<DatasetChange, HttpError> {
        let lines = |form: &IndexForm| [&form.always, &form.never].map(|text| text.replace("\r\n", "\n"));
        let paths = [&self.always, &self.never].map(|text| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        });
        let index = IndexSettings::try_new(&paths[0], &paths[1]);
        let index = index.map_err(|error| invalid_field_error("index", error.to_string()))?;
        let index = Some(index).filter(|_| was.is_none_or(|was| lines(was) != lines(self)));
        Ok(DatasetChange { index, ..DatasetChange::default() })
    }
}

pub(super) async fn show_settings(req: &mut PageRequest) -> PageResult {
    let query = req.parse_query(&["done", SUGGEST_PARAM])?;
    let notice = query.parse_choice("done", &["about", "source", "index", checks::FORM_NAME])?.map(|done| match done {
        "index" => "The index settings were saved. They apply to new versions.",
        checks::FORM_NAME => "The checks were saved. They apply to new versions.",
        _ => "The settings were saved.",
    });
    let suggests_checks = query.parse_choice(SUGGEST_PARAM, &[checks::FORM_NAME])?.is_some();
    render_settings(req, SettingsFlash { notice, suggests_checks, ..SettingsFlash::default() }).await
}

/// Suggests checks from the profile of the active version.
async fn suggest_checks(req: &PageRequest, own: &OwnerContext) -> Result<Option<ChecksForm>, HttpError> {
    let Some(active) = own.view.dataset.active_version() else { return Ok(None) };
    let request = req.profile_request(own.urls.id, VersionSelector::Number(active), VersionVariant::from_alt(false));
    let profile = req.services.reads.profile(request).await?;
    Ok(Some(ChecksForm::from_profile(&profile.contents)))
}

async fn render_settings(req: &PageRequest, mut flash: SettingsFlash) -> PageResult {
    let own = load_owner_context(req).await?;
    let dataset = &own.view.dataset;
    let saved_checks = ChecksForm::new(own.view.checks.as_deref());
    let typed_or_saved = |is_typed: bool, saved: serde_json::Result<String>| {
        if is_typed { flash.previous_values.clone() } else { saved.ok() }.unwrap_or_default()
    };
    let previous_values = [
        typed_or_saved(flash.about.is_some(), serde_json::to_string(&AboutForm::new(dataset))),
        typed_or_saved(flash.source.is_some(), serde_json::to_string(&SourceForm::new(dataset, flash.shows_url))),
        typed_or_saved(flash.index.is_some(), serde_json::to_string(&IndexForm::new(&dataset.index))),
        typed_or_saved(flash.checks.is_some(), serde_json::to_string(&saved_checks)),
    ];
    let suggested_checks = match flash.suggests_checks {
        true => suggest_checks(req, &own).await?,
        false => None,
    };
    let page = SettingsPage {
        layout: req.layout(flash.problem.prefix_title(format!("Settings, {}", dataset.name.as_str()))),
        heading: own.heading(req, DatasetTab::Settings),
        about: flash.about.take().unwrap_or_else(|| AboutForm::new(dataset)),
        previous_values,
        private_key: dataset.private_key.as_ref().filter(|_| flash.shows_key).map(|key| key.expose().to_owned()),
        source: flash.source.take().unwrap_or_else(|| SourceForm::new(dataset, flash.shows_url)),
        index: flash.index.take().unwrap_or_else(|| IndexForm::new(&dataset.index)),
        are_checks_suggested: suggested_checks.is_some(),
        checks: flash.checks.take().or(suggested_checks).unwrap_or(saved_checks),
        has_no_versions: own.view.versions.is_empty(),
        flash,
    };
    render(page.flash.problem.status, &page)
}

pub(super) async fn show_dataset_deletion(req: &mut PageRequest) -> PageResult {
    let own = load_confirmation_context(req).await?;
    if !own.view.versions.is_empty() {
        return Err(ManageError::HasVersions.into());
    }
    let question = ConfirmationPrompt {
        title: "Delete this dataset?".to_owned(),
        effects: vec![
            "You can delete this dataset because it has no versions.".to_owned(),
            "Its settings will be deleted, including its keys and any webhook. This cannot be undone.".to_owned(),
        ],
        action: format!("{}/delete", own.urls.page_url("settings")),
        button: "Delete dataset".to_owned(),
        is_dangerous: true,
        back: own.urls.page_url("settings"),
        ..ConfirmationPrompt::default()
    };
    question.render_page(req, own.heading(req, DatasetTab::Settings), StatusCode::OK)
}

pub(super) async fn handle_settings(req: &mut PageRequest, body: Body) -> PageResult {
    let (own, form) = receive_owner_form(req, body).await?;
    let reply = apply_settings_form(req, &own, &form).await;
    let Err(error) = reply else { return reply };
    let typed = |action| form.action == action;
    let flash = SettingsFlash {
        problem: to_form_problem(req, error, &PROBLEM_FIELDS)?,
        about: typed("about").then(|| AboutForm::from_form(&form)),
        source: typed("source").then(|| SourceForm::from_form(&form, &own.view.dataset)),
        index: typed("index").then(|| IndexForm::from_form(&form)),
        checks: typed(checks::FORM_NAME).then(|| ChecksForm::from_form(&form)),
        previous_values: form.fields.first(PREVIOUS_VALUES_FIELD).map(str::to_owned),
        ..SettingsFlash::default()
    };
    render_settings(req, flash).await
}

async fn apply_settings_form(req: &PageRequest, own: &OwnerContext, form: &SubmittedForm) -> PageResult {
    let OwnerContext { urls, view } = own;
    let datasets = &req.services.datasets;
    let user = req.require_user()?;
    if !matches!(form.action.as_str(), "about" | "source" | "index" | checks::FORM_NAME) {
        form.check_fields(&[], &[])?;
    }
    let change = match form.action.as_str() {
        "about" => {
            let boxes = [&AboutForm::CHECKBOX_FIELDS[..], &[PREVIOUS_VALUES_FIELD]].concat();
            form.check_fields(&AboutForm::TEXT_FIELDS, &boxes)?;
            AboutForm::from_form(form).to_dataset_change(parse_previous_values(form)?.as_ref())?
        }
        "source" => {
            let boxes = ["publish_query", "infer_types", PREVIOUS_VALUES_FIELD];
            form.check_fields(&["from", "source", "format", "records_path"], &boxes)?;
            form.validated_choice("from", &SOURCE_CHOICES)?;
            SourceForm::from_form(form, &view.dataset).to_dataset_change(parse_previous_values(form)?.as_ref())?
        }
        "index" => {
            form.check_fields(&["always", "never"], &[PREVIOUS_VALUES_FIELD])?;
            IndexForm::from_form(form).to_dataset_change(parse_previous_values(form)?.as_ref())?
        }
        checks::FORM_NAME => {
            form.check_fields(&ChecksForm::FIELDS, &[PREVIOUS_VALUES_FIELD])?;
            ChecksForm::from_form(form).to_dataset_change(parse_previous_values(form)?.as_ref())?
        }
        "show-source" => {
            return render_settings(req, SettingsFlash { shows_url: true, ..SettingsFlash::default() }).await;
        }
        "show-key" => return render_settings(req, SettingsFlash { shows_key: true, ..SettingsFlash::default() }).await,
        "rotate-key" => {
            datasets.rotate_private_key(&user, urls.id).await?;
            let notice = Some("The private key was replaced. The old key no longer works.");
            return render_settings(req, SettingsFlash { shows_key: true, notice, ..SettingsFlash::default() }).await;
        }
        "delete" => {
            datasets.delete(&user, urls.id).await?;
            return Ok(PageResponse::SeeOther("/".to_owned()));
        }
        _ => return Err(HttpError::PathNotFound),
    };
    let updated = datasets.update(&user, urls.id, change).await?;
    Ok(PageResponse::redirect_with_notice(&form.action, &DatasetUrls::new(&updated.dataset).page_url("settings")))
}
