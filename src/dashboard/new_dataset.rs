//! `/ui/new` creates a dataset without versions; `…/clone` creates one from another dataset's newest version.

use askama::Template;
use axum::body::Body;
use strata_http::error::HttpError;
use strata_service::{ManageError, ReadError};
use strata_types::dataset::{Dataset, DatasetChange, DatasetSource, InvalidDatasetName};
use strata_types::limits::MAX_DATASET_NAME_CHARACTERS;

use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::{FormProblem, SubmittedForm, invalid_field_error, receive_form, to_form_problem};
use super::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use super::settings::{AboutForm, SOURCE_CHOICES, UNSELECTED_URL_PROBLEM};
use super::unavailable;
use super::urls::DatasetUrls;

const PROBLEM_FIELDS: [&str; 4] = ["name", "description", "licence", "source"];

#[derive(Template)]
#[template(path = "new.html")]
struct NewDatasetPage {
    layout: PageLayout,
    problem: FormProblem,
    about: AboutForm,
    is_url_source: bool,
    source: String,
}

pub(super) async fn show_new_dataset(req: &mut PageRequest) -> PageResult {
    req.parse_query(&[])?;
    req.require_user()?;
    render_new_dataset_form(req, FormProblem::default(), None)
}

fn render_new_dataset_form(req: &PageRequest, problem: FormProblem, form: Option<&SubmittedForm>) -> PageResult {
    let page = NewDatasetPage {
        layout: req.layout(problem.prefix_title("New dataset".to_owned())),
        problem,
        about: form.map(AboutForm::from_form).unwrap_or_default(),
        is_url_source: form.is_some_and(|form| form.trimmed_value("from") == "url"),
        source: form.map(|form| form.trimmed_value("source").to_owned()).unwrap_or_default(),
    };
    render(page.problem.status, &page)
}

pub(super) async fn handle_new_dataset_form(req: &mut PageRequest, body: Body) -> PageResult {
    let form = receive_form(req, body).await?;
    let reply = create_dataset(req, &form).await;
    let Err(error) = reply else { return reply };
    let problem = to_form_problem(req, error, &PROBLEM_FIELDS)?;
    render_new_dataset_form(req, problem, Some(&form))
}

async fn create_dataset(req: &PageRequest, form: &SubmittedForm) -> PageResult {
    form.check_fields(&[&AboutForm::TEXT_FIELDS[..], &["from", "source"]].concat(), &AboutForm::CHECKBOX_FIELDS)?;
    let from = form.validated_choice("from", &SOURCE_CHOICES)?;
    let (name, about) = AboutForm::from_form(form).validate()?;
    let source = match from {
        "url" => DatasetSource::Url(form.trimmed_value("source").to_owned()),
        _ if form.trimmed_value("source").is_empty() => DatasetSource::Push,
        _ => return Err(invalid_field_error("source", UNSELECTED_URL_PROBLEM)),
    };
    let settings = DatasetChange { source: Some(source), ..about };
    let created = req.services.datasets.create(&req.require_user()?, name, settings).await?;
    Ok(PageResponse::SeeOther(DatasetUrls::new(&created.dataset).page_url("refresh")))
}

#[derive(Template)]
#[template(path = "clone.html")]
struct CloneDatasetPage {
    layout: PageLayout,
    heading: DatasetHeading,
    problem: FormProblem,
    name: String,
}

pub(super) async fn show_clone_form(req: &mut PageRequest) -> PageResult {
    let page = async |req: &mut PageRequest| {
        req.parse_query(&[])?;
        render_clone_form(req, &load_cloneable_dataset(req).await?, FormProblem::default(), None)
    };
    unavailable::run_or_show_unavailable(req, DatasetTab::Versions, page).await
}

async fn load_cloneable_dataset(req: &PageRequest) -> Result<Dataset, HttpError> {
    let urls = DatasetUrls::parse(req.head.uri.path())?;
    let user = req.require_user()?;
    let found = req.services.datasets.find_visible(Some(&user), req.current_user.client, urls.id).await?;
    let found = found.filter(|dataset| dataset.name.slug() == urls.slug).ok_or(ReadError::DatasetNotFound)?;
    match (found.frozen, found.latest_version) {
        (true, _) if found.owner != user.id => Err(ReadError::Frozen.into()),
        (true, _) => Err(ManageError::Frozen.into()),
        (false, None) => Err(ManageError::CloneSourceEmpty.into()),
        (false, Some(_)) => Ok(found),
    }
}

fn render_clone_form(
    req: &PageRequest,
    dataset: &Dataset,
    problem: FormProblem,
    form: Option<&SubmittedForm>,
) -> PageResult {
    let name = || format!("Clone of {}", dataset.name.as_str()).chars().take(MAX_DATASET_NAME_CHARACTERS).collect();
    let urls = DatasetUrls::new(dataset).active_version();
    let page = CloneDatasetPage {
        layout: req.layout(problem.prefix_title(format!("Clone {}", dataset.name.as_str()))),
        heading: DatasetHeading::for_dataset(req, dataset, &urls, DatasetTab::Versions),
        problem,
        name: form.map_or_else(name, |form| form.trimmed_value("name").to_owned()),
    };
    render(page.problem.status, &page)
}

pub(super) async fn handle_clone_form(req: &mut PageRequest, body: Body) -> PageResult {
    let form = receive_form(req, body).await?;
    unavailable::run_or_show_unavailable(req, DatasetTab::Versions, async |req: &mut PageRequest| {
        apply_clone_form(req, &form).await
    })
    .await
}

async fn apply_clone_form(req: &mut PageRequest, form: &SubmittedForm) -> PageResult {
    let dataset = load_cloneable_dataset(req).await?;
    let user = req.require_user()?;
    form.check_fields(&["name"], &[])?;
    let invalid = |problem: InvalidDatasetName| invalid_field_error("name", problem.to_string());
    let created = match form.trimmed_value("name").parse().map_err(invalid) {
        Ok(name) => req.services.datasets.clone_dataset(&user, dataset.id, name).await.map_err(HttpError::from),
        Err(error) => Err(error),
    };
    match created {
        Ok(created) => Ok(PageResponse::SeeOther(DatasetUrls::new(&created.dataset).active_version().browse_url())),
        Err(error) => {
            let problem = to_form_problem(req, error, &["name"])?;
            render_clone_form(req, &dataset, problem, Some(form))
        }
    }
}
