//! The demo's files, embedded in the binary. So `strata serve --demo` works from a copied binary.

use std::path::Path;

/// Embeds files of `data-fixtures/` with their paths there.
macro_rules! embed {
    ($($path:literal),+ $(,)?) => {
        &[ $( ($path, include_bytes!(concat!("../../data-fixtures/", $path))) ),+ ]
    };
}

/// Every file that the demo reads: the manifest, and the sources that it names.
const FILES: &[(&str, &[u8])] = embed![
    "manifest.toml",
    "world-countries/countries.json",
    "emoji/emoji.json.zst",
    "earthquakes/earthquakes.json",
    "football/matches.jsonl.gz",
    "airports/airports.csv",
    "unemployment/unemployment.tsv",
    "penguins/penguins.json",
];

/// Writes the files below a directory (some 3 MB).
pub(super) fn write_to(directory: &Path) -> std::io::Result<()> {
    for (path, bytes) in FILES {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_those_that_the_manifest_names() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        write_to(directory.path()).expect("the files are written");
        let manifest = std::fs::read_to_string(directory.path().join("manifest.toml")).expect("the manifest");
        let named = manifest.lines().filter_map(|line| line.strip_prefix("file = "));
        let named: Vec<&str> = named.map(|quoted| quoted.trim_matches('"')).collect();
        let embedded: Vec<&str> = FILES.iter().map(|(path, _)| *path).filter(|path| *path != "manifest.toml").collect();
        assert_eq!(named, embedded);
    }
}
