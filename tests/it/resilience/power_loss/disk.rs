//! A model of a disk whose power can fail at any moment. From a trace of system calls, it computes which contents the
//! disk can have after a power failure.
//!
//! For each file and directory, the model stores the synced state and the changes since the last sync. It assumes only
//! what ext4 and XFS guarantee:
//!
//! - `fsync` of a file makes its content durable, but not its name.
//! - `fsync` of a directory makes the names in it durable, but neither the contents of its files nor its own name.
//! - Changes of one directory become durable in order. Changes of different directories or files become durable in any
//!   order. A rename within a directory is atomic.
//! - Writes become durable in any order, in pages or in single sectors of 512 bytes. A file can have its new length
//!   without its new content.
//!
//! For example, after `write a`, `fsync a`, and a power failure, the disk may be empty: the name `a` is durable only
//! after `fsync` of the directory.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use strata_testing::faultfs::{FileOperation, TraceEvent};

const SECTOR: u64 = 512;

/// The index of a file or directory in the model.
type NodeIndex = usize;

/// The index of the root directory.
const ROOT: NodeIndex = 0;

/// The changes since the last sync that a power failure destroys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All changes since the last sync are lost.
    Everything,
    /// No change is lost, as after a crash of only the process.
    Nothing,
    /// Contents are lost; names are durable.
    Content,
    /// Contents are lost; names and lengths are durable, and the missing content is zeros.
    ContentButLengths,
    /// Names are lost; contents are durable.
    Names,
    /// The last write of each file is torn: only its first sectors are durable.
    LastSectors,
    /// A random subset is lost, chosen by this seed.
    Random(u64),
}

/// The state of the modeled disk.
pub struct Disk {
    nodes: Vec<DiskNode>,
    by_inode: HashMap<u64, NodeIndex>,
    /// Every path that the running process sees.
    live: BTreeMap<String, NodeIndex>,
}

enum DiskNode {
    File { synced: Vec<u8>, pending: Vec<ContentChange> },
    Directory { synced: BTreeMap<String, NodeIndex>, pending: Vec<NameChange> },
}

enum ContentChange {
    Write { offset: u64, data: Vec<u8> },
    Truncate { size: u64 },
}

enum NameChange {
    Set { name: String, node: NodeIndex },
    Remove { name: String },
    Move { from: String, to: String, node: NodeIndex },
}

/// The contents of a disk: bytes by path, and `None` for directories.
pub type Image = BTreeMap<String, Option<Vec<u8>>>;

impl Disk {
    /// Returns a disk with an empty root directory.
    pub fn new() -> Disk {
        let root = DiskNode::Directory { synced: BTreeMap::new(), pending: Vec::new() };
        Disk { nodes: vec![root], by_inode: HashMap::new(), live: BTreeMap::from([(".".to_owned(), ROOT)]) }
    }

    /// Applies one event of the trace.
    pub fn apply(&mut self, event: &TraceEvent) {
        match &event.operation {
            FileOperation::Create { path } => self.create(path, event.inode, true),
            FileOperation::MakeDirectory { path } => self.create(path, event.inode, false),
            FileOperation::Write { offset, data, .. } => {
                self.change(event.inode, ContentChange::Write { offset: *offset, data: data.clone() });
            }
            FileOperation::Truncate { size, .. } => self.change(event.inode, ContentChange::Truncate { size: *size }),
            FileOperation::Rename { from, to } => {
                let (directory, name) = split(from);
                let (target, new_name) = split(to);
                let node = self.live.remove(from).unwrap_or_else(|| panic!("{from} is unknown"));
                assert!(matches!(self.nodes[node], DiskNode::File { .. }), "{from} is a directory");
                self.live.insert(to.clone(), node);
                let name = name.to_owned();
                let new_name = new_name.to_owned();
                if directory == target {
                    self.rename(directory, NameChange::Move { from: name, to: new_name, node });
                } else {
                    self.rename(target, NameChange::Set { name: new_name, node });
                    self.rename(directory, NameChange::Remove { name });
                }
            }
            FileOperation::Link { from, to } => {
                let node = self.live[from];
                self.live.insert(to.clone(), node);
                let (directory, name) = split(to);
                self.rename(directory, NameChange::Set { name: name.to_owned(), node });
            }
            FileOperation::Unlink { path } | FileOperation::RemoveDirectory { path } => {
                self.live.remove(path).unwrap_or_else(|| panic!("{path} is unknown"));
                let (directory, name) = split(path);
                self.rename(directory, NameChange::Remove { name: name.to_owned() });
            }
            FileOperation::Sync { .. } => {
                if let Some(DiskNode::File { synced, pending }) =
                    self.by_inode.get(&event.inode).map(|n| &mut self.nodes[*n])
                {
                    for change in pending.drain(..) {
                        change.apply(synced);
                    }
                }
            }
            FileOperation::SyncDirectory { path } => {
                let node = self.live[path];
                if let DiskNode::Directory { synced, pending } = &mut self.nodes[node] {
                    for change in pending.drain(..) {
                        change.apply(synced);
                    }
                }
            }
            FileOperation::SyncFailed { .. } => {
                if let Some(DiskNode::File { pending, .. }) =
                    self.by_inode.get(&event.inode).map(|n| &mut self.nodes[*n])
                {
                    pending.clear();
                }
            }
        }
    }

    fn create(&mut self, path: &str, inode: u64, is_file: bool) {
        let node = self.nodes.len();
        self.nodes.push(match is_file {
            true => DiskNode::File { synced: Vec::new(), pending: Vec::new() },
            false => DiskNode::Directory { synced: BTreeMap::new(), pending: Vec::new() },
        });
        // The file system reuses an inode number after the file is deleted.
        self.by_inode.insert(inode, node);
        self.live.insert(path.to_owned(), node);
        let (directory, name) = split(path);
        self.rename(directory, NameChange::Set { name: name.to_owned(), node });
    }

    /// Records a change of a file's content. A file whose creation is not in the trace has no name and is ignored.
    fn change(&mut self, inode: u64, change: ContentChange) {
        let node = self.by_inode.get(&inode).map(|node| &mut self.nodes[*node]);
        if let Some(DiskNode::File { pending, .. }) = node {
            pending.push(change);
        }
    }

    fn rename(&mut self, directory: &str, change: NameChange) {
        let node = *self.live.get(directory).unwrap_or_else(|| panic!("{directory} is unknown"));
        match &mut self.nodes[node] {
            DiskNode::Directory { pending, .. } => pending.push(change),
            DiskNode::File { .. } => panic!("{directory} is a file"),
        }
    }

    /// Returns the contents of the disk after a power failure at this moment.
    pub fn image_after(&self, loss: Loss) -> Image {
        let mut image = Image::new();
        let mut random = match loss {
            Loss::Random(seed) => Some(StdRng::seed_from_u64(seed)),
            _ => None,
        };
        // Two names of the same file have the same content.
        let mut contents = HashMap::new();
        self.collect(ROOT, "", loss, &mut random, &mut contents, &mut image);
        image
    }

    fn collect(
        &self,
        directory: NodeIndex,
        prefix: &str,
        loss: Loss,
        random: &mut Option<StdRng>,
        contents: &mut HashMap<NodeIndex, Vec<u8>>,
        image: &mut Image,
    ) {
        let DiskNode::Directory { synced, pending } = &self.nodes[directory] else { unreachable!() };
        let mut names = synced.clone();
        let durable = match (loss, &mut *random) {
            (Loss::Everything | Loss::Names, _) => 0,
            (Loss::Random(_), Some(random)) => random.random_range(0..=pending.len()),
            _ => pending.len(),
        };
        for change in &pending[..durable] {
            change.apply(&mut names);
        }
        for (name, node) in names {
            let path = format!("{prefix}{name}");
            match &self.nodes[node] {
                DiskNode::Directory { .. } => {
                    image.insert(path.clone(), None);
                    self.collect(node, &format!("{path}/"), loss, random, contents, image);
                }
                DiskNode::File { synced, pending } => {
                    let content = contents.entry(node).or_insert_with(|| content(synced, pending, loss, random));
                    image.insert(path, Some(content.clone()));
                }
            }
        }
    }
}

/// Returns the content of one file after the power failure.
fn content(synced: &[u8], pending: &[ContentChange], loss: Loss, random: &mut Option<StdRng>) -> Vec<u8> {
    let mut bytes = synced.to_vec();
    for (number, change) in pending.iter().enumerate() {
        match (loss, change) {
            (Loss::Everything | Loss::Content, _) => {}
            (Loss::ContentButLengths, ContentChange::Write { offset, data }) => {
                let size = bytes.len().max(*offset as usize + data.len());
                bytes.resize(size, 0);
            }
            (Loss::LastSectors, ContentChange::Write { offset, data }) if number + 1 == pending.len() => {
                // The first sectors of the write are durable, and the rest is not.
                let durable_bytes = (offset + data.len() as u64 / 2) / SECTOR * SECTOR;
                let durable_bytes = durable_bytes.saturating_sub(*offset) as usize;
                ContentChange::Write { offset: *offset, data: data[..durable_bytes].to_vec() }.apply(&mut bytes);
            }
            (Loss::Random(_), ContentChange::Write { offset, data }) => {
                if let Some(random) = random {
                    write_some(*offset, data, random, &mut bytes);
                }
            }
            (Loss::Random(_), ContentChange::Truncate { .. }) => {
                if random.as_mut().is_some_and(|random| random.random_bool(0.5)) {
                    change.apply(&mut bytes);
                }
            }
            (Loss::Nothing | Loss::Names | Loss::LastSectors | Loss::ContentButLengths, change) => {
                change.apply(&mut bytes);
            }
        }
    }
    bytes
}

/// Writes all sectors, none of them, or a random subset.
fn write_some(offset: u64, data: &[u8], random: &mut StdRng, bytes: &mut Vec<u8>) {
    let share = [0.0, 0.5, 1.0][random.random_range(0..3)];
    let mut at = 0;
    while at < data.len() {
        let position = offset + at as u64;
        let length = ((SECTOR - position % SECTOR) as usize).min(data.len() - at);
        if random.random_bool(share) {
            ContentChange::Write { offset: position, data: data[at..at + length].to_vec() }.apply(bytes);
        } else if random.random_bool(0.5) {
            bytes.resize(bytes.len().max(position as usize + length), 0);
        }
        at += length;
    }
}

impl ContentChange {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            ContentChange::Write { offset, data } => {
                let start = *offset as usize;
                if bytes.len() < start + data.len() {
                    bytes.resize(start + data.len(), 0);
                }
                bytes[start..start + data.len()].copy_from_slice(data);
            }
            ContentChange::Truncate { size } => bytes.resize(*size as usize, 0),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, NodeIndex>) {
        match self {
            NameChange::Set { name, node } => {
                names.insert(name.clone(), *node);
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
            NameChange::Move { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// Returns the parent directory of a path and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((".", path))
}

/// Creates a directory with the contents of an image.
pub fn write(image: &Image, directory: &Path) {
    for (path, content) in image {
        let path = directory.join(path);
        match content {
            None => std::fs::create_dir(path).expect("failed to create the directory"),
            Some(bytes) => std::fs::write(path, bytes).expect("written"),
        }
    }
}

/// Returns a disk after the operations. Each operation comes with its inode; only inode 1 is a file with data.
#[cfg(test)]
fn disk(operations: &[(u64, FileOperation)]) -> Disk {
    let mut disk = Disk::new();
    for (inode, operation) in operations {
        disk.apply(&TraceEvent { end: 0, inode: *inode, operation: operation.clone() });
    }
    disk
}

#[test]
fn synced_changes_survive_and_others_may_not() {
    let path = || "a".to_owned();
    let next = || "b".to_owned();
    let write = |offset, byte, length| FileOperation::Write { path: path(), offset, data: vec![byte; length] };
    let mut operations = vec![(1, FileOperation::Create { path: path() }), (1, write(0, 1, 1_024))];
    let whole = |byte: u8| Some(vec![byte; 1_024]);
    assert_eq!(disk(&operations).image_after(Loss::Everything), Image::new());
    assert_eq!(disk(&operations).image_after(Loss::Nothing), Image::from([(path(), whole(1))]));
    assert_eq!(disk(&operations).image_after(Loss::Content), Image::from([(path(), Some(Vec::new()))]));
    assert_eq!(disk(&operations).image_after(Loss::ContentButLengths), Image::from([(path(), whole(0))]));
    assert_eq!(disk(&operations).image_after(Loss::LastSectors), Image::from([(path(), Some(vec![1; 512]))]));

    // First only the content is synced, which has no durable name. Then the name is synced.
    operations.push((1, FileOperation::Sync { path: path() }));
    assert_eq!(disk(&operations).image_after(Loss::Everything), Image::new());
    operations.push((0, FileOperation::SyncDirectory { path: ".".to_owned() }));
    assert_eq!(disk(&operations).image_after(Loss::Everything), Image::from([(path(), whole(1))]));

    operations.push((1, write(0, 2, 1_024)));
    operations.push((0, FileOperation::Rename { from: path(), to: next() }));
    assert_eq!(disk(&operations).image_after(Loss::Everything), Image::from([(path(), whole(1))]));
    assert_eq!(disk(&operations).image_after(Loss::Names), Image::from([(path(), whole(2))]));
    assert_eq!(disk(&operations).image_after(Loss::Content), Image::from([(next(), whole(1))]));
    let images = (0..200).map(|seed| disk(&operations).image_after(Loss::Random(seed)));
    let distinct: std::collections::BTreeSet<_> = images.collect();
    // Two possible names, and each of the two sectors is either old or new.
    assert_eq!(distinct.len(), 8);
}
