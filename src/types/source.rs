//! Sources: URLs, formats, compression, and HTTP validators (docs/reference/import-semantics.md, Sources).

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

/// The URL of a source. Only its syntax is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceUrl {
    Http(String),
    Object(ObjectUrl),
}

/// An object in the configured store: `store:///incoming/a.json` relative to the root of any store, or
/// `s3://bucket/key` in an S3 store. The key has at least one segment. After percent-decoding, no segment is empty,
/// `.`, or `..`, or contains a slash, a backslash, or a control character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectUrl {
    text: String,
    bucket: Option<String>,
    key: Vec<String>,
}

impl ObjectUrl {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// Returns the decoded segments of the object's key, relative to the bucket, or to the store if there is no bucket.
    pub fn key(&self) -> &[String] {
        &self.key
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSourceUrl {
    #[error("{0}; valid: an http, https, s3, or store URL")]
    InvalidScheme(String),
    #[error("{0}; valid: URLs such as store:///incoming/a.json or s3://bucket/incoming/a.json")]
    InvalidObjectKey(&'static str),
}

impl FromStr for SourceUrl {
    type Err = InvalidSourceUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid_scheme = |reason: &str| Err(InvalidSourceUrl::InvalidScheme(reason.to_owned()));
        let Some((scheme, rest)) = text.split_once(':') else { return invalid_scheme("it is not a URL") };
        let object = |bucket: Option<&str>, key: &str| {
            let key = parse_object_key(key).map_err(InvalidSourceUrl::InvalidObjectKey)?;
            Ok(SourceUrl::Object(ObjectUrl { text: text.to_owned(), bucket: bucket.map(str::to_owned), key }))
        };
        match scheme.trim().to_ascii_lowercase().as_str() {
            "http" | "https" => Ok(SourceUrl::Http(text.to_owned())),
            "store" => match rest.strip_prefix("///") {
                Some(key) => object(None, key),
                None => Err(InvalidSourceUrl::InvalidObjectKey("an object URL must start with store:///")),
            },
            "s3" => match rest.strip_prefix("//").and_then(|rest| rest.split_once('/')) {
                Some((bucket, key)) if !bucket.is_empty() => object(Some(bucket), key),
                _ => Err(InvalidSourceUrl::InvalidObjectKey("an S3 URL must contain a bucket and a key")),
            },
            "file" => invalid_scheme("to import a local file, use the command line (strata import)"),
            scheme => invalid_scheme(&format!("the scheme {scheme:?} is not supported")),
        }
    }
}

fn parse_object_key(key: &str) -> Result<Vec<String>, &'static str> {
    if key.contains(['?', '#']) {
        return Err("an object URL cannot contain a query or a fragment: write ? as %3F and # as %23");
    }
    let decode = |name: &str| match percent_decode_str(name).decode_utf8() {
        Ok(name) if name.is_empty() => Err("an object key cannot contain empty segments"),
        Ok(name) if matches!(&*name, "." | "..") => Err("an object key cannot contain the segments . or .."),
        Ok(name) if name.contains(['/', '\\']) || name.contains(char::is_control) => {
            Err("a segment of an object key cannot contain a slash, backslash, or control character")
        }
        Ok(name) => Ok(name.into_owned()),
        Err(_) => Err("an object key must be valid UTF-8"),
    };
    key.split('/').map(decode).collect()
}

/// The HTTP validators of a source, for conditional requests. They are valid only for the same URL and decoding, so a
/// change of a dataset's source, format, or records path clears them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceValidators {
    /// The final URL of the source after redirects, without credentials.
    pub url: String,
    /// The `ETag` of the source, including its quotes.
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

impl SourceValidators {
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceFormat {
    /// A source with one JSON array of objects, or an object that contains such an array.
    Json,
    Jsonl,
    /// Comma-separated cells with a header line (RFC 4180).
    Csv,
    /// Tab-separated cells with a header line, quoted as in CSV.
    Tsv,
    Parquet,
}

impl SourceFormat {
    /// Returns the format of a media type; `None` for general types, such as `text/plain` or `application/gzip`.
    pub fn from_content_type(content_type: &str) -> Option<SourceFormat> {
        let essence = content_type.split(';').next().unwrap_or_default();
        match essence.trim().to_ascii_lowercase().as_str() {
            "application/json" | "text/json" => Some(SourceFormat::Json),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonl"
            | "application/jsonlines"
            | "application/x-jsonlines" => Some(SourceFormat::Jsonl),
            "text/csv" | "application/csv" => Some(SourceFormat::Csv),
            "text/tab-separated-values" => Some(SourceFormat::Tsv),
            "application/vnd.apache.parquet" | "application/x-parquet" | "application/parquet" => {
                Some(SourceFormat::Parquet)
            }
            structured if structured.ends_with("+json") => Some(SourceFormat::Json),
            _ => None,
        }
    }
}

names!(
    SourceFormat { Json = "json", Jsonl = "jsonl", Csv = "csv", Tsv = "tsv", Parquet = "parquet" },
    UnknownSourceFormat,
    "{0:?} is not a source format; valid: json, jsonl, csv, tsv, parquet"
);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceCompression {
    None,
    /// One or more gzip members (RFC 1952).
    Gzip,
    /// One or more Zstandard frames (RFC 8878).
    Zstd,
}

impl SourceCompression {
    /// Detects a source's compression by its first four bytes. No source format starts with one of the magic numbers.
    pub fn detect(head: &[u8]) -> SourceCompression {
        match head {
            [0x1f, 0x8b, ..] => SourceCompression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => SourceCompression::Zstd,
            // A skippable Zstandard frame, with which parallel compressors start.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => SourceCompression::Zstd,
            _ => SourceCompression::None,
        }
    }
}

impl fmt::Display for SourceCompression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SourceCompression::None => "none",
            SourceCompression::Gzip => "gzip",
            SourceCompression::Zstd => "zstd",
        })
    }
}

/// Returns the delimiter, in words, with which the header of a table with only one column was probably written.
pub fn guess_delimiter(header: &str) -> Option<&'static str> {
    [(';', "semicolons"), ('\t', "tabs"), ('|', "bars"), (',', "commas")]
        .into_iter()
        .find_map(|(delimiter, words)| header.contains(delimiter).then_some(words))
}
