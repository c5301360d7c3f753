//! Reads the sources of the configuration: file, environment, flags.
//!
//! Each source becomes settings of the same form. A later source overrides an earlier one key by key:
//!
//! ```text
//! strata.toml                [query] threads = "four"    query.threads: an error, which names the file
//! STRATA_QUERY__THREADS=4                                query.threads: 4
//! ```
//!
//! Only the last setting of a key counts, so that the value in the file causes no error here. Unknown keys always do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use strata_types::similar;

use super::ConfigError;
use super::option::{ConfigOption, OptionKind};

/// The places of the values, the weakest first. Defaults are weaker than all of them.
#[derive(Clone, Debug, Default)]
pub struct ConfigSources {
    pub file: ConfigFile,
    /// The process's environment. Variables that do not start with `STRATA_` are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// Flags of the command line: the key, the flag's name for messages, and its value.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

#[derive(Clone, Debug, Default)]
pub enum ConfigFile {
    #[default]
    None,
    IfPresent(PathBuf),
    Required(PathBuf),
}

struct Setting<'a> {
    option: &'a ConfigOption,
    origin: String,
    /// The value in the type of the option, or why it has none.
    value: Result<Value, ConfigError>,
}

#[derive(Default)]
pub(super) struct Settings<'a>(BTreeMap<String, Setting<'a>>);

impl<'a> Settings<'a> {
    fn set(&mut self, setting: Setting<'a>) {
        self.0.insert(setting.option.key(), setting);
    }

    /// The name of the source that sets a key, for messages.
    pub(super) fn origin(&self, key: &str) -> String {
        self.0.get(key).map_or_else(|| "configuration".to_owned(), |setting| setting.origin.clone())
    }

    /// The values as an object of sections, or the first value that does not have the type of its option.
    pub(super) fn values(&mut self) -> Result<Value, ConfigError> {
        let mut sections = Value::Object(serde_json::Map::new());
        for setting in self.0.values_mut() {
            let value = std::mem::replace(&mut setting.value, Ok(Value::Null))?;
            sections[setting.option.section][setting.option.name] = value;
        }
        Ok(sections)
    }
}

pub(super) fn read<'a>(sources: &ConfigSources, options: &'a [ConfigOption]) -> Result<Settings<'a>, ConfigError> {
    let mut settings = Settings::default();
    if let ConfigFile::IfPresent(path) | ConfigFile::Required(path) = &sources.file {
        read_file(path, matches!(sources.file, ConfigFile::Required(_)), options, &mut settings)?;
    }
    for (name, value) in &sources.environment {
        if let Some(setting) = variable(name, value, options)? {
            settings.set(setting);
        }
    }
    for (key, flag, text) in &sources.flags {
        let option = options.iter().find(|option| option.key() == *key);
        let option = option.ok_or_else(|| unknown(flag.to_string(), key, options))?;
        settings.set(text_setting(flag.to_string(), option, text)?);
    }
    Ok(settings)
}

fn read_file<'a>(
    path: &Path,
    required: bool,
    options: &'a [ConfigOption],
    settings: &mut Settings<'a>,
) -> Result<(), ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !required => return Ok(()),
        Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
    };
    let sections: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The parser's message has several lines, which quote the file. The first gives the place, the last the error.
        let message = error.to_string();
        let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
        let place = lines.next().unwrap_or_default();
        let reason = lines.next_back().map_or(place.to_owned(), |what| format!("{place}: {what}"));
        ConfigError::Syntax { path: path.to_owned(), reason }
    })?;
    let origin = path.display().to_string();
    for (section, value) in sections {
        let toml::Value::Table(fields) = value else {
            return Err(unknown(origin, &section, options));
        };
        for (name, value) in fields {
            let Some(option) = options.iter().find(|option| option.section == section && option.name == name) else {
                return Err(unknown(origin, &format!("{section}.{name}"), options));
            };
            settings.set(Setting { option, origin: origin.clone(), value: file_value(&origin, option, value) });
        }
        if !options.iter().any(|option| option.section == section) {
            return Err(unknown(origin, &section, options));
        }
    }
    Ok(())
}

fn file_value(origin: &str, option: &ConfigOption, value: toml::Value) -> Result<Value, ConfigError> {
    let refused = |reason| Err(wrong(origin.to_owned(), option, reason));
    if let (toml::Value::String(text), Some(unit)) = (&value, option.unit()) {
        return unit.parse(text).map(Value::from).or_else(refused);
    }
    match (option.kind, value) {
        (OptionKind::Text | OptionKind::Secret, toml::Value::String(text)) => Ok(Value::from(text)),
        (OptionKind::Secret, _) => refused(format!("found another type, expected {}", option.expectation())),
        (OptionKind::WholeNumber, toml::Value::Integer(number @ 0..)) => Ok(Value::from(number)),
        (OptionKind::Boolean, toml::Value::Boolean(value)) => Ok(Value::from(value)),
        (OptionKind::List, toml::Value::Array(items)) => {
            let texts = items.into_iter().enumerate().map(|(position, item)| match item {
                toml::Value::String(text) => Ok(Value::from(text)),
                item => Err(ConfigError::Value {
                    origin: origin.to_owned(),
                    key: format!("{}.{position}", option.key()),
                    reason: format!("found {}, expected a string", shown(&item)),
                }),
            });
            texts.collect()
        }
        // The message shows how to write the text as a list.
        (OptionKind::List, toml::Value::String(text)) => {
            refused(format!("found {text:?}, expected a list of strings, such as [{text:?}]"))
        }
        (_, value) => refused(format!("found {}, expected {}", shown(&value), option.expectation())),
    }
}

fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Array(_) => "an array".to_owned(),
        toml::Value::Table(_) => "a table".to_owned(),
        value => format!("`{value}`"),
    }
}

fn variable<'a>(
    name: &OsString,
    value: &OsString,
    options: &'a [ConfigOption],
) -> Result<Option<Setting<'a>>, ConfigError> {
    let Some(name) = name.to_str().filter(|name| name.starts_with("STRATA_")) else { return Ok(None) };
    let origin = format!("environment variable {name}");
    let Some(option) = options.iter().find(|option| option.environment_variable() == name) else {
        let key = name["STRATA_".len()..].to_ascii_lowercase().replace("__", ".");
        return if is_service_link(name) { Ok(None) } else { Err(unknown(origin, &key, options)) };
    };
    let Some(text) = value.to_str() else {
        return Err(wrong(origin, option, "the value is not valid UTF-8".to_owned()));
    };
    text_setting(origin, option, text).map(Some)
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

/// A setting from text, which a variable and a flag have.
fn text_setting<'a>(origin: String, option: &'a ConfigOption, text: &str) -> Result<Setting<'a>, ConfigError> {
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
            Ok(items.collect())
        }
    };
    let value = value.map_err(|reason| wrong(origin.clone(), option, reason))?;
    Ok(Setting { option, origin, value: Ok(value) })
}

fn wrong(origin: String, option: &ConfigOption, reason: String) -> ConfigError {
    ConfigError::Value { origin, key: option.key(), reason }
}

fn unknown(origin: String, key: &str, options: &[ConfigOption]) -> ConfigError {
    let section = key.split('.').next().unwrap_or_default();
    let environment = origin.starts_with("environment");
    let shown = |option: &ConfigOption| if environment { option.environment_variable() } else { option.key() };
    let of_section: Vec<String> = options.iter().filter(|option| option.section == section).map(shown).collect();
    let known = if of_section.is_empty() {
        let mut sections: Vec<&str> = options.iter().map(|option| option.section).collect();
        sections.dedup();
        let form = if environment { "valid: STRATA_SECTION__KEY, with one of the sections" } else { "valid sections:" };
        format!("{form} {}", sections.join(", "))
    } else {
        format!("valid: {}", of_section.join(", "))
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
