//! Table `scrub_progress`: the lease of the background scrub, which verifies all files, and the last verified file.

use std::time::Duration;

use super::clock::{saturating_add, saturating_sub};
use super::convert::{from_time, to_unsigned};
use super::{Catalog, Result, VersionFileId};

impl Catalog {
    /// Acquires the lease of the background scrub for `ttl` if the scrub is due and no other process runs it. An
    /// interrupted scrub is due immediately. Returns the last scrubbed file: `Some(None)` for a new scrub.
    pub async fn try_acquire_scrub(&self, interval: Duration, ttl: Duration) -> Result<Option<Option<VersionFileId>>> {
        let now = self.now();
        let sql = "UPDATE scrub_progress SET leased_until = $1
                   WHERE scrub_id = 0 AND leased_until <= $2 AND (file_id > 0 OR finished_at <= $3)
                   RETURNING file_id";
        let values = &[from_time(saturating_add(now, ttl)), from_time(now), from_time(saturating_sub(now, interval))];
        let mut transaction = self.engine.begin().await?;
        let acquired: Option<(i64,)> = transaction.find(sql, values).await?;
        transaction.commit().await?;
        let Some((file,)) = acquired else { return Ok(None) };
        let file = to_unsigned(file, "scrub_progress.file_id")?;
        Ok(Some((file > 0).then(|| VersionFileId::new(file))))
    }

    pub async fn renew_scrub(&self, ttl: Duration) -> Result<()> {
        let sql = "UPDATE scrub_progress SET leased_until = $1 WHERE scrub_id = 0";
        self.engine.write(sql, &[from_time(saturating_add(self.now(), ttl))]).await.map(drop)
    }

    pub async fn record_scrubbed_file(&self, file: VersionFileId) -> Result<()> {
        self.engine.write("UPDATE scrub_progress SET file_id = $1 WHERE scrub_id = 0", &[file.into()]).await.map(drop)
    }

    pub async fn finish_scrub(&self) -> Result<()> {
        let now = from_time(self.now());
        let sql = "UPDATE scrub_progress SET file_id = 0, finished_at = $1, leased_until = $1 WHERE scrub_id = 0";
        self.engine.write(sql, &[now]).await.map(drop)
    }

    /// Records that the background scrub has verified all files, unless a process is running it.
    pub async fn finish_scrub_unless_running(&self) -> Result<()> {
        let now = from_time(self.now());
        let sql = "UPDATE scrub_progress SET file_id = 0, finished_at = $1 WHERE scrub_id = 0 AND leased_until <= $1";
        self.engine.write(sql, &[now]).await.map(drop)
    }

    pub async fn release_scrub(&self) -> Result<()> {
        self.renew_scrub(Duration::ZERO).await
    }
}
