//! Diffs of random versions compared with the naive reference, and diffs whose files are deleted.

use futures::StreamExt;
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::json;
use strata_diff::{DiffLimits, DiffPage};
use strata_reference::diff::{self as reference, Bounds};
use strata_reference::value::Value as EntityTreeHtml;
use strata_service::{DiffFormat, DiffSides};
use strata_testing::owned::Owned;
use strata_testing::{Answer, diffs};
use strata_types::ids::DatasetId;
use strata_types::version::{VersionNumber, VersionSelector};

async fn request_diff(owned: &Owned, query: &str) -> Answer {
    owned.call("GET", &format!("/dataset/diff?{query}"), "").await
}

fn json_array(entities: &[EntityTreeHtml]) -> String {
    format!("[{}]", entities.iter().map(EntityTreeHtml::write).collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn diff_pages_equal_reference() {
    let owned = Owned::sqlite().await;
    let bounds = DiffLimits::default();
    let bounds = Bounds {
        candidate_pairs: bounds.max_candidate_pairs as usize,
        value_holders: bounds.max_value_holders as usize,
    };
    let mut runner = TestRunner::default();
    let cases = (diffs::plan(), vec(diffs::page(), 4));
    for number in 0..40 {
        let (plan, pages) = cases.new_tree(&mut runner).expect("a tree").current();
        let v1 = plan.v1();
        let v2 = plan.v2();
        let name = format!("Things {number}");
        let id = owned.dataset(&name, json!({}), &[&json_array(v1), &json_array(&v2)]).await;
        let expected = reference::records(v1, &v2, bounds);
        let count = |wanted: &str| expected.iter().filter(|(change_type, _)| *change_type == wanted).count();
        let head = format!(
            r#"{{"added":{},"subtracted":{},"modified":{},"total_v1":{},"total_v2":{},"records":["#,
            count("added"),
            count("subtracted"),
            count("modified"),
            v1.len(),
            v2.len()
        );
        for page in pages.iter().chain([&DiffPage::default()]) {
            let wanted = expected
                .iter()
                .filter(|(name, _)| page.change_type.is_none_or(|change_type| change_type.name() == *name))
                .skip(usize::try_from(page.offset).expect("64 bits"))
                .take(page.limit.map_or(usize::MAX, |limit| usize::try_from(limit).expect("64 bits")));
            let wanted: Vec<&str> = wanted.map(|(_, record)| record.as_str()).collect();
            let mut query = format!("dataset_id={id}&v1=1&v2=2&offset={}", page.offset);
            if let Some(change_type) = page.change_type {
                query.push_str(&format!("&change_type={}", change_type.name()));
            }
            if let Some(limit) = page.limit {
                query.push_str(&format!("&limit={limit}"));
            }
            request_diff(&owned, &query).await.is(&format!("{head}{}]}}", wanted.join(",")));
            let lines: String = wanted.iter().map(|record| format!("{record}\n")).collect();
            request_diff(&owned, &format!("{query}&format=jsonl")).await.is(&lines);
        }
    }
}

#[tokio::test]
async fn diff_of_unreadable_version_fails_or_is_truncated() {
    // Without a cache, so that each document page is read from the file.
    let owned = Owned::configured(|config| config.cache.memory_bytes = Some(0), None).await;
    let text = "x".repeat(2_000);
    let version = |salt: u64| {
        let entity = |number: u64| json!({"id": number, "salt": salt, "text": text}).to_string();
        format!("[{}]", (0..3_000).map(entity).collect::<Vec<_>>().join(","))
    };
    let id = owned.dataset("Things", json!({}), &[&version(1), &version(2)]).await;
    let (services, [v1, v2]) = (&owned.service.services, [1, 2].map(VersionNumber::new).map(VersionSelector::Number));
    let sides = DiffSides { v1, v2, alt: false };
    let diff = services.diffs.compare(Some(&owned.user), DatasetId::new(id), sides).await.expect("a diff");
    assert_eq!((diff.summary().modified, diff.change_count(None)), (3_000, 3_000));
    for form in [DiffFormat::Json, DiffFormat::Jsonl] {
        let mut parts = diff.stream_page(&DiffPage::default(), form);
        let mut bytes = 0;
        while let Some(part) = parts.next().await {
            let part = part.expect("a part");
            assert!(part.len() < 4 << 20, "{} bytes at once", part.len());
            bytes += part.len();
        }
        assert!(bytes > 12_000_000, "{bytes} bytes");
    }
    let mut parts = diff.stream_page(&DiffPage::default(), DiffFormat::Jsonl);
    parts.next().await.expect("a part").expect("bytes");
    for file in owned.service.version_files() {
        std::fs::remove_file(file).expect("removed");
    }
    let mut failed = false;
    while let Some(part) = parts.next().await {
        failed = part.is_err();
    }
    assert!(failed, "the truncated records look complete");
    let answer = request_diff(&owned, &format!("dataset_id={id}&v1=1&v2=2")).await;
    answer.is_error(500);
    assert!(answer.text().starts_with("Failed to read the dataset from storage."), "{}", answer.text());
}
