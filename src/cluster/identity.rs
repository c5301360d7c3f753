//! The name of a server among those of the service: configured, or made once and kept in the data directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use strata_config::Config;
use strata_store::durable;
use strata_types::node::NodeId;

const FILE: &str = "node.id";

const MOST_BYTES: u64 = 1_024;

#[derive(Debug, thiserror::Error)]
#[error("failed to read or create the node name in {} (you can set `cluster.node` instead)", path.display())]
pub struct NoNodeId {
    path: PathBuf,
    source: io::Error,
}

/// The name of this server; `None` for a service of one data directory, which needs none. The data directory must be
/// there.
pub fn node_id(config: &Config) -> Result<Option<NodeId>, NoNodeId> {
    if let Some(name) = &config.cluster.node {
        return Ok(Some(name.clone()));
    }
    // With the catalog in the data directory, whoever shares the catalog shares the directory.
    if config.catalog.url.is_none() && !config.has_nodes() {
        return Ok(None);
    }
    let path = config.data.directory.join(FILE);
    kept(&path).map(Some).map_err(|source| NoNodeId { path, source })
}

/// The name in the file, which is made when it is missing.
fn kept(path: &Path) -> io::Result<NodeId> {
    match File::open(path).and_then(|mut file| read(&mut file)) {
        Ok(Some(id)) => return Ok(id),
        Ok(None) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    // Several processes may begin at once, and one may have been killed before it wrote.
    file.lock()?;
    if let Some(id) = read(&mut file)? {
        return Ok(id);
    }
    let id = NodeId::random(rand::random());
    file.rewind()?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    durable::synchronise_directory(path.parent().unwrap_or(Path::new(".")))?;
    Ok(id)
}

/// The name that a file holds; `None` if it is empty.
fn read(file: &mut File) -> io::Result<Option<NodeId>> {
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    match text.trim() {
        "" => Ok(None),
        name => NodeId::try_from(name.to_owned())
            .map(Some)
            .map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, format!("the name is invalid: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once_whoever_asks() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || kept(&path).expect("a name"))
            })
            .collect();
        let names: Vec<NodeId> = threads.into_iter().map(|thread| thread.join().expect("it ends")).collect();
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
        assert_eq!(kept(&path).expect("a name"), names[0]);
    }

    #[test]
    fn a_file_that_is_empty_is_filled_and_another_one_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        std::fs::write(&path, "").expect("written");
        let name = kept(&path).expect("a name");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), format!("{name}\n"));
        std::fs::write(&path, "two words\n").expect("written");
        assert!(kept(&path).expect_err("refused").to_string().contains("the name is invalid"));
    }

    #[test]
    fn a_service_of_one_data_directory_has_no_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.data.directory = directory.path().to_owned();
        assert_eq!(node_id(&config).expect("none needed"), None);
        assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
        config.cluster.lost_after_s = 60;
        assert!(node_id(&config).expect("made").is_some());
        config.cluster.node = Some("a".to_owned().try_into().expect("a name"));
        assert_eq!(node_id(&config).expect("configured").expect("there").as_str(), "a");
    }
}
