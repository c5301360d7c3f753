//! Waiting for what takes a while.

/// Waits until a condition holds, which is asked every few milliseconds: long, since machines can be slow.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < until, "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
