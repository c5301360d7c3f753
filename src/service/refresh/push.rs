//! Creates versions from pushed entities. The dataset is specified in the request or in the pushed body.

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use strata_ingest::{SourceError, TypeInference};
use strata_types::dataset::{DatasetSource, RefreshTrigger};
use strata_types::ids::{DatasetId, UserId};
use strata_types::source::SourceFormat;
use tokio_util::sync::CancellationToken;

use crate::refresh::error::{RefreshError, Result};
use crate::refresh::ingest::{DATASET_ID_MEMBER, SourceDocument};
use crate::refresh::{RefreshInput, RefreshService, RefreshedVersion};

pub struct PushRequest<S> {
    /// The dataset of the new version; `None` if the body contains `dataset_id`.
    pub dataset: Option<DatasetId>,
    pub body: S,
    pub content_type: Option<String>,
    /// The name of the pushed file, whose extension can determine the format.
    pub name: Option<String>,
    /// The format of the pushed body; `None` detects it.
    pub format: Option<SourceFormat>,
    /// The inference of csv and tsv types; `None` uses the setting of the dataset.
    pub infer_types: Option<TypeInference>,
    /// If true, the pushed body is a JSON object with the member `entities` and optionally `dataset_id`.
    pub is_enveloped: bool,
}

impl RefreshService {
    /// Creates a version from a pushed body. Dropping the future cancels only the receiving of the body. Another user's
    /// dataset is rejected before the body is read, or after the start of the body if the body contains `dataset_id`.
    pub async fn push<S, E>(self: &Arc<Self>, owner: UserId, push: PushRequest<S>) -> Result<RefreshedVersion>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        self.check_refresh_role()?;
        if let Some(dataset) = push.dataset {
            self.check_accepts_push(owner, dataset).await?;
        }
        let mut input = self.ingest.pushed_input(push.body);
        if let Some(content_type) = push.content_type {
            input = input.with_content_type(content_type);
        }
        if let Some(name) = push.name {
            input = input.with_name(name);
        }
        let document = SourceDocument {
            format: push.format,
            infer_types: push.infer_types.unwrap_or_default(),
            envelope_members: if push.is_enveloped { Some(&[DATASET_ID_MEMBER]) } else { None },
            ..SourceDocument::new(input)
        };
        let slot = self.ingest.acquire_receive_slot(owner).await?;
        let mut receiver = self.ingest.start_receiving(owner, document, slot);
        let mut dataset = push.dataset;
        if dataset.is_none() && push.is_enveloped {
            let head = receiver.receive_head().await?;
            // An invalid `dataset_id` is reported when the body is decoded.
            dataset = head.fields.integer(DATASET_ID_MEMBER).ok().flatten().map(DatasetId::new);
            self.ingest.authorize_body_start(owner, dataset, head.is_whole_body).await?;
            if let Some(dataset) = dataset {
                self.check_accepts_push(owner, dataset).await?;
            }
        }
        let refreshes = self.clone();
        match dataset {
            Some(dataset) => {
                let sender_left = CancellationToken::new();
                let guard = sender_left.clone().drop_guard();
                let uses_dataset_types = push.infer_types.is_none();
                let input = RefreshInput::Pushed { receiver: Box::new(receiver), sender_left, uses_dataset_types };
                let trigger = RefreshTrigger::Manual;
                let refresh = async move { refreshes.create_version(dataset, trigger, input, &Arc::default()).await };
                let result = self.tasks.run(refresh).await;
                guard.disarm();
                result
            }
            None => {
                let document = tokio::select! {
                    document = receiver.receive() => document?,
                    () = self.tasks.wait_for_stop() => return Err(RefreshError::Stopping),
                };
                self.tasks.run(async move { refreshes.push_to_dataset_in_body(owner, document).await }).await
            }
        }
    }

    async fn push_to_dataset_in_body(&self, owner: UserId, document: SourceDocument) -> Result<RefreshedVersion> {
        let permit = self.ingest.acquire_permit(owner).await?;
        let decoded = self.ingest.decode(document, None, &permit, &Arc::default()).await?;
        let fields = decoded.envelope_fields.as_ref().ok_or(RefreshError::WorkerStopped)?;
        let dataset = fields.integer(DATASET_ID_MEMBER)?.map(DatasetId::new).ok_or_else(|| {
            let reason = "dataset_id is missing; it must be the ID of the dataset to refresh".to_owned();
            SourceError::InvalidBody { reason }
        })?;
        self.check_accepts_push(owner, dataset).await?;
        let input = RefreshInput::Decoded(Box::new(decoded), permit);
        self.create_version(dataset, RefreshTrigger::Manual, input, &Arc::default()).await
    }

    async fn check_accepts_push(&self, owner: UserId, dataset: DatasetId) -> Result<()> {
        let dataset = self.catalog.owned_dataset(owner, dataset).await?;
        match dataset.source {
            _ if dataset.frozen => Err(RefreshError::Frozen),
            DatasetSource::Push => Ok(()),
            DatasetSource::Url(_) => Err(RefreshError::SourceIsUrl),
        }
    }
}
