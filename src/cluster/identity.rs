//! The name of a server among those of the service: configured, or made once and kept in the data directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use strata_config::Config;
use strata_store::durable;
use strata_types::node::NodeId;

const FILE: &str = "node.id";

const MAX_BYTES: u64 = 1_024;

#[derive(Debug, thiserror::Error)]
#[error("failed to read or create the node name in {} (you can set `cluster.node` instead)", path.display())]
pub struct NoNodeId {
    path: PathBuf,
    source: io::Error,
}

/// The name of this server; `None` for a service of one data directory. The data directory must exist.
pub fn node_id(config: &Config) -> Result<Option<NodeId>, NoNodeId> {
    if let Some(name) = &config.cluster.node {
        return Ok(Some(name.clone()));
    }
    // With the catalog in the data directory, whoever shares the catalog shares the directory.
    if config.catalog.url.is_none() && !config.has_nodes() {
        return Ok(None);
    }
    let path = config.data.directory.join(FILE);
    read_or_create(&path).map(Some).map_err(|source| NoNodeId { path, source })
}

/// The name in the file, which is made when it is missing.
fn read_or_create(path: &Path) -> io::Result<NodeId> {
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
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    match text.trim() {
        "" => Ok(None),
        name => NodeId::try_from(name.to_owned())
            .map(Some)
            .map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, format!("the name is invalid: {reason}"))),
    }
}
