//! The dashboard, driven as browsers drive it that run no scripts.

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

/// The host of the pages.
const HOST: &str = "data.strata.test";
const ORIGIN: &str = "http://data.strata.test";

/// A browser with its session.
struct Browser<'a> {
    service: &'a TestService,
    cookie: Option<String>,
}

impl<'a> Browser<'a> {
    /// Nobody's.
    fn visitor(service: &'a TestService) -> Browser<'a> {
        Browser { service, cookie: None }
    }

    /// A user's, who has signed in with the form.
    async fn of(service: &'a TestService, email: &str, password: &str) -> Browser<'a> {
        let mut browser = Browser::visitor(service);
        let answer = browser.post("/ui/sign-in", &[("email", email), ("password", password)]).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        let set = answer.header("set-cookie").expect("a cookie");
        browser.cookie = Some(set.split(';').next().expect("a pair").to_owned());
        browser
    }

    /// A user's of the tests.
    async fn user(service: &'a TestService, email: &str) -> Browser<'a> {
        Browser::of(service, email, PASSWORD).await
    }

    async fn get(&self, uri: &str) -> Answer {
        self.send(Request::get(uri), Body::empty()).await
    }

    /// The page at an address.
    async fn page(&self, uri: &str) -> Page {
        Page::of(&self.get(uri).await, 200)
    }

    /// The page that an error is.
    async fn error(&self, uri: &str, status: u16) -> Page {
        Page::of(&self.get(uri).await, status)
    }

    /// Sends a form as a page of ours does.
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

    /// The token of the forms of a page.
    async fn token(&self, uri: &str) -> String {
        let page = self.page(uri).await;
        let field = page.select("input[name=token]").into_iter().next().expect("a token");
        field.attr("value").expect("a value").to_owned()
    }

    /// Sends the form that a page holds with this action, as the browser would with nothing changed.
    async fn submit(&self, page: &Page, action: &str) -> Answer {
        // A fragment says where the answer is on its page.
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

/// The rows of entities side by side: path, kind of change, and both sides.
fn compared(page: &Page) -> Vec<String> {
    let cells = scraper::Selector::parse("th, td").expect("a selector");
    let text = |cell: scraper::ElementRef<'_>| cell.text().collect::<String>();
    let row = |row: scraper::ElementRef<'_>| row.select(&cells).map(text).collect::<Vec<_>>().join(" ");
    page.select(".compared tbody tr").into_iter().map(row).collect()
}

/// The fields of a form as a browser sends them, which leaves none out: these, and the others as they are.
fn filled<'f>(fields: &[(&'f str, &'f str)], others: &[(&'f str, &'f str)]) -> Vec<(&'f str, &'f str)> {
    let others = others.iter().filter(|(other, _)| fields.iter().all(|(name, _)| name != other));
    fields.iter().chain(others).copied().collect()
}

/// Sends a form without each of its fields in turn, with one twice, and with one that it does not have. All of that is
/// refused.
async fn takes_only_the_whole_form(browser: &Browser<'_>, uri: &str, fields: &[(&str, &str)], token: &str) {
    let refused = async |fields: &[(&str, &str)], problem: &str| {
        let answer = browser.post(uri, &[fields, &[("token", token)]].concat()).await;
        let told = Page::of(&answer, 400).words("[role=alert]");
        assert!(told.contains(problem), "{uri}: {told}");
    };
    for left_out in 0..fields.len() {
        let rest = [&fields[..left_out], &fields[left_out + 1..]].concat();
        refused(&rest, &format!("missing field: {}", fields[left_out].0)).await;
    }
    let twice = fields.first().copied().unwrap_or(("token", token));
    refused(&[fields, &[twice]].concat(), &format!("the field \"{}\" appears more than once", twice.0)).await;
    refused(&[fields, &[("<b>", "")]].concat(), "unknown field \"<b>\"").await;
}

/// Where an answer leads.
#[track_caller]
fn leads_to(answer: &Answer, to: &str) {
    assert_eq!((answer.status, answer.header("location")), (303, Some(to)), "{}", answer.text());
}
