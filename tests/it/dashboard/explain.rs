//! `…/explain`: the stages and the plan of a read, for the owner.

use serde_json::json;
use strata_testing::PASSWORD;
use strata_testing::owned::{Owned, add_user, parsed};

use super::Browser;

#[tokio::test]
async fn only_owner_can_explain_read() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Ten", json!({}), &["[{\"n\":1},{\"n\":2}]", "[{\"n\":1},{\"n\":2},{\"n\":3}]"]).await;
    let owner = Browser::sign_in(&owned.service, &owned.user.email, PASSWORD).await;
    let page = owner.page(&format!("/ui/{id}/ten/v2/?filter_gt=n:1&sort=n:desc&view=json&columns=n")).await;
    let href = page.link("Explain this query");
    assert_eq!(href, format!("/ui/{id}/ten/v2/explain?filter_gt=n:1&sort=n:desc&limit=50"));
    let page = owner.page(&href).await;
    assert_eq!(page.words(".heading .facts"), "Version v2, active", "the version of the read");
    assert!(page.words(".explain > h2").ends_with(" ms for 2 entities"), "{}", page.words("h2"));
    let stages = page.all_words(".stages th[scope=row]");
    assert_eq!(stages.first().map(String::as_str), Some("open the file"));
    assert!(stages.contains(&"select entities".to_owned()), "{stages:?}");
    assert_eq!(page.select(".stages svg").len(), stages.len());
    let hints = page.all_words(".effects").concat();
    assert!(!hints.contains('`') && !hints.contains("docs/"), "{hints}");
    let text = page.words(".report");
    assert!(text.contains("filter_gt=n:1") && text.contains("Physical plan"), "{text}");
    // The API call returns the same result.
    let call = page.words(".call");
    let call = call.trim_start_matches(&format!("http://{}", super::HOST)).to_owned();
    let answer = owned.call("GET", &call, "").await;
    assert_eq!((answer.status, &parsed(&answer)["answer"]["total"]), (200, &json!(2)), "{call}");
    assert_eq!(page.link("Back to the entities"), format!("/ui/{id}/ten/v2/?filter_gt=n:1&sort=n:desc&limit=50"));

    // As in the API, only the owner can explain reads, regardless of whether the dataset is frozen.
    for (page, status) in [("v2/explain?limit=x", 400), ("v9/explain", 404), ("v1/alt/explain", 404)] {
        owner.error(&format!("/ui/{id}/ten/{page}"), status).await;
    }
    let visitor = Browser::visitor(&owned.service);
    visitor.error(&href, 401).await;
    assert!(!visitor.page(&format!("/ui/{id}/ten/v2/")).await.text.contains("Explain this query"));
    add_user(&owned.service, "other@strata.test", strata_types::user::UserPlan::Free).await;
    Browser::sign_in(&owned.service, "other@strata.test", PASSWORD).await.error(&href, 404).await;
}
