//! The places from which values come: file, environment, flags. Each is read into the same form.
//!
//! Unknown keys are found here, because only here the place of each key is known.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use super::ConfigError;
use super::option::{ConfigOption, OptionKind};
use crate::model::similar;

/// The places of the values, the weakest first. Defaults are weaker than all of them.
#[derive(Clone, Debug, Default)]
pub struct ConfigSources {
    /// The configuration file.
    pub file: ConfigFile,
    /// The process's environment. Variables that do not start with `STRATA_` are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// Flags of the command line: the key, the flag's name for messages, and its value.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// Which file is read.
#[derive(Clone, Debug, Default)]
pub enum ConfigFile {
    /// None.
    #[default]
    None,
    /// This one if it exists.
    IfPresent(PathBuf),
    /// This one, which must exist.
    Required(PathBuf),
}

/// Values from one place, and the name of that place in messages.
pub(super) struct Layer {
    origin: String,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// All layers in the order in which each overrides the one before.
pub(super) fn read(sources: &ConfigSources, options: &[ConfigOption]) -> Result<Vec<Layer>, ConfigError> {
    let mut layers = Vec::new();
    layers.extend(match &sources.file {
        ConfigFile::None => None,
        ConfigFile::IfPresent(path) => file(path, false, options)?,
        ConfigFile::Required(path) => file(path, true, options)?,
    });
    for (name, value) in &sources.environment {
        layers.extend(variable(name, value, options)?);
    }
    for (key, flag, text) in &sources.flags {
        let option = options.iter().find(|option| option.key() == *key);
        let option = option.ok_or_else(|| unknown(flag.to_string(), key, options))?;
        layers.push(layer(flag.to_string(), option, text)?);
    }
    Ok(layers)
}

fn file(path: &Path, required: bool, options: &[ConfigOption]) -> Result<Option<Layer>, ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !required => return Ok(None),
        Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
    };
    let values = Toml::string(&text).data().map_err(|error| {
        // The parser's message has several lines, which quote the file. The first gives the place, the last the error.
        let message = error.to_string();
        let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
        let place = lines.next().unwrap_or_default();
        let reason = lines.next_back().map_or(place.to_owned(), |what| format!("{place}: {what}"));
        ConfigError::Syntax { path: path.to_owned(), reason }
    })?;
    let mut values = values.into_values().flatten().collect::<Dict>();
    let origin = path.display().to_string();
    for (section, value) in &mut values {
        let Value::Dict(_, fields) = value else {
            return Err(unknown(origin, section, options));
        };
        for (name, value) in fields {
            let Some(option) = options.iter().find(|option| option.section == section && option.name == name) else {
                return Err(unknown(origin, &format!("{section}.{name}"), options));
            };
            if let (Value::String(_, text), Some(unit)) = (&*value, option.unit()) {
                let number = unit.parse(text);
                *value = Value::from(number.map_err(|reason| wrong(origin.clone(), option, reason))?);
            }
        }
        if !options.iter().any(|option| option.section == section) {
            return Err(unknown(origin, section, options));
        }
    }
    Ok(Some(Layer { origin, values }))
}

fn variable(name: &OsString, value: &OsString, options: &[ConfigOption]) -> Result<Option<Layer>, ConfigError> {
    let Some(name) = name.to_str().filter(|name| name.starts_with("STRATA_")) else { return Ok(None) };
    let origin = format!("environment variable {name}");
    let Some(option) = options.iter().find(|option| option.environment_variable() == name) else {
        let key = name["STRATA_".len()..].to_ascii_lowercase().replace("__", ".");
        return if is_service_link(name) { Ok(None) } else { Err(unknown(origin, &key, options)) };
    };
    let Some(text) = value.to_str() else {
        return Err(wrong(origin, option, "its value is not UTF-8".to_owned()));
    };
    layer(origin, option, text).map(Some)
}

/// Whether an orchestrator set the variable for a neighbour whose name starts with `strata`. Container links and
/// Kubernetes services put `STRATA_PORT`, `STRATA_SERVICE_HOST`, `STRATA_PORT_8080_TCP_ADDR` and the like into every
/// environment near them.
fn is_service_link(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    !words.contains(&"")
        && (name.ends_with("_SERVICE_HOST")
            || name.ends_with("_PORT")
            || name.contains("_SERVICE_PORT_")
            || words.windows(2).any(|pair| pair[0] == "PORT" && pair[1].parse::<u16>().is_ok()))
}

/// One value given as text, in the type of its option.
fn layer(origin: String, option: &ConfigOption, text: &str) -> Result<Layer, ConfigError> {
    let unexpected = || format!("found {text:?}, expected {}", option.expectation());
    let value = match option.kind {
        OptionKind::Text | OptionKind::Secret => Ok(Value::from(text)),
        OptionKind::WholeNumber => match option.unit() {
            Some(unit) => unit.parse(text).map(Value::from),
            None => text.trim().parse::<u64>().map(Value::from).map_err(|_| unexpected()),
        },
        OptionKind::Boolean => text.trim().parse::<bool>().map(Value::from).map_err(|_| unexpected()),
        OptionKind::List => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Ok(Value::from(items.map(Value::from).collect::<Vec<_>>()))
        }
    };
    let value = value.map_err(|reason| wrong(origin.clone(), option, reason))?;
    let fields = Dict::from([(option.name.to_owned(), value)]);
    Ok(Layer { origin, values: Dict::from([(option.section.to_owned(), Value::from(fields))]) })
}

fn wrong(origin: String, option: &ConfigOption, reason: String) -> ConfigError {
    ConfigError::Value { origin, key: option.key(), reason }
}

fn unknown(origin: String, key: &str, options: &[ConfigOption]) -> ConfigError {
    let (section, environment) = (key.split('.').next().unwrap_or_default(), origin.starts_with("environment"));
    let shown = |option: &ConfigOption| if environment { option.environment_variable() } else { option.key() };
    let of_section: Vec<String> = options.iter().filter(|option| option.section == section).map(shown).collect();
    let known = if of_section.is_empty() {
        let mut sections: Vec<&str> = options.iter().map(|option| option.section).collect();
        sections.dedup();
        let form = if environment { "variables are named STRATA_SECTION__KEY, and the" } else { "the" };
        format!("{form} sections are {}", sections.join(", "))
    } else {
        format!("the keys of this section are {}", of_section.join(", "))
    };
    let name = key.split_once('.').map_or("", |(_, name)| name);
    let keys: Vec<String> = options.iter().map(ConfigOption::key).collect();
    let of_key = |key: &str| options.iter().find(|option| option.key() == key);
    let option = match similar::nearest(name, options.iter().filter(|one| one.section == section).map(|one| one.name)) {
        Some(name) => of_key(&format!("{section}.{name}")),
        // A section that is no table.
        None if name.is_empty() && !of_section.is_empty() => None,
        // The section is left out, or wrong.
        None => similar::nearest(key, keys.iter().map(String::as_str)).and_then(of_key),
    };
    let in_file = name.is_empty() && of_section.is_empty() && !environment;
    let meant = option.map(shown).or_else(|| {
        let section = similar::nearest(key, options.iter().map(|option| option.section)).filter(|_| in_file);
        section.map(str::to_owned)
    });
    let meant = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
    ConfigError::UnknownKey { origin, key: key.to_owned(), known: format!("{meant}{known}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_the_environment_is_separated_by_commas() {
        let option = ConfigOption {
            section: "server",
            name: "names",
            about: String::new(),
            kind: OptionKind::List,
            default: None,
            range: None,
        };
        for (text, expected) in [("a, b,,c ", vec!["a", "b", "c"]), ("one", vec!["one"]), (" ", vec![])] {
            let layer = layer("test".to_owned(), &option, text).expect("a list takes any text");
            let value = figment::Figment::from(layer).extract_inner::<Vec<String>>("server.names");
            assert_eq!(value.expect("the list"), expected, "{text:?}");
        }
    }

    #[test]
    fn variables_that_neighbours_cause_are_told_from_misspelt_ones() {
        for name in
            ["STRATA_SERVICE_HOST", "STRATA_PORT", "STRATA_PORT_8080_TCP_ADDR", "STRATA_REDIS_SERVICE_PORT_HTTP"]
        {
            assert!(is_service_link(name), "{name}");
        }
        for name in ["STRATA_LISTEN", "STRATA_SERVER__PORT", "STRATA_SERVER_LISTEN", "STRATA_"] {
            assert!(!is_service_link(name), "{name}");
        }
    }
}
