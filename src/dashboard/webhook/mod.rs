//! `…/webhook`: the POST that tells a receiver of the dataset's owner of a new version: where it goes, what was sent,
//! and how its signature is checked.

mod snippets;

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

use self::snippets::SNIPPETS;
use super::acting::{Problem, Question, Sent, asked, invalid_field, own, problem, received_of_owner};
use super::figures::{self, Time};
use super::opened::{Heading, Tab};
use super::place::DatasetPlace;
use super::query::Query;
use super::refresh::shown_url;
use super::visit::{Reply, Shell, Visit, render};

const PAGE: usize = 20;

/// The parameter that names the version whose payload is shown.
const VERSION: &str = "version";

/// Random bytes of a secret that is made here.
const SECRET_BYTES: usize = 32;

/// The fields of the form, beside which their problems are said.
const URL: &str = "url";
const SECRET: &str = "secret";
const FIELDS: [&str; 2] = [URL, SECRET];

/// How deliveries are signed: with a new secret, with a typed one, with the one that is registered, or not at all.
const SIGNED: [&str; 4] = ["made", "typed", "kept", "no"];

#[derive(Template)]
#[template(path = "webhook.html")]
struct WebhookPage {
    shell: Shell,
    heading: Heading,
    said: Said,
    plan: Plan,
    registered: Option<Webhook>,
    form: Form,
    /// The version of a payload, and that.
    payload: Option<(VersionNumber, String)>,
    deliveries: Vec<SentDelivery>,
    /// What names the part of the list that is shown.
    list: Query,
    now: DateTime<Utc>,
    first: Option<String>,
    older: Option<String>,
}

struct Form {
    /// Empty where it is not shown, because it may hold a key.
    url: String,
    secret: String,
    /// One of [`SIGNED`].
    signed: &'static str,
}

fn has_hidden_url(webhook: &Webhook) -> bool {
    shown_url(&webhook.url) != webhook.url
}

#[derive(Default)]
struct Said {
    status: StatusCode,
    notice: Option<&'static str>,
    /// The version before which the list of what was sent begins.
    before: Option<u64>,
    /// The version whose payload is shown, unless it is the newest.
    version: Option<VersionNumber>,
    problem: Problem,
    /// A secret that was just made. It is shown this once.
    made: Option<String>,
    /// What was typed, and is not saved.
    typed: Option<Form>,
}

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    let query = visit.query(&["done", "before", VERSION])?;
    let notice = match query.one_of("done", &["register", "delete"])? {
        Some("register") => Some("The webhook was registered. strata will call it for the next version."),
        Some(_) => Some("The webhook was deleted. strata will not send any more deliveries."),
        None => None,
    };
    let version = query.number(VERSION)?.map(VersionNumber::new);
    let before = query.number("before")?;
    webhook(visit, Said { notice, before, version, ..Said::default() }).await
}

async fn webhook(visit: &Visit, mut said: Said) -> Result<Reply, HttpError> {
    let own = own(visit).await?;
    let webhooks = visit.app.webhooks();
    let user = visit.user()?;
    let place = &own.place;
    let before = said.before;
    let found = webhooks.find(&user, place.id).await?;
    let limit = PAGE as u32 + 1;
    let mut sent = webhooks.deliveries(&user, place.id, before.map(VersionNumber::new), limit).await?;
    let older = sent.get(PAGE).and_then(|_| sent.get(PAGE - 1)).map(|last| last.version);
    sent.truncate(PAGE);
    let payload = webhooks.payload(&user, place.id, said.version).await?;
    let saved = found.as_ref().map(|webhook| Form {
        url: if has_hidden_url(webhook) { String::new() } else { webhook.url.clone() },
        secret: String::new(),
        signed: if webhook.secret.is_some() { "kept" } else { "no" },
    });
    let new = || Form { url: String::new(), secret: String::new(), signed: "made" };
    let page = WebhookPage {
        shell: visit.shell(said.problem.title(format!("Webhook, {}", own.view.dataset.name.as_str()))),
        heading: own.heading(visit, Tab::Webhook),
        plan: user.plan,
        registered: found,
        form: said.typed.take().or(saved).unwrap_or_else(new),
        payload: payload.map(|(version, payload)| (version, String::from_utf8_lossy(&payload).into_owned())),
        deliveries: sent,
        list: before.map_or_else(Query::default, |before| Query::default().and("before", before)),
        now: Utc::now(),
        first: before.map(|_| place.page("webhook")),
        older: older.map(|version| Query::default().and("before", version.get()).at(&place.page("webhook"))),
        said,
    };
    render(page.said.status, &page)
}

/// What came of a delivery, in words, and whether it has failed.
fn outcome(delivery: &SentDelivery) -> (String, bool) {
    match delivery.outcome.as_ref().map(|outcome| &outcome.answer) {
        None => ("in progress".to_owned(), false),
        Some(Ok(status)) => (format!("status {status}"), !(200..300).contains(status)),
        Some(Err(error)) => (error.clone(), true),
    }
}

fn took(delivery: &SentDelivery) -> Option<String> {
    let duration = delivery.outcome.as_ref()?.duration?;
    Some(figures::took(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

/// The page that says what the deletion does.
pub(super) async fn confirm(visit: &mut Visit) -> Result<Reply, HttpError> {
    let own = asked(visit).await?;
    let found = visit.app.webhooks().find(&visit.user()?, own.place.id).await?;
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

pub(super) async fn act(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    let (own, sent) = received_of_owner(visit, body).await?;
    let error = match done(visit, &own.place, &sent).await {
        Err(error) => error,
        reply => return reply,
    };
    let (status, problem) = problem(visit, error, &FIELDS)?;
    let typed = (sent.action == "register").then(|| Form {
        url: sent.trimmed(URL).to_owned(),
        secret: sent.fields.first(SECRET).unwrap_or_default().to_owned(),
        signed: SIGNED.into_iter().find(|name| *name == sent.trimmed("signed")).unwrap_or("made"),
    });
    webhook(visit, Said { status, problem, typed, ..Said::default() }).await
}

async fn done(visit: &Visit, place: &DatasetPlace, sent: &Sent) -> Result<Reply, HttpError> {
    let webhooks = visit.app.webhooks();
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
                // It stays what it is, and was not shown.
                ("", Some(webhook)) if has_hidden_url(webhook) => webhook.url.as_str(),
                (url, _) => url,
            };
            webhooks.register(&user, place.id, url, secret.as_deref()).await?;
            match (signed, secret) {
                ("made", Some(secret)) => {
                    let notice = Some("The webhook was registered. strata will call it for the next version.");
                    webhook(visit, Said { made: Some(secret), notice, ..Said::default() }).await
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
