//! Pushed entities, for a dataset that the request or its body names.

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use strata_ingest::{InferTypes, SourceError};
use strata_types::dataset::{DatasetSource, RefreshTrigger};
use strata_types::ids::{DatasetId, UserId};
use strata_types::source::SourceFormat;
use tokio_util::sync::CancellationToken;

use crate::refresh::error::RefreshError;
use crate::refresh::ingest::{DATASET_ID, Document};
use crate::refresh::{Entities, Refreshed, Refreshes};

pub struct Push<S> {
    /// The dataset, if the request names it; otherwise the body does.
    pub dataset: Option<DatasetId>,
    pub body: S,
    pub content_type: Option<String>,
    /// The file name, whose extension can determine the format.
    pub name: Option<String>,
    /// The format of the body; `None` detects it.
    pub format: Option<SourceFormat>,
    /// The types of csv and tsv cells; `None` uses the setting of the dataset.
    pub infer_types: Option<InferTypes>,
    /// Whether the body is an object with the member `entities` and optionally `dataset_id`.
    pub enveloped: bool,
}

impl Refreshes {
    /// Creates a version from a body. Dropping the future cancels only the receiving of the body. A dataset of another
    /// owner is refused before the body is read, or after its beginning if the body names the dataset. A body that
    /// names no dataset leaves no record.
    pub async fn push<S, E>(self: &Arc<Self>, owner: UserId, push: Push<S>) -> Result<Refreshed, RefreshError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        self.check_role()?;
        if let Some(dataset) = push.dataset {
            self.pushed_to(owner, dataset).await?;
        }
        let mut input = self.ingest.pushed_input(push.body);
        if let Some(content_type) = push.content_type {
            input = input.with_content_type(content_type);
        }
        if let Some(name) = push.name {
            input = input.with_name(name);
        }
        let envelope: Option<&'static [&'static str]> = if push.enveloped { Some(&[DATASET_ID]) } else { None };
        let document = Document {
            format: push.format,
            infer_types: push.infer_types.unwrap_or_default(),
            envelope,
            ..Document::new(input)
        };
        let mut receiving = self.ingest.begin_receiving(owner, document, self.ingest.slot(owner).await?);
        let mut dataset = push.dataset;
        if dataset.is_none() && push.enveloped {
            let (head, ended) = receiving.head().await?;
            // Decoding reports an invalid number.
            dataset = head.integer(DATASET_ID).ok().flatten().map(DatasetId::new);
            self.ingest.check_head(owner, dataset, ended).await?;
            if let Some(dataset) = dataset {
                self.pushed_to(owner, dataset).await?;
            }
        }
        let refreshes = self.clone();
        match dataset {
            Some(dataset) => {
                let left = CancellationToken::new();
                let leaving = left.clone().drop_guard();
                let entities =
                    Entities::Pushed { receiving: Box::new(receiving), left, as_dataset: push.infer_types.is_none() };
                let trigger = RefreshTrigger::Manual;
                let made = async move { refreshes.make_version(dataset, trigger, entities, &Arc::default()).await };
                let made = self.tasks.run(made).await;
                leaving.disarm();
                made
            }
            None => {
                let document = tokio::select! {
                    document = receiving.receive() => document?,
                    () = self.tasks.stopped() => return Err(RefreshError::Stopping),
                };
                self.tasks.run(async move { refreshes.push_unnamed(owner, document).await }).await
            }
        }
    }

    async fn push_unnamed(self: &Arc<Self>, owner: UserId, document: Document) -> Result<Refreshed, RefreshError> {
        let permit = self.ingest.permit(owner).await?;
        let decoded = self.ingest.decode(document, &permit, &Arc::default()).await?;
        let found = decoded.fields.as_ref().ok_or(RefreshError::Worker)?.integer(DATASET_ID)?;
        let dataset = found.map(DatasetId::new).ok_or_else(|| {
            let reason = "dataset_id is missing; it must be the ID of the dataset to refresh".to_owned();
            SourceError::BadBody { reason }
        })?;
        self.pushed_to(owner, dataset).await?;
        let entities = Entities::Decoded(Box::new(decoded), permit);
        self.make_version(dataset, RefreshTrigger::Manual, entities, &Arc::default()).await
    }

    async fn pushed_to(&self, owner: UserId, dataset: DatasetId) -> Result<(), RefreshError> {
        let dataset = self.catalog.owned_dataset(owner, dataset).await?;
        match dataset.source {
            _ if dataset.frozen => Err(RefreshError::Frozen),
            DatasetSource::Push => Ok(()),
            DatasetSource::Url(_) => Err(RefreshError::NotPushed),
        }
    }
}
