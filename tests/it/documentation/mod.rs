//! The documentation: links, statistics, examples, and commands.

mod api;
mod console;
mod figures;
mod links;
mod site;
mod transcript;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use strata_testing::pages::{ROOT, page};

/// Returns the README and the pages below `docs/`, by path.
fn documents() -> BTreeMap<String, String> {
    let mut documents = BTreeMap::from([("README.md".to_owned(), page("README.md"))]);
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(Path::new(ROOT).join(&folder)).expect("a directory") {
            let path = folder.join(entry.expect("an entry").file_name());
            if Path::new(ROOT).join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let path = path.to_str().expect("UTF-8");
                documents.insert(path.to_owned(), page(path));
            }
        }
    }
    documents
}
