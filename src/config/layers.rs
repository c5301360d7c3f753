//! Reads the sources of the configuration: file, environment, flags.
//!
//! A later source overrides an earlier one key by key, and only the last value of a key is parsed:
//! `STRATA_QUERY__THREADS=4` overrides `threads = "four"` in the file without an error. Unknown keys are errors.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use strata_types::suggest;

use super::ConfigError;
use super::option::{ConfigOption, ConfigOptionKind};

/// The sources of configuration values in increasing order of precedence. Defaults have the lowest precedence.
#[derive(Clone, Debug, Default)]
pub struct ConfigSources {
    pub file: ConfigFile,
    /// The process's environment. Variables that do not start with `STRATA_` are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// The flags of the command line: the configuration key, the name of the flag for error messages, and the value.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

#[derive(Clone, Debug, Default)]
pub enum ConfigFile {
    #[default]
    None,
    IfPresent(PathBuf),
    Required(PathBuf),
}

struct ConfigSetting<'a> {
    option: &'a ConfigOption,
    origin: String,
    /// The parsed value of the option, or an error, which is reported only if no later source overrides the value.
    value: Result<Value, ConfigError>,
}

#[derive(Default)]
pub(super) struct MergedSettings<'a>(BTreeMap<String, ConfigSetting<'a>>);

impl<'a> MergedSettings<'a> {
    fn set(&mut self, setting: ConfigSetting<'a>) {
        self.0.insert(setting.option.key(), setting);
    }

    pub(super) fn origin(&self, key: &str) -> String {
        self.0.get(key).map_or_else(|| "configuration".to_owned(), |setting| setting.origin.clone())
    }

    pub(super) fn take_values(&mut self) -> Result<Value, ConfigError> {
        let mut sections = Value::Object(serde_json::Map::new());
        for setting in self.0.values_mut() {
            let value = std::mem::replace(&mut setting.value, Ok(Value::Null))?;
            sections[setting.option.section][setting.option.name] = value;
        }
        Ok(sections)
    }
}

pub(super) fn read_sources<'a>(
    sources: &ConfigSources,
    options: &'a [ConfigOption],
) -> Result<MergedSettings<'a>, ConfigError> {
    let mut settings = MergedSettings::default();
    if let ConfigFile::IfPresent(path) | ConfigFile::Required(path) = &sources.file {
        read_config_file(path, matches!(sources.file, ConfigFile::Required(_)), options, &mut settings)?;
    }
    for (name, value) in &sources.environment {
        if let Some(setting) = parse_environment_variable(name, value, options)? {
            settings.set(setting);
        }
    }
    for (key, flag, text) in &sources.flags {
        let option = options.iter().find(|option| option.key() == *key);
        let option = option.ok_or_else(|| unknown_key_error(flag.to_string(), key, options))?;
        settings.set(parse_text_setting(flag.to_string(), option, text)?);
    }
    Ok(settings)
}

fn read_config_file<'a>(
    path: &Path,
    required: bool,
    options: &'a [ConfigOption],
    settings: &mut MergedSettings<'a>,
) -> Result<(), ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !required => return Ok(()),
        Err(source) => return Err(ConfigError::ReadFile { path: path.to_owned(), source }),
    };
    let sections: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // A message of the TOML parser has several lines. The first one is the position, and the last one the error.
        let message = error.to_string();
        let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
        let position = lines.next().unwrap_or_default();
        let reason = lines.next_back().map_or(position.to_owned(), |what| format!("{position}: {what}"));
        ConfigError::InvalidSyntax { path: path.to_owned(), reason }
    })?;
    let origin = path.display().to_string();
    for (section, value) in sections {
        let toml::Value::Table(fields) = value else { return Err(unknown_key_error(origin, &section, options)) };
        for (name, value) in fields {
            let Some(option) = options.iter().find(|option| option.section == section && option.name == name) else {
                return Err(unknown_key_error(origin, &format!("{section}.{name}"), options));
            };
            let value = parse_file_value(&origin, option, value);
            settings.set(ConfigSetting { option, origin: origin.clone(), value });
        }
        if !options.iter().any(|option| option.section == section) {
            return Err(unknown_key_error(origin, &section, options));
        }
    }
    Ok(())
}

fn parse_file_value(origin: &str, option: &ConfigOption, value: toml::Value) -> Result<Value, ConfigError> {
    let refused = |reason| Err(invalid_value_error(origin.to_owned(), option, reason));
    if let (toml::Value::String(text), Some(unit)) = (&value, option.unit()) {
        return unit.parse_quantity(text).map(Value::from).or_else(refused);
    }
    match (option.kind, value) {
        (ConfigOptionKind::Text | ConfigOptionKind::Secret, toml::Value::String(text)) => Ok(Value::from(text)),
        (ConfigOptionKind::Secret, _) => refused(format!("found another type, expected {}", option.expected_form())),
        (ConfigOptionKind::WholeNumber, toml::Value::Integer(number @ 0..)) => Ok(Value::from(number)),
        (ConfigOptionKind::Boolean, toml::Value::Boolean(value)) => Ok(Value::from(value)),
        (ConfigOptionKind::List, toml::Value::Array(items)) => {
            let texts = items.into_iter().enumerate().map(|(position, item)| match item {
                toml::Value::String(text) => Ok(Value::from(text)),
                item => Err(ConfigError::InvalidValue {
                    origin: origin.to_owned(),
                    key: format!("{}.{position}", option.key()),
                    reason: format!("found {}, expected a string", format_toml_value(&item)),
                }),
            });
            texts.collect()
        }
        // A single string is refused. The error message shows how to write it as a list.
        (ConfigOptionKind::List, toml::Value::String(text)) => {
            refused(format!("found {text:?}, expected a list of strings, such as [{text:?}]"))
        }
        (_, value) => refused(format!("found {}, expected {}", format_toml_value(&value), option.expected_form())),
    }
}

fn format_toml_value(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Array(_) => "an array".to_owned(),
        toml::Value::Table(_) => "a table".to_owned(),
        value => format!("`{value}`"),
    }
}

fn parse_environment_variable<'a>(
    name: &OsString,
    value: &OsString,
    options: &'a [ConfigOption],
) -> Result<Option<ConfigSetting<'a>>, ConfigError> {
    let Some(name) = name.to_str().filter(|name| name.starts_with("STRATA_")) else { return Ok(None) };
    let origin = format!("environment variable {name}");
    let Some(option) = options.iter().find(|option| option.environment_variable() == name) else {
        let key = name["STRATA_".len()..].to_ascii_lowercase().replace("__", ".");
        return if is_service_link_variable(name) { Ok(None) } else { Err(unknown_key_error(origin, &key, options)) };
    };
    let Some(text) = value.to_str() else {
        return Err(invalid_value_error(origin, option, "the value is not valid UTF-8".to_owned()));
    };
    parse_text_setting(origin, option, text).map(Some)
}

/// Returns true for variables that container links and Kubernetes services set for a neighbor whose name starts with
/// `strata`, such as `STRATA_PORT`, `STRATA_SERVICE_HOST`, or `STRATA_PORT_8080_TCP_ADDR`.
fn is_service_link_variable(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    !words.contains(&"")
        && (name.ends_with("_SERVICE_HOST")
            || name.ends_with("_PORT")
            || name.contains("_SERVICE_PORT_")
            || words.windows(2).any(|pair| pair[0] == "PORT" && pair[1].parse::<u16>().is_ok()))
}

fn parse_text_setting<'a>(
    origin: String,
    option: &'a ConfigOption,
    text: &str,
) -> Result<ConfigSetting<'a>, ConfigError> {
    let unexpected = || format!("found {text:?}, expected {}", option.expected_form());
    let value = match option.kind {
        ConfigOptionKind::Text | ConfigOptionKind::Secret => Ok(Value::from(text)),
        ConfigOptionKind::WholeNumber => match option.unit() {
            Some(unit) => unit.parse_quantity(text).map(Value::from),
            None => text.trim().parse::<u64>().map(Value::from).map_err(|_| unexpected()),
        },
        ConfigOptionKind::Boolean => text.trim().parse::<bool>().map(Value::from).map_err(|_| unexpected()),
        ConfigOptionKind::List => Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()),
    };
    let value = value.map_err(|reason| invalid_value_error(origin.clone(), option, reason))?;
    Ok(ConfigSetting { option, origin, value: Ok(value) })
}

fn invalid_value_error(origin: String, option: &ConfigOption, reason: String) -> ConfigError {
    ConfigError::InvalidValue { origin, key: option.key(), reason }
}

fn unknown_key_error(origin: String, key: &str, options: &[ConfigOption]) -> ConfigError {
    let section = key.split('.').next().unwrap_or_default();
    let environment = origin.starts_with("environment");
    let shown = |option: &ConfigOption| if environment { option.environment_variable() } else { option.key() };
    let section_keys: Vec<String> = options.iter().filter(|option| option.section == section).map(shown).collect();
    let known = if section_keys.is_empty() {
        let mut sections: Vec<&str> = options.iter().map(|option| option.section).collect();
        sections.dedup();
        let form = if environment { "valid: STRATA_SECTION__KEY, with one of the sections" } else { "valid sections:" };
        format!("{form} {}", sections.join(", "))
    } else {
        format!("valid: {}", section_keys.join(", "))
    };
    let name = key.split_once('.').map_or("", |(_, name)| name);
    let keys: Vec<String> = options.iter().map(ConfigOption::key).collect();
    let find_option = |key: &str| options.iter().find(|option| option.key() == key);
    let names = options.iter().filter(|option| option.section == section).map(|option| option.name);
    let option = match suggest::find_similar_name(name, names) {
        Some(name) => find_option(&format!("{section}.{name}")),
        // The key names a section, but its value is not a table, so there is no option to suggest.
        None if name.is_empty() && !section_keys.is_empty() => None,
        // The section in the key is missing or misspelled, so the most similar of all known keys is suggested.
        None => suggest::find_similar_name(key, keys.iter().map(String::as_str)).and_then(find_option),
    };
    let in_file = name.is_empty() && section_keys.is_empty() && !environment;
    let suggestion = option.map(shown).or_else(|| {
        let section = suggest::find_similar_name(key, options.iter().map(|option| option.section)).filter(|_| in_file);
        section.map(str::to_owned)
    });
    let suggestion = suggestion.map_or_else(String::new, |suggestion| format!("did you mean {suggestion}? "));
    ConfigError::UnknownKey { origin, key: key.to_owned(), known: format!("{suggestion}{known}") }
}
