//! A store whose requests a test looks at first.

use std::fmt::{Debug, Display, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path as ObjectPath;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};

/// A request that is about to be made.
pub enum Request<'a> {
    Put,
    /// The start of an upload in parts.
    Upload,
    Get(&'a GetOptions),
}

/// Who looks at requests.
#[async_trait]
pub trait Watch: Clone + Debug + Send + Sync + 'static {
    /// Called before a request is made; one that fails is not.
    async fn before(&self, request: Request<'_>) -> object_store::Result<()>;

    /// An upload that was started, as the caller gets it.
    fn upload(&self, upload: Box<dyn MultipartUpload>) -> Box<dyn MultipartUpload> {
        upload
    }
}

/// The store. Clones share everything that their parts share.
#[derive(Clone, Debug)]
pub struct Watched<W> {
    pub inner: Arc<dyn ObjectStore>,
    pub watch: W,
}

impl<W: Debug> Display for Watched<W> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} with {:?}", self.inner, self.watch)
    }
}

#[async_trait]
impl<W: Watch> ObjectStore for Watched<W> {
    async fn put_opts(
        &self,
        location: &ObjectPath,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.watch.before(Request::Put).await?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &ObjectPath,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.watch.before(Request::Upload).await?;
        Ok(self.watch.upload(self.inner.put_multipart_opts(location, options).await?))
    }

    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> object_store::Result<GetResult> {
        self.watch.before(Request::Get(&options)).await?;
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
