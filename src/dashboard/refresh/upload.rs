//! The upload of a file as the next version of a dataset. The file is streamed, with the same limits as a push.

use axum::body::Body;
use axum::http::StatusCode;
use futures::{StreamExt, stream};
use strata_http::error::{CallError, HttpError};
use strata_http::page_support::{self, FileUploadForm, FormPart, UploadedFile};
use strata_ingest::TypeInference;
use strata_service::PushRequest;
use strata_types::source::SourceFormat;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::{FILE_FORM, REFRESH_WAIT_TIMEOUT, RefreshFlash, render_refresh, to_refresh_problem};
use crate::form_handling::{FormProblem, load_owner_context};
use crate::page_request::{PageRequest, PageResponse, PageResult};
use crate::{form_tokens, urls::DatasetUrls};

const FORMAT_FIELD: &str = "format";
const INFER_TYPES_FIELD: &str = "infer_types";

pub(crate) async fn handle_upload(req: &mut PageRequest, body: Body) -> PageResult {
    req.require_user()?;
    page_support::check_origin(&req.services, &req.head)?;
    let urls = load_owner_context(req).await?.urls;
    let fields: (&[&str], _) = (&[form_tokens::TOKEN_FIELD, FORMAT_FIELD, INFER_TYPES_FIELD], FILE_FORM);
    let mut upload = match FileUploadForm::try_new(&req.services, &req.head.headers, body, fields) {
        Ok(upload) => upload,
        Err(HttpError::Call(CallError::BodyTooLarge { limit, .. })) => {
            let problem = format!("the file is too large: the limit is {limit} bytes (sources.max_bytes)");
            let problem = FormProblem::for_field(StatusCode::PAYLOAD_TOO_LARGE, FILE_FORM, &problem);
            return render_refresh(req, RefreshFlash { problem, ..RefreshFlash::default() }).await;
        }
        Err(error) => return Err(error),
    };
    let mut has_token = false;
    let mut format = String::new();
    let mut infers_types = false;
    let file = loop {
        upload = match upload.next_part().await? {
            FormPart::Field(name, value, rest) => {
                match name.as_str() {
                    form_tokens::TOKEN_FIELD => has_token = req.is_valid_form_token(&value),
                    INFER_TYPES_FIELD => infers_types = true,
                    _ => format = value,
                }
                *rest
            }
            FormPart::File(file) => break Some(*file),
            FormPart::End => break None,
        };
    };
    if !has_token {
        return Err(CallError::InvalidFormToken.into());
    }
    let reject = async |req: &PageRequest, problem, format| {
        let refused_upload = Some((format, infers_types));
        render_refresh(req, RefreshFlash { problem, refused_upload, ..RefreshFlash::default() }).await
    };
    let source_format = format.parse::<SourceFormat>().ok();
    if source_format.is_none() && !format.is_empty() {
        return reject(req, FormProblem::for_field(StatusCode::BAD_REQUEST, FORMAT_FIELD, "unknown format"), format)
            .await;
    }
    let Some((name, file)) = file.and_then(|file| file.name.clone().map(|name| (name, file))) else {
        return reject(req, FormProblem::for_field(StatusCode::BAD_REQUEST, FILE_FORM, "choose a file"), format).await;
    };
    // Type inference applies only to csv and tsv files, because values in other formats already have types.
    let types = if infers_types { TypeInference::Tables } else { TypeInference::Off };
    match create_version(req, &urls, name, file, source_format, types).await {
        Err(error) => {
            let problem = to_refresh_problem(req, error, FILE_FORM)?;
            reject(req, problem, format).await
        }
        reply => reply,
    }
}

/// Creates a version from an uploaded file. Once the file has arrived, waits for the refresh for at most
/// [`REFRESH_WAIT_TIMEOUT`].
async fn create_version(
    req: &PageRequest,
    urls: &DatasetUrls,
    name: String,
    file: UploadedFile,
    format: Option<SourceFormat>,
    infer_types: TypeInference,
) -> PageResult {
    let (body_end, body_ended) = oneshot::channel();
    let notify_end = stream::once(async move { _ = body_end.send(()) }).filter_map(|()| std::future::ready(None));
    let push = PushRequest {
        dataset: Some(urls.id),
        body: file.into_stream().chain(notify_end),
        content_type: None,
        name: Some(name),
        format,
        infer_types: Some(infer_types),
        is_enveloped: false,
    };
    let refreshes = req.services.refreshes.clone();
    let user = req.require_user()?;
    let work = async move { refreshes.push(user.id, push).await };
    let mut work = tokio::spawn(work.in_current_span());
    let timeout = async {
        let _ = body_ended.await;
        tokio::time::sleep(REFRESH_WAIT_TIMEOUT).await;
    };
    tokio::select! {
        created = &mut work => match created {
            Ok(created) => created.map_err(HttpError::from).map(|_| PageResponse::redirect_with_notice("made", &urls.page_url("refresh"))),
            Err(error) => Err(HttpError::Panic(format!("failed to complete an upload: {error}"))),
        },
        () = timeout => Ok(PageResponse::redirect_with_notice("begun", &urls.page_url("refresh"))),
    }
}
