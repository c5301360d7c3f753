//! `[log]`: the log on standard error.

use serde::Deserialize;

use super::option::{checked_type, section};

section! {
    /// Contents and format of the log on standard error.
    LogConfig in "log" {
        /// Log format: `text` for people, or `json` for machines. With `json`, each line is one JSON object.
        format: LogFormat = LogFormat::Text;
        /// Least severe level that strata logs: `error`, `warn`, `info`, `debug`, `trace`, or `off`. You can set levels
        /// for individual modules, such as `info,strata_query=debug`. The default is `info` for `serve`, and `warn`
        /// for all other commands.
        level: Option<LogFilter> = None;
        /// Duration in milliseconds above which strata writes an additional log line for a request, with the query
        /// string and query plan. 0 disables these log lines. No other log line contains query strings, because they
        /// can contain a caller's data.
        slow_request_ms: u64 = 0;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum LogFormat {
    Text,
    Json,
}

impl TryFrom<String> for LogFormat {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is neither `text` nor `json`")),
        }
    }
}

checked_type! {
    /// A filter for `tracing_subscriber::EnvFilter`: a level, and levels for single modules. The check is stricter than
    /// `EnvFilter`, which takes a misspelled level for the name of a module and then logs nothing else.
    #[derive(Debug, Eq)]
    LogFilter(String) from String => as_str -> str, |text| {
        const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
        let module = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-' | b'.'))
        };
        for item in text.split(',') {
            let (name, level) = item.split_once('=').map_or((None, item), |(name, level)| (Some(name), level));
            if !LEVELS.contains(&level) || !name.is_none_or(module) {
                return Err(format!(
                    "{item:?} is invalid; expected a level ({}) or module=level, such as strata_query=debug",
                    LEVELS.join(", ")
                ));
            }
        }
        Ok(text)
    }
}
