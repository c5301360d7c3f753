//! The upload of a file as the next version of a dataset. The file is streamed, within the limits of a push.

use axum::body::Body;
use axum::http::StatusCode;
use futures::{StreamExt, stream};
use strata_http::error::{CallError, HttpError};
use strata_http::visit::{self, File, Part, Upload};
use strata_ingest::InferTypes;
use strata_service::Push;
use strata_types::source::SourceFormat;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::{FILE, Flash, REFRESH_WAITS, refresh, told};
use crate::form_handling::{Problem, own};
use crate::visit::{PageResult, Reply, Visit};
use crate::{form_tokens, urls::DatasetPlace};

const FORMAT: &str = "format";
const INFER_TYPES: &str = "infer_types";

pub(crate) async fn act(visit: &mut Visit, body: Body) -> PageResult {
    visit.user()?;
    visit::check_origin(&visit.services, &visit.head)?;
    let place = own(visit).await?.place;
    let fields: (&[&str], _) = (&[form_tokens::TOKEN, FORMAT, INFER_TYPES], FILE);
    let mut upload = match Upload::begin(&visit.services, &visit.head.headers, body, fields) {
        Ok(upload) => upload,
        Err(HttpError::Call(CallError::TooLarge { limit, .. })) => {
            let problem = format!("the file is too large: the limit is {limit} bytes (sources.max_bytes)");
            let problem = Problem::at(StatusCode::PAYLOAD_TOO_LARGE, FILE, &problem);
            return refresh(visit, Flash { problem, ..Flash::default() }).await;
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
                    form_tokens::TOKEN => is_ours = visit.is_token(&value),
                    INFER_TYPES => infers = true,
                    _ => format = value,
                }
                *rest
            }
            Part::File(file) => break Some(*file),
            Part::End => break None,
        };
    };
    if !is_ours {
        return Err(CallError::ForgedForm.into());
    }
    let wrong = async |visit: &Visit, problem, format| {
        refresh(visit, Flash { problem, upload: Some((format, infers)), ..Flash::default() }).await
    };
    let known = format.parse::<SourceFormat>().ok();
    if known.is_none() && !format.is_empty() {
        return wrong(visit, Problem::at(StatusCode::BAD_REQUEST, FORMAT, "unknown format"), format).await;
    }
    let Some((name, file)) = file.and_then(|file| file.name.clone().map(|name| (name, file))) else {
        return wrong(visit, Problem::at(StatusCode::BAD_REQUEST, FILE, "choose a file"), format).await;
    };
    // Files in other formats than csv and tsv have types, so they ignore the option.
    let types = if infers { InferTypes::Tables } else { InferTypes::No };
    match made(visit, &place, name, file, known, types).await {
        Err(error) => {
            let problem = told(visit, error, FILE)?;
            wrong(visit, problem, format).await
        }
        reply => reply,
    }
}

/// Creates a version from a file. Once the whole file has arrived, the page waits for [`REFRESH_WAITS`]; the work
/// continues without it.
async fn made(
    visit: &Visit,
    place: &DatasetPlace,
    name: String,
    file: File,
    format: Option<SourceFormat>,
    infer_types: InferTypes,
) -> PageResult {
    let (ended, has_ended) = oneshot::channel();
    // The page might no longer wait.
    let end = stream::once(async move { _ = ended.send(()) }).filter_map(|()| std::future::ready(None));
    let push = Push {
        dataset: Some(place.id),
        body: file.into_stream().chain(end),
        content_type: None,
        name: Some(name),
        format,
        infer_types: Some(infer_types),
        enveloped: false,
    };
    let refreshes = visit.services.refreshes.clone();
    let user = visit.user()?;
    let work = async move { refreshes.push(user.id, push).await };
    let mut work = tokio::spawn(work.in_current_span());
    let waits = async {
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
