//! `/token/…`: the caller's API tokens.

use axum::Json;
use axum::routing::{self, get, post};
use serde::Serialize;
use serde_json::json;
use strata_catalog::{ApiToken, TokenGrant};
use strata_types::limits::MAX_TOKEN_LIFETIME_S;
use strata_types::token_scope::TokenScope;
use utoipa::ToSchema;

use super::records::{SUCCESS_RESPONSE, SuccessResponse, format_time, response_types};
use super::{JsonResult, UserCall};
use crate::endpoint::{Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec};

pub(super) const ENDPOINTS: &[&Endpoint] = &[&CREATE_TOKEN_ENDPOINT, &DELETE_TOKEN_ENDPOINT, &LIST_TOKENS_ENDPOINT];

const TOKEN_NAME_FIELD: FieldSpec = FieldSpec::required("name", FieldKind::Text, || json!("ci"))
    .description("The name of the token, unique among your tokens.");

static CREATE_TOKEN_ENDPOINT: Endpoint =
    Endpoint::post("/token/create", "createToken", EndpointGroup::Accounts, || post(create_token))
        .summary("Creates an API token, which strata shows only once")
        .description(
            "Save the token immediately, because strata stores only its hash. For programs that only read data, create \
             a token with the scope `read`.",
        )
        .input(EndpointInput::Body(&[
            TOKEN_NAME_FIELD,
            FieldSpec::optional(
                "scope",
                FieldKind::OneOfOrNull(|| TokenScope::ALL.map(TokenScope::name).to_vec()),
                || json!("read"),
            )
            .description(
                "What the token allows: `read` allows only operations that change nothing, and `write` (the \
                     default) allows all operations.",
            ),
            FieldSpec::optional("expires_in_s", FieldKind::PositiveIntegerOrNull(MAX_TOKEN_LIFETIME_S), || {
                json!(86_400)
            })
            .description(
                "The number of seconds until the token expires, at most 3,153,600,000. By default, the token never \
                 expires.",
            ),
        ]))
        .response(EndpointResponse::for_record::<TokenResponse>("The token, which strata does not show again."))
        .errors(&[409]);

async fn create_token(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<TokenResponse> {
    let name = fields.text("name")?;
    let scope = fields.optional_one_of("scope", TokenScope::ALL, TokenScope::name)?.unwrap_or_default();
    let expires_in_s = fields.optional_positive_integer("expires_in_s")?;
    let (token, grant) = services.accounts.create_token(&user, name, scope, expires_in_s).await?;
    let TokenGrant { scope, expires_at } = grant;
    let token = token.expose().to_owned();
    Ok(Json(TokenResponse::new(token, name.to_owned(), scope.name(), expires_at.map(format_time))))
}

static DELETE_TOKEN_ENDPOINT: Endpoint =
    Endpoint::delete("/token/delete", "deleteToken", EndpointGroup::Accounts, || routing::delete(delete_token))
        .summary("Deletes an API token, which stops working immediately")
        .description("Programs that still use the token get 401.")
        .input(EndpointInput::Body(&[TOKEN_NAME_FIELD]))
        .response(SUCCESS_RESPONSE)
        .errors(&[404]);

async fn delete_token(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<SuccessResponse> {
    services.accounts.delete_token(&user, fields.text("name")?).await?;
    Ok(Json(SuccessResponse::OK))
}

static LIST_TOKENS_ENDPOINT: Endpoint =
    Endpoint::get("/token/list", "listTokens", EndpointGroup::Accounts, || get(list_tokens))
        .summary("Lists your API tokens, ordered by name")
        .description("Expired tokens remain in the list until you create another token.")
        .response(EndpointResponse::for_record::<TokensResponse>(
            "The names, times, and scopes of the tokens, but not the tokens themselves.",
        ));

async fn list_tokens(UserCall { user, services, .. }: UserCall) -> JsonResult<TokensResponse> {
    let tokens = services.accounts.tokens(&user).await?;
    Ok(Json(TokensResponse::new(tokens.into_iter().map(TokenRecord::from).collect())))
}

response_types! {
    /// A new API token, which strata shows only once.
    TokenResponse {
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
    TokensResponse {
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
            created_at: format_time(token.created_at),
            last_used_at: token.last_used_at.map(format_time),
            scope: token.grant.scope.name(),
            expires_at: token.grant.expires_at.map(format_time),
        }
    }
}
