//! The name of a node: configured, or generated once and stored in the data directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use strata_config::Config;
use strata_store::fsync;
use strata_types::node::NodeId;

const NODE_ID_FILE: &str = "node.id";
const MAX_NODE_ID_BYTES: u64 = 1_024;

#[derive(Debug, thiserror::Error)]
#[error("failed to read or create the node name in {} (you can set `cluster.node` instead)", path.display())]
pub struct NodeIdError {
    path: PathBuf,
    source: io::Error,
}

/// Returns the name of this node; `None` for a service with a single data directory. The data directory must exist.
pub fn load_node_id(config: &Config) -> Result<Option<NodeId>, NodeIdError> {
    if let Some(name) = &config.cluster.node {
        return Ok(Some(name.clone()));
    }
    // A metadata database in the data directory is used by this node only, so the node needs no name.
    if config.catalog.url.is_none() && !config.has_node_registration() {
        return Ok(None);
    }
    let path = config.data.directory.join(NODE_ID_FILE);
    read_or_create_node_id(&path).map(Some).map_err(|source| NodeIdError { path, source })
}

fn read_or_create_node_id(path: &Path) -> io::Result<NodeId> {
    match File::open(path).and_then(|mut file| read_node_id(&mut file)) {
        Ok(Some(id)) => return Ok(id),
        Ok(None) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    // The file with the node name is locked, because processes can start together. A killed process can leave it empty.
    file.lock()?;
    if let Some(id) = read_node_id(&mut file)? {
        return Ok(id);
    }
    let id = NodeId::from_random_bytes(rand::random());
    file.rewind()?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fsync::sync_dir(path.parent().unwrap_or(Path::new(".")))?;
    Ok(id)
}

fn read_node_id(file: &mut File) -> io::Result<Option<NodeId>> {
    let mut text = String::new();
    file.take(MAX_NODE_ID_BYTES).read_to_string(&mut text)?;
    match text.trim() {
        "" => Ok(None),
        name => NodeId::try_from(name.to_owned())
            .map(Some)
            .map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, format!("the name is invalid: {reason}"))),
    }
}
