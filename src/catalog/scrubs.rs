//! Table `scrub_progress`: how far the scrub of the files has come, in any process.

use std::time::Duration;

use super::clock::{after, before};
use super::convert::{from_time, to_unsigned};
use super::{Catalog, FileId, Result};

impl Catalog {
    /// Takes the scrub for `lasts`, if it is due and no other process has it. A scrub that was begun goes on. A new one
    /// begins when the last one ended longer than `interval` ago. Returns the last file that is done.
    pub async fn take_scrub(&self, interval: Duration, lasts: Duration) -> Result<Option<Option<FileId>>> {
        let now = self.now();
        let sql = "UPDATE scrub_progress SET leased_until = $1
                   WHERE scrub_id = 0 AND leased_until <= $2 AND (file_id > 0 OR finished_at <= $3)
                   RETURNING file_id";
        let values = &[from_time(after(now, lasts)), from_time(now), from_time(before(now, interval))];
        let mut transaction = self.engine.begin().await?;
        let taken: Option<(i64,)> = transaction.find(sql, values).await?;
        transaction.commit().await?;
        let Some((file,)) = taken else { return Ok(None) };
        let file = to_unsigned(file, "scrub_progress.file_id")?;
        Ok(Some((file > 0).then(|| FileId::new(file))))
    }

    pub async fn keep_scrub(&self, lasts: Duration) -> Result<()> {
        let sql = "UPDATE scrub_progress SET leased_until = $1 WHERE scrub_id = 0";
        self.engine.write(sql, &[from_time(after(self.now(), lasts))]).await.map(drop)
    }

    pub async fn advance_scrub(&self, file: FileId) -> Result<()> {
        self.engine.write("UPDATE scrub_progress SET file_id = $1 WHERE scrub_id = 0", &[file.into()]).await.map(drop)
    }

    /// Records that all files are done, and gives the scrub back.
    pub async fn finish_scrub(&self) -> Result<()> {
        let now = from_time(self.now());
        let sql = "UPDATE scrub_progress SET file_id = 0, finished_at = $1, leased_until = $1 WHERE scrub_id = 0";
        self.engine.write(sql, &[now]).await.map(drop)
    }

    /// Records that all files are done, unless a process has the scrub, which goes on.
    pub async fn finish_idle_scrub(&self) -> Result<()> {
        let now = from_time(self.now());
        let sql = "UPDATE scrub_progress SET file_id = 0, finished_at = $1 WHERE scrub_id = 0 AND leased_until <= $1";
        self.engine.write(sql, &[now]).await.map(drop)
    }

    pub async fn release_scrub(&self) -> Result<()> {
        self.keep_scrub(Duration::ZERO).await
    }
}
