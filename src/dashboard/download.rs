//! `…/download`: a read for whoever is signed in. The read endpoint takes the private key of a private dataset, which a
//! browser does not send with a link; the session of its owner opens this one.

use axum::http::HeaderName;

use super::closed;
use super::opened::{Tab, open};
use super::place::Place;
use super::visit::{Reply, Visit};
use crate::http::error::HttpError;
use crate::http::{params, visit};

pub(super) async fn show(visit: &mut Visit) -> Result<Reply, HttpError> {
    closed::or_told(visit, Tab::Data, download).await
}

async fn download(visit: &mut Visit) -> Result<Reply, HttpError> {
    let uri = visit.head.uri.clone();
    let (place, _) = Place::parse(uri.path())?;
    let (mut request, unknown) = params::parse(uri.query())?;
    request.alt |= place.alt;
    // A file has no other place to name what was ignored.
    let named = params::unknown_parameters_header(&unknown);
    visit.headers.extend(named.map(|named| (HeaderName::from_static("x-unknown-parameters"), named)));
    let opened = open(visit, &place, request.alt).await?;
    if request.strict {
        visit.app.reads().check_fields(&opened.admitted, &request).await?;
    }
    let response = visit::download(&visit.app, &visit.head, &opened.admitted, request).await?;
    Ok(Reply::Other(response))
}
