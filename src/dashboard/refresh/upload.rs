//! A file as the next version of a dataset that takes what its owner sends. The file passes on as it comes, within the
//! bounds of a push.

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use strata_http::error::{CallError, HttpError};
use strata_http::visit::{self, File, Part, Upload};
use strata_ingest::InferTypes;
use strata_service::Push;
use strata_types::source::SourceFormat;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::{FILE, REFRESH_WAITS, Said, refresh, told};
use crate::acting::{Problem, own};
use crate::visit::{Reply, Visit};
use crate::{forms, place::DatasetPlace};

const FORMAT: &str = "format";
const INFER_TYPES: &str = "infer_types";

pub(crate) async fn act(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    visit.user()?;
    visit::check_origin(&visit.app, &visit.head)?;
    let place = own(visit).await?.place;
    let fields: (&[&str], _) = (&[forms::TOKEN, FORMAT, INFER_TYPES], FILE);
    let mut upload = match Upload::begin(&visit.app, &visit.head.headers, body, fields) {
        Ok(upload) => upload,
        Err(HttpError::Call(CallError::TooLarge { limit, .. })) => {
            let problem = format!("the file is too large: the limit is {limit} bytes (sources.max_bytes)");
            let problem = Problem::at(FILE, &problem);
            return refresh(visit, Said { status: StatusCode::PAYLOAD_TOO_LARGE, problem, ..Said::default() }).await;
        }
        Err(error) => return Err(error),
    };
    let mut is_ours = false;
    let mut format = String::new();
    let mut infers = false;
    let file = loop {
        upload = match upload.next().await? {
            Part::Field(name, value, rest) => {
                match name.as_str() {
                    forms::TOKEN => is_ours = visit.is_token(&value),
                    INFER_TYPES => infers = true,
                    _ => format = value,
                }
                *rest
            }
            Part::File(file) => break Some(*file),
            Part::End => break None,
        };
    };
    // Nothing of the file is looked at before.
    if !is_ours {
        return Err(CallError::ForgedForm.into());
    }
    let wrong = async |visit: &Visit, status, problem, format| {
        refresh(visit, Said { status, problem, upload: Some((format, infers)), ..Said::default() }).await
    };
    let known = format.parse::<SourceFormat>().ok();
    if known.is_none() && !format.is_empty() {
        return wrong(visit, StatusCode::BAD_REQUEST, Problem::at(FORMAT, "unknown format"), format).await;
    }
    let Some((name, file)) = file.and_then(|file| file.name.clone().map(|name| (name, file))) else {
        return wrong(visit, StatusCode::BAD_REQUEST, Problem::at(FILE, "choose a file"), format).await;
    };
    // A file of another format than csv and tsv has its own types: the box is no reason to refuse it.
    let types = if infers { InferTypes::Tables } else { InferTypes::No };
    match made(visit, &place, name, file, known, types).await {
        Err(error) => {
            let (status, problem) = told(visit, error, FILE)?;
            wrong(visit, status, problem, format).await
        }
        reply => reply,
    }
}

/// Makes a version of a file. Once all of it has come, the page waits for a while, and the work goes on without it.
async fn made(
    visit: &Visit,
    place: &DatasetPlace,
    name: String,
    file: File,
    format: Option<SourceFormat>,
    infer_types: InferTypes,
) -> Result<Reply, HttpError> {
    let (ended, has_ended) = oneshot::channel();
    let push = Push {
        dataset: Some(place.id),
        body: until_the_end(file.into_stream(), ended),
        content_type: None,
        name: Some(name),
        format,
        infer_types: Some(infer_types),
        enveloped: false,
    };
    let refreshes = visit.app.refreshes().clone();
    let user = visit.user()?;
    let work = async move { refreshes.push(user.id, push).await };
    let mut work = tokio::spawn(work.in_current_span());
    let waits = async {
        // Where it ends early, the work tells.
        let _ = has_ended.await;
        tokio::time::sleep(REFRESH_WAITS).await;
    };
    tokio::select! {
        made = &mut work => match made {
            Ok(made) => made.map_err(HttpError::from).map(|_| Reply::done("made", &place.page("refresh"))),
            Err(error) => Err(HttpError::Panic(format!("failed to complete an upload: {error}"))),
        },
        () = waits => Ok(Reply::done("begun", &place.page("refresh"))),
    }
}

/// The same bytes, with a sign when all of them have been taken.
fn until_the_end<E: Send + 'static>(
    bytes: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ended: oneshot::Sender<()>,
) -> impl Stream<Item = Result<Bytes, E>> + Send + 'static {
    let end = stream::once(async move {
        // The page may be gone.
        let _ = ended.send(());
        None
    });
    bytes.map(Some).chain(end).filter_map(std::future::ready)
}
