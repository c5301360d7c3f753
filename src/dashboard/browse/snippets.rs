//! The query as commands and programs for other tools. URLs are escaped so that they cannot end a quoted string.

use serde_json::{Map, Value, json};
use strata_http::page_support::BaseUrl;
use strata_http::params::{PARAMETERS, ParameterKind, ParameterRepetition};
use strata_types::read_request::ResponseFormat;

use crate::query_params::QueryParams;
use crate::safe_text::escape_invisible_json;
use crate::urls::VersionUrls;

pub(super) type QuerySnippet = (&'static str, String);

const KEY_PLACEHOLDER: &str = "PRIVATE_KEY";

pub(super) fn to_snippets(base: &BaseUrl, urls: &VersionUrls, read: &QueryParams, private: bool) -> Vec<QuerySnippet> {
    let url = base.absolute_url(&read.to_url(&urls.api_path()));
    let shaped = read.without(&["format", "pretty", "typed"]);
    let in_format = |format: ResponseFormat| {
        let typed = (format == ResponseFormat::Parquet).then_some(true);
        let query = shaped.clone().with_added("format", format.name()).with_optional("typed", typed);
        base.absolute_url(&query.to_url(&urls.api_path()))
    };
    let plain = base.absolute_url(&shaped.to_url(&urls.api_path()));
    let authorization = format!("Bearer {KEY_PLACEHOLDER}");
    let if_private = |text: String| if private { text } else { String::new() };

    let curl = match private {
        false => format!("curl '{url}'"),
        true => format!("curl -H 'Authorization: {authorization}' \\\n  '{url}'"),
    };
    let headers = if_private(format!(", headers={{\"Authorization\": \"{authorization}\"}}"));
    let requests = format!(
        "import requests  # python3 -m pip install requests\n\n\
         response = requests.get(\n    \"{plain}\"{headers},\n    timeout=60,\n)\n\
         response.raise_for_status()\nprint(response.json())"
    );
    let mut snippets = vec![("URL", url), ("curl", curl), ("Python, requests", requests)];
    if read.first("count").is_none() {
        let scope = base.absolute_url(&format!("/api/{}/", urls.dataset.id));
        let [lines, parquet] = [ResponseFormat::Jsonl, ResponseFormat::Parquet].map(in_format);
        snippets.extend(build_dataframe_snippets(&lines, &parquet, &scope, private));
    }
    let options = if_private(format!(", {{ headers: {{ Authorization: \"{authorization}\" }} }}"));
    let fetch = format!(
        "const response = await fetch(\n  \"{plain}\"{options}\n);\n\
         if (!response.ok) throw new Error(await response.text());\nconsole.log(await response.json());"
    );
    snippets.extend([("JavaScript", fetch), ("MCP tool call", build_mcp_tool_call(urls, &shaped))]);
    snippets
}

/// Returns code snippets for tools that load tables. The DuckDB snippet sends the private key to URLs below `scope`.
fn build_dataframe_snippets(lines: &str, parquet: &str, scope: &str, private: bool) -> [QuerySnippet; 3] {
    let if_private = |text: String| if private { text } else { String::new() };
    let storage = if_private(format!(", storage_options={{\"Authorization\": \"Bearer {KEY_PLACEHOLDER}\"}}"));
    let secret = if_private(format!(
        "CREATE OR REPLACE SECRET strata (TYPE http, SCOPE '{scope}', EXTRA_HTTP_HEADERS MAP {{'Authorization': \
         'Bearer {KEY_PLACEHOLDER}'}});\n"
    ));
    let polars = match private {
        false => format!("polars.read_parquet(\n    \"{parquet}\"\n)"),
        true => format!(
            "polars.read_parquet(\n    urllib.request.urlopen(urllib.request.Request(\n        \"{parquet}\",\n        \
             headers={{\"Authorization\": \"Bearer {KEY_PLACEHOLDER}\"}},\n    )).read()\n)"
        ),
    };
    let import = if private { "import urllib.request\n\n" } else { "" };
    let pandas = format!(
        "import pandas  # python3 -m pip install pandas\n\n\
         frame = pandas.read_json(\n    \"{lines}\",\n    lines=True, dtype=False{storage},\n)\nprint(frame)"
    );
    let duckdb = format!(
        "-- DuckDB downloads its httpfs extension once. If it cannot, download and read the Parquet file.\n\
         INSTALL httpfs; LOAD httpfs;\n{secret}SELECT * FROM read_parquet('{parquet}');"
    );
    let polars = format!("{import}import polars  # python3 -m pip install polars\n\nframe = {polars}\nprint(frame)");
    [("Python, pandas", pandas), ("DuckDB", duckdb), ("Polars", polars)]
}

fn build_mcp_tool_call(urls: &VersionUrls, read: &QueryParams) -> String {
    let mut arguments = Map::new();
    arguments.insert("dataset_id".to_owned(), urls.dataset.id.get().into());
    arguments.insert("version".to_owned(), urls.selector.to_string().into());
    for parameter in &PARAMETERS {
        let values: Vec<Value> =
            read.values(parameter.name).filter_map(|value| to_mcp_argument(parameter.kind, value)).collect();
        match (values.as_slice(), parameter.repetition) {
            ([], _) => {}
            ([value, ..], ParameterRepetition::Single) => {
                arguments.insert(parameter.name.to_owned(), value.clone());
            }
            (_, ParameterRepetition::Repeated | ParameterRepetition::List) => {
                arguments.insert(parameter.name.to_owned(), values.into());
            }
        }
    }
    if urls.alt {
        arguments.insert("alt".to_owned(), true.into());
    }
    let call = json!({"name": "read", "arguments": arguments});
    escape_invisible_json(&serde_json::to_string_pretty(&call).unwrap_or_default())
}

/// Converts a value of the query string to JSON. Booleans have several spellings.
fn to_mcp_argument(kind: ParameterKind, value: &str) -> Option<Value> {
    match kind {
        ParameterKind::Boolean if value == "1" => Some(true.into()),
        ParameterKind::Boolean if value == "0" => Some(false.into()),
        ParameterKind::Boolean => kind.to_json(&value.to_ascii_lowercase()),
        _ => kind.to_json(value),
    }
}
