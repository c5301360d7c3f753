//! A form with a file, which is streamed: only the fields before the file are in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, BodyDataStream};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, future, stream};
use multer::{Constraints, Field, Multipart, SizeLimit};
use strata_ingest::SourceError;
use strata_service::Services;
use strata_types::limits::FORM_BYTES;

use crate::error::{CallError, HttpError};
use crate::management::body;
use crate::text::quoted;

const FIELD_BYTES: u64 = 4 << 10;

/// Most bytes of a boundary (RFC 2046, 5.1.1).
const BOUNDARY_BYTES: usize = 70;

/// The parser gets this many bytes at a time until the file begins.
const PIECE_BYTES: usize = 1 << 10;

pub struct Upload {
    form: Multipart<'static>,
    texts: &'static [&'static str],
    file: &'static str,
    seen: Vec<String>,
    file_begun: Arc<AtomicBool>,
    patience: Duration,
}

pub enum Part {
    /// A field, its value, and the rest of the form.
    Field(String, String, Box<Upload>),
    File(Box<File>),
    End,
}

pub struct File {
    pub name: Option<String>,
    field: Field<'static>,
    rest: Upload,
}

impl Upload {
    /// A form whose fields are these texts, followed by this file.
    ///
    /// # Errors
    /// 415 for another body, 400 for a missing or invalid boundary, 413 for a `Content-Length` that is too large.
    pub fn begin(
        services: &Services,
        headers: &HeaderMap,
        body: Body,
        fields: (&'static [&'static str], &'static str),
    ) -> Result<Upload, HttpError> {
        let (texts, file) = fields;
        body::check_announced(services, &body, FORM_BYTES as u64)?;
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = boundary_of(content_type)?;
        let limits = texts.iter().fold(SizeLimit::new(), |limits, text| limits.for_field(*text, FIELD_BYTES));
        let constraints = Constraints::new().size_limit(limits);
        let file_begun = Arc::new(AtomicBool::new(false));
        let chunks = Chunks {
            body: body.into_data_stream(),
            left: Bytes::new(),
            begun: file_begun.clone(),
            taken_bytes: 0,
            rests: false,
        };
        let patience = Duration::from_secs(services.config.limits.body_timeout_s);
        let form = Multipart::with_constraints(chunks, boundary, constraints);
        Ok(Upload { form, texts, file, seen: Vec::new(), file_begun, patience })
    }

    /// # Errors
    /// 400 for another form, 408 if it arrives too slowly, 413 if the fields other than the file are too large.
    pub async fn next(mut self) -> Result<Part, HttpError> {
        let patience = self.patience;
        let next = async {
            let Some(field) = self.form.next_field().await? else { return Ok(Ok(Part::End)) };
            let name = field.name().unwrap_or_default().to_owned();
            if let Some(problem) = self.problem_of(&name) {
                return Ok(Err(problem));
            }
            if name != self.file {
                let value = field.text().await?;
                self.seen.push(name.clone());
                return Ok(Ok(Part::Field(name, value, Box::new(self))));
            }
            self.file_begun.store(true, Ordering::Relaxed);
            let name = field.file_name().filter(|name| !name.is_empty()).map(str::to_owned);
            Ok(Ok(Part::File(Box::new(File { name, field, rest: self }))))
        };
        let invalid = |problem: &dyn std::fmt::Display| HttpError::Invalid {
            status: StatusCode::BAD_REQUEST,
            text: format!("The request does not match the form on this page: {problem}."),
        };
        let next = tokio::time::timeout(patience, next).await;
        let next = next.map_err(|_| CallError::TooSlow { seconds: patience.as_secs() })?;
        match next {
            Ok(part) => part.map_err(|problem| invalid(&problem)),
            Err(multer::Error::StreamReadFailed(cause)) if cause.is::<TooMuch>() => Err(HttpError::Invalid {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                text: format!("The body is too large: {cause}."),
            }),
            Err(multer::Error::StreamReadFailed(_)) => Err(CallError::Cut.into()),
            Err(multer::Error::IncompleteStream) => {
                Err(invalid(&"the fields are not separated and terminated by the boundary in Content-Type"))
            }
            Err(error) => Err(invalid(&error)),
        }
    }

    /// Why a field of this name cannot follow. No field is ignored silently.
    fn problem_of(&self, name: &str) -> Option<String> {
        if name != self.file && !self.texts.contains(&name) {
            let known = self.texts.iter().copied().chain([self.file]).collect::<Vec<_>>().join(", ");
            return Some(format!("unknown field {}; valid: {known}", quoted(name)));
        }
        self.seen.iter().any(|seen| seen == name).then(|| format!("the field {} appears more than once", quoted(name)))
    }

    async fn ended(&mut self) -> Result<(), BoxError> {
        // Fields after the file have the same limit.
        self.file_begun.store(false, Ordering::Relaxed);
        let Some(field) = self.form.next_field().await.map_err(source_error)? else { return Ok(()) };
        let name = field.name().unwrap_or_default();
        let reason = match self.problem_of(name) {
            Some(problem) => problem,
            None if name == self.file => {
                format!("the field {} appears more than once: you can upload only one file", quoted(name))
            }
            None => format!("the field {} follows the file; valid: before the file", quoted(name)),
        };
        Err(SourceError::BadBody { reason }.into())
    }
}

impl File {
    /// The bytes of the file, followed by an error if the form has another field.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
        let field = self.field;
        let mut rest = self.rest;
        // The parser reads one field at a time, and this one is dropped by then.
        let end = stream::once(async move { rest.ended().await.map(|()| None) });
        field.map(|bytes| bytes.map(Some).map_err(source_error)).chain(end).try_filter_map(future::ok)
    }
}

/// # Errors
/// 415 for another content type, 400 for a boundary that is missing or invalid.
fn boundary_of(content_type: &str) -> Result<String, HttpError> {
    let invalid = |status, text: String| HttpError::Invalid { status, text };
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("multipart/form-data") {
        let text = "The body must be a form with a file and Content-Type: multipart/form-data.";
        return Err(invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, text.to_owned()));
    }
    let boundary = multer::parse_boundary(content_type).ok();
    boundary.filter(|boundary| (1..=BOUNDARY_BYTES).contains(&boundary.len())).ok_or_else(|| {
        let text = format!(
            "Content-Type has no usable boundary; valid: multipart/form-data; boundary=…, with a boundary of 1 to \
             {BOUNDARY_BYTES} characters."
        );
        invalid(StatusCode::BAD_REQUEST, text)
    })
}

/// An error of the parser as an error of the source.
fn source_error(error: multer::Error) -> BoxError {
    match error {
        multer::Error::StreamReadFailed(cause) if cause.is::<TooMuch>() => {
            SourceError::TooLarge { place: None, reason: cause.to_string() }.into()
        }
        other => other.into(),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the fields other than the file exceed {} bytes", FORM_BYTES)]
struct TooMuch;

/// A body with a limit for the bytes before the file. The parser buffers all available bytes before it parses them, so
/// it gets one piece at a time, and small pieces until the file begins.
struct Chunks {
    body: BodyDataStream,
    left: Bytes,
    begun: Arc<AtomicBool>,
    /// Bytes before the file.
    taken_bytes: usize,
    rests: bool,
}

impl Stream for Chunks {
    type Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.rests) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.left.is_empty() {
            match self.body.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(chunk))) => self.left = chunk,
                other => return other.map(|next| next.map(|chunk| chunk.map_err(Into::into))),
            }
        }
        self.rests = true;
        if self.begun.load(Ordering::Relaxed) {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.left))));
        }
        let piece_bytes = self.left.len().min(PIECE_BYTES);
        self.taken_bytes += piece_bytes;
        if self.taken_bytes > FORM_BYTES {
            return Poll::Ready(Some(Err(TooMuch.into())));
        }
        let piece = self.left.split_to(piece_bytes);
        Poll::Ready(Some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_is_named_and_neither_empty_nor_too_long() {
        let longest = "b".repeat(BOUNDARY_BYTES);
        for (content_type, expected) in [
            ("multipart/form-data; boundary=XyZ".to_owned(), Ok("XyZ")),
            ("Multipart/Form-Data; boundary=\"Xy Z\"".to_owned(), Ok("Xy Z")),
            (format!("multipart/form-data; boundary={longest}"), Ok(&*longest)),
            (format!("multipart/form-data; boundary={longest}b"), Err(400)),
            ("multipart/form-data; boundary=".to_owned(), Err(400)),
            ("multipart/form-data; boundary=Xy@Z".to_owned(), Err(400)),
            ("multipart/form-data".to_owned(), Err(400)),
            ("multipart/mixed; boundary=XyZ".to_owned(), Err(415)),
            ("text/plain".to_owned(), Err(415)),
            (String::new(), Err(415)),
        ] {
            match (boundary_of(&content_type), expected) {
                (Ok(boundary), Ok(expected)) => assert_eq!(boundary, expected),
                (Err(HttpError::Invalid { status, text }), Err(expected)) => {
                    assert_eq!(status.as_u16(), expected, "{content_type}: {text}");
                    assert_eq!(text.contains("boundary"), expected == 400, "{content_type}: {text}");
                }
                (told, _) => panic!("{content_type}: {told:?}"),
            }
        }
    }
}
