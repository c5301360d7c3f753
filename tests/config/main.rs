//! The configuration: sources, errors, and the table of options.

mod cluster;
mod memory;

use std::ffi::OsString;
use std::path::Path;

use strata_config::{Config, ConfigError, ConfigFile, ConfigOption, ConfigOptionKind, ConfigSources, LogFormat};
use strata_testing::pages::check_table;

/// Sources in a temporary directory, which is removed on drop.
struct WrittenSources {
    directory: tempfile::TempDir,
    sources: ConfigSources,
}

fn write_sources(toml: &str, environment: &[(&str, &str)]) -> WrittenSources {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let path = directory.path().join("strata.toml");
    std::fs::write(&path, toml).expect("failed to write file");
    let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let sources = ConfigSources { file: ConfigFile::Required(path), environment: environment.collect(), flags: vec![] };
    WrittenSources { directory, sources }
}

/// Loads the configuration from a file and environment variables.
fn load(toml: &str, environment: &[(&str, &str)]) -> Config {
    Config::load(&write_sources(toml, environment).sources).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the error message, without the directory of the file.
fn refused(toml: &str, environment: &[(&str, &str)]) -> String {
    let written = write_sources(toml, environment);
    let error = Config::load(&written.sources).expect_err("failed to reject configuration");
    let message = error.to_string();
    assert!(!message.contains('\n'), "the message has several lines: {message}");
    message.replace(&format!("{}/", written.directory.path().display()), "")
}

#[test]
fn missing_sources_give_defaults() {
    let config = Config::load(&ConfigSources::default()).expect("failed to load defaults");
    assert_eq!(config, Config::default());
    assert_eq!(config.server.listen.as_str(), "127.0.0.1:8080");
    assert_eq!(config.limits.entity_bytes, 16 * 1024 * 1024);
    assert_eq!(config.catalog_url(), "sqlite://./strata-data/catalog.sqlite");
    assert_eq!(Path::new(&config.store_url()), Path::new("./strata-data/store"));
    let plans = &config.plans;
    let limits = (plans.free_active_datasets, plans.pro_active_datasets, plans.scale_active_datasets);
    assert_eq!(limits, (3, 50, 1000));
}

#[test]
fn later_source_overrides_earlier_one_by_key() {
    let file = "[query]\nthreads = 3\ntimeout_s = 7\nmemory_bytes = 200000000\n";
    let environment = [("STRATA_QUERY__TIMEOUT_S", "8"), ("STRATA_SERVER__LISTEN", "[::1]:9001"), ("HOME", "/nowhere")];
    let mut written = write_sources(file, &environment);
    written.sources.flags.push(("server.listen", "--listen", "localhost:9002".to_owned()));
    let config = Config::load(&written.sources).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.query.threads, config.query.timeout_s, config.query.memory_bytes), (3, 8, Some(200_000_000)));
    assert_eq!(config.server.listen.as_str(), "localhost:9002");
}

#[test]
fn unknown_key_error_names_source_and_suggestion() {
    let keys = "valid: server.listen, server.drain_s, server.header_timeout_s, ";
    let message = refused("[server]\nlisten = \"a:1\"\nlisen = \"a:1\"\n", &[]);
    assert!(
        message.starts_with(&format!("strata.toml: unknown key `server.lisen`; did you mean server.listen? {keys}")),
        "{message}"
    );
    let names = "server, cluster, data, catalog, store, sweep, scrub, limits, sessions, cache, query, fair, sources, \
                 webhook, net, plans, log";
    let sections = format!("valid sections: {names}");
    assert_eq!(refused("[sever]\n", &[]), format!("strata.toml: unknown key `sever`; did you mean server? {sections}"));
    for (file, suggestion) in [
        ("[sever]\nlisten = 1\n", "did you mean server.listen? "),
        ("[query]\nmemory = 1\n", "did you mean query.memory_bytes? "),
        ("[query]\nnothing_alike = 1\n", "valid: "),
        ("server = 1\n", "valid: "),
    ] {
        let message = refused(file, &[]);
        assert!(message.split_once("; ").is_some_and(|(_, rest)| rest.starts_with(suggestion)), "{message}");
    }
    let message = refused("", &[("STRATA_SERVER_LISTEN", "x")]);
    assert!(message.contains("; did you mean STRATA_SERVER__LISTEN? valid: STRATA_SECTION__KEY, with"), "{message}");
    assert_eq!(refused("listen = 1\n", &[]), format!("strata.toml: unknown key `listen`; {sections}"));
    assert_eq!(
        refused("", &[("STRATA_CACHE__MEMORY", "1")]),
        "environment variable STRATA_CACHE__MEMORY: unknown key `cache.memory`; did you mean STRATA_CACHE__MEMORY_BYTES? \
         valid: STRATA_CACHE__MEMORY_BYTES, STRATA_CACHE__RESPONSE_BYTES, STRATA_CACHE__DIFF_BYTES, \
         STRATA_CACHE__EXPORT_BYTES, STRATA_CACHE__SHARED_EXPORT_BYTES, STRATA_CACHE__DISK_BYTES, \
         STRATA_CACHE__EXPORTS_AHEAD"
    );
    let without_section = refused("", &[("STRATA_LISTEN", "a:1")]);
    assert!(
        without_section
            .starts_with("environment variable STRATA_LISTEN: unknown key `listen`; valid: STRATA_SECTION__KEY, with")
    );
    assert!(without_section.ends_with(&format!("one of the sections {names}")), "{without_section}");
    let lowercase = refused("", &[("STRATA_server__listen", "a:1")]);
    assert!(lowercase.contains("STRATA_SERVER__LISTEN"), "{lowercase}");
}

#[test]
fn container_link_variables_are_ignored() {
    let links = [
        ("STRATA_PORT", "tcp://10.0.0.1:80"),
        ("STRATA_SERVICE_HOST", "10.0.0.1"),
        ("STRATA_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("STRATA_REDIS_SERVICE_PORT_HTTP", "80"),
    ];
    assert_eq!(load("", &links), Config::default());
    for name in ["STRATA_SERVER__PORT", "STRATA_SERVER_LISTEN", "STRATA_"] {
        assert!(refused("", &[(name, "80")]).contains("unknown key"), "{name}");
    }
}

#[test]
fn environment_lists_are_comma_separated() {
    let names = |text: &str| load("", &[("STRATA_SERVER__TRUSTED_PROXIES", text)]).server.trusted_proxies;
    let file = |items: &str| load(&format!("[server]\ntrusted_proxies = [{items}]\n"), &[]).server.trusted_proxies;
    for (text, items) in [("::1, ::2,,::3 ", r#""::1", "::2", "::3""#), ("::1", r#""::1""#), (" ", "")] {
        assert_eq!(names(text), file(items), "{text:?}");
    }
}

#[test]
fn wrong_type_error_names_key() {
    let invalid_values = [
        ("[query]\nthreads = \"four\"\n", "found \"four\", expected a whole number, 0 or more"),
        ("[query]\nthreads = -1\n", "found `-1`, expected a whole number, 0 or more"),
        ("[query]\nthreads = 1.5\n", "found `1.5`, expected a whole number, 0 or more"),
        ("[query.threads]\nx = 1\n", "found a table, expected a whole number, 0 or more"),
        ("[query]\nthreads = 1025\n", "1025 is out of range; valid: 0 to 1024"),
    ];
    for (file, reason) in invalid_values {
        assert_eq!(refused(file, &[]), format!("strata.toml: `query.threads`: {reason}"), "{file}");
    }
    assert_eq!(
        refused("", &[("STRATA_QUERY__THREADS", "four")]),
        "environment variable STRATA_QUERY__THREADS: `query.threads`: \
         found \"four\", expected a whole number, 0 or more"
    );
    assert_eq!(
        refused("", &[("STRATA_QUERY__TIMEOUT_S", "0")]),
        "environment variable STRATA_QUERY__TIMEOUT_S: `query.timeout_s`: 0 is out of range; valid: 1 to 86400"
    );
    assert_eq!(
        refused("[store]\nallow_http = 1\n", &[]),
        "strata.toml: `store.allow_http`: found `1`, expected true or false"
    );
    assert_eq!(refused("server = 1\n[query]\n", &[]).split(';').next(), Some("strata.toml: unknown key `server`"));
}

/// Loads a string value from the file, and checks that the environment variable gives the same configuration.
fn read_as(section: &str, name: &str, text: &str) -> Config {
    let file = load(&format!("[{section}]\n{name} = {text:?}\n"), &[]);
    let variable = format!("STRATA_{section}__{name}").to_ascii_uppercase();
    assert_eq!(load("", &[(&variable, text)]), file, "{text:?}");
    file
}

#[test]
fn sizes_accept_units() {
    for (text, bytes) in [
        ("1073741824", 1 << 30),
        ("1GiB", 1 << 30),
        (" 1 GiB ", 1 << 30),
        ("1gib", 1 << 30),
        ("1.5GiB", 3 << 29),
        ("64MiB", 64 << 20),
        ("8kB", 8_000),
        ("2 GB", 2_000_000_000),
        ("0.25MB", 250_000),
        ("3B", 3),
        ("18446744073709551615", u64::MAX),
        ("15EiB", 15 << 60),
    ] {
        assert_eq!(read_as("cache", "memory_bytes", text).cache.memory_bytes, Some(bytes), "{text:?}");
    }
    assert_eq!(read_as("scrub", "bytes_per_s", "8MiB").scrub.bytes_per_s, 8 << 20);
    assert_eq!(read_as("limits", "body_min_bytes_per_s", "1kB").limits.body_min_bytes_per_s, 1_000);
}

#[test]
fn durations_accept_units() {
    for (text, seconds) in
        [("30", 30), ("30s", 30), ("2000ms", 2), ("1.5min", 90), ("1h 30min", 5_400), (" 1 h ", 3_600), ("0.5h", 1_800)]
    {
        assert_eq!(read_as("query", "timeout_s", text).query.timeout_s, seconds, "{text:?}");
    }
    for (text, milliseconds) in [("500", 500), ("500ms", 500), ("1.5s", 1_500), ("1min 1ms", 60_001)] {
        assert_eq!(read_as("log", "slow_request_ms", text).log.slow_request_ms, milliseconds, "{text:?}");
    }
}

#[test]
fn wrong_units_are_rejected_with_valid_form() {
    let sizes = "expected a whole number of bytes, or a size such as \"64MiB\" or \"1.5GB\"";
    let seconds = "expected a whole number of seconds, or a duration such as \"30s\" or \"1h 30min\"";
    let milliseconds = "expected a whole number of milliseconds, or a duration such as \"500ms\" or \"2s\"";
    for (section, name, expected, wrong) in [
        ("cache", "memory_bytes", sizes, &["", "GiB", "1.5", "-1GiB", "1 parsec", "30s", "1GiB 1MiB", "ten", "+1"][..]),
        ("scrub", "bytes_per_s", sizes, &["8s", "8MiB/s"]),
        (
            "query",
            "timeout_s",
            seconds,
            &["", "s", "1.5", "-1s", "1500ms", "0.5s", "0.0000000001s", "1 parsec", "1GiB", "30S", "+1"],
        ),
        ("log", "slow_request_ms", milliseconds, &["1.5", "0.5ms", "1us", "fast"]),
    ] {
        for text in wrong {
            let reason = format!("`{section}.{name}`: found {text:?}, {expected}");
            let file = format!("[{section}]\n{name} = {text:?}\n");
            assert_eq!(refused(&file, &[]), format!("strata.toml: {reason}"));
            let variable = format!("STRATA_{section}__{name}").to_ascii_uppercase();
            assert_eq!(refused("", &[(&variable, text)]), format!("environment variable {variable}: {reason}"));
        }
        let file = format!("[{section}]\n{name} = true\n");
        assert_eq!(refused(&file, &[]), format!("strata.toml: `{section}.{name}`: found `true`, {expected}"));
    }
    for (section, name, text) in [
        ("cache", "memory_bytes", "16EiB"),
        ("cache", "memory_bytes", "18446744073709551616"),
        ("query", "timeout_s", "18446744073709551616"),
        ("query", "timeout_s", "18446744073709551616s"),
        ("query", "timeout_s", "999999999999999999h"),
        ("log", "slow_request_ms", "18446744073709551615s"),
    ] {
        let reason = format!("{text:?} is too large; the maximum is 18446744073709551615");
        let expected = format!("strata.toml: `{section}.{name}`: {reason}");
        assert_eq!(refused(&format!("[{section}]\n{name} = {text:?}\n"), &[]), expected);
    }
    assert_eq!(
        refused("[query]\ntimeout_s = \"2days\"\n", &[]),
        "strata.toml: `query.timeout_s`: 172800 is out of range; valid: 1 to 86400"
    );
    // Numbers that count neither bytes nor time have no unit.
    let threads = refused("[query]\nthreads = \"4\"\n", &[]);
    assert!(threads.ends_with("found \"4\", expected a whole number, 0 or more"), "{threads}");
}

#[test]
fn invalid_texts_are_rejected_with_valid_form() {
    for listen in ["8080", "localhost", "localhost:http", ":80", "::1:80", "a:65536", "a:+1", "http://a:1"] {
        let message = refused("", &[("STRATA_SERVER__LISTEN", listen)]);
        assert!(message.contains("`server.listen`") && message.contains("127.0.0.1:8080"), "{message}");
    }
    for level in ["inof", "info,strata=loud", "info,", "", "=info", "[span]=info"] {
        let message = refused("", &[("STRATA_LOG__LEVEL", level)]);
        assert!(message.contains("`log.level`") && message.contains("warn"), "{message}");
    }
    for url in ["", "ftp://a/b", "s3://", "s3:///a", "memory://a", "file://relative/a"] {
        let message = refused("", &[("STRATA_STORE__URL", url)]);
        assert!(message.contains("`store.url`") && message.contains("s3://bucket/prefix"), "{message}");
    }
    for url in ["", "mysql://a/b", "sqlite://", "postgres:", "postgres:a", "catalog.sqlite"] {
        let message = refused("", &[("STRATA_CATALOG__URL", url)]);
        assert!(message.contains("`catalog.url`") && message.contains("postgres://user"), "{message}");
    }
    assert!(refused("[data]\ndirectory = \"\"\n", &[]).contains("`data.directory`"));
    let config = load("[log]\nformat = \"json\"\nlevel = \"warn,strata_query=debug\"\n", &[]);
    let level = config.log.level.as_ref().map(|level| level.as_str());
    assert_eq!((config.log.format, level), (LogFormat::Json, Some("warn,strata_query=debug")));
    assert!(
        refused("[log]\nformat = \"JSON\"\n", &[]).ends_with("`log.format`: \"JSON\" is neither `text` nor `json`")
    );
}

#[test]
fn trusted_proxies_accept_addresses_and_networks() {
    let is_trusted =
        |config: &Config, address: &str| config.server.trusted_proxies.contains(address.parse().expect(address));
    let file = load("[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"2001:db8::7\"]\n", &[]);
    let environment = load("", &[("STRATA_SERVER__TRUSTED_PROXIES", "10.0.0.0/8, 2001:db8::7")]);
    assert_eq!(file, environment);
    for (address, trusted) in [
        ("10.255.255.255", true),
        ("::ffff:10.0.0.1", true),
        ("11.0.0.0", false),
        ("2001:db8::7", true),
        ("2001:db8::8", false),
    ] {
        assert_eq!(is_trusted(&file, address), trusted, "{address}");
        assert!(!is_trusted(&Config::default(), address), "{address}");
    }
    for wrong in ["10.0.0.0/33", "proxy.internal", "10.0.0", "10.0.0.0/8/8", "[::1]"] {
        let message = refused("", &[("STRATA_SERVER__TRUSTED_PROXIES", &format!("::1,{wrong}"))]);
        let variable = "environment variable STRATA_SERVER__TRUSTED_PROXIES: `server.trusted_proxies`: ";
        assert!(message.starts_with(variable), "{message}");
        assert!(message.contains(&format!("{wrong:?} is not an address or a network; expected a value")), "{message}");
    }
    let message = refused("[server]\ntrusted_proxies = \"10.0.0.0/8\"\n", &[]);
    assert!(
        message.ends_with("found \"10.0.0.0/8\", expected a list of strings, such as [\"10.0.0.0/8\"]"),
        "{message}"
    );
    let message = refused("[server]\ntrusted_proxies = 7\n", &[]);
    assert!(message.ends_with("found `7`, expected a list of strings, such as [\"a\", \"b\"]"), "{message}");
}

#[test]
fn store_options_must_be_consistent() {
    let incomplete = refused("", &[("STRATA_STORE__ACCESS_KEY_ID", "a")]);
    assert!(incomplete.ends_with("`store.access_key_id`: you must also set store.secret_access_key"), "{incomplete}");
    let plain = refused("[store]\nendpoint = \"http://127.0.0.1:9000\"\n", &[]);
    assert!(plain.ends_with("`store.endpoint`: plain http requires store.allow_http = true"), "{plain}");
    load("[store]\nendpoint = \"http://127.0.0.1:9000\"\nallow_http = true\n", &[]);
}

#[test]
fn secrets_are_hidden_in_errors_and_debug_output() {
    // Digits are text in the environment.
    let environment = [
        ("STRATA_STORE__ACCESS_KEY_ID", "key"),
        ("STRATA_STORE__SECRET_ACCESS_KEY", "20406080"),
        ("STRATA_CATALOG__URL", "postgres://strata:hunter2@db/strata?password=hunter2"),
    ];
    let config = load("", &environment);
    assert_eq!(config.store.secret_access_key.as_ref().map(|secret| secret.expose()), Some("20406080"));
    assert!(config.catalog_url().contains("hunter2"));
    let printed = format!("{config:?}");
    assert!(!printed.contains("20406080") && !printed.contains("hunter2"), "{printed}");

    let socket = load("", &[("STRATA_CATALOG__URL", "postgres:///strata?password=hunter2")]);
    assert!(!format!("{socket:?}").contains("hunter2"));

    let redis = load("", &[("STRATA_LIMITS__REDIS_URL", "rediss://strata:hunter2@redis:6380/1")]);
    assert!(redis.limits.redis_url.as_ref().is_some_and(|url| url.expose().contains("hunter2")));
    assert!(!format!("{redis:?}").contains("hunter2"));
    for url in ["http://:hunter2@redis", "redis://:hunter2@redis/one", "redis://:hunter2@redis?a=b", "redis:hunter2"] {
        let message = refused("", &[("STRATA_LIMITS__REDIS_URL", url)]);
        assert!(message.contains("`limits.redis_url`") && message.contains("redis://user"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }

    let number = refused("[store]\naccess_key_id = \"a\"\nsecret_access_key = 20406080\n", &[]);
    assert!(number.contains("`store.secret_access_key`") && !number.contains("20406080"), "{number}");
    let url = refused("", &[("STRATA_CATALOG__URL", "postgres://strata:hunter2@db:port/strata")]);
    assert!(url.contains("`catalog.url`") && !url.contains("hunter2"), "{url}");
    let syntax = refused("[store]\nsecret_access_key = \"20406080\" x\n", &[]);
    assert!(syntax.contains("line 2") && !syntax.contains("20406080"), "{syntax}");
}

#[test]
fn only_required_file_must_exist() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let path = directory.path().join("none.toml");
    let sources = |file| ConfigSources { file, ..ConfigSources::default() };
    assert_eq!(Config::load(&sources(ConfigFile::IfPresent(path.clone()))).ok(), Some(Config::default()));
    let error = Config::load(&sources(ConfigFile::Required(path))).expect_err("failed to reject missing file");
    assert!(matches!(error, ConfigError::ReadFile { .. }) && error.to_string().contains("none.toml"), "{error}");
}

#[test]
fn default_locations_use_data_directory_verbatim() {
    let mut config = Config::default();
    config.data.directory = "/tmp/50% off?/#1".into();
    assert_eq!(config.catalog_url(), "sqlite:///tmp/50% off?/#1/catalog.sqlite");
    assert_eq!(config.store_url(), "/tmp/50% off?/#1/store");
}

#[test]
fn every_option_can_be_set_by_variable() {
    for option in Config::options() {
        let name = option.environment_variable();
        assert!(
            !option.description.is_empty() && option.description.ends_with('.'),
            "{name}: {:?}",
            option.description
        );
        if let Some(default) = &option.default {
            assert_eq!(load("", &[(&name, default)]), Config::default(), "{name}={default}");
        }
    }
}

/// Formats all options as one Markdown table: key, default, meaning.
fn markdown_table() -> String {
    let rows = Config::options().into_iter().map(|option| row(&option));
    ["| Key | Default | Meaning |\n".to_owned(), "|---|---|---|\n".to_owned()].into_iter().chain(rows).collect()
}

fn row(option: &ConfigOption) -> String {
    let default = match (&option.default, option.kind) {
        (None, _) => String::new(),
        (Some(text), ConfigOptionKind::WholeNumber) if option.name.ends_with("_bytes") => {
            format!("`{text}`{}", binary_unit(text))
        }
        (Some(text), _) => format!("`{text}`"),
    };
    let range =
        option.range.as_ref().map_or(String::new(), |range| format!(" Range: {} to {}.", range.start(), range.end()));
    let about = option.description.replace('|', "\\|");
    format!("| `{}` | {default} | {about}{range} |\n", option.key())
}

/// Returns ` (16 MiB)` for a multiple of a binary unit of bytes.
fn binary_unit(bytes: &str) -> String {
    let Ok(bytes) = bytes.parse::<u64>() else { return String::new() };
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, bits)| bytes >> bits > 0 && bytes % (1 << bits) == 0) {
        Some((unit, bits)) => format!(" ({} {unit})", bytes >> bits),
        None => String::new(),
    }
}

#[test]
fn documentation_contains_options_table() {
    check_table("docs/reference/configuration.md", "configuration", &markdown_table());
}
