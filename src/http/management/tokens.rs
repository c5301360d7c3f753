//! `/token/…`: the caller's API tokens.

use axum::Json;
use axum::extract::State;
use axum::routing::on;
use serde::Serialize;
use serde_json::json;
use strata_types::limits::TOKEN_LIFETIME_S;
use strata_types::scope::Scope;
use utoipa::ToSchema;

use super::records::{DONE, Done, time};
use super::{Caller, Fields, JsonResult};
use crate::catalog::{ApiToken, Grant};
use crate::http::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input};
use crate::service::App;

const NAME: Field =
    Field::required("name", FieldKind::Text, || json!("ci")).about("The token's name, unique among the caller's.");

pub(super) static CREATE: Endpoint =
    Endpoint::post("/token/create", "createToken", Group::Accounts, |method| on(method, create))
        .summary("Makes an API token, which is shown this once")
        .input(Input::Body(&[
            NAME,
            Field::optional("scope", FieldKind::OneOfOrNull(|| Scope::ALL.map(Scope::name).to_vec()), || json!("read"))
                .about(
                    "What calls with it may do: `read` allows those that change nothing, `write`, unless given, all.",
                ),
            Field::optional("expires_in_s", FieldKind::PositiveOrNull(TOKEN_LIFETIME_S), || json!(86_400))
                .about("After how many seconds it opens nothing more, at most 3,153,600,000; unless given, never."),
        ]))
        .answer(Answer::record::<TokenAnswer>("The token, which is not shown again."))
        .errors(&[409]);

async fn create(Caller(user): Caller, State(app): State<App>, fields: Fields) -> JsonResult<TokenAnswer> {
    let name = fields.text("name")?;
    let scope = fields.optional_one_of("scope", Scope::ALL, Scope::name)?.unwrap_or_default();
    let expires_in_s = fields.optional_positive("expires_in_s")?;
    let (token, grant) = app.accounts().create_token(&user, name, scope, expires_in_s).await?;
    let Grant { scope, expires_at } = grant;
    Ok(Json(TokenAnswer {
        ok: true,
        token: token.expose().to_owned(),
        name: name.to_owned(),
        scope: scope.name(),
        expires_at: expires_at.map(time),
    }))
}

pub(super) static DELETE: Endpoint =
    Endpoint::delete("/token/delete", "deleteToken", Group::Accounts, |method| on(method, delete))
        .summary("Deletes an API token, which opens nothing from then on")
        .input(Input::Body(&[NAME]))
        .answer(DONE)
        .errors(&[404]);

async fn delete(Caller(user): Caller, State(app): State<App>, fields: Fields) -> JsonResult<Done> {
    app.accounts().delete_token(&user, fields.text("name")?).await?;
    Ok(Json(Done::OK))
}

pub(super) static LIST: Endpoint =
    Endpoint::get("/token/list", "listTokens", Group::Accounts, |method| on(method, list))
        .summary("The caller's API tokens, by name")
        .answer(Answer::record::<TokensAnswer>(
            "The names, times and scopes of the tokens, not the tokens themselves.",
        ));

async fn list(Caller(user): Caller, State(app): State<App>, _: Fields) -> JsonResult<TokensAnswer> {
    let tokens = app.accounts().tokens(&user).await?;
    Ok(Json(TokensAnswer { ok: true, tokens: tokens.into_iter().map(TokenRecord::from).collect() }))
}

/// A new API token, which is shown this once.
#[derive(Serialize, ToSchema)]
struct TokenAnswer {
    /// Always true.
    ok: bool,
    /// The token.
    token: String,
    /// Its name.
    name: String,
    /// `read` or `write`.
    scope: &'static str,
    /// From when on it opens nothing; null if never.
    expires_at: Option<String>,
}

/// An API token without what opens anything.
#[derive(Serialize, ToSchema)]
struct TokenRecord {
    /// Its name.
    name: String,
    /// When it was made.
    created_at: String,
    /// When it was last used, to the minute; null if never.
    last_used_at: Option<String>,
    /// `read` or `write`.
    scope: &'static str,
    /// From when on it opens nothing; null if never. The next new token removes those that have expired.
    expires_at: Option<String>,
}

impl From<ApiToken> for TokenRecord {
    fn from(token: ApiToken) -> Self {
        let (created_at, last_used_at) = (time(token.created_at), token.last_used_at.map(time));
        let (scope, expires_at) = (token.grant.scope.name(), token.grant.expires_at.map(time));
        TokenRecord { name: token.name, created_at, last_used_at, scope, expires_at }
    }
}

/// The envelope of the caller's API tokens, by name.
#[derive(Serialize, ToSchema)]
struct TokensAnswer {
    /// Always true.
    ok: bool,
    /// The tokens.
    tokens: Vec<TokenRecord>,
}
