//! Table `users`.

use crate::model::user::{Plan, User, email_key};

use super::convert::{from_time, now, to_named, to_time, to_unsigned};
use super::engine::Value;
use super::{Catalog, CatalogError, UserId};

#[derive(sqlx::FromRow)]
struct UserRow {
    user_id: i64,
    email: String,
    password_hash: String,
    plan: String,
    created_at: i64,
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
    ///
    /// # Errors
    ///
    /// [`CatalogError::EmailTaken`] if there is one with the same address, whatever its case.
    pub async fn add_user(&self, email: &str, password_hash: &str, plan: Plan) -> Result<UserId, CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let row: Option<(i64,)> = transaction
            .fetch_optional(
                "INSERT INTO users (email, email_key, password_hash, plan, created_at)
                 VALUES ($1, $2, $3, $4, $5)
                 ON CONFLICT (email_key) DO NOTHING
                 RETURNING user_id",
                &[
                    Value::Text(email.trim()),
                    Value::Text(&email_key(email)),
                    Value::Text(password_hash),
                    Value::Text(plan.name()),
                    from_time(now()),
                ],
            )
            .await?;
        let (user_id,) = row.ok_or(CatalogError::EmailTaken)?;
        transaction.commit().await?;
        Ok(UserId::new(to_unsigned(user_id, "users.user_id")?))
    }

    /// The user with this address, whatever its case. One indexed look-up.
    pub async fn user_by_email(&self, email: &str) -> Result<Option<User>, CatalogError> {
        let row: Option<UserRow> = self
            .engine
            .fetch_optional(
                "SELECT user_id, email, password_hash, plan, created_at FROM users WHERE email_key = $1",
                &[Value::Text(&email_key(email))],
            )
            .await?;
        row.map(User::try_from).transpose()
    }
}
