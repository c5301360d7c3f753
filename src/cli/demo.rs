//! The demo of `strata serve --demo`: loads the embedded datasets and prints URLs to try.

use std::fmt::Write;
use std::path::Path;

use strata_service::{DEMO_OWNER_EMAIL, DemoCredentials, DemoDataset, Services, demo_examples};

use super::error::CliError;
use super::print_stdout;

macro_rules! embed {
    ($($path:literal),+ $(,)?) => {
        &[ $( ($path, include_bytes!(concat!("../../data-fixtures/", $path))) ),+ ]
    };
}

/// The manifest and the source files of the demo datasets, embedded so that the demo needs only the binary.
const DEMO_FILES: &[(&str, &[u8])] = embed![
    "manifest.toml",
    "world-countries/countries.json",
    "emoji/emoji.json.zst",
    "earthquakes/earthquakes.json",
    "football/matches.jsonl.gz",
    "airports/airports.csv",
    "unemployment/unemployment.tsv",
    "penguins/penguins.json",
];

fn unpack_demo_files(directory: &Path) -> std::io::Result<()> {
    for (path, bytes) in DEMO_FILES {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, bytes)?;
    }
    Ok(())
}

/// Loads the demo, unless it is loaded already. Prints example URLs and the owner's credentials.
pub(super) async fn load_demo(services: &Services, base_url: &str) -> Result<(), CliError> {
    let unpacking = |source| CliError::Io { what: "failed to unpack the demo files", source };
    let directory = tempfile::tempdir().map_err(unpacking)?;
    unpack_demo_files(directory.path()).map_err(unpacking)?;
    let datasets = services.demo.load(directory.path()).await?;
    let credentials = services.demo.reset_credentials().await?;
    let dashboard = match services.config.server.dashboard {
        true => format!("To see the dashboard, open {base_url}/ in a browser.\n\n"),
        false => String::new(),
    };
    print_stdout(&(dashboard + &describe_datasets(base_url, &datasets) + &describe_demo_login(base_url, &credentials)))
}

fn describe_demo_login(base_url: &str, credentials: &DemoCredentials) -> String {
    let password = credentials.password.expose();
    let token = credentials.token.expose();
    format!(
        "The owner of these datasets is {DEMO_OWNER_EMAIL} (password: {password}). The password changes each time you start \
         the demo.\nTo make calls as this owner:\n\n  \
         TOKEN={token}\n  \
         curl -H \"Authorization: Bearer $TOKEN\" '{base_url}/dataset/list'\n  \
         curl -H \"Authorization: Bearer $TOKEN\" '{base_url}/dataset/explain?dataset_id=1&explain=text&filter=borders:FRA'\n\n"
    )
}

fn describe_datasets(base_url: &str, datasets: &[DemoDataset]) -> String {
    let mut text = String::from("Queries to try, in a browser or with curl 'URL' in a shell:\n\n");
    for dataset in datasets {
        let slug = dataset.name_slug.as_str();
        let key = dataset.private_key.as_ref().map(|key| key.expose());
        let address = format!("{base_url}/api/{}/{slug}/v{}/", dataset.dataset_id, dataset.version);
        let mut queries: Vec<&str> = demo_examples(slug).iter().map(|example| example.query).collect();
        if queries.is_empty() {
            queries.push("");
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{slug}{}", if key.is_some() { " (private, requires a key)" } else { "" });
        for query in queries {
            let _ = match key {
                None => writeln!(text, "  {address}{query}"),
                Some(key) => writeln!(text, "  curl -H 'Authorization: Bearer {key}' '{address}{query}'"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_files_match_manifest() {
        let directory = tempfile::tempdir().expect("failed to create directory");
        unpack_demo_files(directory.path()).expect("failed to write files");
        let manifest =
            std::fs::read_to_string(directory.path().join("manifest.toml")).expect("failed to read manifest");
        let named = manifest.lines().filter_map(|line| line.strip_prefix("file = "));
        let named: Vec<&str> = named.map(|quoted| quoted.trim_matches('"')).collect();
        let embedded: Vec<&str> =
            DEMO_FILES.iter().map(|(path, _)| *path).filter(|path| *path != "manifest.toml").collect();
        assert_eq!(named, embedded);
    }
}
