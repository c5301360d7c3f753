//! `strata user`: manages the users, who own datasets.

use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::Serialize;
use strata_catalog::ApiToken;
use strata_config::Config;
use strata_service::{Accounts, ManageError, Purpose, Services};
use strata_types::scope::Scope;
use strata_types::user::{Plan, User};

use super::error::CliError;
use super::table::{Align, Column, PAGE, Table, visible};
use super::{closing, duration, print};

/// Most bytes that are read of a password, so that a file given by mistake is not read to its end.
const PASSWORD_BYTES: u64 = 4096;

/// Manage users
#[derive(Debug, Args)]
pub(super) struct Arguments {
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
        #[arg(long, value_name = "free|pro|scale", value_parser = plans())]
        plan: Plan,
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
        #[arg(value_name = "PLAN", value_parser = plans())]
        plan: Plan,
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
        #[arg(long, value_parser = scopes(), default_value = Scope::Write.name())]
        scope: Scope,
        /// Lifetime of the token, such as 90d [default: does not expire]
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
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

const USER_COLUMNS: &[Column<UserLine>] = &[
    ("EMAIL", Align::Left, |line| line.email.clone()),
    ("PLAN", Align::Left, |line| line.plan.to_owned()),
    ("CREATED", Align::Left, |line| line.created_at.clone()),
];

#[derive(Serialize)]
struct TokenLine {
    name: String,
    scope: &'static str,
    created_at: String,
    last_used_at: Option<String>,
    expires_at: Option<String>,
}

const TOKEN_COLUMNS: &[Column<TokenLine>] = &[
    ("NAME", Align::Left, |line| visible(&line.name)),
    ("SCOPE", Align::Left, |line| line.scope.to_owned()),
    ("CREATED", Align::Left, |line| line.created_at.clone()),
    ("LAST USED", Align::Left, |line| line.last_used_at.clone().unwrap_or_else(|| "never".to_owned())),
    ("EXPIRES", Align::Left, |line| line.expires_at.clone().unwrap_or_else(|| "never".to_owned())),
];

fn plans() -> impl TypedValueParser<Value = Plan> {
    PossibleValuesParser::new(Plan::ALL.map(Plan::name)).try_map(|name| name.parse::<Plan>())
}

fn scopes() -> impl TypedValueParser<Value = Scope> {
    PossibleValuesParser::new(Scope::ALL.map(Scope::name)).try_map(|name| name.parse::<Scope>())
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match duration::parse_with_unit(text)? {
        span if span.is_zero() => Err("a token must be valid for at least 1s".to_owned()),
        span => Ok(span),
    }
}

impl Arguments {
    /// Asks for a password before anything is opened.
    pub(super) async fn run(self, config: Config) -> Result<(), CliError> {
        let password = match self.command {
            UserCommand::Add { .. } | UserCommand::Passwd { .. } if io::stdin().is_terminal() => ask_password()?,
            UserCommand::Add { .. } | UserCommand::Passwd { .. } => read_password(io::stdin().lock())?,
            _ => String::new(),
        };
        let purpose = match self.command {
            UserCommand::Add { .. } => Purpose::Serve,
            _ => Purpose::Records,
        };
        let services = Services::open(&config, purpose).await?;
        closing(&services, apply(self.command, &password, &services.accounts)).await
    }
}

async fn apply(command: UserCommand, password: &str, accounts: &Accounts) -> Result<(), CliError> {
    match command {
        UserCommand::Add { email, plan, token } => {
            let added = accounts.add_user(&email, password, plan, token.as_deref()).await?;
            let token = added.map_or(String::new(), |token| format!("{}\n", token.expose()));
            print(&format!("added {email} on the {plan} plan\n{token}"))
        }
        UserCommand::Passwd { email } => {
            accounts.set_password(&email, password).await?;
            print(&format!("changed the password for {email}\n"))
        }
        UserCommand::Plan { email, plan } => {
            accounts.set_plan(&email, plan).await?;
            print(&format!("changed the plan for {email} to {plan}\n"))
        }
        UserCommand::Token { email, name, scope, expires_in } => {
            let user = accounts.user_by_email(&email).await?;
            let expires_in_s = expires_in.map(|span| span.as_secs());
            let created = accounts.create_token(&user, &name, scope, expires_in_s).await;
            let (token, grant) = created.map_err(token_error("failed to create the token"))?;
            let expires = match grant.expires_at {
                Some(time) => format!("expires at {}", to_the_second(time)),
                None => "does not expire".to_owned(),
            };
            print(&format!(
                "created the token {name} for {email} with the scope {}; it {expires}\n{}\n",
                scope.name(),
                token.expose()
            ))
        }
        UserCommand::Tokens { email, json } => list_tokens(accounts, &email, json).await,
        UserCommand::Revoke { email, name } => {
            let user = accounts.user_by_email(&email).await?;
            match accounts.delete_token(&user, &name).await {
                Ok(()) => print(&format!("revoked the token {name} for {email}\n")),
                Err(ManageError::TokenNotFound) => Err(CliError::NoToken { email, name }),
                Err(error) => Err(token_error("failed to revoke the token")(error)),
            }
        }
        UserCommand::Remove { email } => {
            accounts.remove_user(&email).await?;
            print(&format!("removed {email}\n"))
        }
        UserCommand::List { json } => list(accounts, json).await,
    }
}

fn to_the_second(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

async fn list(accounts: &Accounts, json: bool) -> Result<(), CliError> {
    let mut table = Table::new(USER_COLUMNS);
    let mut after = None;
    loop {
        let users = accounts.users(after, PAGE).await?;
        let last = users.last().map(|user| user.id);
        let line = |User { email, plan, created_at, .. }| UserLine {
            email,
            plan: plan.name(),
            created_at: to_the_second(created_at),
        };
        table.print(&users.into_iter().map(line).collect::<Vec<_>>(), json)?;
        if last.is_none() {
            return Ok(());
        }
        after = last;
    }
}

/// Prints the tokens of a user by name, at most [`limits::TOKENS`](strata_types::limits::TOKENS).
async fn list_tokens(accounts: &Accounts, email: &str, json: bool) -> Result<(), CliError> {
    let user = accounts.user_by_email(email).await?;
    let tokens = accounts.tokens(&user).await.map_err(token_error("failed to list the tokens"))?;
    let line = |token: ApiToken| TokenLine {
        name: token.name,
        scope: token.grant.scope.name(),
        created_at: to_the_second(token.created_at),
        last_used_at: token.last_used_at.map(to_the_second),
        expires_at: token.grant.expires_at.map(to_the_second),
    };
    Table::new(TOKEN_COLUMNS).print(&tokens.into_iter().map(line).collect::<Vec<_>>(), json)
}

fn token_error(what: &'static str) -> impl FnOnce(ManageError) -> CliError {
    move |source| CliError::Token { what, source }
}

fn ask_password() -> Result<String, CliError> {
    let ask = |prompt: &str| rpassword::prompt_password(prompt).map_err(unreadable);
    let password = ask("Password: ")?;
    if password.is_empty() {
        return Err(CliError::Password("the password is empty"));
    }
    if ask("Repeat the password: ")? != password {
        return Err(CliError::Password("the passwords do not match"));
    }
    Ok(password)
}

/// The first line, without its end.
fn read_password(input: impl BufRead) -> Result<String, CliError> {
    let mut line = String::new();
    input.take(PASSWORD_BYTES + 1).read_line(&mut line).map_err(unreadable)?;
    let password = line.strip_suffix('\n').unwrap_or(&line);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(CliError::Password("the password is missing: the first line of standard input must contain it"));
    }
    if line.len() as u64 > PASSWORD_BYTES {
        return Err(CliError::Password("the password is longer than 4096 bytes"));
    }
    Ok(password.to_owned())
}

fn unreadable(source: io::Error) -> CliError {
    CliError::Io { what: "failed to read the password", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_of_standard_input() {
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
