//! Table `users`.

use super::convert::{from_time, text, to_named, to_time, to_unsigned};
use super::engine::Value;
use super::locks::lock_owner;
use super::{Catalog, CatalogError, UserId};
use crate::model::user::{Plan, User, email_key};

macro_rules! user_columns {
    () => {
        "users.user_id, users.email, users.email_key, users.password_hash, users.plan, users.created_at"
    };
}
pub(super) use user_columns;

#[derive(sqlx::FromRow)]
pub(super) struct UserRow {
    user_id: i64,
    email: String,
    email_key: String,
    password_hash: String,
    plan: String,
    created_at: i64,
}

impl UserRow {
    pub(super) fn id(&self) -> i64 {
        self.user_id
    }

    /// The recorded address, in the form for comparisons.
    pub(super) fn email_key(&self) -> &str {
        &self.email_key
    }
}

impl TryFrom<UserRow> for User {
    type Error = CatalogError;

    fn try_from(row: UserRow) -> Result<Self, Self::Error> {
        Ok(User {
            id: UserId::new(to_unsigned(row.user_id, "users.user_id")?),
            email: row.email,
            password_hash: row.password_hash,
            plan: to_named::<Plan>(row.plan, "users.plan")?,
            created_at: to_time(row.created_at, "users.created_at")?,
        })
    }
}

impl Catalog {
    /// Adds a user. `password_hash` is an Argon2id hash in PHC string form.
    pub async fn add_user(&self, email: &str, password_hash: &str, plan: Plan) -> Result<UserId, CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let row: Option<(i64,)> = transaction
            .fetch_optional(
                "INSERT INTO users (email, email_key, password_hash, plan, created_at)
                 VALUES ($1, $2, $3, $4, $5)
                 ON CONFLICT (email_key) DO NOTHING
                 RETURNING user_id",
                &[
                    text(email.trim(), "email")?,
                    Value::Text(&email_key(email)),
                    Value::Text(password_hash),
                    Value::Text(plan.name()),
                    from_time(self.now()),
                ],
            )
            .await?;
        let (user_id,) = row.ok_or(CatalogError::EmailTaken)?;
        transaction.commit().await?;
        Ok(UserId::new(to_unsigned(user_id, "users.user_id")?))
    }

    /// The user with this address, in any case. One indexed look-up.
    pub async fn user_by_email(&self, email: &str) -> Result<Option<User>, CatalogError> {
        if email.contains('\0') {
            return Ok(None);
        }
        let row: Option<UserRow> = self
            .engine
            .fetch_optional(
                concat!("SELECT ", user_columns!(), " FROM users WHERE email_key = $1"),
                &[Value::Text(&email_key(email))],
            )
            .await?;
        row.map(User::try_from).transpose()
    }

    /// The user with this id. One look-up by primary key.
    pub async fn user(&self, id: UserId) -> Result<Option<User>, CatalogError> {
        let row: Option<UserRow> = self
            .engine
            .fetch_optional(concat!("SELECT ", user_columns!(), " FROM users WHERE user_id = $1"), &[id.into()])
            .await?;
        row.map(User::try_from).transpose()
    }

    /// The users with ids greater than `after`, by id, at most `limit`. One range of the primary key.
    pub async fn users(&self, after: Option<UserId>, limit: u32) -> Result<Vec<User>, CatalogError> {
        // A number that the database cannot hold is greater than all ids.
        let after = after.map_or(0, |id| i64::try_from(id.get()).unwrap_or(i64::MAX));
        let sql =
            concat!("SELECT ", user_columns!(), " FROM users WHERE users.user_id > $1 ORDER BY users.user_id LIMIT $2");
        let values = &[Value::Integer(after), Value::Integer(limit.into())];
        let rows: Vec<UserRow> = self.engine.fetch_all(sql, values).await?;
        rows.into_iter().map(User::try_from).collect()
    }

    /// Replaces the user's password, given as an Argon2id hash in PHC string form, and ends all sessions of the user.
    /// So nobody who knew the old password stays logged in. API tokens stay.
    pub async fn set_password(&self, user: UserId, password_hash: &str) -> Result<(), CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE users SET password_hash = $2 WHERE user_id = $1";
        if transaction.execute(sql, &[user.into(), Value::Text(password_hash)]).await? == 0 {
            return Err(CatalogError::NotFound);
        }
        transaction.execute("DELETE FROM sessions WHERE user_id = $1", &[user.into()]).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// As [`Catalog::set_password`], but for who knows the old password, given as the hash that was compared. The
    /// session with the hash `kept` stays.
    ///
    /// # Errors
    /// [`CatalogError::Conflict`] if the user has another password by now.
    pub async fn change_password(
        &self,
        user: UserId,
        old_hash: &str,
        new_hash: &str,
        kept: Option<&str>,
    ) -> Result<(), CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE users SET password_hash = $2 WHERE user_id = $1 AND password_hash = $3";
        let values = &[user.into(), Value::Text(new_hash), Value::Text(old_hash)];
        if transaction.execute(sql, values).await? == 0 {
            return Err(CatalogError::Conflict);
        }
        // No session has an empty hash.
        let sql = "DELETE FROM sessions WHERE user_id = $1 AND session_hash <> $2";
        transaction.execute(sql, &[user.into(), Value::Text(kept.unwrap_or_default())]).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Removes a user without datasets, with the user's tokens and sessions. The id is never used again.
    pub async fn remove_user(&self, user: UserId) -> Result<(), CatalogError> {
        let mut transaction = self.engine.begin().await?;
        // Whoever creates a dataset, a token or a session of the user at the same time waits, and finds no user.
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
        transaction.commit().await?;
        Ok(())
    }

    /// Changes the user's plan. Datasets beyond the new plan's limit stay.
    pub async fn set_plan(&self, user: UserId, plan: Plan) -> Result<(), CatalogError> {
        let sql = "UPDATE users SET plan = $2 WHERE user_id = $1";
        match self.engine.write(sql, &[user.into(), Value::Text(plan.name())]).await? {
            0 => Err(CatalogError::NotFound),
            _ => Ok(()),
        }
    }
}
