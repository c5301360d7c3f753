//! The same query for other tools. Addresses in them are escaped so that no quotes end early.

use serde_json::{Map, Value, json};
use strata_http::params::{PARAMETERS, ParameterKind, Repetition};
use strata_http::visit::BaseUrl;
use strata_types::request::Format;

use crate::query::Query;
use crate::safe_text::escaped_json;
use crate::urls::Place;

/// The name of a tool, and the query in its form.
pub(super) type Snippet = (&'static str, String);

/// A placeholder for the key of a private dataset.
const KEY: &str = "PRIVATE_KEY";

pub(super) fn snippets(base: &BaseUrl, place: &Place, read: &Query, private: bool) -> Vec<Snippet> {
    let url = base.url(&read.at(&place.api()));
    let count = read.first("count").is_some();
    let shaped = read.without(&["format", "pretty", "typed"]);
    let in_format = |format: Format| {
        let query = shaped.clone().and("format", format.name());
        base.url(&if format == Format::Parquet { query.and("typed", true) } else { query }.at(&place.api()))
    };
    let plain = base.url(&shaped.at(&place.api()));
    let authorization = format!("Bearer {KEY}");
    let keyed = |text: String| if private { text } else { String::new() };

    let curl = match private {
        false => format!("curl '{url}'"),
        true => format!("curl -H 'Authorization: {authorization}' \\\n  '{url}'"),
    };
    let headers = keyed(format!(", headers={{\"Authorization\": \"{authorization}\"}}"));
    let requests = format!(
        "import requests  # python3 -m pip install requests\n\n\
         response = requests.get(\n    \"{plain}\"{headers},\n    timeout=60,\n)\n\
         response.raise_for_status()\nprint(response.json())"
    );
    let mut snippets = vec![("URL", url), ("curl", curl), ("Python, requests", requests)];
    if !count {
        let scope = base.url(&format!("/api/{}/", place.dataset.id));
        snippets.extend(tables(&in_format(Format::Jsonl), &in_format(Format::Parquet), &scope, private));
    }
    let options = keyed(format!(", {{ headers: {{ Authorization: \"{authorization}\" }} }}"));
    let fetch = format!(
        "const response = await fetch(\n  \"{plain}\"{options}\n);\n\
         if (!response.ok) throw new Error(await response.text());\nconsole.log(await response.json());"
    );
    snippets.extend([("JavaScript", fetch), ("MCP tool call", tool_call(place, &shaped))]);
    snippets
}

/// The tools that make tables. DuckDB sends the key to addresses that begin with the scope.
fn tables(lines: &str, parquet: &str, scope: &str, private: bool) -> [Snippet; 3] {
    let keyed = |text: String| if private { text } else { String::new() };
    let storage = keyed(format!(", storage_options={{\"Authorization\": \"Bearer {KEY}\"}}"));
    let secret = keyed(format!(
        "CREATE OR REPLACE SECRET strata (TYPE http, SCOPE '{scope}', EXTRA_HTTP_HEADERS MAP {{'Authorization': \
         'Bearer {KEY}'}});\n"
    ));
    let polars = match private {
        false => format!("polars.read_parquet(\n    \"{parquet}\"\n)"),
        true => format!(
            "polars.read_parquet(\n    urllib.request.urlopen(urllib.request.Request(\n        \"{parquet}\",\n        \
             headers={{\"Authorization\": \"Bearer {KEY}\"}},\n    )).read()\n)"
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

fn tool_call(place: &Place, read: &Query) -> String {
    let mut arguments = Map::new();
    arguments.insert("dataset_id".to_owned(), place.dataset.id.get().into());
    arguments.insert("version".to_owned(), place.selector.to_string().into());
    for parameter in &PARAMETERS {
        let values: Vec<Value> = read.all(parameter.name).filter_map(|value| argument(parameter.kind, value)).collect();
        match (values.as_slice(), parameter.repetition) {
            ([], _) => {}
            ([value, ..], Repetition::Single) => {
                arguments.insert(parameter.name.to_owned(), value.clone());
            }
            (_, Repetition::Repeat | Repetition::List) => {
                arguments.insert(parameter.name.to_owned(), values.into());
            }
        }
    }
    if place.alt {
        arguments.insert("alt".to_owned(), true.into());
    }
    let call = json!({"name": "read", "arguments": arguments});
    let text = serde_json::to_string_pretty(&call).unwrap_or_default();
    escaped_json(&text)
}

/// A value of a query string as JSON. Booleans have several spellings.
fn argument(kind: ParameterKind, value: &str) -> Option<Value> {
    match kind {
        ParameterKind::Boolean if value == "1" => Some(true.into()),
        ParameterKind::Boolean if value == "0" => Some(false.into()),
        ParameterKind::Boolean => kind.json(&value.to_ascii_lowercase()),
        _ => kind.json(value),
    }
}
