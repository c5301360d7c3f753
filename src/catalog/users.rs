//! Table `users`: the users and their password hashes.

use strata_types::user::{User, UserPlan, normalize_email};

use super::convert::{from_cursor, from_text, from_time, to_unsigned};
use super::database_engine::{CatalogTransaction, FromSqlRow, SqlRow, SqlValue, select};
use super::{Catalog, CatalogError, Result, UserId};

impl FromSqlRow for User {
    fn from_row(row: &SqlRow) -> Result<User> {
        Ok(User {
            id: UserId::new(row.get_unsigned("users.user_id")?),
            email: row.get("email")?,
            password_hash: row.get("password_hash")?,
            plan: row.get_parsed("users.plan")?,
            created_at: row.get_time("users.created_at")?,
        })
    }
}

/// Locks a user, so that counts of the user's datasets remain valid. Lock the user before any dataset.
pub(super) async fn lock_owner(transaction: &mut CatalogTransaction, owner: UserId) -> Result<()> {
    let sql = "UPDATE users SET plan = plan WHERE user_id = $1";
    transaction.execute_or_error(sql, &[owner.into()], CatalogError::NotFound).await
}

impl Catalog {
    /// Adds a user. `password_hash` is an Argon2id hash in PHC string format.
    pub async fn add_user(&self, email: &str, password_hash: &str, plan: UserPlan) -> Result<UserId> {
        let mut transaction = self.engine.begin().await?;
        let sql = "INSERT INTO users (email, email_key, password_hash, plan, created_at)
                   VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (email_key) DO NOTHING
                   RETURNING user_id";
        let values = &[
            from_text(email.trim(), "email")?,
            SqlValue::Text(Some(&normalize_email(email))),
            SqlValue::Text(Some(password_hash)),
            SqlValue::Text(Some(plan.name())),
            from_time(self.now()),
        ];
        let row: Option<(i64,)> = transaction.find(sql, values).await?;
        let (user_id,) = row.ok_or(CatalogError::EmailTaken)?;
        transaction.commit().await?;
        Ok(UserId::new(to_unsigned(user_id, "users.user_id")?))
    }

    pub async fn user_by_email(&self, email: &str) -> Result<Option<User>> {
        if email.contains('\0') {
            return Ok(None);
        }
        self.engine.find(select!(users, "WHERE email_key = $1"), &[SqlValue::Text(Some(&normalize_email(email)))]).await
    }

    pub async fn user(&self, id: UserId) -> Result<Option<User>> {
        self.engine.find(select!(users, "WHERE user_id = $1"), &[id.into()]).await
    }

    pub async fn users(&self, after: Option<UserId>, limit: u32) -> Result<Vec<User>> {
        let sql = select!(users, "WHERE user_id > $1 ORDER BY user_id LIMIT $2");
        self.engine.list(sql, &[from_cursor(after.map(UserId::get), 0), limit.into()]).await
    }

    /// Sets the password hash (Argon2id, PHC string format) and deletes all sessions. API tokens remain valid.
    pub async fn set_password(&self, user: UserId, password_hash: &str) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE users SET password_hash = $2 WHERE user_id = $1";
        let values = &[user.into(), SqlValue::Text(Some(password_hash))];
        transaction.execute_or_error(sql, values, CatalogError::NotFound).await?;
        transaction.execute("DELETE FROM sessions WHERE user_id = $1", &[user.into()]).await?;
        transaction.commit().await
    }

    /// Like [`Catalog::set_password`], but keeps `current_session`. Returns [`CatalogError::Conflict`] if the hash is
    /// not `old_hash`.
    pub async fn change_password(
        &self,
        user: UserId,
        old_hash: &str,
        new_hash: &str,
        current_session: Option<&str>,
    ) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE users SET password_hash = $2 WHERE user_id = $1 AND password_hash = $3";
        let values = &[user.into(), SqlValue::Text(Some(new_hash)), SqlValue::Text(Some(old_hash))];
        transaction.execute_or_error(sql, values, CatalogError::Conflict).await?;
        // No session has an empty hash, so without a current session, this statement deletes all sessions.
        let sql = "DELETE FROM sessions WHERE user_id = $1 AND session_hash <> $2";
        transaction.execute(sql, &[user.into(), SqlValue::Text(Some(current_session.unwrap_or_default()))]).await?;
        transaction.commit().await
    }

    /// Deletes a user without datasets, including tokens and sessions. IDs are not reused.
    pub async fn remove_user(&self, user: UserId) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        // The lock on the user makes a concurrent creation of a dataset, token, or session fail after the deletion.
        lock_owner(&mut transaction, user).await?;
        let sql = "SELECT COUNT(*) FROM datasets WHERE owner_id = $1";
        let (datasets,): (i64,) = transaction.fetch_one(sql, &[user.into()]).await?;
        if datasets > 0 {
            return Err(CatalogError::HasDatasets { count: to_unsigned(datasets, "datasets count")? });
        }
        for sql in [
            "DELETE FROM sessions WHERE user_id = $1",
            "DELETE FROM api_tokens WHERE user_id = $1",
            "DELETE FROM users WHERE user_id = $1",
        ] {
            transaction.execute(sql, &[user.into()]).await?;
        }
        transaction.commit().await
    }

    /// Changes the user's plan. Existing datasets beyond the plan's limit remain.
    pub async fn set_plan(&self, user: UserId, plan: UserPlan) -> Result<()> {
        let sql = "UPDATE users SET plan = $2 WHERE user_id = $1";
        self.engine.write_or_error(sql, &[user.into(), SqlValue::Text(Some(plan.name()))], CatalogError::NotFound).await
    }
}
