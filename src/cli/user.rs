//! `strata user`: manages the users, who own datasets.

use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::error::CliError;
use super::table::{Align, PAGE, Table, visible};
use super::{closing, duration, json_line, print};
use crate::catalog::ApiToken;
use crate::config::Config;
use crate::model::scope::Scope;
use crate::model::user::{Plan, User};
use crate::service::{App, ManageError};

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
    /// Add a user; the password is read from standard input, or asked for on a terminal
    Add(AddArguments),
    /// Change a user's password and end all of the user's sessions. The password is read as by `add`
    Passwd(PasswdArguments),
    /// Change a user's plan; datasets beyond its limit stay
    Plan(PlanArguments),
    /// Make an API token of a user. The last line is the token, which is not shown again
    Token(TokenArguments),
    /// List a user's API tokens, by name, without their secrets
    Tokens(TokensArguments),
    /// Revoke an API token of a user, which opens nothing from then on
    Revoke(RevokeArguments),
    /// Remove a user without datasets; the user's tokens and sessions end
    Remove(RemoveArguments),
    /// List all users with their plans
    List(ListArguments),
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// The line about a user.
#[derive(Serialize)]
struct UserLine<'a> {
    email: &'a str,
    plan: &'static str,
    created_at: String,
}

#[derive(Debug, Args)]
pub(super) struct AddArguments {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
    /// The plan
    #[arg(long, value_name = "free|pro|scale", value_parser = plans())]
    plan: Plan,
    /// Also make an API token of this name. The last line is the token
    #[arg(long, value_name = "NAME")]
    token: Option<String>,
}

#[derive(Debug, Args)]
struct PasswdArguments {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
}

#[derive(Debug, Args)]
pub(super) struct TokenArguments {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
    /// The token's name, unique among those of the user
    #[arg(long)]
    name: String,
    /// What calls with it may do: those that change nothing, or all
    #[arg(long, value_parser = scopes(), default_value = Scope::Write.name())]
    scope: Scope,
    /// When it opens nothing more, such as 90d [default: never]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires_in: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct TokensArguments {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// The line about an API token.
#[derive(Serialize)]
struct TokenLine {
    name: String,
    scope: &'static str,
    created_at: String,
    last_used_at: Option<String>,
    expires_at: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RevokeArguments {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
    /// The token's name
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
}

#[derive(Debug, Args)]
pub(super) struct PlanArguments {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
    /// The plan
    #[arg(value_name = "PLAN", value_parser = plans())]
    plan: Plan,
}

fn plans() -> impl TypedValueParser<Value = Plan> {
    PossibleValuesParser::new(Plan::ALL.map(Plan::name)).try_map(|name| name.parse::<Plan>())
}

fn scopes() -> impl TypedValueParser<Value = Scope> {
    PossibleValuesParser::new(Scope::ALL.map(Scope::name)).try_map(|name| name.parse::<Scope>())
}

/// How long a token is valid.
fn lifetime(text: &str) -> Result<Duration, String> {
    match duration::parse_with_unit(text)? {
        span if span.is_zero() => Err("a token is valid for 1s at least".to_owned()),
        span => Ok(span),
    }
}

/// A user command whose questions have been answered.
pub(super) enum Prepared {
    Add { arguments: AddArguments, password: String },
    Passwd { email: String, password: String },
    Plan(PlanArguments),
    Token(TokenArguments),
    Tokens(TokensArguments),
    Revoke(RevokeArguments),
    Remove(RemoveArguments),
    List(ListArguments),
}

impl Arguments {
    /// Asks for the missing values.
    pub(super) fn prepare(self) -> Result<Prepared, CliError> {
        let password = || if io::stdin().is_terminal() { ask_password() } else { read_password(io::stdin().lock()) };
        Ok(match self.command {
            UserCommand::Add(arguments) => Prepared::Add { arguments, password: password()? },
            UserCommand::Passwd(arguments) => Prepared::Passwd { email: arguments.email, password: password()? },
            UserCommand::Plan(arguments) => Prepared::Plan(arguments),
            UserCommand::Token(arguments) => Prepared::Token(arguments),
            UserCommand::Tokens(arguments) => Prepared::Tokens(arguments),
            UserCommand::Revoke(arguments) => Prepared::Revoke(arguments),
            UserCommand::Remove(arguments) => Prepared::Remove(arguments),
            UserCommand::List(arguments) => Prepared::List(arguments),
        })
    }
}

impl Prepared {
    /// Runs the command.
    pub(super) async fn run(self, config: Config) -> Result<(), CliError> {
        let app = match self {
            Prepared::Add { .. } => App::open(&config).await?,
            Prepared::Passwd { .. }
            | Prepared::Plan(_)
            | Prepared::Token(_)
            | Prepared::Tokens(_)
            | Prepared::Revoke(_)
            | Prepared::Remove(_)
            | Prepared::List(_) => App::open_records(&config).await?,
        };
        closing(&app, self.apply(&app)).await
    }

    async fn apply(self, app: &App) -> Result<(), CliError> {
        match self {
            Prepared::Add { arguments: AddArguments { email, plan, token }, password } => {
                let added = app.accounts().add_user(&email, &password, plan, token.as_deref()).await?;
                let token = added.token.map_or(String::new(), |token| format!("{}\n", token.expose()));
                print(&format!("added {email} with the plan {plan}\n{token}"))
            }
            Prepared::Passwd { email, password } => {
                app.accounts().set_password(&email, &password).await?;
                print(&format!("changed the password of {email}\n"))
            }
            Prepared::Plan(PlanArguments { email, plan }) => {
                app.accounts().set_plan(&email, plan).await?;
                print(&format!("{email} has the plan {plan}\n"))
            }
            Prepared::Token(TokenArguments { email, name, scope, expires_in }) => {
                let user = app.accounts().user_by_email(&email).await?;
                let expires_in_s = expires_in.map(|span| span.as_secs());
                let making = app.accounts().create_token(&user, &name, scope, expires_in_s);
                let (token, grant) = making.await.map_err(CliError::Token)?;
                let expires = match grant.expires_at {
                    Some(time) => format!("expires at {}", time.to_rfc3339_opts(SecondsFormat::Secs, true)),
                    None => "does not expire".to_owned(),
                };
                print(&format!(
                    "made the token {name} of {email} with the scope {}; it {expires}\n{}\n",
                    scope.name(),
                    token.expose()
                ))
            }
            Prepared::Tokens(arguments) => list_tokens(app, &arguments).await,
            Prepared::Revoke(RevokeArguments { email, name }) => {
                let user = app.accounts().user_by_email(&email).await?;
                app.accounts().delete_token(&user, &name).await.map_err(|error| match error {
                    ManageError::TokenNotFound => CliError::NoToken { email: email.clone(), name: name.clone() },
                    error => CliError::Revoke(error),
                })?;
                print(&format!("revoked the token {name} of {email}\n"))
            }
            Prepared::Remove(RemoveArguments { email }) => {
                app.accounts().remove_user(&email).await?;
                print(&format!("removed {email}\n"))
            }
            Prepared::List(arguments) => list(app, &arguments).await,
        }
    }
}

/// Prints all users in the order in which they were added.
async fn list(app: &App, arguments: &ListArguments) -> Result<(), CliError> {
    let mut table = Table::new([("EMAIL", Align::Left), ("PLAN", Align::Left), ("CREATED", Align::Left)]);
    let mut after = None;
    loop {
        let users = app.accounts().users(after, PAGE).await?;
        let lines: Vec<UserLine<'_>> = users.iter().map(UserLine::from).collect();
        let page = match arguments.json {
            true => lines.iter().map(json_line).collect::<Result<String, CliError>>()?,
            false => {
                let rows = lines.into_iter().map(|line| [line.email.to_owned(), line.plan.to_owned(), line.created_at]);
                table.page(rows.collect())
            }
        };
        print(&page)?;
        let Some(last) = users.last() else { return Ok(()) };
        after = Some(last.id);
    }
}

/// Prints the tokens of a user by name, at most [`limits::TOKENS`](crate::model::limits::TOKENS).
async fn list_tokens(app: &App, TokensArguments { email, json }: &TokensArguments) -> Result<(), CliError> {
    let user = app.accounts().user_by_email(email).await?;
    let tokens = app.accounts().tokens(&user).await.map_err(CliError::Tokens)?;
    let lines: Vec<TokenLine> = tokens.into_iter().map(TokenLine::from).collect();
    if *json {
        return print(&lines.iter().map(json_line).collect::<Result<String, CliError>>()?);
    }
    let columns = ["NAME", "SCOPE", "CREATED", "LAST USED", "EXPIRES"];
    let never = || "never".to_owned();
    let row = |line: TokenLine| {
        let (used, expires) = (line.last_used_at.unwrap_or_else(never), line.expires_at.unwrap_or_else(never));
        [visible(&line.name), line.scope.to_owned(), line.created_at, used, expires]
    };
    let mut table = Table::new(columns.map(|column| (column, Align::Left)));
    print(&table.page(lines.into_iter().map(row).collect()))
}

impl From<ApiToken> for TokenLine {
    fn from(token: ApiToken) -> Self {
        let shown = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
        TokenLine {
            name: token.name,
            scope: token.grant.scope.name(),
            created_at: shown(token.created_at),
            last_used_at: token.last_used_at.map(shown),
            expires_at: token.grant.expires_at.map(shown),
        }
    }
}

impl<'a> From<&'a User> for UserLine<'a> {
    fn from(user: &'a User) -> Self {
        let created_at = user.created_at.to_rfc3339_opts(SecondsFormat::Secs, true);
        UserLine { email: &user.email, plan: user.plan.name(), created_at }
    }
}

fn ask_password() -> Result<String, CliError> {
    let ask = |prompt: &str| rpassword::prompt_password(prompt).map_err(unreadable);
    let password = ask("Password: ")?;
    if password.is_empty() {
        return Err(CliError::Password("the password is empty"));
    }
    if ask("Once more: ")? != password {
        return Err(CliError::Password("the two passwords differ"));
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
        return Err(CliError::Password("no password: standard input must hold it on its first line"));
    }
    if line.len() as u64 > PASSWORD_BYTES {
        return Err(CliError::Password("the password is longer than 4096 bytes"));
    }
    Ok(password.to_owned())
}

fn unreadable(source: io::Error) -> CliError {
    CliError::Io { what: "the password cannot be read", source }
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
