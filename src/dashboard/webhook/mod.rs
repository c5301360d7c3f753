//! `…/webhook`: the URL called for each new version, the delivery log, and programs that verify signatures.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{SentDelivery, Webhook};
use strata_http::error::HttpError;
use strata_service::ManageError;
use strata_service::webhook::SIGNATURE_HEADER;
use strata_types::user::UserPlan;
use strata_types::version::VersionNumber;

use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::{
    ConfirmationPrompt, FormProblem, SubmittedForm, invalid_field_error, load_confirmation_context, load_owner_context,
    receive_owner_form, to_form_problem,
};
use super::format::{self, FormattedTime};
use super::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use super::query_params::QueryParams;
use super::refresh::redact_url;
use super::urls::DatasetUrls;

const DELIVERIES_PER_PAGE: usize = 20;
const VERSION_PARAM: &str = "version";
const GENERATED_SECRET_BYTES: usize = 32;

/// Example programs that verify a webhook signature. Their inputs are the secret in `WEBHOOK_SECRET`, the signature
/// header in `SIGNATURE`, and the request body in `body.json`.
const VERIFICATION_PROGRAMS: [(&str, &str); 3] = [
    ("Python", include_str!("verify.py")),
    ("JavaScript", include_str!("verify.js")),
    ("Shell", include_str!("verify.sh")),
];

const URL_FIELD: &str = "url";
const SECRET_FIELD: &str = "secret";
const PROBLEM_FIELDS: [&str; 2] = [URL_FIELD, SECRET_FIELD];

/// Form values for signing webhook requests: with a generated, a typed, or the registered secret, or not at all.
const SIGNATURE_CHOICES: [&str; 4] = ["made", "typed", "kept", "no"];

#[derive(Template)]
#[template(path = "webhook.html")]
struct WebhookPage {
    layout: PageLayout,
    heading: DatasetHeading,
    flash: WebhookFlash,
    plan: UserPlan,
    registered: Option<Webhook>,
    form: WebhookForm,
    payload: Option<(VersionNumber, String)>,
    deliveries: Vec<SentDelivery>,
    list: QueryParams,
    now: DateTime<Utc>,
    first: Option<String>,
    older: Option<String>,
}

struct WebhookForm {
    /// The URL in the form field. It is empty if the page hides the registered URL, which might contain a key.
    url: String,
    secret: String,
    signature_choice: &'static str,
}

fn has_hidden_url(webhook: &Webhook) -> bool {
    redact_url(&webhook.url) != webhook.url
}

#[derive(Default)]
struct WebhookFlash {
    notice: Option<&'static str>,
    before: Option<u64>,
    payload_version: Option<VersionNumber>,
    problem: FormProblem,
    created_secret: Option<String>,
    typed_form: Option<WebhookForm>,
}

pub(super) async fn show_webhook(req: &mut PageRequest) -> PageResult {
    let query = req.parse_query(&["done", "before", VERSION_PARAM])?;
    let notice = query.parse_choice("done", &["register", "delete"])?.map(|done| match done {
        "register" => "The webhook was registered. strata will call it for the next version.",
        _ => "The webhook was deleted. strata will not send any more deliveries.",
    });
    let version = query.parse_number(VERSION_PARAM)?.map(VersionNumber::new);
    let before = query.parse_number("before")?;
    render_webhook(req, WebhookFlash { notice, before, payload_version: version, ..WebhookFlash::default() }).await
}

async fn render_webhook(req: &PageRequest, mut flash: WebhookFlash) -> PageResult {
    let own = load_owner_context(req).await?;
    let webhooks = &req.services.webhooks;
    let user = req.require_user()?;
    let urls = &own.urls;
    let before = flash.before;
    let found = webhooks.find_webhook(&user, urls.id).await?;
    let limit = DELIVERIES_PER_PAGE as u32 + 1;
    let mut deliveries = webhooks.list_deliveries(&user, urls.id, before.map(VersionNumber::new), limit).await?;
    let has_older = deliveries.len() > DELIVERIES_PER_PAGE;
    deliveries.truncate(DELIVERIES_PER_PAGE);
    let older = deliveries.last().filter(|_| has_older).map(|last| last.version);
    let payload = webhooks.build_payload(&user, urls.id, flash.payload_version).await?;
    let visible = found.as_ref().filter(|webhook| !has_hidden_url(webhook));
    let url = visible.map(|webhook| webhook.url.clone()).unwrap_or_default();
    let signature_choice =
        found.as_ref().map_or("made", |webhook| if webhook.secret.is_some() { "kept" } else { "no" });
    let page = WebhookPage {
        layout: req.layout(flash.problem.prefix_title(format!("Webhook, {}", own.view.dataset.name.as_str()))),
        heading: own.heading(req, DatasetTab::Webhook),
        plan: user.plan,
        registered: found,
        form: flash.typed_form.take().unwrap_or(WebhookForm { url, secret: String::new(), signature_choice }),
        payload: payload.map(|(version, payload)| (version, String::from_utf8_lossy(&payload).into_owned())),
        deliveries,
        list: before.map_or_else(QueryParams::default, |before| QueryParams::default().with_added("before", before)),
        now: Utc::now(),
        first: before.map(|_| urls.page_url("webhook")),
        older: older.map(|last| QueryParams::default().with_added("before", last).to_url(&urls.page_url("webhook"))),
        flash,
    };
    render(page.flash.problem.status, &page)
}

fn describe_outcome_and_failure(delivery: &SentDelivery) -> (String, bool) {
    match delivery.outcome.as_ref().map(|outcome| &outcome.response) {
        None => ("in progress".to_owned(), false),
        Some(Ok(status)) => (format!("status {status}"), !(200..300).contains(status)),
        Some(Err(error)) => (error.clone(), true),
    }
}

fn delivery_duration(delivery: &SentDelivery) -> Option<String> {
    let millis = delivery.outcome.as_ref()?.duration?.as_millis();
    Some(format::duration_ms(u64::try_from(millis).unwrap_or(u64::MAX)))
}

pub(super) async fn show_webhook_deletion(req: &mut PageRequest) -> PageResult {
    let own = load_confirmation_context(req).await?;
    let found = req.services.webhooks.find_webhook(&req.require_user()?, own.urls.id).await?;
    let webhook = found.ok_or(ManageError::WebhookNotFound)?;
    let stops = "Deleting the webhook stops all deliveries, including pending ones. strata keeps the delivery log.";
    let is_final = match webhook.secret.is_some() {
        true => "The secret will also be deleted. This cannot be undone.",
        false => "This cannot be undone.",
    };
    let question = ConfirmationPrompt {
        title: "Delete the webhook?".to_owned(),
        effects: vec![stops.to_owned(), is_final.to_owned()],
        action: own.urls.page_url("webhook") + "/delete",
        button: "Delete webhook".to_owned(),
        is_dangerous: true,
        back: own.urls.page_url("webhook"),
        ..ConfirmationPrompt::default()
    };
    question.render_page(req, own.heading(req, DatasetTab::Webhook), StatusCode::OK)
}

pub(super) async fn change_webhook(req: &mut PageRequest, body: Body) -> PageResult {
    let (own, form) = receive_owner_form(req, body).await?;
    let reply = apply_webhook_form(req, &own.urls, &form).await;
    let Err(error) = reply else { return reply };
    let problem = to_form_problem(req, error, &PROBLEM_FIELDS)?;
    let signed = SIGNATURE_CHOICES.into_iter().find(|name| *name == form.trimmed_value("signed"));
    let typed = (form.action == "register").then(|| WebhookForm {
        url: form.trimmed_value(URL_FIELD).to_owned(),
        secret: form.fields.first(SECRET_FIELD).unwrap_or_default().to_owned(),
        signature_choice: signed.unwrap_or("made"),
    });
    render_webhook(req, WebhookFlash { problem, typed_form: typed, ..WebhookFlash::default() }).await
}

async fn apply_webhook_form(req: &PageRequest, urls: &DatasetUrls, form: &SubmittedForm) -> PageResult {
    let webhooks = &req.services.webhooks;
    let user = req.require_user()?;
    match form.action.as_str() {
        "register" => {
            form.check_fields(&[URL_FIELD, "signed", SECRET_FIELD], &[])?;
            let signed = form.validated_choice("signed", &SIGNATURE_CHOICES)?;
            let found = webhooks.find_webhook(&user, urls.id).await?;
            let secret = match signed {
                "kept" => {
                    let secret = found.as_ref().and_then(|webhook| webhook.secret.as_ref());
                    let missing = "no secret is registered now; choose another signature option";
                    let secret = secret.ok_or_else(|| invalid_field_error(SECRET_FIELD, missing))?;
                    Some(secret.expose().to_owned())
                }
                "made" => Some(hex::encode(rand::random::<[u8; GENERATED_SECRET_BYTES]>())),
                "typed" => Some(form.fields.first(SECRET_FIELD).unwrap_or_default().to_owned()),
                _ => None,
            };
            let url = match (form.trimmed_value(URL_FIELD), &found) {
                ("", Some(webhook)) if has_hidden_url(webhook) => webhook.url.as_str(),
                (url, _) => url,
            };
            webhooks.register(&user, urls.id, url, secret.as_deref()).await?;
            match (signed, secret) {
                ("made", Some(secret)) => {
                    let notice = Some("The webhook was registered. strata will call it for the next version.");
                    let flash = WebhookFlash { created_secret: Some(secret), notice, ..WebhookFlash::default() };
                    render_webhook(req, flash).await
                }
                _ => Ok(PageResponse::redirect_with_notice("register", &urls.page_url("webhook"))),
            }
        }
        "delete" => {
            form.check_fields(&[], &[])?;
            webhooks.delete(&user, urls.id).await?;
            Ok(PageResponse::redirect_with_notice("delete", &urls.page_url("webhook")))
        }
        _ => Err(HttpError::PathNotFound),
    }
}
