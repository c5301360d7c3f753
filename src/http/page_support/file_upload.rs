//! Forms with a file, which is streamed. Only the fields before the file are buffered.

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
use strata_types::limits::MAX_SMALL_FORM_BYTES;

use crate::display_text::quote_for_display;
use crate::error::{CallError, HttpError};
use crate::management::request_body;

const MAX_FIELD_BYTES: u64 = 4 << 10;

/// The maximum length of a multipart boundary (RFC 2046, section 5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

/// The size of the chunks that the multipart parser gets until the file begins.
const PARSER_CHUNK_BYTES: usize = 1 << 10;

pub struct FileUploadForm {
    multipart: Multipart<'static>,
    text_field_names: &'static [&'static str],
    file_field_name: &'static str,
    seen_field_names: Vec<String>,
    file_begun: Arc<AtomicBool>,
    read_timeout: Duration,
}

pub enum FormPart {
    /// The name and the value of a text field, and the rest of the form.
    Field(String, String, Box<FileUploadForm>),
    File(Box<UploadedFile>),
    End,
}

pub struct UploadedFile {
    pub name: Option<String>,
    field: Field<'static>,
    remaining_form: FileUploadForm,
}

impl FileUploadForm {
    /// Parses a form that consists of text fields and then one file. `fields` contains their names.
    ///
    /// # Errors
    /// Returns 415 for other bodies, 400 for a missing or invalid boundary, and 413 if `Content-Length` is too large.
    pub fn try_new(
        services: &Services,
        headers: &HeaderMap,
        body: Body,
        fields: (&'static [&'static str], &'static str),
    ) -> Result<FileUploadForm, HttpError> {
        let (text_field_names, file_field_name) = fields;
        request_body::check_content_length(services, &body, MAX_SMALL_FORM_BYTES as u64)?;
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = parse_boundary(content_type)?;
        let size_limit = SizeLimit::new();
        let limits = text_field_names.iter().fold(size_limit, |limits, name| limits.for_field(*name, MAX_FIELD_BYTES));
        let constraints = Constraints::new().size_limit(limits);
        let file_begun = Arc::new(AtomicBool::new(false));
        let chunks = FormBodyStream {
            body: body.into_data_stream(),
            unread: Bytes::new(),
            file_begun: file_begun.clone(),
            bytes_before_file: 0,
            yields_next: false,
        };
        Ok(FileUploadForm {
            multipart: Multipart::with_constraints(chunks, boundary, constraints),
            text_field_names,
            file_field_name,
            seen_field_names: Vec::new(),
            file_begun,
            read_timeout: Duration::from_secs(services.config.limits.body_timeout_s),
        })
    }

    /// Returns the next text field, the file, or the end of the form.
    ///
    /// # Errors
    /// Returns 400 for an unexpected field or an invalid form, 408 if the form arrives too slowly, and 413 if the
    /// fields before the file are too large.
    pub async fn next_part(mut self) -> Result<FormPart, HttpError> {
        let read_timeout = self.read_timeout;
        let next = async {
            let Some(field) = self.multipart.next_field().await? else { return Ok(Ok(FormPart::End)) };
            let name = field.name().unwrap_or_default().to_owned();
            if let Some(problem) = self.field_problem(&name) {
                return Ok(Err(problem));
            }
            if name != self.file_field_name {
                let value = field.text().await?;
                self.seen_field_names.push(name.clone());
                return Ok(Ok(FormPart::Field(name, value, Box::new(self))));
            }
            self.file_begun.store(true, Ordering::Relaxed);
            let name = field.file_name().filter(|name| !name.is_empty()).map(str::to_owned);
            Ok(Ok(FormPart::File(Box::new(UploadedFile { name, field, remaining_form: self }))))
        };
        let invalid = |problem: &dyn std::fmt::Display| HttpError::InvalidRequest {
            status: StatusCode::BAD_REQUEST,
            text: format!("The request does not match the form on this page: {problem}."),
        };
        let next = tokio::time::timeout(read_timeout, next).await;
        let next = next.map_err(|_| CallError::BodyTimeout { seconds: read_timeout.as_secs() })?;
        match next {
            Ok(part) => part.map_err(|problem| invalid(&problem)),
            Err(multer::Error::StreamReadFailed(cause)) if cause.is::<FormFieldsTooLarge>() => {
                let text = format!("The body is too large: {cause}.");
                Err(HttpError::InvalidRequest { status: StatusCode::PAYLOAD_TOO_LARGE, text })
            }
            Err(multer::Error::StreamReadFailed(_)) => Err(CallError::IncompleteBody.into()),
            Err(multer::Error::IncompleteStream) => {
                Err(invalid(&"the fields are not separated and terminated by the boundary in Content-Type"))
            }
            Err(error) => Err(invalid(&error)),
        }
    }

    /// Returns the reason why the form must not contain a field of this name, or `None` if the field is allowed.
    fn field_problem(&self, name: &str) -> Option<String> {
        if name != self.file_field_name && !self.text_field_names.contains(&name) {
            let known = [self.text_field_names, &[self.file_field_name]].concat().join(", ");
            return Some(format!("unknown field {}; valid: {known}", quote_for_display(name)));
        }
        let is_repeated = self.seen_field_names.iter().any(|seen| seen == name);
        is_repeated.then(|| format!("the field {} appears more than once", quote_for_display(name)))
    }

    async fn check_nothing_follows_file(&mut self) -> Result<(), BoxError> {
        // Fields after the file have the same size limit as fields before the file.
        self.file_begun.store(false, Ordering::Relaxed);
        let Some(field) = self.multipart.next_field().await.map_err(to_source_error)? else { return Ok(()) };
        let name = field.name().unwrap_or_default();
        let reason = match self.field_problem(name) {
            Some(problem) => problem,
            None if name == self.file_field_name => {
                format!("the field {} appears more than once: you can upload only one file", quote_for_display(name))
            }
            None => format!("the field {} follows the file; valid: before the file", quote_for_display(name)),
        };
        Err(SourceError::InvalidBody { reason }.into())
    }
}

impl UploadedFile {
    /// Streams the bytes of the uploaded file. Ends with an error if the form contains a field after the file.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
        let field = self.field;
        let mut rest = self.remaining_form;
        // The parser handles one field at a time: the file's `field` is dropped before `end` parses the rest.
        let end = stream::once(async move { rest.check_nothing_follows_file().await.map(|()| None) });
        field.map(|bytes| bytes.map(Some).map_err(to_source_error)).chain(end).try_filter_map(future::ok)
    }
}

/// Returns the boundary of a multipart form.
///
/// # Errors
/// Returns 415 for another content type, and 400 for a missing or invalid boundary.
fn parse_boundary(content_type: &str) -> Result<String, HttpError> {
    let invalid = |status, text: String| HttpError::InvalidRequest { status, text };
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("multipart/form-data") {
        let text = "The body must be a form with a file and Content-Type: multipart/form-data.";
        return Err(invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, text.to_owned()));
    }
    let boundary = multer::parse_boundary(content_type).ok();
    boundary.filter(|boundary| (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len())).ok_or_else(|| {
        let text = format!(
            "Content-Type has no usable boundary; valid: multipart/form-data; boundary=…, with a boundary of 1 to \
             {MAX_BOUNDARY_BYTES} characters."
        );
        invalid(StatusCode::BAD_REQUEST, text)
    })
}

fn to_source_error(error: multer::Error) -> BoxError {
    match error {
        multer::Error::StreamReadFailed(cause) if cause.is::<FormFieldsTooLarge>() => {
            SourceError::TooLarge { position: None, reason: cause.to_string() }.into()
        }
        other => other.into(),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the fields other than the file exceed {} bytes", MAX_SMALL_FORM_BYTES)]
struct FormFieldsTooLarge;

/// A request body with a limit for the bytes before the file. The parser buffers all available bytes before it parses
/// them, so it gets one chunk at a time, and only small chunks until the file begins.
struct FormBodyStream {
    body: BodyDataStream,
    unread: Bytes,
    file_begun: Arc<AtomicBool>,
    bytes_before_file: usize,
    yields_next: bool,
}

impl Stream for FormBodyStream {
    type Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.yields_next) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.unread.is_empty() {
            match self.body.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(chunk))) => self.unread = chunk,
                other => return other.map(|next| next.map(|chunk| chunk.map_err(Into::into))),
            }
        }
        self.yields_next = true;
        if self.file_begun.load(Ordering::Relaxed) {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.unread))));
        }
        let length = self.unread.len().min(PARSER_CHUNK_BYTES);
        self.bytes_before_file += length;
        if self.bytes_before_file > MAX_SMALL_FORM_BYTES {
            return Poll::Ready(Some(Err(FormFieldsTooLarge.into())));
        }
        Poll::Ready(Some(Ok(self.unread.split_to(length))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_boundary_checks_type_and_length() {
        let longest = "b".repeat(MAX_BOUNDARY_BYTES);
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
            match (parse_boundary(&content_type), expected) {
                (Ok(boundary), Ok(expected)) => assert_eq!(boundary, expected),
                (Err(HttpError::InvalidRequest { status, text }), Err(expected)) => {
                    assert_eq!(status.as_u16(), expected, "{content_type}: {text}");
                    assert_eq!(text.contains("boundary"), expected == 400, "{content_type}: {text}");
                }
                (result, _) => panic!("{content_type}: {result:?}"),
            }
        }
    }
}
