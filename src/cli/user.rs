//! `strata user`: manages the users, who own datasets.

use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::Serialize;
use strata_catalog::ApiToken;
use strata_config::Config;
use strata_service::{AccountService, ManageError, ProcessPurpose, Services};
use strata_types::token_scope::TokenScope;
use strata_types::user::{User, UserPlan};

use super::error::CliError;
use super::table::{ColumnAlign, PAGE_ROWS, TextTable, TextTableColumn, escape_control_characters};
use super::{duration, print_stdout, run_and_close};

/// Limit for a password on standard input, so that a wrong file is not read to its end.
const MAX_PASSWORD_INPUT_BYTES: u64 = 4096;

/// Manage users
#[derive(Debug, Args)]
pub(super) struct UserArguments {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Add a user. Reads the password from standard input, or prompts for it on a terminal
    Add {
        /// Email address
        #[arg(value_name = "EMAIL")]
        email: String,
        /// Plan
        #[arg(long, value_name = "free|pro|scale", value_parser = plan_value_parser())]
        plan: UserPlan,
        /// Also create an API token with this name, and print it on the last line
        #[arg(long, value_name = "NAME")]
        token: Option<String>,
    },
    /// Change a user's password and end all of the user's sessions. Reads the password in the same way as `add`
    Passwd {
        /// Email address
        #[arg(value_name = "EMAIL")]
        email: String,
    },
    /// Change a user's plan. Existing datasets remain, even if they exceed the new limit
    Plan {
        /// Email address
        #[arg(value_name = "EMAIL")]
        email: String,
        /// Plan
        #[arg(value_name = "PLAN", value_parser = plan_value_parser())]
        plan: UserPlan,
    },
    /// Create an API token for a user, and print it on the last line. The token is not shown again
    Token {
        /// Email address
        #[arg(value_name = "EMAIL")]
        email: String,
        /// Token name, which must be unique for the user
        #[arg(long)]
        name: String,
        /// Calls that the token allows: only calls that change nothing (read), or all calls (write)
        #[arg(long, value_parser = scope_value_parser(), default_value = TokenScope::Write.name())]
        scope: TokenScope,
        /// Lifetime of the token, such as 90d [default: does not expire]
        #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
        expires_in: Option<Duration>,
    },
    /// List a user's API tokens by name, without their secret values
    Tokens {
        /// Email address
        #[arg(value_name = "EMAIL")]
        email: String,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Revoke a user's API token. The token stops working immediately
    Revoke {
        /// Email address
        #[arg(value_name = "EMAIL")]
        email: String,
        /// Token name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Remove a user who has no datasets, and delete the user's tokens and sessions
    Remove {
        /// Email address
        #[arg(value_name = "EMAIL")]
        email: String,
    },
    /// List all users and their plans
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct UserLine {
    email: String,
    plan: &'static str,
    created_at: String,
}

const USER_COLUMNS: &[TextTableColumn<UserLine>] = &[
    ("EMAIL", ColumnAlign::Left, |line| line.email.clone()),
    ("PLAN", ColumnAlign::Left, |line| line.plan.to_owned()),
    ("CREATED", ColumnAlign::Left, |line| line.created_at.clone()),
];

#[derive(Serialize)]
struct TokenLine {
    name: String,
    scope: &'static str,
    created_at: String,
    last_used_at: Option<String>,
    expires_at: Option<String>,
}

const TOKEN_COLUMNS: &[TextTableColumn<TokenLine>] = &[
    ("NAME", ColumnAlign::Left, |line| escape_control_characters(&line.name)),
    ("SCOPE", ColumnAlign::Left, |line| line.scope.to_owned()),
    ("CREATED", ColumnAlign::Left, |line| line.created_at.clone()),
    ("LAST USED", ColumnAlign::Left, |line| line.last_used_at.clone().unwrap_or_else(|| "never".to_owned())),
    ("EXPIRES", ColumnAlign::Left, |line| line.expires_at.clone().unwrap_or_else(|| "never".to_owned())),
];

fn plan_value_parser() -> impl TypedValueParser<Value = UserPlan> {
    PossibleValuesParser::new(UserPlan::ALL.map(UserPlan::name)).try_map(|name| name.parse::<UserPlan>())
}

fn scope_value_parser() -> impl TypedValueParser<Value = TokenScope> {
    PossibleValuesParser::new(TokenScope::ALL.map(TokenScope::name)).try_map(|name| name.parse::<TokenScope>())
}

fn parse_lifetime(text: &str) -> Result<Duration, String> {
    match duration::parse_duration_with_unit(text)? {
        span if span.is_zero() => Err("a token must be valid for at least 1s".to_owned()),
        span => Ok(span),
    }
}

impl UserArguments {
    /// Runs a user command. Reads the password, if any, before opening the metadata database.
    pub(super) async fn run(self, config: Config) -> Result<(), CliError> {
        let password = match self.command {
            UserCommand::Add { .. } | UserCommand::Passwd { .. } if io::stdin().is_terminal() => prompt_password()?,
            UserCommand::Add { .. } | UserCommand::Passwd { .. } => read_password(io::stdin().lock())?,
            _ => String::new(),
        };
        let purpose = match self.command {
            UserCommand::Add { .. } => ProcessPurpose::Serve,
            _ => ProcessPurpose::MaintainRecords,
        };
        let services = Services::open(&config, purpose).await?;
        run_and_close(&services, run_user_command(self.command, &password, &services.accounts)).await
    }
}

async fn run_user_command(command: UserCommand, password: &str, accounts: &AccountService) -> Result<(), CliError> {
    match command {
        UserCommand::Add { email, plan, token } => {
            let added = accounts.add_user(&email, password, plan, token.as_deref()).await?;
            let token = added.map_or(String::new(), |token| format!("{}\n", token.expose()));
            print_stdout(&format!("added {email} on the {plan} plan\n{token}"))
        }
        UserCommand::Passwd { email } => {
            accounts.set_password(&email, password).await?;
            print_stdout(&format!("changed the password for {email}\n"))
        }
        UserCommand::Plan { email, plan } => {
            accounts.set_plan(&email, plan).await?;
            print_stdout(&format!("changed the plan for {email} to {plan}\n"))
        }
        UserCommand::Token { email, name, scope, expires_in } => {
            let user = accounts.user_by_email(&email).await?;
            let created = accounts.create_token(&user, &name, scope, expires_in.map(|span| span.as_secs())).await;
            let (token, grant) = created.map_err(token_error("failed to create the token"))?;
            let expires = match grant.expires_at {
                Some(time) => format!("expires at {}", format_timestamp(time)),
                None => "does not expire".to_owned(),
            };
            let token = token.expose();
            let scope = scope.name();
            let text = format!("created the token {name} for {email} with the scope {scope}; it {expires}\n{token}\n");
            print_stdout(&text)
        }
        UserCommand::Tokens { email, json } => list_tokens(accounts, &email, json).await,
        UserCommand::Revoke { email, name } => {
            let user = accounts.user_by_email(&email).await?;
            match accounts.delete_token(&user, &name).await {
                Ok(()) => print_stdout(&format!("revoked the token {name} for {email}\n")),
                Err(ManageError::TokenNotFound) => Err(CliError::NoToken { email, name }),
                Err(error) => Err(token_error("failed to revoke the token")(error)),
            }
        }
        UserCommand::Remove { email } => {
            accounts.remove_user(&email).await?;
            print_stdout(&format!("removed {email}\n"))
        }
        UserCommand::List { json } => list_users(accounts, json).await,
    }
}

fn format_timestamp(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

async fn list_users(accounts: &AccountService, json: bool) -> Result<(), CliError> {
    let mut table = TextTable::new(USER_COLUMNS);
    let mut after = None;
    loop {
        let users = accounts.users(after, PAGE_ROWS).await?;
        let last = users.last().map(|user| user.id);
        let line = |User { email, plan, created_at, .. }| UserLine {
            email,
            plan: plan.name(),
            created_at: format_timestamp(created_at),
        };
        table.print(&users.into_iter().map(line).collect::<Vec<_>>(), json)?;
        if last.is_none() {
            return Ok(());
        }
        after = last;
    }
}

async fn list_tokens(accounts: &AccountService, email: &str, json: bool) -> Result<(), CliError> {
    let user = accounts.user_by_email(email).await?;
    let tokens = accounts.tokens(&user).await.map_err(token_error("failed to list the tokens"))?;
    let line = |token: ApiToken| TokenLine {
        name: token.name,
        scope: token.grant.scope.name(),
        created_at: format_timestamp(token.created_at),
        last_used_at: token.last_used_at.map(format_timestamp),
        expires_at: token.grant.expires_at.map(format_timestamp),
    };
    TextTable::new(TOKEN_COLUMNS).print(&tokens.into_iter().map(line).collect::<Vec<_>>(), json)
}

fn token_error(what: &'static str) -> impl FnOnce(ManageError) -> CliError {
    move |source| CliError::Token { what, source }
}

fn prompt_password() -> Result<String, CliError> {
    let ask = |prompt: &str| rpassword::prompt_password(prompt).map_err(password_read_error);
    let password = ask("Password: ")?;
    if password.is_empty() {
        return Err(CliError::Password("the password is empty"));
    }
    if ask("Repeat the password: ")? != password {
        return Err(CliError::Password("the passwords do not match"));
    }
    Ok(password)
}

fn read_password(input: impl BufRead) -> Result<String, CliError> {
    let mut line = String::new();
    input.take(MAX_PASSWORD_INPUT_BYTES + 1).read_line(&mut line).map_err(password_read_error)?;
    let password = line.strip_suffix('\n').unwrap_or(&line);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(CliError::Password("the password is missing: the first line of standard input must contain it"));
    }
    if line.len() as u64 > MAX_PASSWORD_INPUT_BYTES {
        return Err(CliError::Password("the password is longer than 4096 bytes"));
    }
    Ok(password.to_owned())
}

fn password_read_error(source: io::Error) -> CliError {
    CliError::Io { what: "failed to read the password", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_first_line_of_standard_input() {
        for input in ["pass word ", "pass word \n", "pass word \r\n", "pass word \nmore\n"] {
            assert_eq!(read_password(input.as_bytes()).ok().as_deref(), Some("pass word "), "{input:?}");
        }
        let long = "x".repeat(5000);
        for input in ["", "\n", "\r\n", "\npassword\n", &long] {
            assert!(read_password(input.as_bytes()).is_err(), "{input:?}");
        }
        assert!(read_password(&b"\xff\n"[..]).is_err());
    }
}
