//! The parts of a source: its URL, the format of its entities, its compression, and its validators.
//!
//! Users give the format as a name (`--format`, the `format` key of a dataset), and records keep it. So formats and
//! compressions parse and print as one lower-case word each (docs/reference/import-semantics.md, Sources).

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

/// The URL of a source, by who answers it. Only its form is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceUrl {
    /// A server, by `http://` or `https://`. The rest of the text is not parsed.
    Http(String),
    /// An object of the configured store.
    Object(ObjectUrl),
}

/// The URL of an object of the configured store: `store:///incoming/a.json`, from the root of any store, or
/// `s3://bucket/key` if the store is S3.
///
/// - The key has at least one name; none is empty, `.` or `..` or holds a slash, a backslash or a control character,
///   once percent-decoded.
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

    /// The names of the key, decoded: from the bucket's root if there is a bucket, otherwise from the store's.
    pub fn key(&self) -> &[String] {
        &self.key
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSourceUrl {
    /// The scheme is missing, or sources do not have it.
    #[error("{0}; valid: an http, https, s3, or store URL")]
    Scheme(String),
    #[error("{0}; valid: URLs such as store:///incoming/a.json or s3://bucket/incoming/a.json")]
    Object(&'static str),
}

impl FromStr for SourceUrl {
    type Err = InvalidSourceUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(InvalidSourceUrl::Scheme("it is not a URL".to_owned()));
        };
        let object = |bucket: Option<&str>, key: &str| {
            let key = object_key(key).map_err(InvalidSourceUrl::Object)?;
            Ok(SourceUrl::Object(ObjectUrl { text: text.to_owned(), bucket: bucket.map(str::to_owned), key }))
        };
        match scheme.trim().to_ascii_lowercase().as_str() {
            "http" | "https" => Ok(SourceUrl::Http(text.to_owned())),
            "store" => match rest.strip_prefix("///") {
                Some(key) => object(None, key),
                None => Err(InvalidSourceUrl::Object("an object URL must start with store:///")),
            },
            "s3" => match rest.strip_prefix("//").and_then(|rest| rest.split_once('/')) {
                Some((bucket, key)) if !bucket.is_empty() => object(Some(bucket), key),
                _ => Err(InvalidSourceUrl::Object("an S3 URL must contain a bucket and a key")),
            },
            "file" => {
                Err(InvalidSourceUrl::Scheme("to import a local file, use the command line (strata import)".to_owned()))
            }
            scheme => Err(InvalidSourceUrl::Scheme(format!("the scheme {scheme:?} is not supported"))),
        }
    }
}

fn object_key(key: &str) -> Result<Vec<String>, &'static str> {
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

/// The validators of a document, as its publisher gave them. The next request asks with them whether the document has
/// changed. They are valid only for the same URL, decoded in the same way. So a change of a dataset's source, format or
/// records path clears them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    /// The URL that answered, after redirects, without credentials.
    pub url: String,
    /// Its `ETag`, with the quotes.
    pub etag: Option<String>,
    /// Its `Last-Modified`, as it was written.
    pub last_modified: Option<String>,
}

impl Validators {
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceFormat {
    /// One JSON array of objects, or an object that holds such an array at a given path.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated cells with a header line (RFC 4180).
    Csv,
    /// Tab-separated cells with a header line, quoted as in CSV.
    Tsv,
    /// Apache Parquet, one entity per row.
    Parquet,
}

impl SourceFormat {
    /// The format that a media type stands for; none for general ones such as `text/plain` and `application/gzip`.
    pub fn of_content_type(content_type: &str) -> Option<SourceFormat> {
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
pub enum Compression {
    /// The bytes are the format's own.
    None,
    /// One gzip member or several, one after the other (RFC 1952).
    Gzip,
    /// One Zstandard frame or several, one after the other (RFC 8878).
    Zstd,
}

impl Compression {
    /// The compression that a stream's first four bytes announce. No source format starts with a magic number.
    pub fn detect(first_bytes: &[u8]) -> Compression {
        match first_bytes {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            // A skippable frame, with which parallel compressors begin.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        })
    }
}

/// The delimiter that the name of a table's only column seems to contain, in words. The header was then written with
/// another delimiter than it was read with.
pub fn foreign_delimiter(name: &str) -> Option<&'static str> {
    [(';', "semicolons"), ('\t', "tabs"), ('|', "bars"), (',', "commas")]
        .into_iter()
        .find_map(|(delimiter, words)| name.contains(delimiter).then_some(words))
}
