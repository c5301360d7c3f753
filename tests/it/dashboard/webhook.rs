//! `…/webhook`: registration, deliveries, and signatures.

use std::process::Command;

use serde_json::json;
use strata_config::AllowedNetworks;
use strata_testing::html::{Page, words};
use strata_testing::loopback_server::{LoopbackServer, with_status};
use strata_testing::loopback_server::{Reply, ok};
use strata_testing::owned::{Owned, add_user};
use strata_types::user::UserPlan;

use super::{Browser, assert_redirect, assert_requires_exact_form, with_defaults};

const WEBHOOK: &str = "/ui/1/ten/webhook";
const REGISTER: &str = "/ui/1/ten/webhook/register";

async fn owned() -> Owned {
    let owned = Owned::start(|config| {
        config.net.allow = AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
    })
    .await;
    owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    owned
}

async fn register(owner: &Browser<'_>, fields: &[(&str, &str)]) -> strata_testing::Answer {
    let token = owner.token(WEBHOOK).await;
    owner.post(REGISTER, &with_defaults(fields, &[("secret", ""), ("token", token.as_str())])).await
}

#[tokio::test]
async fn verification_programs_check_signatures() {
    let server = LoopbackServer::start(|_| ok("", b""));
    let owned = owned().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let url = server.url("/hook");
    let typed = " ü \"$HOME` \\ '<b> ";
    let page = Page::parse(&register(&owner, &[("url", &url), ("signed", "made")]).await, 200);
    let generated = page.one("#made").attr("value").expect("a secret").to_owned();
    assert_eq!(generated.len(), 64);
    assert!(!owner.page(WEBHOOK).await.text.contains(&generated), "the secret is shown once");
    let mut bodies = Vec::new();
    for (secret, version) in [(generated.as_str(), 2), (typed, 3)] {
        if secret == typed {
            let answer = register(&owner, &[("url", &url), ("signed", "typed"), ("secret", typed)]).await;
            assert_redirect(&answer, "/ui/1/ten/webhook?done=register");
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
            let verify = |body: &[u8], signature: &str| {
                std::fs::write(directory.path().join("body.json"), body).expect("written");
                let mut run = Command::new(command);
                run.arg(file).current_dir(directory.path());
                let run = run.env("SIGNATURE", signature).env("WEBHOOK_SECRET", secret);
                let output = run.output().expect("it runs");
                assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            };
            assert_eq!(verify(&sent.body, signature), "genuine", "{name}");
            assert_eq!(verify(&sent.body[1..], signature), "forged", "{name}");
            for forged in ["", "ü", &signature[1..], &signature.to_uppercase()] {
                assert_eq!(verify(&sent.body, forged), "forged", "{name}: {forged}");
            }
        }
    }
}

#[tokio::test]
async fn webhook_is_registered_replaced_and_deleted() {
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
        let page = Page::parse(&register(&owner, fields).await, 400);
        let message = page.words(&format!("#{wrong}-problem"));
        assert!(message.contains(problem) && !message.is_empty(), "{message}");
        assert_eq!(page.one("#url").attr("value"), Some(fields[0].1), "the typed text is preserved");
        assert_eq!(page.one("input[name=signed][checked]").attr("value"), Some(fields[1].1));
    }
    let url = server.url("/");
    let token = owner.token(WEBHOOK).await;
    let fields = [("url", url.as_str()), ("signed", "made"), ("secret", "")];
    assert_requires_exact_form(&owner, REGISTER, &fields, &token).await;
    assert_requires_exact_form(&owner, "/ui/1/ten/webhook/delete", &[], &token).await;
    Page::parse(&register(&owner, &[("url", &url), ("signed", "perhaps")]).await, 400);
    for (path, version) in [("/good", 2), ("/bad?<b>", 3)] {
        let answer = register(&owner, &[("url", &server.url(path)), ("signed", "no")]).await;
        assert_redirect(&answer, "/ui/1/ten/webhook?done=register");
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
    assert!(rows[0].ends_with("/bad?…"), "the query can contain a key: {rows:?}");
    assert!(rows[1].starts_with("Payload of version 2 just now status 200 "), "{rows:?}");
    assert_eq!(page.select("td.failed").len(), 1);

    // A failed delivery has the same explanation as a failed fetch.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|closed| closed.local_addr()).expect("a port");
    let url = format!("http://ada:secret@{closed}/");
    assert_redirect(&register(&owner, &[("url", &url), ("signed", "no")]).await, "/ui/1/ten/webhook?done=register");
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
    assert_redirect(&owner.submit(&confirm, "/ui/1/ten/webhook/delete").await, "/ui/1/ten/webhook?done=delete");
    let page = owner.page(WEBHOOK).await;
    assert!(page.words("section[aria-labelledby=receiver]").contains("No webhook is registered."));
    assert_eq!(page.select("tbody tr").len(), 3, "deliveries stay listed");
    Page::parse(&owner.submit(&confirm, "/ui/1/ten/webhook/delete").await, 404);
}

#[tokio::test]
async fn webhook_requires_owner_and_plan() {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({"private": true}), &["[{}]"]).await;
    let (_, token) = add_user(&owned.service, "free@strata.test", UserPlan::Free).await;
    let other = Browser::user(&owned.service, "free@strata.test").await;
    let visitor = Browser::visitor(&owned.service);
    let form = other.token("/").await;
    for page in [WEBHOOK, "/ui/1/ten/webhook/delete"] {
        visitor.error(page, 401).await;
        other.error(page, 404).await;
    }
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for action in ["register", "delete", "nothing"] {
        let uri = format!("{WEBHOOK}/{action}");
        let fields = [("token", form.as_str()), ("url", "http://a.test/")];
        Page::parse(&other.post(&uri, &fields).await, 404);
        Page::parse(&visitor.post(&uri, &fields).await, 401);
        Page::parse(&owner.post(&uri, &fields).await, 403);
    }
    let created =
        strata_testing::owned::call(&owned.service, &token, "POST", "/dataset/create", "{\"name\":\"Free\"}").await;
    assert_eq!(created.status, 200);
    let page = other.page("/ui/2/free/webhook").await;
    assert!(page.words(".note").starts_with("Your plan (free) does not include webhooks, so strata sends nothing."));
    assert!(page.words("section[aria-labelledby=payload]").contains("The dataset has no versions yet."));
    let fields = [("token", form.as_str()), ("url", "http://127.0.0.1/"), ("signed", "no"), ("secret", "")];
    let refused = other.post("/ui/2/free/webhook/register", &fields).await;
    assert!(matches!(refused.status, 400 | 403), "{}", refused.status);
}

#[tokio::test]
async fn webhook_keeps_secret_and_hides_url_key() {
    let server = LoopbackServer::start(|_| ok("", b""));
    let owned = owned().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let url = server.url("/hook?key=k3y");
    let fields = [("url", url.as_str()), ("signed", "typed"), ("secret", "s3cret")];
    assert_redirect(&register(&owner, &fields).await, "/ui/1/ten/webhook?done=register");
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

    // Registering again without a URL and with another URL preserves the secret.
    let moved = server.url("/moved");
    for (typed, target, version) in [("", "/hook?key=k3y", 2), (moved.as_str(), "/moved", 3)] {
        let fields = [("url", typed), ("signed", "kept"), ("secret", "")];
        assert_redirect(&register(&owner, &fields).await, "/ui/1/ten/webhook?done=register");
        owned.push(1, &format!("[{{\"n\":{version}}}]")).await;
        owned.service.services.deliveries.send_due().await.expect("sent");
        let sent = server.take_received().pop().expect("a delivery");
        assert_eq!(sent.target, target);
        assert!(sent.header("x-service-signature").is_some());
    }
    // There is no registered secret.
    assert_redirect(
        &register(&owner, &[("url", &moved), ("signed", "no"), ("secret", "")]).await,
        "/ui/1/ten/webhook?done=register",
    );
    let refused = Page::parse(&register(&owner, &[("url", &moved), ("signed", "kept"), ("secret", "")]).await, 400);
    assert_eq!(refused.words("#secret-problem"), "No secret is registered now; choose another signature option.");
    let token = owner.token(WEBHOOK).await;
    assert_redirect(
        &owner.post("/ui/1/ten/webhook/delete", &[("token", &token)]).await,
        "/ui/1/ten/webhook?done=delete",
    );
    owner.error("/ui/1/ten/webhook/delete", 404).await;
}
