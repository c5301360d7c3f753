//! Waiting for conditions.

/// Waits until a condition is true, with a long timeout because machines can be slow.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < until, "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Returns true if a condition becomes true within a few seconds.
pub async fn comes_about(mut condition: impl AsyncFnMut() -> bool) -> bool {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    while !condition().await {
        if tokio::time::Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    true
}
