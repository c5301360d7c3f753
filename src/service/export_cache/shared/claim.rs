//! Who makes an export: a claim in the catalog, renewed while it is made.

use std::time::Duration;

use strata_catalog::{Catalog, ExportClaim};
use strata_types::ids::FileId;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// How long a claim lasts unless it is renewed: so long others wait for a server that was killed, at most.
pub(super) const LASTS: Duration = Duration::from_secs(15);

const RENEWALS: u32 = 3;

/// A claim. Dropped, it ends: others make what was not made.
pub(super) struct Claim {
    catalog: Catalog,
    name: String,
    maker: String,
    renewing: Option<AbortOnDropHandle<()>>,
}

impl Claim {
    pub(super) fn new_maker() -> String {
        hex::encode(rand::random::<[u8; 16]>())
    }

    pub(super) fn renewed(catalog: Catalog, name: String, file: FileId, maker: String) -> Claim {
        let own = (catalog.clone(), name.clone(), maker.clone());
        let renewing = tokio::spawn(async move {
            let (catalog, name, maker) = own;
            loop {
                tokio::time::sleep(LASTS / RENEWALS).await;
                // Where the catalog does not answer, the claim may end: then two make it.
                if let Ok(ExportClaim::Made(_)) = catalog.claim_export(&name, file, &maker, LASTS).await {
                    return;
                }
            }
        });
        Claim { catalog, name, maker, renewing: Some(AbortOnDropHandle::new(renewing)) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let renewing = self.renewing.take();
        let (catalog, name, maker) = (self.catalog.clone(), self.name.clone(), self.maker.clone());
        // Where nothing runs any more, it ends by itself.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Some(renewing) = renewing {
                renewing.abort();
                // What it has begun must not come after the end.
                let _ = renewing.await;
            }
            if let Err(error) = catalog.release_export(&name, &maker).await {
                tracing::debug!(%error, "failed to release claim on export");
            }
        });
    }
}
