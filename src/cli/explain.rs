//! `strata explain`: shows the plan and cost of a query.

use clap::Args;
use strata_config::Config;
use strata_http::params;
use strata_http::read::path;
use strata_service::{IgnoredParameter, ProcessPurpose, Services};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use super::error::CliError;
use super::signals::run_until_signal;
use super::{parse_dataset_id, print_stdout, run_and_close, to_json_line};

/// Show the plan and cost of a query
///
/// Runs the query once and discards the response. You can explain queries on any dataset, even if it is frozen. Because
/// the command starts with empty caches, a running server can be faster.
#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    /// Dataset ID
    #[arg(value_name = "DATASET_ID", value_parser = parse_dataset_id)]
    dataset: DatasetId,
    /// Query string, such as 'filter=country:France&sort=name', or a full path or URL
    #[arg(value_name = "QUERY", default_value = "", hide_default_value = true)]
    query: String,
    /// Version: active, latest, or a number [default: active, or the version in the URL]
    #[arg(long, value_parser = VersionSelector::parse_with_bare_number)]
    version: Option<VersionSelector>,
    /// Read the alternate instead of the version
    #[arg(long)]
    alt: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: ExplainArguments, config: Config) -> Result<(), CliError> {
    let ExplainArguments { dataset, query, version, alt, json } = arguments;
    let (path, query) = split_path_and_query(&query);
    let path = path.map(path::parse_path).transpose().map_err(|error| CliError::Query(error.to_string()))?;
    if let Some(named) = path.as_ref().map(|path| path.target.dataset).filter(|named| *named != dataset) {
        return Err(CliError::Query(format!("it specifies dataset {named}, but DATASET_ID is {dataset}")));
    }
    let (mut request, unknown) = params::parse_query(query).map_err(|error| CliError::Query(error.to_string()))?;
    request.alt |= alt || path.as_ref().is_some_and(|path| path.alt);
    let version = version.or(path.map(|path| path.target.version)).unwrap_or(VersionSelector::Active);
    let ignored = unknown.into_iter().map(IgnoredParameter::from).collect();

    let services = Services::open(&config, ProcessPurpose::Maintain).await?;
    let explained = async {
        let explanation = run_until_signal(services.reads.explain(None, dataset, version, request, ignored)).await?;
        let explanation = explanation.map_err(|source| CliError::Explain { dataset, source })?;
        print_stdout(&if json { to_json_line(&explanation)? } else { explanation.to_string() })
    };
    run_and_close(&services, Box::pin(explained)).await
}

/// Splits a query argument into the path, if there is one, and the query string.
fn split_path_and_query(text: &str) -> (Option<&str>, Option<&str>) {
    let text = ["http://", "https://"].into_iter().find_map(|scheme| text.strip_prefix(scheme)).map_or(text, |rest| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        // A URL without a path refers to the root, `/`.
        if rest[end..].starts_with('/') { &rest[end..] } else { "/" }
    });
    if !text.starts_with('/') {
        return (None, Some(text.strip_prefix('?').unwrap_or(text)));
    }
    let text = text.split('#').next().unwrap_or_default();
    match text.split_once('?') {
        Some((path, query)) => (Some(path), Some(query)),
        None => (Some(text), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_string_path_and_url_are_distinguished() {
        for (text, expected) in [
            ("", (None, Some(""))),
            ("limit=1&filter=a:/b", (None, Some("limit=1&filter=a:/b"))),
            ("?limit=1", (None, Some("limit=1"))),
            ("/api/1/x/v1/?limit=1", (Some("/api/1/x/v1/"), Some("limit=1"))),
            ("/api/1/x/v1", (Some("/api/1/x/v1"), None)),
            (
                "http://a.test:8080/api/1/x/v1/?filter=url:http://b?c#d",
                (Some("/api/1/x/v1/"), Some("filter=url:http://b?c")),
            ),
            ("https://a.test", (Some("/"), None)),
        ] {
            assert_eq!(split_path_and_query(text), expected, "{text}");
        }
    }
}
