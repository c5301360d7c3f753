//! A store that shows a test each request before it is executed.

use std::fmt::{Debug, Display, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path as ObjectPath;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};

/// A request that is about to be executed.
pub enum StoreRequest<'a> {
    Put,
    /// The start of a multipart upload.
    Upload,
    Get(&'a GetOptions),
}

/// Observes the requests of a store.
#[async_trait]
pub trait Watch: Clone + Debug + Send + Sync + 'static {
    /// Called before a request is executed. An error prevents the request.
    async fn before(&self, request: StoreRequest<'_>) -> object_store::Result<()>;

    /// Wraps the upload that the caller gets.
    fn upload(&self, upload: Box<dyn MultipartUpload>) -> Box<dyn MultipartUpload> {
        upload
    }
}

/// The store. Clones share the wrapped store and the observer.
#[derive(Clone, Debug)]
pub struct WatchedStore<W> {
    pub inner: Arc<dyn ObjectStore>,
    pub watch: W,
}

impl<W: Debug> Display for WatchedStore<W> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} with {:?}", self.inner, self.watch)
    }
}

#[async_trait]
impl<W: Watch> ObjectStore for WatchedStore<W> {
    async fn put_opts(
        &self,
        location: &ObjectPath,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.watch.before(StoreRequest::Put).await?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &ObjectPath,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.watch.before(StoreRequest::Upload).await?;
        Ok(self.watch.upload(self.inner.put_multipart_opts(location, options).await?))
    }

    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> object_store::Result<GetResult> {
        self.watch.before(StoreRequest::Get(&options)).await?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<ObjectPath>>,
    ) -> BoxStream<'static, object_store::Result<ObjectPath>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &ObjectPath, to: &ObjectPath, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
