//! `…/alternate`: editing the alternate of a version.

use serde_json::json;
use strata_testing::Answer;
use strata_testing::html::Page;
use strata_testing::owned::{Owned, add_user};
use strata_types::limits::{MAX_EDITOR_FORM_BYTES, MAX_EDITOR_TEXT_BYTES, MAX_PAGE_ENTITY_BYTES, MAX_REMOVED_ENTITIES};
use strata_types::user::UserPlan;

use super::{Browser, assert_redirect, assert_requires_exact_form, comparison_rows};

const ADA: &str = r#"{"name":"Ada","born":1.815e3,"odd":"\u0000","at":{"b":1,"a":[]}}"#;

/// Creates a dataset with a version of three entities and an empty one.
async fn ten(settings: serde_json::Value) -> (Owned, u64) {
    let owned = Owned::sqlite().await;
    let list = format!("[{ADA},{{\"n\":1}},{{\"n\":2}}]");
    let id = owned.dataset("Ten", settings, &[&list, "[]"]).await;
    (owned, id)
}

async fn owner(owned: &Owned) -> Browser<'_> {
    Browser::user(&owned.service, "ada@strata.test").await
}

/// Returns the fields of the form on a page, with some fields changed or added.
fn fields(page: &Page, changed: &[(&str, &str)]) -> Vec<(String, String)> {
    let form = page.one(".editor form[method=post], .narrow form[method=post]");
    let selector = scraper::Selector::parse("input[name], textarea[name]").expect("a selector");
    let mut fields: Vec<(String, String)> = Vec::new();
    for field in form.select(&selector) {
        let value = match field.value().name() {
            // The first line feed is not part of the text. Browsers send the others with a carriage return.
            "textarea" => {
                let text: String = field.text().collect();
                text.strip_prefix('\n').unwrap_or(&text).replace('\n', "\r\n")
            }
            _ => field.attr("value").unwrap_or_default().to_owned(),
        };
        fields.push((field.attr("name").expect("a name").to_owned(), value));
    }
    for (name, value) in changed {
        fields.retain(|(given, _)| given != name);
        fields.push(((*name).to_owned(), (*value).to_owned()));
    }
    fields
}

/// Returns the text in the editor.
fn text(page: &Page) -> String {
    fields(page, &[]).into_iter().find(|(name, _)| name == "text").expect("a text").1.replace("\r\n", "\n")
}

/// Sends the form on a page with some fields changed.
async fn send(browser: &Browser<'_>, page: &Page, changed: &[(&str, &str)]) -> Answer {
    let form = page.one(".editor form[method=post], .narrow form[method=post]");
    let action = form.attr("action").expect("an action").to_owned();
    let fields = fields(page, changed);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    browser.post(&action, &fields).await
}

async fn alternate(owned: &Owned, id: u64) -> Vec<String> {
    owned.lines(&format!("/api/{id}/ten/v1/alt/")).await.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn edited_entity_keeps_unchanged_fields() {
    let (owned, id) = ten(json!({"listed": true})).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1");
    let entity = owner.page(&format!("{base}/entity/0")).await;
    let edit = entity.link("Edit in the alternate");
    assert_eq!(edit, format!("{base}/alternate/edit?entity=0"));
    let page = owner.page(&edit).await;
    let message = "has no alternate yet. When you save, strata creates one: strata copies the version’s 3 entities";
    assert!(page.words(".editor > .quiet").contains(message));
    let before = text(&page);
    assert_eq!(
        before,
        "{\n  \"name\": \"Ada\",\n  \"born\": 1.815e3,\n  \"odd\": \"\\u0000\",\n  \"at\": {\n    \"b\": 1,\n    \"a\": []\n  }\n}"
    );

    // A preview does not save the edit.
    let after = before.replace("\"b\": 1", "\"b\": 1.0,\n\"c\": \"<script>alert(1)</script>\"");
    let preview = Page::parse(&send(&owner, &page, &[("text", &after), ("do", "preview")]).await, 200);
    assert_eq!(text(&preview), after);
    assert_eq!(comparison_rows(&preview), ["at.b changed 1 1.0", "at.c added missing \"<script>alert(1)</script>\""]);
    let call = preview.words(".panel pre");
    assert!(call.contains("\"edits\":[ {\"position\":0,\"set\":{\"name\":\"Ada\",\"born\":1.815e3"), "{call}");
    owned.service.get(&format!("/api/{id}/ten/v1/alt/")).await.is_error(404);

    let saved = send(&owner, &preview, &[("do", "save")]).await;
    assert_redirect(&saved, &format!("{base}/alternate?done=saved"));
    let done = owner.page(&format!("{base}/alternate?done=saved")).await;
    assert_eq!(done.words("[role=status]"), "Your changes were saved. The alternate now has 3 entities.");
    let lines = alternate(&owned, id).await;
    let expected = ADA.replace("\"b\":1", "\"b\":1.0,\"c\":\"<script>alert(1)</script>\"");
    assert_eq!(lines, [expected.as_str(), "{\"n\":1}", "{\"n\":2}"]);
    assert_eq!(owned.lines(&format!("/api/{id}/ten/v1/")).await.lines().next(), Some(ADA));
    for link in done.links().iter().filter(|link| link.starts_with("/ui/")) {
        assert_eq!(owner.get(link).await.status, 200, "{link}");
    }
    // The next edit changes the alternate, and the page notes that the entity differs from the version.
    let page = owner.page(&edit).await;
    assert_eq!(
        page.words(".note"),
        "The alternate was changed here: this entity differs from the one at the same position in version 1."
    );
    assert_eq!(page.link("Cancel"), format!("{base}/alt/entity/0"));
    assert!(text(&page).contains("\"b\": 1.0"));
    let same = Page::parse(&send(&owner, &page, &[("do", "save")]).await, 200);
    assert!(same.words("[role=alert]").starts_with("Nothing was saved"));
    let order = "{\"at\":{\"b\":1.0,\"c\":\"<script>alert(1)</script>\",\"a\":[]},\"name\":\"Ada\",\"born\":1.815e3,\"odd\":\"\\u0000\"}";
    let preview = Page::parse(&send(&owner, &page, &[("text", order), ("do", "preview")]).await, 200);
    assert_eq!(preview.words("#preview ~ .note"), "Only the field order has changed.");
}

/// Regression: the editor used the position in the version as the position in the alternate, so that it opened another
/// entity after insertions and removals.
#[tokio::test(flavor = "multi_thread")]
async fn version_entity_is_found_in_alternate() {
    let owned = Owned::sqlite().await;
    // The list is long enough for an edited file that refers to its base.
    let words = "a word of many ".repeat(60);
    let entities: Vec<String> = (0..20_000).map(|n| format!("{{\"n\":{n},\"words\":\"{words}\"}}")).collect();
    let id = owned.dataset("Ten", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    // The rows between the edits at 300 and 310 are copied to the edited file.
    let edits = r#"[{"position":3,"insert":[{"new":1},{"new":2}]},{"position":100,"remove":true},
        {"position":300,"remove":true},{"position":310,"set":{"n":"changed"}},
        {"position":12000,"set":{"n":"one"}},{"position":12001,"remove":true},
        {"position":12001,"insert":[{"n":"two"},{"n":"three"}]},
        {"position":19999,"remove":true}]"#;
    assert_eq!(owned.edit(id, &owned.etag(id, 1).await, edits).await.status, 200);
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1");
    let moved = |from: &str, to: &str| {
        format!("This entity is at position {from} in version 1, but at position {to} in the alternate.")
    };
    let changed = |at: &str| format!("this entity replaces the one at position {at} of version 1.");
    for (position, at, expected, note) in [
        (0, 0, "\"n\": 0,", None),
        (2, 2, "\"n\": 2,", None),
        (3, 5, "\"n\": 3,", Some(moved("3", "5"))),
        (101, 102, "\"n\": 101,", Some(moved("101", "102"))),
        (305, 305, "\"n\": 305,", None),
        (310, 310, "\"n\": \"changed\"", Some(changed("310"))),
        (11_999, 11_999, "\"n\": 11999,", None),
        (
            12_000,
            12_000,
            "\"n\": \"one\"",
            Some("the entity at position 12,000 of version 1 and some of its neighbors were changed".to_owned()),
        ),
        (12_002, 12_003, "\"n\": 12002,", Some(moved("12,002", "12,003"))),
    ] {
        let link = owner.page(&format!("{base}/entity/{position}")).await.link("Edit in the alternate");
        let page = owner.page(&link).await;
        assert!(text(&page).contains(expected), "{position}: {}", text(&page).get(..60).unwrap_or_default());
        assert_eq!(page.one("input[name=position]").attr("value"), Some(at.to_string().as_str()), "{position}");
        let notes = page.all_words(".note");
        match note {
            Some(note) => assert!(notes.iter().any(|message| message.contains(&note)), "{position}: {notes:?}"),
            None => assert!(!notes.iter().any(|message| message.contains("alternate")), "{position}: {notes:?}"),
        }
    }
    for position in [100, 300, 19_999] {
        let link = owner.page(&format!("{base}/entity/{position}")).await.link("Edit in the alternate");
        let message = owner.error(&link, 404).await.words("[role=alert]");
        let position = if position < 1_000 { position.to_string() } else { "19,999".to_owned() };
        assert!(
            message
                .contains(&format!("The entity at position {position} of version 1 was removed from the alternate.")),
            "{message}"
        );
    }
    // Pages of the alternate use positions in the alternate.
    let link = owner.page(&format!("{base}/alt/entity/5")).await.link("Edit in the alternate");
    assert_eq!(link, format!("{base}/alternate/edit?position=5"));
    assert!(text(&owner.page(&link).await).contains("\"n\": 3,"));
    for wrong in ["x", "-1", ""] {
        owner.error(&format!("{base}/alternate/edit?entity={wrong}"), 400).await;
    }
    owner.error(&format!("{base}/alternate/edit?entity=20000"), 404).await;
}

#[tokio::test]
async fn entities_are_added_and_removed() {
    let (owned, id) = ten(json!({})).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let hub = owner.page(&base).await;
    assert!(hub.words(".note").contains("Your first change creates one"));
    let add = owner.page(&hub.link("Add entities")).await;
    assert_eq!(add.one("#position").attr("value"), Some("3"));
    let list = "[{\"x\":1},\r\n {\"y\":1,\"y\":2}]";
    let preview = Page::parse(&send(&owner, &add, &[("text", list), ("do", "preview")]).await, 200);
    assert_eq!(comparison_rows(&preview), ["x added 1", "y added 2"]);
    assert_redirect(&send(&owner, &preview, &[("do", "save")]).await, &format!("{base}?done=saved"));
    // As in the API, the last of two equal keys counts.
    assert_eq!(alternate(&owned, id).await[3..], ["{\"x\":1}", "{\"y\":2}"]);
    let add = owner.page(&format!("{base}/add?position=0")).await;
    assert_redirect(
        &send(&owner, &add, &[("text", "{\"first\":true}"), ("do", "save")]).await,
        &format!("{base}?done=saved"),
    );
    assert_eq!(alternate(&owned, id).await[0], "{\"first\":true}");
    let moved = owner.page(&format!("{base}/edit?position=0")).await;
    let message = "Either this entity was changed in the alternate, or entities before it were added or removed.";
    assert!(moved.words(".note").ends_with(message), "{}", moved.words(".note"));
    let not_valid = "This is not a valid position";
    for (position, message) in [("7", "from 0 to 6"), ("x", not_valid), ("", not_valid)] {
        let add = owner.page(&format!("{base}/add")).await;
        let refused = send(&owner, &add, &[("text", "{\"kept\":1}"), ("position", position), ("do", "save")]).await;
        let refused = Page::parse(&refused, 400);
        assert!(refused.words("#position-problem").contains(message), "{position}");
        assert_eq!((text(&refused).as_str(), refused.one("#position").attr("value")), ("{\"kept\":1}", Some(position)));
    }

    let remove = owner.page(&owner.page(&base).await.link("Remove entities")).await;
    let checked = Page::parse(&send(&owner, &remove, &[("positions", "0, 4-5"), ("do", "preview")]).await, 200);
    assert_eq!(
        checked.all_words(".editor h4"),
        ["Entity at position 0", "Entity at position 4", "Entity at position 5"]
    );
    assert_eq!(comparison_rows(&checked)[0], "first removed true");
    // Only entities that the preview showed can be removed.
    let other = send(&owner, &checked, &[("positions", "1"), ("do", "save")]).await;
    assert!(Page::parse(&other, 200).words("[role=alert]").contains("Review the entities again"));
    assert_redirect(&send(&owner, &checked, &[("do", "save")]).await, &format!("{base}?done=saved"));
    assert_eq!(alternate(&owned, id).await, [ADA, "{\"n\":1}", "{\"n\":2}"]);
    for (positions, status, message) in [
        ("3", 404, "There is no position 3: this list has 3 entities, at positions 0 to 2."),
        ("x", 400, "not a position"),
        ("", 400, "No position"),
        ("0-99999", 400, "at most 1,000"),
    ] {
        let refused = send(&owner, &remove, &[("positions", positions), ("do", "preview")]).await;
        assert!(Page::parse(&refused, status).words("#problem").contains(message), "{positions}");
    }
    assert_eq!(MAX_REMOVED_ENTITIES, 1_000);
}

#[tokio::test]
async fn second_editor_is_warned_and_merges() {
    let (owned, id) = ten(json!({})).await;
    let first = owner(&owned).await;
    let second = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let edit = format!("{base}/edit?position=0");
    let one = first.page(&edit).await;
    let other = second.page(&edit).await;
    let theirs = text(&one).replace("Ada", "Ada L.").replace("1.815e3", "1816");
    assert_redirect(&send(&first, &one, &[("text", &theirs), ("do", "save")]).await, &format!("{base}?done=saved"));
    let mine = text(&other).replace("Ada", "Lady Ada").replace("\"b\": 1", "\"b\": 2");
    let result = Page::parse(&send(&second, &other, &[("text", &mine), ("do", "save")]).await, 409);
    assert!(result.words("[role=alert]").starts_with("Another user saved changes first"));
    assert_eq!(text(&result), mine, "the text stays");
    assert_eq!(
        comparison_rows(&result),
        [
            "name changed \"Ada\" \"Ada L.\"",
            "born changed 1.815e3 1816",
            "name changed \"Ada\" \"Lady Ada\"",
            "at.b changed 1 2"
        ]
    );
    assert_eq!(result.all_words(".panel code")[0], "name");
    let changed = "Another user has changed this entity, which is now at position 0.";
    assert!(result.all_words(".note").iter().any(|note| note.contains(changed)), "{:?}", result.all_words(".note"));
    assert!(alternate(&owned, id).await[0].contains("Ada L."), "the conflicting text is not saved");

    // The merge takes the second user's value where both have changed a field.
    let merged = Page::parse(&send(&second, &result, &[("do", "merge")]).await, 200);
    assert!(text(&merged).contains("\"name\": \"Lady Ada\",\n  \"born\": 1816,") && text(&merged).contains("\"b\": 2"));
    assert!(merged.all_words(".note").iter().any(|note| note.starts_with("In 1 field, your changes replace")));
    assert_eq!(comparison_rows(&merged).len(), 2);
    assert_redirect(&send(&second, &merged, &[("do", "save")]).await, &format!("{base}?done=saved"));
    assert!(alternate(&owned, id).await[0].starts_with("{\"name\":\"Lady Ada\",\"born\":1816,"));

    // The second user can also overwrite the entity after seeing the conflict.
    let one = first.page(&edit).await;
    let other = second.page(&edit).await;
    assert_redirect(
        &send(&first, &one, &[("text", "{\"name\":1}"), ("do", "save")]).await,
        &format!("{base}?done=saved"),
    );
    let result = Page::parse(&send(&second, &other, &[("text", "{\"name\":2}"), ("do", "preview")]).await, 409);
    assert_redirect(&send(&second, &result, &[("do", "save")]).await, &format!("{base}?done=saved"));
    assert_eq!(alternate(&owned, id).await[0], "{\"name\":2}");
}

/// Regression: the page did not distinguish changes from removals, and offered to overwrite the next entity.
#[tokio::test]
async fn removed_entity_can_be_added_again() {
    let (owned, id) = ten(json!({})).await;
    let first = owner(&owned).await;
    let second = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let list = r#"[{"n":0},{"n":1},{"n":2},{"n":3}]"#;
    for (at, edits, now, message, position) in [
        (1, r#"[{"position":1,"remove":true}]"#, "0 2 3", "removed", 1),
        (0, r#"[{"position":0,"remove":true}]"#, "1 2 3", "removed", 0),
        (3, r#"[{"position":3,"remove":true}]"#, "0 1 2", "removed", 3),
        // Insertions and removals elsewhere do not matter.
        (1, r#"[{"position":0,"insert":[{"n":8},{"n":9}]},{"position":1,"remove":true}]"#, "8 9 0 2 3", "removed", 3),
        (2, r#"[{"position":2,"remove":true},{"position":2,"insert":[{"n":7}]}]"#, "0 1 7 3", "changed", 2),
        (2, r#"[{"position":0,"insert":[{"n":9}]},{"position":2,"set":{"n":7}}]"#, "9 0 1 7 3", "changed", 3),
        (1, r#"[{"position":0,"set":{"n":7}},{"position":1,"remove":true}]"#, "7 2 3", "changed or removed the", 1),
    ] {
        assert_eq!(owned.save(id, 1, list).await.status, 200);
        let page = second.page(&format!("{base}/edit?position={at}")).await;
        assert_eq!(owned.edit(id, &owned.etag(id, 1).await, edits).await.status, 200, "{edits}");
        let mine = format!("{{\"n\":{at},\"mine\":true}}");
        for button in ["save", "preview", "merge"] {
            let answer = send(&second, &page, &[("text", &mine), ("do", button)]).await;
            let shown = Page::parse(&answer, 409);
            let words = format!("{} {}", shown.words("[role=alert]"), shown.all_words(".note").join(" "));
            assert!(words.contains(&format!("has {message}")), "{edits}: {words}");
            let place = if message == "removed" { "will be at position" } else { "is now at position" };
            assert!(words.contains(&format!("{place} {position}")) || message.contains("or"), "{edits}: {words}");
            assert_eq!(
                (text(&shown), comparison_rows(&shown).last().cloned()),
                (mine.clone(), Some("mine added missing true".to_owned()))
            );
            let removed = message == "removed";
            assert_eq!(shown.all_words("form button[value=save]").contains(&"Add entity again".to_owned()), removed);
            assert_eq!(shown.text.contains("Overwrite saved entity"), !removed, "{edits}");
            if !removed || button != "save" {
                continue;
            }
            // If the user discards the changes, the entity stays removed.
            let page = first.page(&shown.link("Discard my changes")).await;
            assert!(page.words("main").contains(&format!("The alternate has {}", now.split(' ').count())));
            let entities = |list: &[String]| list.join(" ").replace("{\"n\":", "").replace('}', "");
            assert_eq!(entities(&alternate(&owned, id).await), now);
            // If the user adds the entity again, it is at its previous position, and no other entity changes.
            assert_redirect(&send(&second, &shown, &[("do", "save")]).await, &format!("{base}?done=saved"));
            let mut list = alternate(&owned, id).await;
            assert_eq!(list.remove(position), mine, "{edits}");
            assert_eq!(entities(&list), now);
            break;
        }
    }
    // A form without neighbors cannot distinguish changes from removals.
    assert_eq!(owned.save(id, 1, list).await.status, 200);
    let page = second.page(&format!("{base}/edit?position=1")).await;
    assert_eq!(owned.save(id, 1, r#"[{"n":0},{"n":2}]"#).await.status, 200);
    let shown = Page::parse(&send(&second, &page, &[("text", "{}"), ("beside", "x"), ("do", "save")]).await, 409);
    assert!(shown.all_words(".note").iter().any(|note| note.contains("has changed or removed the entity")));
}

/// Regression: the typed text was lost if the session had ended.
#[tokio::test]
async fn error_page_contains_typed_text() {
    let (owned, id) = ten(json!({})).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let typed = "{\"name\": \"</textarea><b>\"}";
    for form in ["edit?position=0", "add"] {
        let page = owner.page(&format!("{base}/{form}")).await;
        let visitor = Browser::visitor(&owned.service);
        for (browser, changed, status) in [
            (&visitor, &[("text", typed), ("do", "save")][..], 401),
            (&owner, &[("text", typed), ("token", "of another session")], 403),
            (&owner, &[("text", typed), ("unknown", "")], 400),
        ] {
            let result = Page::parse(&send(browser, &page, changed).await, status);
            let shown: String = result.one("textarea#typed[readonly]").text().collect();
            assert_eq!(shown.strip_prefix('\n').unwrap_or(&shown), typed, "{form}: {status}");
        }
        // The page does not repeat the text of a form from another site.
        let action = format!("{base}/{}", form.split('?').next().unwrap_or(form));
        let foreign = [("origin", "https://evil.test"), ("sec-fetch-site", "cross-site")];
        let result = Page::parse(&owner.post_with(&action, &[("text", typed)], &foreign).await, 403);
        assert!(result.select("#typed").is_empty());
    }
    assert_eq!(owner.page(&base).await.select("#typed").len(), 0);
}

/// Regression: the second save was rejected although the first had changed another entity.
#[tokio::test]
async fn edits_of_different_entities_are_both_saved() {
    let (owned, id) = ten(json!({})).await;
    let first = owner(&owned).await;
    let second = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let one = first.page(&format!("{base}/edit?position=0")).await;
    let other = second.page(&format!("{base}/edit?position=1")).await;
    assert_redirect(&send(&first, &one, &[("text", "{\"n\":5}"), ("do", "save")]).await, &format!("{base}?done=saved"));
    assert_redirect(
        &send(&second, &other, &[("text", "{\"n\":6}"), ("do", "save")]).await,
        &format!("{base}?done=beside"),
    );
    assert_eq!(alternate(&owned, id).await, ["{\"n\":5}", "{\"n\":6}", "{\"n\":2}"]);
    let result = second.page(&format!("{base}?done=beside")).await;
    assert!(result.words("main").contains("another user’s changes to other entities were kept."));
    // The form no longer matches the entity.
    let result = Page::parse(&send(&second, &other, &[("text", "{\"n\":8}"), ("do", "save")]).await, 409);
    assert!(result.words("[role=alert]").starts_with("Another user saved changes first"));
    assert_eq!(alternate(&owned, id).await[1], "{\"n\":6}");
}

#[tokio::test]
async fn moved_entity_is_found_and_missing_is_reported() {
    let (owned, id) = ten(json!({})).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let edit = owner.page(&format!("{base}/edit?position=1")).await;
    let add = owner.page(&format!("{base}/add?position=0")).await;
    let late = owner.page(&format!("{base}/add")).await;
    let middle = owner.page(&format!("{base}/add?position=1")).await;
    let remove = owner.page(&format!("{base}/remove?positions=1")).await;
    assert_redirect(
        &send(&owner, &add, &[("text", "[{\"a\":1},{\"a\":2}]"), ("do", "save")]).await,
        &format!("{base}?done=saved"),
    );
    // The entity has not changed, so the save needs no confirmation.
    let moved = Page::parse(&send(&owner, &edit, &[("text", "{\"n\":7}"), ("do", "preview")]).await, 200);
    assert!(moved.words(".note").contains("has not changed. It is at position 3."), "{}", moved.words(".note"));
    assert_eq!(comparison_rows(&moved), ["n changed 1 7"]);
    let beside = format!("{base}?done=beside");
    assert_redirect(&send(&owner, &edit, &[("text", "{\"n\":7}"), ("do", "save")]).await, &beside);
    assert_eq!(alternate(&owned, id).await, ["{\"a\":1}", "{\"a\":2}", ADA, "{\"n\":7}", "{\"n\":2}"]);
    // Entities that were to be appended are appended.
    assert_redirect(&send(&owner, &late, &[("text", "{\"z\":1}"), ("do", "save")]).await, &beside);
    assert_eq!(alternate(&owned, id).await[5], "{\"z\":1}");
    let stale = Page::parse(&send(&owner, &middle, &[("text", "{\"z\":2}"), ("do", "save")]).await, 409);
    assert!(stale.words("[role=alert]").contains("had 3 entities and now has 6"));
    assert_eq!((text(&stale).as_str(), stale.one("#position").attr("value")), ("{\"z\":2}", Some("1")));
    let stale = Page::parse(&send(&owner, &remove, &[("do", "save")]).await, 409);
    assert!(stale.words("[role=alert]").contains("nothing was removed"));
    assert_eq!(comparison_rows(&stale), ["a removed 2"]);

    let edit = owner.page(&format!("{base}/edit?position=4")).await;
    assert_eq!(owned.save(id, 1, "[{\"only\":1}]").await.status, 200);
    let gone = Page::parse(&send(&owner, &edit, &[("text", "{\"n\":9}"), ("do", "save")]).await, 409);
    assert!(gone.words(".note").contains("no longer an entity at position 4"));
    assert_eq!((text(&gone).as_str(), gone.one("#position").attr("value")), ("{\"n\":9}", Some("1")));
    assert_redirect(&send(&owner, &gone, &[("do", "save")]).await, &format!("{base}?done=saved"));
    assert_eq!(alternate(&owned, id).await, ["{\"only\":1}", "{\"n\":9}"]);
}

#[tokio::test]
async fn json_error_has_line_and_keeps_text() {
    let (owned, id) = ten(json!({})).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let edit = owner.page(&format!("{base}/edit?position=0")).await;
    let add = owner.page(&format!("{base}/add")).await;
    for (typed, message) in [
        ("{\r\n  \"a\": 1,\r\n  \"b\": oops\r\n}", "Line 3, column 8: expected a value, found 'o'"),
        ("{\"a\":\"</textarea><script>alert(1)</script>\"", "Line 1, column 44"),
        ("[1,2]", "must be a JSON object"),
        ("", "Line 1, column 1"),
        ("{\"a\":01}", "Line 1, column 7: invalid JSON number"),
        ("{\"a\":\"\\ud800\"}", "unpaired surrogate"),
    ] {
        for (page, do_) in [(&edit, "preview"), (&edit, "save"), (&add, "save")] {
            let refused = Page::parse(&send(&owner, page, &[("text", typed), ("do", do_)]).await, 400);
            let problem = refused.words("#problem");
            assert!(problem.contains(message), "{typed}: {problem}");
            assert_eq!(refused.one("textarea").attr("aria-describedby"), Some("problem"));
            assert!(refused.select("[data-json]").is_empty(), "the script would repeat the error");
            assert_eq!(text(&refused).replace('\r', ""), typed.replace('\r', ""));
        }
    }
    for (typed, message) in [
        ("[\n{\"a\":x}]", "Line 2, column 6: expected a value, found 'x'."),
        ("[{}], \"b\": {}", "Line 1, column 5: text after the end of the array."),
        ("[{}] }", "Line 1, column 5: text after the end of the array."),
        ("[{},7]", "Entity 2 of the array: an entity must be a JSON object"),
        ("[{}", "Line 1, column 4: "),
        (" [] ", "at least one entity"),
    ] {
        let refused = Page::parse(&send(&owner, &add, &[("text", typed), ("do", "save")]).await, 400);
        assert!(refused.words("#problem").contains(message.trim_end()), "{typed}: {}", refused.words("#problem"));
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(128), "]".repeat(128));
    let refused = Page::parse(&send(&owner, &edit, &[("text", &deep), ("do", "save")]).await, 400);
    assert!(refused.words("#problem").contains("nested deeper than 128 levels"));
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_EDITOR_TEXT_BYTES));
    let refused = Page::parse(&send(&owner, &edit, &[("text", &long), ("do", "save")]).await, 413);
    assert!(refused.words("#problem").contains("the editor accepts at most 6,291,456"));
    assert_eq!(text(&refused), long);
    owned.service.get(&format!("/api/{id}/ten/v1/alt/")).await.is_error(404);
    // Browsers stay on this path if the response to the form was a page.
    let again = owner.get(&format!("{base}/edit")).await;
    assert_eq!((again.status, again.header("location")), (303, Some(base.as_str())));
    for (uri, status) in [
        (format!("{base}/edit?position=x"), 400),
        (format!("{base}/edit?position=3"), 404),
        (format!("{base}/edit?position=99999999999999999999"), 404),
        (format!("{base}/delete"), 404),
        (format!("{base}/other"), 404),
        (format!("/ui/{id}/ten/v9/alternate"), 404),
        (format!("/ui/{id}/ten/v2/alternate/edit?position=0"), 404),
    ] {
        owner.error(&uri, status).await;
    }
}

/// Regression: the editor accepted only 256 KiB, and a form above 2 MiB returned an error without the text.
#[tokio::test(flavor = "multi_thread")]
async fn every_shown_entity_can_be_edited() {
    let owned = Owned::sqlite().await;
    let before = "{\"kept\":1.50,\"text\":\"";
    // A form needs three bytes for each byte of these characters.
    let largest = format!("{before}{}\"}}", "é".repeat((MAX_PAGE_ENTITY_BYTES - before.len() - 3) / 2));
    let id = owned.dataset("Ten", json!({}), &[&format!("[{largest},{{\"n\":1}}]")]).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1");
    owner.page(&format!("{base}/entity/0")).await.one(".entity");
    let page = owner.page(&format!("{base}/alternate/edit?position=0")).await;
    assert_eq!(page.words("#text-note"), "At most 6,291,456 bytes.");
    let field = page.one("textarea[data-json]");
    assert_eq!(field.attr("data-bytes"), Some("6291456"));
    assert_eq!(field.attr("aria-describedby"), Some("text-note"));
    let changed = text(&page).replace("1.50", "2.50");
    let preview = Page::parse(&send(&owner, &page, &[("text", &changed), ("do", "preview")]).await, 200);
    assert_eq!(comparison_rows(&preview), ["kept changed 1.50 2.50"]);
    assert_redirect(&send(&owner, &preview, &[("do", "save")]).await, &format!("{base}/alternate?done=saved"));
    assert!(alternate(&owned, id).await[0] == largest.replace("1.50", "2.50"));

    // A form above the limit is not read, but the error page tells how to recover the text.
    let page = owner.page(&format!("{base}/alternate/edit?position=1")).await;
    let long = "x".repeat(MAX_EDITOR_FORM_BYTES);
    let message =
        Page::parse(&send(&owner, &page, &[("text", &long), ("do", "save")]).await, 413).words("[role=alert]");
    for part in ["longer than 38,797,312 bytes", "To recover your text, go back in your browser", "up to 6,291,456"] {
        assert!(message.contains(part), "{message}");
    }
    // Browsers send a line break as two bytes, but it counts as one.
    let lines = format!("{{{}}}", "\n".repeat(MAX_EDITOR_TEXT_BYTES - 2));
    let sent = lines.replace('\n', "\r\n");
    let preview = Page::parse(&send(&owner, &page, &[("text", &sent), ("do", "preview")]).await, 200);
    assert_eq!(comparison_rows(&preview), ["n removed 1 missing"]);
}

#[tokio::test]
async fn hostile_entity_is_edited_unchanged() {
    let owned = Owned::sqlite().await;
    let odd = "{\"</textarea><script>alert(1)</script>\":\"\u{202e}x\u{200b}\u{85}\u{fffe}\",\"z\":\"👩\u{200d}👧\"}";
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(10_000_000));
    let id = owned.dataset("Ten", json!({}), &[&format!("[{odd},{large}]")]).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let page = owner.page(&format!("{base}/edit?position=0")).await;
    assert!(text(&page).contains("\\u202ex\\u200b\\u0085\\ufffe") && !page.text.contains('\u{202e}'));
    let added = text(&page).replacen('{', "{\"new\": 1,", 1);
    let preview = Page::parse(&send(&owner, &page, &[("text", &added), ("do", "preview")]).await, 200);
    assert_redirect(&send(&owner, &preview, &[("do", "save")]).await, &format!("{base}?done=saved"));
    assert_eq!(alternate(&owned, id).await[0], odd.replacen('{', "{\"new\":1,", 1));
    // An entity that is too large for the editor can still be removed.
    let page = owner.page(&format!("{base}/edit?position=1")).await;
    assert!(page.words(".note").contains("too large for the editor") && page.select("textarea").is_empty());
    let remove = owner.page(&format!("{base}/remove?position=1")).await;
    assert!(remove.words(".editor .note").contains("too large to show on this page"));
    assert_redirect(&send(&owner, &remove, &[("do", "save")]).await, &format!("{base}?done=saved"));
    assert_eq!(alternate(&owned, id).await.len(), 1);
}

#[tokio::test]
async fn alternate_is_deleted_after_confirmation() {
    let (owned, id) = ten(json!({})).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    assert_eq!(owned.save(id, 1, "[{\"a\":1}]").await.status, 200);
    let confirm = owner.page(&owner.page(&base).await.link("Delete alternate…")).await;
    let effects = confirm.words(".effects");
    for part in ["its 1 entity will be deleted", "This cannot be undone", "will return 404", "Version 1 itself"] {
        assert!(effects.contains(part), "{effects}");
    }
    assert_eq!(owned.save(id, 1, "[{\"a\":1},{\"a\":2}]").await.status, 200);
    let result = Page::parse(&send(&owner, &confirm, &[]).await, 409);
    assert!(result.words(".effects").contains("changed in the meantime, so it was not deleted."));
    assert_redirect(&send(&owner, &result, &[]).await, &format!("{base}?done=deleted"));
    owned.service.get(&format!("/api/{id}/ten/v1/alt/")).await.is_error(404);
    assert!(owner.page(&format!("{base}?done=deleted")).await.words("[role=status]").contains("was deleted"));
    Page::parse(&send(&owner, &result, &[]).await, 404);
}

#[tokio::test]
async fn only_pages_of_owner_can_edit() {
    for settings in [json!({"listed": true}), json!({"private": true})] {
        let is_public = settings["listed"] == json!(true);
        let (owned, id) = ten(settings).await;
        let owner = owner(&owned).await;
        assert_eq!(owned.save(id, 1, "[{\"kept\":1}]").await.status, 200);
        add_user(&owned.service, "other@strata.test", UserPlan::Free).await;
        let other = Browser::user(&owned.service, "other@strata.test").await;
        let visitor = Browser::visitor(&owned.service);
        let token = other.token("/").await;
        let base = format!("/ui/{id}/ten/v1/alternate");
        let etag = strata_etag(&owner, &base).await;
        let form = [("etag", etag.as_str()), ("position", "0"), ("text", "{\"x\":1}"), ("length", "1"), ("do", "save")];
        let form = [&form[..], &[("positions", "0"), ("checked", "0"), ("base", "{}")]].concat();
        for action in ["", "/edit", "/add", "/remove", "/delete"] {
            other.error(&format!("{base}{action}?position=0"), 404).await;
            visitor.error(&format!("{base}{action}?position=0"), 401).await;
            if action.is_empty() {
                continue;
            }
            let uri = format!("{base}{action}");
            Page::parse(&other.post(&uri, &[&form[..], &[("token", &token)]].concat()).await, 404);
            Page::parse(&visitor.post(&uri, &[&form[..], &[("token", &token)]].concat()).await, 401);
            // The owner's session without a form token is not sufficient.
            Page::parse(&owner.post(&uri, &form).await, 403);
            Page::parse(&owner.post(&uri, &[&form[..], &[("token", &token)]].concat()).await, 403);
            let own = owner.token(&base).await;
            let foreign = [("origin", "https://evil.test"), ("sec-fetch-site", "cross-site")];
            Page::parse(&owner.post_with(&uri, &[&form[..], &[("token", &own)]].concat(), &foreign).await, 403);
        }
        if is_public {
            assert_eq!(alternate(&owned, id).await, ["{\"kept\":1}"]);
            // The pages for visitors have no links to the alternate's forms.
            let links = visitor.page(&format!("/ui/{id}/ten/v1/entity/0")).await.links();
            let versions = visitor.page(&format!("/ui/{id}/ten/versions")).await.links();
            assert!(!links.iter().chain(&versions).any(|link| link.contains("alternate") || link.contains("/diff")));
        }
    }
}

#[tokio::test]
async fn edit_forms_require_all_fields() {
    let (owned, id) = ten(json!({})).await;
    let owner = owner(&owned).await;
    assert_eq!(owned.save(id, 1, "[{\"kept\":1}]").await.status, 200);
    let base = format!("/ui/{id}/ten/v1/alternate");
    let etag = strata_etag(&owner, &base).await;
    let token = owner.token(&base).await;
    let fields_of_one = [("etag", etag.as_str()), ("length", "1"), ("position", "0"), ("text", "{}")];
    for (form, fields) in [
        ("edit", &[&fields_of_one[..], &[("base", "{\"kept\":1}")]].concat()[..]),
        ("add", &fields_of_one),
        ("remove", &[("positions", "0")]),
        ("delete", &fields_of_one[..1]),
    ] {
        assert_requires_exact_form(&owner, &format!("{base}/{form}"), fields, &token).await;
        // Invalid buttons and numbers.
        let wrong = [
            ("do", "sav", "the field \"do\" has the invalid value \"sav\"; valid: preview, save"),
            ("length", "x", "the field \"length\" must be a whole number, but is \"x\""),
            ("length", "-1", "the field \"length\" must be a whole number, but is \"-1\""),
        ];
        for (name, value, problem) in wrong.into_iter().filter(|_| form != "delete") {
            if name == "length" && form == "remove" {
                continue;
            }
            let sent: Vec<_> = fields.iter().copied().filter(|(given, _)| *given != name).collect();
            let sent = [&sent[..], &[(name, value), ("token", token.as_str())]].concat();
            let message = Page::parse(&owner.post(&format!("{base}/{form}"), &sent).await, 400).words("[role=alert]");
            assert!(message.contains(problem), "{form}: {message}");
        }
    }
    assert_eq!(alternate(&owned, id).await, ["{\"kept\":1}"]);
}

/// Regression: invalid UTF-8 was saved as U+FFFD.
#[tokio::test]
async fn form_with_invalid_utf8_is_rejected() {
    let (owned, id) = ten(json!({})).await;
    let owner = owner(&owned).await;
    assert_eq!(owned.save(id, 1, "[{\"kept\":1}]").await.status, 200);
    let uri = format!("/ui/{id}/ten/v1/alternate/add");
    let page = owner.page(&uri).await;
    let fields = fields(&page, &[("do", "save")]);
    let fields = fields.iter().filter(|(name, _)| name != "text");
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    for text in [&b"%7B%22a%22%3A%22%ED%A0%80%22%7D"[..], b"{\"a\":\"\xff\"}"] {
        let sent = [form.as_bytes(), b"&text=", text].concat();
        let result = Page::parse(&owner.post_form(&uri, sent, &[]).await, 400);
        assert!(result.words("[role=alert]").contains("form field \"text\" is not UTF-8"), "{}", result.text);
    }
    assert_eq!(alternate(&owned, id).await, ["{\"kept\":1}"]);
}

/// Returns the ETag in the forms of an alternate.
async fn strata_etag(owner: &Browser<'_>, base: &str) -> String {
    let page = owner.page(&format!("{base}/add")).await;
    page.one("input[name=etag]").attr("value").expect("an etag").to_owned()
}

#[tokio::test]
async fn alternate_of_frozen_dataset_can_be_edited() {
    let (owned, id) = ten(json!({})).await;
    let body = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    assert_eq!(owned.call("POST", "/dataset/rollback", &body).await.status, 200);
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let page = owner.page(&format!("{base}/edit?position=1")).await;
    assert_redirect(
        &send(&owner, &page, &[("text", "{\"n\":7}"), ("do", "save")]).await,
        &format!("{base}?done=saved"),
    );
    let hub = owner.page(&base).await;
    assert!(hub.words(".editor .facts").contains("The alternate has 3 entities"));
    let diff = owner.page(&hub.link("View changes")).await;
    assert_eq!(comparison_rows(&diff), ["n removed 1", "n added 7"]);
}

#[tokio::test]
async fn late_position_in_large_version_is_edited() {
    let owned = Owned::sqlite().await;
    let entities: Vec<String> = (0..60_000).map(|n| format!("{{\"n\":{n}}}")).collect();
    let id = owned.dataset("Ten", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    let owner = owner(&owned).await;
    let base = format!("/ui/{id}/ten/v1/alternate");
    let page = owner.page(&format!("{base}/edit?position=59998")).await;
    assert_eq!(text(&page), "{\n  \"n\": 59998\n}");
    assert_redirect(
        &send(&owner, &page, &[("text", "{\"n\":-1}"), ("do", "save")]).await,
        &format!("{base}?done=saved"),
    );
    let lines = alternate(&owned, id).await;
    assert_eq!((lines.len(), lines[59_998].as_str(), lines[59_999].as_str()), (60_000, "{\"n\":-1}", "{\"n\":59999}"));
}
