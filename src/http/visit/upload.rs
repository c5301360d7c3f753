//! A form with a file, which passes on as a stream: only what stands before the file is held.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use multer::{Constraints, Field, Multipart, SizeLimit};

use crate::http::error::{CallError, HttpError};
use crate::http::management::body;
use crate::model::limits::FORM_BYTES;
use crate::service::App;

/// Bytes of a field that is no file.
const FIELD_BYTES: u64 = 4 << 10;

/// Bytes that the parser gets at a time before the file begins.
const PIECE_BYTES: usize = 1 << 10;

/// The fields of a form that come before its file.
pub(crate) struct Upload {
    form: Multipart<'static>,
    file: &'static str,
    file_begun: Arc<AtomicBool>,
    patience: Duration,
}

/// What comes next in a form.
pub(crate) enum Part {
    /// A field and its value.
    Field(String, String),
    /// The file.
    File(Box<File>),
}

/// A file as it comes.
pub(crate) struct File {
    /// Its name, if it has one.
    pub(crate) name: Option<String>,
    field: Field<'static>,
}

impl Upload {
    /// A form whose fields are these texts and then this file.
    ///
    /// # Errors
    /// 415 for a body that is none, 413 for one that is announced as too long.
    pub(crate) fn begin(
        app: &App,
        headers: &HeaderMap,
        body: Body,
        (texts, file): (&[&'static str], &'static str),
    ) -> Result<Upload, HttpError> {
        body::check_announced(app, &body)?;
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = multer::parse_boundary(content_type).map_err(|_| HttpError::Invalid {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            text: "The body must be a form with a file, with Content-Type: multipart/form-data.".to_owned(),
        })?;
        let limits = texts.iter().fold(SizeLimit::new(), |limits, text| limits.for_field(*text, FIELD_BYTES));
        let allowed = texts.iter().copied().chain([file]).collect();
        let constraints = Constraints::new().allowed_fields(allowed).size_limit(limits);
        let file_begun = Arc::new(AtomicBool::new(false));
        let chunks = Chunks {
            body: body.into_data_stream(),
            left: Bytes::new(),
            begun: file_begun.clone(),
            taken_bytes: 0,
            rests: false,
        };
        let patience = Duration::from_secs(app.config().limits.body_timeout_s);
        Ok(Upload { form: Multipart::with_constraints(chunks, boundary, constraints), file, file_begun, patience })
    }

    /// The next part; `None` at the end.
    ///
    /// # Errors
    /// 400 for what is no such form, 408 for one that comes too slowly.
    pub(crate) async fn next(&mut self) -> Result<Option<Part>, HttpError> {
        let next = async {
            let Some(field) = self.form.next_field().await? else { return Ok(None) };
            let name = field.name().unwrap_or_default().to_owned();
            if name != self.file {
                return Ok(Some(Part::Field(name, field.text().await?)));
            }
            self.file_begun.store(true, Ordering::Relaxed);
            let name = field.file_name().filter(|name| !name.is_empty()).map(str::to_owned);
            Ok(Some(Part::File(Box::new(File { name, field }))))
        };
        let next = tokio::time::timeout(self.patience, next).await;
        let next = next.map_err(|_| CallError::TooSlow { seconds: self.patience.as_secs() })?;
        next.map_err(|error: multer::Error| match error {
            multer::Error::StreamReadFailed(_) | multer::Error::IncompleteStream => CallError::Cut.into(),
            error => {
                let text = format!("The body is not the form of this page: {error}.");
                HttpError::Invalid { status: StatusCode::BAD_REQUEST, text }
            }
        })
    }
}

impl File {
    /// Its bytes.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Bytes, multer::Error>> + Send + 'static {
        self.field
    }
}

/// A body, of which little may come before the file. The parser takes all that is there before it looks at any of it,
/// so it gets one piece at a time, and small ones until the file begins.
struct Chunks {
    body: BodyDataStream,
    /// What has come and was not taken.
    left: Bytes,
    begun: Arc<AtomicBool>,
    /// Bytes that were taken before the file began.
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
            return Poll::Ready(Some(Err("too much stands before the file".into())));
        }
        let piece = self.left.split_to(piece_bytes);
        Poll::Ready(Some(Ok(piece)))
    }
}
