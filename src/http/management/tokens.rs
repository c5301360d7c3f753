//! `/token/…`: the caller's API tokens.

use axum::Json;
use axum::extract::State;
use axum::routing::{self, get, post};
use serde::Serialize;
use serde_json::json;
use strata_catalog::{ApiToken, Grant};
use strata_types::limits::TOKEN_LIFETIME_S;
use strata_types::scope::Scope;
use utoipa::ToSchema;

use super::records::{DONE, Done, answers, time};
use super::{Caller, Fields, JsonResult};
use crate::AppState;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input};

pub(super) const ENDPOINTS: &[&Endpoint] = &[&CREATE, &DELETE, &LIST];

const NAME: Field =
    Field::required("name", FieldKind::Text, || json!("ci")).about("The name of the token, unique among your tokens.");

static CREATE: Endpoint = Endpoint::post("/token/create", "createToken", Group::Accounts, || post(create))
    .summary("Creates an API token, which strata shows only once")
    .description(
        "Save the token immediately, because strata stores only its hash. For programs that only read data, create \
             a token with the scope `read`.",
    )
    .input(Input::Body(&[
        NAME,
        Field::optional("scope", FieldKind::OneOfOrNull(|| Scope::ALL.map(Scope::name).to_vec()), || json!("read"))
            .about(
                "What the token allows: `read` allows only operations that change nothing, and `write` (the \
                     default) allows all operations.",
            ),
        Field::optional("expires_in_s", FieldKind::PositiveOrNull(TOKEN_LIFETIME_S), || json!(86_400)).about(
            "The number of seconds until the token expires, at most 3,153,600,000. By default, the token never \
                 expires.",
        ),
    ]))
    .answer(Answer::record::<TokenAnswer>("The token, which strata does not show again."))
    .errors(&[409]);

async fn create(Caller(user): Caller, State(services): State<AppState>, fields: Fields) -> JsonResult<TokenAnswer> {
    let name = fields.text("name")?;
    let scope = fields.optional_one_of("scope", Scope::ALL, Scope::name)?.unwrap_or_default();
    let expires_in_s = fields.optional_positive("expires_in_s")?;
    let (token, grant) = services.accounts.create_token(&user, name, scope, expires_in_s).await?;
    let Grant { scope, expires_at } = grant;
    let token = token.expose().to_owned();
    Ok(Json(TokenAnswer::new(token, name.to_owned(), scope.name(), expires_at.map(time))))
}

static DELETE: Endpoint = Endpoint::delete("/token/delete", "deleteToken", Group::Accounts, || routing::delete(delete))
    .summary("Deletes an API token, which stops working immediately")
    .description("Programs that still use the token get 401.")
    .input(Input::Body(&[NAME]))
    .answer(DONE)
    .errors(&[404]);

async fn delete(Caller(user): Caller, State(services): State<AppState>, fields: Fields) -> JsonResult<Done> {
    services.accounts.delete_token(&user, fields.text("name")?).await?;
    Ok(Json(Done::OK))
}

static LIST: Endpoint = Endpoint::get("/token/list", "listTokens", Group::Accounts, || get(list))
    .summary("Lists your API tokens, ordered by name")
    .description("Expired tokens remain in the list until you create another token.")
    .answer(Answer::record::<TokensAnswer>(
        "The names, times, and scopes of the tokens, but not the tokens themselves.",
    ));

async fn list(Caller(user): Caller, State(services): State<AppState>, _: Fields) -> JsonResult<TokensAnswer> {
    let tokens = services.accounts.tokens(&user).await?;
    Ok(Json(TokensAnswer::new(tokens.into_iter().map(TokenRecord::from).collect())))
}

answers! {
    /// A new API token, which strata shows only once.
    TokenAnswer {
        /// The token.
        token: String,
        /// The name of the token.
        name: String,
        /// The scope: `read` or `write`.
        scope: &'static str,
        /// When the token expires, or null if it never expires.
        #[schema(format = DateTime)]
        expires_at: Option<String>,
    }

    /// A response that contains your API tokens, ordered by name.
    TokensAnswer {
        /// The tokens.
        tokens: Vec<TokenRecord>,
    }
}

/// An API token, without its secret.
#[derive(Serialize, ToSchema)]
struct TokenRecord {
    /// The name of the token.
    name: String,
    /// When the token was created.
    #[schema(format = DateTime)]
    created_at: String,
    /// When the token was last used, to the minute, or null if never.
    #[schema(format = DateTime)]
    last_used_at: Option<String>,
    /// The scope: `read` or `write`.
    scope: &'static str,
    /// When the token expires, or null if it never expires. strata removes expired tokens when you create another one.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

impl From<ApiToken> for TokenRecord {
    fn from(token: ApiToken) -> Self {
        TokenRecord {
            name: token.name,
            created_at: time(token.created_at),
            last_used_at: token.last_used_at.map(time),
            scope: token.grant.scope.name(),
            expires_at: token.grant.expires_at.map(time),
        }
    }
}
