//! The dashboard from the view of a browser without scripts.

mod account;
mod addresses;
mod alternates;
mod browse;
mod catalogue;
mod clone;
mod crawl;
mod created;
mod diff;
mod explain;
mod hostile;
mod in_browser;
mod pages;
mod profile;
mod refresh;
mod sessions;
mod settings;
mod snippets;
mod usage;
mod versions;
mod webhook;

use axum::body::Body;
use axum::http::Request;
use strata_testing::html::Page;
use strata_testing::{Answer, PASSWORD, TestService};

/// `Host` header of all requests.
const HOST: &str = "data.strata.test";
const ORIGIN: &str = "http://data.strata.test";

/// A browser with an optional session.
struct Browser<'a> {
    service: &'a TestService,
    cookie: Option<String>,
}

impl<'a> Browser<'a> {
    /// Returns a browser without a session.
    fn visitor(service: &'a TestService) -> Browser<'a> {
        Browser { service, cookie: None }
    }

    /// Signs in with the form.
    async fn sign_in(service: &'a TestService, email: &str, password: &str) -> Browser<'a> {
        let mut browser = Browser::visitor(service);
        let answer = browser.post("/ui/sign-in", &[("email", email), ("password", password)]).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        let set = answer.header("set-cookie").expect("a cookie");
        browser.cookie = Some(set.split(';').next().expect("a pair").to_owned());
        browser
    }

    /// Signs in a user with the common password of the tests.
    async fn user(service: &'a TestService, email: &str) -> Browser<'a> {
        Browser::sign_in(service, email, PASSWORD).await
    }

    async fn get(&self, uri: &str) -> Answer {
        self.send(Request::get(uri), Body::empty()).await
    }

    /// Requests a page, which must return 200.
    async fn page(&self, uri: &str) -> Page {
        Page::parse(&self.get(uri).await, 200)
    }

    /// Requests a page, which must return `status`.
    async fn error(&self, uri: &str, status: u16) -> Page {
        Page::parse(&self.get(uri).await, status)
    }

    /// Sends a form like a page of the dashboard.
    async fn post(&self, uri: &str, fields: &[(&str, &str)]) -> Answer {
        self.post_with(uri, fields, &[("origin", ORIGIN), ("sec-fetch-site", "same-origin")]).await
    }

    async fn post_with(&self, uri: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Answer {
        self.post_form(uri, form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish(), headers)
            .await
    }

    async fn post_form(&self, uri: &str, form: impl Into<Body>, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::post(uri).header("content-type", "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request, form.into()).await
    }

    async fn send(&self, request: axum::http::request::Builder, body: Body) -> Answer {
        let mut request = request.header("host", HOST);
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        self.service.call(request.body(body).expect("a request")).await
    }

    /// Returns the form token of a page.
    async fn token(&self, uri: &str) -> String {
        let page = self.page(uri).await;
        let field = page.select("input[name=token]").into_iter().next().expect("a token");
        field.attr("value").expect("a value").to_owned()
    }

    /// Sends the form with this action, with the values on the page.
    async fn submit(&self, page: &Page, action: &str) -> Answer {
        // The action can end with a fragment.
        let form = page.one(&format!("form[action='{action}'], form[action^='{action}#']"));
        let selector = scraper::Selector::parse("input[name]").expect("a selector");
        let fields: Vec<(String, String)> = form
            .select(&selector)
            .map(|field| {
                let attribute = |name| field.attr(name).unwrap_or_default().to_owned();
                (attribute("name"), attribute("value"))
            })
            .collect();
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.post(action, &fields).await
    }
}

/// Returns the rows of a comparison: path, kind of change, and both values.
fn comparison_rows(page: &Page) -> Vec<String> {
    let cells = scraper::Selector::parse("th, td").expect("a selector");
    let text = |cell: scraper::ElementRef<'_>| cell.text().collect::<String>();
    let row = |row: scraper::ElementRef<'_>| row.select(&cells).map(text).collect::<Vec<_>>().join(" ");
    page.select(".compared tbody tr").into_iter().map(row).collect()
}

/// Returns the fields and those `others` that they do not contain, because browsers send all fields of a form.
fn with_defaults<'f>(fields: &[(&'f str, &'f str)], others: &[(&'f str, &'f str)]) -> Vec<(&'f str, &'f str)> {
    let others = others.iter().filter(|(other, _)| fields.iter().all(|(name, _)| name != other));
    fields.iter().chain(others).copied().collect()
}

/// Asserts that a form is rejected if a field is missing, repeated, or unknown.
async fn assert_requires_exact_form(browser: &Browser<'_>, uri: &str, fields: &[(&str, &str)], token: &str) {
    let refused = async |fields: &[(&str, &str)], problem: &str| {
        let answer = browser.post(uri, &[fields, &[("token", token)]].concat()).await;
        let message = Page::parse(&answer, 400).words("[role=alert]");
        assert!(message.contains(problem), "{uri}: {message}");
    };
    for left_out in 0..fields.len() {
        let rest = [&fields[..left_out], &fields[left_out + 1..]].concat();
        refused(&rest, &format!("missing field: {}", fields[left_out].0)).await;
    }
    let twice = fields.first().copied().unwrap_or(("token", token));
    refused(&[fields, &[twice]].concat(), &format!("the field \"{}\" appears more than once", twice.0)).await;
    refused(&[fields, &[("<b>", "")]].concat(), "unknown field \"<b>\"").await;
}

/// Asserts that a response is a redirect to `to`.
#[track_caller]
fn assert_redirect(answer: &Answer, to: &str) {
    assert_eq!((answer.status, answer.header("location")), (303, Some(to)), "{}", answer.text());
}
