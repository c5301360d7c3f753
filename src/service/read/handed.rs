//! Heavy reads that the server answers to which their version file belongs ([`crate::cluster::hand_over`]).

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::cluster::hand_over::HandedRead;
use crate::encode::ContentCoding;
use crate::metrics::metrics;
use crate::model::request::{Format, ReadRequest};
use crate::service::admission::capacity::Capacity;
use crate::service::admission::{Permit, WHOLE_BYTES, Weight};
use crate::service::lookup::Admitted;
use crate::service::lookup::cache_key::CacheKey;
use crate::service::lookup::error::ReadError;
use crate::service::read::{Answer, AnswerBody, Reads};

/// What a read came as, for who may have to send it on.
#[derive(Clone, Copy, Debug)]
pub struct SentQuery<'a>(pub &'a str);

/// Which answer is meant, for two servers that must mean the same: its key, or its file where no key is.
pub fn meant(key: Option<CacheKey>, admitted: &Admitted) -> String {
    key.map_or_else(|| admitted.file.path.clone(), |key| key.short())
}

/// Path and query of a read of just this version.
fn target(admitted: &Admitted, query: &str) -> String {
    let Admitted { dataset_id, name_slug, version, alt, .. } = admitted;
    let alt = if *alt { "alt/" } else { "" };
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    format!("/api/{}/{name_slug}/v{}/{alt}{query}", dataset_id.get(), version.get())
}

impl Reads {
    /// The answer of the server that the file belongs to, if that is another one and the read is heavy; `None` if this
    /// one has to answer.
    pub(super) async fn handed_over(
        &self,
        capacity: &Capacity,
        admitted: &Admitted,
        request: &Arc<ReadRequest>,
        (key, query): (Option<CacheKey>, &str),
        coding: ContentCoding,
    ) -> Option<Result<Answer, ReadError>> {
        let hand_over = self.hand_over.as_ref()?;
        let owner = hand_over.owner(&admitted.file.path)?;
        let work_bytes = match self.weighed(&admitted.file, request, &self.cache).await {
            Ok((_, work_bytes)) => work_bytes,
            // The time of the read is over.
            Err(error @ ReadError::Timeout { .. }) => return Some(Err(error)),
            // What is wrong with the file is told by who reads it.
            Err(_) => return None,
        };
        if Weight::of(work_bytes, &self.config.query) != Weight::Heavy {
            return None;
        }
        let place = capacity.admission().stream().await.ok()?;
        let read = HandedRead {
            target: target(admitted, query),
            holder: admitted.holder.name(),
            answer: meant(key, admitted),
            coding: coding.name(),
        };
        let response = hand_over.ask(&owner, read).await?;
        let answer = taken(response, request, place).await;
        let outcome = if answer.is_some() { "answered" } else { "cut" };
        metrics().handed_over.of([outcome.into()]).increment(1);
        answer.map(Ok)
    }
}

/// What another server answers; `None` if that is cut before its first byte, or strange.
async fn taken(response: reqwest::Response, request: &ReadRequest, place: Permit) -> Option<Answer> {
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    let total = header("x-total-count")?.parse().ok()?;
    let matches = match header("x-total-matches") {
        None => None,
        Some(matches) => Some(matches.parse().ok()?),
    };
    let coding = match header("content-encoding") {
        None => ContentCoding::Identity,
        Some(name) => ContentCoding::ALL.into_iter().find(|coding| coding.name() == name)?,
    };
    let format = if request.count { Format::Json } else { request.format };
    let answer = |body| Answer { total, matches, content_type: format.content_type(), coding, body };
    if response.content_length().is_some_and(|bytes| bytes <= WHOLE_BYTES) {
        return Some(answer(AnswerBody::Whole(response.bytes().await.ok()?)));
    }
    let cut = |error: reqwest::Error| ReadError::HandedCut(Arc::new(error));
    let mut chunks = response.bytes_stream().map_err(cut).boxed();
    let first: Bytes = match chunks.next().await {
        None => Bytes::new(),
        Some(first) => first.ok()?,
    };
    let chunks = stream::once(async { Ok(first) }).chain(chunks).inspect(move |_| {
        let _ = &place;
    });
    Some(answer(AnswerBody::Stream(chunks.boxed())))
}
