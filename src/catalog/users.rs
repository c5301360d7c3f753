//! Table `users`.

use strata_types::user::{Plan, User, email_key};

use super::convert::{from_cursor, from_time, text, to_unsigned};
use super::engine::{Record, Row, Transaction, Value, select};
use super::{Catalog, CatalogError, Result, UserId};

impl Record for User {
    fn from_row(row: &Row) -> Result<User> {
        Ok(User {
            id: UserId::new(row.unsigned("users.user_id")?),
            email: row.get("email")?,
            password_hash: row.get("password_hash")?,
            plan: row.named("users.plan")?,
            created_at: row.time("users.created_at")?,
        })
    }
}

/// Under this lock a count of the owner's datasets is right. Take it before the lock of a dataset.
pub(super) async fn lock_owner(transaction: &mut Transaction, owner: UserId) -> Result<()> {
    let sql = "UPDATE users SET plan = plan WHERE user_id = $1";
    transaction.execute_or(sql, &[owner.into()], CatalogError::NotFound).await
}

impl Catalog {
    /// Adds a user. `password_hash` is an Argon2id hash in PHC string form.
    pub async fn add_user(&self, email: &str, password_hash: &str, plan: Plan) -> Result<UserId> {
        let mut transaction = self.engine.begin().await?;
        let sql = "INSERT INTO users (email, email_key, password_hash, plan, created_at)
                   VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (email_key) DO NOTHING
                   RETURNING user_id";
        let values = &[
            text(email.trim(), "email")?,
            Value::Text(Some(&email_key(email))),
            Value::Text(Some(password_hash)),
            Value::Text(Some(plan.name())),
            from_time(self.now()),
        ];
        let row: Option<(i64,)> = transaction.find(sql, values).await?;
        let (user_id,) = row.ok_or(CatalogError::EmailTaken)?;
        transaction.commit().await?;
        Ok(UserId::new(to_unsigned(user_id, "users.user_id")?))
    }

    /// The user with this address, in any case. One indexed look-up.
    pub async fn user_by_email(&self, email: &str) -> Result<Option<User>> {
        if email.contains('\0') {
            return Ok(None);
        }
        self.engine.find(select!(users, "WHERE email_key = $1"), &[Value::Text(Some(&email_key(email)))]).await
    }

    pub async fn user(&self, id: UserId) -> Result<Option<User>> {
        self.engine.find(select!(users, "WHERE user_id = $1"), &[id.into()]).await
    }

    /// The users with ids greater than `after`, by id, at most `limit`. One range of the primary key.
    pub async fn users(&self, after: Option<UserId>, limit: u32) -> Result<Vec<User>> {
        let sql = select!(users, "WHERE user_id > $1 ORDER BY user_id LIMIT $2");
        self.engine.list(sql, &[from_cursor(after.map(UserId::get), 0), limit.into()]).await
    }

    /// Replaces the hash of the user's password (Argon2id, PHC string) and ends all sessions. API tokens stay.
    pub async fn set_password(&self, user: UserId, password_hash: &str) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE users SET password_hash = $2 WHERE user_id = $1";
        transaction.execute_or(sql, &[user.into(), Value::Text(Some(password_hash))], CatalogError::NotFound).await?;
        transaction.execute("DELETE FROM sessions WHERE user_id = $1", &[user.into()]).await?;
        transaction.commit().await
    }

    /// As [`Catalog::set_password`], but for who knows the old password, given as the hash that was compared. The
    /// session with the hash `kept` stays. [`CatalogError::Conflict`] if the user has another password by now.
    pub async fn change_password(
        &self,
        user: UserId,
        old_hash: &str,
        new_hash: &str,
        kept: Option<&str>,
    ) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE users SET password_hash = $2 WHERE user_id = $1 AND password_hash = $3";
        let values = &[user.into(), Value::Text(Some(new_hash)), Value::Text(Some(old_hash))];
        transaction.execute_or(sql, values, CatalogError::Conflict).await?;
        // No session has an empty hash.
        let sql = "DELETE FROM sessions WHERE user_id = $1 AND session_hash <> $2";
        transaction.execute(sql, &[user.into(), Value::Text(Some(kept.unwrap_or_default()))]).await?;
        transaction.commit().await
    }

    /// Removes a user without datasets, with the user's tokens and sessions. The id is never used again.
    pub async fn remove_user(&self, user: UserId) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        // A concurrent creation of a dataset, a token or a session of the user waits, and finds no user.
        lock_owner(&mut transaction, user).await?;
        let sql = "SELECT COUNT(*) FROM datasets WHERE owner_id = $1";
        let (datasets,): (i64,) = transaction.one(sql, &[user.into()]).await?;
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

    /// Changes the user's plan. Datasets beyond the new plan's limit stay.
    pub async fn set_plan(&self, user: UserId, plan: Plan) -> Result<()> {
        let sql = "UPDATE users SET plan = $2 WHERE user_id = $1";
        self.engine.write_or(sql, &[user.into(), Value::Text(Some(plan.name()))], CatalogError::NotFound).await
    }
}
