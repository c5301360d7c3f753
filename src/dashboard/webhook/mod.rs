//! `…/webhook`: the receiver of the POST requests for new versions, the log of deliveries, and programs that verify a
//! signature.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{SentDelivery, Webhook};
use strata_http::error::HttpError;
use strata_service::ManageError;
use strata_service::webhook::SIGNATURE_HEADER;
use strata_types::user::Plan;
use strata_types::version::VersionNumber;

use super::context::{Heading, Tab};
use super::form_handling::{Problem, Question, SubmittedForm, asked, invalid_field, own, problem, received_of_owner};
use super::format::{self, Time};
use super::query::Query;
use super::refresh::shown_url;
use super::urls::DatasetPlace;
use super::visit::{PageResult, Reply, Shell, Visit, render};

const PAGE: usize = 20;

/// The parameter that names the version whose payload is shown.
const VERSION: &str = "version";

/// Random bytes of a generated secret.
const SECRET_BYTES: usize = 32;

/// Programs that verify a signature, with the secret in `WEBHOOK_SECRET`, the header in `SIGNATURE` and the body in the
/// file `body.json`.
const PROGRAMS: [(&str, &str); 3] = [
    ("Python", include_str!("verify.py")),
    ("JavaScript", include_str!("verify.js")),
    ("Shell", include_str!("verify.sh")),
];

const URL: &str = "url";
const SECRET: &str = "secret";
const FIELDS: [&str; 2] = [URL, SECRET];

/// How deliveries are signed: with a new secret, a typed one, the registered one, or not at all.
const SIGNED: [&str; 4] = ["made", "typed", "kept", "no"];

#[derive(Template)]
#[template(path = "webhook.html")]
struct WebhookPage {
    shell: Shell,
    heading: Heading,
    said: Flash,
    plan: Plan,
    registered: Option<Webhook>,
    form: Form,
    payload: Option<(VersionNumber, String)>,
    deliveries: Vec<SentDelivery>,
    /// The query string of the part of the list that is shown.
    list: Query,
    now: DateTime<Utc>,
    first: Option<String>,
    older: Option<String>,
}

struct Form {
    /// Empty if it is hidden because it might contain a key.
    url: String,
    secret: String,
    /// One of [`SIGNED`].
    signed: &'static str,
}

fn has_hidden_url(webhook: &Webhook) -> bool {
    shown_url(&webhook.url) != webhook.url
}

#[derive(Default)]
struct Flash {
    notice: Option<&'static str>,
    /// The version before which the list of deliveries begins.
    before: Option<u64>,
    /// The version whose payload is shown, unless it is the newest.
    version: Option<VersionNumber>,
    problem: Problem,
    /// A new secret.
    made: Option<String>,
    /// The form that was refused.
    typed: Option<Form>,
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    let query = visit.query(&["done", "before", VERSION])?;
    let notice = match query.one_of("done", &["register", "delete"])? {
        Some("register") => Some("The webhook was registered. strata will call it for the next version."),
        Some(_) => Some("The webhook was deleted. strata will not send any more deliveries."),
        None => None,
    };
    let version = query.number(VERSION)?.map(VersionNumber::new);
    let before = query.number("before")?;
    webhook(visit, Flash { notice, before, version, ..Flash::default() }).await
}

async fn webhook(visit: &Visit, mut said: Flash) -> PageResult {
    let own = own(visit).await?;
    let webhooks = &visit.services.webhooks;
    let user = visit.user()?;
    let place = &own.place;
    let before = said.before;
    let found = webhooks.find(&user, place.id).await?;
    let limit = PAGE as u32 + 1;
    let mut sent = webhooks.deliveries(&user, place.id, before.map(VersionNumber::new), limit).await?;
    let older = sent.get(PAGE).and_then(|_| sent.get(PAGE - 1)).map(|last| last.version);
    sent.truncate(PAGE);
    let payload = webhooks.payload(&user, place.id, said.version).await?;
    let shown = found.as_ref().filter(|webhook| !has_hidden_url(webhook));
    let url = shown.map(|webhook| webhook.url.clone()).unwrap_or_default();
    let signed = found.as_ref().map_or("made", |webhook| if webhook.secret.is_some() { "kept" } else { "no" });
    let saved = Form { url, secret: String::new(), signed };
    let page = WebhookPage {
        shell: visit.shell(said.problem.title(format!("Webhook, {}", own.view.dataset.name.as_str()))),
        heading: own.heading(visit, Tab::Webhook),
        plan: user.plan,
        registered: found,
        form: said.typed.take().unwrap_or(saved),
        payload: payload.map(|(version, payload)| (version, String::from_utf8_lossy(&payload).into_owned())),
        deliveries: sent,
        list: before.map_or_else(Query::default, |before| Query::default().and("before", before)),
        now: Utc::now(),
        first: before.map(|_| place.page("webhook")),
        older: older.map(|version| Query::default().and("before", version.get()).at(&place.page("webhook"))),
        said,
    };
    render(page.said.problem.status, &page)
}

/// The outcome of a delivery in words, and whether it has failed.
fn outcome(delivery: &SentDelivery) -> (String, bool) {
    match delivery.outcome.as_ref().map(|outcome| &outcome.answer) {
        None => ("in progress".to_owned(), false),
        Some(Ok(status)) => (format!("status {status}"), !(200..300).contains(status)),
        Some(Err(error)) => (error.clone(), true),
    }
}

fn took(delivery: &SentDelivery) -> Option<String> {
    let duration = delivery.outcome.as_ref()?.duration?;
    Some(format::took(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

pub(super) async fn confirm(visit: &mut Visit) -> PageResult {
    let own = asked(visit).await?;
    let found = visit.services.webhooks.find(&visit.user()?, own.place.id).await?;
    let webhook = found.ok_or(ManageError::WebhookNotFound)?;
    let stops = "Deleting the webhook stops all deliveries, including pending ones. strata keeps the delivery log.";
    let is_final = match webhook.secret.is_some() {
        true => "The secret will also be deleted. This cannot be undone.",
        false => "This cannot be undone.",
    };
    let question = Question {
        title: "Delete the webhook?".to_owned(),
        effects: vec![stops.to_owned(), is_final.to_owned()],
        action: own.place.page("webhook") + "/delete",
        button: "Delete webhook".to_owned(),
        danger: true,
        back: own.place.page("webhook"),
        ..Question::default()
    };
    question.page(visit, own.heading(visit, Tab::Webhook), StatusCode::OK)
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> PageResult {
    let (own, sent) = received_of_owner(visit, body).await?;
    let error = match done(visit, &own.place, &sent).await {
        Err(error) => error,
        reply => return reply,
    };
    let problem = problem(visit, error, &FIELDS)?;
    let typed = (sent.action == "register").then(|| Form {
        url: sent.trimmed(URL).to_owned(),
        secret: sent.fields.first(SECRET).unwrap_or_default().to_owned(),
        signed: SIGNED.into_iter().find(|name| *name == sent.trimmed("signed")).unwrap_or("made"),
    });
    webhook(visit, Flash { problem, typed, ..Flash::default() }).await
}

async fn done(visit: &Visit, place: &DatasetPlace, sent: &SubmittedForm) -> PageResult {
    let webhooks = &visit.services.webhooks;
    let user = visit.user()?;
    match sent.action.as_str() {
        "register" => {
            sent.check(&[URL, "signed", SECRET], &[])?;
            let signed = sent.chosen("signed", &SIGNED)?;
            let found = webhooks.find(&user, place.id).await?;
            let secret = match signed {
                "kept" => {
                    let kept = found.as_ref().and_then(|webhook| webhook.secret.as_ref());
                    let gone = || invalid_field(SECRET, "no secret is registered now; choose another signature option");
                    Some(kept.ok_or_else(gone)?.expose().to_owned())
                }
                "made" => Some(hex::encode(rand::random::<[u8; SECRET_BYTES]>())),
                "typed" => Some(sent.fields.first(SECRET).unwrap_or_default().to_owned()),
                _ => None,
            };
            let url = match (sent.trimmed(URL), &found) {
                // The hidden URL stays.
                ("", Some(webhook)) if has_hidden_url(webhook) => webhook.url.as_str(),
                (url, _) => url,
            };
            webhooks.register(&user, place.id, url, secret.as_deref()).await?;
            match (signed, secret) {
                ("made", Some(secret)) => {
                    let notice = Some("The webhook was registered. strata will call it for the next version.");
                    webhook(visit, Flash { made: Some(secret), notice, ..Flash::default() }).await
                }
                _ => Ok(Reply::done("register", &place.page("webhook"))),
            }
        }
        "delete" => {
            sent.check(&[], &[])?;
            webhooks.delete(&user, place.id).await?;
            Ok(Reply::done("delete", &place.page("webhook")))
        }
        _ => Err(HttpError::NoSuchPath),
    }
}
