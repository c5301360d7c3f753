//! `…/webhook`: where new versions are told, what was sent, and how a signature is checked.

use std::process::Command;

use serde_json::json;
use strata_config::Networks;
use strata_testing::html::{Page, words};
use strata_testing::loopback_server::{LoopbackServer, with_status};
use strata_testing::loopback_server::{Reply, ok};
use strata_testing::owned::{Owned, add_user};
use strata_types::user::Plan;

use super::{Browser, filled, leads_to, takes_only_the_whole_form};

const WEBHOOK: &str = "/ui/1/ten/webhook";
const REGISTER: &str = "/ui/1/ten/webhook/register";

async fn owned() -> Owned {
    let owned = Owned::start(|config| {
        config.net.allow = Networks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
    })
    .await;
    owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    owned
}

async fn registered(owner: &Browser<'_>, fields: &[(&str, &str)]) -> strata_testing::Answer {
    let token = owner.token(WEBHOOK).await;
    owner.post(REGISTER, &filled(fields, &[("secret", ""), ("token", token.as_str())])).await
}

#[tokio::test]
async fn a_signature_that_is_sent_is_checked_by_every_program_of_the_page() {
    let server = LoopbackServer::start(|_| ok("", b""));
    let owned = owned().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let url = server.url("/hook");
    let typed = " ü \"$HOME` \\ '<b> ";
    let page = Page::of(&registered(&owner, &[("url", &url), ("signed", "made")]).await, 200);
    let made = page.one("#made").attr("value").expect("a secret").to_owned();
    assert_eq!(made.len(), 64);
    assert!(!owner.page(WEBHOOK).await.text.contains(&made), "it is shown this once");
    let mut bodies = Vec::new();
    for (secret, version) in [(made.as_str(), 2), (typed, 3)] {
        if secret == typed {
            let answer = registered(&owner, &[("url", &url), ("signed", "typed"), ("secret", typed)]).await;
            leads_to(&answer, "/ui/1/ten/webhook?done=register");
        }
        owned.push(1, &format!("[{{\"n\":{version}}}]")).await;
        owned.service.services.deliveries.send_due().await.expect("sent");
        let sent = server.take_received().pop().expect("a delivery");
        let page = owner.page(WEBHOOK).await;
        assert_eq!(page.words("section[aria-labelledby=payload] > pre"), String::from_utf8_lossy(&sent.body));
        bodies.push((version, String::from_utf8_lossy(&sent.body).into_owned()));
        for (version, body) in &bodies {
            let link = page.link(&format!("Payload of version {version}"));
            let page = owner.page(link.trim_end_matches("#payload")).await;
            assert_eq!(page.words("section[aria-labelledby=payload] > pre"), *body);
        }
        let signature = sent.header("x-service-signature").expect("a signature");
        let directory = tempfile::tempdir().expect("a directory");
        let snippets = page.select("details.snippet");
        assert_eq!(snippets.len(), 3);
        for snippet in snippets {
            let name = words(
                snippet.select(&scraper::Selector::parse("summary").expect("a selector")).next().expect("a name"),
            );
            let program = snippet.select(&scraper::Selector::parse("code").expect("a selector")).next().expect("code");
            let (command, file) = match name.as_str() {
                "Python" => ("python3", "check.py"),
                "JavaScript" => ("node", "check.js"),
                _ => ("sh", "check.sh"),
            };
            std::fs::write(directory.path().join(file), program.text().collect::<String>()).expect("written");
            let says = |body: &[u8], signature: &str| {
                std::fs::write(directory.path().join("body.json"), body).expect("written");
                let mut run = Command::new(command);
                run.arg(file).current_dir(directory.path());
                let run = run.env("SIGNATURE", signature).env("WEBHOOK_SECRET", secret);
                let output = run.output().expect("it runs");
                assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            };
            assert_eq!(says(&sent.body, signature), "genuine", "{name}");
            assert_eq!(says(&sent.body[1..], signature), "forged", "{name}");
            for forged in ["", "ü", &signature[1..], &signature.to_uppercase()] {
                assert_eq!(says(&sent.body, forged), "forged", "{name}: {forged}");
            }
        }
    }
}

#[tokio::test]
async fn a_webhook_is_registered_replaced_and_deleted_and_its_deliveries_are_listed() {
    let server = LoopbackServer::start(|received| match received.target.starts_with("/bad") {
        true => Reply::Bytes(with_status("500 Oh", "", b"")),
        false => ok("", b""),
    });
    let owned = owned().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(WEBHOOK).await;
    assert!(page.words("section[aria-labelledby=receiver]").contains("No webhook is registered."));
    assert_eq!(page.words("section[aria-labelledby=deliveries] p"), "There are no deliveries yet.");
    for (fields, wrong, problem) in [
        (&[("url", "<script>"), ("signed", "no")][..], "url", ""),
        (&[("url", &server.url("/")), ("signed", "typed"), ("secret", "")], "secret", "It must be 1 to 1024 bytes"),
    ] {
        let page = Page::of(&registered(&owner, fields).await, 400);
        let told = page.words(&format!("#{wrong}-problem"));
        assert!(told.contains(problem) && !told.is_empty(), "{told}");
        assert_eq!(page.one("#url").attr("value"), Some(fields[0].1), "what was typed is kept");
        assert_eq!(page.one("input[name=signed][checked]").attr("value"), Some(fields[1].1));
    }
    let (url, token) = (server.url("/"), owner.token(WEBHOOK).await);
    let fields = [("url", url.as_str()), ("signed", "made"), ("secret", "")];
    takes_only_the_whole_form(&owner, REGISTER, &fields, &token).await;
    takes_only_the_whole_form(&owner, "/ui/1/ten/webhook/delete", &[], &token).await;
    Page::of(&registered(&owner, &[("url", &url), ("signed", "perhaps")]).await, 400);
    for (path, version) in [("/good", 2), ("/bad?<b>", 3)] {
        let answer = registered(&owner, &[("url", &server.url(path)), ("signed", "no")]).await;
        leads_to(&answer, "/ui/1/ten/webhook?done=register");
        owned.push(1, &format!("[{{\"n\":{version}}}]")).await;
        owned.service.services.deliveries.send_due().await.expect("sent");
    }
    let page = owner.page(&format!("{WEBHOOK}?done=register")).await;
    assert!(page.words("[role=status]").starts_with("The webhook was registered."));
    assert!(page.words("section[aria-labelledby=receiver]").contains("Deliveries are not signed."));
    let rows = page.all_words("tbody tr");
    assert!(
        rows[0].starts_with("Payload of version 3 just now status 500 ") && rows[0].contains(" ms http"),
        "{rows:?}"
    );
    assert!(rows[0].ends_with("/bad?…"), "what may be a key is not shown: {rows:?}");
    assert!(rows[1].starts_with("Payload of version 2 just now status 200 "), "{rows:?}");
    assert_eq!(page.select("td.failed").len(), 1);

    // Why nothing came is said as of a source.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|closed| closed.local_addr()).expect("a port");
    let url = format!("http://ada:secret@{closed}/");
    leads_to(&registered(&owner, &[("url", &url), ("signed", "no")]).await, "/ui/1/ten/webhook?done=register");
    owned.push(1, "[{\"n\":4}]").await;
    owned.service.services.deliveries.send_due().await.expect("sent");
    let page = owner.page(WEBHOOK).await;
    let row = page.words("tbody tr:first-child");
    assert!(
        row.contains(&format!("{closed} refused the connection")) && row.contains(&format!("http://…@{closed}/")),
        "{row}"
    );

    let confirm = owner.page(&page.link("Delete webhook…")).await;
    assert!(!confirm.words(".effects").contains("secret"), "{}", confirm.words(".effects"));
    leads_to(&owner.submit(&confirm, "/ui/1/ten/webhook/delete").await, "/ui/1/ten/webhook?done=delete");
    let page = owner.page(WEBHOOK).await;
    assert!(page.words("section[aria-labelledby=receiver]").contains("No webhook is registered."));
    assert_eq!(page.select("tbody tr").len(), 3, "what was delivered stays listed");
    Page::of(&owner.submit(&confirm, "/ui/1/ten/webhook/delete").await, 404);
}

#[tokio::test]
async fn only_the_owner_has_a_webhook_and_only_on_a_plan_that_has_them() {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({"private": true}), &["[{}]"]).await;
    let (_, token) = add_user(&owned.service, "free@strata.test", Plan::Free).await;
    let other = Browser::user(&owned.service, "free@strata.test").await;
    let (visitor, form) = (Browser::visitor(&owned.service), other.token("/").await);
    for page in [WEBHOOK, "/ui/1/ten/webhook/delete"] {
        visitor.error(page, 401).await;
        other.error(page, 404).await;
    }
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for action in ["register", "delete", "nothing"] {
        let uri = format!("{WEBHOOK}/{action}");
        let fields = [("token", form.as_str()), ("url", "http://a.test/")];
        Page::of(&other.post(&uri, &fields).await, 404);
        Page::of(&visitor.post(&uri, &fields).await, 401);
        Page::of(&owner.post(&uri, &fields).await, 403);
    }
    let made =
        strata_testing::owned::call(&owned.service, &token, "POST", "/dataset/create", "{\"name\":\"Free\"}").await;
    assert_eq!(made.status, 200);
    let page = other.page("/ui/2/free/webhook").await;
    assert!(page.words(".note").starts_with("Your plan (free) does not include webhooks, so strata sends nothing."));
    assert!(page.words("section[aria-labelledby=payload]").contains("The dataset has no versions yet."));
    let fields = [("token", form.as_str()), ("url", "http://127.0.0.1/"), ("signed", "no"), ("secret", "")];
    let refused = other.post("/ui/2/free/webhook/register", &fields).await;
    assert!(matches!(refused.status, 400 | 403), "{}", refused.status);
}

#[tokio::test]
async fn a_webhook_keeps_its_secret_and_what_may_be_a_key_in_its_url_is_not_shown() {
    let server = LoopbackServer::start(|_| ok("", b""));
    let owned = owned().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let url = server.url("/hook?key=k3y");
    let fields = [("url", url.as_str()), ("signed", "typed"), ("secret", "s3cret")];
    leads_to(&registered(&owner, &fields).await, "/ui/1/ten/webhook?done=register");
    let confirm = owner.page("/ui/1/ten/webhook/delete").await;
    assert!(confirm.words(".effects").contains("The secret will also be deleted."), "{}", confirm.words(".effects"));
    let page = owner.page(WEBHOOK).await;
    assert!(!page.text.contains("k3y") && !page.text.contains("s3cret"), "{}", page.text);
    assert!(page.words("section[aria-labelledby=receiver]").contains("/hook?… was registered on"));
    let field = page.one("#url");
    assert_eq!(
        (field.attr("value"), field.attr("placeholder"), field.attr("required")),
        (Some(""), Some("unchanged"), None)
    );
    assert_eq!(page.one("input[name=signed][checked]").attr("value"), Some("kept"));

    // As it is, then with another URL: the secret stays.
    let moved = server.url("/moved");
    for (typed, target, version) in [("", "/hook?key=k3y", 2), (moved.as_str(), "/moved", 3)] {
        let fields = [("url", typed), ("signed", "kept"), ("secret", "")];
        leads_to(&registered(&owner, &fields).await, "/ui/1/ten/webhook?done=register");
        owned.push(1, &format!("[{{\"n\":{version}}}]")).await;
        owned.service.services.deliveries.send_due().await.expect("sent");
        let sent = server.take_received().pop().expect("a delivery");
        assert_eq!(sent.target, target);
        assert!(sent.header("x-service-signature").is_some());
    }
    // There is none to keep.
    leads_to(
        &registered(&owner, &[("url", &moved), ("signed", "no"), ("secret", "")]).await,
        "/ui/1/ten/webhook?done=register",
    );
    let refused = Page::of(&registered(&owner, &[("url", &moved), ("signed", "kept"), ("secret", "")]).await, 400);
    assert_eq!(refused.words("#secret-problem"), "No secret is registered now; choose another signature option.");
    let token = owner.token(WEBHOOK).await;
    leads_to(&owner.post("/ui/1/ten/webhook/delete", &[("token", &token)]).await, "/ui/1/ten/webhook?done=delete");
    owner.error("/ui/1/ten/webhook/delete", 404).await;
}
