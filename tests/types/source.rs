//! URLs of sources.

use strata_types::source::SourceUrl;

#[test]
fn source_url_determines_server_or_object() {
    let check = |text: &str, expected: &str| {
        let found = match text.parse::<SourceUrl>() {
            Ok(SourceUrl::Http(url)) => format!("http {url}"),
            Ok(SourceUrl::Object(url)) => format!("{:?} {:?}", url.bucket(), url.key()),
            Err(error) => format!("! {error}"),
        };
        assert!(found.starts_with(expected), "{text}: {found}");
    };
    check("https://a.test/x?y#z", "http https://a.test/x?y#z");
    check("HTTP://a.test", "http HTTP://a.test");
    check("store:///in/a.json", r#"None ["in", "a.json"]"#);
    check("s3://bucket/in/a%20b%3F.json", r#"Some("bucket") ["in", "a b?.json"]"#);
    check("store:///in/100%", r#"None ["in", "100%"]"#);
    check("", "! it is not a URL");
    check("/etc/passwd", "! it is not a URL");
    check("push", "! it is not a URL");
    check("file:///etc/passwd", "! to import a local file, use the command line (strata import)");
    check("ftp://a.test/x", "! the scheme \"ftp\" is not supported");
    check("s3://bucket", "! an S3 URL must contain a bucket and a key");
    check("s3:///key", "! an S3 URL must contain a bucket and a key");
    check("store://in/a.json", "! an object URL must start with store:///");
    check("store:in/a.json", "! an object URL must start with store:///");
    for key in ["", "/a", "in//a", "in/"] {
        check(&format!("store:///{key}"), "! an object key cannot contain empty segments");
    }
    for key in ["../a", "in/../versions/a", "in/.", "in/%2e%2E/versions/a", "in/%2E"] {
        check(&format!("store:///{key}"), "! an object key cannot contain the segments . or ..");
    }
    for key in ["in/..%2Fversions", "in/..%5cversions", "in\\a", "in/a%00", "in/a%0ab"] {
        check(&format!("store:///{key}"), "! a segment of an object key cannot contain a slash");
    }
    check("store:///in/a?b", "! an object URL cannot contain a query");
    check("store:///in/%ff", "! an object key must be valid UTF-8");
}
