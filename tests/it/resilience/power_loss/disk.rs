//! A disk whose power can fail at any moment: what a trace leaves on it.
//!
//! The model keeps, for each file and directory, what a sync has made durable and what has changed since. It assumes as
//! little as ext4 and XFS promise:
//!
//! - `fsync` of a file makes its content durable, not its name.
//! - `fsync` of a directory makes the names in it durable, not the content of its files, nor its own name.
//! - Changes of one directory become durable in their order; those of different directories, and the content of
//!   different files, in any order. A rename within a directory is atomic.
//! - Writes become durable in any order, in pages or single sectors of 512 bytes; a file can have its new length
//!   without its new content.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use strata_testing::faultfs::{Event, Operation};

const SECTOR: u64 = 512;

/// The number of a file or directory in the model.
type Node = usize;

/// The node of the root.
const ROOT: Node = 0;

/// What has become durable of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing.
    Everything,
    /// All of it, as after a crash of the process alone.
    Nothing,
    /// Names, and no content.
    Content,
    /// Names and lengths; content that was not synced is zeros.
    ContentButLengths,
    /// Content, and no names.
    Names,
    /// All but the end of the last write of each file, which is torn.
    LastSectors,
    /// Anything, by a seed.
    Random(u64),
}

/// The disk.
pub struct Disk {
    nodes: Vec<Content>,
    /// The model's number of an inode.
    by_inode: HashMap<u64, Node>,
    /// Every path as the process sees it.
    live: BTreeMap<String, Node>,
}

enum Content {
    File { synced: Vec<u8>, pending: Vec<Change> },
    Directory { synced: BTreeMap<String, Node>, pending: Vec<NameChange> },
}

enum Change {
    Write { offset: u64, data: Vec<u8> },
    Truncate { size: u64 },
}

enum NameChange {
    Set { name: String, node: Node },
    Remove { name: String },
    Move { from: String, to: String, node: Node },
}

/// What is on a disk: the content of files by path; directories have none.
pub type Image = BTreeMap<String, Option<Vec<u8>>>;

impl Disk {
    /// A disk with an empty root.
    pub fn new() -> Disk {
        let root = Content::Directory { synced: BTreeMap::new(), pending: Vec::new() };
        Disk { nodes: vec![root], by_inode: HashMap::new(), live: BTreeMap::from([(".".to_owned(), ROOT)]) }
    }

    /// What an event does.
    pub fn apply(&mut self, event: &Event) {
        match &event.operation {
            Operation::Create { path } => self.create(path, event.inode, true),
            Operation::MakeDirectory { path } => self.create(path, event.inode, false),
            Operation::Write { offset, data, .. } => {
                self.change(event.inode, Change::Write { offset: *offset, data: data.clone() });
            }
            Operation::Truncate { size, .. } => self.change(event.inode, Change::Truncate { size: *size }),
            Operation::Rename { from, to } => {
                let (directory, name) = split(from);
                let (target, new_name) = split(to);
                let node = self.live.remove(from).unwrap_or_else(|| panic!("{from} is unknown"));
                assert!(matches!(self.nodes[node], Content::File { .. }), "{from} is a directory");
                self.live.insert(to.clone(), node);
                let (name, new_name) = (name.to_owned(), new_name.to_owned());
                if directory == target {
                    self.rename(directory, NameChange::Move { from: name, to: new_name, node });
                } else {
                    self.rename(target, NameChange::Set { name: new_name, node });
                    self.rename(directory, NameChange::Remove { name });
                }
            }
            Operation::Link { from, to } => {
                let node = self.live[from];
                self.live.insert(to.clone(), node);
                let (directory, name) = split(to);
                self.rename(directory, NameChange::Set { name: name.to_owned(), node });
            }
            Operation::Unlink { path } | Operation::RemoveDirectory { path } => {
                self.live.remove(path).unwrap_or_else(|| panic!("{path} is unknown"));
                let (directory, name) = split(path);
                self.rename(directory, NameChange::Remove { name: name.to_owned() });
            }
            Operation::Sync { .. } => {
                if let Some(Content::File { synced, pending }) =
                    self.by_inode.get(&event.inode).map(|n| &mut self.nodes[*n])
                {
                    for change in pending.drain(..) {
                        change.apply(synced);
                    }
                }
            }
            Operation::SyncDirectory { path } => {
                let node = self.live[path];
                if let Content::Directory { synced, pending } = &mut self.nodes[node] {
                    for change in pending.drain(..) {
                        change.apply(synced);
                    }
                }
            }
            Operation::SyncFailed { .. } => {
                if let Some(Content::File { pending, .. }) =
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
            true => Content::File { synced: Vec::new(), pending: Vec::new() },
            false => Content::Directory { synced: BTreeMap::new(), pending: Vec::new() },
        });
        // Inodes are used again after their file is gone.
        self.by_inode.insert(inode, node);
        self.live.insert(path.to_owned(), node);
        let (directory, name) = split(path);
        self.rename(directory, NameChange::Set { name: name.to_owned(), node });
    }

    /// Changes a file's content. Files that were not seen to be made have no name that lasts.
    fn change(&mut self, inode: u64, change: Change) {
        let node = self.by_inode.get(&inode).map(|node| &mut self.nodes[*node]);
        if let Some(Content::File { pending, .. }) = node {
            pending.push(change);
        }
    }

    fn rename(&mut self, directory: &str, change: NameChange) {
        let node = *self.live.get(directory).unwrap_or_else(|| panic!("{directory} is unknown"));
        match &mut self.nodes[node] {
            Content::Directory { pending, .. } => pending.push(change),
            Content::File { .. } => panic!("{directory} is a file"),
        }
    }

    /// What is on the disk when the power fails now.
    pub fn after(&self, loss: Loss) -> Image {
        let mut image = Image::new();
        let mut random = match loss {
            Loss::Random(seed) => Some(StdRng::seed_from_u64(seed)),
            _ => None,
        };
        // A file with two names has one content.
        let mut contents = HashMap::new();
        self.collect(ROOT, "", loss, &mut random, &mut contents, &mut image);
        image
    }

    fn collect(
        &self,
        directory: Node,
        prefix: &str,
        loss: Loss,
        random: &mut Option<StdRng>,
        contents: &mut HashMap<Node, Vec<u8>>,
        image: &mut Image,
    ) {
        let Content::Directory { synced, pending } = &self.nodes[directory] else { unreachable!() };
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
                Content::Directory { .. } => {
                    image.insert(path.clone(), None);
                    self.collect(node, &format!("{path}/"), loss, random, contents, image);
                }
                Content::File { synced, pending } => {
                    let content = contents.entry(node).or_insert_with(|| content(synced, pending, loss, random));
                    image.insert(path, Some(content.clone()));
                }
            }
        }
    }
}

/// What is left of a file.
fn content(synced: &[u8], pending: &[Change], loss: Loss, random: &mut Option<StdRng>) -> Vec<u8> {
    let mut bytes = synced.to_vec();
    for (number, change) in pending.iter().enumerate() {
        match (loss, change) {
            (Loss::Everything | Loss::Content, _) => {}
            (Loss::ContentButLengths, Change::Write { offset, data }) => {
                let size = bytes.len().max(*offset as usize + data.len());
                bytes.resize(size, 0);
            }
            (Loss::LastSectors, Change::Write { offset, data }) if number + 1 == pending.len() => {
                // The first sectors of a write are there, the rest is not.
                let kept = (offset + data.len() as u64 / 2) / SECTOR * SECTOR;
                let kept = kept.saturating_sub(*offset) as usize;
                Change::Write { offset: *offset, data: data[..kept].to_vec() }.apply(&mut bytes);
            }
            (Loss::Random(_), Change::Write { offset, data }) => {
                if let Some(random) = random {
                    write_some(*offset, data, random, &mut bytes);
                }
            }
            (Loss::Random(_), Change::Truncate { .. }) => {
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

/// Writes all, none, or some of the sectors.
fn write_some(offset: u64, data: &[u8], random: &mut StdRng, bytes: &mut Vec<u8>) {
    let share = [0.0, 0.5, 1.0][random.random_range(0..3)];
    let mut at = 0;
    while at < data.len() {
        let position = offset + at as u64;
        let length = ((SECTOR - position % SECTOR) as usize).min(data.len() - at);
        if random.random_bool(share) {
            Change::Write { offset: position, data: data[at..at + length].to_vec() }.apply(bytes);
        } else if random.random_bool(0.5) {
            bytes.resize(bytes.len().max(position as usize + length), 0);
        }
        at += length;
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { offset, data } => {
                let start = *offset as usize;
                if bytes.len() < start + data.len() {
                    bytes.resize(start + data.len(), 0);
                }
                bytes[start..start + data.len()].copy_from_slice(data);
            }
            Change::Truncate { size } => bytes.resize(*size as usize, 0),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, Node>) {
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

/// The directory of a path, and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((".", path))
}

/// Makes a directory that holds an image.
pub fn write(image: &Image, directory: &Path) {
    for (path, content) in image {
        let path = directory.join(path);
        match content {
            None => std::fs::create_dir(path).expect("made"),
            Some(bytes) => std::fs::write(path, bytes).expect("written"),
        }
    }
}

/// A disk after these events, none of which has data to look at by inode but file 1.
#[cfg(test)]
fn disk(operations: &[(u64, Operation)]) -> Disk {
    let mut disk = Disk::new();
    for (inode, operation) in operations {
        disk.apply(&Event { end: 0, inode: *inode, operation: operation.clone() });
    }
    disk
}

#[test]
fn what_is_synced_stays_and_what_is_not_may_go() {
    let (path, next) = (|| "a".to_owned(), || "b".to_owned());
    let write = |offset, byte, length| Operation::Write { path: path(), offset, data: vec![byte; length] };
    let mut operations = vec![(1, Operation::Create { path: path() }), (1, write(0, 1, 1_024))];
    let whole = |byte: u8| Some(vec![byte; 1_024]);
    assert_eq!(disk(&operations).after(Loss::Everything), Image::new());
    assert_eq!(disk(&operations).after(Loss::Nothing), Image::from([(path(), whole(1))]));
    assert_eq!(disk(&operations).after(Loss::Content), Image::from([(path(), Some(Vec::new()))]));
    assert_eq!(disk(&operations).after(Loss::ContentButLengths), Image::from([(path(), whole(0))]));
    assert_eq!(disk(&operations).after(Loss::LastSectors), Image::from([(path(), Some(vec![1; 512]))]));

    // The content alone, which has no name; then the name.
    operations.push((1, Operation::Sync { path: path() }));
    assert_eq!(disk(&operations).after(Loss::Everything), Image::new());
    operations.push((0, Operation::SyncDirectory { path: ".".to_owned() }));
    assert_eq!(disk(&operations).after(Loss::Everything), Image::from([(path(), whole(1))]));

    operations.push((1, write(0, 2, 1_024)));
    operations.push((0, Operation::Rename { from: path(), to: next() }));
    assert_eq!(disk(&operations).after(Loss::Everything), Image::from([(path(), whole(1))]));
    assert_eq!(disk(&operations).after(Loss::Names), Image::from([(path(), whole(2))]));
    assert_eq!(disk(&operations).after(Loss::Content), Image::from([(next(), whole(1))]));
    let images = (0..200).map(|seed| disk(&operations).after(Loss::Random(seed)));
    let distinct: std::collections::BTreeSet<_> = images.collect();
    // Two names, and each of two sectors old or new.
    assert_eq!(distinct.len(), 8);
}
