//! Labels for the programs that start sessions.

use strata_service::SessionOrigin;

#[test]
fn browsers_are_named_with_their_systems() {
    for (program, named) in [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0", "Firefox on Linux"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 \
             Safari/537.36 Edg/131.0.0.0",
            "Edge on Windows",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
             Version/18.1 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
        ),
        (
            "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Mobile \
             Safari/537.36",
            "Chrome on Android",
        ),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.1 Safari/605.1.15", "Safari on macOS"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("python-requests/2.32 CPython/3.13 Linux/6.1", "python-requests/2.32"),
        ("Mozilla/5.0", "Mozilla/5.0"),
    ] {
        let origin = SessionOrigin::new(None, Some(program));
        assert_eq!(origin.browser_label().as_deref(), Some(named), "{program}");
    }
}
