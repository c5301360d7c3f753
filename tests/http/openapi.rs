//! The read endpoint in `/openapi.json` matches the registry of query parameters.

use std::collections::BTreeMap;

use serde_json::Value;
use strata_http::params::{PARAMETERS, ParameterKind, ParameterRepetition, QueryParameter};
use strata_testing::TestService;
use strata_testing::openapi::{Document, READ};

const READ_ALT: &str = "/api/{dataset_id}/{name_slug}/{version}/alt";

/// A value in a URL, encoded.
fn encoded(name: &str, value: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish()
}

#[tokio::test]
async fn read_operations_have_registry_parameters() {
    let service = TestService::start().await;
    let document = Document::fetch(&service).await;
    for path in [READ, READ_ALT] {
        let described = document.parameters(path, "query");
        let names: Vec<&str> =
            described.iter().map(|parameter| parameter["name"].as_str().expect("missing name")).collect();
        let registered: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
        assert_eq!(names, registered, "{path}");
        for (described, parameter) in described.into_iter().zip(&PARAMETERS) {
            check_parameter(described, parameter);
        }
        assert_eq!(document.parameters(path, "path").len(), 3);
    }
}

/// Checks that a parameter in the document matches the registry.
fn check_parameter(described: &Value, parameter: &QueryParameter) {
    let name = parameter.name;
    assert_eq!(described["description"], parameter.documentation, "{name}");
    assert_eq!(described["required"], false, "{name}");
    let (value, explode) = match parameter.repetition {
        ParameterRepetition::Single => (&described["schema"], Value::Null),
        ParameterRepetition::Repeated => (&described["schema"]["items"], true.into()),
        ParameterRepetition::List => (&described["schema"]["items"], false.into()),
    };
    assert_eq!(described["explode"], explode, "{name}");
    let (value_type, names) = match parameter.kind {
        ParameterKind::Boolean => ("boolean", None),
        ParameterKind::WholeNumber => ("integer", None),
        ParameterKind::OneOf(names) => ("string", Some(Value::from(names))),
        ParameterKind::Paths | ParameterKind::Keywords | ParameterKind::PathValue | ParameterKind::Sort => {
            ("string", None)
        }
    };
    assert_eq!(value["type"], value_type, "{name}");
    assert_eq!(value.get("enum"), names.as_ref(), "{name}");
    let default = match &value["default"] {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    assert_eq!(default, parameter.default_text.replace("all", "none"), "{name}");
}

#[tokio::test]
async fn parameter_examples_find_entities() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let document = Document::fetch(&service).await;
    let mut path = READ.to_owned();
    for parameter in document.parameters(READ, "path") {
        let example = parameter["example"].as_str().map_or_else(|| parameter["example"].to_string(), str::to_owned);
        path = path.replace(&format!("{{{}}}", parameter["name"].as_str().expect("missing name")), &example);
    }
    let examples: BTreeMap<&str, String> = PARAMETERS
        .iter()
        .filter_map(|parameter| Some((parameter.name, encoded(parameter.name, parameter.example?))))
        .collect();
    let all = examples.values().cloned().collect::<Vec<_>>().join("&");
    // `seed` requires `sample`.
    let single =
        examples.into_iter().map(|(name, query)| if name == "seed" { format!("{query}&sample=9") } else { query });
    for query in single.chain([all]) {
        let answer = service.get(&format!("{path}?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", String::from_utf8_lossy(&answer.body));
        let total = answer.header("x-total-count").and_then(|total| total.parse::<u64>().ok());
        assert!(total.is_some_and(|total| total > 0), "{query} finds nothing");
    }
}
